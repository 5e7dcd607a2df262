//! Wrappers around sources and sinks: fault injection, and taps that record what passes.

mod fault;
mod tap;

pub use fault::{FaultCounters, FaultReport, FaultSource, Faults};
pub use tap::{TapReport, TapSink, TapSource};
