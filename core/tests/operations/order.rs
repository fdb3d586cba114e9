//! There is no order, and what restores one.

use efa_core::Token;
use efa_core::flow::{Arrivals, Reorder};
use efa_core::qp::Depth;
use efa_core::soft::{Config, Profile, Side, pair_of};
use efa_core::work::Event;

use crate::common::{config, slice};
use crate::{received, recv, window};

#[test]
fn h27_r16_a_message_overtakes_one_that_was_posted_and_polled_for_before_it() {
    let count = if cfg!(miri) { 48 } else { 200 };
    let mut arrived = Vec::new();
    let config = config(Profile::RDMA).shuffle(true).seed(1);
    let (mut a, mut b): (Side, Side) = pair_of(config, Depth::new(16, 16)).unwrap();
    (0..16).for_each(|token| recv(&mut b, token));
    let mut take = |b: &mut Side| {
        while let Some(event) = b.endpoint.poll() {
            let Event::Received(message) = event else { panic!("{event:?}") };
            arrived.push(message.imm.unwrap());
            recv(b, 0);
        }
    };
    for imm in 0..count {
        a.endpoint.post(a.peer.send_empty().imm(imm), Token(0)).unwrap();
        let _ = a.endpoint.poll();
        take(&mut b);
    }
    while a.endpoint.in_flight() > 0 {
        let _ = a.endpoint.poll();
    }
    take(&mut b);
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    assert!(arrived.into_iter().eq(0..count), "each once");
}

#[test]
fn h27_r16_messages_arrive_out_of_order_for_some_seed_and_reorder_and_arrivals_restore() {
    const COUNT: u32 = 8;
    let mut disordered = 0;
    for seed in 0..if cfg!(miri) { 3 } else { 32 } {
        let config = config(Profile::RDMA).shuffle(true).seed(seed);
        let (mut a, mut b): (Side, Side) = pair_of(config, Depth::new(16, 16)).unwrap();
        let (memory, window) = window(&b, &a);
        for token in 0..COUNT {
            recv(&mut b, token.into());
        }
        for imm in 0..COUNT {
            a.endpoint.post(a.peer.send_inline(&imm.to_le_bytes()).imm(imm), Token(imm.into())).unwrap();
        }
        let mut order = Reorder::<Vec<u8>, 8>::new();
        let mut arrived = Vec::new();
        for _ in 0..COUNT {
            let (bytes, imm) = received(&mut b);
            arrived.push(imm.unwrap());
            order.push(imm.unwrap(), bytes).unwrap();
        }
        for imm in 0..COUNT {
            assert_eq!(order.pop().unwrap(), imm.to_le_bytes());
        }
        disordered += u32::from(!arrived.is_sorted());

        for token in 0..COUNT {
            recv(&mut b, token.into());
        }
        let mut posted = 0;
        let mut chunks = Arrivals::expect(COUNT.into());
        let mut here = 0;
        while !chunks.all_here() {
            if posted < COUNT && a.endpoint.can_post() {
                let range = window.range(u64::from(posted) * 16..u64::from(posted) * 16 + 16).unwrap();
                let chunk = slice(&a.pd, &[posted as u8 + 1; 16]).1;
                a.endpoint.post(a.peer.write(chunk, range).imm(posted), Token(0)).unwrap();
                posted += 1;
            }
            let _ = a.endpoint.poll();
            if let Some(Event::WriteArrived(_)) = b.endpoint.poll() {
                chunks.arrived().unwrap();
                here += 1;
                assert_eq!(chunks.missing(), u64::from(COUNT) - here);
            }
        }
        let mut bytes = [0; 16 * COUNT as usize];
        memory.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.chunks(16).enumerate().all(|(n, chunk)| chunk == [n as u8 + 1; 16]));
        assert!(chunks.arrived().is_err());
    }
    assert!(disordered > 0, "no seed delivered in another order");
    assert!(format!("{:?}", Config::new(Profile::RDMA)).contains("shuffle: true"), "shuffle is the default");
}
