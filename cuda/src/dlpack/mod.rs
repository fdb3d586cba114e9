//! Tensors of frameworks, as they hand them over: DLPack, versioned and as it was before.
//!
//! | file | holds |
//! |---|---|
//! | `abi` | C's structs |
//! | `extent` | which bytes a tensor has |
//! | `tensor` | an owner of one, whose deleter is called once |

pub mod abi;
mod extent;
mod tensor;

pub use extent::DlpackError;
pub use tensor::{HostTensor, Imported, Tensor};
