//! The one table of functions: what is required of the libraries, and what newer ones have besides.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::NonNull;

use super::dl::{self, Handle};
use super::error::{LoadError, NeedsNewer};
use super::versions::{Library, Node};
use crate::ffi::*;

/// A symbol of the table.
pub(crate) struct Symbol {
    pub(crate) name: &'static str,
    pub(crate) node: Node,
}

macro_rules! table {
    (
        required { $($r_library:ident $r_node:literal $r_since:expr;
            fn $required:ident($($r_arg:ident: $r_ty:ty),*) $(-> $r_ret:ty)?;)* }
        optional { $($o_library:ident $o_node:literal $o_since:expr;
            fn $optional:ident($($o_arg:ident: $o_ty:ty),*) -> $o_ret:ty;)* }
    ) => {
        /// The functions of both libraries, found once.
        pub(crate) struct Table {
            pub(super) handles: [Handle; 2],
            $($required: unsafe extern "C" fn($($r_ty),*) $(-> $r_ret)?,)*
            $($optional: Option<unsafe extern "C" fn($($o_ty),*) -> $o_ret>,)*
        }

        impl Table {
            pub(crate) const REQUIRED: &[Symbol] = &[$(Symbol {
                name: stringify!($required),
                node: Node { library: Library::$r_library, name: $r_node, since: $r_since },
            },)*];
            pub(crate) const OPTIONAL: &[Symbol] = &[$(Symbol {
                name: stringify!($optional),
                node: Node { library: Library::$o_library, name: $o_node, since: $o_since },
            },)*];

            /// Finds the functions.
            ///
            /// # Errors
            /// [`LoadError::Symbol`] for the first that is required and not there.
            pub(super) fn find(verbs: Handle, efa: Handle) -> Result<Self, LoadError> {
                let handle = |library| match library {
                    Library::Libibverbs => verbs,
                    Library::Libefa => efa,
                };
                let mut required = Self::REQUIRED.iter();
                let mut optional = Self::OPTIONAL.iter();
                let mut require = || {
                    let symbol = required.next().expect("as many as there are fields");
                    let handle = handle(symbol.node.library);
                    address(handle, symbol.name).ok_or_else(|| missing(handle, symbol))
                };
                let mut look = || {
                    let symbol = optional.next().expect("as many as there are fields");
                    address(handle(symbol.node.library), symbol.name)
                };
                Ok(Self {
                    handles: [verbs, efa],
                    // SAFETY: a function of that name, whose C signature the tests compare with this one.
                    $($required: unsafe {
                        core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($r_ty),*) $(-> $r_ret)?>(require()?)
                    },)*
                    $($optional: look().map(|address| {
                        // SAFETY: likewise.
                        unsafe {
                            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($o_ty),*) -> $o_ret>(address)
                        }
                    }),)*
                })
            }

            $(
                /// # Safety
                /// As C's function of this name demands.
                pub(crate) unsafe fn $required(&self, $($r_arg: $r_ty),*) $(-> $r_ret)? {
                    #[cfg(all(test, feature = "system"))]
                    super::called::note(stringify!($required));
                    // SAFETY: by the caller's word.
                    unsafe { (self.$required)($($r_arg),*) }
                }
            )*

            $(
                /// # Errors
                /// [`NeedsNewer`] if the library that is here has no such function.
                ///
                /// # Safety
                /// As C's function of this name demands.
                pub(crate) unsafe fn $optional(&self, $($o_arg: $o_ty),*) -> Result<$o_ret, NeedsNewer> {
                    let function = self.$optional.ok_or_else(|| self.needs(stringify!($optional)))?;
                    #[cfg(all(test, feature = "system"))]
                    super::called::note(stringify!($optional));
                    // SAFETY: by the caller's word.
                    Ok(unsafe { function($($o_arg),*) })
                }
            )*

            /// Whether an optional function is there.
            pub(crate) fn has(&self, name: &str) -> bool {
                match name {
                    $(stringify!($optional) => self.$optional.is_some(),)*
                    _ => false,
                }
            }

            /// Each function's C name, and how C writes its type.
            #[cfg(all(test, feature = "system"))]
            pub(crate) fn signatures() -> Vec<(&'static Symbol, String)> {
                use crate::ffi::layout::CType;
                let required = [$((vec![$(<$r_ty>::c_type()),*], returns!($($r_ret)?)),)*];
                let optional = [$((vec![$(<$o_ty>::c_type()),*], <$o_ret>::c_type()),)*];
                let symbols = Self::REQUIRED.iter().chain(Self::OPTIONAL);
                let types = required.into_iter().chain(optional);
                symbols.zip(types).map(|(symbol, (args, ret))| (symbol, format!("{ret}({})", args.join(", ")))).collect()
            }
        }
    };
}

