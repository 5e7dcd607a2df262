//! Ends packet sets: those past their timeout, and those for which a table has no room.

use super::Worker;
use super::paced::reached;
use crate::chain::Group;
use crate::chain::course::Full;
use crate::expiry::Expiring;

impl Worker {
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
}
