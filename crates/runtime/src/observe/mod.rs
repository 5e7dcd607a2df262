//! What a run tells about itself: counters, where time goes, conflicts, traces, records, and a watchdog.

pub mod aborts;
pub mod counters;
pub mod probe;
pub mod record;
pub mod trace;
pub(super) mod watchdog;
