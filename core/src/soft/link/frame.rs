//! The frames between wires: one parser, which is total, and one writer, which gives the same bytes back.
//!
//! All numbers are in network order. Offsets are in bytes; what is behind the table is data.
//!
//! | offset | every frame | |
//! |---|---|---|
//! | 0 | magic | `EFAL` |
//! | 4 | version | 1 |
//! | 5 | kind | 1 hello, 2 reset, 3 alive, 4 request, 5 answers, 6 data, 7 datagram |
//! | 6 | length u16 | bytes of the whole frame |
//! | 8 | to | GID of the device that it is for |
//! | 24 | from | GID of the device that it is of |
//! | 40 | to_session u64 | the addressee's session; 0 in a hello that asks for it, and in a datagram |
//! | 48 | from_session u64 | the sender's session; 0 in a datagram, which has none |
//!
//! | offset | request | |
//! |---|---|---|
//! | 56 | sequence u64 | what the answer names |
//! | 64 | floor u64 | the lowest sequence number whose answer the sender still wants |
//! | 72 | op u8 | 0 SEND, 1 read, 2 write |
//! | 73 | flags u8 | 1 has an immediate, 2 the requester was made with unsolicited receive |
//! | 74 | source u16 | the requester's queue pair |
//! | 76 | destination u16 | the responder's |
//! | 78 | reserved u16 | 0 |
//! | 80 | qkey u32 | |
//! | 84 | immediate u32 | 0 if there is none |
//! | 88 | rkey u32 | 0 in a SEND |
//! | 92 | length u32 | bytes of the whole operation |
//! | 96 | address u64 | where the whole operation begins in remote memory, 0 in a SEND |
//! | 104 | at u32 | where in the operation this part begins, 0 in a SEND |
//! | 108 | part u32 | bytes of this part, at most 32768 |
//! | 112 | data | `part` bytes; none in a read |
//!
//! | offset | datagram | |
//! |---|---|---|
//! | 56 | flags u8 | 1 has an immediate |
//! | 57 | reserved | 3 zeros |
//! | 60 | source u16 | the sending queue pair |
//! | 62 | destination u16 | the receiving one |
//! | 64 | qkey u32 | |
//! | 68 | immediate u32 | 0 if there is none |
//! | 72 | data | at most 32768 bytes |
//!
//! Answers are records of 16 bytes each, 1 to 64 of them: sequence u64, status u8, 7 reserved zeros. Data is the
//! answer to a read: sequence u64, then the bytes. The others have nothing behind the header.

use core::mem::offset_of;

use static_assertions::const_assert_eq;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{Field, FrameError};
use crate::Gid;
use crate::entry::control1;

/// Bytes of the largest frame: what a carrier must take.
pub const FRAME: usize = REQUEST + PAYLOAD;
/// Bytes of user data in a frame, 32768: what a SEND may have. Fewer under Miri, which spends its time on each.
pub const PAYLOAD: usize = if cfg!(miri) { 8928 } else { 32768 };
/// Sequence numbers that may be unanswered at once.
pub(super) const WINDOW: usize = 64;

const HEADER: usize = size_of::<Header>();
pub(super) const REQUEST: usize = HEADER + size_of::<Head>();
pub(super) const DATA: usize = HEADER + size_of::<U64>();
pub(super) const DATAGRAM: usize = HEADER + size_of::<DatagramHead>();
const RECORD: usize = size_of::<Record>();

const MAGIC: [u8; 4] = *b"EFAL";
const VERSION: u8 = 1;
const HAS_IMM: u8 = 1;
const UNSOLICITED: u8 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    length: U16,
    to: [u8; 16],
    from: [u8; 16],
    to_session: U64,
    from_session: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    sequence: U64,
    floor: U64,
    op: u8,
    flags: u8,
    source: U16,
    destination: U16,
    reserved: U16,
    qkey: U32,
    immediate: U32,
    rkey: U32,
    length: U32,
    address: U64,
    at: U32,
    part: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct DatagramHead {
    flags: u8,
    reserved: [u8; 3],
    source: U16,
    destination: U16,
    qkey: U32,
    immediate: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    sequence: U64,
    status: u8,
    reserved: [u8; 7],
}

const_assert_eq!(HEADER, 56);
const_assert_eq!(REQUEST, 112);
const_assert_eq!(DATAGRAM, 72);
const_assert_eq!(RECORD, 16);
const_assert_eq!(FRAME, 112 + PAYLOAD);
const_assert_eq!(offset_of!(Header, to_session), 40);
const_assert_eq!(offset_of!(Head, flags), 17);
const_assert_eq!(offset_of!(Head, immediate), 28);
const_assert_eq!(offset_of!(Head, address), 40);

