//! Work that a worker does after a batch because time has passed: expiry of sets, periodic ticks, and at the end the sending of held packets.

use std::sync::Arc;

use braid_nf::{Tick, shared_sets_name};
use braid_state::{ROW, Share, StateObject};

use super::Worker;
use super::paced::reached;
use crate::attempt::run_event;
use crate::chain::{Chain, Group};
use crate::course::Full;
use crate::expiry::Expiring;

/// Upper limit on the time that passes for held packets at the end of a run, or between two packets of a capture: one hour, in nanoseconds.
pub(super) const DRAIN_MAX_NS: u64 = 3600 * 1_000_000_000;

/// A function's periodic tick: which share of it this worker runs, its period, and when it is next due.
pub(super) struct PeriodicTick {
    stage: usize,
    tick: Tick,
    period_ns: u64,
    due_ns: u64,
}

impl Worker {
    /// Ends sets until each local group for which `goes` is true has at most `room`, but no more than `most` per group and call, and lowers
    /// the worker's limit so that no more become live. Returns how many ended; 0 means that no group has more than `room`, or that none can be
    /// ended.
    pub(crate) fn evict_down(&mut self, room: usize, most: usize, goes: &dyn Fn(usize) -> bool) -> usize {
        let before = self.counters.sets_evicted;
        let mut left = room;
        for (group, sets) in self.sets.iter_mut().enumerate() {
            let surplus = sets.tables.len().saturating_sub(room);
            if surplus == 0 || self.parts.chain.groups()[group].shared || !goes(group) {
                continue;
            }
            let keep = room + (surplus - surplus.min(most));
            let mut on = Expiring::new(
                (group, &mut sets.tables),
                &mut self.parts,
                &mut self.logs.emitted,
                &mut self.counters,
                self.pulse.as_deref(),
            );
            sets.eviction.run(self.last_ns, keep, &mut on, &mut *self.witness);
            left = left.max(sets.tables.len());
        }
        self.parts.sets = self.parts.sets.min(left);
        (self.counters.sets_evicted - before) as usize
    }

    /// Ends sets that are past their timeout, a few at a time, and makes room where the oldest sets are evicted.
    pub(super) fn expire(&mut self) {
        let share = self.parts.share();
        for (group, sets) in self.sets.iter_mut().enumerate() {
            let Group { shared, .. } = self.parts.chain.groups()[group];
            if !shared && sets.tables.is_empty() {
                continue;
            }
            let reached = if shared { reached(self.pace, &self.parts.timeline, self.last_ns) } else { self.last_ns };
            let mut on = Expiring::new(
                (group, &mut sets.tables),
                &mut self.parts,
                &mut self.logs.emitted,
                &mut self.counters,
                self.pulse.as_deref(),
            );
            if shared {
                sets.scan.run_shared(reached, share, &mut on, &mut self.logs.lives, &mut *self.witness);
            } else {
                sets.scan.run(self.last_ns, &mut on, &mut *self.witness);
            }
        }
        self.evict();
    }

