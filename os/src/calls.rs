//! Each function of the table is called on the real library.
//!
//! Feature `system`, tests only; a device is needed, as in `tests/devices.rs`.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::Write;

use efa_core::flags::{QpAttrMask as Mask, SendOps};
use efa_core::qp::{Depth, QpAttr, QpState, QpType, SendOnly, Ud};
use efa_core::{Context, CqInit, DataPath, ProtectionDomain, Provider, QpInit, Token};

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
    events(&ctx, &pd);
    assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions(), ctx.leaks().objects()), (0, 0, 0));
}

/// An event of a completion queue, and the asynchronous one of a drained send queue.
fn events(ctx: &Context<Device>, pd: &ProtectionDomain<Device>) {
    let device = ctx.provider();
    let channel = device.channel().unwrap();
    let kind = ctx.require::<SendOnly>().unwrap();
    let mut qp = pd.on_channel(&channel).endpoint(kind, Depth::new(4, 4)).unwrap();
    let (to_itself, _) = efa_core::connect::introduce(&qp, &qp).unwrap();
    qp.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
    assert!(qp.arm().unwrap().is_none());
    qp.post(to_itself.send_inline(b"x"), Token(2)).unwrap();
    assert!(channel.wait(None).unwrap() > 0);

    let cq = device.create_cq(&CqInit { entries: 256, sgid: false, unsolicited: false }).unwrap();
    let init = QpInit::new(QpType::Ud, SendOps::SEND, device.limits().min_send_depth, 1);
    let mut qp = device.create_qp(&device.alloc_pd().unwrap(), &cq, &cq, &init).unwrap();
    let to_init = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY;
    device.modify_qp(&mut qp, &QpAttr::to(QpState::Init, to_init)).unwrap();
    device.modify_qp(&mut qp, &QpAttr::to(QpState::Rtr, Mask::STATE)).unwrap();
    device.modify_qp(&mut qp, &QpAttr::to(QpState::Rts, Mask::STATE | Mask::SQ_PSN)).unwrap();
    let drained = QpAttr::to(QpState::Sqd, Mask::STATE | Mask::EN_SQD_ASYNC_NOTIFY);
    device.modify_qp(&mut qp, &QpAttr { sqd_async_notify: true, ..drained }).unwrap();
    let mut events = device.events().unwrap();
    // Not every device tells.
    let told = (0..1000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        events.next()
    });
    assert!(told.is_none_or(|event| event.is_ok()));
}
