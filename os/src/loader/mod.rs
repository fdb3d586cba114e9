//! The libraries, opened when they are first asked for and never closed.
//!
//! | file | holds |
//! |---|---|
//! | `dl` | the dynamic loader's calls |
//! | `table` | the functions, each with the version node that brings it |
//! | `versions` | the libraries and their version nodes |
//! | `error` | what is missing, and what to install |
//! | `called` | which functions were called (feature `system`, tests only) |

#[cfg(all(test, feature = "system"))]
pub(crate) mod called;
pub mod dl;
mod error;
mod table;
mod versions;

use std::ffi::OsString;
use std::sync::OnceLock;

use dl::Handle;
pub use error::{LoadError, NeedsNewer};
pub(crate) use table::Table;
pub use versions::{Library, Node};

/// The functions of both libraries. The first call opens them; threads may race for it.
///
/// # Errors
/// [`LoadError`]; the next call tries again.
pub(crate) fn table() -> Result<&'static Table, LoadError> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    // Two threads may both get here: the loader counts, and opens each library once.
    let verbs = open(Library::Libibverbs)?;
    let efa = open(Library::Libefa)?;
    let found = Table::find(verbs, efa)?;
    Ok(TABLE.get_or_init(|| found))
}

fn open(library: Library) -> Result<Handle, LoadError> {
    open_as(library, dl::named(library.variable()))
}

/// A file's name need not be UTF-8: it is taken as it is.
fn open_as(library: Library, named: Option<OsString>) -> Result<Handle, LoadError> {
    let name = named.unwrap_or_else(|| library.soname().into());
    let tried = || name.to_string_lossy().into_owned();
    Handle::open(&name).map_err(|reason| LoadError::Library { library, tried: tried(), reason })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told_with_its_path_its_package_and_its_variable() {
        let error = open_as(Library::Libefa, Some("/nowhere/libefa.so.1".into())).unwrap_err();
        let text = error.to_string();
        for part in ["/nowhere/libefa.so.1", "No such file", "ibverbs-providers", "EFA_OS_LIBEFA"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn a_name_that_is_no_utf_8_is_tried_as_it_is_and_not_passed_over() {
        let name = OsString::from_vec(b"/nowhere/lib\xFFefa.so.1".to_vec());
        let text = open_as(Library::Libefa, Some(name)).map(drop).unwrap_err().to_string();
        assert!(text.contains("/nowhere/lib\u{FFFD}efa.so.1") && text.contains("No such file"), "{text}");
    }

    #[test]
    fn a_library_without_a_required_symbol_is_told_with_the_node_that_brings_it() {
        // Neither of the two, and on every system.
        let libc = open_as(Library::Libibverbs, Some("libc.so.6".into())).unwrap();
        let Err(error) = Table::find(libc, libc) else { panic!("libc has the verbs") };
        let text = error.to_string();
        for part in ["ibv_get_device_list", "IBVERBS_1.1", "libibverbs1", "EFA_OS_LIBIBVERBS"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[cfg(feature = "system")]
    #[test]
    fn threads_that_race_for_the_libraries_find_the_same_ones() {
        let tables: Vec<_> = std::thread::scope(|scope| {
            let racing: Vec<_> = (0..8).map(|_| scope.spawn(|| core::ptr::from_ref(table().unwrap()).addr())).collect();
            racing.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tables.iter().all(|table| *table == tables[0]));
    }
}
