//! The device as it is, by the calls that all fabrics have.

use efa_core::connect::{Side, connect_of};
use efa_core::fabric::{EfaDirect, Event, Fabric, Messages, PeerId, Returned, Why};
use efa_core::memory::Slice;
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::status::CompletionStatus;
use efa_core::{Context, Refused, Token};

type Told = Event<Slice, Slice>;
type Direct = EfaDirect<SoftDevice, Srd>;

/// What is written against any fabric.
fn exchange<F: Messages<Source = Slice, Target = Slice>>(
    [from, to]: [&mut F; 2],
    peer: PeerId,
    [source, target]: [Slice; 2],
) -> Result<Vec<Told>, Refused<Slice, Why>> {
    to.recv(target, Token(1))?;
    from.send(peer, source, Token(2))?;
    Ok((0..1000).flat_map(|now| [from.poll(now), to.poll(now)]).flatten().collect())
}

fn sides(config: Config) -> [Side<SoftDevice>; 2] {
    let device = SoftDevice::new(config.shuffle(false));
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
    connect_of::<_, Srd>(contexts, Depth::new(8, 8)).unwrap()
}

fn slice(side: &Side<SoftDevice>, len: usize) -> Slice {
    side.pd.register(vec![7; len]).unwrap().1
}

#[test]
fn a_message_of_the_longest_goes_and_each_event_says_what_it_is_of() {
    let [a, b] = sides(Config::new(Profile::RDMA));
    let buffers = [slice(&a, 8928), slice(&b, 9000)];
    let (mut from, mut to): (Direct, Direct) = (EfaDirect::new(a.endpoint), EfaDirect::new(b.endpoint));
    let (peer, back) = (from.add(a.peer).unwrap(), to.add(b.peer).unwrap());
    assert_eq!(Messages::fabric(&from), Fabric::EfaDirect);
    let events = exchange([&mut from, &mut to], peer, buffers).unwrap();
    let sent = |event: &Told| matches!(event, Event::Sent { token: Token(2), source, .. } if source.len() == 8928);
    let received =
        |event: &Told| matches!(event, Event::Received { token: Token(1), from, len: 8928, .. } if *from == Some(back));
    assert!(events.len() == 2 && events.iter().any(sent) && events.iter().any(received), "{events:?}");
}

#[test]
fn what_fails_comes_back_as_the_source_or_the_target_that_it_was() {
    let [a, b] = sides(Config::new(Profile::RDMA).fail_nth(1, CompletionStatus::RemoteAbort));
    let buffers = [slice(&a, 10), slice(&b, 10)];
    let (mut from, mut to): (Direct, Direct) = (EfaDirect::new(a.endpoint), EfaDirect::new(b.endpoint));
    let peer = from.add(a.peer).unwrap();
    to.add(b.peer).unwrap();
    let events = exchange([&mut from, &mut to], peer, buffers).unwrap();
    let returned = |event: &Told| match event {
        Event::Failed { token, why: Why::Device(_), buffer, .. } => {
            Some((token.0, matches!(buffer, Returned::Source(_)), matches!(buffer, Returned::Target(_))))
        }
        _ => None,
    };
    assert_eq!(events.iter().filter_map(returned).collect::<Vec<_>>(), [(2, true, false)], "{events:?}");
    // A receive that is too short.
    let [a, b] = sides(Config::new(Profile::RDMA));
    let buffers = [slice(&a, 10), slice(&b, 9)];
    let (mut from, mut to): (Direct, Direct) = (EfaDirect::new(a.endpoint), EfaDirect::new(b.endpoint));
    let peer = from.add(a.peer).unwrap();
    to.add(b.peer).unwrap();
    let mut events: Vec<_> =
        exchange([&mut from, &mut to], peer, buffers).unwrap().iter().filter_map(returned).collect();
    events.sort_unstable();
    assert_eq!(events, [(1, false, true), (2, true, false)]);
}

#[test]
fn r23_a_sender_whom_the_device_does_not_know_yet_is_found_by_its_address() {
    let [a, b] = sides(Config::new(Profile::RDMA).unknown_senders(1));
    let (mut from, mut to): (Direct, Direct) = (EfaDirect::new(a.endpoint), EfaDirect::new(b.endpoint));
    let (peer, back) = (from.add(a.peer).unwrap(), to.add(b.peer).unwrap());
    for _ in 0..2 {
        let buffers = [a.pd.register(vec![7; 10]).unwrap().1, b.pd.register(vec![7; 10]).unwrap().1];
        let events = exchange([&mut from, &mut to], peer, buffers).unwrap();
        let received = |event: &Told| matches!(event, Event::Received { from, .. } if *from == Some(back));
        assert!(events.iter().any(received), "{events:?}");
    }
}
