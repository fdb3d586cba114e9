//! What drivers and devices differ in, and memory that the program gives, by requests that no library makes.

use efa_core::{Caps, Provider};

use super::Context;
use super::tests::opened;
use crate::driver::{Driver, Layout};
use crate::errno::Errno;
use crate::script::{BASE, Draft, FakeFiles, FakeMemory, good, open_by};
use crate::uapi::{Answer, attr, method, object};

/// Where a draft's first answer of more than a number goes.
const ANSWERS: u64 = BASE + 0x2000;

/// A device with a domain 0, opened as a driver has it.
fn opened_by(driver: Driver) -> (Context, FakeMemory, FakeFiles) {
    let (mut context, memory, files) = (open_by(driver).unwrap(), FakeMemory::new(), FakeFiles::default());
    for kind in [0, 7] {
        assert_eq!(good(kind, 0).call(&mut context, &memory, &files), Ok(()), "request {kind}");
    }
    (context, memory, files)
}

/// A completion queue with these flags.
fn cq(sub_cqs: u16, flags: u8) -> Draft {
    let mut draft = good(11, 0);
    let input = Answer::<16>::new().u32(4, 16).u16(8, sub_cqs).u8(10, flags);
    draft.data_mut().copy_from_slice(&input.0);
    draft
}

/// A queue pair of eight sends of so many bytes, with these flags.
fn qp(entry: u32, inline: u32, flags: u16) -> Draft {
    let mut draft = good(12, 0);
    let cap = Answer::<20>::new().u32(0, 8).u32(4, 8).u32(8, 2).u32(12, 1).u32(16, inline);
    let input = Answer::<16>::new().u32(4, 8 * 16).u32(8, 8 * entry);
    draft.data_mut().clear();
    draft.data_mut().extend(cap.0);
    draft.data_mut().extend(input.0);
    draft.data_mut().extend(flags.to_ne_bytes());
    // The driver's part has 24 bytes, of which it takes those that there are.
    draft.data_mut().extend([0; 6]);
    let bytes = draft.bytes_mut();
    let at = bytes.len() - 2 * 16;
    bytes[at + 2..at + 4].copy_from_slice(&24u16.to_ne_bytes());
    draft
}

#[test]
fn entries_are_as_wide_as_their_bytes_and_carry_what_fits() {
    let (mut context, memory, files) = opened();
    let mut make = |entry, inline| qp(entry, inline, 0).call(&mut context, &memory, &files);
    for (entry, inline, answer) in [
        (64, 32, Ok(())),
        (64, 33, Err(Errno::EINVAL)),
        (128, 0, Ok(())),
        (128, 80, Ok(())),
        (128, 81, Err(Errno::EINVAL)),
        (96, 0, Err(Errno::EINVAL)),
        (256, 0, Err(Errno::EINVAL)),
        (u32::MAX / 8, 0, Err(Errno::EINVAL)),
    ] {
        assert_eq!(make(entry, inline), answer, "{entry} {inline}");
    }
}

#[test]
fn request_ids_of_64_bits_are_for_queue_pairs_whose_queue_tells_them_where_the_driver_knows_them() {
    for (knows, of_queue, of_pair, made) in [
        (true, true, true, Ok(())),
        (true, true, false, Ok(())),
        (true, false, true, Err(Errno::EINVAL)),
        (false, false, false, Ok(())),
        (false, false, true, Err(Errno::EINVAL)),
    ] {
        let (mut context, memory, files) = opened_by(Driver { req_id_64: knows, ..Driver::default() });
        assert_eq!(cq(1, u8::from(of_queue) << 2).call(&mut context, &memory, &files), Ok(()));
        let answer = qp(64, 32, u16::from(of_pair) << 1).call(&mut context, &memory, &files);
        assert_eq!(answer, made, "{knows} {of_queue} {of_pair}");
        if !knows {
            assert_eq!(cq(1, 1 << 2).call(&mut context, &memory, &files), Err(Errno::EINVAL));
        }
    }
}

