//! All `unsafe` code of this crate: the memory of objects, and references to objects that outlive a borrow.
pub(crate) mod object;
