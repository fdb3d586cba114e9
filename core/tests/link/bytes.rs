//! What arrives is what was sent, of every operation and size.

use efa_core::peer::Sender;
use efa_core::qp::{Depth, Solicited, Srd, Unsolicited, Wide};
use efa_core::soft::link::PAYLOAD;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work::Event;
use efa_core::{Context, Provider, Token};

use crate::common::LIMITS;
use crate::net::{Net, gid};
use crate::{bytes, config, look, nothing, pair, pair_of, pattern, recv, wait, window};

#[test]
fn a_send_of_any_length_arrives_with_its_immediate_and_its_sender() {
    let (mut a, mut b, mut net) = pair_of::<Srd>(config(1), config(2), Depth::new(8, 8).recv_buffers(2));
    assert_eq!(a.ctx.limits().max_msg_size as usize, PAYLOAD);
    for (nth, len) in [0, 1, 32, 33, PAYLOAD - 1, PAYLOAD].into_iter().enumerate() {
        recv(&mut b, PAYLOAD, 1);
        let sent = pattern(len, nth);
        match len {
            0 => a.endpoint.post(a.peer.send_empty().imm(5), Token(2)).unwrap(),
            1..33 => a.endpoint.post(a.peer.send_inline(&sent[..]).imm(5), Token(2)).unwrap(),
            _ => a.endpoint.post(a.peer.send(bytes(&a, &sent)).imm(5), Token(2)).unwrap(),
        }
        let Event::Received(mut message) = wait(&mut net, &mut b.endpoint) else { panic!() };
        assert_eq!((message.len, message.imm), (len, Some(5)));
        assert!(message.from == crate::known(&b.peer), "{:?}", message.from);
        assert!(message.buffers.take_slice().unwrap()[..len] == sent);
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(done) if done.token == Token(2)));
    }
    // Two buffers into two.
    let (target, other) = (bytes(&b, &[0; 3]), bytes(&b, &[0; 9]));
    b.endpoint.post_recv([target, other], Token(1)).unwrap();
    a.endpoint.post(a.peer.send([bytes(&a, b"hell"), bytes(&a, b"o world")]), Token(2)).unwrap();
    let Event::Received(mut message) = wait(&mut net, &mut b.endpoint) else { panic!() };
    let parts = [message.buffers.take_slice().unwrap(), message.buffers.take_slice().unwrap()];
    assert_eq!((message.len, &parts[0][..], &parts[1][..8]), (11, &b"hel"[..], &b"lo world"[..]));
}

#[test]
fn writes_and_reads_of_any_length_move_exactly_their_bytes() {
    let (mut a, mut b, mut net) = pair();
    let pages = if cfg!(miri) { 8 } else { 40 };
    let (memory, window) = crate::pages(&b, &a, pages);
    let lens: &[usize] = if cfg!(miri) {
        &[0, 1, PAYLOAD + 1, 3 * PAYLOAD + 7]
    } else {
        &[0, 1, 7, 4096, PAYLOAD - 1, PAYLOAD, PAYLOAD + 1, 2 * PAYLOAD, 3 * PAYLOAD + 7, 100 * 1024 + 3, 160_000]
    };
    let mut expected = vec![0; pages * 4096];
    for (nth, &len) in lens.iter().enumerate() {
        let sent = pattern(len, nth);
        let at = nth * 3 + 1;
        let part = || window.range(at as u64..(at + len) as u64).unwrap();
        a.endpoint.post(a.peer.write(bytes(&a, &sent), part()), Token(1)).unwrap_or_else(|refused| panic!("{refused}"));
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)), "{len}");
        expected[at..at + len].copy_from_slice(&sent);
        let mut found = vec![0; expected.len()];
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == expected, "a write of {len}");
        a.endpoint.post(a.peer.read(bytes(&a, &vec![0xEE; len]), part()), Token(2)).unwrap();
        let Event::Read(mut done) = wait(&mut net, &mut a.endpoint) else { panic!() };
        assert!(done.buffers.take_slice().unwrap()[..] == sent, "a read of {len}");
    }
    nothing(&mut b.endpoint);
    let (requester, responder) = (a.ctx.provider().counters(), b.ctx.provider().counters());
    let total: usize = lens.iter().sum();
    assert_eq!((requester.rdma_write_bytes, requester.rdma_read_bytes), (total as u64, total as u64));
    assert_eq!((responder.rdma_write_recv_bytes, responder.rdma_read_resp_bytes), (total as u64, total as u64));
    assert_eq!((requester.rdma_write_wrs, requester.rdma_read_wrs), (lens.len() as u64, lens.len() as u64));
    assert_eq!((requester.tx_bytes, responder.rx_bytes), (total as u64, total as u64));
}

