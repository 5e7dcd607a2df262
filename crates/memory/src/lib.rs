//! Large zeroed memory regions on the largest pages that the machine offers.
//!
//! Both `packet` (buffers) and `stm` (state) build on this crate, while they know nothing of each other. It is a separate
//! crate because only it may call `mmap`. A [`Region`] is zeroed, lives until dropped, and never moves. It is either
//! anonymous or has a descriptor by which another process can map it again ([`Region::shared`]).
//!
//! A [`Region`] hands out no slices: the crate that builds on it defines who may access which byte. [`Bytes`] is a region
//! with one owner, used as plain bytes.
#![deny(unsafe_code)]

mod raw;

pub use raw::cycles::{cycles, thread_time};
pub use raw::region::{Backing, Bytes, Error, HugePages, Region, prefetch_read, prefetch_second_level, prefetch_write};
