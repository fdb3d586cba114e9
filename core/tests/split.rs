//! RDMA in parts: any length, any order of completion, one end.

mod common;

use common::{LIMITS, config, required, slice, wait, zeros};
use efa_core::flow::{Split, Step};
use efa_core::memory::{Exposed, PageSize, Pages, RemoteReadWrite, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::qp::Depth;
use efa_core::soft::{Config, Profile, Side, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::{Cause, Event};
use efa_core::{Error, Limits, Token};

const FIRST: Token = Token(1 << 40);

struct Stage {
    a: Side,
    _b: Side,
    exposed: Option<Exposed<Pages, RemoteReadWrite>>,
    window: RemoteWindow<RemoteReadWrite>,
}

fn stage(config: Config, depth: u32) -> Stage {
    let (a, b): (Side, Side) = pair_of(config, Depth::new(depth, 4)).unwrap();
    let exposed = b.pd.expose(Pages::new(4096, PageSize::Base).unwrap(), required(&b.ctx)).unwrap();
    let window = a.peer.window(exposed.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    Stage { a, _b: b, exposed: Some(exposed), window }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Writes all of a slice and reads it back, both in parts; gives the slice.
fn there_and_back<const N: usize>(stage: &mut Stage, source: Slice, chunk: usize) -> Slice {
    let len = source.len();
    let Stage { a, window, .. } = stage;
    let mut write = Split::<_, N>::new(source, *window, chunk, FIRST).unwrap();
    let parts = write.parts();
    let mut posted = 0;
    let source = loop {
        posted += write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap();
        match write.step(wait(&mut a.endpoint)) {
            Step::Done { slice, failed } => {
                assert_eq!((failed, posted as u64), (None, parts));
                break slice;
            }
            Step::More => {}
            Step::Other(event) => panic!("{event:?}"),
        }
    };
    let mut read =
        Split::<_, N>::new(zeros(&a.pd, len.max(1)).split_at(len).unwrap().0, *window, chunk, FIRST).unwrap();
    loop {
        read.post(&mut a.endpoint, |part, window| a.peer.read(part, window)).unwrap();
        if let Step::Done { slice, failed: None } = read.step(wait(&mut a.endpoint)) {
            assert!(slice[..] == source[..], "{len} bytes by {chunk}");
            break source;
        }
    }
}

#[test]
fn h13_any_length_goes_in_parts_that_complete_in_any_order_and_ends_once_with_the_slice_whole() {
    for (seed, (len, chunk)) in
        [(1, 1), (0, 5), (4096, 512), (4095, 512), (513, 512), (512, 512), (511, 512), (1000, 7)]
            .into_iter()
            .enumerate()
    {
        if cfg!(miri) && chunk == 7 {
            continue;
        }
        let config = config(Profile::RDMA).shuffle(true).seed(seed as u64);
        let mut stage = stage(config, 4);
        let (_, whole) = slice(&stage.a.pd, &content(len.max(1)));
        let (part, rest) = whole.split_at(len).unwrap();
        let back = there_and_back::<8>(&mut stage, part, chunk);
        assert!(back[..] == content(len.max(1))[..len]);
        // It is the very slice: it rejoins what it was cut from.
        let back = back.unsplit(rest).unwrap();
        let back = there_and_back::<1>(&mut stage, back, chunk.max(100));
        assert!(back[..] == content(len.max(1))[..]);
    }
}

#[test]
fn h13_a_length_beyond_what_the_device_takes_at_once_goes_in_parts_of_what_it_takes() {
    let limits = Limits { max_rdma_size: 1000, ..LIMITS };
    let mut stage = stage(config(Profile::RDMA).limits(limits), 8);
    let (_, whole) = slice(&stage.a.pd, &content(4096));
    let Stage { a, window, .. } = &mut stage;
    let refused = a.endpoint.post(a.peer.write(whole, *window), Token(1)).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { asked: 4096, limit: 1000, .. }));

    // A chunk that the device does not take is refused at the post, and everything can be had back.
    let mut write = Split::<_, 4>::new(refused.into_inner(), *window, 1001, FIRST).unwrap();
    let error = write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap_err();
    assert!(matches!(error, Error::AboveLimit { asked: 1001, limit: 1000, .. }));
    let whole = write.into_slice().unwrap();
    assert_eq!(whole.len(), 4096);
    let chunk = a.endpoint.max_rdma_size() as usize;
    assert_eq!(there_and_back::<2>(&mut stage, whole, chunk).len(), 4096);
}

#[test]
fn a_part_that_fails_is_named_no_more_are_posted_and_the_slice_comes_back_whole() {
    let mut stage = stage(config(Profile::RDMA), 8);
    let (_, whole) = slice(&stage.a.pd, &content(4096));
    let Stage { a, window, exposed, .. } = &mut stage;
    let mut write = Split::<_, 2>::new(whole, *window, 512, FIRST).unwrap();
    let mut ended = 0;
    let (slice, failed) = loop {
        write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap();
        match write.step(wait(&mut a.endpoint)) {
            Step::Done { slice, failed } => break (slice, failed.unwrap()),
            Step::More => ended += 1,
            Step::Other(event) => panic!("{event:?}"),
        }
        if ended == 2 {
            exposed.take().unwrap().revoke().unwrap();
        }
    };
    assert_eq!(failed.failure.unwrap().cause, Cause::Status(CompletionStatus::RemoteBadAddress));
    assert_eq!(failed.offset, failed.index * 512);
    assert!((2..6).contains(&failed.index), "{failed:?}");
    assert!(slice[..] == content(4096)[..]);
    assert_eq!((a.endpoint.in_flight(), write.into_slice().is_err()), (0, true));
}

#[test]
fn other_operations_go_on_beside_it_and_their_events_come_through() {
    let mut stage = stage(config(Profile::RDMA), 2);
    let (_, whole) = slice(&stage.a.pd, &content(2048));
    let own = zeros(&stage.a.pd, 8);
    let Stage { a, window, .. } = &mut stage;
    let mut write = Split::<_, 8>::new(whole, *window, 512, FIRST).unwrap();
    a.endpoint.post(a.peer.read(own, *window), Token(7)).unwrap();
    let mut others = 0;
    loop {
        write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap();
        match write.step(wait(&mut a.endpoint)) {
            Step::Other(Event::Read(done)) => {
                assert_eq!(done.token, Token(7));
                others += 1;
            }
            Step::Done { failed: None, .. } => break,
            step => assert!(matches!(step, Step::More), "{step:?}"),
        }
    }
    assert_eq!(others, 1);
}

#[test]
fn what_a_shut_down_reclaims_is_no_success_and_an_event_with_a_parts_token_is_no_part() {
    let mut stage = stage(config(Profile::RDMA), 8);
    let (_, whole) = slice(&stage.a.pd, &content(2048));
    let Stage { a, window, .. } = &mut stage;
    let mut write = Split::<_, 4>::new(whole, *window, 1024, FIRST).unwrap();
    assert_eq!(write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap(), 2);
    // Another operation with the token of the second part.
    a.endpoint.post(a.peer.send_empty(), Token(FIRST.0 + 1)).unwrap();
    let Side { endpoint, .. } = stage.a;
    let (mut ends, mut others) = (Vec::new(), 0);
    endpoint
        .shut_down(
            || true,
            |event| {
                // As if the device had not completed it.
                let event = match event {
                    Event::Failed { failure, buffers } if !buffers.is_empty() => {
                        Event::Reclaimed { token: failure.token.unwrap(), buffers }
                    }
                    event => event,
                };
                match write.step(event) {
                    Step::Done { slice, failed } => ends.push((slice.len(), failed.unwrap())),
                    Step::Other(_) => others += 1,
                    Step::More => {}
                }
            },
        )
        .unwrap();
    assert_eq!((ends.len(), others), (1, 1));
    let (len, failed) = ends[0];
    assert_eq!((len, failed.failure, failed.offset), (2048, None, failed.index * 1024));
}

#[test]
fn parts_on_a_queue_pair_that_failed_are_refused_rather_than_kept_waiting_for_room() {
    let mut stage = stage(config(Profile::RDMA).fail_nth(1, CompletionStatus::LocalQpInternalError), 4);
    let Stage { a, window, .. } = &mut stage;
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Failed { .. }));
    let mut write = Split::<_, 2>::new(zeros(&a.pd, 100), *window, 10, FIRST).unwrap();
    let refused = write.post(&mut a.endpoint, |part, window| a.peer.write(part, window));
    assert_eq!(refused.unwrap_err(), Error::QueueFailed);
    assert_eq!(write.into_slice().unwrap().len(), 100);
}

