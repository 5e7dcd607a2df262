//! The end of a capture: what is held is sent, and what is due by then has ended.

use std::sync::Arc;

use braid_nf::{Tick, shared_sets_name};
use braid_state::{ROW, Share, StateObject};

use super::Worker;
use super::ticks::periodic_ticks;
use crate::attempt::run_event;
use crate::chain::Chain;
use crate::expiry::Expiring;

/// Upper limit on the time that passes for held packets at the end of a run, or between two packets of a capture: one hour, in nanoseconds.
pub(super) const DRAIN_MAX_NS: u64 = 3600 * 1_000_000_000;

impl Worker {
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

    /// Sends on what the functions at these positions hold, in the order in which it would have left but at once: they are removed from the chain.
    /// Only they see their time pass; the functions behind them meet the packets now. Returns how many packets these were.
    pub(crate) fn release(&mut self, positions: &[usize]) -> usize {
        let chain = Arc::clone(&self.parts.chain);
        let mut released = 0;
        for &position in positions {
            let ticks = chain.stages()[position].ticks();
            let period_ns = ticks.iter().map(|every| every.as_nanos() as u64).min().unwrap_or(0).max(1);
            let (mut at_ns, end_ns) = (self.last_ns, self.last_ns.saturating_add(DRAIN_MAX_NS));
            while at_ns < end_ns
                && let Some(due_ns) = self.holds_at(&chain, position)
            {
                at_ns = due_ns.min(end_ns).max(at_ns + period_ns);
                for period in 0..ticks.len() {
                    self.run_tick((position, Tick { period, share: Share::ALL }), at_ns, false);
                }
                released += self.logs.emitted.len();
                self.send_made();
            }
        }
        released
    }

    /// The time at which the first packet held by any function is due; `None` if no function holds one.
    pub(super) fn holds(&mut self) -> Option<u64> {
        let chain = Arc::clone(&self.parts.chain);
        (0..chain.stages().len()).filter_map(|position| self.holds_at(&chain, position)).min()
    }

    /// The time at which the first packet held by the function at a position is due.
    fn holds_at(&mut self, chain: &Chain, position: usize) -> Option<u64> {
        let (tx, emitted, mut first) = (&mut self.parts.tx, &mut self.logs.emitted, None);
        run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, |event| {
            first = chain.stages()[position].holds(event)?;
            Ok(())
        });
        first
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

    /// Counts as lost what still waits in functions, unless it goes on elsewhere. It has been dropped for a reason that its function consumes, so it
    /// counts as a copy that is dropped, as with [`Cx::lose`](braid_nf::Cx::lose).
    pub(crate) fn count_held(&mut self) {
        if !self.drains {
            return;
        }
        for stage in self.parts.chain.stages() {
            for (reason, packets) in stage.held_in_vain().into_iter().filter(|(_, packets)| *packets > 0) {
                self.counters.packets_copied += packets;
                self.counters.drops.add(stage.name(), reason, packets);
            }
        }
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
}
