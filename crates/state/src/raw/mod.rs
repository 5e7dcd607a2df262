//! The unsafe part of the state objects.

pub(crate) mod tags;