/// A frame that was found good by itself; whether it is for us, or of now, is another question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The device that it is for.
    pub to: Gid,
    /// The device that it is of.
    pub from: Gid,
    /// The addressee's session; 0 in a hello that asks for it, and in a datagram.
    pub to_session: u64,
    /// The sender's session; 0 in a datagram.
    pub from_session: u64,
    /// What it says.
    pub body: Body<'a>,
}

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// Here I am; who are you?
    Hello,
    /// The session that your frame named as mine is not there (any more).
    Reset,
    /// The session is there: answered by nothing, or by a reset.
    Alive,
    /// A SEND, or a part of an RDMA operation.
    Request(Request<'a>),
    /// How requests ended.
    Answers(Answers<'a>),
    /// The bytes of a read.
    Data {
        /// The request's sequence number.
        sequence: u64,
        /// As many bytes as it asked for.
        bytes: &'a [u8],
    },
    /// A message of a UD queue pair: in no session, answered by nothing.
    Ud(UdMessage<'a>),
}

/// A message of a UD queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdMessage<'a> {
    /// The sending queue pair.
    pub source: u16,
    /// The receiving one.
    pub destination: u16,
    /// Its key.
    pub qkey: u32,
    /// The immediate.
    pub imm: Option<u32>,
    /// The payload.
    pub data: &'a [u8],
}

/// A SEND, or a part of an RDMA operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// What the answer names.
    pub sequence: u64,
    /// The lowest sequence number whose answer the sender still wants.
    pub floor: u64,
    /// As in [`control1`].
    pub op: u8,
    /// The immediate.
    pub imm: Option<u32>,
    /// Whether the requester was made with unsolicited receive (R05).
    pub unsolicited: bool,
    /// The requester's queue pair.
    pub source: u16,
    /// The responder's.
    pub destination: u16,
    /// The responder's key.
    pub qkey: u32,
    /// The remote key.
    pub rkey: u32,
    /// Bytes of the whole operation.
    pub length: u32,
    /// Where the whole operation begins in remote memory.
    pub address: u64,
    /// Where in the operation this part begins.
    pub at: u32,
    /// Bytes of this part.
    pub part: u32,
    /// They; none in a read.
    pub data: &'a [u8],
}

/// How requests ended: sequence numbers and statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answers<'a>(&'a [u8]);

impl Answers<'_> {
    /// Sequence number and status of each.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u8)> {
        let records = self.0.chunks_exact(RECORD).filter_map(|bytes| Record::read_from_bytes(bytes).ok());
        records.map(|record| (record.sequence.get(), record.status))
    }
}