#[test]
fn queues_lie_as_the_driver_has_them() {
    let layout = Layout { sub_cqs: 4, llq: 192, doorbells: [256, 512, 64] };
    let (mut context, memory, files) = opened_by(Driver { layout, ..Driver::default() });
    assert_eq!(cq(1, 0).call(&mut context, &memory, &files), Err(Errno::EINVAL));
    assert_eq!(cq(4, 0).call(&mut context, &memory, &files), Ok(()));
    // Behind the number of entries: 16 of 16 bytes, four times.
    assert_eq!(u64::from_ne_bytes(memory.bytes(ANSWERS + 8 + 16)), 4096);
    let mut rings = [0; 4];
    for _ in 0..8 {
        assert_eq!(qp(64, 32, 0).call(&mut context, &memory, &files), Ok(()));
        // Behind capabilities and number.
        let answer: [u8; 64] = memory.bytes(ANSWERS + 24 + 8);
        let offset = |at: usize| u32::from_ne_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
        assert_eq!([offset(4), offset(8), offset(12)], [512, 256, 192]);
        let [send, recv] = [answer[56], answer[58]].map(usize::from);
        assert_ne!(send, recv);
        rings[send] += 1;
        rings[recv] += 1;
    }
    assert_eq!(rings, [4; 4]);
}

#[test]
fn a_file_is_registered_as_far_as_it_goes_and_with_the_rights_that_there_are() {
    let (mut context, memory, files) = opened();
    let mut register = |id: u16, value: &[u8]| {
        let (mut draft, mut seen) = (good(21, 0), 0);
        // Numbers stand in the attributes.
        for attr in draft.bytes_mut()[24..].chunks_exact_mut(16).filter(|attr| attr[0] == id as u8) {
            attr[8..8 + value.len()].copy_from_slice(value);
            seen += 1;
        }
        assert_eq!(seen, 1);
        draft.call(&mut context, &memory, &files)
    };
    let mut number = |id: u16, value: u64| register(id, &value.to_ne_bytes());
    assert_eq!(number(attr::DMABUF_LENGTH, 4096 - 64), Ok(()), "to its end");
    assert_eq!(number(attr::DMABUF_LENGTH, 4096 - 63), Err(Errno::EINVAL), "beyond it");
    assert_eq!(number(attr::DMABUF_LENGTH, 0), Err(Errno::EINVAL));
    assert_eq!(number(attr::DMABUF_LENGTH, u64::MAX), Err(Errno::EINVAL));
    assert_eq!(number(attr::DMABUF_OFFSET, 64 + (1 << 40)), Err(Errno::EINVAL));
    assert_eq!(number(attr::DMABUF_OFFSET, 65), Err(Errno::EINVAL), "elsewhere in its page than the address");
    assert_eq!(number(attr::DMABUF_FD, 1 << 20), Err(Errno::EBADF));
    assert_eq!(number(attr::DMABUF_FD, u32::MAX.into()), Err(Errno::EBADF));
    assert_eq!(number(attr::DMABUF_ACCESS, 0), Ok(()), "to be read here alone");
    assert_eq!(number(attr::DMABUF_ACCESS, 1 << 20 | 1), Ok(()), "in any order");
    assert_eq!(number(attr::DMABUF_ACCESS, 2), Err(Errno::EINVAL), "written by others alone");
    assert_eq!(number(attr::DMABUF_ACCESS, 9), Err(Errno::EOPNOTSUPP), "atomics");
    assert_eq!(number(attr::DMABUF_ACCESS, 1 << 4), Err(Errno::EINVAL), "what no file has");
}

#[test]
fn memory_of_either_kind_is_registered_by_one_or_the_other() {
    let (mut context, memory, files) = opened();
    let base_with = |access: u32| {
        let draft = Draft::new(object::MR, method::MR_REG).number(attr::HANDLE, 0).number(attr::MR_PD, 0);
        let draft = draft.input(attr::MR_IOVA, &[0; 8]).input(attr::MR_LENGTH, &64u64.to_ne_bytes());
        draft.input(attr::MR_ACCESS, &access.to_ne_bytes()).room(attr::MR_RESP_LKEY, 4).room(attr::MR_RESP_RKEY, 4)
    };
    let base = || base_with(1);
    let address = |draft: Draft| draft.input(attr::MR_ADDR, &4096u64.to_ne_bytes());
    let offset = [0; 8];
    for (draft, errno) in [
        (base(), Errno::EINVAL),
        (base().number(attr::MR_FD, 3), Errno::EINVAL),
        (base().input(attr::MR_FD_OFFSET, &offset), Errno::EINVAL),
        (address(base().number(attr::MR_FD, 3)), Errno::EINVAL),
        (address(base().input(attr::MR_FD_OFFSET, &offset)), Errno::EINVAL),
        (address(base()), Errno::EFAULT),
        (address(base_with(1 << 4)), Errno::EOPNOTSUPP),
        (address(base_with(1 << 10)), Errno::EINVAL),
        (address(base().number(attr::MR_DMA_HANDLE, 1)), Errno::EINVAL),
        (address(base().number(attr::MR_DMA_HANDLE, 77)), Errno::ENOENT),
    ] {
        assert_eq!(draft.call(&mut context, &memory, &files), Err(errno), "{draft:?}");
    }
}

