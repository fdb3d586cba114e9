//! The control path on real libraries: every transition.
//!
//! As `devices.rs`.
#![allow(missing_docs)]

mod common;

use common::on_each_path;
use efa_core::flags::{QpAttrMask as Mask, SendOps};
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
    QpInit::new(qp_type, SendOps::SEND | SendOps::SEND_WITH_IMM, 4, 4)
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
