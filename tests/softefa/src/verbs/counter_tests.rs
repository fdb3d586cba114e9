//! Completion counters by requests that no library makes.

use super::Context;
use super::tests::opened;
use crate::errno::Errno;
use crate::script::{COUNTS, Draft, FakeFiles, FakeMemory, good};
use crate::uapi::{Answer, attr, command, method, object};

fn counts(memory: &FakeMemory) -> [u64; 2] {
    [0, 8].map(|at| u64::from_ne_bytes(memory.bytes(COUNTS + at)))
}

fn modify(entry: u64, op: u64, value: u64) -> Draft {
    Draft::new(object::COUNTER, method::COUNTER_MODIFY)
        .number(attr::HANDLE, 3)
        .input(attr::COUNTER_ENTRY, &entry.to_ne_bytes())
        .input(attr::COUNTER_OP, &op.to_ne_bytes())
        .input(attr::COUNTER_VALUE, &value.to_ne_bytes())
}

fn attach(qp: u64, counter: u64, ops: u32) -> Draft {
    Draft::new(object::QP, method::QP_ATTACH_COUNTER)
        .number(attr::HANDLE, qp)
        .number(attr::COUNTER_HANDLE, counter)
        .input(attr::COUNTER_OPS, &ops.to_ne_bytes())
}

/// A device with a domain 0, a completion queue 1, a queue pair 2 and a counter 3.
fn counting() -> (Context, FakeMemory, FakeFiles) {
    let (mut context, memory, files) = opened();
    assert_eq!(good(28, 0).call(&mut context, &memory, &files), Ok(()));
    assert_eq!(Draft::answered(&memory), 3);
    (context, memory, files)
}

#[test]
fn every_good_request_of_a_counter_is_answered_and_what_it_is_attached_to_goes_first() {
    let (mut context, memory, files) = counting();
    let mut call = |kind: u8, handle: u32| good(kind, handle).call(&mut context, &memory, &files);
    assert_eq!((call(29, 0), call(33, 4)), (Ok(()), Ok(())));
    assert_eq!((call(30, 3), call(31, 3)), (Ok(()), Err(Errno::EOPNOTSUPP)));
    assert_eq!((call(32, 2), call(32, 2), call(33, 3)), (Ok(()), Err(Errno::EBUSY), Err(Errno::EBUSY)));
    for (kind, handle) in [(15, 2), (33, 3)] {
        assert_eq!(call(kind, handle), Ok(()), "request {kind}");
        assert_eq!(call(kind, handle), Err(Errno::ENOENT), "request {kind} again");
    }
}

#[test]
fn counts_are_zero_at_first_and_what_they_are_set_to_and_added_up_to_then() {
    let (mut context, memory, files) = opened();
    let mut call = |draft: &Draft| draft.call(&mut context, &memory, &files);
    assert_eq!(call(&good(28, 0)), Ok(()));
    assert_eq!(counts(&memory), [0, 0]);
    for (entry, op, value, expected) in
        [(0, 0, u64::MAX, [u64::MAX, 0]), (0, 1, 3, [2, 0]), (1, 1, 5, [2, 5]), (1, 1, 5, [2, 10]), (1, 0, 1, [2, 1])]
    {
        assert_eq!(call(&modify(entry, op, value)), Ok(()));
        assert_eq!(counts(&memory), expected);
    }
    for (entry, op) in [(2, 0), (0, 2), (1 << 32, 0)] {
        assert_eq!(call(&modify(entry, op, 9)), Err(Errno::EINVAL), "{entry} {op}");
    }
    assert_eq!(counts(&memory), [2, 1]);
}

#[test]
fn a_queue_pair_takes_counters_in_reset_and_init() {
    let (mut context, memory, files) = counting();
    let mut call = |draft: &Draft| draft.call(&mut context, &memory, &files);
    assert_eq!((call(&attach(2, 3, 1)), call(&good(13, 2)), call(&attach(2, 3, 2))), (Ok(()), Ok(()), Ok(())));
    let error = Answer::<112>::new().u32(64, 2).u32(68, 1).u8(96, 6);
    assert_eq!(call(&Draft::command(command::MODIFY_QP, &error.0, 0)), Ok(()));
    assert_eq!(call(&attach(2, 3, 1)), Err(Errno::EBUSY));
    assert_eq!(call(&attach(2, 3, 4)), Err(Errno::EINVAL));
}

#[test]
fn memory_for_counts_is_eight_bytes_that_are_there() {
    // Of the first description: kind, flags, address, length.
    for (at, value, answer) in [
        (0, 2, Err(Errno::EINVAL)),
        (8, 1, Err(Errno::EINVAL)),
        (12, 0xFF, Ok(())),
        (16, 4, Err(Errno::EINVAL)),
        (19, 1, Err(Errno::EFAULT)),
        (24, 7, Err(Errno::EINVAL)),
    ] {
        let (mut context, memory, files) = opened();
        let mut draft = good(28, 0);
        draft.data_mut()[at] = value;
        assert_eq!(draft.call(&mut context, &memory, &files), answer, "byte {at} = {value}");
    }
    for fd in [-1, 1 << 29] {
        let (mut context, memory, files) = opened();
        let mut draft = good(29, 0);
        draft.data_mut()[4..8].copy_from_slice(&i32::to_ne_bytes(fd));
        assert_eq!(draft.call(&mut context, &memory, &files), Err(Errno::EBADF), "{fd}");
    }
}

#[test]
fn what_is_no_counter_no_queue_pair_or_no_operation_is_refused() {
    let (mut context, memory, files) = counting();
    for (kind, handle) in [(33, 2), (33, 0), (30, 1), (31, 2)] {
        assert_eq!(good(kind, handle).call(&mut context, &memory, &files), Err(Errno::EINVAL), "request {kind}");
        assert_eq!(good(kind, 77).call(&mut context, &memory, &files), Err(Errno::ENOENT), "request {kind}");
    }
    for (qp, counter, ops, errno) in [
        (1, 3, 1, Errno::EINVAL),
        (2, 1, 1, Errno::EINVAL),
        (2, 77, 1, Errno::ENOENT),
        (77, 3, 1, Errno::ENOENT),
        (2, 3, 0, Errno::EINVAL),
        (2, 3, 1 << 6, Errno::EINVAL),
    ] {
        let answer = attach(qp, counter, ops).call(&mut context, &memory, &files);
        assert_eq!(answer, Err(errno), "{qp} {counter} {ops}");
    }
}
