//! Transactions over shared state: what lets a sequential handler run on all cores.
//!
//! The algorithm is a lazy-clock LSA: single-version objects with a header word in front of the payload, invisible reads with a
//! read log, buffered writes, locks only while committing. The clock is only *read* by a commit; a reader advances it when it
//! meets a newer version of another worker, so there is no cache line that every commit writes. Why this algorithm, with
//! measurements: `docs/decisions/0001-transactions.md`.
//!
//! Invariants:
//! - Opacity: whatever a transaction has read so far was true at one instant, also in attempts that abort later.
//! - A worker never conflicts with itself; a handler that touches no shared object costs a single test at commit.
//! - A [`Conflict`] poisons its transaction: swallowing it cannot commit.
//! - After a bounded number of aborts a worker gets its turn ([`Tx::serialise`]), first come, first served.
//!
//! This crate knows no packets and no structures: an object is a number of words in an [`Arena`]. All `unsafe` is in `raw/`.

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
