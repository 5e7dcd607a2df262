//! What is seen of a worker from outside: its counters between two batches, and what is left of it in the end.

use std::sync::Arc;

use braid_memory::thread_time;
use braid_nf::{Findings, SetTables};

use super::Worker;
use super::sets::Sets;
use crate::attempt::Witness;
use crate::counters::WorkerCounters;
use crate::launch::findings_of_stage;
use crate::live::Seen;
use crate::probe::{Probe, TimeSplit};

/// What is left of a worker.
pub struct Ended {
    /// Its number.
    pub id: usize,
    /// What it counted.
    pub counters: WorkerCounters,
    /// What its queue delivered.
    pub received: braid_io::RxCounters,
    /// Damage found in the source.
    pub damages: Vec<braid_io::capture::Damage>,
    /// Its packet sets, by group.
    pub tables: Vec<SetTables>,
    /// What its transmit queue took, or why something is missing.
    pub sent: Result<braid_io::TxCounters, braid_io::SinkError>,
    /// Its latest time.
    pub last_ns: u64,
    /// Whoever watched it.
    pub witness: Box<dyn Witness>,
    /// Whoever took its time.
    pub probe: Probe,
}

impl Worker {
    /// Nothing will come any more: the last worker to leave sends what functions hold back. On its own thread.
    pub fn leave(&mut self) {
        self.settle_sets();
        if let Some((latest_ns, next)) = self.parts.timeline.leave(self.parts.id, self.last_ns, self.next)
            && self.drains
        {
            self.made_next = next;
            self.drain(latest_ns);
        }
        self.parts.send.progress(u64::MAX);
        self.count_time();
        self.begun = None;
    }

    /// Ends the worker, which has left. What its transmit queue took is in [`Ended::sent`].
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
        }
    }

    /// What it has counted so far.
    pub fn counters(&mut self) -> &WorkerCounters {
        self.count_sets();
        &self.counters
    }

    /// What can be seen of it between two batches, on its own thread.
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

    /// What a function tells of its state objects, as it does when a run ends, into one piece of its findings; packet sets are not gone
    /// through. Read in a transaction of this worker, between two batches.
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
        // A shared set may end on another worker than the one on which it became live: the sum over workers counts.
        self.counters.sets_live = created.wrapping_sub(ended);
    }
}
