//! Registers, features, and objects that are made and refused.

use efa_vm::admin::layout::*;
use efa_vm::card::Card;
use efa_vm::fault::Fault;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

use crate::machine::{AENQ, Driver, EQ, QKEY};

const RESOURCE: u8 = 1;
const UNSUPPORTED: u8 = 3;
const MALFORMED: u8 = 4;
const ILLEGAL: u8 = 5;

fn card(fault: Option<Fault>) -> Card {
    Card::new(1, fault).unwrap()
}

fn feature(driver: &mut Driver, id: u8) -> Result<[u8; 56], u8> {
    let mut asked = Feature::new_zeroed();
    asked.id = id;
    driver.command(opcode::GET_FEATURE, 0, &asked)
}

#[test]
fn a_driver_finds_every_feature_in_the_order_in_which_it_probes() {
    let card = card(None);
    let mut driver = Driver::new(&card.functions[0]);
    driver.start();
    assert_eq!(driver.read(0), Some((0, 1)));
    let device: DeviceAttributes = zerocopy::transmute!(feature(&mut driver, 1).unwrap());
    assert_eq!(device.features.get(), 0b10_1111_1110);
    assert_eq!((device.admin_version.get(), device.doorbell_region.get()), (1, 0));
    assert_eq!(device.caps.get(), 0b1_1011, "RDMA read and write, retries, unsolicited receive");
    let queues: QueueAttributes = zerocopy::transmute!(feature(&mut driver, 4).unwrap());
    assert_eq!((queues.max_batch.get(), queues.inline.get(), queues.sub_cqs.get()), (16, 32, 1));
    assert_eq!(feature(&mut driver, 9).unwrap()[..4], 80_u32.to_le_bytes());
    let network = feature(&mut driver, 3).unwrap();
    assert_eq!(network[..16], efa_core::Provider::gid(card.functions[0].device()).0);
    assert_eq!(network[16..20], 8928_u32.to_le_bytes());
    assert_eq!(feature(&mut driver, 7).unwrap()[..4], 2_u32.to_le_bytes());
    assert!(feature(&mut driver, 5).is_ok());
    assert_eq!(feature(&mut driver, 2).unwrap()[..4], 0b11110_u32.to_le_bytes());
    for unknown in [0, 8, 10, 200] {
        assert_eq!(feature(&mut driver, unknown), Err(UNSUPPORTED), "{unknown}");
    }
}

#[test]
fn keep_alives_come_once_they_are_asked_for_and_stop_when_nobody_takes_them() {
    let card = card(None);
    let mut driver = Driver::new(&card.functions[0]);
    driver.start();
    card.functions[0].keep_alive();
    assert_eq!(driver.get(AENQ, 8), [0; 8], "nobody asked");
    let mut asked = Feature::new_zeroed();
    asked.id = feature::AENQ;
    asked.values[1] = U32::from(1 << 4);
    driver.command::<[u8; 0]>(opcode::SET_FEATURE, 0, &asked).unwrap();
    (0..40).for_each(|_| card.functions[0].keep_alive());
    let last = driver.get(AENQ + 31 * 64, 5);
    assert_eq!(last, [4, 0, 0, 0, 1], "the whole ring, each in the first phase");
    driver.write(0x40, 1);
    card.functions[0].keep_alive();
    assert_eq!(driver.get(AENQ, 5), [4, 0, 0, 0, 0], "and the first one again, in the second");
}

#[test]
fn each_fault_is_what_its_name_says() {
    let started = |fault| {
        let card = card(Some(fault));
        Driver::new(&card.functions[0])
    };
    let mut driver = started(Fault::ResetTimeoutZero);
    assert_eq!(driver.read(8).unwrap().1 & 0x3e, 0);
    let mut driver = started(Fault::ReadlessOffset);
    assert_ne!(driver.read(8).unwrap().0, 8);
    let mut driver = started(Fault::NoAenqGroup);
    driver.start();
    assert_eq!(feature(&mut driver, 2).unwrap()[0], 0b01110);
    let mut driver = started(Fault::NoHardwareHints);
    driver.start();
    assert_eq!(feature(&mut driver, 5), Err(UNSUPPORTED));
    assert_eq!(feature(&mut driver, 1).unwrap()[0] & 1 << 5, 0);
    let mut driver = started(Fault::CreateEq);
    driver.start();
    assert_eq!(driver.command::<U16>(opcode::CREATE_EQ, 0, &event_queue()).err(), Some(RESOURCE));
}

