//! The runtime: turns a plan into running workers, with the batch loop, retries, expiry, periodic ticks and recording.
//!
//! ```text
//!  RxQueue ─▶ Worker::step: receive · parse · per function { keys · look-up · handlers · commit } · send · expire ─▶ TxQueue
//! ```
//!
//! A [`Plan`] is inert data; [`launch`](launch::launch) starts a run from it. A worker owns everything it touches per packet. Workers
//! share only the state objects (accessed through transactions), the [`Timeline`] and, in replays that keep the input order, how far
//! each worker has got.
#![forbid(unsafe_code)]

pub mod attempt;
pub mod balance;
pub mod chain;
mod dispatch;
mod expiry;
pub mod launch;
pub mod live;
pub mod model;
pub mod observe;
pub mod pacing;
pub mod plan;
pub mod replay;
mod worker;

pub use self::chain::course::{Course, Direction, Full, Order, When};
pub use self::observe::counters::{Drops, PortCounters, WorkerCounters};
pub use self::observe::watchdog::Watchdog;
pub use self::pacing::clock::{Clock, Timeline};
pub use balance::{Balance, Balanced};
pub use chain::{Chain, ChainError, Sharing};
pub use dispatch::Dispatched;
pub use launch::{AtEnd, AtStart, Control, Report, RunError, launch};
pub use live::{Live, Seen};
pub use plan::{BuildError, Distribution, Plan, Time};
pub use worker::{
    CopiedSets, DESCRIBED_MAX, Ended, EndedEntries, ListedEntries, ListedSet, Parts, SetCursor, Step, Worker,
};

pub use braid_io as io;
pub use braid_memory as memory;
pub use braid_memory::{HugePages, thread_time};
pub use braid_nf as nf;
pub use braid_steer as steer;
pub use braid_stm::Access;
