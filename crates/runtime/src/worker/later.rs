//! What a worker does behind a batch because time has passed: sets expire, periods come round, and in the end what functions hold back is sent.

use std::sync::Arc;

use braid_nf::{Tick, shared_sets_name};
use braid_state::{ROW, Share, StateObject};

use super::Worker;
use super::paced::reached;
use crate::attempt::run_event;
use crate::chain::{Chain, Group};
use crate::course::Full;
use crate::expiry::Expiring;

/// How much time passes at the end of a run, or between two packets of a capture, at most, for packets that functions hold back: an hour.
pub(super) const DRAIN_MAX_NS: u64 = 3600 * 1_000_000_000;

/// A period of a function, what this worker does in it, and when it comes round again.
pub(super) struct PeriodicTick {
    stage: usize,
    tick: Tick,
    period_ns: u64,
    due_ns: u64,
}

impl Worker {
    /// Ends sets of the groups of its own for which `goes` until each has at most `room`, `most` of them at a time, and lets no more become
    /// live than are left then; how many ended. 0: no more than `room` are left, or none can go.
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

    /// Ends the sets that are past their timeout, a few at a time.
    pub(super) fn expire(&mut self) {
        let (share, room) = (self.parts.share(), self.parts.sets);
        for (group, sets) in self.sets.iter_mut().enumerate() {
            let Group { shared, full, .. } = self.parts.chain.groups()[group];
            let evicts = full == Full::EvictOldest;
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
                let lives = &mut self.logs.lives;
                sets.scan.run_shared(reached, share, &mut on, lives, &mut *self.witness);
                if evicts {
                    sets.eviction.run_shared(reached, share, &mut on, lives, &mut *self.witness);
                }
            } else {
                sets.scan.run(self.last_ns, &mut on, &mut *self.witness);
                if evicts {
                    sets.eviction.run(self.last_ns, room, &mut on, &mut *self.witness);
                }
            }
        }
    }

    /// Periods that have come round for every worker.
    pub(super) fn tick(&mut self) {
        if !self.ticks.is_empty() {
            self.tick_at(reached(self.pace, &self.parts.timeline, self.last_ns));
        }
    }

    /// Periods that have come round when every worker has reached this time.
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

    /// Runs the handler of a period. `is_told`: whoever watches is told also if it has done nothing.
    fn run_tick(&mut self, (position, tick): (usize, Tick), now_ns: u64, is_told: bool) {
        let stage = &*self.parts.chain.stages()[position];
        let (tx, emitted) = (&mut self.parts.tx, &mut self.logs.emitted);
        let (made_before, mut has_written) = (emitted.len(), false);
        emitted.begin(position);
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

    /// Sends what handlers without a packet have made.
    fn send_made(&mut self) {
        if !self.logs.emitted.is_empty() {
            self.send_own();
            self.go_on();
        }
    }

    /// Lets time pass, to one packet that is due after another, until no function holds any back. The last worker to end does it: nobody
    /// else is left. It may have had no packets, and be at time 0, so its time says nothing of when it shall end: `latest_ns`, of all, does.
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

    /// Its latest time.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// The number after that of its last packet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// All workers have left, and a capture has come to `latest_ns`: sets that are over by then end, and what periods divide among workers is done
    /// once more, in all shares. How far each worker had come with its part, and to which time, hangs on how many there were; what is told
    /// of the run shall not. What functions send then stands behind all packets: it has the number `next`. Live, time goes on, and so may the state.
    pub(crate) fn conclude(&mut self, latest_ns: u64, next: u64) {
        if !self.drains || !self.parts.clock.is_of_capture() {
            return;
        }
        // Nobody else runs any more.
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

    /// Every divided period comes round for each row of the function's largest table, so that whoever looks at some rows at a time looks at all.
    fn finish_sweeps(&mut self, now_ns: u64) {
        let chain = Arc::clone(&self.parts.chain);
        for (position, stage) in chain.stages().iter().enumerate() {
            let divided: Vec<usize> = (0..stage.ticks().len()).filter(|period| stage.divides(*period)).collect();
            let objects = if divided.is_empty() { Vec::new() } else { stage.objects() };
            // Of packet sets that workers share all that is over has ended already.
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

    /// When the first packet is due that a function holds back.
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

/// The periods of all functions in which a worker has something to do: its share where that is divided, else all if it is the first one.
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
