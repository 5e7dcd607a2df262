//! Moves packet sets from one worker to another between two batches, by entries of the indirection table.
//!
//! The caller ensures that meanwhile no packet of these sets is in transit to either worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_nf::packet::key::SetKey;
use braid_nf::{SetMeta, SetSlot};
use braid_steer::Steering;

use super::Worker;

/// The packet sets of one entry of the indirection table.
#[derive(Debug)]
pub(crate) struct Moving {
    /// The index of the entry.
    pub(crate) entry: usize,
    /// Group, key, metadata, and the states of all functions of the group.
    sets: Vec<(usize, SetKey, SetMeta, Vec<u8>)>,
}

impl Moving {
    /// The number of sets.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }
}

impl Worker {
    /// Removes and returns the sets of the entries for which `leaves` is true.
    pub(crate) fn take_sets(&mut self, steering: &Steering, leaves: &[bool]) -> Vec<Moving> {
        let mut taken: BTreeMap<usize, Moving> = BTreeMap::new();
        let chain = Arc::clone(&self.parts.chain);
        for (group, sets) in self.sets.iter_mut().enumerate().filter(|(group, _)| !chain.groups()[*group].shared) {
            let tables = &mut sets.tables;
            let mut all = Vec::with_capacity(tables.len());
            tables.scan(0, tables.slots(), |at, meta| all.push((at, meta)));
            for (at, meta) in all {
                let key = tables.key(at);
                let entry = steering.reta().entry(steering.hash_of_key(&key));
                if !leaves[entry] {
                    continue;
                }
                if meta.live != 0 {
                    let moving = taken.entry(entry).or_insert_with(|| Moving { entry, sets: Vec::new() });
                    moving.sets.push((group, key, meta, tables.state_bytes(at).to_vec()));
                }
                tables.give_away(at);
            }
        }
        taken.into_values().collect()
    }

    /// Inserts the sets of an entry: all of them, or none if there is no room for all.
    pub(crate) fn put_sets(&mut self, moving: Moving) -> Result<(), Moving> {
        let mut placed: Vec<(usize, SetSlot)> = Vec::with_capacity(moving.sets.len());
        for (group, key, meta, states) in &moving.sets {
            let tables = &mut self.sets[*group].tables;
            let room = tables.len() < self.parts.sets;
            let Some(at) = room.then(|| tables.put(key, *meta)).flatten() else {
                placed.iter().for_each(|(group, at)| self.sets[*group].tables.give_away(*at));
                return Err(moving);
            };
            tables.states_mut(at, |bytes| bytes.copy_from_slice(states));
            placed.push((*group, at));
        }
        Ok(())
    }
}