impl<'a> Frame<'a> {
    /// Parses a frame: any bytes are one or an error.
    ///
    /// # Errors
    /// Each [`FrameError`] but those that name a wire.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let missing = FrameError::Missing { expected: HEADER, found: bytes.len() };
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| missing)?;
        if header.magic != MAGIC {
            return Err(FrameError::Magic { found: header.magic });
        }
        if header.version != VERSION {
            return Err(FrameError::Version { expected: VERSION, found: header.version });
        }
        if usize::from(header.length.get()) != bytes.len() {
            return Err(FrameError::Length { says: header.length.get(), found: bytes.len() });
        }
        if rest.len() > FRAME - HEADER {
            return Err(FrameError::TooLong { limit: FRAME, found: bytes.len() });
        }
        let (to, from) = (Gid(header.to), Gid(header.from));
        check(!to.is_zero(), Field::Addressee, 0)?;
        check(!from.is_zero(), Field::From, 0)?;
        let (to_session, from_session) = (header.to_session.get(), header.from_session.get());
        let has_session = header.kind != 7;
        check(has_session == (from_session != 0), Field::FromSession, from_session)?;
        check(has_session == (to_session != 0) || header.kind == 1, Field::ToSession, to_session)?;
        let body = match header.kind {
            1 => empty(rest, Body::Hello)?,
            2 => empty(rest, Body::Reset)?,
            3 => empty(rest, Body::Alive)?,
            4 => Body::Request(Request::parse(rest)?),
            5 => Body::Answers(answers(rest)?),
            6 => {
                let missing = FrameError::Missing { expected: DATA, found: bytes.len() };
                let (sequence, bytes) = U64::read_from_prefix(rest).map_err(|_| missing)?;
                check(bytes.len() <= PAYLOAD, Field::Part, bytes.len() as u64)?;
                Body::Data { sequence: sequence.get(), bytes }
            }
            7 => Body::Ud(UdMessage::parse(rest)?),
            kind => return Err(FrameError::Field { field: Field::Kind, found: kind.into() }),
        };
        Ok(Self { to, from, to_session, from_session, body })
    }

    /// Writes the frame; its length. [`Frame::parse`] gives it again.
    ///
    /// # Errors
    /// As [`Frame::parse`], for what is not a frame.
    pub fn write(&self, frame: &mut [u8; FRAME]) -> Result<usize, FrameError> {
        let rest = &mut frame[HEADER..];
        let (kind, len) = match &self.body {
            Body::Hello => (1, 0),
            Body::Reset => (2, 0),
            Body::Alive => (3, 0),
            Body::Request(request) => {
                let len = size_of::<Head>();
                request.write(rest);
                put(&mut rest[len..], request.data);
                (4, len + request.data.len())
            }
            Body::Answers(Answers(records)) => {
                put(rest, records);
                (5, records.len())
            }
            Body::Data { sequence, bytes } => {
                put(rest, U64::new(*sequence).as_bytes());
                put(&mut rest[size_of::<U64>()..], bytes);
                (6, size_of::<U64>() + bytes.len())
            }
            Body::Ud(datagram) => {
                datagram.write(rest);
                put(&mut rest[size_of::<DatagramHead>()..], datagram.data);
                (7, size_of::<DatagramHead>() + datagram.data.len())
            }
        };
        if HEADER + len > FRAME {
            return Err(FrameError::TooLong { limit: FRAME, found: HEADER + len });
        }
        let len = self.seal(frame, kind, len);
        Frame::parse(frame.get(..len).unwrap_or_default())?;
        Ok(len)
    }

    /// Writes the header of a frame with `len` bytes behind it; the length of all.
    fn seal(&self, frame: &mut [u8], kind: u8, len: usize) -> usize {
        let length = HEADER + len;
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            kind,
            length: U16::new(u16::try_from(length).unwrap_or(u16::MAX)),
            to: self.to.0,
            from: self.from.0,
            to_session: U64::new(self.to_session),
            from_session: U64::new(self.from_session),
        };
        put(frame, header.as_bytes());
        length
    }

    /// Writes a frame without a body that needs more than `self` says; its length.
    pub(super) fn seal_short(&self, frame: &mut [u8; FRAME]) -> usize {
        let kind = match self.body {
            Body::Reset => 2,
            Body::Alive => 3,
            _ => 1,
        };
        self.seal(frame, kind, 0)
    }

    /// Writes a request whose `data` is in the frame already, from [`REQUEST`] on; its length.
    pub(super) fn seal_request(&self, frame: &mut [u8; FRAME], request: &Request<'_>, data: usize) -> usize {
        request.write(&mut frame[HEADER..]);
        self.seal(frame, 4, size_of::<Head>() + data)
    }

    /// Writes a datagram whose data is in the frame already, from [`DATAGRAM`] on; its length.
    pub(super) fn seal_datagram(&self, frame: &mut [u8], datagram: &UdMessage<'_>, data: usize) -> usize {
        datagram.write(frame.get_mut(HEADER..).unwrap_or_default());
        self.seal(frame, 7, size_of::<DatagramHead>() + data)
    }

    /// Writes answers; its length.
    pub(super) fn seal_answers(&self, frame: &mut [u8; FRAME], answers: impl Iterator<Item = (u64, u8)>) -> usize {
        let mut len = 0;
        for (place, (sequence, status)) in frame[HEADER..].chunks_exact_mut(RECORD).zip(answers.take(WINDOW)) {
            put(place, Record { sequence: U64::new(sequence), status, reserved: [0; 7] }.as_bytes());
            len += RECORD;
        }
        self.seal(frame, 5, len)
    }

    /// Writes the data of a read, which is in the frame already, from [`DATA`] on; its length.
    pub(super) fn seal_data(&self, frame: &mut [u8; FRAME], sequence: u64, data: usize) -> usize {
        put(&mut frame[HEADER..], U64::new(sequence).as_bytes());
        self.seal(frame, 6, size_of::<U64>() + data)
    }
}

impl<'a> UdMessage<'a> {
    fn parse(rest: &'a [u8]) -> Result<Self, FrameError> {
        let missing = FrameError::Missing { expected: DATAGRAM, found: HEADER + rest.len() };
        let (head, data) = DatagramHead::read_from_prefix(rest).map_err(|_| missing)?;
        check(head.flags & !HAS_IMM == 0, Field::Flags, head.flags.into())?;
        check(head.reserved == [0; 3], Field::Reserved, number(&head.reserved))?;
        let has_imm = head.flags & HAS_IMM != 0;
        check(has_imm || head.immediate.get() == 0, Field::Immediate, head.immediate.get().into())?;
        check(data.len() <= PAYLOAD, Field::Part, data.len() as u64)?;
        Ok(Self {
            source: head.source.get(),
            destination: head.destination.get(),
            qkey: head.qkey.get(),
            imm: has_imm.then_some(head.immediate.get()),
            data,
        })
    }

