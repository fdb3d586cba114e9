//! Fabrics by name, and addresses on them, each claimed by one process.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use efa_core::Gid;

use super::files::Socket;

/// The programs that can reach each other: those that say the same name, and the same user's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fabric {
    name: String,
    user: u32,
}

/// Characters of a fabric's name.
const NAME: usize = 32;

impl Fabric {
    /// The fabric of a name, among those of a user.
    ///
    /// # Errors
    /// A name that cannot be.
    pub fn new(name: &str, user: u32) -> Result<Self, FabricError> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=NAME).contains(&name.len()) && name.bytes().all(is_good) {
            Ok(Self { name: name.to_owned(), user })
        } else {
            Err(FabricError { name: name.to_owned() })
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of an address's socket, which no file has.
    pub(super) fn address(&self, gid: &Gid) -> io::Result<SocketAddr> {
        let digits: String = gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        SocketAddr::from_abstract_name(format!("efa-soft/{}/{}/{digits}", self.user, self.name))
    }

    /// Claims so many addresses, each the one after the last.
    ///
    /// # Errors
    /// As [`Fabric::claim`]; none is then claimed.
    pub fn claim_from(&self, first: Gid, count: u32) -> Result<Vec<Claim>, ClaimError> {
        let first = u128::from_be_bytes(first.0);
        let gids = (0..count).map(|nth| Gid(first.wrapping_add(nth.into()).to_be_bytes()));
        gids.map(|gid| self.claim(gid)).collect()
    }

    /// Claims so many link-local addresses that are free: by a number, the process's for one, and by others if those are
    /// another's, as where the processes of several containers share a network.
    ///
    /// # Errors
    /// As [`Fabric::claim`].
    pub fn claim_free(&self, number: u32, count: u32) -> Result<Vec<Claim>, ClaimError> {
        let [a, b, c, d] = number.to_be_bytes();
        let mut attempt = 0;
        loop {
            let first = Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x0E, 0xFA, attempt, a, b, c, d, 1]);
            match self.claim_from(first, count) {
                Err(error) if error.is_taken() && attempt < u8::MAX => attempt += 1,
                claims => return claims,
            }
        }
    }

    /// Claims an address, until what it gives is dropped, or the process ends, however it does.
    ///
    /// # Errors
    /// [`ClaimError`], if another has it, or there can be no socket.
    pub fn claim(&self, gid: Gid) -> Result<Claim, ClaimError> {
        let socket = self.address(&gid).and_then(|address| Socket::bound(&address));
        match socket {
            Ok(socket) => Ok(Claim { gid, fabric: self.clone(), socket }),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                Err(ClaimError { gid, fabric: self.name.clone(), errno })
            }
        }
    }
}

/// An address that is this process's alone, and the socket that its frames come to.
#[derive(Debug)]
pub struct Claim {
    gid: Gid,
    fabric: Fabric,
    socket: Socket,
}

impl Claim {
    /// The address.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Where it is claimed.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }
}

/// A name that no fabric can have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricError {
    name: String,
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} cannot name a fabric: use 1 to {NAME} letters, digits, dots, dashes and underscores", self.name)
    }
}

impl Error for FabricError {}

/// An address that could not be claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimError {
    gid: Gid,
    fabric: String,
    errno: i32,
}

impl ClaimError {
    /// Whether another has it: claim another one.
    pub fn is_taken(&self) -> bool {
        self.errno == libc::EADDRINUSE
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gid, fabric, errno } = self;
        if self.is_taken() {
            write!(
                f,
                "another process has the address {gid} on the fabric {fabric:?}; claim another address, or one on another fabric"
            )
        } else {
            let error = io::Error::from_raw_os_error(*errno);
            write!(f, "there can be no socket for the address {gid} on the fabric {fabric:?}: {error}")
        }
    }
}

impl Error for ClaimError {}
