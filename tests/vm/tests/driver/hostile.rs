//! Anything a guest may write: nothing panics, nothing outside its memory is touched, and the function goes on.

use efa_vm::admin::layout::*;
use efa_vm::card::Card;
use proptest::prelude::*;

use crate::machine::{Driver, RAM, RAM_BYTES};

/// Numbers of which each is a bound somewhere, and any other.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        prop_oneof![
            Just(0_u64),
            Just(1),
            Just(2),
            Just(64),
            Just(4096),
            Just(u64::from(u16::MAX)),
            Just(u64::from(u32::MAX))
        ],
        (0..RAM_BYTES as u64 / 64).prop_map(|line| RAM + line * 64),
        0..300_u64,
        any::<u64>(),
    ]
}

/// What a guest does next.
#[derive(Clone, Debug)]
enum Step {
    Register(u64, u32),
    Memory(u64, Vec<u8>),
    /// A command of a known opcode, of words.
    Command(u8, u8, Vec<u64>),
    /// One that would be right but for one byte.
    Nearly(u8, usize, u8),
    Unmap(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        ((0..0x80_u64).prop_map(|at| at & !3), number()).prop_map(|(at, value)| Step::Register(at, value as u32)),
        ((0x1000..0x10000_u64).prop_map(|at| at & !3), number())
            .prop_map(|(at, value)| Step::Register(at, value as u32)),
        (number(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|(at, bytes)| Step::Memory(at, bytes)),
        (0..24_u8, any::<u8>(), proptest::collection::vec(number(), 0..8))
            .prop_map(|(op, flags, words)| Step::Command(op, flags, words)),
        (0..8_u8, 0..60_usize, any::<u8>()).prop_map(|(which, at, byte)| Step::Nearly(which, at, byte)),
        any::<bool>().prop_map(Step::Unmap),
    ]
}

/// A command that is right, and its opcode.
fn right(driver: &mut Driver, which: u8, pd: u16) -> (u8, Vec<u8>) {
    use zerocopy::{FromZeros, IntoBytes};
    match which {
        0 | 1 => {
            let cq = driver.cq(None);
            (opcode::CREATE_QP, driver.asked(pd, [cq.number, cq.number]).as_bytes().to_vec())
        }
        2 | 3 => {
            let page = driver.allocate(4096);
            let mut asked = RegMr::new_zeroed();
            (asked.pd, asked.length, asked.iova, asked.flags) = (pd.into(), 4096.into(), 0x1000.into(), 12);
            asked.permissions = 1;
            asked.list[..8].copy_from_slice(&page.to_le_bytes());
            (opcode::REG_MR, asked.as_bytes().to_vec())
        }
        4 => (opcode::CREATE_AH, CreateAh { gid: [1; 16], pd: pd.into(), reserved: 0.into() }.as_bytes().to_vec()),
        5 => {
            let mut asked = ModifyQp::new_zeroed();
            (asked.mask, asked.state) = (0b101.into(), 1.into());
            (opcode::MODIFY_QP, asked.as_bytes().to_vec())
        }
        6 => {
            let mut asked = Feature::new_zeroed();
            asked.id = feature::HOST_INFO;
            (opcode::SET_FEATURE, asked.as_bytes().to_vec())
        }
        _ => {
            let ring = driver.allocate(4096);
            let mut asked = CreateCq::new_zeroed();
            (asked.entry, asked.depth, asked.sub_cqs) = (4, 16.into(), 1.into());
            (asked.low, asked.high) = ((ring as u32).into(), ((ring >> 32) as u32).into());
            (opcode::CREATE_CQ, asked.as_bytes().to_vec())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_guest_writes_the_function_can_be_reset_and_used(steps in proptest::collection::vec(step(), 1..60)) {
        let card = Card::new(2, None).unwrap();
        let mut driver = Driver::new(&card.functions[0]);
        driver.start();
        let pd = driver.pd();
        let mut usable = true;
        for step in steps {
            match step {
                Step::Register(at, value) => {
                    driver.write(at, value);
                    // The admin queue is not where this driver believes any more.
                    usable &= at >= 0x1000;
                }
                Step::Memory(at, bytes) => drop(driver.function.guest().write(at, &bytes)),
                Step::Command(op, flags, words) if usable => {
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    driver.raw(op, flags, &bytes);
                }
                Step::Nearly(which, at, byte) if usable => {
                    let (op, mut bytes) = right(&mut driver, which, pd);
                    if let Some(place) = bytes.get_mut(at) {
                        *place = byte;
                    }
                    driver.raw(op, if byte & 1 == 0 { 0 } else { byte & 0b110 }, &bytes);
                }
                Step::Unmap(true) => {
                    driver.function.guest().clear();
                    driver = Driver::new(&card.functions[0]);
                    usable = false;
                }
                _ => {}
            }
            card.advance();
        }
        driver.start();
        prop_assert_eq!(card.functions[0].objects(), [0; 4]);
        let pd = driver.pd();
        let qp = driver.qp(pd, None);
        prop_assert!(qp.qpn < 256);
    }
}
