//! All figures of a run at one moment, in the form in which `braid stats`, `braid top`, metrics and the page read them.
//!
//! Every worker is seen between two of its batches, so `packets_in + packets_copied = packets_out + Σ dropped` holds in every
//! sample, not only at the end: [`Stats::missing`] is 0 or something is wrong.

mod take;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{Sets, Told, Transactions};

/// A run at one moment. Counts are since its begin.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Of the program that answers.
    pub version: String,
    /// Seconds since the workers began.
    pub seconds: f64,
    /// Whether any worker still runs.
    pub running: bool,
    /// Frames of the input.
    pub packets_in: u64,
    /// Packets beyond those: copies by flooding, and packets that functions made.
    pub packets_copied: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets that are neither sent nor dropped: always 0.
    pub missing: i64,
    /// Bytes received, as they were on the wire.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets that did not get out, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packet sets.
    pub sets: Sets,
    /// What functions have to tell, by function: counters of rules, backends. `braid stats` asks for all, metrics
    /// for numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, Told>,
    /// The functions, in the order of the chain.
    pub functions: Vec<Function>,
    /// Drops outside functions: by the source, the runtime and the sink.
    pub dropped_elsewhere: BTreeMap<String, BTreeMap<String, u64>>,
    /// By port.
    pub ports: Vec<PortStats>,
    /// By worker.
    pub workers: Vec<WorkerStats>,
    /// State objects.
    pub objects: Vec<Object>,
    /// Transactions.
    pub transactions: Transactions,
    /// Why attempts were taken back, the most frequent first.
    pub aborts: Vec<Abort>,
    /// Packet sets with the most packets, of a sample taken while somebody asks for times.
    pub top_sets: Vec<TopSet>,
    /// Connections by which somebody asks.
    #[serde(default)]
    pub connections: Connections,
}

/// Connections by which somebody asks: control socket, metrics and page together.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Those that had been silent for longest, ended to make room for others.
    pub ended_for_others: u64,
    /// Those refused because all others were at work.
    pub refused: u64,
}

/// One function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    /// Its name in the plan.
    pub name: String,
    /// Which function it is.
    pub kind: String,
    /// Packets that reached it.
    pub packets: u64,
    /// Those that it dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Nanoseconds per packet, of all workers, since somebody began to ask for times.
    pub ns_per_packet: Option<f64>,
}

impl Function {
    /// All that it dropped.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortStats {
    /// Its number.
    pub port: usize,
    /// Its interface; empty if it is none.
    #[serde(default)]
    pub name: String,
    /// Packets that came in by it.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets sent out by it.
    pub packets_out: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets that the kernel or the device dropped before a worker received them.
    #[serde(default)]
    pub missed: u64,
    /// Packets that its device had no room for, or that are too long for it.
    #[serde(default)]
    pub unsent: u64,
}

/// One worker and its receive queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number.
    pub worker: usize,
    /// `running`, `ended`, or `late` if it does not come to the end of a batch.
    pub state: String,
    /// Packets received.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Batches received.
    pub batches: u64,
    /// Frames that its queue could not deliver.
    pub undelivered: u64,
    /// Frames that it took from a port and handed on to another worker, whose they are as the plan steers.
    #[serde(default)]
    pub handed_on: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packet sets in its tables.
    pub sets_live: u64,
    /// Packet sets that its tables hold.
    pub sets_room: u64,
    /// Those of its packet sets that are still to be moved to other tables after a change of the plan.
    #[serde(default)]
    pub sets_to_move: u64,
    /// Attempts taken back.
    pub aborts: u64,
    /// Processor time of its thread, looking for packets included.
    pub cpu_seconds: f64,
    /// Seconds spent on packets, since somebody began to ask for times.
    pub busy_seconds: Option<f64>,
    /// Seconds in which nothing came, in the same time.
    pub idle_seconds: Option<f64>,
}

/// One state object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Object {
    /// Its name.
    pub name: String,
    /// `Map`, `Vector`, `Allocator` or `Distributed`.
    pub kind: String,
    /// Elements now.
    pub len: usize,
    /// Most elements.
    pub capacity: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Object {
    /// Which share of its room is taken; none where all of it always is, as in a vector.
    pub fn fullness(&self) -> Option<f64> {
        let fills = matches!(self.kind.as_str(), "Map" | "Allocator");
        fills.then(|| self.len as f64 / self.capacity.max(1) as f64)
    }
}

/// One reason why attempts were taken back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Abort {
    /// The line of the function.
    pub line: String,
    /// The state object; empty if none is to blame.
    pub object: String,
    /// What was to be repeated, and what another worker had done.
    pub operations: String,
    /// Why they conflict.
    pub why: String,
    /// What the author may write instead.
    pub recipe: String,
    /// How many.
    pub count: u64,
}

/// A packet set that many packets belong to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TopSet {
    /// Its key.
    pub key: String,
    /// Its share of the packets sampled.
    pub share: f64,
}
