//! The unsafe part of the state objects.
#![allow(unsafe_code)]

pub(crate) mod records;
pub(crate) mod tags;
