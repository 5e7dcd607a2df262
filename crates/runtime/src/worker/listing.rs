//! Lists and ends packet sets between two batches, a range of slots at a time so that packets do not wait long: the worker's own sets,
//! and those that workers share. Any worker can handle the shared ones, and reads them in transactions like all shared state.

use braid_packet::time::NS_PER_MS;
use std::ops::Range;
use std::sync::Arc;

use braid_nf::packet::key::SetKey;
use braid_nf::{EntryRange, SetSlot, SetTables, SharedSet};

use super::Worker;
use super::describe_sets::DESCRIBED_MAX;
use crate::attempt::End;
use crate::chain::Chain;
use crate::expiry::{Expiring, expire, expire_shared};
use crate::live::saved::{self, SavedSet};

/// Number of shared sets read in one transaction.
const SHARED_SPAN: u32 = 64;
/// Number of entries of a shared table visited between two batches.
const SHARED_LOOK: u32 = 16 * 1024;
/// Number of slots of its own tables that a worker visits between two batches, and at a time.
const SLOTS: usize = 16 * 1024;
const SLOTS_STEP: usize = 256;

/// A listed packet set.
#[derive(Clone, Debug)]
pub struct ListedSet {
    /// The worker that owns it; `None` if workers share it.
    pub worker: Option<usize>,
    /// Its group of functions.
    pub group: usize,
    /// Its key.
    pub key: SetKey,
    /// Milliseconds since its last packet.
    pub idle_ms: u32,
    /// Position and state of each function in which the set is live.
    pub states: Vec<(usize, Vec<u8>)>,
}

/// Where a walk over a worker's own sets goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetCursor {
    group: usize,
    slot: usize,
}

impl Worker {
    /// The worker's chain of functions.
    pub fn chain(&self) -> &Arc<crate::Chain> {
        &self.parts.chain
    }

    /// The worker's number.
    pub fn id(&self) -> usize {
        self.parts.id
    }

