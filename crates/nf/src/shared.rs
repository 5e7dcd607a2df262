//! Shared packet sets: sets that no steering can keep on one worker, because functions of the chain have different
//! sets.
//!
//! Their state lives in a transactional map and is accessed as a whole set. If the function has no other state object,
//! a packet locks its set while it is handled, in a transaction of its own that cannot fail (`pass/locked.rs`). Otherwise
//! the set is read at the start of the handler and written back at its end, in the transaction of the batch
//! (`handle_shared`). Either way the packets of one set are handled one after another, on whichever workers they
//! arrive; nothing is lost or counted twice. Between workers, only the order that the steering keeps is kept.

use braid_packet::time::NS_PER_MS;
use std::ops::Range;

use braid_packet::key::{KeyHash, SetKey, seed};
use braid_state::{Conflict, Inserted, Plain, SetMeta, StateBuilder, StateError, Tx};
use braid_state::{Map, MapConfig, Visit, entries_of_image, image_of_entries};
use zerocopy::{FromBytes, IntoBytes};

use crate::cx::Cx;
use crate::pass::Pass;
use crate::pass::handlers::handle_packet;
use crate::sets::{Candidate, NewSet, Place};
use crate::stage::Event;
use crate::{EntryRange, Findings, Handled, NetworkFunction};

/// Maximum bytes of state of a shared set: what fits two cache lines together with header, key and time.
pub const SHARED_STATE_MAX: usize = 56;

/// Words of state in an entry.
pub(crate) const WORDS: usize = SHARED_STATE_MAX / 8;

/// An entry: the time of the last packet in milliseconds, then the state.
pub(crate) type Entry = [u64; 1 + WORDS];

/// The shared sets of one function.
#[derive(Debug)]
pub struct SharedSets {
    pub(crate) map: Map<SetKey, Entry>,
}

/// Where a shared set that is not yet live would be stored.
#[derive(Debug)]
pub(crate) struct SharedPlace<'a> {
    pub(crate) sets: &'a SharedSets,
    pub(crate) key: SetKey,
    pub(crate) now_ms: u32,
    pub(crate) lives: &'a mut Lives,
}

/// Numbers of sets that became live and that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Sets that became live.
    pub created: u64,
    /// Sets that ended.
    pub ended: u64,
    /// Sets that did not become live because the table was full.
    pub refused: u64,
}

/// A shared set, as listed for an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSet {
    /// Key of the set.
    pub key: SetKey,
    /// Time since its last packet, in nanoseconds.
    pub idle_ns: u64,
    /// State of the set.
    pub state: Vec<u8>,
}

#[inline(always)]
pub(crate) fn entry<S: Plain>(now_ms: u32, state: &S) -> Entry {
    entry_of(now_ms, state.as_bytes())
}

/// The entry of a state given as at most [`SHARED_STATE_MAX`] bytes; larger ones are refused when the chain is built.
#[inline(always)]
fn entry_of(last_seen_ms: u32, state: &[u8]) -> Entry {
    let mut entry = [0; 1 + WORDS];
    entry[0] = u64::from(last_seen_ms);
    entry[1..].as_mut_bytes()[..state.len()].copy_from_slice(state);
    entry
}

#[inline(always)]
pub(crate) fn state<S: Plain>(entry: &Entry) -> S {
    match S::read_from_prefix(entry[1..].as_bytes()) {
        Ok((state, _)) => state,
        Err(_) => unreachable!("larger states are refused when the chain is built"),
    }
}

/// Hashes the bytes of a key exactly as key extraction does, so that the hashes of a batch can be reused.
fn key_hash(bytes: &[u8], _seed: u64) -> u64 {
    match SetKey::read_from_bytes(bytes) {
        Ok(key) => key.hash_with(KeyHash::new(seed())),
        Err(_) => unreachable!("the keys of the map are all of this type"),
    }
}

/// Returns how long a set has been without a packet, in milliseconds.
#[inline(always)]
pub(crate) fn idle_ms(now_ms: u32, entry: &Entry) -> u32 {
    SetMeta { last_seen_ms: entry[0] as u32, ..SetMeta::default() }.idle_ms(now_ms)
}

/// Returns how long a set has been without a packet, in nanoseconds.
fn idle_ns(now_ns: u64, entry: &Entry) -> u64 {
    u64::from(idle_ms((now_ns / NS_PER_MS) as u32, entry)) * NS_PER_MS
}

