//! A virtual machine's guest that may write anything to its function: registers, doorbells, memory, commands.

use efa_vm::admin::layout::{CreateAh, CreateCq, CreateEq, Feature, GetStats, ModifyQp, RegMr, feature, opcode};
use efa_vm::card::Card;
use zerocopy::{FromZeros, IntoBytes};

use crate::Reached;
use crate::input::Input;
use crate::machine::{Driver, Qp, RAM, RAM_BYTES};

/// What each command is called when it was done.
const DONE: [&str; 20] = [
    "",
    "a queue pair made",
    "a queue pair moved",
    "a queue pair asked for",
    "a queue pair destroyed",
    "an address handle made",
    "an address handle destroyed",
    "memory registered",
    "memory deregistered",
    "a completion queue made",
    "a completion queue destroyed",
    "a feature asked for",
    "a feature set",
    "counters asked for",
    "a domain made",
    "a domain destroyed",
    "a page of doorbells made",
    "a page of doorbells destroyed",
    "an event queue made",
    "an event queue destroyed",
];
const REFUSED: [&str; 6] =
    ["", "no resource", "a bad opcode", "an unsupported command", "a malformed command", "an illegal parameter"];

/// A number of which several are bounds of something.
fn number(input: &mut Input<'_>) -> u64 {
    match input.below(6) {
        0 => input.byte().into(),
        1 => RAM + u64::from(input.short()) * 64 % RAM_BYTES as u64,
        2 => u64::from(input.short()) << 12,
        3 => 1 << input.below(64),
        4 => u64::MAX - u64::from(input.byte()),
        _ => u64::from_le_bytes(input.bytes()),
    }
}

/// A command that is right where its guest has what it names, and its opcode.
fn right(driver: &mut Driver, input: &mut Input<'_>, pd: u16, lkey: [u8; 4]) -> (u8, Vec<u8>) {
    match input.below(11) {
        0 => {
            let cq = driver.cq(None);
            (opcode::CREATE_QP, driver.asked(pd, [cq.number, cq.number]).as_bytes().to_vec())
        }
        1 => {
            let page = driver.allocate(4096);
            let mut asked = RegMr::new_zeroed();
            (asked.pd, asked.length, asked.iova, asked.flags) = (pd.into(), 4096.into(), 0x1000.into(), 12);
            asked.permissions = input.byte() % 8;
            asked.list[..8].copy_from_slice(&page.to_le_bytes());
            (opcode::REG_MR, asked.as_bytes().to_vec())
        }
        2 => (
            opcode::CREATE_AH,
            CreateAh { gid: [input.byte(); 16], pd: pd.into(), reserved: 0.into() }.as_bytes().to_vec(),
        ),
        3 => {
            let mut asked = ModifyQp::new_zeroed();
            (asked.mask, asked.handle) = (1.into(), u32::from(input.byte() % 4).into());
            asked.state = u32::from(input.byte() % 8).into();
            (opcode::MODIFY_QP, asked.as_bytes().to_vec())
        }
        4 => {
            let mut asked = Feature::new_zeroed();
            asked.id = [feature::HOST_INFO, feature::AENQ, feature::DEVICE][input.below(3)];
            asked.buffer.low = (RAM as u32).into();
            (if input.byte() & 1 == 0 { opcode::SET_FEATURE } else { opcode::GET_FEATURE }, asked.as_bytes().to_vec())
        }
        5 => {
            let ring = driver.allocate(4096);
            let mut asked = CreateCq::new_zeroed();
            (asked.entry, asked.depth, asked.sub_cqs) = (4, 16.into(), 1.into());
            (asked.low, asked.high) = ((ring as u32).into(), ((ring >> 32) as u32).into());
            (opcode::CREATE_CQ, asked.as_bytes().to_vec())
        }
        6 => {
            let mut asked = CreateEq::new_zeroed();
            (asked.depth, asked.vector, asked.entry) = (256.into(), 1, 4);
            asked.low = (RAM as u32).into();
            (opcode::CREATE_EQ, asked.as_bytes().to_vec())
        }
        7 => (opcode::GET_STATS, GetStats { kind: input.byte() % 6, ..GetStats::new_zeroed() }.as_bytes().to_vec()),
        8 => (opcode::ALLOC_PD, Vec::new()),
        9 => (opcode::ALLOC_UAR, Vec::new()),
        10 if input.byte() & 1 == 0 => (opcode::DEREG_MR, lkey.to_vec()),
        // Something by a number of 16 or 32 bits.
        _ => {
            let destroying = [
                opcode::DESTROY_QP,
                opcode::QUERY_QP,
                opcode::DESTROY_CQ,
                opcode::DEALLOC_PD,
                opcode::DEALLOC_UAR,
                opcode::DESTROY_EQ,
                opcode::DEREG_MR,
                opcode::DESTROY_AH,
            ];
            (destroying[input.below(destroying.len())], vec![input.byte() % 8, 0, pd as u8, 0])
        }
    }
}

