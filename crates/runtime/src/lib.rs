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

pub mod aborts;
mod abreast;
pub mod attempt;
pub mod balance;
pub mod chain;
pub mod clock;
pub mod counters;
pub mod course;
mod dispatch;
pub mod exchange;
mod expiry;
mod gather;
mod idle;
pub mod launch;
pub mod live;
mod places;
pub mod plan;
pub mod probe;
pub mod record;
pub mod replay;
pub mod saved;
pub mod schedule;
pub mod trace;
mod turns;
pub mod virtual_time;
mod watchdog;
mod whole;
mod worker;

pub use balance::{Balance, Balanced};
pub use chain::{Chain, ChainError, Sharing};
pub use clock::{Clock, Timeline};
pub use counters::{Drops, PortCounters, WorkerCounters};
pub use course::{Course, Direction, Full, Order, When};
pub use dispatch::Dispatched;
pub use launch::{AtEnd, AtStart, Control, Report, RunError, launch};
pub use live::{Live, Seen};
pub use plan::{BuildError, Distribution, Plan, Time};
pub use watchdog::Watchdog;
pub use worker::{
    CopiedSets, DESCRIBED_MAX, Ended, EndedEntries, ListedEntries, ListedSet, Parts, SetCursor, Step, Worker,
};

pub use braid_io as io;
pub use braid_memory as memory;
pub use braid_memory::{HugePages, thread_time};
pub use braid_nf as nf;
pub use braid_steer as steer;
pub use braid_stm::Access;