/// Returns whether the function calls a set assured and the set is within its timeout.
fn is_assured<N: NetworkFunction>(now_ns: u64, function: &N, entry: &Entry) -> bool {
    let set = state::<N::Set>(entry);
    function.is_assured(&set) && idle_ns(now_ns, entry) <= function.timeout_ns(&set)
}

/// Name of the map within its function.
const SETS: &str = "sets";

/// Returns the name of the state object that holds the shared sets of the function with this name.
pub fn shared_sets_name(function: &str) -> String {
    format!("{function}.{SETS}")
}

/// Returns the image of the map of shared sets with these keys, times of the last packet in milliseconds, and states.
pub fn image_of_shared(sets: &[(SetKey, u32, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<_> = sets.iter().map(|(key, last_seen_ms, state)| (key, entry_of(*last_seen_ms, state))).collect();
    let bytes = entries.iter().map(|(key, entry)| (key.as_bytes(), entry.as_bytes()));
    image_of_entries(size_of::<SetKey>(), size_of::<Entry>(), bytes)
}

/// Returns how many shared sets such an image has; `None` if it is none.
pub fn shared_in_image(image: &[u8]) -> Option<usize> {
    entries_of_image(image, size_of::<SetKey>(), size_of::<Entry>()).map(|entries| entries.len())
}

/// Returns the shared sets of such an image, each with `bytes` bytes of state; `None` if it is none.
pub fn shared_of_image(image: &[u8], bytes: usize) -> Option<Vec<(SetKey, u32, Vec<u8>)>> {
    let entries = entries_of_image(image, size_of::<SetKey>(), size_of::<Entry>())?;
    let set = |(key, entry): (&[u8], &[u8])| {
        let (key, entry) = (SetKey::read_from_bytes(key).ok()?, Entry::read_from_bytes(entry).ok()?);
        Some((key, entry[0] as u32, entry[1..].as_bytes().get(..bytes)?.to_vec()))
    };
    entries.into_iter().map(set).collect()
}

impl SharedSets {
    /// Creates a map with room for `capacity` sets of `function`.
    pub(crate) fn new(builder: &mut StateBuilder, function: &str, capacity: usize) -> Result<SharedSets, StateError> {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let config = MapConfig { name: SETS.to_owned(), capacity, hash: key_hash, ..MapConfig::default() };
        Ok(SharedSets { map: Map::new(builder.scope(function), &config)? })
    }

    /// Returns the maximum number of sets.
    pub(crate) fn capacity(&self) -> usize {
        self.map.capacity() as usize
    }

    /// Returns the underlying state object, for plans and profiles.
    pub(crate) fn object(&self) -> std::sync::Arc<dyn braid_state::StateObject> {
        self.map.object()
    }

    /// Returns the number of live sets.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Reads at most a row of entries without logging (`glance`), adds the keys of sets past their timeout, and
    /// prefetches what ending them will access.
    pub(crate) fn find_expired<N: NetworkFunction>(
        &self,
        tx: &mut Tx,
        function: &N,
        row: Range<u32>,
        into: &mut Vec<SetKey>,
    ) -> Result<(), Conflict> {
        let now_ns = tx.now();
        self.map.glance(tx, row, |key, entry| {
            let is_over = idle_ns(now_ns, entry) > function.timeout_ns(&state::<N::Set>(entry));
            if is_over {
                self.map.prefetch(key);
                into.push(*key);
            }
            is_over
        })?;
        Ok(())
    }

    /// Reads at most a row of entries without logging (`glance`), and adds their sets as candidates for eviction,
    /// marked as assured or not.
    pub(crate) fn find_candidates<N: NetworkFunction>(
        &self,
        tx: &mut Tx,
        function: &N,
        row: Range<u32>,
        into: &mut Vec<Candidate<SetKey>>,
    ) -> Result<(), Conflict> {
        let now_ns = tx.now();
        self.map.glance(tx, row, |key, entry| {
            let candidate = Candidate::new(*key, (idle_ns(now_ns, entry) / NS_PER_MS) as u32);
            into.push(Candidate { is_assured: is_assured(now_ns, function, entry), ..candidate });
            false
        })?;
        Ok(())
    }

    /// Returns whether the set exists and the function calls it assured.
    pub(crate) fn is_assured<N: NetworkFunction>(
        &self,
        tx: &mut Tx,
        function: &N,
        key: &SetKey,
    ) -> Result<bool, Conflict> {
        let now_ns = tx.now();
        Ok(self.map.get(tx, key)?.is_some_and(|found| is_assured(now_ns, function, &found)))
    }

    /// Adds the sets among the entries of `range`, each with `bytes` bytes of state, and returns where
    /// to continue, or `None` at the end. After a conflict nothing has been added.
    pub(crate) fn list(
        &self,
        tx: &mut Tx,
        bytes: usize,
        range: EntryRange,
        into: &mut Vec<SharedSet>,
    ) -> Result<Option<u32>, Conflict> {
        let (now_ns, before) = (tx.now(), into.len());
        let next = self.map.for_each(tx, range.first, range.count, |_, key, entry| {
            let state = entry[1..].as_bytes()[..bytes].to_vec();
            into.push(SharedSet { key: *key, idle_ns: idle_ns(now_ns, entry), state });
            Ok(Visit::Keep)
        });
        if next.is_err() {
            into.truncate(before);
        }
        next
    }

    /// Adds the findings of the sets that are still live.
    pub(crate) fn report<N: NetworkFunction>(
        &self,
        tx: &mut Tx,
        function: &N,
        into: &mut Findings,
    ) -> Result<(), Conflict> {
        into.pieces(|into, from, entries| {
            self.map.for_each(tx, from, entries, |_, key, entry| {
                function.report_set(key, &state::<N::Set>(entry), into);
                Ok(Visit::Keep)
            })
        })
    }

    /// Ends a set if it is still past its timeout, and returns whether it did.
    pub(crate) fn expire<N: NetworkFunction>(
        &self,
        event: &mut Event<'_>,
        function: &N,
        key: &SetKey,
    ) -> Result<bool, Conflict> {
        let Some(found) = self.map.get(event.tx, key)? else { return Ok(false) };
        let set = state::<N::Set>(&found);
        let is_over = idle_ns(event.tx.now(), &found) > function.timeout_ns(&set);
        if is_over {
            self.remove(event, function, key, &set)?;
        }
        Ok(is_over)
    }

    /// Ends a set regardless of its timeout, and returns whether it existed.
    pub(crate) fn end<N: NetworkFunction>(
        &self,
        event: &mut Event<'_>,
        function: &N,
        key: &SetKey,
    ) -> Result<bool, Conflict> {
        let Some(found) = self.map.get(event.tx, key)? else { return Ok(false) };
        self.remove(event, function, key, &state::<N::Set>(&found))?;
        Ok(true)
    }

    fn remove<N: NetworkFunction>(
        &self,
        event: &mut Event<'_>,
        function: &N,
        key: &SetKey,
        set: &N::Set,
    ) -> Result<(), Conflict> {
        function.expired(&mut event.cx(), key, set)?;
        self.map.remove(event.tx, key)?;
        Ok(())
    }
}

impl SharedPlace<'_> {
    pub(crate) fn register<S: Plain>(&mut self, tx: &mut Tx, state: &S) -> bool {
        match self.sets.map.insert(tx, &self.key, &entry(self.now_ms, state)) {
            // Even if the handler ignores the conflict, its transaction does not commit.
            Err(_) => false,
            Ok(Inserted::Full) => {
                self.lives.refused += 1;
                false
            }
            Ok(_) => {
                self.lives.created += 1;
                true
            }
        }
    }
}

impl Pass<'_> {
    /// Runs the handler for packet `i`, whose set is shared.
    pub(crate) fn handle_shared<N: NetworkFunction>(
        &mut self,
        function: &N,
        sets: &SharedSets,
        key: SetKey,
        reversed: bool,
        i: usize,
    ) -> Handled {
        let now_ms = (self.now_ns[i] / NS_PER_MS) as u32;
        let found = sets.map.get(self.tx, &key)?;
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, reversed);
        let mut packet = self.batch.packet(i, Some(&mut self.logs.packets));
        if let Some(found) = found {
            let mut set = state::<N::Set>(&found);
            if idle_ns(self.now_ns[i], &found) <= function.timeout_ns(&set) {
                let handled = handle_packet(function, &mut cx, &mut packet, &mut set)?;
                sets.map.insert(self.tx, &key, &entry(now_ms, &set))?;
                return Ok(handled);
            }
            function.expired(&mut cx, &key, &set)?;
            sets.map.remove(&mut cx, &key)?;
            self.logs.lives.ended += 1;
        }
        let place = SharedPlace { sets, key, now_ms, lives: &mut self.logs.lives };
        function.first(&mut cx, &mut packet, &mut NewSet::new(Place::Shared(place)))
    }
}