#[test]
fn r16_an_immediate_arrives_when_all_bytes_of_its_write_are_there() {
    let seeds = if cfg!(miri) { 1 } else { 20 };
    for seed in 0..seeds {
        let (mut a, mut b, mut net) = pair();
        (net.loss, net.repeats, net.delay) = (if cfg!(miri) { 0 } else { 200 }, 200, 500);
        for _ in 0..seed {
            net.random();
        }
        let (memory, window) = crate::pages(&b, &a, if cfg!(miri) { 8 } else { 25 });
        let sent = pattern(3 * PAYLOAD + 5, 9);
        recv(&mut b, 1, 1);
        let range = window.range(0..sent.len() as u64).unwrap();
        a.endpoint.post(a.peer.write(bytes(&a, &sent), range).imm(77), Token(2)).unwrap();
        let Event::WriteArrived(arrived) = wait(&mut net, &mut b.endpoint) else { panic!() };
        assert_eq!((arrived.imm, arrived.token), (77, Token(1)));
        let mut found = vec![0; sent.len()];
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == sent);
        // What comes late now is not executed.
        memory.copy_in(0, &vec![1; sent.len()]).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
        net.settle();
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == vec![1; sent.len()]);
        nothing(&mut b.endpoint);
    }
}

#[test]
fn r22_an_unsolicited_write_arrives_without_a_receive() {
    type Kind = Srd<{ efa_core::qp::ops::ALL }, Unsolicited>;
    let unsolicited = |n| Config::new(Profile::UNSOLICITED).limits(LIMITS).packets(64).gid(gid(n)).linked(n);
    let (mut a, mut b, mut net) = pair_of::<Kind>(unsolicited(1), unsolicited(2), Depth::new(8, 8).unsolicited(4));
    let (memory, window) = window(&b, &a);
    let range = window.range(0..5).unwrap();
    a.endpoint.post(a.peer.write(bytes(&a, b"hello"), range).imm(9), Token(1)).unwrap();
    let Event::UnsolicitedWrite(write) = wait(&mut net, &mut b.endpoint) else { panic!() };
    assert_eq!((write.imm, write.len), (9, Some(5)));
    assert_eq!(look(&memory, 5), b"hello");
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
}

#[test]
fn h03_r23_r24_an_unknown_sender_of_another_wire_is_told_by_its_gid_and_a_known_one_by_its_handle() {
    let (mut a, mut b, mut net) = pair_of::<Srd>(config(1), config(2).unknown_senders(1), Depth::new(8, 8));
    recv(&mut b, 8, 1);
    recv(&mut b, 8, 2);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    let Event::Received(message) = wait(&mut net, &mut b.endpoint) else { panic!() };
    assert!(matches!(message.from, Sender::Unknown { gid: Some(from), .. } if from == gid(1)), "{:?}", message.from);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    let Event::Received(message) = wait(&mut net, &mut b.endpoint) else { panic!() };
    assert_eq!(message.from, crate::known(&b.peer));
}

#[test]
fn several_devices_of_several_wires_reach_each_other_and_devices_of_one_wire_need_no_frames() {
    let devices: Vec<_> = (1..4).map(|n| SoftDevice::new(config(n))).collect();
    let seconds: Vec<_> = devices.iter().map(|device| device.neighbour().unwrap()).collect();
    assert_eq!(seconds[2].gid().interface_id(), gid(3).interface_id() + 1);
    let mut net = Net::new(3, &devices.iter().collect::<Vec<_>>());
    let all: Vec<_> = devices.iter().chain(&seconds).map(|device| Context::open(device.clone())).collect();
    for from in 0..6 {
        for to in 0..6 {
            let contexts = [all[from].clone(), all[to].clone()];
            let before = net.log.len();
            let [mut a, mut b] = efa_core::connect::connect(contexts, Depth::new(1, 1)).unwrap();
            recv(&mut b, 8, 1);
            a.endpoint.post(a.peer.send_inline(b"hello"), Token(1)).unwrap();
            assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.len == 5));
            assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
            let same_wire = from % 3 == to % 3;
            assert_eq!(net.log.len() == before, same_wire, "{from} to {to}");
        }
    }
}

