//! All `unsafe` code of this crate: the memory of objects, and references to objects that outlive a borrow.
#![allow(unsafe_code)]

pub(crate) mod object;
