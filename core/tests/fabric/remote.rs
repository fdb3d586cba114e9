//! Writes and reads of a peer's memory: the same program and the same results on the profiles none, read, and read and
//! write, whether the device does it or messages do.

use efa_core::Token;
use efa_core::fabric::{Carries, Denied, Event, Memory, PeerFeatures, RemoteRange, Returned, Why, WindowId};
use efa_core::flags::Access;
use efa_core::memory::ExposedPart;
use efa_core::soft::{Config, Profile};

use super::two::{exposed, profiles};
use super::{Two, payload};

const BOTH: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
const LEN: usize = 100_000;

/// Side 1 opens memory; side 0 has learnt of it.
fn opened<K: Carries>(two: &mut Two<K>, profile: Profile, access: Access) -> (ExposedPart, WindowId, RemoteRange) {
    let memory = exposed(&two.ends[1], profile, &payload(9, LEN));
    let window = two.ends[1].layer.open(memory.clone(), access).unwrap();
    let frame = two.ends[1].layer.describe(window).unwrap();
    let range = two.ends[0].layer.remote(two.ends[0].peer, frame.as_bytes()).unwrap();
    assert_eq!(range.len(), LEN as u64);
    (memory, window, range)
}

fn bytes_of(memory: &ExposedPart) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.copy_out(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn writes_and_reads_have_the_same_results_whoever_does_them() {
    fn test<K: Carries>(profile: Profile) {
        let mut two = Two::<K>::new(Config::new(profile).pieces(700));
        let (memory, _, range) = opened(&mut two, profile, BOTH);
        let mut expected = payload(9, LEN);
        let mut at = 0;
        for (index, len) in [0, 1, 8, 500, 3000, 40_000].into_iter().enumerate() {
            let part = range.range(at as u64..(at + len) as u64).unwrap();
            let peer = two.ends[0].peer;
            let written = payload(index, len);
            // From all sorts of memory.
            let mut sources: Vec<Memory<Vec<u8>>> = vec![Memory::Plain(written.clone())];
            if len > 0 {
                sources.push(two.slice(0, written.clone()).into());
                sources.push(exposed(&two.ends[0], profile, &written).into());
            }
            for source in sources {
                two.ends[0].layer.write(peer, source, part, Token(1)).unwrap();
                let [mut events, _] = two.collect([1, 0]);
                assert!(
                    matches!(events.remove(0), Event::Written { token: Token(1), source, .. } if source.len() == len)
                );
                expected[at..at + len].copy_from_slice(&written);
                assert!(bytes_of(&memory) == expected, "{len} bytes written");
                memory.copy_in(at, &vec![0; len]).unwrap();
            }
            memory.copy_in(at, &written).unwrap();
            // Into all sorts of memory.
            let mut targets: Vec<Memory<Vec<u8>>> = vec![Memory::Plain(vec![0; len])];
            let shared = exposed(&two.ends[0], profile, &vec![0; len]);
            if len > 0 {
                targets.push(two.slice(0, vec![0; len]).into());
                targets.push(shared.clone().into());
            }
            for target in targets {
                two.ends[0].layer.read(peer, target, part, Token(2)).unwrap();
                let [mut events, _] = two.collect([1, 0]);
                let read = match events.remove(0) {
                    Event::Read { token: Token(2), target: Memory::Plain(bytes), .. } => bytes,
                    Event::Read { target: Memory::Slice(slice), .. } => slice.to_vec(),
                    Event::Read { target: Memory::Exposed(bytes), .. } => bytes_of(&bytes),
                    event => panic!("{event:?}"),
                };
                assert!(read == written, "{len} bytes read");
            }
            at += len;
        }
        let features = two.ends[0].layer.features(two.ends[0].peer).unwrap();
        let counters = two.ends[0].layer.counters();
        assert_eq!(counters.read > 0, features.contains(PeerFeatures::READ));
        assert_eq!(counters.written > 0, features.contains(PeerFeatures::WRITE));
        two.settle();
        assert_eq!(two.ends[0].layer.under_way(), [0; 3]);
        assert_eq!(two.ends[1].layer.under_way(), [0; 3]);
    }
    profiles!(test);
}

#[test]
fn what_a_window_is_not_open_for_or_too_short_for_is_refused_with_the_buffer() {
    fn test<K: Carries>(profile: Profile) {
        let mut two = Two::<K>::new(profile);
        let (_, _, range) = opened(&mut two, profile, Access::REMOTE_READ);
        let [a, _] = &mut two.ends;
        let refused = a.layer.write(a.peer, Memory::Plain(vec![1]), range, Token(1)).unwrap_err();
        assert_eq!(refused.error(), Why::Denied(Denied::NotAllowed));
        let short = range.range(0..3).unwrap();
        let refused = a.layer.read(a.peer, Memory::Plain(vec![1; 4]), short, Token(1)).unwrap_err();
        assert_eq!(refused.error(), Why::TooLong { len: 4, limit: 3 });
        assert_eq!(refused.into_inner().into_plain(), Some(vec![1; 4]));
        assert!(range.range(0..LEN as u64 + 1).is_err());
    }
    profiles!(test);
}

#[test]
fn a_window_that_was_shut_denies_what_comes_as_messages() {
    let profile = Profile::NONE;
    let mut two = Two::<efa_core::qp::SendOnly>::new(profile);
    let (_, window, range) = opened(&mut two, profile, BOTH);
    assert!(two.ends[1].layer.shut(window).is_some());
    let peer = two.ends[0].peer;
    two.ends[0].layer.write(peer, Memory::Plain(vec![1; 9]), range, Token(1)).unwrap();
    two.ends[0].layer.read(peer, Memory::Plain(vec![2; 9]), range.range(0..9).unwrap(), Token(2)).unwrap();
    let [mut events, _] = two.collect([2, 0]);
    events.sort_by_key(|event| event.token());
    for (event, bytes) in events.into_iter().zip([1, 2]) {
        match event {
            Event::Failed { why: Why::Denied(Denied::NoWindow), buffer: Returned::Source(memory), .. }
            | Event::Failed { why: Why::Denied(Denied::NoWindow), buffer: Returned::Target(memory), .. } => {
                assert_eq!(memory.into_plain(), Some(vec![bytes; 9]));
            }
            event => panic!("{event:?}"),
        }
    }
}