    fn write(&self, rest: &mut [u8]) {
        let head = DatagramHead {
            flags: if self.imm.is_some() { HAS_IMM } else { 0 },
            reserved: [0; 3],
            source: U16::new(self.source),
            destination: U16::new(self.destination),
            qkey: U32::new(self.qkey),
            immediate: U32::new(self.imm.unwrap_or(0)),
        };
        put(rest, head.as_bytes());
    }
}

impl<'a> Request<'a> {
    fn parse(rest: &'a [u8]) -> Result<Self, FrameError> {
        let missing = FrameError::Missing { expected: REQUEST, found: HEADER + rest.len() };
        let (head, data) = Head::read_from_prefix(rest).map_err(|_| missing)?;
        let (sequence, floor) = (head.sequence.get(), head.floor.get());
        check(sequence.wrapping_sub(floor) < WINDOW as u64, Field::Sequence, sequence)?;
        let is_send = head.op == control1::OP_SEND;
        let is_read = head.op == control1::OP_RDMA_READ;
        check(is_send || is_read || head.op == control1::OP_RDMA_WRITE, Field::Op, head.op.into())?;
        check(head.flags & !(HAS_IMM | UNSOLICITED) == 0, Field::Flags, head.flags.into())?;
        check(head.reserved.get() == 0, Field::Reserved, head.reserved.get().into())?;
        let has_imm = head.flags & HAS_IMM != 0;
        check(has_imm || head.immediate.get() == 0, Field::Immediate, head.immediate.get().into())?;
        let (length, at, part) = (head.length.get(), head.at.get(), head.part.get());
        let end = at.checked_add(part).filter(|end| *end <= length);
        let end = end.ok_or(FrameError::Field { field: Field::At, found: at.into() })?;
        check(part > 0 || length == 0, Field::Part, part.into())?;
        check(part as usize <= PAYLOAD, Field::Part, part.into())?;
        if is_send {
            check(part == length, Field::Part, part.into())?;
            check(head.rkey.get() == 0, Field::RKey, head.rkey.get().into())?;
            check(head.address.get() == 0, Field::Address, head.address.get())?;
        }
        // The immediate tells that all of a write is there.
        check(!has_imm || (!is_read && end == length), Field::Flags, head.flags.into())?;
        let expected = if is_read { 0 } else { part as usize };
        if data.len() != expected {
            return Err(FrameError::Missing { expected: REQUEST + expected, found: HEADER + rest.len() });
        }
        Ok(Self {
            sequence,
            floor,
            op: head.op,
            imm: has_imm.then_some(head.immediate.get()),
            unsolicited: head.flags & UNSOLICITED != 0,
            source: head.source.get(),
            destination: head.destination.get(),
            qkey: head.qkey.get(),
            rkey: head.rkey.get(),
            length,
            address: head.address.get(),
            at,
            part,
            data,
        })
    }

    fn write(&self, rest: &mut [u8]) {
        let has_imm = if self.imm.is_some() { HAS_IMM } else { 0 };
        let unsolicited = if self.unsolicited { UNSOLICITED } else { 0 };
        let head = Head {
            sequence: U64::new(self.sequence),
            floor: U64::new(self.floor),
            op: self.op,
            flags: has_imm | unsolicited,
            source: U16::new(self.source),
            destination: U16::new(self.destination),
            reserved: U16::ZERO,
            qkey: U32::new(self.qkey),
            immediate: U32::new(self.imm.unwrap_or(0)),
            rkey: U32::new(self.rkey),
            length: U32::new(self.length),
            address: U64::new(self.address),
            at: U32::new(self.at),
            part: U32::new(self.part),
        };
        put(rest, head.as_bytes());
    }
}

fn answers(rest: &[u8]) -> Result<Answers<'_>, FrameError> {
    let whole = !rest.is_empty() && rest.len().is_multiple_of(RECORD) && rest.len() <= WINDOW * RECORD;
    check(whole, Field::Answers, rest.len() as u64)?;
    for record in rest.chunks_exact(RECORD).filter_map(|bytes| Record::read_from_bytes(bytes).ok()) {
        check(record.reserved == [0; 7], Field::Reserved, number(&record.reserved))?;
    }
    Ok(Answers(rest))
}

fn empty<'a>(rest: &[u8], body: Body<'a>) -> Result<Body<'a>, FrameError> {
    let found = HEADER + rest.len();
    if rest.is_empty() { Ok(body) } else { Err(FrameError::TooLong { limit: HEADER, found }) }
}

/// A few bytes as one number, the first one highest.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn check(good: bool, field: Field, found: u64) -> Result<(), FrameError> {
    if good { Ok(()) } else { Err(FrameError::Field { field, found }) }
}

/// Copies as many bytes as both have.
fn put(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}
