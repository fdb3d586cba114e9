//! What devices, queue pairs and regions say of themselves, on real libraries. As `devices.rs`.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{Basic, on_each_path, skipped};
use efa_core::flags::QpAttrMask;
use efa_core::memory::{PageSize, Pages, RemoteRead, RemoteReadWrite};
use efa_core::qp::{Depth, InitAttr, QpAttr, QpState, RtsAttr, Srd, Unsolicited, Wide, ops};
use efa_core::{DataPath, Error, Qkey, Qpn, Requirement, Verb};
use efa_os::{Library, LinkLayer, PortState};

#[test]
fn a_device_and_its_port_say_what_they_are_and_print_it() {
    on_each_path("attributes", |[ctx, _]| {
        let (device, limits) = (ctx.provider(), ctx.limits());
        let attributes = device.attributes().unwrap();
        assert_eq!((attributes.guid, attributes.gid, attributes.name.as_str()), (device.guid(), ctx.gid(), ctx.name()));
        assert_eq!((attributes.vendor, attributes.part >> 4), (0x1D0F, 0xEFA));
        assert_eq!((attributes.caps, attributes.limits, attributes.path), (ctx.caps(), limits, ctx.data_path()));
        let [least, most] = attributes.page_range().unwrap();
        assert!(least >= 4096 && most >= least && least.is_power_of_two(), "{least} {most}");
        let port = attributes.port;
        assert_eq!((port.state, port.max_message), (PortState::Active, limits.max_msg_size));
        assert!(matches!(port.link_layer, LinkLayer::Unspecified | LinkLayer::Ethernet | LinkLayer::InfiniBand));
        assert!(port.megabits.is_some_and(|megabits| megabits >= 1000), "{port:?}");
        assert!(port.mtu.iter().flatten().all(|mtu| *mtu >= 256) && port.gids >= 1, "{port:?}");
        let text = attributes.to_string();
        for part in ["active", "Gb/s", "0x1d0f", "regions", "queue pairs", "libefa.so.1", &ctx.data_path().to_string()]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        println!("{text}");
    });
}

#[test]
fn a_queue_pair_is_asked_by_its_number_whoever_has_it_and_is_gone_when_it_is() {
    on_each_path("queue pair", |[ctx, other]| {
        let device = ctx.provider();
        let pd = ctx.alloc_pd().unwrap();
        let depth = Depth::new(8, 16).recv_buffers(2);
        let qp = pd.create_qp(ctx.require::<Basic>().unwrap(), depth).unwrap();
        let qp = qp.init(InitAttr::new(Qkey(0x1234_5678))).unwrap().rtr().unwrap().rts(RtsAttr::new()).unwrap();
        let (qpn, granted) = (qp.qpn(), qp.granted());
        let told = std::thread::scope(|scope| scope.spawn(|| device.query_queue_pair(qpn)).join().unwrap()).unwrap();
        assert_eq!((told.qpn, told.state, told.qkey), (qpn, QpState::Rts, Qkey(0x1234_5678)));
        assert!(told.sends >= granted.send && told.receives >= granted.recv, "{told:?} {granted:?}");
        assert!(told.send_buffers >= 1 && told.recv_buffers >= 2, "{told:?}");
        let text = told.to_string();
        assert!(text.contains(&format!("queue pair {} in", qpn.0)) && text.contains("receives"), "{text}");
        // Of another opening, or of no queue pair: no such one.
        let none = Err(Error::Device { verb: Verb::QueryQp, errno: libc::EINVAL });
        if other.name() != ctx.name() {
            assert_eq!(other.provider().query_queue_pair(qpn), none);
        }
        assert_eq!(device.query_queue_pair(Qpn(!qpn.0)), none);
        qp.close().unwrap();
        assert_eq!(device.query_queue_pair(qpn), none);
        // SAFETY: there is no such queue pair.
        let moved = unsafe { device.modify_voiding_its_typestate(qpn, &QpAttr::to(QpState::Err, QpAttrMask::STATE)) };
        assert_eq!(moved, Err(Error::Device { verb: Verb::ModifyQp, errno: libc::EINVAL }));
    });
}

#[test]
fn a_queue_pair_that_another_thread_asks_about_while_it_moves_posts_in_the_state_that_it_has_come_to() {
    on_each_path("asked while it moves", |[ctx, _]| {
        let (device, pd) = (ctx.provider(), ctx.alloc_pd().unwrap());
        // No number of a queue pair.
        const NONE: u32 = u32::MAX;
        let (asked, over) = (AtomicU32::new(NONE), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let asks = || {
                while !over.load(Ordering::Relaxed) {
                    match u16::try_from(asked.load(Ordering::Relaxed)) {
                        Ok(qpn) => drop(device.query_queue_pair(Qpn(qpn))),
                        Err(_) => std::thread::yield_now(),
                    }
                }
            };
            // More than there are processors: an answer may come late by as long as its thread did not run.
            (0..4).for_each(|_| drop(scope.spawn(asks)));
            let moves = scope.spawn(|| {
                for round in 0..common::rounds(2000) {
                    let qp = pd.create_qp(ctx.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
                    asked.store(qp.qpn().0.into(), Ordering::Relaxed);
                    let qp = qp.init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap();
                    let mut qp = qp.rts(RtsAttr::new()).unwrap();
                    asked.store(NONE, Ordering::Relaxed);
                    let (to_itself, _) = efa_core::connect::introduce(&qp, &qp).unwrap();
                    qp.post_recv(pd.register(vec![0; 8]).unwrap().1, efa_core::Token(1)).unwrap();
                    qp.post(to_itself.send_inline(b"x"), efa_core::Token(2)).unwrap();
                    for _ in 0..2 {
                        let event = common::wait(&mut qp);
                        assert!(!matches!(event, efa_core::work::Event::Failed { .. }), "round {round}: {event:?}");
                    }
                }
            });
            let moved = moves.join();
            over.store(true, Ordering::Relaxed);
            moved.unwrap();
        });
    });
}

