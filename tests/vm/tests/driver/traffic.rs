//! Messages and RDMA between two functions, by their queues in two machines' memory.

use efa_core::Provider;
use efa_core::entry::{BufferDescriptor, RemoteBuffer, control1};
use efa_vm::admin::layout::*;
use efa_vm::card::Card;
use zerocopy::little_endian::U16;
use zerocopy::{FromZeros, IntoBytes};

use crate::machine::{Driver, ENTRIES, EQ, Qp};

/// Two machines, each with a queue pair and a region of three pages that are anywhere.
struct Pair {
    card: Card,
    a: Driver,
    b: Driver,
    qps: [Qp; 2],
    to_b: (u16, u16),
    regions: [(MrMade, [u64; 3]); 2],
}

/// Where regions begin, to the device: 100 bytes into a page.
const IOVA: u64 = 0x7000_0064;
const BYTES: u64 = 2 * 4096 + 500;

fn pair(events: bool) -> Pair {
    let card = Card::new(2, None).unwrap();
    let mut drivers = card.functions.iter().map(Driver::new).collect::<Vec<_>>();
    let mut made = Vec::new();
    for driver in &mut drivers {
        driver.start();
        let eqn = events.then(|| {
            let mut asked = CreateEq::new_zeroed();
            (asked.depth, asked.vector, asked.entry) = (256.into(), 1, 4);
            (asked.low, asked.high) = ((EQ as u32).into(), ((EQ >> 32) as u32).into());
            let eqn = driver.command::<U16>(opcode::CREATE_EQ, 0, &asked).unwrap().get();
            driver.write(0x68, 1 << 31 | u32::from(eqn));
            eqn
        });
        let pd = driver.pd();
        let qp = driver.qp(pd, eqn);
        let [x, y, z] = [(); 3].map(|()| driver.allocate(4096));
        // In no order.
        let pages = [z, x, y];
        let region = driver.region(pd, &pages, BYTES, IOVA);
        made.push((pd, qp, (region, pages)));
    }
    let (mut b, mut a) = (drivers.pop().unwrap(), drivers.pop().unwrap());
    let (pd_b, qp_b, region_b) = made.pop().unwrap();
    let (pd, qp_a, region_a) = made.pop().unwrap();
    let ahn = a.ah(pd, card.functions[1].device().gid().0);
    // RDMA is for those who have resolved each other.
    b.ah(pd_b, card.functions[0].device().gid().0);
    let to_b = (ahn, qp_b.qpn);
    Pair { card, a, b, qps: [qp_a, qp_b], to_b, regions: [region_a, region_b] }
}

/// The bytes of a region, or what they are to be.
fn bytes(driver: &Driver, pages: &[u64; 3]) -> Vec<u8> {
    let all: Vec<u8> = pages.iter().flat_map(|page| driver.get(*page, 4096)).collect();
    all[100..][..BYTES as usize].to_vec()
}

fn fill(driver: &Driver, pages: &[u64; 3], seed: u8) {
    for (nth, page) in pages.iter().enumerate() {
        let bytes: Vec<u8> = (0..4096).map(|at| (at as u8).wrapping_mul(31) ^ seed ^ nth as u8).collect();
        driver.put(*page, &bytes);
    }
}

fn local(lkey: u32, addr: u64, length: u32) -> BufferDescriptor {
    BufferDescriptor { length: length.into(), lkey: lkey.into(), addr: addr.into() }
}

impl Pair {
    /// Posts RDMA of all of a's region against all of b's, and gives the completion's status.
    fn rdma(&mut self, op: u8) -> u8 {
        let remote = RemoteBuffer { length: (BYTES as u32).into(), rkey: self.regions[1].0.rkey, addr: IOVA.into() };
        let mut data = remote.as_bytes().to_vec();
        data.extend_from_slice(local(self.regions[0].0.lkey.get(), IOVA, BYTES as u32).as_bytes());
        let qp = &mut self.qps[0];
        self.a.post(qp, self.to_b, op, &data);
        self.card.advance();
        self.a.poll(&mut self.qps[0].send_cq).expect("it has completed").1
    }
}

