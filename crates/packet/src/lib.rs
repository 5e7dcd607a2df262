//! Packets: where their bytes lie, what travels beside them, and how headers are read and changed.
//!
//! A packet's bytes lie in a [`Pool`] of buffers; a [`Batch`] holds what one receive returned as dense 16-byte [`Record`]s
//! and, apart from them, the metadata that the chain declared ([`fields`]). A network function sees one [`Packet`] at a time.
//!
//! Invariants: a buffer belongs to exactly one batch, frame or free list. No accessor panics, whatever the bytes are.
//! This crate knows nothing of state, transactions or devices.

pub mod batch;
pub mod fields;
pub mod packet;
pub mod pool;
mod raw;
pub mod record;

pub use batch::{BATCH_MAX, Batch, Frame, FrameInfo, Line, LinedFrame};
pub use fields::{Field, Layout};
pub use packet::{Packet, Undo};
pub use pool::{Buffers, Pool, PoolConfig};
pub use record::{Flags, Link, Port, Record};
