//! Runs the periodic handlers of functions.

use braid_nf::Tick;
use braid_state::Share;

use super::Worker;
use super::paced::reached;
use crate::attempt::run_event;
use crate::chain::Chain;

/// A function's periodic tick: which share of it this worker runs, its period, and when it is next due.
pub(super) struct PeriodicTick {
    stage: usize,
    tick: Tick,
    pub(super) period_ns: u64,
    due_ns: u64,
}

impl Worker {
    /// Runs the ticks whose period has ended for every worker.
    pub(super) fn tick(&mut self) {
        if self.ticks.is_empty() {
            return;
        }
        let reached = reached(self.pace, &self.parts.timeline, self.last_ns);
        if reached > 0 || !self.parts.clock.is_of_capture() {
            return self.tick_at(reached);
        }
        // Some worker has had no packet yet, so the time of the capture is not known; 0 would make what functions note now older than
        // everything. The first ticks of all are at the time of this worker's first packets (which may be 0).
        if self.counters.batches > 0 && self.ticks.iter().all(|periodic| periodic.due_ns == 0) {
            self.tick_at(self.now_ns[0]);
        }
    }

    /// Runs the ticks that are due when every worker has reached `reached`, in nanoseconds.
    pub(super) fn tick_at(&mut self, reached: u64) {
        for at in 0..self.ticks.len() {
            let periodic = &mut self.ticks[at];
            if reached < periodic.due_ns {
                continue;
            }
            periodic.due_ns = reached - reached % periodic.period_ns + periodic.period_ns;
            let (stage, tick) = (periodic.stage, periodic.tick);
            self.run_tick((stage, tick), reached, true);
        }
        self.send_made();
    }

    /// Runs a tick handler. With `is_told` the witness is also told of a tick that did nothing.
    pub(super) fn run_tick(&mut self, (position, tick): (usize, Tick), now_ns: u64, is_told: bool) {
        let stage = &*self.parts.chain.stages()[position];
        let (tx, emitted) = (&mut self.parts.tx, &mut self.logs.emitted);
        let (made_before, mut has_written) = (emitted.len(), false);
        emitted.begin(position, braid_nf::Round::Onward);
        if let Some(pulse) = &self.pulse {
            pulse.enter(position);
        }
        let sequence = run_event(tx, emitted, self.parts.ports, now_ns, &mut self.counters, |event| {
            stage.tick(event, tick)?;
            has_written = event.tx.footprint().1 > 0;
            Ok(())
        });
        if let Some(pulse) = &self.pulse {
            pulse.leave();
        }
        if is_told || has_written || self.logs.emitted.len() > made_before {
            self.witness.ticked(&mut self.parts.tx, position, tick, now_ns, sequence);
            self.witness.made(&self.logs.emitted, made_before);
        }
    }

    /// How long the worker may be idle before a tick or a visit of the scan is due, in nanoseconds.
    pub(super) fn due_in_ns(&self) -> u64 {
        let (now_ns, share, chain) = (self.last_ns, self.parts.share(), &*self.parts.chain);
        let ticks = self.ticks.iter().map(|periodic| periodic.due_ns.saturating_sub(now_ns));
        let scans = self.sets.iter().zip(chain.groups()).map(|(sets, group)| match group.shared {
            true => sets.scan.pause_shared_ns(now_ns, share, chain, group),
            false => sets.scan.pause_ns(now_ns, group, &sets.tables),
        });
        ticks.chain(scans).min().unwrap_or(u64::MAX)
    }
}

/// The ticks that a worker runs: its share of divided ticks, and all others if it is the first worker.
pub(super) fn periodic_ticks(chain: &Chain, share: Share) -> Vec<PeriodicTick> {
    let all = chain.stages().iter().enumerate().flat_map(|(stage, function)| {
        function.ticks().into_iter().enumerate().filter_map(move |(period, every)| {
            let share = match function.divides(period) {
                true => share,
                false if share.is_first() => Share::ALL,
                false => return None,
            };
            let period_ns = (every.as_nanos() as u64).max(1);
            Some(PeriodicTick { stage, tick: Tick { period, share }, period_ns, due_ns: 0 })
        })
    });
    all.collect()
}
