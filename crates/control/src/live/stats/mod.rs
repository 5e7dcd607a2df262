//! All figures of a run at one moment, as `braid stats`, `braid top`, the metrics and the web page read them.
//!
//! Every worker is observed between two of its batches, so `packets_in + packets_copied = packets_out + Σ dropped` holds in every
//! sample, not only at the end: [`Stats::missing`] is 0 unless something is wrong.

mod take;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{Sets, Told, Transactions};

/// The figures of a run at one moment. Counts start at the beginning of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Version of the program that answers.
    pub version: String,
    /// Seconds since the workers started.
    pub seconds: f64,
    /// Whether any worker still runs.
    pub running: bool,
    /// Frames of the input.
    pub packets_in: u64,
    /// Additional packets: copies by flooding, and packets that functions made.
    pub packets_copied: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets that are neither sent nor dropped; always 0.
    pub missing: i64,
    /// Bytes received, by length on the wire.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets that did not leave, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// How many of them are not lost: functions answered them, or sent them on later or in another way.
    #[serde(default)]
    pub consumed: u64,
    /// Packet sets.
    pub sets: Sets,
    /// What functions report, by function: counters of rules or backends, for example. `braid stats`
    /// requests all of it, metrics request the numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, Told>,
    /// The functions, in the order of the chain.
    pub functions: Vec<Function>,
    /// Drops outside the chain's functions: by the source, the runtime and the sink, and by functions that have been removed.
    pub dropped_elsewhere: BTreeMap<String, BTreeMap<String, u64>>,
    /// How many of them are not lost.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_elsewhere: BTreeMap<String, u64>,
    /// Figures of each port.
    pub ports: Vec<PortStats>,
    /// Figures of each worker.
    pub workers: Vec<WorkerStats>,
    /// State objects.
    pub objects: Vec<Object>,
    /// Transactions.
    pub transactions: Transactions,
    /// Why attempts were rolled back, the most frequent reason first.
    pub aborts: Vec<Abort>,
    /// Packet sets with the most packets, in a sample taken while a client asks for times.
    pub top_sets: Vec<TopSet>,
    /// Client connections.
    #[serde(default)]
    pub connections: Connections,
}

/// Client connections: control socket, metrics and page together.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Connections that had been silent for longest and were closed to make room for others.
    pub ended_for_others: u64,
    /// Connections refused because all others were active.
    pub refused: u64,
}

/// One function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    /// Its name in the plan.
    pub name: String,
    /// Name of the function in the catalog.
    pub kind: String,
    /// Packets that reached it.
    pub packets: u64,
    /// Packets that it dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// How many of them are not lost.
    #[serde(default)]
    pub consumed: u64,
    /// Nanoseconds per packet, over all workers, since a client began to ask for times.
    pub ns_per_packet: Option<f64>,
}

impl Function {
    /// Total number of packets that it dropped.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Those of them that are lost.
    pub fn lost(&self) -> u64 {
        self.dropped_total().saturating_sub(self.consumed)
    }
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortStats {
    /// Its number.
    pub port: usize,
    /// Its interface; empty if it has none.
    #[serde(default)]
    pub name: String,
    /// Packets that arrived on it.
    pub packets_in: u64,
    /// Bytes that arrived on it, by length on the wire.
    pub bytes_in: u64,
    /// Packets sent through it.
    pub packets_out: u64,
    /// Bytes sent through it.
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
    /// `running`, `ended`, or `late` if it does not reach the end of a batch.
    pub state: String,
    /// Packets received.
    pub packets: u64,
    /// Bytes received, by length on the wire.
    pub bytes: u64,
    /// Batches received.
    pub batches: u64,
    /// Frames that its queue could not deliver.
    pub undelivered: u64,
    /// Frames that it received from a port and handed over to another worker, to which the plan steers them.
    #[serde(default)]
    pub handed_on: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packet sets in its tables.
    pub sets_live: u64,
    /// Capacity of its tables in packet sets.
    pub sets_room: u64,
    /// Its packet sets that are still to be moved to other tables after a change of the plan.
    #[serde(default)]
    pub sets_to_move: u64,
    /// Attempts rolled back.
    pub aborts: u64,
    /// Processor time of its thread, including polling for packets.
    pub cpu_seconds: f64,
    /// Seconds spent on packets, since a client began to ask for times.
    pub busy_seconds: Option<f64>,
    /// Seconds without packets, in the same period.
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
    /// Maximum number of elements.
    pub capacity: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Object {
    /// The share of its capacity that is in use; `None` for kinds that are always full, such as a vector.
    pub fn fullness(&self) -> Option<f64> {
        let fills = matches!(self.kind.as_str(), "Map" | "Allocator");
        fills.then(|| self.len as f64 / self.capacity.max(1) as f64)
    }
}

/// One reason why attempts were rolled back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Abort {
    /// The source line in the function.
    pub line: String,
    /// The state object; empty if none was involved.
    pub object: String,
    /// The operation that has to be repeated, and the operation of another worker.
    pub operations: String,
    /// Why they conflict.
    pub why: String,
    /// What the author may write instead.
    pub recipe: String,
    /// Number of aborts.
    pub count: u64,
}

/// A packet set with many packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TopSet {
    /// Its key.
    pub key: String,
    /// Its share of the sampled packets.
    pub share: f64,
}
