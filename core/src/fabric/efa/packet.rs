//! The packets, byte by byte, and their one parser.
//!
//! All numbers are in network order. A packet is one SEND; what is behind its fields is payload, as long as the SEND.
//!
//! Every packet begins with 16 bytes:
//!
//! | at | bytes | header | |
//! |---|---|---|---|
//! | 0 | 1 | magic | 0xEF |
//! | 1 | 1 | version | 1 |
//! | 2 | 1 | kind | as below |
//! | 3 | 1 | flags | bit 0: a [grant](crate::wire::Grant) is in it; the others are 0 |
//! | 4 | 2 | place | who sends: its place in the receiver's table, as the receiver's hello said; 0xFFFF in a hello |
//! | 6 | 2 | heard | credit packets of the receiver's that the sender has taken, a count that wraps |
//! | 8 | 4 | life | the last 32 bits of the sender's incarnation |
//! | 12 | 4 | limit | how many counted packets the receiver may have sent, a count that wraps |
//!
//! | kind | name | then, each with its bytes | payload |
//! |---|---|---|---|
//! | 1 | hello | incarnation 8, echo 8 (of the receiver's incarnation, or 0), start 4, packet 4, features 4, place 2, credits 2 | |
//! | 2 | credit | | |
//! | 3 | eager | sequence 4 | the message |
//! | 4 | segment | sequence 4, total 4, offset 4 | bytes from offset on |
//! | 5 | long | sequence 4, id 4, total 8, grant 40 | |
//! | 6 | put | window 4, id 4, offset 8, total 8, grant 40 | |
//! | 7 | get | window 4, id 4, offset 8, total 8 | |
//! | 8 | clear | id 4, to 4, upto 8, grant 40 | |
//! | 9 | data | to 4, 0 4, offset 8 | bytes from offset on |
//! | 10 | done | id 4, status 4 | |
//! | 11 | finish | to 4, status 4 | |
//! | 12 | bye | | |
//!
//! All but hello, credit and bye are counted: a peer sends them as its limit allows. An id is its sender's own name of an
//! operation, `to` the receiver's; a status is 0, or a [`Why`](super::super::Why) by its number.

use core::mem::size_of;

use bitflags::bitflags;
use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::GrantFrame;

const MAGIC: u8 = 0xEF;
/// The one version so far.
pub(super) const VERSION: u8 = 1;
const HAS_GRANT: u8 = 1;
/// In a hello: the sender does not know its place yet.
pub(super) const NO_PLACE: u16 = 0xFFFF;

bitflags! {
    /// What a side can do by itself, as its hello says. Bits that are not known change nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct PeerFeatures: u32 {
        /// RDMA read, as requester and as responder.
        const READ = 1 << 0;
        /// RDMA write, likewise.
        const WRITE = 1 << 1;
    }
}

/// Why a packet was refused.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPacket {
    /// Shorter than its kind is.
    Short {
        /// Bytes that came.
        found: usize,
        /// Bytes of the kind.
        expected: usize,
    },
    /// Longer than its kind is, which has no payload.
    Long {
        /// Bytes that came.
        found: usize,
        /// Bytes of the kind.
        expected: usize,
    },
    /// Not a packet of this protocol.
    Magic(u8),
    /// Of a version that this side does not speak.
    Version(u8),
    /// Of no kind that there is.
    Kind(u8),
    /// Flags that mean nothing, in this kind.
    Flags(u8),
    /// A field that is 0 in this version.
    Spare(u32),
    /// A hello with no incarnation, a packet size or credits that nobody can work with, or a place that there is not.
    Hello,
}

/// What a packet begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: u8,
    pub(super) version: u8,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) place: U16,
    pub(super) heard: U16,
    pub(super) life: U32,
    pub(super) limit: U32,
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident($kind:literal, $bytes:literal) { $($field:ident: $type:ty),* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(C)]
            pub(super) struct $name {
                $(pub(super) $field: $type,)*
            }

            const_assert_eq!(size_of::<$name>(), $bytes);
            assert_eq_align!($name, u8);

            impl Layout for $name {
                const KIND: u8 = $kind;
            }
        )*
    };
}

/// The fields of one kind of packet.
pub(super) trait Layout: IntoBytes + FromBytes + Immutable + KnownLayout + Unaligned {
    const KIND: u8;
}

layouts! {
    /// First contact.
    Hello(1, 32) { incarnation: U64, echo: U64, start: U32, packet: U32, features: U32, place: U16, credits: U16 }
    /// Nothing but the header.
    Credit(2, 0) {}
    /// A message that fits.
    Eager(3, 4) { sequence: U32 }
    /// A part of a message that takes a few.
    Segment(4, 12) { sequence: U32, total: U32, offset: U32 }
    /// A long message is to come, or to be read.
    Long(5, 56) { sequence: U32, id: U32, total: U64, grant: GrantFrame }
    /// A write to a window is to come, or to be read.
    Put(6, 64) { window: U32, id: U32, offset: U64, total: U64, grant: GrantFrame }
    /// A read of a window.
    Get(7, 24) { window: U32, id: U32, offset: U64, total: U64 }
    /// Of a long message or a put: send up to there, or write.
    Clear(8, 56) { id: U32, to: U32, upto: U64, grant: GrantFrame }
    /// Bytes that were cleared or got.
    Data(9, 16) { to: U32, spare: U32, offset: U64 }
    /// Of a long message or a put: it is over for the receiver.
    Done(10, 8) { id: U32, status: U32 }
    /// Of what the receiver cleared or got: nothing more comes.
    Finish(11, 8) { to: U32, status: U32 }
    /// The sender lets go of the receiver.
    Bye(12, 0) {}
}

