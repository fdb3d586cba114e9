//! Enumerations of C whose unknown values are kept as numbers, never a panic.

#![forbid(unsafe_code)]

/// An enum with the verbs' numbers and names, and a variant for all other numbers.
macro_rules! numbered {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $raw:ty, $what:literal {
            $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $text:literal;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
            /// A number this crate does not know.
            Unknown($raw),
        }

        impl $name {
            /// All that are known, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The verbs' number.
            pub const fn number(self) -> $raw {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Unknown(number) => number,
                }
            }

            /// What a verbs' number means.
            pub const fn from_number(number: $raw) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    _ => Self::Unknown(number),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)+
                    Self::Unknown(number) => write!(f, concat!("unknown ", $what, " {}"), number),
                }
            }
        }
    };
}

pub(crate) use numbered;
