//! Completions: what does not fit what is in flight is a value, or is counted.

use super::*;

#[test]
fn r20_request_ids_carry_the_generation_above_the_slot() {
    let mut stage = stage(CAPS);
    let ids = [stage.send(1), stage.recv(2)];
    assert_eq!(ids.map(|id| id / DEPTH as u16), [GENERATION; 2]);
    assert_eq!(ids.map(|id| id % DEPTH as u16), [0; 2]);
}

#[test]
fn r20_completions_of_another_generation_queue_pair_queue_or_slot_are_counted_and_lose_nothing() {
    for (mut stage, one) in stages(CAPS).into_iter().zip([false, true]) {
        let (send, recv) = (stage.send(1), stage.recv(2));
        for bit in 2..16 {
            stage.device.send_done(send ^ 1 << bit, 0, control1::OP_SEND);
            stage.stale(1);
            stage.device.recv_done(recv_entry(recv ^ 1 << bit, 0));
            stage.stale(1);
        }
        for slot in 1..DEPTH as u16 {
            stage.device.send_done(send + slot, 0, control1::OP_SEND);
            stage.device.send_done(send + slot, 1, control1::OP_SEND);
            stage.device.recv_done(recv_entry(recv + slot, 0));
            stage.stale(3);
        }
        let elsewhere = Completion { qp_num: (QPN + 1).into(), ..common(send, flags::QUEUE_SEND) };
        stage.device.complete(0, &send_entry(elsewhere));
        // Where there is one for both, that is a receive's: the first has the same number as the first send.
        if !one {
            stage.device.complete(0, &send_entry(common(send, flags::QUEUE_RECV)));
        }
        stage.device.complete(0, &send_entry(common(send, flags::QUEUE_SEND | flags::UNSOLICITED)));
        stage.device.complete(0, &send_entry(common(send, 0)));
        stage.stale(if one { 3 } else { 4 });
        let mut entry = recv_entry(recv, 0);
        entry.common.qp_num = (QPN ^ 0x8000).into();
        stage.device.recv_done(entry);
        entry = recv_entry(recv, 0);
        entry.common.flags = flags::QUEUE_SEND;
        if !one {
            stage.device.recv_done(entry);
        }
        stage.stale(if one { 1 } else { 2 });
        assert_eq!((stage.qp.in_flight(), stage.qp.cause()), (2, None));
        stage.device.send_done(send, 0, control1::OP_SEND);
        assert!(matches!(stage.qp.poll(), Some(Event::Sent(done)) if done.token == Token(1)));
        stage.device.recv_done(recv_entry(recv, 8));
        assert!(matches!(stage.qp.poll(), Some(Event::Received(message)) if message.len == 8));
        stage.usable();
    }
}

#[test]
fn neither_of_a_queue_pairs_own_completion_queues_keeps_the_other_waiting_for_longer_than_one_round_of_it() {
    for sends_go_on in [true, false] {
        let mut stage = stage(CAPS);
        let (send, recv) = (stage.send(0), stage.recv(0));
        stage.device.send_done(send, 0, control1::OP_SEND);
        stage.device.recv_done(recv_entry(recv, 0));
        let waits = |event: &Event| matches!(event, Event::Received(_)) == sends_go_on;
        // For each completion of the one that is polled there is another at once.
        let mut polled = 0;
        while !waits(&stage.qp.poll().unwrap()) {
            polled += 1;
            assert!(polled <= DEPTH, "{polled} of the one while the other waits");
            if sends_go_on {
                let send = stage.send(1);
                stage.device.send_done(send, 0, control1::OP_SEND);
            } else {
                let recv = stage.recv(1);
                stage.device.recv_done(recv_entry(recv, 0));
            }
        }
        // What had something last is looked at first.
        assert!(!waits(&stage.qp.poll().unwrap()) && stage.qp.poll().is_none());
    }
}

#[test]
fn r20_a_repeated_completion_ends_nothing_twice_not_even_a_later_request_of_its_slot() {
    for mut stage in stages(CAPS) {
        let first = stage.send(1);
        stage.device.send_done(first, 0, control1::OP_SEND);
        stage.device.send_done(first, 0, control1::OP_SEND);
        assert!(matches!(stage.qp.poll(), Some(Event::Sent(_))));
        stage.stale(1);
        let recv = stage.recv(2);
        stage.device.recv_done(recv_entry(recv, 1));
        stage.device.recv_done(recv_entry(recv, 1));
        assert!(matches!(stage.qp.poll(), Some(Event::Received(_))));
        stage.stale(1);
        stage.usable();
    }
}

