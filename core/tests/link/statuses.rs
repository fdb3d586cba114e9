//! Every status that a device of another wire can answer.

use efa_core::flags::SendOps;
use efa_core::memory::RemoteReadWrite;
use efa_core::qp::{Depth, InitAttr, RnrRetry, RtsAttr, Srd, Unsolicited};
use efa_core::soft::link::{Body, FRAME, Frame};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::status::CompletionStatus as Status;
use efa_core::work::Event;
use efa_core::{Context, Qkey, SetRnrRetry, Token};

use crate::common::{LIMITS, zeros};
use crate::net::{Net, gid};
use crate::{bytes, config, failed, look, nothing, pair, pattern, recv, status, wait, window};

#[test]
fn a_remote_key_that_is_gone_answers_7_to_a_write_of_any_size_and_to_a_read_and_others_go_on() {
    let (mut a, mut b, mut net) = pair();
    let (memory, gone) = window(&b, &a);
    let (kept, window) = window(&b, &a);
    drop(memory.revoke().unwrap());
    let all = || gone.range(0..4096).unwrap();
    a.endpoint.post(a.peer.write(zeros(&a.pd, 4096), all()), Token(1)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 7);
    a.endpoint.post(a.peer.read(zeros(&a.pd, 4096), all()), Token(2)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 7);
    let range = window.range(8..13).unwrap();
    a.endpoint.post(a.peer.write(bytes(&a, b"hello"), range), Token(3)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
    assert_eq!(look(&kept, 16)[8..13], *b"hello");
    net.settle();
    nothing(&mut a.endpoint);
    nothing(&mut b.endpoint);
    let (requester, responder) = (a.ctx.provider().counters(), b.ctx.provider().counters());
    assert_eq!((requester.rdma_write_wr_err, requester.rdma_read_wr_err, requester.wr_errors), (1, 1, 2));
    assert!(responder.rx_drops >= 2);
}

#[test]
fn memory_that_is_revoked_midway_ends_a_long_write_and_a_long_read_with_7() {
    let (mut a, b, mut net) = pair();
    let count = if cfg!(miri) { 24 } else { 200 };
    for is_write in [true, false] {
        let (memory, window) = crate::pages(&b, &a, count);
        let range = window.range(0..count as u64 * 4096).unwrap();
        let local = zeros(&a.pd, count * 4096);
        match is_write {
            true => a.endpoint.post(a.peer.write(local, range), Token(1)).unwrap(),
            false => a.endpoint.post(a.peer.read(local, range), Token(1)).unwrap(),
        }
        net.steps(4);
        nothing(&mut a.endpoint);
        drop(memory.revoke().unwrap());
        assert_eq!(status(&mut net, &mut a.endpoint), 7);
    }
    net.settle();
}

#[test]
fn a_queue_pair_that_is_gone_or_in_error_answers_9_and_says_so() {
    let (mut a, b, mut net) = pair();
    drop(b.endpoint.error().unwrap());
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    let failure = failed(&mut net, &mut a.endpoint);
    assert_eq!(failure.status(), Some(Status::RemoteBadDestQpn));
    assert!(failure.to_string().contains("exited, restarted"), "{failure}");
}

#[test]
fn a_message_that_finds_no_receive_is_tried_as_often_as_its_queue_pair_says_and_then_answers_10() {
    let contexts = [1, 2].map(|n| Context::open(SoftDevice::new(config(n))));
    let mut net = Net::new(1, &[contexts[0].provider(), contexts[1].provider()]);
    let pds = [0, 1].map(|nth| contexts[nth].alloc_pd().unwrap());
    for retries in [0, 1, 6] {
        let srd = contexts[0].require::<Srd>().unwrap();
        let a = pds[0].create_qp(srd, Depth::new(8, 8)).unwrap();
        let a = a.init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap();
        let token = contexts[0].require::<SetRnrRetry>().unwrap();
        let mut a = a.rts(RtsAttr::new().rnr_retry(token, RnrRetry::times(retries).unwrap())).unwrap();
        let b = pds[1].endpoint(contexts[1].require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
        let (to_b, _to_a) = efa_core::connect::introduce(&a, &b).unwrap();
        let before = net.requests();
        a.post(to_b.send_empty(), Token(1)).unwrap();
        assert_eq!(status(&mut net, &mut a), 10);
        assert_eq!(net.requests() - before, usize::from(retries) + 1);
    }
}

#[test]
fn a_message_waits_for_ever_for_its_receive_by_default_and_a_write_with_immediate_too() {
    let (mut a, mut b, mut net) = pair();
    let (memory, window) = window(&b, &a);
    a.endpoint.post(a.peer.send(bytes(&a, b"first")), Token(1)).unwrap();
    net.steps(200);
    nothing(&mut a.endpoint);
    recv(&mut b, 8, 1);
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.len == 5));
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    let sent = pattern(4096, 3);
    let range = window.range(0..4096).unwrap();
    a.endpoint.post(a.peer.write(bytes(&a, &sent), range).imm(4), Token(2)).unwrap();
    net.steps(200);
    nothing(&mut a.endpoint);
    recv(&mut b, 8, 2);
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::WriteArrived(write) if write.imm == 4));
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
    assert_eq!(look(&memory, 4096), sent);
    net.settle();
    nothing(&mut b.endpoint);
}

