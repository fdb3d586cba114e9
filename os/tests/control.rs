//! The control path on real libraries: every transition, and registration.
//!
//! As `devices.rs`.
#![allow(missing_docs)]

mod common;

use common::on_each_path;
use efa_core::flags::{Access, QpAttrMask as Mask, SendOps};
use efa_core::memory::RawMemory;
use efa_core::qp::{QpAttr, QpState, QpType, transition};
use efa_core::{CqInit, Error, Provider, Qkey, QpInit, Verb};
use efa_os::Device;

/// The way up to each state that a program can move a queue pair to.
fn way_to(state: QpState) -> &'static [QpState] {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    match state {
        Reset => &[Reset],
        Init => &[Reset, Init],
        Rtr => &[Reset, Init, Rtr],
        Rts => &[Reset, Init, Rtr, Rts],
        Sqd => &[Reset, Init, Rtr, Rts, Sqd],
        Err => &[Reset, Init, Err],
        other => panic!("nobody moves a queue pair to {other}"),
    }
}

/// A move with exactly what is required.
fn required(kind: QpType, from: QpState, to: QpState) -> QpAttr {
    let mask = transition(kind, from, to).expect("on the way").mask();
    QpAttr { cur_state: from, qkey: Qkey(7), ..QpAttr::to(to, mask) }
}

#[test]
fn r01_every_transition_with_every_mask_is_answered_by_the_real_library_as_cores_table_says() {
    on_each_path("transitions", |[ctx, _]| {
        let (device, mut asked, mut allowed) = (ctx.provider(), 0, 0);
        let pd = device.alloc_pd().unwrap();
        for kind in [QpType::Srd, QpType::Ud] {
            let cq = device.create_cq(&CqInit { entries: 8, sgid: false, unsolicited: false }).unwrap();
            let mut qp = device.create_qp(&pd, &cq, &cq, &init(kind)).unwrap();
            for from in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Err] {
                bring(device, &mut qp, kind, from);
                for to in QpState::ALL {
                    for mask in masks() {
                        let attr = QpAttr { cur_state: from, qkey: Qkey(7), ..QpAttr::to(to, mask) };
                        let expected = transition(kind, from, to).is_some_and(|row| row.allows(mask));
                        let answer = device.modify_qp(&mut qp, &attr);
                        let state = device.query_qp(&qp).unwrap();
                        let what = format!("{kind} {from} to {to} with {mask:?}: {answer:?}");
                        assert_eq!(answer.is_ok(), expected, "{what}");
                        match answer {
                            Ok(()) => assert_eq!(state, to, "{what}"),
                            Err(Error::Device { verb: Verb::ModifyQp, errno: 22 | 95 }) => {
                                assert_eq!(state, from, "{what}")
                            }
                            Err(_) => panic!("{what}"),
                        }
                        if state != from {
                            bring(device, &mut qp, kind, from);
                        }
                        (asked, allowed) = (asked + 1, allowed + u32::from(expected));
                    }
                }
            }
        }
        println!("figure: {asked} moves asked of the library over the {} path, {allowed} allowed", ctx.data_path());
    });
}

fn init(qp_type: QpType) -> QpInit {
    QpInit {
        qp_type,
        send_depth: 4,
        recv_depth: 4,
        send_sge: 1,
        recv_sge: 1,
        entry_size: 64,
        inline: 0,
        inline_write: false,
        ops: SendOps::SEND | SendOps::SEND_WITH_IMM,
        unsolicited: false,
    }
}

/// By RESET, from wherever it is.
fn bring(device: &Device, qp: &mut <Device as Provider>::Qp, kind: QpType, to: QpState) {
    device.modify_qp(qp, &QpAttr::to(QpState::Reset, Mask::STATE)).unwrap();
    for step in way_to(to).windows(2) {
        device.modify_qp(qp, &required(kind, step[0], step[1])).unwrap();
    }
}

/// All sets of the eight attributes that have the state.
fn masks() -> impl Iterator<Item = Mask> {
    let others: Vec<Mask> = Mask::all().iter().filter(|flag| *flag != Mask::STATE).collect();
    (0..1u32 << others.len()).map(move |chosen| {
        let chosen = others.iter().enumerate().filter(|(nth, _)| chosen >> nth & 1 == 1);
        chosen.map(|(_, flag)| *flag).collect::<Mask>() | Mask::STATE
    })
}

#[test]
fn registration_takes_an_address_of_ones_own_and_gives_the_memory_back_when_it_is_refused() {
    on_each_path("registration", |[ctx, _]| {
        let device = ctx.provider();
        let pd = device.alloc_pd().unwrap();
        let memory = || RawMemory::new(vec![5u8; 8192]);
        let raw = memory();
        let base = raw.parts().base.addr().get() as u64;
        let iova = 0x7000_0000_0000 | base & 0xFFF;
        // SAFETY: owned memory, which nobody else reaches.
        let mr = unsafe { device.reg_mr_at(&pd, raw, iova, Access::LOCAL_WRITE) }.map_err(|(_, error)| error).unwrap();
        assert_eq!((mr.attr().iova, mr.attr().len, mr.attr().lkey.0 >> 24), (iova, 8192, 0));
        drop(mr);
        let raw = memory();
        let parts = raw.parts();
        // SAFETY: as above.
        let refused =
            unsafe { device.reg_mr_at(&pd, raw, (parts.base.addr().get() as u64 ^ 1) << 13, Access::LOCAL_WRITE) };
        let Err((back, error)) = refused else { panic!("an address at another place of a page was taken") };
        assert_eq!((back.parts().base, back.parts().len), (parts.base, parts.len));
        assert!(matches!(error, Error::Device { verb: Verb::RegMr, errno: 22 }), "{error}");
        // A domain of another device.
        let other = efa_os::devices().unwrap().swap_remove(0);
        // SAFETY: as above.
        let foreign = unsafe { other.reg_mr(&pd, memory(), Access::LOCAL_WRITE) };
        assert!(matches!(foreign, Err((_, Error::Device { verb: Verb::RegMr, errno: 22 }))));
        assert_eq!(ctx.leaks().regions(), 0);
        // What is in use is counted, and not what came back.
        let _kept = ctx.alloc_pd().unwrap().register(vec![0; 4096]).unwrap();
        let explained = device.explain(error);
        assert_eq!((explained.regions, explained.bytes, explained.queue_pairs), (1, 4096, 0));
    });
}
