//! The ioctl's argument: a header and attributes, taken apart by a table of what each method takes.
//!
//! [`Request::parse`] is a function of bytes alone. It answers whatever the kernel answers before it looks at an
//! object: the order of the checks is its order.

#![forbid(unsafe_code)]

use crate::errno::Errno;
use crate::uapi::{DRIVER_EFA, attr, method, object};

/// Bytes of the header.
pub const HEADER: usize = 24;
/// Bytes of an attribute.
pub const ATTR: usize = 16;
/// The longest argument that the kernel takes.
pub const LONGEST: usize = 4096;

const MANDATORY: u16 = 1;

/// The memory of the program that calls.
pub trait UserMemory {
    /// Whether it is this process's: the thread then puts there what changes without a call.
    const IS_OWN: bool = false;

    /// Copies in.
    ///
    /// # Errors
    /// `EFAULT` if not all is there.
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno>;

    /// Copies out.
    ///
    /// # Errors
    /// `EFAULT` if not all is there.
    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Errno>;
}

/// What an attribute is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Bytes from the program, at least and at most so many; up to eight stand in the attribute itself.
    In(u16, u16),
    /// A place for bytes to the program, at least and at most so many.
    Out(u16, u16),
    /// An object's number.
    Idr,
    /// Where the number of a new object goes.
    NewIdr,
    /// A file's number.
    Fd,
    /// Where the number of a new file goes.
    NewFd,
}

/// One method: which attributes it takes, and whether they must be there.
struct Method {
    object: u16,
    method: u16,
    attrs: &'static [(u16, Kind, bool)],
}

/// What may grow has no longest length.
const ANY: u16 = u16::MAX;

const UHW_IN: (u16, Kind, bool) = (attr::UHW_IN, Kind::In(0, ANY), false);
const UHW_OUT: (u16, Kind, bool) = (attr::UHW_OUT, Kind::Out(0, ANY), false);

