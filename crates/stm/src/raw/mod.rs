//! All `unsafe` of this crate: memory of objects and references to them that outlive a borrow.
pub(crate) mod object;
