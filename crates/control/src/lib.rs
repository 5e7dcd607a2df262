//! The control plane: turns a plan file into a running plan, and the run's counters into reports.
//!
//! ```text
//!  plan file ─▶ PlanFile ─▶ Plan ─▶ Compiled ─▶ (runtime) ─▶ RunReport
//!   text         inert      checked  steering chosen           table, JSON
//! ```
//!
//! Control knows no network function itself: the caller passes in a [`Catalog`] of the functions that a plan may name. It prints
//! nothing and writes no files except a run's control socket and snapshots ([`live`]). Errors are [`Problem`]s, which carry
//! their position in the plan file and a suggested correction.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod certify;
pub mod compile;
pub mod explain;
pub mod facts;
pub mod filter;
pub mod frames;
pub mod live;
pub mod machine;
pub mod memory;
pub mod model;
pub mod plan;
pub mod profile_run;
pub mod report;
pub mod tune;

pub use braid_profile as profile;
pub use braid_runtime as runtime;

pub use self::plan::file::{PlanFile, Problem};
pub use catalog::{Catalog, DefaultSplit, Entry};
pub use compile::{Carry, Compiled};
pub use explain::{Explanation, explain};
pub use plan::{Plan, PlannedFunction};
pub use report::RunReport;

/// Page policy for packet buffers, tables and state objects.
pub use braid_runtime::HugePages;

/// Default for the maximum number of packets in a batch.
pub const BATCH_DEFAULT: i64 = 256;
/// Default capacity for the packet sets of one group of functions, over all workers.
pub const SETS_DEFAULT: i64 = 1_000_000;