#[test]
fn a_status_that_nobody_knows_keeps_its_number_and_the_queue_pair() {
    for mut stage in stages(CAPS) {
        for status in [16, 17, 19, 99, 255] {
            let (send, recv) = (stage.send(1), stage.recv(2));
            stage.device.send_done(send, status, control1::OP_RDMA_WRITE);
            let (failure, slice) = stage.failed();
            assert_eq!(failure.status(), Some(CompletionStatus::Unknown(status)));
            assert_eq!((failure.kind, failure.token, failure.qpn), (Kind::Send, Some(Token(1)), Qpn(QPN)));
            assert!(failure.to_string().contains(&format!("status {status}")), "{failure}");
            assert!(slice.is_some());
            let mut entry = recv_entry(recv, 0);
            entry.common.status = status;
            stage.device.recv_done(entry);
            let (failure, slice) = stage.failed();
            assert_eq!((failure.kind, failure.token, slice.is_some()), (Kind::Recv, Some(Token(2)), true));
        }
        assert_eq!(stage.qp.cause().unwrap().status(), Some(CompletionStatus::Unknown(16)), "R40: the first");
        stage.usable();
    }
}

#[test]
fn a_failure_is_of_the_operation_that_was_posted_whatever_the_completion_calls_it() {
    let mut stage = stage(CAPS);
    let send = stage.send(1);
    stage.device.send_done(send, 3, 7);
    let (failure, slice) = stage.failed();
    assert_eq!((failure.kind, slice.is_some()), (Kind::Send, true));
    assert!(failure.to_string().contains("SEND 1 "), "{failure}");
    stage.usable();
}

#[test]
fn r20_a_success_of_another_operation_than_the_one_posted_is_stale_and_releases_nothing() {
    for mut stage in stages(CAPS) {
        let send = stage.send(2);
        for (count, op) in [control1::OP_RDMA_READ, control1::OP_RDMA_WRITE, 5].into_iter().enumerate() {
            stage.device.send_done(send, 0, op);
            assert!(stage.qp.poll().is_none());
            assert_eq!((stage.qp.stats().stale as usize, stage.qp.in_flight()), (count + 1, 1));
        }
        stage.device.send_done(send, 0, control1::OP_SEND);
        assert_eq!(slice_of(stage.qp.poll().unwrap()).len(), 8);
        stage.usable();
    }
}

#[test]
fn a_length_beyond_the_buffers_is_an_error_with_both_numbers_and_no_slice_panics() {
    for mut stage in stages(CAPS) {
        for (reported, fits) in [(8, true), (9, false), (u16::MAX, false)] {
            let recv = stage.recv(1);
            stage.device.recv_done(recv_entry(recv, reported));
            if fits {
                assert!(matches!(stage.qp.poll(), Some(Event::Received(message)) if message.len == 8));
                continue;
            }
            let (failure, slice) = stage.failed();
            assert_eq!(failure.cause, Cause::LengthBeyondBuffers { reported: reported.into(), room: 8 });
            assert_eq!((failure.token, failure.status(), slice.unwrap().len()), (Some(Token(1)), None, 8));
            let text = failure.to_string();
            assert!(text.contains(&reported.to_string()) && text.contains("do not use"), "{text}");
        }
        stage.usable();
    }
}

/// A receive completion of another operation.
fn odd(req_id: u16, op: u8, more: u8) -> RecvCompletion {
    let mut entry = recv_entry(req_id, 0);
    entry.common.flags |= op << flags::OP_SHIFT | more;
    entry
}

