//! The one macro that declares what C's headers have, and what it registers for the comparison with them.

#![forbid(unsafe_code)]

/// Declares structs and constants of C, and registers them: none can be declared and not compared.
///
/// `=> 59` after a field or a constant says that headers have it from that rdma-core on, `until 59` after a struct that it
/// has more fields from there on, which are of no use here. A struct whose C name is not
/// its own gives it as a string.
macro_rules! layouts {
    (
        $(
            $(#[$doc:meta])*
            struct $name:ident = $c:literal $(=> $since:literal)? $(until $until:literal)? {
                $($field:ident: $ty:ty $(=> $field_since:literal)?,)*
            }
        )*
        $(const { $($constant:ident: $constant_ty:ty = $value:expr $(=> $constant_since:literal)?;)* })?
    ) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name {
                $(pub(crate) $field: $ty,)*
            }

            #[cfg(all(test, feature = "system"))]
            impl super::layout::CType for $name {
                fn c_type() -> String {
                    $c.to_owned()
                }
            }
        )*

        $($(pub(crate) const $constant: $constant_ty = $value;)*)?

        /// What this file declares, for the comparison.
        #[cfg(all(test, feature = "system"))]
        pub(super) fn registered() -> super::layout::Registered {
            super::layout::Registered {
                structs: vec![$(super::layout::Struct {
                    c: $c,
                    since: 0 $(+ $since)?,
                    until: [u32::MAX $(, $until)?].into_iter().min().unwrap_or(u32::MAX),
                    size: size_of::<$name>(),
                    align: align_of::<$name>(),
                    fields: vec![$(super::layout::Field {
                        name: stringify!($field),
                        since: 0 $(+ $field_since)?,
                        offset: core::mem::offset_of!($name, $field),
                        size: super::layout::size_of_field(|of: &$name| &of.$field),
                    },)*],
                },)*],
                constants: vec![$($(super::layout::Constant {
                    name: stringify!($constant),
                    since: 0 $(+ $constant_since)?,
                    value: $constant as i64,
                },)*)?],
            }
        }
    };
}

pub(super) use layouts;

/// What a file of declarations has.
#[cfg(all(test, feature = "system"))]
pub(crate) struct Registered {
    pub(crate) structs: Vec<Struct>,
    pub(crate) constants: Vec<Constant>,
}

#[cfg(all(test, feature = "system"))]
pub(crate) struct Struct {
    pub(crate) c: &'static str,
    pub(crate) since: u32,
    /// Headers from this release on have more fields.
    pub(crate) until: u32,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) fields: Vec<Field>,
}

#[cfg(all(test, feature = "system"))]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) since: u32,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

#[cfg(all(test, feature = "system"))]
pub(crate) struct Constant {
    pub(crate) name: &'static str,
    pub(crate) since: u32,
    pub(crate) value: i64,
}

#[cfg(all(test, feature = "system"))]
pub(crate) fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// How C writes a type: so that signatures are compared too.
#[cfg(all(test, feature = "system"))]
pub(crate) trait CType {
    fn c_type() -> String;
}

#[cfg(all(test, feature = "system"))]
mod c_types {
    use core::ffi::{c_int, c_void};

    use super::CType;

    macro_rules! c_types {
        ($($rust:ty = $c:literal;)*) => {
            $(impl CType for $rust {
                fn c_type() -> String {
                    $c.to_owned()
                }
            })*
        };
    }

    c_types! {
        () = "void";
        c_void = "void";
        u8 = "uint8_t";
        u16 = "uint16_t";
        u32 = "uint32_t";
        u64 = "uint64_t";
        usize = "size_t";
        c_int = "int";
    }

    impl<T: CType> CType for *mut T {
        fn c_type() -> String {
            format!("{} *", T::c_type())
        }
    }

    impl<T: CType> CType for *const T {
        fn c_type() -> String {
            format!("const {} *", T::c_type())
        }
    }
}
