//! Transactions over shared state: they let a sequential handler run on all cores.
//!
//! The algorithm is a lazy-clock LSA: single-version objects with a header word in front of the payload, invisible reads with
//! a read log, buffered writes, and locks that are held only during commit. A commit only *reads* the clock; a reader
//! advances it when it meets a newer version by another worker. So there is no cache line that every commit writes. For the
//! reasons and measurements see `docs/decisions/0001-transactions.md`.
//!
//! Invariants:
//! - Opacity: everything that a transaction has read so far was true at one instant, even in attempts that abort later.
//! - A worker never conflicts with itself; a handler that accesses no shared object costs a single test at commit.
//! - A [`Conflict`] poisons its transaction: if it is swallowed, the transaction cannot commit.
//! - After a bounded number of aborts a worker gets its turn ([`Tx::serialise`]), in order of request.
//!
//! This crate knows neither packets nor data structures: an object is a number of words in an [`Arena`]. All `unsafe` code is
//! in `raw/`.
#![deny(unsafe_code)]

mod arena;
mod boosted;
mod commit;
mod conflict;
mod domain;
mod header;
mod hooks;
mod log;
mod raw;
mod registry;
mod sync;
mod turn;
mod tx;

pub use arena::{Arena, ArenaInit};
pub use boosted::Boosted;
pub use braid_memory::{Backing, Error as MemoryError, HugePages};
pub use commit::{Committed, Holding};
pub use conflict::{Conflict, ConflictKind, ConflictReport, ObjectId, Op, Part};
pub use domain::{Domain, ObjectInfo, WORKERS_MAX};
pub use hooks::{Violation, YieldPoint};
pub use log::Savepoint;
pub use tx::{Access, Alone, Glance, PATIENCE, Solitude, Stats, Tx};
