//! Entries of 128 bytes, inline writes, and request ids of 64 bits, byte by byte.

use efa_core::entry::{RemoteBuffer, SendEntry, WideSendEntry, control1, control2};
use efa_core::flags::Access;
use efa_core::peer::Ah;
use efa_core::qp::QpState;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{Caps, CqInit, Error, Limit, Limits, Provider, QpInit, Verb};
use zerocopy::{FromZeros, IntoBytes};

use crate::driver::{ALL_OPS, MEMORY, Pair, Side, config, entry, init, inline, le16, pair_with, rdma, send, small};

const WRITABLE: Access = MEMORY.union(Access::REMOTE_WRITE);

fn wide() -> QpInit {
    QpInit { entry_size: 128, inline: 80, inline_write: true, ..init(ALL_OPS) }
}

fn wide_config() -> Config {
    config(Profile::UNSOLICITED.wide())
}

fn pair() -> Pair {
    pair_with(wide_config(), wide(), wide())
}

/// The entry with the second half that one of 64 bytes lacks.
fn widened(narrow: SendEntry) -> WideSendEntry {
    let mut wide = WideSendEntry::new_zeroed();
    wide.as_mut_bytes()[..64].copy_from_slice(narrow.as_bytes());
    wide
}

fn with_inline(mut entry: WideSendEntry, at: usize, bytes: &[u8]) -> WideSendEntry {
    entry.ctrl1 |= control1::INLINE;
    entry.length = (bytes.len() as u16).into();
    let room = entry.data[at..].len().min(bytes.len());
    entry.data[at..at + room].copy_from_slice(&bytes[..room]);
    entry
}

fn inline_send(req_id: u16, ah: &Ah, to: &Side, bytes: &[u8]) -> WideSendEntry {
    with_inline(widened(entry(control1::OP_SEND, req_id, ah, to)), 0, bytes)
}

fn inline_write(req_id: u16, ah: &Ah, to: &Side, bytes: &[u8], remote: RemoteBuffer) -> WideSendEntry {
    let mut wide = widened(entry(control1::OP_RDMA_WRITE, req_id, ah, to));
    wide.data[..16].copy_from_slice(remote.as_bytes());
    with_inline(wide, 16, bytes)
}

#[test]
fn r10_inline_bytes_of_a_wide_send_lie_behind_its_first_32_up_to_80() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let (bytes, target) = ((1..=81).collect::<Vec<u8>>(), b.region(16, MEMORY));
    // More than two laps of the ring, so that both phases are seen.
    for lap in 0..3 {
        for len in [0, 1, 8, 31, 32, 33, 79, 80] {
            target.fill(0, &[0; 128]);
            b.post_recv(1, &[target.buffer(0, 128)]);
            a.post(inline_send(2, &to_b, &b, &bytes[..len]));
            assert_eq!(a.status(), 0, "{len} in lap {lap}");
            assert_eq!(b.recv_cq.poll().unwrap()[6..8], le16(len as u16));
            assert_eq!(
                (target.bytes(0, len), target.bytes(len, 128 - len)),
                (bytes[..len].to_vec(), vec![0; 128 - len])
            );
        }
    }
    a.post(inline_send(2, &to_b, &b, &bytes));
    assert_eq!(a.status(), 6);
}

#[test]
fn r10_inline_bytes_of_a_write_lie_behind_the_remote_buffer_up_to_80() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let (bytes, target) = ((1..=81).collect::<Vec<u8>>(), b.region(16, WRITABLE));
    for len in [0, 1, 7, 8, 31, 32, 33, 64, 79, 80] {
        target.fill(0, &[0; 128]);
        a.post(inline_write(2, &to_b, &b, &bytes[..len], target.remote(3, len as u32)));
        let completion = a.sent_completion();
        assert_eq!((completion[2], completion[3] >> 4), (0, control1::OP_RDMA_WRITE));
        assert_eq!((target.bytes(3, len), target.bytes(3 + len, 8)), (bytes[..len].to_vec(), vec![0; 8]));
        b.post_recv(9, &[target.buffer(120, 8)]);
        let mut with_imm = inline_write(2, &to_b, &b, &bytes[..len], target.remote(0, len as u32));
        (with_imm.ctrl1, with_imm.immediate) = (with_imm.ctrl1 | control1::HAS_IMM, 0x8000_0001.into());
        a.post(with_imm);
        assert_eq!(a.status(), 0);
        let arrival = b.recv_cq.poll().unwrap();
        assert_eq!((&arrival[..2], &arrival[12..16]), (&le16(9)[..], &0x8000_0001u32.to_le_bytes()[..]));
        assert_eq!(target.bytes(0, len), bytes[..len]);
    }
    let long = inline_write(2, &to_b, &b, &bytes, target.remote(0, 81));
    let unlike = inline_write(2, &to_b, &b, &bytes[..8], target.remote(0, 7));
    for entry in [long, unlike] {
        a.post(entry);
        assert_eq!(a.status(), 6, "{entry:?}");
    }
    a.post(inline_write(2, &to_b, &b, &bytes[..8], target.remote(121, 8)));
    assert_eq!(a.status(), 7, "the peer's bounds are checked all the same");
}

#[test]
fn r10_an_inline_write_without_its_flag_and_an_inline_read_answer_3() {
    let plain = QpInit { inline_write: false, ..wide() };
    let Pair { mut a, mut b, to_b, to_a } = pair_with(wide_config(), plain, wide());
    let (to, from) = (b.region(1, WRITABLE), a.region(1, WRITABLE | Access::REMOTE_READ));
    a.post(inline_write(0, &to_b, &b, &[1; 8], to.remote(0, 8)));
    assert_eq!(a.status(), 3);
    a.post(widened(rdma(2, 0, &to_b, &b, from.buffer(0, 8), to.remote(0, 8))));
    assert_eq!(a.status(), 0, "one that names a buffer needs no flag");
    let mut read = inline_write(0, &to_a, &a, &[1; 8], from.remote(0, 8));
    read.ctrl1 = read.ctrl1 & !control1::OP_MASK | control1::OP_RDMA_READ;
    b.post(read);
    assert_eq!(b.status(), 3);
}

