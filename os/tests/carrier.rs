//! Software devices that reach each other over sockets: in one process here, as between several.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use efa_core::connect::{Side, connect};
use efa_core::memory::Slice;
use efa_core::qp::{Depth, SendOnly};
use efa_core::soft::link::FRAME;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::wire::EndpointInfo;
use efa_core::work::Event;
use efa_core::{Context, Gid, ProtectionDomain, Qkey, Qpn, Token};
use efa_os::carrier::{Carrier, Fabric, Interest, Look};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(20);

/// A fabric that no other test is on.
fn fabric() -> Fabric {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    Fabric::new(&format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed)), process::id()).unwrap()
}

fn gid(n: u64) -> Gid {
    Gid::from_parts(0xFE80_0000_0000_0000, n)
}

fn config(n: u64) -> Config {
    Config::new(Profile::RDMA).gid(gid(n)).linked(1000 + n)
}

/// A host with one device, its n-th life.
fn host(fabric: &Fabric, n: u64, life: u64) -> (SoftDevice, Carrier) {
    let claim = fabric.claim(gid(n)).unwrap();
    let device = SoftDevice::new(config(n).linked(1000 * life + n));
    let carrier = Carrier::new(&device, vec![claim]);
    (device, carrier)
}

fn pair(a: &SoftDevice, b: &SoftDevice) -> [Side<SoftDevice>; 2] {
    connect([a, b].map(|device| Context::open(device.clone())), Depth::new(128, 128)).unwrap()
}

fn zeros(pd: &ProtectionDomain<SoftDevice>, len: usize) -> Slice {
    pd.register(vec![0; len]).unwrap().1
}

/// Passes of all carriers until there is what is looked for.
#[track_caller]
fn until<T>(carriers: &mut [&mut Carrier], mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        for carrier in &mut *carriers {
            carrier.pass(Look::Everywhere);
        }
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing came: {carriers:?}");
    }
}

fn status(event: Event) -> (u64, u8) {
    match event {
        Event::Failed { failure, .. } => (failure.token.unwrap().0, failure.status().unwrap().number()),
        event => panic!("{event:?} is no failure"),
    }
}

/// A message from one to the other, and its two completions.
#[track_caller]
fn exchange(carriers: &mut [&mut Carrier], a: &mut Side<SoftDevice>, b: &mut Side<SoftDevice>) {
    b.endpoint.post_recv(zeros(&b.pd, 64), Token(71)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(72)).unwrap();
    let (mut sent, mut received) = (false, false);
    until(carriers, || {
        match a.endpoint.poll() {
            Some(Event::Sent(done)) => sent = done.token == Token(72),
            None => {}
            event => panic!("{event:?}"),
        }
        match b.endpoint.poll() {
            Some(Event::Received(mut message)) => {
                assert_eq!(&message.buffers.take_slice().unwrap()[..message.len], b"hello");
                received = true;
            }
            None => {}
            event => panic!("{event:?}"),
        }
        (sent && received).then_some(())
    });
}

#[test]
fn messages_go_both_ways_and_nothing_is_due_afterwards() {
    let fabric = fabric();
    let ((one, mut first), (two, mut second)) = (host(&fabric, 1, 1), host(&fabric, 2, 1));
    assert!(!first.pass(Look::Everywhere) && first.wakes_in().is_none());
    let [mut a, mut b] = pair(&one, &two);
    for _ in 0..100 {
        exchange(&mut [&mut first, &mut second], &mut a, &mut b);
        exchange(&mut [&mut first, &mut second], &mut b, &mut a);
    }
    while first.pass(Look::Everywhere) | second.pass(Look::Everywhere) {}
    for carrier in [&first, &second] {
        assert_eq!(carrier.wakes_in(), None);
        let counts = carrier.counts();
        assert!(counts.sent >= 200 && counts.received >= 200, "{counts:?}");
        assert_eq!((counts.refused, counts.held, counts.lost, counts.unreachable), (0, 0, 0, 0));
        assert_eq!(carrier.sockets().map(|(_, interest)| interest).collect::<Vec<_>>(), [Interest::Frames]);
    }
}

#[test]
fn a_wire_with_two_devices_is_reached_at_both_addresses() {
    let fabric = fabric();
    let claims = [1, 2].map(|n| fabric.claim(gid(n)).unwrap()).into();
    let one = SoftDevice::new(config(1));
    let two = one.neighbour().unwrap();
    let mut first = Carrier::new(&one, claims);
    let (three, mut second) = host(&fabric, 3, 1);
    for device in [&one, &two] {
        let [mut a, mut b] = pair(device, &three);
        exchange(&mut [&mut first, &mut second], &mut a, &mut b);
        exchange(&mut [&mut first, &mut second], &mut b, &mut a);
    }
    let [mut a, mut b] = pair(&one, &two);
    let before = first.counts().sent;
    exchange(&mut [&mut first], &mut a, &mut b);
    assert_eq!(first.counts().sent, before, "neighbours need no carrier");
}

