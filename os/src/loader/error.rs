//! Why the libraries cannot be used, or not for this.

#![forbid(unsafe_code)]

use core::fmt;

use super::versions::{Library, Node};

/// Why the libraries cannot be loaded.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// A library is not there, or cannot be opened.
    Library {
        /// Which.
        library: Library,
        /// The name or path that was tried.
        tried: String,
        /// What the loader said.
        reason: String,
    },
    /// A library lacks a symbol that all supported versions have.
    Symbol {
        /// The library's file.
        file: String,
        /// What it lacks.
        symbol: &'static str,
        /// The version node that brings it.
        node: Node,
    },
}

impl core::error::Error for LoadError {}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { library, tried, reason } => write!(
                f,
                "{library} cannot be loaded from `{tried}`: {reason}; install Debian's package {}, or let {} name the file",
                library.package(),
                library.variable()
            ),
            Self::Symbol { file, symbol, node } => write!(
                f,
                "{file} has no `{symbol}`, which comes with {node}: install a newer {}, or let {} name one",
                node.library.package(),
                node.library.variable()
            ),
        }
    }
}

/// The library that is here is older than what was asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeedsNewer {
    /// What was asked for.
    pub what: &'static str,
    /// The library that is here: its file, and the newest version node that it has.
    pub have: String,
    /// The version node that brings it.
    pub need: Node,
}

impl core::error::Error for NeedsNewer {}

impl fmt::Display for NeedsNewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library = self.need.library;
        write!(
            f,
            "{} needs {} of {library}, here is {}: install a newer {}, or let {} name one",
            self.what,
            self.need,
            self.have,
            library.package(),
            library.variable()
        )
    }
}