#[test]
fn a_wide_entry_with_a_wrong_phase_or_reserved_bits_answers_2() {
    let Pair { mut a, b, to_b, .. } = pair();
    let good = inline_send(1, &to_b, &b, &[1]);
    let bad = [
        WideSendEntry { ctrl2: good.ctrl2 | control2::PHASE, ..good },
        WideSendEntry { ctrl2: good.ctrl2 & !control2::LAST, ..good },
        WideSendEntry { ctrl1: good.ctrl1 | control1::META_EXTENSION, ..good },
        WideSendEntry { reserved15: 1, ..good },
        WideSendEntry { reserved20: [1, 0, 0, 0, 0, 0], ..good },
        WideSendEntry { req_id_ex: [1.into(), 0.into(), 0.into()], ..good },
        WideSendEntry { req_id_ex: [0.into(), 0.into(), 1.into()], ..good },
    ];
    for entry in bad {
        a.post(entry);
        assert_eq!(a.status(), 2, "{entry:?}");
    }
}

#[test]
fn r07_r18_wide_entries_take_their_capabilities_and_two_places_each() {
    let limits = Limits { max_send_depth: 64, max_batch: 5, max_inline_wide: 64, ..small() };
    let device = SoftDevice::new(wide_config().limits(limits));
    let side = |device: &SoftDevice, init: &QpInit| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(&CqInit { entries: 64, sgid: false, unsolicited: false }).unwrap();
        device.create_qp(&pd, &cq, &cq, init).map(|qp| device.queues(&qp).send)
    };
    let good = QpInit { send_depth: 32, inline: 64, ..wide() };
    let ring = side(&device, &good).unwrap();
    assert_eq!((ring.depth, ring.entry_size, ring.max_batch, ring.inline), (32, 128, 2, 64));
    let narrow = QpInit { send_depth: 64, ..init(ALL_OPS) };
    let ring = side(&device, &narrow).unwrap();
    assert_eq!((ring.depth, ring.entry_size, ring.max_batch), (64, 64, 5));

    let above = |what, asked, limit| Error::AboveLimit { what, asked, limit };
    let refused = |init: QpInit| side(&device, &init).unwrap_err();
    assert_eq!(refused(QpInit { send_depth: 33, ..good }), above(Limit::SendDepth, 33, 32));
    assert_eq!(refused(QpInit { inline: 65, ..good }), above(Limit::InlineBytes, 65, 64));
    assert_eq!(refused(QpInit { inline: 33, ..narrow }), above(Limit::InlineBytes, 33, 32));
    let invalid = Error::Device { verb: Verb::CreateQp, errno: 22 };
    assert_eq!(refused(QpInit { entry_size: 96, ..good }), invalid);
    assert_eq!(refused(QpInit { inline_write: true, ..narrow }), invalid);

    let device = SoftDevice::new(config(Profile::RDMA));
    let error = side(&device, &wide()).unwrap_err();
    let needs = Caps::WIDE_ENTRIES | Caps::INLINE_WRITE;
    assert!(matches!(error, Error::Unsupported { needs: found, .. } if found.contains(needs)), "{error:?}");
}

/// The upper 48 bits of a completion's request id.
fn upper(completion: &[u8]) -> &[u8] {
    &completion[6..12]
}

#[test]
fn r20_a_device_with_64_bit_request_ids_repeats_all_of_them_whatever_becomes_of_the_request() {
    for (size, of) in [(64, init(ALL_OPS)), (128, wide())] {
        let Pair { mut a, mut b, to_b, .. } = pair_with(wide_config().req_id_64(true), of, of);
        assert!(a.queues.send.req_id_64);
        let post = |a: &mut Side, mut narrow: SendEntry, words: [u16; 3]| {
            narrow.req_id_ex = words.map(Into::into);
            if size == 64 { a.post(narrow) } else { a.post(widened(narrow)) }
        };
        let target = b.region(1, MEMORY);
        b.post_recv(1, &[target.buffer(0, 8)]);
        post(&mut a, send(5, &to_b, &b, &[]), [0x0201, 0x0403, 0x0605]);
        let completion = a.sent_completion();
        assert_eq!((completion[2], upper(&completion)), (0, &[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(completion[12..], [0; 4]);
        post(&mut a, inline(6, &to_b, &b, &[0; 32]), [0xFFFF; 3]);
        a.device.progress();
        let mut nobody = send(7, &to_b, &b, &[]);
        nobody.dest_qp_num = 0x7777.into();
        post(&mut a, nobody, [7, 0, 0x8000]);
        let completion = a.sent_completion();
        assert_eq!((completion[2], upper(&completion)), (9, &[7, 0, 0, 0, 0, 0x80][..]));
        // Waiting on the wire, and not taken from the ring yet.
        post(&mut a, send(8, &to_b, &b, &[]), [8, 0, 0]);
        a.modify(QpState::Err);
        let flushed: Vec<_> = std::iter::from_fn(|| a.send_cq.poll()).collect();
        let expected = [(6, [0xFF; 6]), (8, [8, 0, 0, 0, 0, 0])];
        for (completion, (req_id, words)) in flushed.iter().zip(expected) {
            assert_eq!((&completion[..3], upper(completion)), (&[req_id, 0, 1][..], &words[..]));
        }
        assert_eq!(flushed.len(), 2);
    }
}