#[test]
fn parts_in_flight_on_a_queue_pair_that_failed_end_before_the_rest_is_refused() {
    let mut stage = stage(config(Profile::RDMA).fail_nth(1, CompletionStatus::LocalQpInternalError), 4);
    let Stage { a, window, .. } = &mut stage;
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    let mut write = Split::<_, 4>::new(zeros(&a.pd, 100), *window, 10, FIRST).unwrap();
    // In flight behind what fails the queue.
    assert_eq!(write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap(), 3);
    assert!(matches!(wait(&mut a.endpoint), Event::Failed { .. }));
    assert_eq!(write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)), Ok(0));
    let refused = write.into_slice().unwrap_err();
    assert_eq!(refused.error(), Error::InFlight { operations: 3 });
}

#[test]
fn an_event_with_a_parts_token_and_two_buffers_is_no_part() {
    let mut stage = stage(config(Profile::RDMA), 8);
    let Stage { a, window, .. } = &mut stage;
    let mut write = Split::<_, 2>::new(zeros(&a.pd, 20), *window, 10, FIRST).unwrap();
    assert_eq!(write.post(&mut a.endpoint, |part, window| a.peer.write(part, window)).unwrap(), 2);
    let Event::Written(first) = wait(&mut a.endpoint) else { panic!() };
    let Event::Written(second) = wait(&mut a.endpoint) else { panic!() };
    let mut batch = a.endpoint.batch();
    batch.push(a.peer.send([zeros(&a.pd, 1), zeros(&a.pd, 1)]), Token(9)).unwrap();
    let mut two = None;
    batch.abort(|_, buffers| two = Some(buffers));
    let event = Event::Reclaimed { token: second.token, buffers: two.unwrap() };
    let Step::Other(Event::Reclaimed { buffers, .. }) = write.step(event) else { panic!() };
    assert_eq!(buffers.len(), 2);
    assert!(matches!(write.step(Event::Written(first)), Step::More));
    let Step::Done { slice, failed: None } = write.step(Event::Written(second)) else { panic!() };
    assert_eq!(slice.len(), 20);
}

#[test]
fn what_cannot_be_split_is_refused_with_the_slice() {
    let stage = stage(config(Profile::RDMA), 2);
    let (_, whole) = slice(&stage.a.pd, &content(5000));
    let refused = Split::<_, 2>::new(whole, stage.window, 512, FIRST).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 0, len: 5000, within: 4096 });
    let whole = refused.into_inner().split_at(100).unwrap().0;
    let refused = Split::<_, 2>::new(whole, stage.window, 0, FIRST).unwrap_err();
    assert!(matches!(refused.error(), Error::BelowLimit { asked: 0, limit: 1, .. }));
    let refused = Split::<_, 2>::new(refused.into_inner(), stage.window, 1, Token(u64::MAX - 50)).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { asked: 100, limit: 50, .. }));
    assert_eq!(refused.into_inner().len(), 100);
}
