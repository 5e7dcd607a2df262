//! Packets: where their bytes are, which metadata they have, and how headers are read and changed.
//!
//! A packet's bytes are in a [`Pool`] of buffers; a [`Batch`] holds what one receive returned as dense 16-byte [`Record`]s
//! and, apart from them, the metadata that the chain declared ([`fields`]). A network function sees one [`Packet`] at a time.
//!
//! Invariants: a buffer belongs to exactly one batch, frame or free list. No accessor panics, whatever the bytes are.
//! This crate knows nothing of state, transactions or devices.

pub mod address;
pub mod batch;
pub mod checksum;
pub mod crc32c;
mod edit;
pub mod fields;
mod flagged;
pub mod headers;
pub mod key;
mod lines;
mod metas;
pub mod packet;
pub mod parse;
pub mod pool;
mod port_set;
mod raw;
pub mod record;
pub mod segments;
#[cfg(test)]
mod testing;
mod undo;

pub use address::{IpAddress, MacAddress};
pub use batch::{BATCH_MAX, Batch, Frame, FrameInfo};
pub use edit::{Exchange, PLAIN};
pub use fields::{Field, FieldDecl, FieldError, Layout, StageUse};
pub use flagged::Flagged;
pub use key::{FieldId, KeyClass, KeyError, KeyExtractor, KeyHash, KeyShape, Keys, SetDef, SetKey};
pub use lines::{Line, LinedFrame, Lines};
pub use packet::{Embedded, EmbeddedMut, IpVersion, Packet, Translated};
pub use parse::{Parsed, parse, protocol};
pub use pool::{Buffers, Pool, PoolConfig};
pub use port_set::PortSet;
pub use raw::loan::{LendableRegion, Lent, Loans};
pub use raw::order::{Lineup, Order};
pub use raw::walk::{Turn, Walk};
pub use record::{Flags, Link, Port, Record};
pub use segments::{Segments, Tagging};
pub use undo::Undo;
