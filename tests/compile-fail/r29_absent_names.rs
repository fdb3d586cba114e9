//! R29: there is no reliable connection, no shared receive queue, no atomic and no memory window to import.

use efa_core::flags::Access;
use efa_core::flags::SendOps;
use efa_core::qp::QpType;

fn rc() -> QpType {
    QpType::Rc
}

fn atomic() -> SendOps {
    SendOps::ATOMIC_FETCH_ADD
}

fn remote_atomic() -> Access {
    Access::REMOTE_ATOMIC
}

fn memory_window() -> Access {
    Access::MW_BIND
}

fn main() {}
