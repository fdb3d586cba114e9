//! Which devices the tests run on, and over which data path.

#![allow(dead_code)] // each test uses a part of it

use std::io::Write;
use std::time::{Duration, Instant};

use efa_core::qp::{Endpoint, QpKind, Srd, ops};
use efa_core::work::Event;
use efa_core::{Caps, Context, DataPath, Provider};
use efa_os::Device;

/// The test over each data path, with two devices, or one that is both sides.
pub(crate) fn on_each_path(test: &str, run: impl Fn([Context<Device>; 2])) {
    on_devices(test, |devices| run([0, 1 % devices.len()].map(|nth| Context::open(devices[nth].clone()))));
}

/// The test over each data path, with a device that is both sides, and between two where there are two.
pub(crate) fn on_each_pair(test: &str, run: impl Fn([Context<Device>; 2])) {
    on_devices(test, |devices| {
        for other in devices.iter().take(2) {
            run([&devices[0], other].map(|device| Context::open(device.clone())));
        }
    });
}

/// The test over each data path; over none where `EFA_OS_SKIP` says why, which is counted.
fn on_devices(test: &str, run: impl Fn(Vec<Device>)) {
    if let Ok(why) = std::env::var("EFA_OS_SKIP") {
        return skipped(test, &why);
    }
    let required = std::env::var("EFA_OS_REQUIRED").unwrap_or_default();
    for path in [DataPath::Direct, DataPath::Verbs] {
        match open(path) {
            Ok(devices) => {
                assert_eq!(devices[0].data_path(), path);
                run(devices);
            }
            Err(error) if required.contains(&path.to_string()) => panic!("{path}: {error}"),
            Err(error) => skipped(test, &format!("no {path} path: {error}")),
        }
    }
}

/// The EFA devices, at least one.
fn open(path: DataPath) -> Result<Vec<Device>, efa_os::Error> {
    efa_os::devices()?;
    let opened = efa_os::list()?.into_iter().map(|listed| listed.open_with(path));
    opened.filter(|opened| !matches!(opened, Err(efa_os::Error::NotEfa { .. }))).collect()
}

/// Says so where libtest does not keep it: `tests/run` counts each reason.
pub(crate) fn skipped(test: &str, why: &str) {
    println!("skipped {test}: {why}");
    writeln!(std::io::stdout().lock(), "\nskipped: {why}").unwrap();
}

/// How often something is repeated: as `EFA_OS_ROUNDS` says, which is for slow machines, or so often.
pub(crate) fn rounds(usually: u32) -> u32 {
    std::env::var("EFA_OS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usually)
}

/// Whether the devices, and the library that asks them, have RDMA writes.
pub(crate) fn has_writes(contexts: &[Context<Device>; 2], test: &str) -> bool {
    let caps = contexts.iter().fold(Caps::all(), |caps, ctx| caps & ctx.caps());
    let has = caps.contains(Caps::RDMA_READ | Caps::RDMA_WRITE);
    if !has {
        let [_, libefa] = contexts[0].provider().libraries();
        skipped(test, &format!("no RDMA write of this device by {libefa}"));
    }
    has
}

/// SENDs and RDMA reads: what every libefa has.
pub(crate) type Basic = Srd<{ ops::SEND | ops::SEND_WITH_IMM | ops::RDMA_READ }>;

/// The next event, which must come within ten seconds.
#[track_caller]
pub(crate) fn wait<P: Provider, K: QpKind>(endpoint: &mut Endpoint<P, K>) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = endpoint.poll() {
            return event;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no event came");
        std::thread::yield_now();
    }
}