#[test]
fn messages_arrive_with_every_byte_round_the_rings_more_than_twice() {
    let mut pair = pair(false);
    let [(region_a, pages_a), (region_b, pages_b)] = pair.regions;
    for nth in 0..2 * ENTRIES + 5 {
        fill(&pair.a, &pages_a, nth as u8);
        fill(&pair.b, &pages_b, 0xFF);
        let length = 8000;
        pair.b.post_recv(&mut pair.qps[1], IOVA, length, region_b.lkey.get());
        let sent = local(region_a.lkey.get(), IOVA, length.into());
        pair.a.post(&mut pair.qps[0], pair.to_b, control1::OP_SEND, sent.as_bytes());
        pair.card.advance();
        let completion = pair.a.poll(&mut pair.qps[0].send_cq);
        assert_eq!(completion.map(|(id, status, _)| (id, status)), Some((nth as u16, 0)));
        let completion = pair.b.poll(&mut pair.qps[1].recv_cq);
        assert_eq!(completion.map(|(id, status, _)| (id, status)), Some((nth as u16, 0)));
        let (sent, received) = (bytes(&pair.a, &pages_a), bytes(&pair.b, &pages_b));
        assert_eq!(sent[..8000], received[..8000]);
        assert_ne!(sent[8000..8050], received[8000..8050], "and not a byte more");
    }
    let summary = pair.card.functions[0].summary();
    assert_eq!(summary.packets, [u64::from(2 * ENTRIES + 5), 0]);
}

#[test]
fn rdma_writes_and_reads_regions_that_are_scattered() {
    let mut pair = pair(false);
    let [(_, pages_a), (_, pages_b)] = pair.regions;
    fill(&pair.a, &pages_a, 1);
    assert_eq!(pair.rdma(control1::OP_RDMA_WRITE), 0);
    assert_eq!(bytes(&pair.a, &pages_a), bytes(&pair.b, &pages_b));
    fill(&pair.b, &pages_b, 2);
    assert_eq!(pair.rdma(control1::OP_RDMA_READ), 0);
    assert_eq!(bytes(&pair.a, &pages_a), bytes(&pair.b, &pages_b));
}

#[test]
fn memory_that_its_guest_takes_away_is_not_reached_and_what_was_made_of_it_goes_on() {
    let mut pair = pair(false);
    let before = efa_vm::window::faults();
    pair.card.functions[1].guest().clear();
    // The device says that it was written, as one behind an IOMMU would: the bytes went nowhere.
    pair.rdma(control1::OP_RDMA_WRITE);
    assert!(efa_vm::window::faults() > before);
    pair.card.functions[1].end();
    let status = pair.rdma(control1::OP_RDMA_WRITE);
    assert_ne!(status, 0, "its machine is gone");
}

#[test]
fn a_completion_queue_raises_an_event_for_each_arming() {
    let mut pair = pair(true);
    let [(region_a, _), (region_b, _)] = pair.regions;
    let event = |driver: &Driver, nth: u64| {
        let bytes = driver.get(EQ + nth * 16, 16);
        (bytes[0] & 1, u16::from_le_bytes([bytes[8], bytes[9]]))
    };
    let send = |pair: &mut Pair| {
        pair.b.post_recv(&mut pair.qps[1], IOVA, 64, region_b.lkey.get());
        let sent = local(region_a.lkey.get(), IOVA, 64);
        pair.a.post(&mut pair.qps[0], pair.to_b, control1::OP_SEND, sent.as_bytes());
        pair.card.advance();
    };
    send(&mut pair);
    assert_eq!(event(&pair.b, 0), (0, 0), "it was not armed");
    // One has been consumed, no event taken, armed.
    let cq = pair.qps[1].recv_cq.doorbell;
    pair.b.write(cq.into(), 1 | 1 << 31);
    pair.card.advance();
    assert_eq!(event(&pair.b, 0), (0, 0), "nothing came since");
    send(&mut pair);
    assert_eq!(event(&pair.b, 0), (1, pair.qps[1].recv_cq.number));
    send(&mut pair);
    assert_eq!(event(&pair.b, 1), (0, 0), "one for each arming");
}
