//! Sources and sinks around other sources and sinks: faults, and a look at what passes.

mod fault;
mod tap;

pub use fault::{FaultCounters, FaultReport, FaultSource, Faults};
pub use tap::{TapReport, TapSink, TapSource};
