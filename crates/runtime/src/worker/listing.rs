//! A worker's packet sets, listed and ended between two batches, a stretch of slots at a time so that no packet waits long.

use std::ops::Range;
use std::sync::Arc;

use braid_nf::packet::key::SetKey;

use super::Worker;
use crate::expiry::{Expiring, expire_one};
use crate::saved::{self, SavedSet};

/// A packet set of one worker.
#[derive(Clone, Debug)]
pub struct ListedSet {
    /// Whose it is.
    pub worker: usize,
    /// Its group of functions.
    pub group: usize,
    /// Its key.
    pub key: SetKey,
    /// How long no packet has come, in milliseconds.
    pub idle_ms: u32,
    /// Position and state of each function for which it is live.
    pub states: Vec<(usize, Vec<u8>)>,
}

impl Worker {
    /// The functions of this worker.
    pub fn chain(&self) -> &Arc<crate::Chain> {
        &self.parts.chain
    }

    /// Its number.
    pub fn id(&self) -> usize {
        self.parts.id
    }

    /// Its time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.last_ns
    }

    /// Slots of a group's tables; 0 if its sets are shared or there is no such group.
    pub fn set_slots(&self, group: usize) -> usize {
        let shared = self.parts.chain.groups().get(group).is_none_or(|group| group.shared);
        if shared { 0 } else { self.sets[group].tables.slots() }
    }

    /// Sets among some slots of a group whose key is wanted, at most `limit`.
    pub fn list_sets(
        &mut self,
        group: usize,
        slots: Range<usize>,
        limit: usize,
        wanted: impl Fn(&SetKey) -> bool,
    ) -> Vec<ListedSet> {
        if self.set_slots(group) == 0 {
            return Vec::new();
        }
        let (worker, now_ms) = (self.parts.id, (self.last_ns / 1_000_000) as u32);
        let chain = &self.parts.chain;
        let tables = &mut self.sets[group].tables;
        let mut found = Vec::new();
        tables.scan(slots.start, slots.len(), |at, meta| {
            if meta.live != 0 {
                found.push((at, meta));
            }
        });
        let mut listed = Vec::new();
        for (at, meta) in found {
            let key = tables.key(at);
            if listed.len() == limit || !wanted(&key) {
                continue;
            }
            let states = tables.state_bytes(at);
            let live = chain.groups()[group].stages.iter().map(|position| (*position, &chain.stages()[*position]));
            let live = live.filter(|(_, stage)| meta.live & stage.place().bit != 0);
            let own =
                live.map(|(position, stage)| (position, states[stage.place().offset..][..stage.set_bytes()].to_vec()));
            // A set that has seen a packet with a later time than the worker's is not idle.
            let idle = now_ms.wrapping_sub(meta.last_seen_ms);
            let idle_ms = if idle > u32::MAX / 2 { 0 } else { idle };
            listed.push(ListedSet { worker, group, key, idle_ms, states: own.collect() });
        }
        listed
    }

    /// Ends sets among some slots of a group whose key is wanted, as if they had expired; says how many.
    pub fn end_sets(&mut self, group: usize, slots: Range<usize>, wanted: impl Fn(&SetKey) -> bool) -> u64 {
        let keys = self.list_sets(group, slots, usize::MAX, wanted);
        let chain = Arc::clone(&self.parts.chain);
        for set in &keys {
            let tables = &mut self.sets[group].tables;
            let at = tables.find_key(&set.key);
            let mut on = Expiring {
                chain: &chain,
                group,
                tables,
                tx: &mut self.parts.tx,
                emitted: &mut self.logs.emitted,
                ports: self.parts.ports,
                counters: &mut self.counters,
                pulse: self.pulse.as_deref(),
            };
            for (position, _) in &set.states {
                let stage = &*chain.stages()[*position];
                expire_one(stage, *position, at, self.last_ns, &mut on, &mut *self.witness);
            }
            on.tables.remove(at);
        }
        keys.len() as u64
    }

    /// Puts a set back for some functions of a group; false if it has no place there.
    pub(crate) fn put_set(&mut self, group: usize, set: &SavedSet, live: &[(usize, &[u8])]) -> bool {
        if self.set_slots(group) == 0 {
            return false;
        }
        let chain = &self.parts.chain;
        let mine = || {
            live.iter().filter(|(at, state)| {
                chain.group_of(*at) == Some(group) && state.len() == chain.stages()[*at].set_bytes()
            })
        };
        let bits = mine().fold(0, |bits, (at, _)| bits | chain.stages()[*at].place().bit);
        let tables = &mut self.sets[group].tables;
        let Some(place) = tables.put(&set.key, saved::meta(set, bits)).filter(|_| bits != 0) else { return false };
        tables.states_mut(place, |bytes| {
            for (at, state) in mine() {
                bytes[chain.stages()[*at].place().offset..][..state.len()].copy_from_slice(state);
            }
        });
        true
    }
}
