//! What the programs in `tests/programs` cannot ask for: requests that no library makes.

use proptest::prelude::*;

use crate::errno::Errno;
use crate::ioctl::{ATTR, HEADER, Request};
use crate::script::{Draft, FakeFiles, FakeMemory, KINDS, good, open, run};
use crate::uapi::{attr, command, method, object};
use crate::verbs::Context;

/// A device that was opened, with a domain 0, a completion queue 1 and a queue pair 2.
pub(super) fn opened() -> (Context, FakeMemory, FakeFiles) {
    let (mut context, memory, files) = (open().unwrap(), FakeMemory::new(), FakeFiles::default());
    for (kind, handle) in [(0, 0), (7, 0), (11, 0), (12, 0)] {
        assert_eq!(good(kind, handle).call(&mut context, &memory, &files), Ok(()), "request {kind}");
    }
    assert_eq!(Draft::answered(&memory), 2);
    (context, memory, files)
}

fn changed(kind: u8, handle: u32, change: impl FnOnce(&mut Draft)) -> Draft {
    let mut draft = good(kind, handle);
    change(&mut draft);
    draft
}

fn answer(draft: &Draft) -> Result<(), Errno> {
    let (mut context, memory, files) = opened();
    draft.call(&mut context, &memory, &files)
}

#[test]
fn every_good_request_is_answered_by_a_device_with_the_objects_that_it_names() {
    let (mut context, memory, files) = opened();
    let mut call = |kind: u8, handle: u32| good(kind, handle).call(&mut context, &memory, &files);
    for (kind, handle) in [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (10, 0), (13, 2), (14, 2), (20, 0), (27, 0)]
    {
        assert_eq!(call(kind, handle), Ok(()), "request {kind}");
    }
    // A region is 3, an address handle 4; then all go, users first.
    assert_eq!((call(8, 0), call(9, 0)), (Ok(()), Ok(())));
    assert_eq!((call(19, 0), call(16, 1)), (Err(Errno::EBUSY), Err(Errno::EBUSY)));
    // Regions of a file, of an address and of a file again are 5 to 7, queues in memory of the program's 8 and 9.
    for (kind, handle) in [(21, 0), (22, 0), (23, 0), (24, 5), (24, 7), (25, 0), (26, 0)] {
        assert_eq!(call(kind, handle), Ok(()), "request {kind}");
    }
    for (kind, handle) in [(18, 5), (18, 6), (18, 7), (16, 8), (16, 9), (18, 3), (17, 4), (15, 2), (16, 1), (19, 0)] {
        assert_eq!(call(kind, handle), Ok(()), "request {kind}");
        assert_eq!(call(kind, handle), Err(Errno::ENOENT), "request {kind} again");
    }
}

#[test]
fn a_device_that_was_not_opened_answers_the_probe_and_nothing_else() {
    let (mut context, memory, files) = (open().unwrap(), FakeMemory::new(), FakeFiles::default());
    let probe = Draft::new(object::DEVICE, method::DEVICE_INVOKE_WRITE);
    let probe = probe.input(attr::WRITE_CMD, &u64::from(command::QUERY_DEVICE).to_ne_bytes());
    assert_eq!(probe.call(&mut context, &memory, &files), Err(Errno::ENOSPC));
    for kind in 1..KINDS {
        assert_eq!(good(kind, 0).call(&mut context, &memory, &files), Err(Errno::EINVAL), "request {kind}");
    }
    assert_eq!(good(0, 0).call(&mut context, &memory, &files), Ok(()));
    assert_eq!(good(0, 0).call(&mut context, &memory, &files), Err(Errno::EINVAL));
}

