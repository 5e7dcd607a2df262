//! The counters of a worker. The worker owns them; others read them after it has ended, or as a snapshot that it publishes.

use braid_nf::Reason;

use super::aborts::Aborts;

/// Dropped packets by function and reason; a list, because there are only a few of each.
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

    /// Adds the drops of another worker.
    pub fn merge(&mut self, other: &Drops) {
        for (stage, reason, count) in &other.list {
            self.add(stage, Reason(reason), *count);
        }
    }

    /// Iterates over function (or `runtime`), reason and number of packets.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.list.iter().map(|(stage, reason, count)| (stage.as_str(), *reason, *count))
    }

    /// The total number of dropped packets.
    pub fn total(&self) -> u64 {
        self.list.iter().map(|(_, _, count)| count).sum()
    }
}

/// The traffic of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received on the port.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets sent by the port, including copies and packets that functions made.
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
    /// Packets in addition to those received: copies made by flooding, and packets that functions made.
    pub packets_copied: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets that were not sent, by function and reason.
    pub drops: Drops,
    /// Packet sets that became live.
    pub sets_created: u64,
    /// Packet sets that ended by their timeout or were evicted.
    pub sets_expired: u64,
    /// Packet sets that were evicted from full tables.
    pub sets_evicted: u64,
    /// Packet sets that did not become live because the table was full; includes attempts that were rolled back.
    pub sets_refused: u64,
    /// Packet sets that are live now; wraps below zero on a worker that ended more shared sets than it created.
    pub sets_live: u64,
    /// Processor time of the worker's thread in nanoseconds: on a machine with other load, the fair basis for a rate.
    pub cpu_ns: u64,
    /// Wall-clock time from the worker's first step to its last, in nanoseconds; compare `cpu_ns`.
    pub wall_ns: u64,
    /// Batches received.
    pub batches: u64,
    /// Committed transactions that touched aggregate state.
    pub commits: u64,
    /// Attempts that were rolled back.
    pub aborts: u64,
    /// Why attempts were rolled back.
    pub aborted: Aborts,
    /// Turns taken after repeated conflicts.
    pub turns: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Packets that reached each function, by its position.
    pub reached: Vec<u64>,
    /// Counters by port; empty unless the run can be inspected while it is running.
    pub ports: Vec<PortCounters>,
}

impl WorkerCounters {
    /// Adds the counters of another worker.
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

    /// Packets received or copied that are neither sent nor dropped: 0 between two batches.
    pub fn missing(&self) -> i64 {
        let came = self.packets_in + self.packets_copied;
        came as i64 - (self.packets_out + self.drops.total()) as i64
    }
}
