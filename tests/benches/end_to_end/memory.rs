//! Bytes: of values, and of what is allocated for a queue pair, a peer and an operation in flight on the software device.

use efa_core::flow::{Arrivals, Reorder};
use efa_core::memory::{Exposed, ExposedPart, Frozen, Pages, Pool, Region, RemoteWrite, Slice};
use efa_core::peer::{Mutual, Peer, PeerTable, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, Srd};
use efa_core::ring::Slot;
use efa_core::soft::{Profile, SoftDevice};
use efa_core::work::{Batch, Event};
use efa_core::{Context, Error, ProtectionDomain, Refused, Token};
use efa_examples::fault::Fault;
use efa_tests::alloc_count::bytes_kept_by;

use crate::Report;

type P = SoftDevice;

pub(crate) fn run(report: &mut Report) -> Result<(), Fault> {
    allocated(report)?;
    fn size<T>(report: &mut Report, name: &str) {
        report.told(&format!("size of {name}"), size_of::<T>() as f64, "B");
    }
    size::<Endpoint<P>>(report, "QueuePair");
    size::<Peer<Mutual>>(report, "Peer");
    size::<PeerTable<16>>(report, "PeerTable of 16");
    size::<Slot>(report, "Slot, an operation in flight");
    size::<Event>(report, "Event");
    size::<Token>(report, "Token");
    size::<Slice>(report, "Slice");
    size::<Frozen>(report, "Frozen");
    size::<ExposedPart>(report, "ExposedPart");
    size::<Exposed<Pages, RemoteWrite>>(report, "Exposed");
    size::<Region<Pages>>(report, "Region");
    size::<RemoteWindow<RemoteWrite>>(report, "RemoteWindow");
    size::<Refused<Slice>>(report, "Refused<Slice>");
    size::<Error>(report, "Error");
    size::<Batch<'_, P, Srd>>(report, "Batch");
    size::<Pool<16>>(report, "Pool of 16");
    size::<Arrivals>(report, "Arrivals");
    size::<Reorder<Slice, 16>>(report, "Reorder of 16 slices");
    size::<Context<P>>(report, "Context");
    size::<ProtectionDomain<P>>(report, "ProtectionDomain");
    Ok(())
}

/// Of a queue pair, and of each operation and receive that may be in flight on it: the difference that depth makes.
fn allocated(report: &mut Report) -> Result<(), Fault> {
    let ctx = Context::open(SoftDevice::new(Profile::RDMA));
    let pd = ctx.alloc_pd()?;
    let made = |send: u32, recv: u32| {
        let (bytes, made) = bytes_kept_by(|| pd.endpoint(ctx.require::<Srd>()?, Depth::new(send, recv)));
        Ok::<_, Fault>((bytes as f64, made?))
    };
    // The first one finds the device's tables to be made.
    let (_, first) = made(16, 16)?;
    let (small, a) = made(16, 16)?;
    let (sends, b) = made(1040, 16)?;
    let (receives, _c) = made(16, 1040)?;
    // Depths are rounded up to powers of two.
    let each = |bytes: f64| (bytes - small) / (2048.0 - 16.0);
    report.told("allocated for a queue pair of 16 sends and 16 receives", small, "B");
    report.told("for each operation in flight more", each(sends), "B");
    report.told("for each receive in flight more", each(receives), "B");
    let (first_peer, peer) = bytes_kept_by(|| a.resolve(b.hello().as_bytes()).map(|resolved| resolved.0));
    let _peer = peer?;
    let (next_peer, peer) = bytes_kept_by(|| a.resolve(first.hello().as_bytes()).map(|resolved| resolved.0));
    let _other = peer?;
    report.told("for the first peer at an address", first_peer as f64, "B");
    report.told("for each further one there", next_peer as f64, "B");
    Ok(())
}
