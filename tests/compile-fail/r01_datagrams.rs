//! R01: a UD queue pair has no RNR retry, and no more transitions than its table.

use efa_core::qp::{QueuePair, Reset, RnrRetry, Rtr, RtsAttr, Ud};
use efa_core::{Granted, Provider, SetRnrRetry};

fn retries<P: Provider>(qp: QueuePair<P, Rtr, Ud>, token: Granted<SetRnrRetry>) {
    let _ = qp.rts(RtsAttr::new().rnr_retry(token, RnrRetry::FOREVER));
}

fn retries_with_a_psn<P: Provider>(qp: QueuePair<P, Rtr, Ud>, token: Granted<SetRnrRetry>) {
    let _ = qp.rts(RtsAttr::new().rnr_retry(token, RnrRetry::FOREVER).psn(7));
}

fn skipped<P: Provider>(qp: QueuePair<P, Reset, Ud>) {
    let _ = qp.rtr();
}

fn main() {}