/// Does as the bytes say; at the end the function is reset, and works.
pub fn guest(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::new();
    let card = Card::new(1, None).unwrap();
    let function = &card.functions[0];
    let mut driver = Driver::new(function);
    driver.start();
    let pd = driver.pd();
    let mut qps: Vec<Qp> = Vec::new();
    // Whether the admin queue is where this driver believes, and memory is.
    let (mut usable, mut has_pd) = (true, true);
    let mut lkey = [0; 4];
    let mut steps = 0;
    while let Some(step) = input.step().filter(|_| steps < 64) {
        steps += 1;
        let command = match step % 9 {
            0 => {
                let at = (u64::from(input.byte()) % 0x80) & !3;
                // The card may be told anything, but what reads into memory that it was given is this driver's.
                driver.write(at, number(&mut input) as u32);
                usable = false;
                reached.insert("a register written");
                None
            }
            1 => {
                driver.write(0x1000 + u64::from(input.short() & !3) % 0xF000, number(&mut input) as u32);
                reached.insert("a doorbell rung");
                None
            }
            2 => {
                let at = number(&mut input);
                let bytes: [u8; 16] = input.bytes();
                let written = function.guest().write(at, &bytes);
                reached.insert(if written.is_ok() { "memory written" } else { "memory that is not there" });
                None
            }
            3 => {
                let words: Vec<u64> = (0..8).map(|_| number(&mut input)).collect();
                let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
                Some((input.byte() % 24, input.byte(), bytes))
            }
            4 | 5 if usable => {
                let (opcode, mut bytes) = right(&mut driver, &mut input, pd, lkey);
                let at = input.below(64);
                if let Some(byte) = bytes.get_mut(at).filter(|_| step % 9 == 5) {
                    *byte = input.byte();
                }
                Some((opcode, if step & 16 == 0 { 0 } else { step >> 5 }, bytes))
            }
            6 if usable && has_pd && qps.len() < 4 => {
                qps.push(driver.qp(pd, None));
                None
            }
            7 => {
                if let Some(qp) = qps.last_mut().filter(|_| usable) {
                    driver.post_recv(qp, number(&mut input), input.short(), u32::from(input.byte()));
                    let bytes: [u8; 32] = input.bytes();
                    driver.post(qp, (u16::from(input.byte() % 4), qp.qpn), input.byte(), &bytes);
                    reached.insert("an entry posted");
                }
                None
            }
            8 if step & 16 != 0 => {
                function.guest().clear();
                driver = Driver::new(function);
                (usable, qps) = (false, Vec::new());
                reached.insert("memory taken away");
                None
            }
            _ => {
                function.keep_alive();
                None
            }
        };
        if let Some((opcode, flags, bytes)) = command.filter(|_| usable) {
            let completion = driver.raw(opcode, flags, &bytes);
            let status = completion.status;
            if (opcode, status) == (opcode::REG_MR, 0) {
                lkey.copy_from_slice(&completion.body[..4]);
            }
            has_pd &= opcode != opcode::DEALLOC_PD || status != 0;
            let done = DONE.get(usize::from(opcode)).copied().unwrap_or_default();
            reached.insert(if status == 0 { done } else { REFUSED[usize::from(status)] });
            if opcode == opcode::DESTROY_QP || opcode == opcode::DESTROY_CQ {
                qps.clear();
            }
        }
        card.advance();
    }
    driver.start();
    assert_eq!(function.objects(), [0; 4], "a reset leaves something");
    let pd = driver.pd();
    let qp = driver.qp(pd, None);
    assert!(driver.poll(&mut { qp.send_cq }).is_none());
    reached
}