const METHODS: &[Method] = &[
    Method {
        object: object::DEVICE,
        method: method::DEVICE_INVOKE_WRITE,
        attrs: &[
            (attr::CORE_IN, Kind::In(4, ANY), false),
            (attr::CORE_OUT, Kind::Out(0, ANY), false),
            (attr::WRITE_CMD, Kind::In(8, 8), true),
            UHW_IN,
            UHW_OUT,
        ],
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_PORT,
        attrs: &[(0, Kind::In(8, 8), true), (1, Kind::Out(40, ANY), true)],
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_GET_CONTEXT,
        attrs: &[(0, Kind::Out(4, 4), false), (1, Kind::Out(8, 8), false), UHW_IN, UHW_OUT],
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_GID_TABLE,
        attrs: &[
            (0, Kind::In(8, 8), true),
            (1, Kind::In(4, 8), false),
            (2, Kind::Out(0, ANY), true),
            (3, Kind::Out(8, 8), true),
        ],
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_GID_ENTRY,
        attrs: &[
            (0, Kind::In(8, 8), true),
            (1, Kind::In(8, 8), true),
            (2, Kind::In(4, 8), false),
            (3, Kind::Out(32, ANY), true),
        ],
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_PORT_SPEED,
        attrs: &[(0, Kind::In(4, 8), true), (1, Kind::Out(8, 8), true)],
    },
    Method { object: object::PD, method: method::DESTROY, attrs: &[(attr::HANDLE, Kind::Idr, true)] },
    Method { object: object::AH, method: method::DESTROY, attrs: &[(attr::HANDLE, Kind::Idr, true)] },
    Method { object: object::MR, method: method::MR_DESTROY, attrs: &[(attr::HANDLE, Kind::Idr, true)] },
    Method {
        object: object::MR,
        method: method::MR_REG_DMABUF,
        attrs: &[
            (attr::HANDLE, Kind::NewIdr, true),
            (attr::MR_PD, Kind::Idr, true),
            (attr::DMABUF_OFFSET, Kind::In(8, 8), true),
            (attr::DMABUF_LENGTH, Kind::In(8, 8), true),
            (attr::DMABUF_IOVA, Kind::In(8, 8), true),
            (attr::DMABUF_FD, Kind::In(4, 4), true),
            (attr::DMABUF_ACCESS, Kind::In(4, 8), true),
            (attr::DMABUF_RESP_LKEY, Kind::Out(4, 4), true),
            (attr::DMABUF_RESP_RKEY, Kind::Out(4, 4), true),
        ],
    },
    Method {
        object: object::MR,
        method: method::MR_REG,
        attrs: &[
            (attr::HANDLE, Kind::NewIdr, true),
            (attr::MR_PD, Kind::Idr, true),
            (attr::MR_DMA_HANDLE, Kind::Idr, false),
            (attr::MR_IOVA, Kind::In(8, 8), true),
            (attr::MR_ADDR, Kind::In(8, 8), false),
            (attr::MR_LENGTH, Kind::In(8, 8), true),
            (attr::MR_ACCESS, Kind::In(4, 8), true),
            (attr::MR_FD, Kind::Fd, false),
            (attr::MR_FD_OFFSET, Kind::In(8, 8), false),
            (attr::MR_RESP_LKEY, Kind::Out(4, 4), true),
            (attr::MR_RESP_RKEY, Kind::Out(4, 4), true),
        ],
    },
    Method {
        object: object::MR,
        method: method::MR_QUERY,
        attrs: &[
            (attr::MR_QUERIED, Kind::Idr, true),
            (attr::MR_QUERIED + 1, Kind::Out(2, 2), true),
            (attr::MR_QUERIED + 2, Kind::Out(2, 2), true),
            (attr::MR_QUERIED + 3, Kind::Out(2, 2), true),
            (attr::MR_QUERIED + 4, Kind::Out(2, 2), true),
        ],
    },
    Method {
        object: object::CQ,
        method: method::CREATE,
        attrs: &[
            (attr::HANDLE, Kind::NewIdr, true),
            (attr::CQ_CQE, Kind::In(4, 4), true),
            (attr::CQ_USER_HANDLE, Kind::In(8, 8), true),
            (attr::CQ_COMP_CHANNEL, Kind::Fd, false),
            (attr::CQ_COMP_VECTOR, Kind::In(4, 4), true),
            (attr::CQ_FLAGS, Kind::In(4, 8), false),
            (attr::CQ_RESP_CQE, Kind::Out(4, 4), true),
            (attr::CQ_EVENT_FD, Kind::Fd, false),
            (attr::CQ_BUFFER_VA, Kind::In(8, 8), false),
            (attr::CQ_BUFFER_LENGTH, Kind::In(8, 8), false),
            (attr::CQ_BUFFER_FD, Kind::Fd, false),
            (attr::CQ_BUFFER_OFFSET, Kind::In(8, 8), false),
            UHW_IN,
            UHW_OUT,
        ],
    },
    Method {
        object: object::CQ,
        method: method::CREATED_DESTROY,
        attrs: &[(attr::HANDLE, Kind::Idr, true), (attr::DESTROY_RESP, Kind::Out(8, 8), true)],
    },
    Method {
        object: object::QP,
        method: method::CREATE,
        attrs: &[
            (attr::HANDLE, Kind::NewIdr, true),
            (attr::QP_PD, Kind::Idr, false),
            (attr::QP_SEND_CQ, Kind::Idr, false),
            (attr::QP_RECV_CQ, Kind::Idr, false),
            (attr::QP_USER_HANDLE, Kind::In(8, 8), true),
            (attr::QP_CAP, Kind::In(20, ANY), true),
            (attr::QP_TYPE, Kind::In(8, 8), true),
            (attr::QP_FLAGS, Kind::In(4, 8), false),
            (attr::QP_EVENT_FD, Kind::Fd, false),
            (attr::QP_RESP_CAP, Kind::Out(20, ANY), true),
            (attr::QP_RESP_QP_NUM, Kind::Out(4, 4), true),
            UHW_IN,
            UHW_OUT,
        ],
    },
    Method {
        object: object::QP,
        method: method::CREATED_DESTROY,
        attrs: &[(attr::HANDLE, Kind::Idr, true), (attr::DESTROY_RESP, Kind::Out(4, 4), true)],
    },
    Method {
        object: object::ASYNC_EVENT,
        method: method::ASYNC_EVENT_ALLOC,
        attrs: &[(attr::HANDLE, Kind::NewFd, true)],
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_COUNTERS,
        attrs: &[(0, Kind::Out(4, 4), false), (1, Kind::Out(8, 8), false), (2, Kind::Out(4, 4), false)],
    },
    Method {
        object: object::COUNTER,
        method: method::CREATE,
        attrs: &[
            (attr::HANDLE, Kind::NewIdr, true),
            (attr::COUNTER_DONE, Kind::In(32, ANY), true),
            (attr::COUNTER_FAILED, Kind::In(32, ANY), true),
        ],
    },
    Method { object: object::COUNTER, method: method::CREATED_DESTROY, attrs: &[(attr::HANDLE, Kind::Idr, true)] },
    Method {
        object: object::COUNTER,
        method: method::COUNTER_MODIFY,
        attrs: &[
            (attr::HANDLE, Kind::Idr, true),
            (attr::COUNTER_ENTRY, Kind::In(8, 8), true),
            (attr::COUNTER_OP, Kind::In(8, 8), true),
            (attr::COUNTER_VALUE, Kind::In(8, 8), true),
        ],
    },
    Method {
        object: object::COUNTER,
        method: method::COUNTER_READ,
        attrs: &[
            (attr::HANDLE, Kind::Idr, true),
            (attr::COUNTER_ENTRY, Kind::In(8, 8), true),
            (attr::COUNTER_RESP_VALUE, Kind::Out(8, 8), true),
        ],
    },
    Method {
        object: object::QP,
        method: method::QP_ATTACH_COUNTER,
        attrs: &[
            (attr::HANDLE, Kind::Idr, true),
            (attr::COUNTER_HANDLE, Kind::Idr, true),
            (attr::COUNTER_OPS, Kind::In(4, 4), true),
        ],
    },
];

