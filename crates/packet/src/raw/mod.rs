//! The unsafe part: buffers, the records that own them, and buffers in the hands of devices.

pub(crate) mod fours;
pub(crate) mod held;
pub(crate) mod loan;
pub(crate) mod order;
pub(crate) mod slab;
pub(crate) mod walk;
