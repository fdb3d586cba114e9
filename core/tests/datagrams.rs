//! UD queue pairs: what a datagram promises, and what becomes of it where nobody takes it.

mod common;

use common::{assert_idle, config, context, required, slice_of, wait, wait_failed, zeros};
use efa_core::connect::introduce;
use efa_core::memory::{Buffer, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, PeerTable, Sender};
use efa_core::qp::{
    AnyQueuePair, Datagram, Depth, Endpoint, FeatureSet, Group, InitAttr, QpState, QpType, QueuePair, RtsAttr,
    SendOnly, Shutdown, Srd, Ud,
};
use efa_core::soft::{Config, Profile, Side, SoftDevice, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::wire::{EndpointInfo, Features, Hello};
use efa_core::work::{Cause, Event, Kind, Received};
use efa_core::{Context, Error, Gid, Limit, Limits, Qkey, Qpn, Token};

/// The routing header's bytes, from the device's description.
const HEADER: usize = 40;
const DEPTH: Depth = Depth::new(8, 8).recv_buffers(2);

fn pair_with(config: Config) -> (Side<Ud>, Side<Ud>) {
    pair_of(config, DEPTH).unwrap()
}

fn pair() -> (Side<Ud>, Side<Ud>) {
    pair_with(config(Profile::RDMA))
}

/// Posts a receive with room for so many bytes of payload, all of it 0xEE.
fn recv(side: &mut Side<Ud>, payload: usize) {
    let (_, slice) = side.pd.register(vec![0xEE; HEADER + payload]).unwrap();
    side.endpoint.post_recv(slice, Token(1)).unwrap();
}

fn sent(side: &mut Side<Ud>) {
    let event = wait(&mut side.endpoint);
    assert!(matches!(event, Event::Sent(_)), "{event:?}");
}

/// Sends a few bytes to a peer; the send succeeds.
fn send(side: &mut Side<Ud>, to: &Peer<OneWay, Datagram>, bytes: &[u8]) {
    side.endpoint.post(to.one_way().send_inline(bytes), Token(2)).unwrap();
    sent(side);
}

fn dropped(side: &Side<Ud>) -> u64 {
    side.ctx.provider().counters().rx_drops
}

#[track_caller]
fn received(side: &mut Side<Ud>) -> (Received, Slice) {
    match wait(&mut side.endpoint) {
        Event::Received(mut message) => {
            let slice = message.buffers.take_slice().unwrap();
            (message, slice)
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_datagram_lies_behind_its_header_which_counts_in_the_length() {
    let (mut a, mut b) = pair();
    let (first, second) = a.pd.register(b"slices".to_vec()).unwrap().1.split_at(2).unwrap();
    macro_rules! arrives {
        ($send:expr, $bytes:expr, $imm:expr) => {
            recv(&mut b, 20);
            a.endpoint.post($send, Token(2)).unwrap();
            let (message, slice) = received(&mut b);
            assert_eq!((message.len, message.header, message.imm), (HEADER + $bytes.len(), 40, $imm));
            assert_eq!(message.payload(), HEADER..HEADER + $bytes.len());
            assert_eq!(slice[message.payload()], $bytes[..]);
            assert!(slice[..HEADER].iter().chain(&slice[message.len..]).all(|byte| *byte == 0xEE));
            assert_eq!(message.from, Sender::Known { ahn: b.peer.ahn(), qpn: a.endpoint.qpn() });
            sent(&mut a);
        };
    }
    arrives!(a.peer.send_inline(b"inline"), b"inline", None);
    arrives!(a.peer.send_inline(b"inline").imm(7), b"inline", Some(7));
    arrives!(a.peer.send([first, second]), b"slices", None);
    arrives!(a.peer.send_empty(), b"", None);
    arrives!(a.peer.send(zeros(&a.pd, 20)).imm(u32::MAX), [0; 20], Some(u32::MAX));
    assert_eq!(dropped(&b), 0);
}

#[test]
fn on_srd_the_payload_is_all_that_arrived() {
    let (mut a, mut b) = pair_of::<Srd>(config(Profile::RDMA), DEPTH).unwrap();
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(2)).unwrap();
    let Event::Received(message) = wait(&mut b.endpoint) else { panic!() };
    assert_eq!((message.header, message.len, message.payload()), (0, 5, 0..5));
    assert_eq!((QpType::Srd.header(), QpType::Ud.header()), (0, 40));
}

#[test]
fn the_header_lies_across_two_buffers_as_bytes_do() {
    let (mut a, mut b) = pair();
    for first in [0, 16, 39, 40, 43] {
        let target: [Slice; 2] = zeros(&b.pd, 60).split_at(first).unwrap().into();
        b.endpoint.post_recv(target, Token(1)).unwrap();
        a.endpoint.post(a.peer.send_inline(b"payload"), Token(2)).unwrap();
        let Event::Received(message) = wait(&mut b.endpoint) else { panic!() };
        let payload = message.payload();
        let bytes: Vec<u8> = message.buffers.flat_map(bytes).collect();
        assert_eq!((bytes.len(), &bytes[payload]), (60, &b"payload"[..]), "{first}");
        sent(&mut a);
    }
}

fn bytes(buffer: Buffer) -> Vec<u8> {
    match buffer {
        Buffer::Slice(slice) => slice.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn r12_a_receive_without_room_for_the_header_is_refused_and_comes_back() {
    let (_a, mut b) = pair();
    let below = |asked| Error::BelowLimit { what: Limit::DatagramBytes, asked, limit: 40 };
    let refused = b.endpoint.post_recv(zeros(&b.pd, 39), Token(1)).unwrap_err();
    assert_eq!(refused.error(), below(39));
    let text = refused.to_string();
    assert!(text.contains("39") && text.contains("40") && text.contains("header"), "{text}");
    assert_eq!(refused.into_inner().len(), 39);
    let refused = b.endpoint.post_recv([zeros(&b.pd, 19), zeros(&b.pd, 20)], Token(1)).unwrap_err();
    assert_eq!(refused.error(), below(39));
    assert_eq!(refused.into_inner().map(|slice| slice.len()), [19, 20]);
    let mut list = [64, 39, 64].map(|len| (zeros(&b.pd, len), Token(1))).into_iter();
    let refused = b.endpoint.post_recv_list(&mut list).unwrap_err();
    assert_eq!((refused.error(), refused.into_inner().0.len()), (below(39), 39));
    assert_eq!((b.endpoint.in_flight(), list.len()), (1, 1));
    b.endpoint.post_recv([zeros(&b.pd, 20), zeros(&b.pd, 20)], Token(1)).unwrap();
    // An SRD queue pair takes what it likes.
    let (mut srd, _other) = pair_of::<SendOnly>(config(Profile::NONE), DEPTH).unwrap();
    srd.endpoint.post_recv(zeros(&srd.pd, 1), Token(1)).unwrap();
}

#[test]
fn a_datagram_of_no_bytes_arrives_in_a_receive_of_the_header_alone() {
    let (mut a, mut b) = pair();
    recv(&mut b, 0);
    a.endpoint.post(a.peer.send_empty().imm(5), Token(2)).unwrap();
    let (message, _) = received(&mut b);
    assert_eq!((message.payload(), message.imm), (40..40, Some(5)));
}

#[test]
fn a_datagram_that_finds_no_receive_is_dropped_and_counted_and_its_send_succeeds() {
    let (mut a, mut b) = pair();
    for count in 1..=3 {
        a.endpoint.post(a.peer.send_inline(b"lost"), Token(2)).unwrap();
        sent(&mut a);
        assert_eq!(dropped(&b), count);
    }
    recv(&mut b, 8);
    assert_idle(&mut b.endpoint);
    let sent = a.ctx.provider().counters();
    assert_eq!((sent.send_wrs, sent.send_bytes, sent.tx_pkts, sent.wr_errors, sent.retrans_pkts), (3, 12, 3, 0, 0));
    assert_eq!(b.ctx.provider().counters().recv_wrs, 0);
}

#[test]
fn a_datagram_to_nobody_or_with_a_wrong_key_is_dropped_where_it_arrives() {
    let (mut a, mut b) = pair();
    recv(&mut b, 8);
    let there = b.endpoint.address();
    let wrong = [
        EndpointInfo { qpn: Qpn(0xFFFF), ..there },
        EndpointInfo { qpn: Qpn(there.qpn.0 + 1), ..there },
        EndpointInfo { qkey: Qkey(there.qkey.0 ^ 1), ..there },
    ];
    for (address, count) in wrong.into_iter().zip(1..) {
        let peer = a.endpoint.resolve_address(address).unwrap();
        send(&mut a, &peer, b"lost");
        assert_eq!(dropped(&b), count, "{address}");
    }
    // No device has that address: nobody is there to count it.
    let nobody = EndpointInfo { gid: Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]), ..there };
    let peer = a.endpoint.resolve_address(nobody).unwrap();
    send(&mut a, &peer, b"lost");
    b.ctx.provider().link(false);
    let peer = a.endpoint.resolve_address(there).unwrap();
    send(&mut a, &peer, b"lost");
    b.ctx.provider().link(true);
    a.ctx.provider().link(false);
    send(&mut a, &peer, b"lost");
    a.ctx.provider().link(true);
    assert_eq!((dropped(&a), dropped(&b)), (0, 3));
    assert_idle(&mut b.endpoint);
    send(&mut a, &peer, b"found");
    assert_eq!(received(&mut b).0.len, HEADER + 5);
}

#[test]
fn a_queue_pair_receives_datagrams_from_rtr_on_and_not_in_err() {
    let (mut a, b) = pair();
    let Side { endpoint, pd, ctx, .. } = b;
    let drops = || ctx.provider().counters().rx_drops;
    let there = endpoint.address();
    let peer = a.endpoint.resolve_address(there).unwrap();
    let post = |qp: &mut QueuePair<SoftDevice, _, Ud>| qp.post_recv(zeros(&pd, 64), Token(1)).unwrap();
    let reset = endpoint.reset().unwrap();
    send(&mut a, &peer, b"reset");
    assert_eq!(drops(), 1);
    let mut init = reset.init(InitAttr::new(there.qkey)).unwrap();
    post(&mut init);
    send(&mut a, &peer, b"init");
    assert_eq!(drops(), 2);
    let mut rtr = init.rtr().unwrap();
    send(&mut a, &peer, b"ready");
    let event = wait(&mut rtr);
    assert!(matches!(&event, Event::Received(message) if message.len == HEADER + 5), "{event:?}");
    let mut sqd = rtr.rts(RtsAttr::default()).unwrap().drain().unwrap();
    sqd.post_recv(slice_of(event), Token(1)).unwrap();
    send(&mut a, &peer, b"drained");
    let event = wait(&mut sqd);
    assert!(matches!(&event, Event::Received(_)), "{event:?}");
    let mut err = sqd.error().unwrap();
    send(&mut a, &peer, b"err");
    assert_idle(&mut err);
    assert_eq!(drops(), 3);
}

#[test]
fn r05_srd_and_ud_refuse_each_others_hellos_in_words() {
    let ctx = context(Profile::RDMA);
    let pd = ctx.alloc_pd().unwrap();
    let ud = pd.endpoint(required::<_, Ud>(&ctx), DEPTH).unwrap();
    let srd = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let (none, datagram) = (Features::empty(), Features::DATAGRAM);
    let error = srd.resolve(ud.hello().as_bytes()).unwrap_err();
    assert_eq!(error, Error::FeatureMismatch { ours: none, theirs: datagram });
    let text = error.to_string();
    assert!(text.contains("the peer's queue pair is UD, ours is SRD") && text.contains("R05"), "{text}");
    let error = ud.resolve(srd.hello().as_bytes()).unwrap_err();
    assert_eq!(error, Error::FeatureMismatch { ours: datagram, theirs: none });
    assert!(error.to_string().contains("the peer's queue pair is SRD, ours is UD"), "{error}");
    // A claim of both is none of ours.
    let hello = Hello { features: Features::all(), ..Hello::parse(ud.hello().as_bytes()).unwrap() };
    let error = ud.resolve(hello.to_frame().as_bytes()).unwrap_err();
    assert_eq!(error, Error::FeatureMismatch { ours: datagram, theirs: Features::all() });
    assert!(introduce(&ud, &srd).is_err() && introduce(&ud, &ud).is_ok());
    assert_eq!((hello.ops.bits(), Datagram::FEATURES), (0b1100, datagram));
}

#[test]
fn r05_by_number_a_datagram_to_srd_is_dropped_and_a_message_to_ud_fails_with_9() {
    let (mut ud, _other) = pair();
    let device = ud.ctx.provider().neighbour().unwrap();
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let mut srd = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    srd.post_recv(zeros(&pd, 64), Token(1)).unwrap();
    recv(&mut ud, 24);
    let to_srd = ud.endpoint.resolve_address(srd.address()).unwrap();
    send(&mut ud, &to_srd, b"lost");
    assert_eq!(device.counters().rx_drops, 1);
    assert_idle(&mut srd);
    let to_ud = srd.resolve_address(ud.endpoint.address()).unwrap();
    srd.post(to_ud.one_way().send_inline(b"refused"), Token(2)).unwrap();
    assert_eq!(wait_failed(&mut srd).status(), Some(CompletionStatus::RemoteBadDestQpn));
    assert_idle(&mut ud.endpoint);
}

#[test]
fn a_receive_too_short_for_a_datagram_fails_with_6_untouched_and_the_send_succeeds() {
    let (mut a, mut b) = pair();
    recv(&mut b, 4);
    a.endpoint.post(a.peer.send_inline(b"five!"), Token(2)).unwrap();
    sent(&mut a);
    let Event::Failed { failure, mut buffers } = wait(&mut b.endpoint) else { panic!() };
    assert_eq!((failure.cause, failure.kind), (Cause::Status(CompletionStatus::LocalBadLength), Kind::Recv));
    assert_eq!(buffers.take_slice().unwrap()[..], [0xEE; 44]);
    recv(&mut b, 5);
    a.endpoint.post(a.peer.send_inline(b"five!"), Token(2)).unwrap();
    assert_eq!(received(&mut b).0.len, 45, "the queue pair is usable");
}

#[test]
fn r11_the_longest_datagram_leaves_room_for_its_header_in_a_completion() {
    let limits = Limits { max_msg_size: 65_535, ..common::LIMITS };
    let (mut a, mut b) = pair_with(config(Profile::RDMA).limits(limits));
    assert_eq!(a.peer.max_msg_size(), 65_495);
    let refused = a.endpoint.post(a.peer.send(zeros(&a.pd, 65_496)), Token(1)).unwrap_err();
    let above = Error::AboveLimit { what: Limit::MessageBytes, asked: 65_496, limit: 65_495 };
    assert_eq!(refused.error(), above);
    recv(&mut b, 65_495);
    a.endpoint.post(a.peer.send(zeros(&a.pd, 65_495)), Token(1)).unwrap();
    assert_eq!(received(&mut b).0.payload(), 40..65_535);
}

#[test]
fn on_a_wire_that_loses_lost_is_lost_and_what_arrives_does_so_once() {
    let (mut a, mut b) = pair_with(config(Profile::RDMA).lose(400, 7).delay(3).pieces(8).seed(5));
    const COUNT: u32 = 60;
    let mut arrived = Vec::new();
    recv(&mut b, 8);
    for number in 0..COUNT {
        a.endpoint.post(a.peer.send_empty().imm(number), Token(2)).unwrap();
        sent(&mut a);
        while let Some(event) = b.endpoint.poll() {
            let Event::Received(message) = event else { panic!("{event:?}") };
            arrived.push(message.imm.unwrap());
            recv(&mut b, 8);
        }
    }
    assert!(arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
    let lost = COUNT as usize - arrived.len();
    assert!((10..50).contains(&lost), "{lost}");
    let counters = a.ctx.provider().counters();
    assert_eq!((counters.retrans_pkts, counters.unresponsive_remote_events, counters.duplicates), (0, 0, 0));
    assert_eq!((counters.send_wrs, counters.wr_errors), (COUNT.into(), 0));
    let there = b.ctx.provider().counters();
    assert_eq!((there.rx_drops, there.duplicates), (0, 0), "who loses it on the wire is no device");
    assert_eq!(there.recv_wrs as usize, arrived.len());
}

#[test]
fn where_no_receive_is_to_be_found_a_datagram_is_dropped_at_once() {
    let (mut a, mut b) = pair_with(config(Profile::RDMA).force_rnr(1));
    recv(&mut b, 8);
    a.endpoint.post(a.peer.send_inline(b"lost"), Token(2)).unwrap();
    sent(&mut a);
    assert_idle(&mut b.endpoint);
    assert_eq!(dropped(&b), 1);
}

#[test]
fn a_datagram_is_no_answer_so_an_unplugged_peer_was_never_heard() {
    let (mut a, mut b) = pair();
    recv(&mut b, 8);
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(2)).unwrap();
    sent(&mut a);
    assert_eq!(received(&mut b).0.len, HEADER + 5);
    let mut srd = a.pd.endpoint(required::<_, Srd>(&a.ctx), DEPTH).unwrap();
    let to_b = srd.resolve_address(b.endpoint.address()).unwrap();
    b.ctx.provider().link(false);
    srd.post(to_b.one_way().send_empty(), Token(3)).unwrap();
    assert_eq!(wait_failed(&mut srd).status(), Some(CompletionStatus::LocalUnreachRemote));
}

#[test]
fn the_nth_datagram_can_be_made_to_fail_as_any_operation() {
    let (mut a, mut b) = pair_with(config(Profile::RDMA).fail_nth(2, CompletionStatus::LocalInvalidAh));
    for _ in 0..2 {
        recv(&mut b, 8);
        a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    }
    sent(&mut a);
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::LocalInvalidAh));
    assert!(matches!(wait(&mut b.endpoint), Event::Received(_)));
    assert_idle(&mut b.endpoint);
}

#[test]
fn a_peer_that_died_takes_no_datagram_and_nobody_is_told() {
    let (mut a, mut b) = pair();
    recv(&mut b, 8);
    b.ctx.provider().die();
    a.endpoint.post(a.peer.send_inline(b"lost"), Token(2)).unwrap();
    sent(&mut a);
    assert_eq!(dropped(&b), 1);
    let failure = wait_failed(&mut b.endpoint);
    assert!(failure.is_flush(), "{failure}");
}

#[test]
fn r23_an_unknown_senders_datagram_names_its_gid_and_a_table_finds_the_known() {
    let (mut a, mut b) = pair_with(config(Profile::RDMA).unknown_senders(1));
    let mut table = PeerTable::<2, Mutual, Datagram>::new();
    let (to_a, _) = b.endpoint.resolve(a.endpoint.hello().as_bytes()).unwrap();
    table.insert(to_a.assert_mutual()).unwrap();
    for sender in [
        Sender::Unknown { gid: Some(a.ctx.gid()), qpn: a.endpoint.qpn() },
        Sender::Known { ahn: b.peer.ahn(), qpn: a.endpoint.qpn() },
    ] {
        recv(&mut b, 8);
        a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
        let (message, _) = received(&mut b);
        assert_eq!(message.from, sender);
        let answer = table.find(&message.from).unwrap().send_empty();
        b.endpoint.post(answer, Token(3)).unwrap();
        sent(&mut b);
        sent(&mut a);
    }
    assert_eq!(dropped(&a), 2);
}

#[test]
fn r01_ud_goes_to_err_from_init_on_and_back() {
    let ctx = context(Profile::NONE);
    let pd = ctx.alloc_pd().unwrap();
    let made = || pd.create_qp(required::<_, Ud>(&ctx), DEPTH).unwrap().init(InitAttr::new(Qkey(1))).unwrap();
    let any: AnyQueuePair<SoftDevice, Ud> = made().error().unwrap().into();
    assert_eq!(any.state(), QpState::Err);
    let _ = any.into_err().unwrap().error().unwrap().reset().unwrap().prepare().unwrap();
    // And is shut down from there.
    let shutdown = made().shut_down(|| false, |event| panic!("{event:?}")).unwrap();
    assert_eq!(shutdown, Shutdown { completed: 0, reclaimed: 0 });
    let rts: Endpoint<_, Ud> = pd.endpoint(required(&ctx), DEPTH).unwrap();
    let rts = rts.drain().unwrap().drain().unwrap().resume().unwrap();
    let _ = rts.reset().unwrap().reset().unwrap().init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap().error().unwrap();
}

#[test]
fn shut_down_resolves_the_receives_of_a_ud_queue_pair_once() {
    let (_a, mut b) = pair();
    recv(&mut b, 8);
    recv(&mut b, 8);
    let mut flushed = 0;
    let shutdown = b.endpoint.shut_down(|| false, |event| flushed += u32::from(matches!(event, Event::Failed { .. })));
    assert_eq!((shutdown.unwrap(), flushed), (Shutdown { completed: 2, reclaimed: 0 }, 2));
}

#[test]
fn a_ud_queue_pair_whose_sends_were_stopped_receives_and_sends_again_after_rts() {
    let config = config(Profile::NONE).fail_nth(1, CompletionStatus::LocalInvalidAh).stop_sends(true);
    let (mut a, mut b) = pair_with(config);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::LocalInvalidAh));
    let sqe = a.endpoint.query().unwrap().into_sqe().unwrap();
    let mut again = sqe.resume().unwrap();
    recv(&mut b, 8);
    again.post(a.peer.send_empty(), Token(3)).unwrap();
    assert_eq!(received(&mut b).0.payload(), 40..40);
    assert!(matches!(wait(&mut again), Event::Sent(done) if done.token == Token(3)));
}