#[cfg(all(test, feature = "system"))]
macro_rules! returns {
    () => {
        <()>::c_type()
    };
    ($ret:ty) => {
        <$ret>::c_type()
    };
}

table! {
    required {
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_get_device_list(count: *mut c_int) -> *mut *mut IbvDevice;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_free_device_list(list: *mut *mut IbvDevice);
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_get_device_name(device: *mut IbvDevice) -> *const Char;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_get_device_guid(device: *mut IbvDevice) -> Be64;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_close_device(context: *mut IbvContext) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_query_device(context: *mut IbvContext, attr: *mut IbvDeviceAttr) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_query_port(context: *mut IbvContext, port: u8, attr: *mut CompatIbvPortAttr) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_query_gid(context: *mut IbvContext, port: u8, index: c_int, gid: *mut IbvGid) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int;
        Libibverbs "IBVERBS_1.8" Some(28);
        fn ibv_reg_mr_iova2(pd: *mut IbvPd, addr: *mut c_void, length: usize, iova: u64, access: u32) -> *mut IbvMr;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_create_ah(pd: *mut IbvPd, attr: *mut IbvAhAttr) -> *mut IbvAh;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_destroy_ah(ah: *mut IbvAh) -> c_int;
        Libibverbs "IBVERBS_1.0" None;
        fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel;
        Libibverbs "IBVERBS_1.0" None;
        fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_get_cq_event(channel: *mut IbvCompChannel, cq: *mut *mut IbvCq, cq_context: *mut *mut c_void) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_ack_cq_events(cq: *mut IbvCq, count: c_uint);
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_get_async_event(context: *mut IbvContext, event: *mut IbvAsyncEvent) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_ack_async_event(event: *mut IbvAsyncEvent);
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_modify_qp(qp: *mut IbvQp, attr: *mut IbvQpAttr, mask: c_int) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_query_qp(qp: *mut IbvQp, attr: *mut IbvQpAttr, mask: c_int, init: *mut IbvQpInitAttr) -> c_int;
        Libibverbs "IBVERBS_1.1" None;
        fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int;
        Libefa "EFA_1.1" Some(26);
        fn efadv_query_device(context: *mut IbvContext, attr: *mut EfadvDeviceAttr, len: u32) -> c_int;
        Libefa "EFA_1.1" Some(26);
        fn efadv_query_ah(ah: *mut IbvAh, attr: *mut EfadvAhAttr, len: u32) -> c_int;
        Libefa "EFA_1.1" Some(26);
        fn efadv_create_qp_ex(context: *mut IbvContext, attr: *mut IbvQpInitAttrEx, efa: *mut EfadvQpInitAttr, len: u32) -> *mut IbvQp;
    }
    optional {
        Libibverbs "IBVERBS_1.12" Some(34);
        fn ibv_reg_dmabuf_mr(pd: *mut IbvPd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut IbvMr;
        Libibverbs "IBVERBS_1.16" Some(62);
        fn ibv_query_port_speed(context: *mut IbvContext, port: u32, speed: *mut u64) -> c_int;
        Libibverbs "IBVERBS_1.13" Some(35);
        fn ibv_is_fork_initialized() -> ForkStatus;
        Libibverbs "IBVERBS_1.6" Some(26);
        fn ibv_qp_to_qp_ex(qp: *mut IbvQp) -> *mut IbvQpEx;
        Libefa "EFA_1.2" Some(43);
        fn efadv_create_cq(context: *mut IbvContext, attr: *mut IbvCqInitAttrEx, efa: *mut EfadvCqInitAttr, len: u32) -> *mut IbvCqEx;
        Libefa "EFA_1.2" Some(43);
        fn efadv_cq_from_ibv_cq_ex(cq: *mut IbvCqEx) -> *mut EfadvCq;
        Libefa "EFA_1.3" Some(50);
        fn efadv_query_mr(mr: *mut IbvMr, attr: *mut EfadvMrAttr, len: u32) -> c_int;
        Libefa "EFA_1.4" Some(59);
        fn efadv_query_qp_wqs(qp: *mut IbvQp, send: *mut EfadvWqAttr, recv: *mut EfadvWqAttr, len: u32) -> c_int;
        Libefa "EFA_1.4" Some(59);
        fn efadv_query_cq(cq: *mut IbvCq, attr: *mut EfadvCqAttr, len: u32) -> c_int;
        Libefa "EFA_1.5" Some(63);
        fn efadv_get_max_sq_depth(context: *mut IbvContext, attr: *mut EfadvSqDepthAttr, len: u32) -> c_int;
    }
}

impl Table {
    /// What an optional function needs.
    pub(crate) fn needs(&self, name: &'static str) -> NeedsNewer {
        let node = Self::OPTIONAL.iter().find(|symbol| symbol.name == name).expect("of the table").node;
        NeedsNewer { what: name, have: self.have(node.library), need: node }
    }

    /// A library's file, and the newest version node that it has.
    pub(crate) fn have(&self, library: Library) -> String {
        let handle = self.handles[library as usize];
        let known = MARKS.iter().filter(|mark| mark.node.library == library);
        match known.rev().find(|mark| address(handle, mark.name).is_some()) {
            Some(mark) => format!("{} at {}", mark.node, file(handle, mark.name)),
            None => library.to_string(),
        }
    }
}

/// A symbol of each version node, in their order: what tells how new a library is.
const MARKS: &[Symbol] = &[
    mark(Library::Libibverbs, "ibv_get_device_list", "IBVERBS_1.1", None),
    mark(Library::Libibverbs, "ibv_reg_mr_iova2", "IBVERBS_1.8", Some(28)),
    mark(Library::Libibverbs, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", Some(34)),
    mark(Library::Libibverbs, "ibv_is_fork_initialized", "IBVERBS_1.13", Some(35)),
    mark(Library::Libibverbs, "ibv_query_qp_data_in_order", "IBVERBS_1.14", Some(36)),
    mark(Library::Libibverbs, "ibv_reg_mr_ex", "IBVERBS_1.15", Some(59)),
    mark(Library::Libibverbs, "ibv_query_port_speed", "IBVERBS_1.16", Some(62)),
    mark(Library::Libefa, "efadv_query_device", "EFA_1.1", Some(26)),
    mark(Library::Libefa, "efadv_create_cq", "EFA_1.2", Some(43)),
    mark(Library::Libefa, "efadv_query_mr", "EFA_1.3", Some(50)),
    mark(Library::Libefa, "efadv_query_cq", "EFA_1.4", Some(59)),
    mark(Library::Libefa, "efadv_get_max_sq_depth", "EFA_1.5", Some(63)),
    mark(Library::Libefa, "efadv_qp_from_ibv_qp_ex", "EFA_1.6", Some(64)),
    mark(Library::Libefa, "efadv_create_comp_cntr", "EFA_1.7", Some(65)),
];

const fn mark(library: Library, name: &'static str, node: &'static str, since: Option<u32>) -> Symbol {
    Symbol { name, node: Node { library, name: node, since } }
}

fn address(handle: Handle, name: &str) -> Option<NonNull<c_void>> {
    handle.symbol(&c_string(name))
}

/// A name of the table's as a C string.
pub(super) fn c_string(name: &str) -> std::ffi::CString {
    std::ffi::CString::new(name).expect("no name of the table's has a zero byte")
}

fn missing(handle: Handle, symbol: &Symbol) -> LoadError {
    // Any function of it tells where the library lies.
    let known = Table::REQUIRED.iter().filter(|other| other.node.library == symbol.node.library);
    let file = known.filter(|other| address(handle, other.name).is_some()).map(|other| file(handle, other.name)).next();
    LoadError::Symbol {
        file: file.unwrap_or_else(|| symbol.node.library.to_string()),
        symbol: symbol.name,
        node: symbol.node,
    }
}

/// The file that a library lies in.
fn file(handle: Handle, symbol: &str) -> String {
    let path = address(handle, symbol).and_then(dl::file_of);
    // Its full name has its version.
    let path = path.map(|path| path.canonicalize().unwrap_or(path));
    path.map_or_else(|| "a file that the loader does not name".to_owned(), |path| path.display().to_string())
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;

    #[test]
    fn each_symbol_is_in_the_version_node_that_the_table_says() {
        let table = super::super::table().unwrap();
        let mut found = 0;
        for symbol in Table::REQUIRED.iter().chain(Table::OPTIONAL).chain(MARKS) {
            let handle = table.handles[symbol.node.library as usize];
            let Some(address) = address(handle, symbol.name) else { continue };
            let versioned = handle.versioned(&c_string(symbol.name), &c_string(symbol.node.name));
            assert_eq!(versioned, Some(address), "{} is not in {}", symbol.name, symbol.node.name);
            found += 1;
        }
        assert!(found >= Table::REQUIRED.len());
    }

    #[test]
    fn what_an_older_library_lacks_is_told_with_what_is_here_and_what_is_needed() {
        let error = super::super::table().unwrap().needs("efadv_query_cq").to_string();
        for part in ["efadv_query_cq", "EFA_1.4 (rdma-core 59)", "libefa.so.1", "here is EFA_1.", "ibverbs-providers"] {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }
}
