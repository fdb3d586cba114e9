//! Replays the corpus on stable: `cargo test` in this folder.

use std::fs;
use std::path::Path;

use efa_fuzz::Reached;

/// Calls `body` with each file of a target's corpus.
fn replay(target: &str, mut body: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        body(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 0, "{} has no files", folder.display());
}

/// Replays a corpus, which does all of `expected`.
fn replay_all(target: &str, body: fn(&[u8]) -> Reached, expected: &[&str]) {
    let mut reached = Reached::new();
    replay(target, |bytes| reached.extend(body(bytes)));
    let missed: Vec<_> = expected.iter().filter(|what| !reached.contains(*what)).collect();
    assert!(missed.is_empty(), "the corpus never came to {missed:?}, but to {reached:?}");
}

#[test]
fn the_endpoint_corpus_holds() {
    replay("endpoint", efa_fuzz::endpoint);
}

#[test]
fn the_frames_corpus_holds() {
    replay("frames", efa_fuzz::frames);
}

#[test]
fn the_completions_corpus_holds_and_comes_to_everything() {
    let expected = [
        "a SEND done",
        "a batch aborted",
        "a batch dropped",
        "a batch forgotten",
        "a batch submitted",
        "a failed queue",
        "a failed queue restarted",
        "a flush",
        "a full queue",
        "a malformed entry",
        "a message received",
        "a read done",
        "a request reclaimed",
        "a restart",
        "a stale entry",
        "a status",
        "a write done",
        "a write with immediate received",
        "an unsolicited write",
        "too many bytes",
    ];
    replay_all("completions", efa_fuzz::completions, &expected);
}

#[test]
fn the_calls_corpus_holds_and_comes_to_everything() {
    let expected = [
        "a SEND done",
        "a bad remote address",
        "a bad remote status",
        "a batch aborted",
        "a batch dropped",
        "a batch forgotten",
        "a batch submitted",
        "a call that the device refused",
        "a device died",
        "a device plugged",
        "a drain",
        "a flush",
        "a frozen slice sent",
        "a hostile device",
        "a list of receives",
        "a long inline SEND",
        "a message received",
        "a message too long",
        "a move to ERR",
        "a part of exposed memory sent",
        "a peer gone",
        "a pool",
        "a queue pair closed",
        "a queue pair dropped",
        "a queue pair failed",
        "a queue pair forgotten",
        "a read done",
        "a read of a corrupted window",
        "a receive of two buffers",
        "a receive too short",
        "a region closed",
        "a request reclaimed",
        "a restart",
        "a slice forgotten",
        "a slice in use not thawed",
        "a slice thawed",
        "a stranger resolved",
        "a wire that loses",
        "a word stored and loaded",
        "a write done",
        "a write in parts",
        "a write with immediate received",
        "an abort",
        "an empty SEND",
        "an event's buffers forgotten",
        "an inline SEND",
        "an inline write",
        "an operation refused",
        "an operation without its address handle",
        "an unknown sender",
        "an unreachable peer",
        "an unresponsive peer",
        "buffers of two kinds sent",
        "bytes copied in",
        "bytes copied out",
        "memory in use not revoked",
        "memory revoked",
        "no receive",
        "two buffers sent",
    ];
    replay_all("calls", efa_fuzz::calls, &expected);
}

#[test]
fn the_link_corpus_holds_and_comes_to_everything() {
    let expected = [
        "a SEND done",
        "a datagram made up",
        "a failure",
        "a frame damaged",
        "a frame lost",
        "a frame repeated",
        "a hello made up",
        "a message received",
        "a read done",
        "a request made up",
        "a reset made up",
        "a write done",
        "a write in parts done",
        "an address unreachable",
        "an alive made up",
        "answers made up",
        "data made up",
    ];
    replay_all("link", efa_fuzz::link, &expected);
}

#[test]
fn the_fabric_corpus_holds_and_comes_to_everything() {
    let expected = [
        "a bye",
        "a call refused",
        "a denial",
        "a denial that nobody knows",
        "a message received",
        "a message sent",
        "a message too long",
        "a packet",
        "a peer up",
        "a read done",
        "a restart",
        "a violation: a grant",
        "a violation: an unknown operation",
        "a violation: no credit",
        "a violation: no packet",
        "a violation: out of turn",
        "a violation: too many bytes",
        "a write done",
        "no packet",
        "the end",
    ];
    replay_all("fabric", efa_fuzz::fabric, &expected);
}

#[test]
fn the_requests_corpus_holds_and_comes_to_everything() {
    let expected = [
        "EBADF",
        "EBUSY",
        "EFAULT",
        "EINVAL",
        "ENOENT",
        "ENOSPC",
        "EOPNOTSUPP",
        "EPROTONOSUPPORT",
        "a GID asked for",
        "a channel made",
        "a completion queue destroyed",
        "a completion queue made",
        "a completion queue made at an address",
        "a completion queue made in a file",
        "a counter attached",
        "a counter changed",
        "a counter destroyed",
        "a counter made at an address",
        "a counter made in a file",
        "a device opened",
        "a domain destroyed",
        "a domain made",
        "a file of asynchronous events made",
        "a file registered",
        "a port asked for",
        "a port's speed asked for",
        "a queue pair asked for",
        "a queue pair destroyed",
        "a queue pair made",
        "a queue pair moved",
        "a region asked for",
        "all GIDs asked for",
        "an address handle destroyed",
        "an address handle made",
        "counters asked for",
        "device attributes asked for",
        "fewer device attributes asked for",
        "memory deregistered",
        "memory of a file registered",
        "memory of an address registered",
        "memory registered",
    ];
    replay_all("requests", efa_fuzz::requests, &expected);
}

#[test]
fn the_guest_corpus_holds_and_comes_to_everything() {
    let expected = [
        "a bad opcode",
        "a completion queue destroyed",
        "a completion queue made",
        "a domain destroyed",
        "a domain made",
        "a doorbell rung",
        "a feature asked for",
        "a feature set",
        "a malformed command",
        "a page of doorbells destroyed",
        "a page of doorbells made",
        "a queue pair asked for",
        "a queue pair destroyed",
        "a queue pair made",
        "a queue pair moved",
        "a register written",
        "an address handle destroyed",
        "an address handle made",
        "an entry posted",
        "an event queue destroyed",
        "an event queue made",
        "an illegal parameter",
        "an unsupported command",
        "counters asked for",
        "memory deregistered",
        "memory registered",
        "memory taken away",
        "memory that is not there",
        "memory written",
        "no resource",
    ];
    replay_all("guest", efa_fuzz::guest, &expected);
}
