//! The driver's library, opened when it is first asked for and never closed.
//!
//! | file | holds |
//! |---|---|
//! | `table` | the functions, each with the driver that brings it |
//! | `error` | what is missing, and what to do |
//! | `check` | a test: functions and numbers as NVIDIA's header has them |

#![allow(unsafe_code)]

#[cfg(test)]
mod check;
mod error;
mod table;

use std::ffi::OsString;
use std::sync::OnceLock;

use efa_os::dl::{self, Handle};
pub use error::{LoadError, NeedsDriver};
pub(crate) use table::Table;

/// The name that the library is opened by: that of its interface. `libcuda.so` may be a stub, for linking alone.
const SONAME: &str = "libcuda.so.1";
/// The variable that names another file.
const VARIABLE: &str = "EFA_CUDA_LIBCUDA";

/// The functions. The first call opens the library; threads may race for it.
///
/// # Errors
/// [`LoadError`]; the next call tries again.
pub(crate) fn table() -> Result<&'static Table, LoadError> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    let (library, name) = open_as(dl::named(VARIABLE))?;
    let found =
        Table::find(|symbol| library.symbol(symbol)).map_err(|symbol| LoadError::Symbol { file: name, symbol })?;
    Ok(TABLE.get_or_init(|| found))
}

/// A file's name need not be UTF-8: it is taken as it is.
fn open_as(named: Option<OsString>) -> Result<(Handle, String), LoadError> {
    let name = named.unwrap_or_else(|| SONAME.into());
    let tried = name.to_string_lossy().into_owned();
    // SAFETY: CUDA's driver, or what the user named in its place, whose promise it is.
    match unsafe { Handle::of(&name) } {
        Ok(library) => Ok((library, tried)),
        Err(reason) => Err(LoadError::Library { tried, reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told_with_its_path_its_variable_and_what_a_container_needs() {
        let text = open_as(Some("/nowhere/libcuda.so.1".into())).map(drop).unwrap_err().to_string();
        for part in ["/nowhere/libcuda.so.1", "No such file", "EFA_CUDA_LIBCUDA", "--gpus"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn a_library_without_a_required_function_is_told_with_the_functions_name() {
        let (libc, name) = open_as(Some("libc.so.6".into())).unwrap();
        let symbol = Table::find(|symbol| libc.symbol(symbol)).map(drop).unwrap_err();
        let text = LoadError::Symbol { file: name, symbol }.to_string();
        assert!(text.contains("libc.so.6") && text.contains("`cuInit`"), "{text}");
    }
}
