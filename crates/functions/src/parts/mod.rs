//! Parts that several functions are made of: which ports are inside, address ranges, packets that functions answer with,
//! tables whose entries die of age, and fragments that follow their first piece.

pub(crate) mod aged;
pub(crate) mod answer;
pub(crate) mod fragments;
pub mod prefix;
pub(crate) mod scope;
#[cfg(test)]
pub(crate) mod show;
pub(crate) mod sides;

pub(crate) use aged::Aged;
pub(crate) use fragments::{Fate, Fragments};
pub use prefix::{Prefix, PrefixError};
pub(crate) use sides::{Side, Sides};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