#[test]
fn a_device_without_a_link_answers_15_to_what_is_not_on_its_wire_and_takes_no_frame() {
    let plain = SoftDevice::new(efa_core::soft::Config::new(Profile::RDMA).limits(LIMITS).packets(64));
    let other = SoftDevice::new(config(2));
    let mut net = Net::new(1, &[&plain, &other]);
    let [mut a, _b] = efa_core::connect::connect([plain.clone(), other].map(Context::open), Depth::new(1, 1)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(crate::status(&mut net, &mut a.endpoint), 15);
    assert!(net.log.is_empty());
    let refused = plain.receive(0, &[0; 56]).unwrap_err();
    assert!(refused.to_string().contains("Config::linked"), "{refused}");
}

#[test]
fn a_wire_in_static_memory_has_a_link_too() {
    static WIRE: efa_core::soft::Storage<1, 8, 2> = efa_core::soft::Storage::new();
    let devices = [WIRE.start(config(1)).unwrap(), SoftDevice::new(config(2))];
    let mut net = Net::new(1, &[&devices[0], &devices[1]]);
    let [mut a, mut b] = efa_core::connect::connect(devices.map(Context::open), Depth::new(2, 2)).unwrap();
    assert_eq!(a.ctx.limits().max_msg_size as usize, PAYLOAD);
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(1)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.len == 5));
}

#[test]
fn a_thread_may_carry_frames_while_others_post_and_poll() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (mut a, mut b, _) = pair();
    let wires = [&a, &b].map(|side| side.ctx.provider().clone());
    let (memory, window) = window(&b, &a);
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 2 } else { 200 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut net = Net::new(1, &wires.each_ref());
            while !stop.load(Ordering::Relaxed) {
                net.log.clear();
                net.step();
                std::thread::yield_now();
            }
        });
        let receiver = scope.spawn(|| {
            for _ in 0..rounds {
                recv(&mut b, 4096, 1);
                let event = loop {
                    match b.endpoint.poll() {
                        Some(event) => break event,
                        None => std::thread::yield_now(),
                    }
                };
                assert!(matches!(event, Event::Received(message) if message.len == 4096));
                let mut seen = [0; 64];
                memory.copy_out(0, &mut seen).unwrap();
            }
        });
        for nth in 0..rounds {
            let data = pattern(4096, nth);
            a.endpoint.post(a.peer.send(bytes(&a, &data)), Token(1)).unwrap();
            a.endpoint.post(a.peer.write(bytes(&a, &data), window.range(0..4096).unwrap()), Token(2)).unwrap();
            for _ in 0..2 {
                let event = loop {
                    match a.endpoint.poll() {
                        Some(event) => break event,
                        None => std::thread::yield_now(),
                    }
                };
                assert!(matches!(event, Event::Sent(_) | Event::Written(_)), "{event:?}");
            }
        }
        let ended = receiver.join();
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    assert_eq!(look(&memory, 4096), pattern(4096, rounds - 1));
}

#[test]
fn r10_inline_bytes_of_wide_entries_are_sent_and_written_over_the_link_with_request_ids_of_64_bits() {
    type Kind = Srd<{ efa_core::qp::ops::ALL }, Solicited, Wide>;
    let wide = |n| {
        let config = Config::new(Profile::RDMA.wide()).limits(LIMITS).packets(64).req_id_64(true);
        config.gid(gid(n)).linked(n)
    };
    let (mut a, mut b, mut net) = pair_of::<Kind>(wide(1), wide(2), Depth::new(4, 8));
    let (memory, window) = window(&b, &a);
    for len in [0, 1, 33, 80] {
        let sent = pattern(len, 1 + len);
        recv(&mut b, 80, 1);
        a.endpoint.post(a.peer.send_inline(&sent[..]).imm(1), Token(1)).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(done) if done.token == Token(1)));
        let Event::Received(mut message) = wait(&mut net, &mut b.endpoint) else { panic!() };
        assert_eq!(message.buffers.take_slice().unwrap()[..len], sent);
        a.endpoint.post(a.peer.write_inline(&sent[..], window.range(3..3 + len as u64).unwrap()), Token(2)).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(done) if done.token == Token(2)));
        assert_eq!(look(&memory, 3 + len)[3..], sent);
        recv(&mut b, 80, 2);
        let part = window.range(0..len as u64).unwrap();
        a.endpoint.post(a.peer.write_inline(&sent[..], part).imm(9), Token(3)).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
        assert!(matches!(wait(&mut net, &mut b.endpoint), Event::WriteArrived(write) if write.imm == 9));
        assert_eq!(look(&memory, len), sent);
    }
    net.settle();
    assert_eq!(a.endpoint.stats().stale, 0);
}
