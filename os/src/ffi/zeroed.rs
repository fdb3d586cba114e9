//! C's structs as C's callers make them: all zeros, then what is meant.

#![allow(unsafe_code)]

use super::*;

/// Structs of which zeros are a value.
///
/// # Safety
/// All zeros are a value of the type: integers, pointers, arrays and structs of these.
pub(crate) unsafe trait Zeroed: Sized {
    /// All zeros, the padding too.
    fn zeroed() -> Self {
        // SAFETY: by the implementer's word.
        unsafe { core::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($name:ident),*) => {
        // SAFETY: each has integers, raw pointers and arrays and structs of these only: read in `layouts!`.
        $(unsafe impl Zeroed for $name {})*
    };
}

zeroed!(
    IbvDeviceAttr,
    CompatIbvPortAttr,
    IbvGid,
    IbvAhAttr,
    IbvCqInitAttrEx,
    IbvAsyncEvent,
    IbvQpInitAttr,
    IbvQpInitAttrEx,
    IbvQpAttr,
    EfadvDeviceAttr,
    EfadvAhAttr,
    EfadvQpInitAttr,
    EfadvWqAttr,
    EfadvCqAttr,
    EfadvCqInitAttr,
    EfadvMrAttr,
    EfadvSqDepthAttr
);