#[test]
fn a_header_that_is_not_good_is_answered_as_the_kernel_does() {
    let header = |at: usize, value: u8| answer(&changed(4, 0, |draft| draft.bytes_mut()[at] = value));
    assert_eq!(header(0, 0xFF), Err(Errno::EINVAL), "length");
    assert_eq!(header(1, 0xFF), Err(Errno::EINVAL), "length beyond a page");
    assert_eq!(header(2, 99), Err(Errno::EPROTONOSUPPORT), "object");
    assert_eq!(header(4, 99), Err(Errno::EPROTONOSUPPORT), "method");
    assert_eq!(header(6, 1), Err(Errno::EINVAL), "attributes");
    assert_eq!(header(8, 1), Err(Errno::EPROTONOSUPPORT), "reserved");
    assert_eq!(header(16, 1), Err(Errno::EINVAL), "driver");
    assert_eq!(header(20, 1), Err(Errno::EPROTONOSUPPORT), "reserved");
    // Where there is nothing, and where there is not enough.
    let (mut context, memory, files) = opened();
    assert_eq!(context.ioctl(&memory, 0, &files).map(|_| ()), Err(Errno::EFAULT));
    let end = crate::script::BASE + crate::script::SIZE as u64;
    assert_eq!(context.ioctl(&memory, end - 8, &files).map(|_| ()), Err(Errno::EFAULT));
}

#[test]
fn an_attribute_that_is_not_good_is_answered_as_the_kernel_does() {
    let attribute = |nth: usize, at: usize, value: u8| {
        answer(&changed(4, 0, |draft| draft.bytes_mut()[HEADER + nth * ATTR + at] = value))
    };
    assert_eq!(attribute(0, 0, 77), Err(Errno::EPROTONOSUPPORT), "unknown and mandatory");
    assert_eq!(attribute(0, 0, 1), Err(Errno::EINVAL), "twice");
    assert_eq!(attribute(0, 2, 0), Err(Errno::EINVAL), "too short");
    assert_eq!(attribute(0, 2, 9), Err(Errno::EINVAL), "too long");
    assert_eq!(attribute(1, 2, 39), Err(Errno::EINVAL), "too short for the answer");
    assert_eq!(attribute(0, 6, 1), Err(Errno::EINVAL), "reserved");
    assert_eq!(attribute(1, 13, 1), Err(Errno::EFAULT), "an answer to where nothing is");
    assert_eq!(
        answer(&Draft::new(object::DEVICE, method::DEVICE_QUERY_PORT).room(1, 48)),
        Err(Errno::EINVAL),
        "missing"
    );
    let optional = changed(4, 0, |draft| *draft = draft.clone().number(0x2000, 0));
    let at = HEADER + 2 * ATTR + 4;
    assert_eq!(
        answer(&changed(4, 0, |draft| {
            *draft = optional.clone();
            draft.bytes_mut()[at] = 0;
        })),
        Ok(()),
        "unknown and optional"
    );
    assert_eq!(
        answer(&Draft::new(object::PD, method::DESTROY).input(attr::HANDLE, &[0])),
        Err(Errno::EINVAL),
        "no number"
    );
}

#[test]
fn commands_are_known_and_have_their_bytes() {
    assert_eq!(answer(&Draft::command(2, &[0; 8], 8)), Err(Errno::EOPNOTSUPP));
    assert_eq!(answer(&Draft::command(0x4000_0001, &[0; 8], 176)), Err(Errno::EINVAL));
    assert_eq!(answer(&Draft::command(command::REG_MR, &[0; 39], 12)), Err(Errno::ENOSPC));
    assert_eq!(answer(&Draft::command(command::REG_MR, &[0; 40], 11)), Err(Errno::ENOSPC));
}

#[test]
fn a_handle_of_another_kind_is_refused_and_so_are_files_that_are_none() {
    for (kind, handle) in
        [(8, 1), (9, 2), (15, 0), (16, 2), (17, 0), (18, 1), (19, 1), (13, 1), (14, 0), (21, 1), (22, 2), (24, 0)]
    {
        assert_eq!(answer(&good(kind, handle)), Err(Errno::EINVAL), "request {kind}");
        assert_eq!(answer(&good(kind, 77)), Err(Errno::ENOENT), "request {kind}");
    }
    assert_eq!(answer(&good(12, 1)), Err(Errno::EINVAL), "a queue pair over no completion queue");
    for id in [attr::CQ_COMP_CHANNEL, attr::CQ_EVENT_FD] {
        assert_eq!(answer(&changed(11, 0, |draft| *draft = draft.clone().number(id, 0))), Err(Errno::EBADF));
        assert_eq!(answer(&changed(11, 0, |draft| *draft = draft.clone().number(id, u64::MAX))), Err(Errno::EBADF));
        assert_eq!(answer(&changed(11, 0, |draft| *draft = draft.clone().number(id, 1 << 40))), Err(Errno::EINVAL));
    }
}

