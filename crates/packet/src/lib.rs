//! Packets: where their bytes are stored, which metadata they carry, and how their headers are read and changed.
//!
//! The bytes of a packet are in a [`Pool`] of buffers. A [`Batch`] holds the packets of one receive as dense 16-byte
//! [`Record`]s and, separately, the metadata that the chain declared ([`fields`]). A network function sees one [`Packet`] at
//! a time.
//!
//! Invariants: a buffer belongs to exactly one batch, frame, free list or set of loans. No accessor panics, whatever the
//! bytes are. This crate knows nothing of state, transactions or devices.
#![deny(unsafe_code)]

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
pub mod prefix;
mod raw;
pub mod record;
pub mod segments;
pub mod services;
#[cfg(test)]
mod testing;
pub mod time;
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
pub use prefix::{Prefix, PrefixError};
pub use raw::loan::{LendableRegion, Lent, Loans};
pub use raw::order::{Lineup, Order};
pub use raw::walk::{Turn, Walk};
pub use record::{Flags, Link, Port, Record};
pub use segments::{Segments, Tagging};
pub use undo::Undo;