#[test]
fn r22_an_arrival_that_makes_no_sense_is_a_value_and_gives_the_receive_back() {
    for mut stage in stages(CAPS) {
        // A write that consumed a receive without an immediate, and operations that never arrive.
        for (op, more) in [(control1::OP_RDMA_WRITE, 0), (control1::OP_RDMA_READ, flags::HAS_IMM), (6, flags::HAS_IMM)]
        {
            let recv = stage.recv(1);
            stage.device.recv_done(odd(recv, op, more));
            let (failure, slice) = stage.failed();
            assert_eq!((failure.cause, failure.token), (Cause::Malformed { op }, Some(Token(1))));
            assert!(slice.is_some() && failure.to_string().contains("makes no sense"), "{failure}");
        }
        let recv = stage.recv(2);
        stage.device.recv_done(odd(recv, control1::OP_RDMA_WRITE, flags::HAS_IMM));
        assert!(matches!(stage.qp.poll(), Some(Event::WriteArrived(arrived)) if arrived.token == Token(2)));
        // Unsolicited ones, on a queue pair that asked for none: no receive is touched.
        let recv = stage.recv(3);
        let unsolicited = flags::UNSOLICITED;
        stage.device.recv_done(odd(recv, control1::OP_RDMA_WRITE, unsolicited | flags::HAS_IMM));
        assert!(matches!(stage.qp.poll(), Some(Event::UnsolicitedWrite(_))));
        for (op, more) in [(control1::OP_RDMA_WRITE, 0), (control1::OP_SEND, flags::HAS_IMM), (7, flags::HAS_IMM)] {
            stage.device.recv_done(odd(recv, op, unsolicited | more));
            let (failure, slice) = stage.failed();
            assert_eq!((failure.cause, failure.token, slice.is_none()), (Cause::Malformed { op }, None, true));
            assert!(failure.to_string().contains("unsolicited arrival"), "{failure}");
        }
        let mut entry = odd(recv, control1::OP_RDMA_WRITE, unsolicited | flags::HAS_IMM);
        entry.common.status = 7;
        stage.device.recv_done(entry);
        let (failure, _) = stage.failed();
        assert_eq!((failure.status(), failure.token), (Some(CompletionStatus::RemoteBadAddress), None));
        assert_eq!(stage.qp.in_flight(), 1);
        stage.device.recv_done(recv_entry(recv, 0));
        assert!(matches!(stage.qp.poll(), Some(Event::Received(message)) if message.token == Token(3)));
        stage.usable();
    }
}

#[test]
fn r23_r24_the_gid_is_read_only_where_it_is_and_shares_its_bytes_with_a_writes_length() {
    let mut source = [0; 16];
    source[..4].copy_from_slice(&[5, 0, 7, 8]);
    let entry = |recv, op, more, ah: u16| {
        let mut entry = odd(recv, op, more);
        (entry.ah, entry.source, entry.length) = (ah.into(), source, 2.into());
        entry
    };
    for (caps, wide) in [(CAPS, true), (CAPS.difference(Caps::CQ_WITH_SGID), false)] {
        let mut stage = stage(caps);
        let recv = stage.recv(1);
        stage.device.recv_done(entry(recv, control1::OP_SEND, 0, 0xFFFF));
        let Some(Event::Received(message)) = stage.qp.poll() else { panic!() };
        assert_eq!(message.from, Sender::Unknown { gid: wide.then_some(Gid(source)), qpn: Qpn(4) });
        let recv = stage.recv(1);
        stage.device.recv_done(entry(recv, control1::OP_SEND, 0, 3));
        let Some(Event::Received(message)) = stage.qp.poll() else { panic!() };
        assert!(matches!(message.from, Sender::Known { .. }));
        let recv = stage.recv(1);
        stage.device.recv_done(entry(recv, control1::OP_RDMA_WRITE, flags::HAS_IMM, 0xFFFF));
        let Some(Event::WriteArrived(arrived)) = stage.qp.poll() else { panic!() };
        assert_eq!(arrived.len, wide.then_some(5 << 16 | 2));
        assert_eq!(arrived.from, Sender::Unknown { gid: None, qpn: Qpn(4) });
        // R27: zeros are nobody.
        let recv = stage.recv(1);
        let mut nobody = entry(recv, control1::OP_SEND, 0, 0xFFFF);
        nobody.source = [0; 16];
        stage.device.recv_done(nobody);
        let Some(Event::Received(message)) = stage.qp.poll() else { panic!() };
        assert_eq!(message.from, Sender::Unknown { gid: None, qpn: Qpn(4) });
    }
}

