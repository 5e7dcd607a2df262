//! The unsafe part: buffer bytes by number.

pub(crate) mod slab;
