//! What a program does: bytes as calls on endpoints of software devices, held against the model of SRD that core's
//! random programs are held against. The first byte tells whether the devices are hostile.

use efa_core::Verb;

use crate::Reached;
use crate::input::Input;
use crate::program::{End, Fate, Setup, Step, Thing, run};

/// Calls on three endpoints of two devices. Each operation is resolved once, by an event, by destroying the queue
/// pair or by being forgotten; what arrives is what was sent, once; and all memory comes back but what was forgotten.
///
/// Gives what it came to do.
pub fn calls(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let flags = input.byte();
    let setup = setup(flags, &mut input);
    let mut reached = run(setup, std::iter::from_fn(|| step(&mut input)));
    if setup.loss.0 > 0 {
        reached.insert("a wire that loses");
    }
    if flags & HOSTILE != 0 {
        reached.insert("a hostile device");
    }
    reached
}

/// In the first byte: the device's faults follow.
const HOSTILE: u8 = 0x80;

fn setup(flags: u8, input: &mut Input<'_>) -> Setup {
    let harmless = Setup {
        seed: (flags & !HOSTILE).into(),
        shuffle: flags & 1 == 1,
        piece: 0,
        loss: (0, 0),
        delay: 0,
        rnr: 0,
        fail_nth: None,
        fail_verb: None,
        unknown_senders: 0,
        stale: 0,
        strict_overruns: false,
        silent_death: false,
        reuse_numbers: true,
        near_wrap: None,
        one_queue: flags & 16 != 0,
        wide: flags & 32 != 0,
        req_id_64: flags & 64 != 0,
        impatient: flags >> 1 & 7,
    };
    if flags & HOSTILE == 0 {
        return harmless;
    }
    const STATUSES: [u8; 5] = [0, 2, 3, 8, 12];
    // Not those whose failure leaks: a sanitizer would find it.
    const VERBS: [Verb; 5] = [Verb::CreateQp, Verb::ModifyQp, Verb::CreateCq, Verb::RegMr, Verb::CreateAh];
    let stale = input.byte() % 5;
    Setup {
        piece: input.byte() % 16,
        loss: ([0, 50, 200, 400][input.below(4)], input.byte() % 8),
        delay: input.byte() % 16,
        rnr: input.byte() % 6,
        fail_nth: Some((input.byte() % 16, STATUSES[input.below(5)])),
        fail_verb: Some((VERBS[input.below(5)], input.byte() % 32)).filter(|(_, nth)| *nth > 0),
        unknown_senders: input.byte() % 16,
        stale,
        // What haunts a queue takes its room.
        strict_overruns: stale == 0,
        silent_death: flags & 2 != 0,
        reuse_numbers: flags & 4 != 0,
        near_wrap: Some(input.byte()).filter(|steps| *steps > 0),
        ..harmless
    }
}

fn step(input: &mut Input<'_>) -> Option<Step> {
    let kind = input.step()?;
    let who = input.byte();
    // Another node than the one, or any.
    let node = who % 3;
    let other = if who & 4 == 0 { who / 8 % 3 } else { node + 1 };
    let flag = |input: &mut Input<'_>| input.byte() & 1 == 1;
    Some(match kind % 34 {
        0 => Step::Send { node, other, imm: false, halves: false },
        1 => Step::Send { node, other, imm: true, halves: false },
        2 => Step::Send { node, other, imm: flag(input), halves: true },
        3 => Step::SendFrozen { node, other, len: input.byte() },
        4 => Step::SendInline { node, other, len: input.byte(), imm: who & 8 != 0 },
        5 => Step::SendInline { node, other, len: 0, imm: who & 8 != 0 },
        6 => Step::Write { node, other, at: input.byte(), imm: false },
        7 => Step::Write { node, other, at: input.byte(), imm: true },
        8 if who & 64 != 0 => Step::WriteInline { node, other, len: input.byte(), at: input.byte(), imm: who & 8 != 0 },
        8 => Step::Read { node, other, at: input.byte() },
        9 => Step::Recv { node, halves: false },
        10 => Step::Recv { node, halves: true },
        11 => Step::RecvList { node, count: 1 + input.byte() % 6 },
        12 => {
            let count = 1 + input.byte() % 6;
            let end = [End::Submit, End::Abort, End::Drop, End::Forget][input.below(4)];
            Step::Batch { node, other, count, end }
        }
        13 => {
            let fate = [Fate::Keep, Fate::Drop, Fate::Forget][input.below(3)];
            Step::Poll { node, count: 1 + who / 8 % 8, fate }
        }
        14 => Step::PollAll { count: 1 + who % 16 },
        15 => Step::Expose { node },
        16 => Step::Revoke { node },
        17 => Step::CopyIn { node, at: input.byte(), len: input.byte() },
        18 => Step::CopyOut { node },
        19 => Step::Word { node, at: input.byte() },
        20 => Step::Freeze { node },
        21 => Step::Thaw { node, copy: flag(input) },
        22 => Step::SendExposed { node, other, at: input.byte() },
        23 => {
            let other = input.byte();
            let things =
                [Thing::Slice, Thing::Frozen, Thing::Region, Thing::Exposed, Thing::Peer(other / 8), Thing::QueuePair];
            Step::Lose { node, thing: things[usize::from(other) % things.len()], forget: who & 8 != 0 }
        }
        24 => Step::Introduce { node, other },
        25 => Step::Corrupt { node, other, at: input.byte(), bit: input.byte() },
        26 => Step::Reset { node },
        27 => Step::Drain { node },
        28 => Step::ShutDown { node, polls: input.byte() % 64 },
        29 if who & 8 == 0 => Step::Close { node },
        29 => Step::Error { node },
        30 => Step::Link { nic: who, up: input.byte() & 3 != 0 },
        31 => Step::Pool { node, size: input.byte(), backwards: who & 8 != 0 },
        32 if who & 8 == 0 => Step::SendMixed { node, other },
        32 => Step::CloseRegion { node },
        _ if who & 8 == 0 => Step::Split { node, other, chunk: input.byte() },
        _ => Step::Die { nic: who },
    })
}
