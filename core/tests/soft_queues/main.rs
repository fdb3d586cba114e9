//! The software device, driven as raw hardware: entries are written as bytes into rings, doorbells rung, and
//! completions compared byte for byte. Nothing of core's own posting code is used here.

mod bytes;
mod control;
mod counters;
mod datagrams;
mod driver;
mod given;
mod lives;
mod order;
mod overruns;
mod requester;
mod responder;
mod sub_cqs;
mod threads;
#[path = "../common/transitions.rs"]
mod transitions;
mod wide;
