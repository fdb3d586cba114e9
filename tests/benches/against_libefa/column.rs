//! Who does the work: the table's columns.

use clap::ValueEnum;
use efa_core::DataPath;
use efa_core::soft::{Profile, SoftDevice};
use efa_tests::still::Still;

use crate::ours::{self, Device};
use crate::subject::{Queue, Subject};
use crate::theirs::Theirs;

/// Who does it: a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Debug)]
pub(crate) enum Column {
    /// `fi_send`, `fi_cq_read` of `efa-direct`, for one thread.
    Libfabric,
    /// `ibv_post_send`, `ibv_poll_cq`.
    Classic,
    /// `ibv_wr_*`, `ibv_start_poll`, in a thread domain: without locks.
    Extended,
    Verbs,
    Direct,
    Core,
}

impl Column {
    pub(crate) const ALL: [Self; 6] =
        [Self::Libfabric, Self::Classic, Self::Extended, Self::Verbs, Self::Direct, Self::Core];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Libfabric => "libfabric",
            Self::Classic => "libefa classic",
            Self::Extended => "libefa extended",
            Self::Verbs => "efa-os verbs",
            Self::Direct => "efa-os direct",
            Self::Core => "core on a stub",
        }
    }

    fn is_theirs(self) -> bool {
        matches!(self, Self::Libfabric | Self::Classic | Self::Extended)
    }

    /// Where its completions may arrive.
    pub(crate) fn queues(self) -> &'static [Queue] {
        if self.is_theirs() { &[Queue::Own, Queue::One] } else { &[Queue::Own, Queue::One, Queue::Group] }
    }

    /// The subject, which is to be timed if that is said; `theirs` is there for all but core.
    pub(crate) fn subject(self, queue: Queue, theirs: Option<Theirs>, timed: bool) -> Box<dyn Subject> {
        let theirs = || theirs.expect("--library");
        let drive = || {
            let drive = theirs().drive();
            // SAFETY: as it is declared in `libefa.c`.
            let drive = move || assert_eq!(unsafe { drive() }, 0, "the device is not softefa's");
            // From now on it does nothing by itself.
            drive();
            drive
        };
        let open = |path| efa_os::list().unwrap().into_iter().next().expect("a device").open_with(path).unwrap();
        let driven = || Device::Driven(Box::new(drive()));
        match self {
            Self::Libfabric => theirs().subject(false, true, queue, false),
            Self::Classic => theirs().subject(false, false, queue, timed),
            Self::Extended => theirs().subject(true, true, queue, timed),
            Self::Verbs => ours::subject(open(DataPath::Verbs), queue, driven(), timed),
            Self::Direct if timed => {
                drive()();
                let theirs = theirs();
                let forged = Device::Forged(Box::new(move |ring, bytes| theirs.unlock(ring, bytes)));
                ours::subject(Still(open(DataPath::Direct)), queue, forged, timed)
            }
            Self::Direct => ours::subject(open(DataPath::Direct), queue, driven(), timed),
            Self::Core => {
                ours::subject(Still(SoftDevice::new(Profile::RDMA)), queue, Device::Forged(Box::new(|_, _| ())), timed)
            }
        }
    }
}

/// A queue by its number, which is what a child of this program is told.
pub(crate) const QUEUES: [Queue; 3] = [Queue::Own, Queue::One, Queue::Group];
