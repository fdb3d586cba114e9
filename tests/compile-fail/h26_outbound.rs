//! H26: what a kernel may not have written yet is not posted, nor what is launched upon again.

use efa_core::Token;
use efa_core::memory::{ExposedPart, Opaque};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Endpoint, Srd};
use efa_core::work::Event;
use efa_cuda::{Outbound, Primary, Stream, Unsynced};

fn posted_unsynced(a: &mut Endpoint<efa_os::Device, Srd>, to_b: &Peer<Mutual>, memory: Outbound<Unsynced>) {
    a.post(to_b.send(memory.into_slice()), Token(1)).unwrap();
}

fn posted_as_it_is(a: &mut Endpoint<efa_os::Device, Srd>, to_b: &Peer<Mutual>, memory: Outbound<Unsynced>) {
    a.post(to_b.send(memory), Token(1)).unwrap();
}

fn received_into(a: &mut Endpoint<efa_os::Device, Srd>, memory: Outbound<Unsynced>) {
    a.post_recv(memory.into_slice(), Token(1)).unwrap();
}

fn launched_meanwhile(memory: Outbound<Unsynced>, stream: &mut Stream, launch: fn(usize)) {
    let ready = memory.synchronize(stream).unwrap();
    launch(stream.raw());
    ready.into_slice();
}

fn launched_before_the_event_came(memory: Outbound<Unsynced>, stream: &mut Stream, launch: fn(usize)) {
    let recorded = memory.record(stream).unwrap();
    launch(stream.raw());
    recorded.wait().unwrap();
}

fn an_event_that_outlives_its_stream(memory: Outbound<Unsynced>, primary: &Primary) {
    let _recorded;
    let mut stream = Stream::new(primary).unwrap();
    _recorded = memory.record(&mut stream).unwrap();
}

fn posted_again_by_what_a_completion_gave(a: &mut Endpoint<efa_os::Device, Srd>, to_b: &Peer<Mutual>, event: Event) {
    if let Event::Sent(mut done) = event {
        a.post(to_b.send(done.buffers.take_opaque().unwrap()), Token(1)).unwrap();
    }
}

fn received_into_again(b: &mut Endpoint<efa_os::Device, Srd>, event: Event) {
    if let Event::Received(mut message) = event {
        b.post_recv(message.buffers.take_opaque().unwrap(), Token(1)).unwrap();
    }
}

fn a_part_posted_unsynced(a: &mut Endpoint<efa_os::Device, Srd>, to_b: &Peer<Mutual>, part: ExposedPart<Opaque>) {
    a.post(to_b.send(part), Token(1)).unwrap();
}

fn assumed(memory: Outbound<Unsynced>) {
    memory.assume_synchronized();
}

fn main() {}
