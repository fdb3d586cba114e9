//! The bytes that travel between hosts: addresses, the exchange, grants.
//!
//! Each form has two types. What may arrive is a fixed number of bytes (`…Bytes`, `…Frame`) and promises
//! nothing; what is valid (`EndpointInfo`, `Hello`, …) comes out of its one parser, which is total: any bytes
//! give a value or a [`ParseError`]. What a parser accepted is written back as the same bytes.
//!
//! | form | bytes | made by |
//! |---|---|---|
//! | [`Hello`] | 60 | this crate: address, features, limits, incarnation |
//! | [`Ready`] | 44 | this crate: "I have resolved you" |
//! | [`Grant`] | 40 | this crate: a remote key and what it opens |
//! | [`Window`] | 72 | this crate: a window of the fabric `efa` |
//! | [`EndpointInfo`] | 24 | the PyPI package `efa` |
//! | [`LibfabricAddress`] | 32, or text | libfabric |
//!
//! This crate's frames start with [`Frame`]'s magic, a version and their length, and are in network order.

#![forbid(unsafe_code)]

mod endpoint;
mod error;
mod grant;
mod header;
mod hello;
mod libfabric;
mod ready;
mod window;

pub use endpoint::{EndpointBytes, EndpointInfo};
pub use error::{Field, Frame, ParseError};
pub use grant::{Grant, GrantFrame};
pub use hello::{Features, Hello, HelloFrame};
pub use libfabric::{LibfabricAddress, LibfabricBytes};
pub use ready::{Ready, ReadyFrame};
pub use window::{Window, WindowFrame};