#[test]
fn a_receive_that_is_too_short_is_consumed_and_the_send_answers_11() {
    let (mut a, mut b, mut net) = pair();
    recv(&mut b, 4, 1);
    recv(&mut b, 5, 2);
    a.endpoint.post(a.peer.send(bytes(&a, b"hello")), Token(1)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 11);
    assert_eq!(failed(&mut net, &mut b.endpoint).status(), Some(Status::LocalBadLength));
    a.endpoint.post(a.peer.send(bytes(&a, b"hello")), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.token == Token(2)));
}

#[test]
fn r04_rdma_answers_14_until_a_domain_of_the_other_wire_has_resolved_us() {
    let contexts = [1, 2].map(|n| Context::open(SoftDevice::new(config(n))));
    let mut net = Net::new(1, &[contexts[0].provider(), contexts[1].provider()]);
    let pds = [0, 1].map(|nth| contexts[nth].alloc_pd().unwrap());
    let [mut a, mut b] =
        [0, 1].map(|nth| pds[nth].endpoint(contexts[nth].require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap());
    let to_b = a.resolve_address(b.address()).unwrap().assert_mutual();
    let memory = pds[1].expose(zeroed(), contexts[1].require::<RemoteReadWrite>().unwrap()).unwrap();
    let window = to_b.window::<RemoteReadWrite>(memory.grant(&b).unwrap().as_bytes()).unwrap();
    let range = || window.range(0..8).unwrap();
    for _ in 0..2 {
        a.post(to_b.write(zeros(&pds[0], 8), range()), Token(1)).unwrap();
        assert_eq!(status(&mut net, &mut a), 14);
        a.post(to_b.read(zeros(&pds[0], 8), range()), Token(2)).unwrap();
        assert_eq!(status(&mut net, &mut a), 14);
        // A SEND needs no handle, and another domain's is no help.
        b.post_recv(zeros(&pds[1], 8), Token(3)).unwrap();
        a.post(to_b.send_empty(), Token(3)).unwrap();
        assert!(matches!(wait(&mut net, &mut a), Event::Sent(_)));
        assert!(matches!(wait(&mut net, &mut b), Event::Received(_)));
        let other = contexts[1].alloc_pd().unwrap();
        let other = other.endpoint(contexts[1].require::<Srd>().unwrap(), Depth::new(1, 1)).unwrap();
        drop(other.resolve_address(a.address()).unwrap());
    }
    let to_a = b.resolve_address(a.address()).unwrap();
    a.post(to_b.write(zeros(&pds[0], 8), range()), Token(4)).unwrap();
    assert!(matches!(wait(&mut net, &mut a), Event::Written(_)));
    a.post(to_b.read(zeros(&pds[0], 8), range()), Token(5)).unwrap();
    assert!(matches!(wait(&mut net, &mut a), Event::Read(_)));
    drop(to_a);
    a.post(to_b.write(zeros(&pds[0], 8), range()), Token(6)).unwrap();
    assert_eq!(status(&mut net, &mut a), 14);
}

fn zeroed() -> efa_core::memory::Pages {
    efa_core::memory::Pages::new(1, efa_core::memory::PageSize::Base).unwrap()
}

#[test]
fn r05_a_write_with_immediate_to_other_features_answers_18() {
    type Other = Srd<{ SendOps::all().bits() }, Unsolicited>;
    let config = |n| Config::new(Profile::UNSOLICITED).limits(LIMITS).packets(64).gid(gid(n)).linked(n);
    let contexts = [1, 2].map(|n| Context::open(SoftDevice::new(config(n))));
    let mut net = Net::new(1, &[contexts[0].provider(), contexts[1].provider()]);
    let pds = [0, 1].map(|nth| contexts[nth].alloc_pd().unwrap());
    let mut a = pds[0].endpoint(contexts[0].require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
    let b = pds[1].endpoint(contexts[1].require::<Other>().unwrap(), Depth::new(8, 8).unsolicited(4)).unwrap();
    let (to_b, _to_a) =
        (a.resolve_address(b.address()).unwrap().assert_mutual(), b.resolve_address(a.address()).unwrap());
    let memory = pds[1].expose(zeroed(), contexts[1].require::<RemoteReadWrite>().unwrap()).unwrap();
    let window = to_b.window::<RemoteReadWrite>(memory.grant(&b).unwrap().as_bytes()).unwrap();
    a.post(to_b.write(zeros(&pds[0], 8), window.range(0..8).unwrap()).imm(1), Token(1)).unwrap();
    assert_eq!(status(&mut net, &mut a), 18);
    a.post(to_b.write(zeros(&pds[0], 8), window.range(0..8).unwrap()), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut a), Event::Written(_)));
}