#[test]
fn what_the_driver_does_not_know_of_a_queue_is_refused() {
    // Of `efa_ibv_create_cq`: mask, entry size, sub-queues, flags, reserved.
    for (at, value) in [(0, 1), (4, 17), (4, 0), (8, 2), (10, 8), (10, 1), (12, 1)] {
        let draft = changed(11, 0, |draft| draft.data_mut()[at] = value);
        assert_eq!(answer(&draft), Err(Errno::EINVAL), "byte {at} = {value}");
    }
    // A number of entries is four bytes: longer ones are not cut off.
    let long = changed(11, 0, |draft| draft.bytes_mut()[HEADER + ATTR + 2] = 8);
    assert_eq!(answer(&long), Err(Errno::EINVAL));
    // Of `efa_ibv_create_qp`, behind the capabilities: mask, ring sizes, type.
    for (at, value, errno) in
        [(0, 1, Errno::EINVAL), (4, 0, Errno::EINVAL), (9, 1, Errno::EINVAL), (12, 1, Errno::EOPNOTSUPP)]
    {
        let draft = changed(12, 0, |draft| draft.data_mut()[20 + at] = value);
        assert_eq!(answer(&draft), Err(errno), "byte {at} = {value}");
    }
    // Capabilities: more than there are.
    for at in [2, 6, 8, 12, 17] {
        let draft = changed(12, 0, |draft| draft.data_mut()[at] = 0x10);
        assert_eq!(answer(&draft), Err(Errno::EINVAL), "capability byte {at}");
    }
}

#[test]
fn what_cannot_be_answered_was_not_made() {
    let (mut context, memory, files) = opened();
    // The answer's place is beyond the memory: in domain, region, address handle, channel, queue, queue pair, the newer regions
    // and queue.
    for (kind, handle, nth) in
        [(7, 0, 2), (8, 0, 2), (9, 0, 2), (10, 0, 2), (11, 0, 6), (12, 0, 8), (21, 0, 8), (23, 0, 7), (25, 0, 4)]
    {
        let count = files.count();
        let bad = changed(kind, handle, |draft| draft.bytes_mut()[HEADER + nth * ATTR + 12] = 1);
        assert_eq!(bad.call(&mut context, &memory, &files), Err(Errno::EFAULT), "request {kind}");
        assert_eq!(files.count(), count);
    }
    // Nothing uses the domain but the queue pair, and the next handle is the next one.
    for (kind, handle) in [(15, 2), (16, 1), (19, 0)] {
        assert_eq!(good(kind, handle).call(&mut context, &memory, &files), Ok(()), "request {kind}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::parse(&bytes);
    }

    #[test]
    fn any_attributes_behind_a_good_header_are_a_request_or_an_error(
        kind in 0..KINDS,
        attrs in proptest::collection::vec(any::<[u8; ATTR]>(), 0..12),
    ) {
        let mut draft = good(kind, 0);
        let bytes = draft.bytes_mut();
        bytes.truncate(HEADER);
        bytes.extend(attrs.iter().flatten());
        let length = (bytes.len() as u16).to_ne_bytes();
        bytes[..2].copy_from_slice(&length);
        bytes[6..8].copy_from_slice(&(attrs.len() as u16).to_ne_bytes());
        let _ = Request::parse(bytes);
    }

    #[test]
    fn a_program_may_ask_for_anything_and_the_device_goes_on(script in proptest::collection::vec(any::<u8>(), 0..512)) {
        run(&script);
    }
}
