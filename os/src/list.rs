//! The RDMA devices that libibverbs lists, and which of them are EFA's.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_int};
use core::fmt;
use core::ptr::NonNull;
use std::ffi::OsStr;
use std::sync::Arc;

use efa_core::DataPath;

use crate::Error;
use crate::absent::Absent;
use crate::device::Device;
use crate::error::errno;
use crate::ffi::IbvDevice;
use crate::handle::Context;
use crate::loader::{self, Table};

/// The EFA devices of this machine, each open: at least one.
///
/// ```no_run
/// use efa_core::Context;
///
/// for device in efa_os::devices()? {
///     let ctx = Context::open(device);
///     println!("{} at {}: {:?}", ctx.name(), ctx.gid(), ctx.caps());
/// }
/// # Ok::<(), efa_os::Error>(())
/// ```
///
/// # Errors
/// [`Error::Load`] without the libraries, [`Error::NeedsNewer`] with libraries that are too old, [`Error::NoDevice`] where
/// there is none, and why; where none could be opened, what the first answered. [`list`] has them one by one.
pub fn devices() -> Result<Vec<Device>, Error> {
    let (mut found, mut others, mut refusal) = (Vec::new(), Vec::new(), None);
    for listed in list()? {
        match listed.open() {
            Ok(device) => found.push(device),
            Err(Error::NotEfa { device }) => others.push(device),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        _ if !found.is_empty() => Ok(found),
        Some(error) => Err(error),
        None => Err(Error::NoDevice { absent: Absent::here(), others }),
    }
}

/// All RDMA devices of this machine, EFA's or not; none of them open.
///
/// # Errors
/// [`Error::Load`] without the libraries.
pub fn list() -> Result<Vec<Listed>, Error> {
    let table = loader::table()?;
    let mut count: c_int = 0;
    // SAFETY: it writes the count, which is ours.
    let first = unsafe { table.ibv_get_device_list(&mut count) };
    let Some(first) = NonNull::new(first) else {
        let errno = errno();
        // A kernel without RDMA has no list.
        return match errno {
            libc::ENOSYS => Ok(Vec::new()),
            _ => Err(Error::Call { call: "ibv_get_device_list", device: "this machine".to_owned(), errno }),
        };
    };
    let list = Arc::new(List { table, first });
    let count = usize::try_from(count).unwrap_or(0);
    Ok((0..count).filter_map(|nth| list.nth(nth)).collect())
}

/// A list of libibverbs', freed when no device of it is needed any more.
struct List {
    table: &'static Table,
    first: NonNull<*mut IbvDevice>,
}

// SAFETY: the list is read only, and the verbs may be called from any thread.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    fn nth(self: &Arc<Self>, nth: usize) -> Option<Listed> {
        // SAFETY: within the list.
        let place = unsafe { self.first.add(nth) };
        // SAFETY: a device of the list, or null at its end.
        let device = NonNull::new(unsafe { place.read() })?;
        // SAFETY: of a list that is not freed.
        let name = unsafe { self.table.ibv_get_device_name(device.as_ptr()) };
        // SAFETY: a C string of the device's.
        let name = unsafe { CStr::from_ptr(name.cast()) }.to_string_lossy().into_owned();
        // SAFETY: of a list that is not freed.
        let guid = unsafe { self.table.ibv_get_device_guid(device.as_ptr()) }.number();
        Some(Listed { list: self.clone(), device, name, guid })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: a list of libibverbs', freed once; open devices do not need it.
        unsafe { self.table.ibv_free_device_list(self.first.as_ptr()) };
    }
}

/// An RDMA device that is not open. Names lie: whether it is an EFA, [`Listed::open`] says.
#[derive(Clone)]
pub struct Listed {
    list: Arc<List>,
    device: NonNull<IbvDevice>,
    name: String,
    guid: u64,
}

// SAFETY: it is read only, and its list keeps it.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

impl Listed {
    /// Its name, `rdmap0s6` for one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its node's GUID, as a number whose most significant byte comes first where it is written.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Opens it, by the data path that `EFA_OS_DATA_PATH` names (`direct` or `verbs`), or by the best that there is: direct
    /// where libefa tells where the device's queues are. [`Context::data_path`](efa_core::Context::data_path) says which.
    ///
    /// A completion queue may have several rings (sub-queues), of which libefa tells the first only, and not how many there are.
    /// On a device whose driver makes more than one, name `verbs`: the direct path would not see what is in the others.
    ///
    /// # Errors
    /// [`Error::NotEfa`] for a device of another kind, [`Error::NeedsNewer`] with libraries that are too old,
    /// [`Error::Variable`], or what the device answered.
    pub fn open(&self) -> Result<Device, Error> {
        self.open_by(path_of_environment()?)
    }

    /// Opens it by this data path.
    ///
    /// # Errors
    /// As [`Listed::open`].
    pub fn open_with(&self, path: DataPath) -> Result<Device, Error> {
        self.open_by(Some(path))
    }

    fn open_by(&self, path: Option<DataPath>) -> Result<Device, Error> {
        // SAFETY: of a list that is not freed.
        let context = unsafe { Context::open(self.list.table, self.device) };
        let failed = |call| move |errno| Error::Call { call, device: self.name.clone(), errno };
        Device::of(context.map_err(failed("ibv_open_device"))?, &self.name, self.guid, path)
    }
}

const PATH: &str = "EFA_OS_DATA_PATH";

fn path_of_environment() -> Result<Option<DataPath>, Error> {
    path_named(&std::env::var_os(PATH).unwrap_or_default())
}

fn path_named(value: &OsStr) -> Result<Option<DataPath>, Error> {
    match value.to_str() {
        Some("") => Ok(None),
        Some("direct") => Ok(Some(DataPath::Direct)),
        Some("verbs") => Ok(Some(DataPath::Verbs)),
        // What is no text either is told, and not passed over.
        _ => {
            let value = value.to_string_lossy().into_owned();
            Err(Error::Variable { name: PATH, value, accepted: "direct, verbs" })
        }
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").field("name", &self.name).field("guid", &format_args!("{:#018x}", self.guid)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn h05_a_data_path_is_named_as_it_is_shown_and_any_other_value_is_told() {
        for path in [DataPath::Direct, DataPath::Verbs] {
            assert_eq!(path_named(path.to_string().as_ref()), Ok(Some(path)));
        }
        assert_eq!(path_named(OsStr::new("")), Ok(None));
        for (value, shown) in [(&b"fast"[..], "fast"), (b"direct\xFF", "direct\u{FFFD}"), (b"Direct", "Direct")] {
            let error = path_named(OsStr::from_bytes(value)).unwrap_err().to_string();
            let parts = ["EFA_OS_DATA_PATH", shown, "direct, verbs"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
