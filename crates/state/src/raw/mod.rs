//! The unsafe part of the state objects.

pub(crate) mod records;
pub(crate) mod tags;
