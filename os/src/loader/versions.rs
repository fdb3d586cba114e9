//! Which version of the libraries has what: their version nodes, and the releases of rdma-core that brought them.

#![forbid(unsafe_code)]

use core::fmt;

/// One of the two libraries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Library {
    /// The verbs.
    Libibverbs,
    /// EFA's provider for them, with calls of its own.
    Libefa,
}

impl Library {
    /// The versioned name that it is opened by.
    pub const fn soname(self) -> &'static str {
        match self {
            Self::Libibverbs => "libibverbs.so.1",
            Self::Libefa => "libefa.so.1",
        }
    }

    /// The variable that names another file.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Libibverbs => "EFA_OS_LIBIBVERBS",
            Self::Libefa => "EFA_OS_LIBEFA",
        }
    }

    /// Debian's package that it is in.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Libibverbs => "libibverbs1",
            Self::Libefa => "ibverbs-providers",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.soname())
    }
}

/// A version node of a library, and the first rdma-core that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Whose.
    pub library: Library,
    /// Its name in the library's symbol table, `EFA_1.4` for one.
    pub name: &'static str,
    /// The release of rdma-core, `None` for one older than releases of that count.
    pub since: Option<u32>,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            Some(release) => write!(f, "{} (rdma-core {release})", self.name),
            None => f.write_str(self.name),
        }
    }
}