    /// Ends the sets that have been idle longest, where that makes room for new ones. Called after every batch, so that no more than a batch's
    /// sets are above the limit.
    pub(super) fn evict(&mut self) {
        let (share, room) = (self.parts.share(), self.parts.sets);
        for (group, sets) in self.sets.iter_mut().enumerate() {
            let Group { shared, full, .. } = self.parts.chain.groups()[group];
            if full != Full::EvictOldest || !shared && sets.tables.is_empty() {
                continue;
            }
            let reached = if shared { reached(self.pace, &self.parts.timeline, self.last_ns) } else { self.last_ns };
            let mut on = Expiring::new(
                (group, &mut sets.tables),
                &mut self.parts,
                &mut self.logs.emitted,
                &mut self.counters,
                self.pulse.as_deref(),
            );
            if shared {
                sets.eviction.run_shared(reached, share, &mut on, &mut self.logs.lives, &mut *self.witness);
            } else {
                sets.eviction.run(self.last_ns, room, &mut on, &mut *self.witness);
            }
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
    fn run_tick(&mut self, (position, tick): (usize, Tick), now_ns: u64, is_told: bool) {
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

    /// Sends the packets made by handlers that have no packet.
    pub(super) fn send_made(&mut self) {
        if !self.logs.emitted.is_empty() {
            self.send_own();
            self.go_on();
        }
    }

    /// Advances the time from one due packet to the next until no function holds any. Only the last worker to end does so, because no other
    /// worker is left then. This worker may have had no packets, so its own time may be 0; the limit is therefore based on `latest_ns`, the
    /// latest time of all workers.
    pub(super) fn drain(&mut self, latest_ns: u64) {
        self.ticks = periodic_ticks(&self.parts.chain, Share::ALL);
        let Some(period_ns) = self.ticks.iter().map(|periodic| periodic.period_ns).min() else { return };
        let end_ns = latest_ns.saturating_add(DRAIN_MAX_NS);
        self.last_ns = latest_ns;
        while self.last_ns < end_ns
            && let Some(due_ns) = self.holds()
        {
            self.last_ns = due_ns.min(end_ns).max(self.last_ns + period_ns);
            self.tick_at(self.last_ns);
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

    /// Finishes a capture at `latest_ns` once all workers have left: ends the sets that have timed out by then, and runs divided ticks once more
    /// over all shares. Otherwise the result would depend on the number of workers, which decides how far each got with its share. Packets that
    /// functions send here come after all others, with the number `next`. Does nothing in a live run, where time, and perhaps the state,
    /// continues.
    pub(crate) fn conclude(&mut self, latest_ns: u64, next: u64) {
        if !self.drains || !self.parts.clock.is_of_capture() {
            return;
        }
        // No other worker runs any more.
        self.parts.tx.yield_with(|_| ());
        (self.last_ns, self.made_next) = (latest_ns, next);
        let does_shared = self.parts.id == 0;
        for (group, sets) in self.sets.iter_mut().enumerate() {
            let shared = self.parts.chain.groups()[group].shared;
            let mut on = Expiring::new(
                (group, &mut sets.tables),
                &mut self.parts,
                &mut self.logs.emitted,
                &mut self.counters,
                None,
            );
            match shared {
                true if does_shared => {
                    sets.scan.finish_shared(latest_ns, &mut on, &mut self.logs.lives, &mut *self.witness);
                }
                false if !on.tables.is_empty() => sets.scan.finish(latest_ns, &mut on, &mut *self.witness),
                _ => {}
            }
        }
        if does_shared {
            self.finish_sweeps(latest_ns);
        }
        self.send_made();
    }

    /// Runs every divided tick once for each row of the function's largest table, so that a sweep that visits a few rows per tick visits all.
    fn finish_sweeps(&mut self, now_ns: u64) {
        let chain = Arc::clone(&self.parts.chain);
        for (position, stage) in chain.stages().iter().enumerate() {
            let divided: Vec<usize> = (0..stage.ticks().len()).filter(|period| stage.divides(*period)).collect();
            let objects = if divided.is_empty() { Vec::new() } else { stage.objects() };
            // Shared packet sets are skipped: those that have timed out have already ended.
            let sets = shared_sets_name(stage.name());
            let is_swept = |object: &&Arc<dyn StateObject>| object.kind() == "Map" && !object.is_empty();
            let tables = objects.iter().filter(is_swept).filter(|object| object.name() != sets);
            let rows = tables.map(|table| table.capacity().div_ceil(ROW as usize)).max().unwrap_or(0);
            for part in 0..rows {
                for &period in &divided {
                    let share = Share::new(part, rows);
                    self.run_tick((position, Tick { period, share }), now_ns, false);
                }
                self.send_made();
            }
        }
    }

    /// The time at which the first packet held by any function is due; `None` if no function holds one.
    pub(super) fn holds(&mut self) -> Option<u64> {
        let (chain, mut first) = (Arc::clone(&self.parts.chain), None::<u64>);
        for stage in chain.stages() {
            let (tx, emitted) = (&mut self.parts.tx, &mut self.logs.emitted);
            run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, |event| {
                first = [first, stage.holds(event)?].into_iter().flatten().min();
                Ok(())
            });
        }
        first
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
