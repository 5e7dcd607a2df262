//! Unsafe code: buffers, the records that own them, and buffers lent to devices.
#![allow(unsafe_code)]

pub(crate) mod fours;
pub(crate) mod loan;
pub(crate) mod order;
pub(crate) mod records;
pub(crate) mod slab;
pub(crate) mod walk;