fn event_queue() -> CreateEq {
    let mut asked = CreateEq::new_zeroed();
    (asked.depth, asked.vector, asked.entry) = (256.into(), 1, 4);
    (asked.low, asked.high) = ((EQ as u32).into(), ((EQ >> 32) as u32).into());
    asked
}

#[test]
fn a_reset_takes_everything_away() {
    let card = card(None);
    let mut driver = Driver::new(&card.functions[0]);
    for _ in 0..3 {
        driver.start();
        let pd = driver.pd();
        let (a, b) = (driver.qp(pd, None), driver.qp(pd, None));
        assert_ne!(a.qpn, b.qpn);
        let told: QpQueried = driver.command(opcode::QUERY_QP, 0, &U32::from(b.handle)).unwrap();
        assert_eq!((told.state.get(), told.qkey.get(), told.draining), (3, QKEY, 0));
        let page = driver.allocate(4096);
        driver.region(pd, &[page], 4096, 0x1000);
        assert_eq!(card.functions[0].objects(), [1, 1, 4, 2]);
        driver.write(0x54, 1);
        assert_eq!(card.functions[0].objects(), [0; 4]);
    }
    assert_eq!(card.functions[0].summary().resets, 6);
}

#[test]
fn commands_are_refused_with_the_status_of_what_is_wrong() {
    let card = card(None);
    let mut driver = Driver::new(&card.functions[0]);
    driver.start();
    let pd = driver.pd();
    let (cq, page) = (driver.cq(None), driver.allocate(4096));
    let good = driver.asked(pd, [cq.number, cq.number]);
    let mut queue_pair = |change: fn(&mut CreateQp)| {
        let mut asked = good;
        change(&mut asked);
        driver.command::<QpMade>(opcode::CREATE_QP, 0, &asked).err()
    };
    assert_eq!(queue_pair(|asked| asked.pd = 7.into()), Some(ILLEGAL));
    assert_eq!(queue_pair(|asked| asked.send_cq = 7.into()), Some(ILLEGAL));
    assert_eq!(queue_pair(|asked| asked.qp_type = 3), Some(ILLEGAL));
    assert_eq!(queue_pair(|asked| asked.flags = 1), Some(UNSUPPORTED), "a send queue at a virtual address");
    assert_eq!(queue_pair(|asked| asked.sq_bytes = 96.into()), Some(ILLEGAL));
    assert_eq!(queue_pair(|asked| asked.sq_depth = 0.into()), Some(ILLEGAL));
    assert_eq!(queue_pair(|asked| asked.sq_depth = u32::MAX.into()), Some(ILLEGAL));
    assert_eq!(queue_pair(|asked| asked.rq_bytes = (16 * 16 * 3).into()), Some(ILLEGAL), "three buffers a receive");
    assert_eq!(queue_pair(|asked| asked.rq_base = 64.into()), Some(MALFORMED), "no memory is there");
    assert_eq!(queue_pair(|_| {}), None);
    let mut region = |change: fn(&mut RegMr)| {
        let mut asked = RegMr::new_zeroed();
        (asked.pd, asked.length, asked.iova, asked.flags) = (pd.into(), 4096.into(), 0x1000.into(), 12);
        asked.permissions = 1;
        asked.list[..8].copy_from_slice(&page.to_le_bytes());
        change(&mut asked);
        driver.command::<MrMade>(opcode::REG_MR, 0, &asked).err()
    };
    assert_eq!(region(|asked| asked.length = U64::from(0)), Some(ILLEGAL));
    assert_eq!(region(|asked| asked.length = U64::from(u64::MAX)), Some(ILLEGAL));
    assert_eq!(region(|asked| asked.length = U64::from(5 * 4096)), Some(MALFORMED), "a command has four pages");
    assert_eq!(region(|asked| asked.pages = 2.into()), Some(ILLEGAL));
    assert_eq!(region(|asked| asked.permissions = 8), Some(UNSUPPORTED));
    assert_eq!(region(|asked| asked.flags = 12 | 1 << 7), Some(UNSUPPORTED));
    assert_eq!(region(|asked| asked.flags = 11), Some(ILLEGAL), "pages of 2 KiB");
    assert_eq!(region(|asked| asked.list[0] = 1), Some(ILLEGAL), "a page that begins nowhere");
    assert_eq!(region(|_| {}), None);
    for opcode in [0, 20, 21, 255] {
        assert_eq!(driver.raw(opcode, 0, &[]).status, 2, "{opcode}");
    }
    for destroy in [opcode::DESTROY_CQ, opcode::DEALLOC_PD, opcode::DEALLOC_UAR, opcode::DESTROY_EQ] {
        assert_eq!(driver.command::<[u8; 0]>(destroy, 0, &U16::from(99)), Err(ILLEGAL));
    }
    for destroy in [opcode::DESTROY_QP, opcode::DEREG_MR, opcode::QUERY_QP] {
        assert_eq!(driver.command::<[u8; 0]>(destroy, 0, &U32::from(u32::MAX)), Err(ILLEGAL));
    }
}