/// An attribute that its method knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Attr {
    id: u16,
    kind: Kind,
    len: u16,
    flags: u16,
    data: u64,
    /// Where it is in the argument.
    at: usize,
}

/// A request whose form is good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The object's kind.
    pub object: u16,
    /// What is asked of it.
    pub method: u16,
    attrs: Vec<Attr>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    crate::uapi::Fields(bytes).u16(at)
}

impl Request {
    /// Bytes of the argument that begins so.
    ///
    /// # Errors
    /// `EINVAL` if the header says what cannot be.
    pub fn length(header: &[u8; HEADER]) -> Result<usize, Errno> {
        let (length, attrs) = (usize::from(u16_at(header, 0)), usize::from(u16_at(header, 6)));
        if length > LONGEST || length != HEADER + ATTR * attrs { Err(Errno::EINVAL) } else { Ok(length) }
    }

    /// Takes an argument apart.
    ///
    /// # Errors
    /// The kernel's errno for a form that is not good.
    pub fn parse(bytes: &[u8]) -> Result<Self, Errno> {
        let header = bytes.first_chunk::<HEADER>().ok_or(Errno::EFAULT)?;
        if Self::length(header)? > bytes.len() {
            return Err(Errno::EFAULT);
        }
        let fields = crate::uapi::Fields(header);
        if fields.u64(8) != 0 || fields.u32(20) != 0 {
            return Err(Errno::EPROTONOSUPPORT);
        }
        if fields.u32(16) != DRIVER_EFA {
            return Err(Errno::EINVAL);
        }
        let (object, method) = (fields.u16(2), fields.u16(4));
        let known = METHODS.iter().find(|known| (known.object, known.method) == (object, method));
        let known = known.ok_or(Errno::EPROTONOSUPPORT)?;
        let mut attrs: Vec<Attr> = Vec::with_capacity(known.attrs.len());
        let count = usize::from(fields.u16(6));
        for (nth, raw) in bytes[HEADER..].chunks_exact(ATTR).take(count).enumerate() {
            let raw = crate::uapi::Fields(raw);
            let (id, len, flags, reserved) = (raw.u16(0), raw.u16(2), raw.u16(4), raw.u16(6));
            let Some((_, kind, _)) = known.attrs.iter().find(|known| known.0 == id) else {
                if flags & MANDATORY != 0 {
                    return Err(Errno::EPROTONOSUPPORT);
                }
                continue;
            };
            if attrs.iter().any(|attr| attr.id == id) {
                return Err(Errno::EINVAL);
            }
            let good = match kind {
                Kind::In(least, most) | Kind::Out(least, most) => (*least..=*most).contains(&len),
                Kind::Idr | Kind::NewIdr | Kind::Fd | Kind::NewFd => len == 0,
            };
            if !good || reserved != 0 {
                return Err(Errno::EINVAL);
            }
            attrs.push(Attr { id, kind: *kind, len, flags, data: raw.u64(8), at: HEADER + nth * ATTR });
        }
        let missing = |(id, _, needed): &&(u16, Kind, bool)| *needed && !attrs.iter().any(|attr| attr.id == *id);
        if known.attrs.iter().any(|known| missing(&known)) {
            return Err(Errno::EINVAL);
        }
        Ok(Self { object, method, attrs })
    }