#[test]
fn a_completion_queue_is_in_memory_of_the_programs_if_it_has_room_and_the_driver_knows_how() {
    let (mut context, memory, files) = opened();
    let number = |draft: Draft, id, value: u64| draft.input(id, &value.to_ne_bytes());
    let (va, length, offset) = (attr::CQ_BUFFER_VA, attr::CQ_BUFFER_LENGTH, attr::CQ_BUFFER_OFFSET);
    let room = vec![0u64; 64];
    let address = (room.as_ptr() as u64).next_multiple_of(64);
    for (draft, errno) in [
        (number(good(11, 0), length, 256), Errno::EINVAL),
        (number(good(11, 0), offset, 0), Errno::EINVAL),
        (number(good(11, 0), va, address), Errno::ENOENT),
        (number(number(good(11, 0), va, address), length, 255), Errno::EINVAL),
        (number(number(good(11, 0), va, address + 8), length, 256), Errno::EINVAL),
        (number(number(good(11, 0), va, 4096), length, 256), Errno::EFAULT),
        (number(number(good(11, 0), va, u64::MAX - 15), length, 256), Errno::EINVAL),
        (number(good(25, 0), offset, 0), Errno::EINVAL),
        (good(25, 0).number(attr::CQ_BUFFER_FD, 0), Errno::EINVAL),
        (number(good(11, 0), length, 256).number(attr::CQ_BUFFER_FD, 1 << 20), Errno::ENOENT),
        (number(number(good(11, 0), length, 256), offset, 0).number(attr::CQ_BUFFER_FD, 1 << 20), Errno::EBADF),
        (number(number(good(11, 0), length, 256), offset, 0).number(attr::CQ_BUFFER_FD, 1 << 40), Errno::EINVAL),
    ] {
        assert_eq!(draft.call(&mut context, &memory, &files), Err(errno), "{draft:?}");
    }
    // None is mapped by key, and what the driver does not know it refuses.
    for kind in [25, 26] {
        assert_eq!(good(kind, 0).call(&mut context, &memory, &files), Ok(()));
        assert_eq!(memory.bytes::<16>(ANSWERS + 8 + 8), [0; 16]);
        let (mut context, memory, files) = opened_by(Driver { cq_memory: false, ..Driver::default() });
        assert_eq!(good(kind, 0).call(&mut context, &memory, &files), Err(Errno::EINVAL));
    }
}

#[test]
fn the_device_tells_what_it_and_its_driver_can() {
    for (req_id_64, cq_memory) in [(false, true), (true, false)] {
        let (mut context, memory, files) = opened_by(Driver { req_id_64, cq_memory, ..Driver::default() });
        assert!(context.device.caps().contains(Caps::WIDE_ENTRIES));
        assert_eq!(good(2, 0).call(&mut context, &memory, &files), Ok(()));
        // Behind the interface's own part of the answer.
        let caps = u32::from_ne_bytes(memory.bytes(ANSWERS + 304 + 20));
        assert_eq!((caps >> 7 & 1 == 1, caps >> 9 & 1 == 1), (cq_memory, req_id_64));
    }
    let (mut context, memory, files) = opened();
    assert_eq!(good(20, 0).call(&mut context, &memory, &files), Ok(()));
    assert_eq!(u64::from_ne_bytes(memory.bytes(ANSWERS)), 1000);
    let port = Draft::new(object::DEVICE, method::DEVICE_QUERY_PORT_SPEED).input(0, &2u64.to_ne_bytes()).room(1, 8);
    assert_eq!(port.call(&mut context, &memory, &files), Err(Errno::EINVAL));
}