const_assert_eq!(size_of::<Header>(), HEADER);
assert_eq_align!(Header, u8);

/// Bytes of a header.
pub(super) const HEADER: usize = 16;

/// Bytes of the longest packet without payload: the least that a slot has, and something to carry.
pub(super) const MIN_PACKET: usize = 256;

/// Bytes before the payload of a packet of this layout.
pub(super) const fn before_payload<L: Layout>() -> usize {
    HEADER + size_of::<L>()
}

/// What a packet says, where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body<'p> {
    Hello(&'p Hello),
    Credit,
    Eager(&'p Eager, &'p [u8]),
    Segment(&'p Segment, &'p [u8]),
    /// With its grant, if it has one.
    Long(&'p Long, Option<&'p GrantFrame>),
    Put(&'p Put, Option<&'p GrantFrame>),
    Get(&'p Get),
    Clear(&'p Clear, Option<&'p GrantFrame>),
    Data(&'p Data, &'p [u8]),
    Done(&'p Done),
    Finish(&'p Finish),
    Bye,
}

impl Body<'_> {
    /// Of a message: which.
    pub(super) fn sequence(&self) -> Option<u32> {
        match self {
            Self::Eager(eager, _) => Some(eager.sequence.get()),
            Self::Segment(segment, _) => Some(segment.sequence.get()),
            Self::Long(long, _) => Some(long.sequence.get()),
            _ => None,
        }
    }
}

/// Reads a packet: total, whatever the bytes.
#[inline(always)]
pub(super) fn parse(bytes: &[u8]) -> Result<(&Header, Body<'_>), BadPacket> {
    let found = bytes.len();
    let (header, rest) =
        Header::ref_from_prefix(bytes).map_err(|_| BadPacket::Short { found, expected: size_of::<Header>() })?;
    if header.magic != MAGIC {
        return Err(BadPacket::Magic(header.magic));
    }
    if header.version != VERSION {
        return Err(BadPacket::Version(header.version));
    }
    // The most frequent, and the shortest way.
    if header.kind == Eager::KIND
        && header.flags == 0
        && let Ok((eager, payload)) = Eager::ref_from_prefix(rest)
    {
        return Ok((header, Body::Eager(eager, payload)));
    }
    parse_body(header, rest).map(|body| (header, body))
}

#[inline(never)]
fn parse_body<'p>(header: &Header, rest: &'p [u8]) -> Result<Body<'p>, BadPacket> {
    let flags = match header.kind {
        Long::KIND | Put::KIND | Clear::KIND => HAS_GRANT,
        _ => 0,
    };
    if header.flags & !flags != 0 {
        return Err(BadPacket::Flags(header.flags));
    }
    let granted = header.flags & HAS_GRANT != 0;
    Ok(match header.kind {
        Hello::KIND => {
            let hello: &Hello = exactly(rest)?;
            let packet = hello.packet.get() as usize;
            if hello.incarnation.get() == 0 || packet < MIN_PACKET || hello.credits.get() < super::LEAST_CREDITS {
                return Err(BadPacket::Hello);
            }
            Body::Hello(hello)
        }
        Credit::KIND => {
            let Credit {} = exactly(rest)?;
            Body::Credit
        }
        Eager::KIND => {
            let (eager, payload) = prefix(rest)?;
            Body::Eager(eager, payload)
        }
        Segment::KIND => {
            let (segment, payload) = prefix(rest)?;
            Body::Segment(segment, payload)
        }
        Long::KIND => {
            let long: &Long = exactly(rest)?;
            Body::Long(long, granted.then_some(&long.grant))
        }
        Put::KIND => {
            let put: &Put = exactly(rest)?;
            Body::Put(put, granted.then_some(&put.grant))
        }
        Get::KIND => Body::Get(exactly(rest)?),
        Clear::KIND => {
            let clear: &Clear = exactly(rest)?;
            Body::Clear(clear, granted.then_some(&clear.grant))
        }
        Data::KIND => {
            let (data, payload): (&Data, _) = prefix(rest)?;
            if data.spare.get() != 0 {
                return Err(BadPacket::Spare(data.spare.get()));
            }
            Body::Data(data, payload)
        }
        Bye::KIND => {
            let Bye {} = exactly(rest)?;
            Body::Bye
        }
        Done::KIND => Body::Done(exactly(rest)?),
        Finish::KIND => Body::Finish(exactly(rest)?),
        kind => return Err(BadPacket::Kind(kind)),
    })
}

