//! What a side that speaks for itself may ask of an operation, and what breaks the protocol.

use efa_core::fabric::{Denied, Event, Memory, Messages, Violation, Why};
use efa_core::flags::Access;
use efa_core::memory::ByMessages;
use efa_core::wire::Window;
use efa_core::{Error, Token};

use super::hand::{ByHand, CLEAR, DATA, DONE, FINISH, GET, LONG, PUT};
use super::payload;
use super::two::{PACKET, pages};

#[test]
fn what_is_of_no_operation_breaks_the_protocol() {
    for (kind, rest) in [(CLEAR, 52), (DATA, 12), (DONE, 4), (FINISH, 4)] {
        let mut this = ByHand::up();
        let packet = this.of(kind, 7, &vec![0; rest]);
        assert_eq!(this.breaks(&packet), Violation::UnknownOperation(7), "{kind}");
    }
}

#[test]
fn data_is_taken_where_it_was_cleared_and_no_more_of_it_than_is_missing() {
    let (piece, len) = (PACKET - 32, (PACKET - 32) * 3 / 2);
    let message = payload(3, len);
    let (mut this, to) = ByHand::sending(len);
    let (events, kinds) = this.send(&this.data(to, 0, &message[..piece]));
    assert_eq!((events.len(), kinds.len()), (0, 0));
    let (events, kinds) = this.send(&this.data(to, piece as u64, &message[piece..]));
    let [Event::Received { len: told, target: Memory::Plain(bytes), .. }] = &events[..] else { panic!("{events:?}") };
    assert!(*told == len && *bytes == message);
    assert_eq!((kinds, &this.last[16..24]), (vec![DONE], &[0, 0, 0, 77, 0, 0, 0, 0][..]));
    // It is over.
    let more = this.data(to, 0, &[1]);
    assert_eq!(this.breaks(&more), Violation::UnknownOperation(to));

    let within = len as u64;
    for (offset, bytes) in [(within, 1), (within - 1, 2), (u64::MAX, 1)] {
        let (mut this, to) = ByHand::sending(len);
        let beyond = this.data(to, offset, &vec![1; bytes]);
        assert_eq!(this.breaks(&beyond), Violation::Beyond { offset, len: bytes as u64, within });
    }
    let (mut this, to) = ByHand::sending(len);
    let first = this.data(to, 0, &message[..piece]);
    assert!(this.send(&first).0.is_empty());
    assert_eq!(this.breaks(&first), Violation::Beyond { offset: 0, len: piece as u64, within });
    // It did not write, since nothing was granted.
    let (mut this, to) = ByHand::sending(len);
    let finish = this.of(FINISH, to, &[0; 4]);
    assert_eq!(this.breaks(&finish), Violation::UnknownOperation(to));
}