#[test]
fn ud_queue_pairs_share_a_completion_queue_as_srd_ones_do() {
    let ctx = context(Profile::NONE);
    let pd = ctx.alloc_pd().unwrap();
    let mut group: Group<_, Ud, 2> = pd.group(required(&ctx), 64).unwrap();
    let [a, b] = [(); 2].map(|()| group.endpoint(Depth::new(4, 4)).unwrap());
    let hello = group.queue_pair(b).unwrap().hello();
    let (to_b, _) = group.queue_pair(a).unwrap().resolve(hello.as_bytes()).unwrap();
    let refused = group.member(b).unwrap().post_recv(zeros(&pd, 39), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::BelowLimit { what: Limit::DatagramBytes, asked: 39, limit: 40 });
    group.member(b).unwrap().post_recv(zeros(&pd, 64), Token(1)).unwrap();
    group.member(a).unwrap().post(to_b.one_way().send_inline(b"hello"), Token(2)).unwrap();
    let mut events = std::iter::from_fn(|| (0..100).find_map(|_| group.poll()));
    let (first, second) = (events.next().unwrap(), events.next().unwrap());
    for (member, event) in [first, second] {
        match event {
            Event::Received(message) => assert_eq!((member, message.payload()), (b, 40..45)),
            Event::Sent(done) => assert_eq!((member, done.token), (a, Token(2))),
            event => panic!("{event:?}"),
        }
    }
}