fn prefix<L: Layout>(rest: &[u8]) -> Result<(&L, &[u8]), BadPacket> {
    let (found, expected) = (HEADER + rest.len(), before_payload::<L>());
    L::ref_from_prefix(rest).map_err(|_| BadPacket::Short { found, expected })
}

fn exactly<L: Layout>(rest: &[u8]) -> Result<&L, BadPacket> {
    match prefix(rest)? {
        (layout, []) => Ok(layout),
        _ => Err(BadPacket::Long { found: HEADER + rest.len(), expected: before_payload::<L>() }),
    }
}

/// Writes a packet without its payload to the start of a slot; gives its bytes, or none if it does not fit.
#[inline(always)]
pub(super) fn write<L: Layout>(slot: &mut [u8], header: Header, grant: bool, body: &L) -> Option<usize> {
    let flags = if grant { HAS_GRANT } else { 0 };
    let header = Header { magic: MAGIC, version: VERSION, kind: L::KIND, flags, ..header };
    header.write_to_prefix(slot).ok()?;
    body.write_to_prefix(slot.get_mut(HEADER..)?).ok()?;
    Some(before_payload::<L>())
}

/// A place for a grant where there is none.
pub(super) fn no_grant() -> GrantFrame {
    GrantFrame::new_zeroed()
}

/// Parses bytes as a layer would: for fuzzing. Gives the kind's number and the bytes of payload.
///
/// # Errors
/// Why they are no packet.
#[doc(hidden)]
pub fn inspect(bytes: &[u8]) -> Result<(u8, usize), BadPacket> {
    let (header, body) = parse(bytes)?;
    let payload = match body {
        Body::Eager(_, payload) | Body::Segment(_, payload) | Body::Data(_, payload) => payload.len(),
        _ => 0,
    };
    Ok((header.kind, payload))
}

impl core::fmt::Display for BadPacket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short { found, expected } => write!(f, "{found} bytes, its kind has at least {expected}"),
            Self::Long { found, expected } => write!(f, "{found} bytes, its kind has {expected}"),
            Self::Magic(found) => {
                write!(f, "it begins with {found:#04x}, not with {MAGIC:#04x}: it is none of this protocol's")
            }
            Self::Version(found) => write!(f, "version {found}, this side speaks {VERSION}: both sides need the same"),
            Self::Kind(found) => write!(f, "there is no kind {found}"),
            Self::Flags(found) => write!(f, "flags {found:#04x} mean nothing in its kind"),
            Self::Spare(found) => write!(f, "{found} where this version has 0"),
            Self::Hello => {
                f.write_str("a hello that nobody can work with: no life, too short packets or too few credits")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet<L: Layout>(body: &L, payload: &[u8]) -> ([u8; 128], usize) {
        let mut bytes = [0; 128];
        let header = Header {
            place: U16::new(3),
            heard: U16::new(4),
            life: U32::new(5),
            limit: U32::new(6),
            ..Header::default()
        };
        let start = write(&mut bytes, header, false, body).unwrap();
        bytes[start..start + payload.len()].copy_from_slice(payload);
        (bytes, start + payload.len())
    }

    #[test]
    fn a_packet_has_the_same_bytes_on_every_host() {
        let (bytes, len) = packet(&Segment { sequence: U32::new(7), total: U32::new(8), offset: U32::new(9) }, b"ab");
        let golden =
            [0xEF, 1, 4, 0, 0, 3, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9, b'a', b'b'];
        assert_eq!(bytes[..len], golden);
        let (header, body) = parse(&golden).unwrap();
        assert_eq!((header.place.get(), header.heard.get(), header.life.get(), header.limit.get()), (3, 4, 5, 6));
        assert!(matches!(body, Body::Segment(segment, b"ab") if segment.offset.get() == 9));
    }

    #[test]
    fn each_wrong_field_is_a_reason_of_its_own() {
        let (good, len) = packet(&Done { id: U32::new(1), status: U32::new(0) }, &[]);
        let changed = |at: usize, to: u8| {
            let mut bytes = good;
            bytes[at] = to;
            parse(&bytes[..len]).unwrap_err()
        };
        assert_eq!(changed(0, 1), BadPacket::Magic(1));
        assert_eq!(changed(1, 2), BadPacket::Version(2));
        assert_eq!(changed(2, 13), BadPacket::Kind(13));
        assert_eq!(changed(3, 1), BadPacket::Flags(1), "a done grants nothing");
        assert_eq!(parse(&good[..len - 1]), Err(BadPacket::Short { found: len - 1, expected: len }));
        assert_eq!(parse(&good[..len + 1]), Err(BadPacket::Long { found: len + 1, expected: len }));
        assert_eq!(parse(&good[..15]), Err(BadPacket::Short { found: 15, expected: 16 }));
        let (data, len) = packet(&Data { to: U32::new(1), spare: U32::new(2), offset: U64::new(3) }, b"x");
        assert_eq!(parse(&data[..len]), Err(BadPacket::Spare(2)));
        let (mut eager, len) = packet(&Eager { sequence: U32::new(1) }, b"x");
        eager[3] = 1;
        assert_eq!(parse(&eager[..len]), Err(BadPacket::Flags(1)), "nor does a message");
    }
}