/// A carrier that makes all answers say another status.
fn answer(status: u8) -> crate::net::Filter {
    Box::new(move |_, mut bytes| {
        if matches!(Frame::parse(&bytes).unwrap().body, Body::Answers(_)) {
            bytes[56..].chunks_exact_mut(16).for_each(|record| record[8] = status);
        }
        Some(bytes)
    })
}

#[test]
fn a_status_of_the_other_side_is_taken_over_and_one_that_is_not_its_to_give_is_12() {
    for (number, expected) in [
        (1, 12),
        (2, 12),
        (3, 12),
        (4, 12),
        (5, 12),
        (6, 12),
        (7, 7),
        (8, 8),
        (9, 9),
        (11, 11),
        (12, 12),
        (13, 12),
        (14, 14),
        (15, 12),
        (16, 12),
        (18, 18),
        (255, 12),
    ] {
        let (mut a, b, mut net) = pair();
        net.filter = Some(answer(number));
        let (_memory, window) = window(&b, &a);
        a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
        assert_eq!(status(&mut net, &mut a.endpoint), expected, "{number}");
        a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window.range(0..8).unwrap()), Token(2)).unwrap();
        assert_eq!(status(&mut net, &mut a.endpoint), expected, "{number}");
    }
    // No write without immediate waits for a receive.
    let (mut a, b, mut net) = pair();
    let (memory, window) = window(&b, &a);
    net.filter = Some(answer(10));
    a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window.range(0..8).unwrap()), Token(2)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 12);
    // No read is done without its data, nor with less or more of it, nor is any data of what is no read.
    net.filter = Some(answer(0));
    let gone = memory;
    let all = window.range(0..8).unwrap();
    drop(gone.revoke().unwrap());
    a.endpoint.post(a.peer.read(zeros(&a.pd, 8), all), Token(3)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 12);
}

#[test]
fn data_of_another_length_than_was_asked_for_or_for_no_read_ends_with_12_and_writes_nothing() {
    for change in [-1isize, 1, 100] {
        let (mut a, b, mut net) = pair();
        let (memory, window) = window(&b, &a);
        memory.copy_in(0, &[7; 64]).unwrap();
        net.filter = Some(Box::new(move |_, bytes| {
            let mut frame = Frame::parse(&bytes).unwrap();
            let Body::Data { sequence, bytes: data } = frame.body else { return Some(bytes) };
            let mut data = data.to_vec();
            data.resize(data.len().saturating_add_signed(change), 7);
            frame.body = Body::Data { sequence, bytes: &data };
            let mut written = [0; FRAME];
            let len = frame.write(&mut written).unwrap();
            Some(written[..len].to_vec())
        }));
        a.endpoint.post(a.peer.read(bytes(&a, &[1; 64]), window.range(0..64).unwrap()), Token(1)).unwrap();
        let Event::Failed { failure, mut buffers } = wait(&mut net, &mut a.endpoint) else { panic!() };
        assert_eq!(failure.status(), Some(Status::RemoteBadStatus));
        assert_eq!(buffers.take_slice().unwrap()[..], [1; 64]);
    }
    let (mut a, mut b, mut net) = pair();
    recv(&mut b, 8, 1);
    net.filter = Some(Box::new(|_, bytes| {
        let mut frame = Frame::parse(&bytes).unwrap();
        let Body::Answers(answers) = frame.body else { return Some(bytes) };
        let (sequence, _) = answers.iter().next().unwrap();
        frame.body = Body::Data { sequence, bytes: b"surprise" };
        let mut written = [0; FRAME];
        let len = frame.write(&mut written).unwrap();
        Some(written[..len].to_vec())
    }));
    a.endpoint.post(a.peer.send(bytes(&a, b"original")), Token(1)).unwrap();
    let Event::Failed { failure, mut buffers } = wait(&mut net, &mut a.endpoint) else { panic!() };
    assert_eq!(failure.status(), Some(Status::RemoteBadStatus));
    assert_eq!(buffers.take_slice().unwrap()[..], *b"original");
}
