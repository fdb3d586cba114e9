//! Which fabric the environment asks for.

#![forbid(unsafe_code)]

use std::env;
use std::os::unix::ffi::OsStrExt;

use efa_core::fabric::{BadChoice, Choice, DISABLE_DIRECT, FABRIC};

/// The fabric that the environment asks for, by `EFA_FABRIC` or NVSHMEM's `NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT`, else the
/// default: see [`Choice::from_variables`]. A choice of the application's own, [`Choice::of`], is above it.
///
/// ```
/// # fn main() -> Result<(), efa_core::fabric::BadChoice> {
/// let choice = efa_os::fabric()?;
/// println!("the fabric is {choice}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`BadChoice`] if a variable says something else, which it shows.
pub fn fabric() -> Result<Choice, BadChoice> {
    let [fabric, disable_direct] = [FABRIC, DISABLE_DIRECT].map(env::var_os);
    Choice::from_variables(
        fabric.as_ref().map(|text| text.as_bytes()),
        disable_direct.as_ref().map(|text| text.as_bytes()),
    )
}