#[test]
fn a_move_behind_the_owners_back_voids_what_its_type_says_and_the_device_tells() {
    on_each_path("behind", |[ctx, _]| {
        let device = ctx.provider();
        let pd = ctx.alloc_pd().unwrap();
        let mut qp = pd.endpoint(ctx.require::<Basic>().unwrap(), Depth::new(8, 8)).unwrap();
        qp.post_recv(pd.register(vec![0; 8]).unwrap().1, efa_core::Token(1)).unwrap();
        // SAFETY: no move to RESET.
        unsafe { device.modify_voiding_its_typestate(qp.qpn(), &QpAttr::to(QpState::Err, QpAttrMask::STATE)) }.unwrap();
        assert_eq!(device.query_queue_pair(qp.qpn()).unwrap().state, QpState::Err);
        let efa_core::work::Event::Failed { failure, mut buffers, .. } = common::wait(&mut qp) else {
            panic!("received")
        };
        assert!(failure.is_flush() && buffers.take_slice().is_some());
        // SAFETY: as above; the device refuses it.
        let moved =
            unsafe { device.modify_voiding_its_typestate(qp.qpn(), &QpAttr::to(QpState::Rts, QpAttrMask::STATE)) };
        assert!(matches!(moved, Err(Error::Device { verb: Verb::ModifyQp, errno: 22 | 95 })));
    });
}

#[test]
fn a_region_says_by_which_interconnects_it_is_reached_or_the_library_is_too_old() {
    on_each_path("interconnects", |[ctx, _]| {
        let device = ctx.provider();
        let pd = ctx.alloc_pd().unwrap();
        let (region, whole) = pd.register(vec![0u8; 4096]).unwrap();
        let attr = *region.attr();
        match device.interconnects(&attr) {
            Ok(told) => println!("figure: {} over the {} path: {told}", ctx.name(), ctx.data_path()),
            Err(efa_os::Error::NeedsNewer(lacks)) => {
                assert_eq!((lacks.need.library, lacks.need.name), (Library::Libefa, "EFA_1.3"));
                let text = lacks.to_string();
                assert!(text.contains("efadv_query_mr needs EFA_1.3 (rdma-core 50)"), "{text}");
                return skipped("interconnects", "this libefa has no efadv_query_mr");
            }
            Err(error) => panic!("{error}"),
        }
        let exposed = pd.expose(Pages::new(1, PageSize::Base).unwrap(), ctx.require::<RemoteRead>().unwrap()).unwrap();
        device.interconnects(exposed.attr()).unwrap();
        // Another opening's, and one that is gone.
        let gone =
            |result| matches!(result, Err(efa_os::Error::Core(Error::Device { verb: Verb::QueryMr, errno: 22 })));
        let second = efa_os::devices().unwrap().swap_remove(0);
        assert!(gone(second.interconnects(&attr)));
        region.close(whole).unwrap();
        assert!(gone(device.interconnects(&attr)));
    });
}

#[test]
fn r07_what_device_library_or_path_lack_is_no_token_and_the_error_names_both_sets() {
    type Rich = Srd<{ ops::SEND | ops::RDMA_WRITE | ops::RDMA_WRITE_WITH_IMM }, Unsolicited, Wide>;
    on_each_path("tokens", |[ctx, _]| {
        let caps = ctx.caps();
        let check = |needs: efa_core::Caps, answer: Option<Error>| match answer {
            None => assert!(caps.contains(needs), "{caps:?}"),
            Some(error) => {
                assert!(!caps.contains(needs), "{error}");
                assert_eq!(error, Error::Unsupported { needs, has: caps });
            }
        };
        check(Rich::NEEDS, ctx.require::<Rich>().err());
        check(RemoteReadWrite::NEEDS, ctx.require::<RemoteReadWrite>().err());
        check(efa_core::SetRnrRetry::NEEDS, ctx.require::<efa_core::SetRnrRetry>().err());
        // What the translation into calls has no words for is not there, whatever the device says.
        if ctx.data_path() == DataPath::Verbs {
            assert!(ctx.require::<Rich>().is_err());
        }
    });
}

#[test]
fn h05_a_data_path_that_the_library_lacks_is_an_error_at_the_opening_and_never_another_path() {
    let mut opened = 0;
    for listed in efa_os::list().unwrap() {
        for path in [DataPath::Direct, DataPath::Verbs] {
            match listed.open_with(path) {
                Ok(device) => {
                    assert_eq!(efa_core::Provider::data_path(&device), path);
                    opened += 1;
                }
                Err(efa_os::Error::NeedsNewer(lacks)) => {
                    assert_eq!((path, lacks.need.name), (DataPath::Direct, "EFA_1.4"));
                    assert!(lacks.to_string().contains("the direct data path needs EFA_1.4 (rdma-core 59)"), "{lacks}");
                }
                Err(efa_os::Error::NotEfa { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    if opened == 0 {
        skipped("paths", "there is no EFA device here");
    }
}