#[test]
fn a_message_goes_as_far_as_it_was_cleared_and_is_over_when_its_receiver_has_all_or_denies_it() {
    let (len, piece) = (6 * PACKET, PACKET - 32);
    let message = payload(5, len);
    let asking = || {
        let mut this = ByHand::up();
        this.layer.send(this.peer, Memory::Plain(message.clone()), Token(8)).unwrap();
        let (events, kinds) = this.turns();
        assert_eq!((events.len(), &kinds[..]), (0, &[LONG][..]));
        assert_eq!(this.last[24..32], (len as u64).to_be_bytes());
        let id = u32::from_be_bytes(this.last[20..24].try_into().unwrap());
        (this, id)
    };
    let clear = |this: &ByHand, id, upto: usize| {
        this.of(CLEAR, id, &[&5_u32.to_be_bytes(), &(upto as u64).to_be_bytes()[..], &[0; 40]].concat())
    };
    let done = |this: &ByHand, id, status: u32| this.of(DONE, id, &status.to_be_bytes());

    let (mut this, id) = asking();
    let (events, kinds) = this.send(&clear(&this, id, piece));
    assert_eq!((events.len(), &kinds[..]), (0, &[DATA][..]));
    assert_eq!((&this.last[16..20], &this.last[32..]), (&5_u32.to_be_bytes()[..], &message[..piece]));
    let (events, kinds) = this.send(&clear(&this, id, len));
    assert_eq!((events.len(), kinds), (0, vec![DATA; 6]));
    assert_eq!(this.last[24..32], ((6 * piece) as u64).to_be_bytes());
    assert_eq!(this.last[32..], message[6 * piece..]);
    let (events, _) = this.send(&done(&this, id, 0));
    assert!(matches!(&events[..], [Event::Sent { token: Token(8), .. }]), "{events:?}");
    let again = done(&this, id, 0);
    assert_eq!(this.breaks(&again), Violation::UnknownOperation(id));

    let (mut this, id) = asking();
    let beyond = clear(&this, id, len + 1);
    let (offset, within) = (len as u64 + 1, len as u64);
    assert_eq!(this.breaks(&beyond), Violation::Beyond { offset, len: 0, within });
    let (mut this, id) = asking();
    let other = clear(&this, id ^ 1 << 16, len);
    assert_eq!(this.breaks(&other), Violation::UnknownOperation(id ^ 1 << 16));
    // It has not even all that it cleared.
    let (mut this, id) = asking();
    assert_eq!(this.send(&clear(&this, id, piece)).1, [DATA]);
    let early = done(&this, id, 0);
    assert_eq!(this.breaks(&early), Violation::UnknownOperation(id));
    let (mut this, id) = asking();
    assert_eq!(this.send(&clear(&this, id, piece)).1, [DATA]);
    let (events, _) = this.send(&done(&this, id, 4));
    let [Event::Failed { token: Token(8), why: Why::Denied(Denied::Failed), .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(this.layer.is_up(this.peer), Ok(true));
}

#[test]
fn what_is_asked_of_a_window_is_done_within_it_and_as_it_was_opened() {
    let mut this = ByHand::up();
    let exposed = this.pd.expose(pages(&[0; 64]), this.ctx.require::<ByMessages>().unwrap()).unwrap();
    let open = |this: &mut ByHand, access| {
        let window = this.layer.open(exposed.part(0..64).unwrap(), access).unwrap();
        (window, Window::parse(this.layer.describe(window).unwrap().as_bytes()).unwrap().id)
    };
    let (to_write, written) = open(&mut this, Access::REMOTE_WRITE);
    let (_, read) = open(&mut this, Access::REMOTE_READ);
    let ask = |this: &mut ByHand, kind, window, offset: u64, total: u64| {
        let grant: &[u8] = if kind == PUT { &[0; 40] } else { &[] };
        let rest = [&77_u32.to_be_bytes(), &offset.to_be_bytes()[..], &total.to_be_bytes(), grant].concat();
        let (events, kinds) = this.send(&this.of(kind, window, &rest));
        assert!(events.is_empty(), "{events:?}");
        (kinds, this.last[20..24].to_vec())
    };
    let denied = |number: u32| number.to_be_bytes().to_vec();
    for (window, offset, total, status) in [
        (written ^ 1 << 16, 0, 8, 1),
        (written, 60, 5, 2),
        (written, u64::MAX, 1, 2),
        (written, 0, u64::MAX, 2),
        (read, 0, 8, 3),
    ] {
        assert_eq!(
            ask(&mut this, PUT, window, offset, total),
            (vec![DONE], denied(status)),
            "{window} {offset} {total}"
        );
    }
    for (window, offset, total, status) in [(read ^ 1 << 16, 0, 8, 1), (read, 60, 5, 2), (written, 0, 8, 3)] {
        assert_eq!(
            ask(&mut this, GET, window, offset, total),
            (vec![FINISH], denied(status)),
            "{window} {offset} {total}"
        );
    }
    let (kinds, name) = ask(&mut this, PUT, written, 8, 56);
    assert_eq!(kinds, [CLEAR]);
    let bytes = payload(1, 56);
    let (_, kinds) = this.send(&this.data(u32::from_be_bytes(name.try_into().unwrap()), 0, &bytes));
    assert_eq!((kinds, &this.last[16..24]), (vec![DONE], &[0, 0, 0, 77, 0, 0, 0, 0][..]));
    assert_eq!(ask(&mut this, GET, read, 4, 16).0, [DATA]);
    assert_eq!((&this.last[16..20], &this.last[32..36]), (&77_u32.to_be_bytes()[..], &[0; 4][..]));
    assert_eq!(this.last[36..], bytes[..12]);
    this.layer.shut(to_write).unwrap();
    assert_eq!(ask(&mut this, PUT, written, 0, 8), (vec![DONE], denied(1)));
    assert!(this.layer.is_up(this.peer).unwrap());
}

#[test]
fn memory_of_another_domain_is_refused_and_comes_back() {
    let mut this = ByHand::up();
    let mut alien = this.side.pd.register(vec![0; 64]).unwrap().1;
    let foreign = Why::Refused(Error::ForeignDomain { of: alien.pd(), domain: this.pd.id() });
    let refused = this.layer.send(this.peer, Memory::Slice(alien), Token(1)).unwrap_err();
    assert_eq!(refused.error(), foreign);
    let Memory::Slice(back) = refused.into_inner() else { panic!("another kind") };
    let refused = this.layer.recv(Memory::Slice(back), Token(1)).unwrap_err();
    assert_eq!(refused.error(), foreign);
    let Memory::Slice(back) = refused.into_inner() else { panic!("another kind") };
    alien = back;
    assert_eq!(alien.len(), 64);
    assert!(this.turns().1.is_empty());
}