#[test]
fn a_completion_of_what_no_doorbell_announced_is_believed_once() {
    let mut stage = stage(CAPS);
    let mut batch = stage.qp.batch();
    batch.push(stage.peer.send(zeros(&stage.pd, 8)), Token(1)).unwrap();
    batch.push(stage.peer.send(zeros(&stage.pd, 8)), Token(2)).unwrap();
    assert_eq!(stage.device.doorbells().0, 0);
    std::mem::forget(batch);
    let ids = [0, 1].map(|nth| stage.device.send_id(nth));
    stage.device.send_done(ids[0], 0, control1::OP_SEND);
    assert!(matches!(stage.qp.poll(), Some(Event::Sent(done)) if done.token == Token(1)));
    assert_eq!(stage.qp.in_flight(), 1);
    // A batch that is taken back leaves the one that was forgotten before.
    let mut batch = stage.qp.batch();
    batch.push(stage.peer.send_empty(), Token(3)).unwrap();
    let third = stage.device.send_id(0);
    stage.device.send_done(third, 0, control1::OP_SEND);
    drop(batch);
    stage.stale(1);
    stage.device.send_done(ids[1], 0, control1::OP_SEND);
    assert!(matches!(stage.qp.poll(), Some(Event::Sent(done)) if done.token == Token(2)));
    stage.device.send_done(ids[1], 0, control1::OP_SEND);
    stage.stale(1);
    stage.usable();
}

#[test]
fn every_completion_is_found_across_many_rounds_of_the_rings() {
    for mut stage in stages(CAPS) {
        for round in 0..5 * DEPTH as u64 {
            let (send, recv) = (stage.send(round), stage.recv(round));
            // Request ids repeat, doorbells run on.
            assert_eq!(stage.device.doorbells(), (round as u32 + 1, round as u32 + 1));
            stage.device.recv_done(recv_entry(recv, (round % 9) as u16));
            stage.device.send_done(send, 0, control1::OP_SEND);
            let events = [stage.qp.poll().unwrap(), stage.qp.poll().unwrap()];
            assert!(events.iter().any(|event| matches!(event, Event::Sent(done) if done.token == Token(round))));
            assert!(events.iter().any(|event| matches!(event, Event::Received(m) if m.len as u64 == round % 9)));
        }
        stage.stale(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_device_writes_each_operation_is_resolved_once(
        mut entries in proptest::collection::vec((any::<bool>(), any::<[u8; 32]>(), 0..4u8), 1..40),
        wide: bool,
        one: bool,
    ) {
        let depth = Depth::new(DEPTH, DEPTH);
        let depth = if one { depth.one_completion_queue() } else { depth };
        let mut stage = stage_of(if wide { CAPS } else { CAPS.difference(Caps::CQ_WITH_SGID) }, depth);
        let mut resolved = vec![0; 8];
        for token in 0..4 {
            let _ = (stage.send(token), stage.recv(token + 4));
        }
        let memory = page::<_, RemoteReadWrite>(&stage.ctx, &stage.pd);
        for (recv, entry, true_parts) in &mut entries {
            // Random but for some parts, without which all would be stale.
            if *true_parts > 0 {
                entry[4..6].copy_from_slice(&QPN.to_le_bytes());
                entry[3] = entry[3] & !flags::QUEUE_MASK | if *recv { flags::QUEUE_RECV } else { flags::QUEUE_SEND };
            }
            if *true_parts > 1 {
                let id = GENERATION * DEPTH as u16 + u16::from(entry[0] % 4);
                entry[..2].copy_from_slice(&id.to_le_bytes());
            }
            if *true_parts > 2 {
                entry[2] = 0;
            }
            stage.device.complete(usize::from(*recv), entry);
            let token = match stage.qp.poll() {
                None | Some(Event::UnsolicitedWrite(_)) => continue,
                Some(Event::Sent(done) | Event::Written(done) | Event::Read(done)) => done.token,
                Some(Event::Received(message)) => {
                    prop_assert!(message.len <= message.buffers.bytes());
                    message.token
                }
                Some(Event::WriteArrived(arrived)) => arrived.token,
                Some(Event::Failed { failure, .. }) => {
                    prop_assert!(!failure.to_string().is_empty());
                    let Some(token) = failure.token else { continue };
                    token
                }
                Some(Event::Reclaimed { .. }) => panic!("nothing was destroyed"),
            };
            resolved[token.0 as usize] += 1;
        }
        stage.qp.shut_down(|| true, |event| match event {
            Event::Reclaimed { token, .. } => resolved[token.0 as usize] += 1,
            event => panic!("{event:?}"),
        }).unwrap();
        prop_assert_eq!(resolved, vec![1; 8]);
        prop_assert!(memory.revoke().is_ok());
    }
}
