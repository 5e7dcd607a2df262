//! What tests of several functions use.

pub(crate) mod injective;
pub(crate) mod refuse;
pub(crate) mod show;
