//! What a worker counts. Owned by the worker, read when it has ended or through a snapshot it publishes.

use braid_nf::Reason;

use crate::aborts::Aborts;

/// Drops by function and reason; a handful of each, so a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    list: Vec<(String, &'static str, u64)>,
}

impl Drops {
    /// Counts `count` packets dropped at `stage` for `reason`.
    pub fn add(&mut self, stage: &str, reason: Reason, count: u64) {
        match self.list.iter_mut().find(|(s, r, _)| s == stage && *r == reason.0) {
            Some((_, _, known)) => *known += count,
            None => self.list.push((stage.to_owned(), reason.0, count)),
        }
    }

    /// Adds another worker's.
    pub fn merge(&mut self, other: &Drops) {
        for (stage, reason, count) in &other.list {
            self.add(stage, Reason(reason), *count);
        }
    }

    /// Function (or `runtime`), reason, packets.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.list.iter().map(|(stage, reason, count)| (stage.as_str(), *reason, *count))
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.list.iter().map(|(_, _, count)| count).sum()
    }
}

/// What went through one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets that came in by it.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets sent out by it, copies and packets that functions made included.
    pub packets_out: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl PortCounters {
    fn merge(&mut self, other: &PortCounters) {
        self.packets_in += other.packets_in;
        self.bytes_in += other.bytes_in;
        self.packets_out += other.packets_out;
        self.bytes_out += other.bytes_out;
    }
}

/// One worker's counters.
#[derive(Clone, Debug, Default)]
pub struct WorkerCounters {
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets beyond those received: copies made by flooding, and packets that functions made.
    pub packets_copied: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets that did not get out, by function and reason.
    pub drops: Drops,
    /// Packet sets that became live.
    pub sets_created: u64,
    /// Packet sets that ended: by their timeout, or evicted.
    pub sets_expired: u64,
    /// Packet sets of full tables that ended to make room.
    pub sets_evicted: u64,
    /// Packet sets that did not become live because the table was full; attempts that were taken back count.
    pub sets_refused: u64,
    /// Packet sets live now; wraps below zero on a worker that ended more shared sets than it made.
    pub sets_live: u64,
    /// Processor time of the worker's thread in nanoseconds: on a machine with other work, the honest base of a rate.
    pub cpu_ns: u64,
    /// Time on the wall from the worker's first step to its last, in nanoseconds: what it had its processor for is `cpu_ns`.
    pub wall_ns: u64,
    /// Batches received.
    pub batches: u64,
    /// Transactions committed that touched aggregate state.
    pub commits: u64,
    /// Attempts taken back.
    pub aborts: u64,
    /// Why they were.
    pub aborted: Aborts,
    /// Turns taken after repeated conflicts.
    pub turns: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Packets that reached each function, by its position.
    pub reached: Vec<u64>,
    /// By port; empty unless somebody may look at the run while it goes on.
    pub ports: Vec<PortCounters>,
}

impl WorkerCounters {
    /// Adds another worker's.
    pub fn merge(&mut self, other: &WorkerCounters) {
        self.packets_in += other.packets_in;
        self.bytes_in += other.bytes_in;
        self.packets_copied += other.packets_copied;
        self.packets_out += other.packets_out;
        self.bytes_out += other.bytes_out;
        self.drops.merge(&other.drops);
        self.sets_created += other.sets_created;
        self.sets_expired += other.sets_expired;
        self.sets_evicted += other.sets_evicted;
        self.sets_refused += other.sets_refused;
        self.sets_live = self.sets_live.wrapping_add(other.sets_live);
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
        self.batches += other.batches;
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.aborted.merge(&other.aborted);
        self.turns += other.turns;
        self.panics += other.panics;
        self.reached.resize(self.reached.len().max(other.reached.len()), 0);
        self.reached.iter_mut().zip(&other.reached).for_each(|(sum, more)| *sum += more);
        self.ports.resize(self.ports.len().max(other.ports.len()), PortCounters::default());
        self.ports.iter_mut().zip(&other.ports).for_each(|(sum, more)| sum.merge(more));
    }

    /// Packets received and copied that are neither sent nor dropped: 0 between two batches.
    pub fn missing(&self) -> i64 {
        let came = self.packets_in + self.packets_copied;
        came as i64 - (self.packets_out + self.drops.total()) as i64
    }
}
