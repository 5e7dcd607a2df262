//! Large zeroed memory regions on the largest pages that the machine offers.
//!
//! `packet` (buffers) and `stm` (state), which know nothing of each other, both build on this crate; it is separate because only it
//! may call `mmap`. A [`Region`] is zeroed, lives until dropped, and never moves; it is anonymous, or has a descriptor by which
//! another process can map it again ([`Region::shared`]).
//!
//! A [`Region`] hands out no slices: who may touch which byte is the contract of the crate that builds on it. [`Bytes`] is a
//! region with one owner, used as plain bytes.

mod raw;

pub use raw::cycles::{cycles, thread_time};
pub use raw::region::{Backing, Bytes, Error, HugePages, Region, prefetch_read, prefetch_second_level, prefetch_write};
