//! From a plan to running workers: the batch loop, retries, expiry, periods, and the recording of what happened.
//!
//! ```text
//!  RxQueue ─▶ Worker::step: receive · parse · per function { keys · look-up · handlers · commit } · send · expire ─▶ TxQueue
//! ```
//!
//! [`Plan`] is inert; [`launch`](launch::launch) makes it live. A worker owns everything it touches per packet; workers share
//! only state objects (through transactions), the [`Timeline`] and, in replays that keep an order, how far each of them is.
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
pub use worker::{Ended, ListedSet, Parts, Step, Worker};

pub use braid_io as io;
pub use braid_memory as memory;
pub use braid_memory::{HugePages, thread_time};
pub use braid_nf as nf;
pub use braid_steer as steer;
pub use braid_stm::Access;
