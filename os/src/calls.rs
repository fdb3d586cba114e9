//! Each function of the table is called on the real library, or is here by name with the reason why not.
//!
//! Feature `system`, tests only; a device is needed, as in `tests/devices.rs`.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::Write;

use efa_core::qp::{Depth, Srd, Ud};
use efa_core::{Context, Token};

use crate::loader::{Table, called, table};

#[test]
fn every_function_of_the_table_is_called() {
    let devices = match crate::devices() {
        Ok(devices) => devices,
        Err(error) => {
            assert!(std::env::var_os("EFA_OS_DEVICE").is_none_or(|value| value != "required"), "{error}");
            writeln!(std::io::stdout().lock(), "\nfigure: efa-os: skipped the calls: {error}").unwrap();
            return;
        }
    };
    for device in devices {
        let ctx = Context::open(device);
        let pd = ctx.alloc_pd().unwrap();
        let srd = pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap();
        let mut ud = pd.endpoint(ctx.require::<Ud>().unwrap(), Depth::new(4, 4)).unwrap();
        let (to_ud, _) = efa_core::connect::introduce(&ud, &ud).unwrap();
        ud.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
        ud.post(to_ud.send_inline(b"x"), Token(2)).unwrap();
        while ud.in_flight() > 0 {
            ud.poll();
        }
        drop(srd.query().unwrap());
        assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions(), ctx.leaks().objects()), (0, 0, 0));
    }
    let here = table().unwrap();
    let optional = Table::OPTIONAL.iter().filter(|symbol| here.has(symbol.name));
    let all: BTreeSet<&str> = Table::REQUIRED.iter().chain(optional).map(|symbol| symbol.name).collect();
    let called = called::all();
    let not: Vec<_> = all.difference(&called).collect();
    assert!(not.is_empty(), "never called: {not:?}");
    writeln!(std::io::stdout().lock(), "\nfigure: efa-os: {} functions of the libraries called", all.len()).unwrap();
}
