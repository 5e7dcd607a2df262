//! The unsafe part: buffers, and the records that own them.

pub(crate) mod held;
pub(crate) mod slab;