    /// The worker's time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.last_ns
    }

    /// The number of slots of a group's tables; 0 if its sets are shared or the group does not exist.
    pub fn set_slots(&self, group: usize) -> usize {
        let shared = self.parts.chain.groups().get(group).is_none_or(|group| group.shared);
        if shared { 0 } else { self.sets[group].tables.slots() }
    }

    /// Lists at most `limit` sets of a group within a range of slots whose keys satisfy `wanted`.
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
        let (worker, now_ms) = (self.parts.id, (self.last_ns / NS_PER_MS) as u32);
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
            // A set may have seen a packet that is later than the worker's time; it counts as not idle.
            let idle_ms = meta.idle_ms(now_ms);
            listed.push(ListedSet { worker: Some(worker), group, key, idle_ms, states: own.collect() });
        }
        listed
    }

    /// Lists the next of the worker's own sets whose keys satisfy `wanted`, about [`DESCRIBED_MAX`] at most, among a bounded number of slots from
    /// `place` on, which advances. `None` at the end.
    pub fn list_next(&mut self, place: &mut SetCursor, wanted: impl Fn(&SetKey) -> bool) -> Option<Vec<ListedSet>> {
        let mut listed = Vec::new();
        let goes_on = self.walk(place, |worker, group, slots| {
            let some = worker.list_sets(group, slots, usize::MAX, &wanted);
            let count = some.len();
            listed.extend(some);
            count
        });
        (goes_on || !listed.is_empty()).then_some(listed)
    }

    /// Ends those that [`list_next`](Self::list_next) would list, as if they had expired; returns how many. `None` at the end.
    pub fn end_next(&mut self, place: &mut SetCursor, wanted: impl Fn(&SetKey) -> bool) -> Option<u64> {
        let mut ended = 0;
        let goes_on = self.walk(place, |worker, group, slots| {
            let count = worker.end_sets(group, slots, &wanted);
            ended += count;
            count as usize
        });
        (goes_on || ended > 0).then_some(ended)
    }

    /// Visits slots from `place` on until enough sets were found or enough slots visited; returns whether there are more. `visit` returns how many
    /// sets it found.
    fn walk(
        &mut self,
        place: &mut SetCursor,
        mut visit: impl FnMut(&mut Worker, usize, Range<usize>) -> usize,
    ) -> bool {
        let (mut found, mut visited) = (0, 0);
        while place.group < self.parts.chain.groups().len() {
            let slots = self.set_slots(place.group);
            if place.slot >= slots {
                *place = SetCursor { group: place.group + 1, slot: 0 };
                continue;
            }
            if found >= DESCRIBED_MAX || visited >= SLOTS {
                return true;
            }
            let some = place.slot..slots.min(place.slot + SLOTS_STEP);
            (place.slot, visited) = (some.end, visited + some.len());
            found += visit(self, place.group, some);
        }
        false
    }

    /// Ends the sets of a group within a range of slots whose keys satisfy `wanted`, as if they had expired; returns how many.
    fn end_sets(&mut self, group: usize, slots: Range<usize>, wanted: impl Fn(&SetKey) -> bool) -> u64 {
        let keys = self.list_sets(group, slots, usize::MAX, wanted);
        for set in &keys {
            let tables = &mut self.sets[group].tables;
            let at = tables.find_key(&set.key);
            let mut on = Expiring::new(
                (group, tables),
                &mut self.parts,
                &mut self.logs.emitted,
                &mut self.counters,
                self.pulse.as_deref(),
            );
            for (position, _) in &set.states {
                expire(*position, (&[at], End::Chosen), self.last_ns, &mut on, &mut *self.witness);
            }
            on.tables.remove(at);
        }
        keys.len() as u64
    }

    /// Lists at most `limit` shared sets of the function at a position whose keys satisfy `wanted`, and about [`DESCRIBED_MAX`] at most, in a bounded
    /// number of entries from `cursor`. Also returns the cursor to continue from, or `None` at the end.
    pub fn list_shared(
        &mut self,
        position: usize,
        cursor: u32,
        limit: usize,
        wanted: impl Fn(&SetKey) -> bool,
    ) -> (Vec<ListedSet>, Option<u32>) {
        let chain = Arc::clone(&self.parts.chain);
        let (stage, group) = (&*chain.stages()[position], chain.group_of(position).unwrap_or_default());
        let (mut sets, mut found, mut next, mut span) = (Vec::new(), Vec::new(), Some(cursor), SHARED_SPAN);
        let (end, enough) = (cursor.saturating_add(SHARED_LOOK), limit.min(DESCRIBED_MAX));
        while let Some(at) = next.filter(|at| *at < end && sets.len() < enough) {
            let tx = &mut self.parts.tx;
            tx.set_now(self.last_ns);
            match stage.list_shared(tx, EntryRange { first: at, count: span }, &mut found) {
                Ok(after) => {
                    (next, span) = (after, SHARED_SPAN);
                    tx.abandon();
                }
                // Another worker wrote to one of the sets meanwhile: read fewer in one transaction.
                Err(_) => {
                    span = (span / 2).max(1);
                    tx.abort();
                }
            }
            sets.extend(found.drain(..).filter(|set: &SharedSet| wanted(&set.key)));
        }
        let listed = |set: SharedSet| ListedSet {
            worker: None,
            group,
            key: set.key,
            idle_ms: u32::try_from(set.idle_ns / NS_PER_MS).unwrap_or(u32::MAX),
            states: vec![(position, set.state)],
        };
        (sets.into_iter().take(limit).map(listed).collect(), next)
    }

    /// Ends the shared sets that [`list_shared`](Self::list_shared) would list, as if they had expired; returns how many, and the next cursor.
    pub fn end_shared(&mut self, position: usize, cursor: u32, wanted: impl Fn(&SetKey) -> bool) -> (u64, Option<u32>) {
        let (sets, next) = self.list_shared(position, cursor, usize::MAX, wanted);
        let mut count = 0;
        for set in sets {
            let mut on = Expiring::new(
                (set.group, &mut self.sets[set.group].tables),
                &mut self.parts,
                &mut self.logs.emitted,
                &mut self.counters,
                self.pulse.as_deref(),
            );
            count += expire_shared(position, (&[set.key], End::Chosen), self.last_ns, &mut on, &mut *self.witness);
        }
        self.logs.lives.ended += count;
        (count, next)
    }

    /// Restores a set for some functions of a group, which may have been saved one by one; returns false if it does not fit there.
    pub(crate) fn put_set(&mut self, group: usize, set: &SavedSet, live: &[(usize, &[u8])]) -> bool {
        if self.set_slots(group) == 0 {
            return false;
        }
        put(&self.parts.chain, (group, &mut self.sets[group].tables), set, live).is_some()
    }

    /// Ends a set for which [`put_set`](Self::put_set) found no place, as if it had expired at `now_ns`: otherwise what its functions count it in would
    /// count it for ever. Meanwhile it is in `beside`, tables of the same group.
    pub(crate) fn end_unplaced(
        &mut self,
        (group, beside): (usize, &mut SetTables),
        set: &SavedSet,
        live: &[(usize, &[u8])],
        now_ns: u64,
    ) {
        let chain = Arc::clone(&self.parts.chain);
        let Some(at) = put(&chain, (group, beside), set, live) else { return };
        let (parts, emitted) = (&mut self.parts, &mut self.logs.emitted);
        let mut on = Expiring::new((group, beside), parts, emitted, &mut self.counters, self.pulse.as_deref());
        for (position, _) in live.iter().filter(|(position, _)| chain.group_of(*position) == Some(group)) {
            expire(*position, (&[at], End::Chosen), now_ns, &mut on, &mut *self.witness);
        }
        on.tables.remove(at);
    }

    /// Counts restored shared sets as created on this worker.
    pub(crate) fn count_restored(&mut self, shared: u64) {
        self.logs.lives.created += shared;
    }
}

/// Puts a saved set into the tables of a group for those functions of it in which it is live; `None` if it does not fit there.
fn put(
    chain: &Chain,
    (group, tables): (usize, &mut SetTables),
    set: &SavedSet,
    live: &[(usize, &[u8])],
) -> Option<SetSlot> {
    let mine = || {
        live.iter()
            .filter(|(at, state)| chain.group_of(*at) == Some(group) && state.len() == chain.stages()[*at].set_bytes())
    };
    let bits = mine().fold(0, |bits, (at, _)| bits | chain.stages()[*at].place().bit);
    let place = tables.join(&set.key, saved::meta(set, bits)).filter(|_| bits != 0)?;
    tables.states_mut(place, |bytes| {
        for (at, state) in mine() {
            bytes[chain.stages()[*at].place().offset..][..state.len()].copy_from_slice(state);
        }
    });
    Some(place)
}
