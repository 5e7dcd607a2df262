//! What is visible of a worker from outside: its counters between two batches, and its results at the end.

use std::sync::Arc;

use braid_memory::thread_time;
use braid_nf::{Findings, SetTables};

use super::Worker;
use super::sets::Sets;
use crate::attempt::Witness;
use crate::launch::findings_of_stage;
use crate::live::Seen;
use crate::observe::counters::WorkerCounters;
use crate::observe::probe::{Probe, TimeSplit};

/// The results of a worker that has ended.
pub struct Ended {
    /// The worker's number.
    pub id: usize,
    /// Its counters.
    pub counters: WorkerCounters,
    /// The counters of its receive queue.
    pub received: braid_io::RxCounters,
    /// Damage found in the source.
    pub damages: Vec<braid_io::capture::Damage>,
    /// Its packet sets, by group.
    pub tables: Vec<SetTables>,
    /// The counters of its transmit queue, or why packets could not be written.
    pub sent: Result<braid_io::TxCounters, braid_io::SinkError>,
    /// Its latest time in nanoseconds.
    pub last_ns: u64,
    /// The witness that recorded it.
    pub witness: Box<dyn Witness>,
    /// The probe that measured it.
    pub probe: Probe,
    /// It was told to end before its packets ended.
    pub was_closed: bool,
}

impl Worker {
    /// Finishes the worker's packets when no more will arrive; the last worker to leave also sends held packets. Runs on the worker's own thread.
    pub fn leave(&mut self) {
        self.settle_sets();
        if !self.was_closed {
            // A worker that stops before its packets end holds back those that keep the order with it; they stop, too.
            self.parts.timeline.places().publish(self.parts.id, u64::MAX);
        }
        if let Some((latest_ns, next)) = self.parts.timeline.leave(self.parts.id, self.last_ns, self.next) {
            // What is told of all workers at the end is told at the end of the capture, whatever packets this one had.
            self.last_ns = self.last_ns.max(latest_ns);
            if self.drains {
                self.made_next = next;
                self.drain(latest_ns);
            }
        }
        self.parts.send.progress(u64::MAX);
        self.count_time();
        self.begun = None;
    }

    /// Ends a worker that has left. The result of its transmit queue is in [`Ended::sent`].
    pub fn end(mut self) -> Ended {
        self.count_sets();
        Ended {
            id: self.parts.id,
            counters: self.counters,
            received: self.parts.receive.counters(),
            damages: self.parts.receive.damages(),
            tables: self.sets.into_iter().map(|sets| sets.tables).collect(),
            sent: self.parts.send.finish(),
            last_ns: self.last_ns,
            witness: self.witness,
            probe: self.probe,
            was_closed: self.was_closed,
        }
    }

    /// The worker's latest time in nanoseconds.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// The number after that of the worker's last packet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The counters so far.
    pub fn counters(&mut self) -> &WorkerCounters {
        self.count_sets();
        &self.counters
    }

    /// A snapshot of the worker between two batches, taken on its own thread.
    pub fn seen(&mut self) -> Seen {
        self.count_sets();
        self.count_time();
        let local = |(group, _): &(usize, &Sets)| !self.parts.chain.groups()[*group].shared;
        let room = |(_, sets): (usize, &Sets)| (sets.tables.len(), sets.tables.capacity());
        Seen {
            worker: self.parts.id,
            ended: false,
            counters: self.counters.clone(),
            received: self.parts.receive.counters(),
            sent: self.parts.send.counters(),
            tables: self.sets.iter().enumerate().filter(local).map(room).collect(),
            sets_to_move: self.sets_to_move(),
            now_ns: self.last_ns,
            split: self.probe.split().map(TimeSplit::so_far),
        }
    }

    /// Adds what a function reports about its state objects to `findings`, as at the end of a run; packet sets are not visited. The objects are
    /// read in a transaction of this worker, between two batches.
    pub fn tell(&mut self, position: usize, mut findings: Findings) -> Option<(String, Findings)> {
        let chain = Arc::clone(&self.parts.chain);
        let stage = chain.stages().get(position)?;
        findings_of_stage(&**stage, &mut self.parts.tx, self.parts.ports, self.last_ns, &mut findings);
        Some((stage.name().to_owned(), findings))
    }

    fn count_time(&mut self) {
        self.counters.turns = self.parts.tx.stats().turns;
        if let Some((cpu, begun)) = self.begun {
            self.counters.cpu_ns = (thread_time() - cpu).as_nanos() as u64;
            self.counters.wall_ns = begun.elapsed().as_nanos() as u64;
        }
    }

    fn count_sets(&mut self) {
        let lives = self.sets.iter().map(|sets| sets.tables.lives());
        let refused = self.sets.iter().map(|sets| sets.tables.refused());
        self.counters.sets_refused = refused.sum::<u64>() + self.logs.lives.refused;
        let shared = (self.logs.lives.created, self.logs.lives.ended);
        let (created, ended) = lives.fold(shared, |(c, e), (created, ended)| (c + created, e + ended));
        self.counters.sets_created = created;
        self.counters.sets_expired = ended;
        // A shared set may end on another worker than the one on which it became live; only the sum over all workers is meaningful.
        self.counters.sets_live = created.wrapping_sub(ended);
    }
}