#[test]
fn an_address_is_one_process_s_alone_and_free_once_that_is_gone() {
    let fabric = fabric();
    let (_device, carrier) = host(&fabric, 1, 1);
    let error = fabric.claim(gid(1)).unwrap_err();
    assert!(error.is_taken());
    let text = error.to_string();
    assert!(text.contains("fe80::1") && text.contains(fabric.name()) && text.contains("claim another"), "{text}");
    // On another fabric, or another user's, it is free.
    Fabric::new("test-other", process::id()).unwrap().claim(gid(1)).unwrap();
    Fabric::new(fabric.name(), process::id() + 1).unwrap().claim(gid(1)).unwrap();
    drop(carrier);
    fabric.claim(gid(1)).unwrap();
}

#[test]
fn a_name_that_cannot_be_a_fabrics_is_an_error_that_says_which_can() {
    let long = "x".repeat(33);
    for name in ["", "a b", "a/b", "ä", "\0", &long] {
        let text = Fabric::new(name, 0).unwrap_err().to_string();
        assert!(text.contains("1 to 32 letters"), "{text}");
    }
    Fabric::new(&long[1..], u32::MAX).unwrap().claim(gid(1)).unwrap();
}

#[test]
fn who_is_not_there_answers_15_and_who_is_gone_13_at_once_and_who_comes_back_is_reached() {
    let fabric = fabric();
    let (one, mut first) = host(&fabric, 1, 1);
    let nobody = SoftDevice::new(config(2));
    let [mut a, _b] = pair(&one, &nobody);
    let begun = Instant::now();
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(until(&mut [&mut first], || a.endpoint.poll().map(status)), (1, 15));
    let (two, mut second) = host(&fabric, 2, 2);
    let [mut a, mut b] = pair(&one, &two);
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
    // Without a word, in the middle of something.
    for token in 0..100 {
        a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
    }
    first.pass(Look::Frames);
    drop((second, b, two));
    for _ in 0..100 {
        assert_eq!(until(&mut [&mut first], || a.endpoint.poll().map(status)).1, 13);
    }
    let (two, mut second) = host(&fabric, 2, 3);
    drop(a);
    let [mut a, mut b] = pair(&one, &two);
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
    exchange(&mut [&mut first, &mut second], &mut b, &mut a);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(first.counts().unreachable >= 2, "{:?}", first.counts());
}

#[test]
fn who_takes_no_frames_gets_all_of_them_later_once_and_holds_up_nobody() {
    let fabric = fabric();
    let (one, mut first) = host(&fabric, 1, 1);
    let ((two, mut second), (three, mut third)) = (host(&fabric, 2, 1), host(&fabric, 3, 1));
    let [mut a, mut b] = pair(&one, &two);
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
    let [mut c, mut d] = pair(&one, &three);
    const COUNT: u64 = 100;
    for token in 0..COUNT {
        b.endpoint.post_recv(zeros(&b.pd, 8000), Token(token)).unwrap();
        a.endpoint.post(a.peer.send(zeros(&a.pd, 8000)).imm(token as u32), Token(token)).unwrap();
    }
    // The second one takes nothing now.
    for _ in 0..1000 {
        one.turn();
        first.pass(Look::Frames);
    }
    let held = first.counts().held;
    assert!(held >= 1, "{:?}", first.counts());
    // It does not ask to be called all the time, and waits for room.
    first.pass(Look::Frames);
    let wakes = first.wakes_in().unwrap();
    assert!(wakes <= Duration::from_millis(320), "{wakes:?}");
    assert!(first.sockets().any(|(_, interest)| interest == Interest::Room));
    exchange(&mut [&mut first, &mut third], &mut c, &mut d);
    assert_eq!(first.counts().held, held, "one frame is kept, and no more");
    let mut arrived = Vec::new();
    let mut sent = 0;
    until(&mut [&mut first, &mut second], || {
        while let Some(event) = b.endpoint.poll() {
            let Event::Received(message) = event else { panic!("{event:?}") };
            arrived.push(message.imm.unwrap());
        }
        while let Some(event) = a.endpoint.poll() {
            assert!(matches!(event, Event::Sent(_)), "{event:?}");
            sent += 1;
        }
        (sent == COUNT && arrived.len() as u64 == COUNT).then_some(())
    });
    arrived.sort();
    assert!(arrived.into_iter().eq(0..COUNT as u32));
    assert_eq!(first.counts().lost, 0);
}

