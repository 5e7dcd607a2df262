//! Packets that never leave memory: replay for benchmarks, and sinks that count or collect.

mod collect;
mod null;
mod renewal;
mod replay;

pub use collect::{Collected, CollectedPacket, MemorySink};
pub use null::NullSink;
pub use renewal::Renewal;
pub use replay::{Repeat, ReplaySource};