#[test]
fn a_list_of_pages_may_be_in_the_command_in_a_buffer_or_in_a_chain() {
    let card = card(None);
    let mut driver = Driver::new(&card.functions[0]);
    driver.start();
    let pd = driver.pd();
    // More pages than one list of a chain can name, each the same page of memory.
    let page = driver.allocate(4096);
    let pages = 512 * 511;
    let list = driver.allocate(4096);
    driver.put(list, &page.to_le_bytes().repeat(512));
    let (first, second) = (driver.allocate(4096), driver.allocate(4096));
    driver.put(first, &list.to_le_bytes().repeat(510));
    let next = Buffer { length: (8 + 12).into(), low: (second as u32).into(), high: ((second >> 32) as u32).into() };
    driver.put(first + 510 * 8, zerocopy::IntoBytes::as_bytes(&next));
    driver.put(second, &list.to_le_bytes());
    let mut asked = RegMr::new_zeroed();
    (asked.pd, asked.length, asked.iova, asked.flags) = (pd.into(), (pages * 4096_u64).into(), 0.into(), 12);
    (asked.permissions, asked.pages) = (1, (pages as u32).into());
    let mut list_of = |at: u64, length: u32, flags: u8, pages: u64| {
        let buffer = Buffer { length: length.into(), low: (at as u32).into(), high: ((at >> 32) as u32).into() };
        asked.list[..12].copy_from_slice(zerocopy::IntoBytes::as_bytes(&buffer));
        (asked.length, asked.pages) = ((pages * 4096).into(), 0.into());
        driver.command::<MrMade>(opcode::REG_MR, flags, &asked).err()
    };
    let chained = WITH_BUFFER | INDIRECT;
    assert_eq!(list_of(first, 4092, chained, pages), None);
    assert_eq!(list_of(first, 4092, chained, pages + 512), Some(MALFORMED), "the chain names one list less");
    assert_eq!(
        list_of(first, 100, chained, pages),
        Some(MALFORMED),
        "the first page of the chain is said to be shorter"
    );
    assert_eq!(list_of(0x1000, 4092, chained, pages), Some(MALFORMED), "no memory is there");
    assert_eq!(list_of(list, 4096, WITH_BUFFER, 512), None);
    assert_eq!(list_of(list, 4096, WITH_BUFFER, 513), Some(MALFORMED));
}
