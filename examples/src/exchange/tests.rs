use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use efa_core::memory::{PageSize, Pages, RemoteWrite};
use efa_core::qp::{Depth, SendOnly, Srd};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Context, ProtectionDomain};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(120);

/// Both ends of a connection.
fn channel() -> [Tcp; 2] {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let there = Tcp::connect(&listener.address().to_string(), TIMEOUT).unwrap();
    [listener.accept(TIMEOUT).unwrap(), there]
}

/// The other end is none of ours.
fn stranger(timeout: Duration) -> (Tcp, TcpStream) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.address()).unwrap();
    (listener.accept(timeout).unwrap(), stream)
}

fn endpoint(ctx: &Context<SoftDevice>) -> (ProtectionDomain<SoftDevice>, Endpoint<SoftDevice, Srd>) {
    let pd = ctx.alloc_pd().unwrap();
    let endpoint = pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
    (pd, endpoint)
}

#[test]
fn two_sides_are_introduced_and_swap_grants() {
    let device = SoftDevice::new(Profile::RDMA);
    let [here, there] = channel();
    let side = |device, mut channel: Tcp| {
        let ctx = Context::open(device);
        let (pd, endpoint) = endpoint(&ctx);
        let memory = pd.expose(Pages::new(4096, PageSize::Base).unwrap(), ctx.require::<RemoteWrite>().unwrap());
        let peer = introduce(&endpoint, &mut channel).unwrap();
        let window = swap_grants(&endpoint, &peer, &memory.unwrap(), &mut channel).unwrap();
        send_text(&mut channel, "über").unwrap();
        assert_eq!(recv_text(&mut channel).unwrap(), "über");
        window.len()
    };
    let neighbour = device.neighbour().unwrap();
    let other = thread::spawn(move || side(neighbour, there));
    assert_eq!(side(device, here), 4096);
    assert_eq!(other.join().unwrap(), 4096);
}

#[test]
fn endpoints_that_do_not_match_say_how_on_both_sides() {
    let ctx = Context::open(SoftDevice::new(Profile::UNSOLICITED));
    let pd = ctx.alloc_pd().unwrap();
    type Unsolicited = Srd<{ efa_core::qp::ops::ALL }, efa_core::qp::Unsolicited>;
    let depth = Depth::new(8, 8).unsolicited(8);
    let one = pd.endpoint(ctx.require::<Unsolicited>().unwrap(), depth).unwrap();
    let two = pd.endpoint(ctx.require::<SendOnly>().unwrap(), Depth::new(8, 8)).unwrap();
    let [mut here, mut there] = channel();
    let other = thread::spawn(move || introduce(&two, &mut there).unwrap_err().to_string());
    for error in [introduce(&one, &mut here).unwrap_err().to_string(), other.join().unwrap()] {
        assert!(error.contains("R05"), "{error}");
    }
}

#[test]
fn who_sends_something_else_is_told_apart_from_who_goes_away_and_from_who_is_silent() {
    let (_pd, endpoint) = endpoint(&Context::open(SoftDevice::new(Profile::RDMA)));
    let (mut channel, mut stream) = stranger(TIMEOUT);
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nHost: some.where.else\r\nAccept: */*\r\n\r\n..........")
        .unwrap();
    let error = introduce(&endpoint, &mut channel).unwrap_err();
    assert!(matches!(error, ExchangeError::Refused(_)), "{error}");

    let (mut channel, mut stream) = stranger(TIMEOUT);
    std::io::Write::write_all(&mut stream, b"half").unwrap();
    drop(stream);
    let error = introduce(&endpoint, &mut channel).unwrap_err();
    assert!(matches!(error, ExchangeError::Closed { got: 4, wanted: HelloFrame::LEN }), "{error}");

    let (mut channel, _stream) = stranger(SHORT);
    let begun = Instant::now();
    let error = introduce(&endpoint, &mut channel).unwrap_err();
    assert!(matches!(error, ExchangeError::Silent { got: 0, wanted: HelloFrame::LEN, .. }), "{error}");
    assert!(begun.elapsed() >= SHORT);
}

#[test]
fn who_sends_a_byte_now_and_then_does_not_hold_a_side_up_for_longer() {
    let (mut channel, mut stream) = stranger(SHORT);
    let slow = thread::spawn(move || {
        while std::io::Write::write_all(&mut stream, b"x").is_ok() {
            thread::sleep(SHORT / 8);
        }
    });
    let begun = Instant::now();
    let error = channel.recv(&mut [0; 1000]).unwrap_err();
    assert!(matches!(error, ExchangeError::Silent { got: 1.., wanted: 1000, .. }), "{error}");
    assert!(begun.elapsed() < TIMEOUT);
    drop(channel);
    slow.join().unwrap();
}

#[test]
fn a_text_longer_than_any_is_not_waited_for() {
    let (mut channel, mut stream) = stranger(TIMEOUT);
    std::io::Write::write_all(&mut stream, &u32::MAX.to_le_bytes()).unwrap();
    let error = recv_text(&mut channel).unwrap_err();
    assert!(matches!(error, ExchangeError::TooLong { bytes: u32::MAX, .. }), "{error}");
}

#[test]
fn a_text_of_the_other_sides_moves_no_terminals_cursor() {
    let (mut channel, mut stream) = stranger(TIMEOUT);
    let text = "no\x1b[2J\nerror: \u{9b}31mred, and größer";
    std::io::Write::write_all(&mut stream, &(text.len() as u32).to_le_bytes()).unwrap();
    std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
    let said = recv_text(&mut channel).unwrap();
    assert_eq!(said, "no\u{FFFD}[2J\u{FFFD}error: \u{FFFD}31mred, and größer");
}

#[test]
fn who_connects_first_waits_for_who_listens_and_not_for_ever() {
    let address = Listener::bind("127.0.0.1:0").unwrap().address().to_string();
    let error = Tcp::connect(&address, SHORT).unwrap_err();
    assert!(matches!(error, ExchangeError::NobodyThere { .. }) && error.to_string().contains(&address), "{error}");

    let early = thread::spawn({
        let address = address.clone();
        move || Tcp::connect(&address, TIMEOUT).map(drop)
    });
    thread::sleep(SHORT);
    let listener = Listener::bind(&address).unwrap();
    listener.accept(TIMEOUT).unwrap();
    early.join().unwrap().unwrap();

    let error = listener.accept(SHORT).unwrap_err();
    assert!(matches!(error, ExchangeError::NobodyCame { .. }) && error.to_string().contains(&address), "{error}");
}

#[test]
fn what_is_no_address_is_told_with_an_example_of_one() {
    for address in ["", "somewhere", "127.0.0.1:port"] {
        let error = Tcp::connect(address, SHORT).unwrap_err().to_string();
        assert!(error.contains("node1:18515"), "{error}");
    }
    let error = Listener::bind("203.0.113.7:1").unwrap_err();
    assert!(matches!(error, ExchangeError::Listen { .. }), "{error}");
}

#[test]
fn news_are_what_was_said_or_that_the_other_side_has_gone() {
    let [here, mut there] = channel();
    assert!(!here.has_news());
    there.send(b"x").unwrap();
    while !here.has_news() {
        thread::yield_now();
    }
    let [here, there] = channel();
    drop(there);
    while !here.has_news() {
        thread::yield_now();
    }
}
