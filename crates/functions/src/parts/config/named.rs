//! Kinds of things that state stores as a number and reports show by name.

/// Declares an enum of unit variants numbered from 0, each with its name. The first must be `Unknown`, which stands for every
/// number not assigned to a variant.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $kind:ident; $($variant:ident $name:literal,)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum $kind { $($variant,)* }

        impl $kind {
            /// All variants.
            pub const ALL: &[$kind] = &[$($kind::$variant,)*];

            /// The variant with this number.
            pub fn from_number(number: u8) -> $kind {
                $kind::ALL.get(usize::from(number)).copied().unwrap_or($kind::Unknown)
            }

            /// The variant's name in reports.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }
        }
    };
}

pub(crate) use named;