#[test]
fn who_takes_none_for_a_second_costs_a_system_call_now_and_then_and_is_reached_again() {
    let fabric = fabric();
    let ((one, mut first), (two, mut second)) = (host(&fabric, 1, 1), host(&fabric, 2, 1));
    let [mut a, mut b] = pair(&one, &two);
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
    for token in 0..64 {
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
    }
    let begun = Instant::now();
    let mut passes = 0;
    while begun.elapsed() < Duration::from_millis(1500) {
        one.turn();
        first.pass(Look::Frames);
        passes += 1;
        std::thread::sleep(first.wakes_in().unwrap().min(Duration::from_millis(20)));
    }
    let counts = first.counts();
    assert!(passes < 1000, "{passes}");
    assert!(counts.lost > 0 && counts.held >= 1, "{counts:?}");
    let mut sent = 0;
    until(&mut [&mut first, &mut second], || {
        while let Some(event) = a.endpoint.poll() {
            assert!(matches!(event, Event::Sent(_)), "{event:?}");
            sent += 1;
        }
        (sent == 64).then_some(())
    });
    let received = std::iter::from_fn(|| b.endpoint.poll()).filter(|event| matches!(event, Event::Received(_)));
    assert_eq!(received.count(), 64);
}

#[test]
fn a_pair_goes_on_while_more_strangers_that_take_nothing_are_sent_to_than_a_carrier_keeps() {
    // It keeps 256.
    const STRANGERS: u64 = 300;
    let fabric = fabric();
    let ((one, mut first), (two, mut second)) = (host(&fabric, 1, 1), host(&fabric, 2, 1));
    let [mut a, mut b] = pair(&one, &two);
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
    // Each has an address, and a socket that has no room.
    let strangers: Vec<_> = (0..STRANGERS)
        .map(|nth| {
            let claim = fabric.claim(gid(100 + nth)).unwrap();
            let Gid(bytes) = claim.gid();
            let name = format!("efa-soft/{}/{}/{:032x}", process::id(), fabric.name(), u128::from_be_bytes(bytes));
            let address = SocketAddr::from_abstract_name(name).unwrap();
            // A socket each: what it sent and nobody took counts against the sender, too.
            let junk = UnixDatagram::unbound().unwrap();
            junk.set_nonblocking(true).unwrap();
            while junk.send_to_addr(b"junk", &address).is_ok() {}
            claim
        })
        .collect();
    for some in strangers.chunks(16) {
        // Its end is theirs, for the link, which waits for no more than 256: their frames are the carrier's then.
        let mut sender = a.pd.endpoint(a.ctx.require::<SendOnly>().unwrap(), Depth::new(16, 1)).unwrap();
        let sent_to: Vec<_> = some
            .iter()
            .map(|claim| {
                let address = EndpointInfo { gid: claim.gid(), qpn: Qpn(1), qkey: Qkey(1) };
                let to = sender.resolve_address(address).unwrap().assert_mutual();
                sender.post(to.send_empty(), Token(1)).unwrap();
                to
            })
            .collect();
        exchange(&mut [&mut first, &mut second], &mut a, &mut b);
        exchange(&mut [&mut first, &mut second], &mut b, &mut a);
        assert!(sender.poll().is_none());
        drop((sender, sent_to));
    }
    let counts = first.counts();
    assert!(counts.held >= STRANGERS && counts.unreachable == 0, "{counts:?}");
    let waiting = first.sockets().filter(|(_, interest)| *interest == Interest::Room).count();
    assert!((250..=256).contains(&waiting), "{waiting} are waited for");
    let begun = Instant::now();
    for _ in 0..16 {
        exchange(&mut [&mut first, &mut second], &mut a, &mut b);
        exchange(&mut [&mut first, &mut second], &mut b, &mut a);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    println!("figure: a pair beside {STRANGERS} strangers that take nothing: {:?}", first.counts());
}

#[test]
fn what_a_stranger_sends_is_refused_and_counted() {
    let fabric = Fabric::new("strangers", process::id()).unwrap();
    let ((one, mut first), (two, mut second)) = (host(&fabric, 1, 1), host(&fabric, 2, 1));
    let [mut a, mut b] = pair(&one, &two);
    let name = format!("efa-soft/{}/strangers/fe800000000000000000000000000001", process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let stranger = UnixDatagram::unbound().unwrap();
    let mut frame = [0; FRAME + 100];
    frame[..6].copy_from_slice(b"EFAL\x01\x04");
    let frames: [&[u8]; 6] = [b"", b"?", b"EFAL", &frame[..56], &frame[..FRAME + 1], &frame];
    for frame in frames {
        stranger.send_to_addr(frame, &address).unwrap();
    }
    assert!(first.pass(Look::Frames));
    assert_eq!((first.counts().refused, first.counts().received), (6, 0));
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
    exchange(&mut [&mut first, &mut second], &mut b, &mut a);
    // More of them than a pass takes.
    stranger.set_nonblocking(true).unwrap();
    let mut flood = 0;
    until(&mut [&mut first, &mut second], || {
        while stranger.send_to_addr(b"EFAL", &address).is_ok() {
            flood += 1;
        }
        (flood > 1000).then_some(())
    });
    exchange(&mut [&mut first, &mut second], &mut a, &mut b);
}