    fn attr(&self, id: u16) -> Option<&Attr> {
        self.attrs.iter().find(|attr| attr.id == id)
    }
}

/// A request with the memory that it came from, where its answer goes.
#[derive(Debug)]
pub struct Call<'a, M> {
    /// The request.
    pub request: &'a Request,
    /// Its address.
    pub addr: u64,
    /// The program's memory.
    pub memory: &'a M,
}

impl<M: UserMemory> Call<'_, M> {
    /// The bytes of an attribute; none if it is not there.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn input(&self, id: u16) -> Result<Vec<u8>, Errno> {
        let Some(attr) = self.request.attr(id).filter(|attr| matches!(attr.kind, Kind::In(..))) else {
            return Ok(Vec::new());
        };
        let inline = attr.data.to_ne_bytes();
        if let Some(bytes) = inline.get(..usize::from(attr.len)) {
            return Ok(bytes.to_vec());
        }
        let mut bytes = vec![0; usize::from(attr.len)];
        self.memory.read(attr.data, &mut bytes)?;
        Ok(bytes)
    }

    /// A number of up to eight bytes; zero if it is not there.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn number(&self, id: u16) -> Result<u64, Errno> {
        Ok(crate::uapi::Fields(&self.input(id)?).u64(0))
    }

    /// Whether an attribute is there.
    pub fn has(&self, id: u16) -> bool {
        self.request.attr(id).is_some()
    }

    /// Bytes that the program has room for in an answer.
    pub fn room(&self, id: u16) -> usize {
        self.request.attr(id).map_or(0, |attr| attr.len.into())
    }

    /// An object's number.
    ///
    /// # Errors
    /// `EINVAL` if it is not there, `ENOENT` for what is no number.
    pub fn handle(&self, id: u16) -> Result<u32, Errno> {
        let attr = self.request.attr(id).ok_or(Errno::EINVAL)?;
        u32::try_from(attr.data).map_err(|_| Errno::ENOENT)
    }

    /// A file's number.
    ///
    /// # Errors
    /// `EINVAL` for what is no number.
    pub fn file(&self, id: u16) -> Result<Option<i32>, Errno> {
        let number = self.request.attr(id).map(|attr| i32::try_from(attr.data as i64).map_err(|_| Errno::EINVAL));
        number.transpose()
    }

    /// Answers: what there is room for, and zeros in the rest.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn put(&self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        const VALID_OUTPUT: u16 = 2;
        let Some(attr) = self.request.attr(id).filter(|attr| matches!(attr.kind, Kind::Out(..))) else {
            return Ok(());
        };
        let mut answer = bytes.to_vec();
        answer.resize(attr.len.into(), 0);
        self.memory.write(attr.data, &answer)?;
        let flags = attr.flags | VALID_OUTPUT;
        self.memory.write(self.addr.wrapping_add(attr.at as u64 + 4), &flags.to_ne_bytes())
    }

    /// Answers with a new object's or file's number.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn put_number(&self, id: u16, number: u32) -> Result<(), Errno> {
        let Some(attr) = self.request.attr(id) else { return Ok(()) };
        self.memory.write(self.addr.wrapping_add(attr.at as u64 + 8), &u64::from(number).to_ne_bytes())
    }
}
