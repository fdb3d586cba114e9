//! Each function of the table is called on the real library.
//!
//! Feature `system`, tests only; a device is needed, as in `tests/devices.rs`.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::Write;

use efa_core::qp::{Depth, SendOnly, Ud};
use efa_core::{Context, DataPath, Token};

use crate::loader::{Table, called, table};
use crate::{Device, DmaBufFile};

#[test]
fn every_function_of_the_table_is_called() {
    let required = std::env::var("EFA_OS_REQUIRED").unwrap_or_default();
    for path in [DataPath::Direct, DataPath::Verbs] {
        match crate::devices().and_then(|_| crate::list()?.into_iter().map(|listed| listed.open_with(path)).collect()) {
            Ok(devices) => Vec::into_iter(devices).for_each(use_all),
            Err(error) if required.contains(&path.to_string()) => panic!("{path}: {error}"),
            Err(error) => {
                writeln!(std::io::stdout().lock(), "\nskipped: no {path} path: {error}").unwrap();
            }
        }
    }
    if required.is_empty() {
        return;
    }
    crate::fork_safety().unwrap();
    let here = table().unwrap();
    let optional = Table::OPTIONAL.iter().filter(|symbol| here.has(symbol.name));
    let all: BTreeSet<&str> = Table::REQUIRED.iter().chain(optional).map(|symbol| symbol.name).collect();
    let called = called::all();
    let not: Vec<_> = all.difference(&called).collect();
    assert!(not.is_empty(), "never called: {not:?}");
    writeln!(std::io::stdout().lock(), "\nfigure: efa-os: {} functions of the libraries called", all.len()).unwrap();
}

fn use_all(device: Device) {
    let ctx = Context::open(device);
    let pd = ctx.alloc_pd().unwrap();
    let srd = pd.endpoint(ctx.require::<SendOnly>().unwrap(), Depth::new(4, 4)).unwrap();
    let mut ud = pd.endpoint(ctx.require::<Ud>().unwrap(), Depth::new(4, 4)).unwrap();
    let (to_ud, _) = efa_core::connect::introduce(&ud, &ud).unwrap();
    ud.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
    ud.post(to_ud.send_inline(b"x"), Token(2)).unwrap();
    while ud.in_flight() > 0 {
        ud.poll();
    }
    // Whatever they answer: tests/queries.rs and tests/registration.rs say what.
    let device = ctx.provider();
    device.attributes().unwrap();
    device.query_queue_pair(srd.qpn()).unwrap();
    let (region, _slice) = pd.register(vec![0; 64]).unwrap();
    drop(device.interconnects(region.attr()));
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    drop(pd.register(DmaBufFile::new(file.into(), 0, 1)));
    drop((region, srd.query().unwrap()));
    assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions(), ctx.leaks().objects()), (0, 0, 0));
}
