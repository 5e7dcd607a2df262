//! Control: from a plan file to a running plan and back to figures.
//!
//! ```text
//!  plan file ─▶ PlanFile ─▶ Plan ─▶ Compiled ─▶ (runtime) ─▶ RunReport
//!   text         inert      checked  steering chosen           table, JSON
//! ```
//!
//! Control knows no function: a [`Catalog`] of those that can be named is passed in. It prints nothing, and writes no file but a
//! run's control socket and snapshots ([`live`]); errors are [`Problem`]s that carry their place and what to write instead.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod certify;
pub mod compile;
mod course;
pub mod explain;
pub mod facts;
pub mod filter;
pub mod frames;
pub mod live;
pub mod machine;
pub mod memory;
pub mod model;
mod overridden;
pub mod plan;
pub mod plan_file;
pub mod plan_text;
pub mod profile_run;
pub mod report;
pub mod tune;
mod written;

pub use braid_profile as profile;
pub use braid_runtime as runtime;

pub use catalog::{Catalog, DefaultSplit, Entry};
pub use compile::{Carry, Compiled};
pub use explain::{Explanation, explain};
pub use plan::{Link, Plan};
pub use plan_file::{PlanFile, Problem};
pub use report::RunReport;

/// Which pages buffers, tables and objects ask for.
pub use braid_runtime::HugePages;

/// Most packets in a batch unless the plan says otherwise.
pub const BATCH_DEFAULT: i64 = 128;
/// Packet sets of one group over all workers unless the plan says otherwise.
pub const SETS_DEFAULT: i64 = 1_000_000;
