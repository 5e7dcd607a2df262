//! Kinds of things that state keeps as a number and reports show by a name.

/// An enum of unit variants numbered from 0, each with its name; the first one is `Unknown`, for every number that is no other's.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $kind:ident; $($variant:ident $name:literal,)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum $kind { $($variant,)* }

        impl $kind {
            /// All of them.
            pub const ALL: &[$kind] = &[$($kind::$variant,)*];

            /// The one with this number.
            pub fn from_number(number: u8) -> $kind {
                $kind::ALL.get(usize::from(number)).copied().unwrap_or($kind::Unknown)
            }

            /// Its name in reports.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }
        }
    };
}

pub(crate) use named;
