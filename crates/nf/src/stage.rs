//! The type-erased form of a network function, as stored in a chain.

use braid_packet::time::NS_PER_MS;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_packet::key::{KeyError, KeyExtractor, SetDef, SetKey};
use braid_state::{Conflict, StateBuilder, StateError, StateObject, Tx};
use zerocopy::FromBytes as _;

use crate::cx::{Cx, Emitted};
use crate::pass::{Interrupted, Pass, Place};
use crate::sets::{Candidate, SetSlot, SetTables};
use crate::shared::{SHARED_STATE_MAX, SharedSet, SharedSets};
use crate::{
    EntryRange, Fate, FieldUse, Findings, Hairpins, NetworkFunction, Port, Reason, Relaxation, Rewrites, SetMeaning,
    TableEntry, Tick,
};

/// One function of a chain. It is called once per batch; the loop over packets is inside, compiled for the function.
pub trait Stage: Send + Sync {
    /// Returns the name of the function in the plan.
    fn name(&self) -> &str;
    /// Returns the function's own name ([`NetworkFunction::NAME`]).
    fn kind(&self) -> &'static str;
    /// Returns the function's packet set.
    fn packet_set(&self) -> Option<SetDef>;
    /// Returns [`NetworkFunction::ANY_SET`].
    fn takes_any_set(&self) -> bool;
    /// Returns [`NetworkFunction::SET_KEYS`].
    fn set_keys(&self) -> &'static [&'static str];
    /// Returns the size of the packet-set state in bytes.
    fn set_bytes(&self) -> usize;
    /// Returns [`NetworkFunction::STEADY`].
    fn is_steady(&self) -> bool;
    /// Sets the place of the function's set state in the record; called once, before the first packet.
    fn settle(&mut self, place: Place);
    /// Makes the function's sets shared, at most `capacity` of them; called instead of [`settle`](Self::settle) if
    /// steering does not keep the sets of `set` on one worker.
    fn share(&mut self, builder: &mut StateBuilder, set: &SetDef, capacity: usize) -> Result<(), ShareError>;
    /// Returns whether the sets are shared.
    fn is_shared(&self) -> bool;
    /// Returns the maximum number of shared sets if workers keep an [`Index`](crate::Index) of them.
    fn indexed(&self) -> Option<usize>;
    /// Adds the keys of shared sets past their timeout among at most a row of entries.
    fn find_expired_shared(&self, tx: &mut Tx, row: Range<u32>, into: &mut Vec<SetKey>) -> Result<(), Conflict>;
    /// Returns the capacity for shared sets and the number of live ones.
    fn shared_room(&self) -> (usize, usize);
    /// Adds the shared sets among at most a row of entries as candidates for eviction.
    fn find_candidates_shared(
        &self,
        tx: &mut Tx,
        row: Range<u32>,
        into: &mut Vec<Candidate<SetKey>>,
    ) -> Result<(), Conflict>;
    /// Returns whether such a shared set exists and the function calls it [assured](NetworkFunction::is_assured).
    fn is_assured_shared(&self, tx: &mut Tx, key: &SetKey) -> Result<bool, Conflict>;
    /// Ends a shared set if it is still past its timeout, and returns whether it did.
    fn expire_shared(&self, event: &mut Event<'_>, key: &SetKey) -> Result<bool, Conflict>;
    /// Ends a shared set regardless of its timeout, and returns whether it existed.
    fn end_shared(&self, event: &mut Event<'_>, key: &SetKey) -> Result<bool, Conflict>;
    /// Adds the shared sets in `range` and returns where to continue, or `None` at the end.
    /// After a conflict nothing has been added.
    fn list_shared(&self, tx: &mut Tx, range: EntryRange, into: &mut Vec<SharedSet>) -> Result<Option<u32>, Conflict>;
    /// Returns the state objects; the object of the shared sets, if any, is the last one.
    fn objects(&self) -> Vec<Arc<dyn StateObject>>;
    /// Returns whether there are any state objects; without one, handlers cannot meet a conflict.
    fn has_objects(&self) -> bool;
    /// Checks whether this function can take over the state of `older`; an error says why not.
    fn inherits(&self, older: &dyn Stage) -> Result<(), String>;
    /// Returns the function itself, for [`inherits`](Self::inherits).
    fn as_any(&self) -> &dyn Any;
    /// Returns the metadata fields that it reads or writes.
    fn fields(&self) -> Vec<FieldUse>;
    /// Returns what may be relaxed.
    fn relaxations(&self) -> Vec<Relaxation> {
        Vec::new()
    }
    /// Returns the header fields that it changes.
    fn rewrites(&self) -> Rewrites;
    /// Returns a lower bound of all sets' timeouts, in nanoseconds.
    fn shortest_timeout_ns(&self) -> u64;
    /// Returns the periods of its ticks.
    fn ticks(&self) -> Vec<Duration>;
    /// Returns whether the work of a period is divided among workers.
    fn divides(&self, period: usize) -> bool;
    /// Runs handlers over positions `from..to` of the pass, or over a prefix of them, and returns the position reached.
    fn execute(&self, pass: &mut Pass<'_>, from: usize, to: usize) -> Result<usize, Interrupted>;
    /// Returns how long a set lives without a packet for this function, in nanoseconds; `None` if it is not live for
    /// it.
    fn timeout_ns(&self, tables: &mut SetTables, at: SetSlot) -> Option<u64>;
    /// Adds to `into` those sets of `among` (each with its idle time in milliseconds) that are past their timeout for
    /// this function.
    fn find_expired(&self, tables: &mut SetTables, among: &[(SetSlot, u32)], into: &mut Vec<SetSlot>);
    /// Marks the candidates that are within their timeout and that the function calls
    /// [assured](NetworkFunction::is_assured).
    fn find_assured(&self, tables: &mut SetTables, among: &mut [Candidate]);
    /// Runs the handler for one expired set; the caller commits and then ends the set for this function.
    fn expire(&self, event: &mut Event<'_>, tables: &mut SetTables, at: SetSlot) -> Result<(), Conflict>;
    /// Prefetches the shared state that [`expire`](Self::expire) will access.
    fn prefetch_expired(&self, tables: &mut SetTables, at: SetSlot);
    /// Returns the place of its set state in the record.
    fn place(&self) -> Place;
    /// Runs the handler of a period.
    fn tick(&self, event: &mut Event<'_>, tick: Tick) -> Result<(), Conflict>;
    /// Returns [`NetworkFunction::HOLDS`].
    fn holds_packets(&self) -> bool;
    /// Returns [`NetworkFunction::CONSUMES`].
    fn consumes(&self) -> &'static [Reason];
    /// Returns whether packets dropped for the reason of this name are not lost.
    fn has_consumed(&self, reason: &str) -> bool {
        self.consumes().iter().any(|Reason(own)| *own == reason)
    }
    /// Returns [`NetworkFunction::TURNS_BACK`].
    fn turns_back(&self) -> bool;
    /// Returns [`NetworkFunction::FOLLOWS_FRAGMENTS`].
    fn follows_fragments(&self) -> bool;
    /// Calls [`NetworkFunction::hairpins`].
    fn hairpins(&self) -> Hairpins;
    /// Calls [`NetworkFunction::holds`].
    fn holds(&self, event: &mut Event<'_>) -> Result<Option<u64>, Conflict>;
    /// Calls [`NetworkFunction::held_in_vain`].
    fn held_in_vain(&self) -> Vec<(Reason, u64)>;
    /// Calls [`NetworkFunction::start`], before the first packet.
    fn start(&self, event: &mut Event<'_>) -> Result<(), Conflict>;
    /// Calls [`NetworkFunction::stop`], after the last packet.
    fn stop(&self, event: &mut Event<'_>) -> Result<(), Conflict>;
    /// Adds the findings of state objects and shared sets, after [`stop`](Self::stop).
    fn report(&self, event: &mut Event<'_>, into: &mut Findings) -> Result<(), Conflict>;
    /// Adds the findings of a worker's sets that are still live.
    fn report_sets(&self, tables: &mut SetTables, into: &mut Findings);
    /// Describes a set from the bytes of its state for this function; empty if the bytes are not such a state.
    fn describe(&self, event: &mut Event<'_>, key: &SetKey, state: &[u8]) -> Result<SetMeaning, Conflict>;
    /// [`NetworkFunction::link_down`].
    fn link_down(&self, event: &mut Event<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict>;
    /// [`NetworkFunction::link_up`].
    fn link_up(&self, event: &mut Event<'_>, port: Port) -> Result<(), Conflict>;
    /// [`NetworkFunction::LISTS_ENTRIES`].
    fn lists_entries(&self) -> bool;
    /// [`NetworkFunction::list_entries`].
    fn list_entries(
        &self,
        event: &mut Event<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict>;
}

/// Why a function's sets cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The state per set is too large.
    #[error(
        "{function} keeps {bytes} bytes per packet set; {SHARED_STATE_MAX} is the most for sets that workers share"
    )]
    State {
        /// Name of the function.
        function: String,
        /// Size of its state in bytes.
        bytes: usize,
    },
    /// The packet set yields no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Memory allocation failed, or the capacity is invalid.
    #[error(transparent)]
    Table(#[from] StateError),
}

/// What a handler without a packet runs in.
#[derive(Debug)]
pub struct Event<'a> {
    /// The worker's transaction, with its time set.
    pub tx: &'a mut Tx,
    /// Packets that the handler makes.
    pub emitted: &'a mut Emitted,
    /// Number of ports of the plan.
    pub ports: u16,
}

impl Event<'_> {
    pub(crate) fn cx(&mut self) -> Cx<'_> {
        Cx::without_packet(self.tx, self.emitted, self.ports)
    }
}

/// A function with its name in a plan.
#[derive(Debug)]
pub struct Instance<N> {
    name: String,
    function: N,
    place: Place,
    has_objects: bool,
    shared: Option<SharedSets>,
}

impl<N: NetworkFunction> Instance<N> {
    /// Creates an instance, ready to be put into a chain.
    pub fn new(name: impl Into<String>, function: N) -> Instance<N> {
        let has_objects = !function.objects().is_empty();
        Instance { name: name.into(), function, place: Place::default(), has_objects, shared: None }
    }

    /// Returns the shared sets if each packet locks its own set while it is handled.
    fn held_sets(&self) -> Option<&SharedSets> {
        self.shared.as_ref().filter(|_| !self.has_objects)
    }
}

impl<N: NetworkFunction> Stage for Instance<N> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        N::NAME
    }

    fn packet_set(&self) -> Option<SetDef> {
        self.function.packet_set()
    }

    fn takes_any_set(&self) -> bool {
        N::ANY_SET
    }

    fn set_keys(&self) -> &'static [&'static str] {
        N::SET_KEYS
    }

    fn set_bytes(&self) -> usize {
        size_of::<N::Set>()
    }

    fn is_steady(&self) -> bool {
        N::STEADY
    }

    fn settle(&mut self, place: Place) {
        self.place = place;
    }

    fn share(&mut self, builder: &mut StateBuilder, set: &SetDef, capacity: usize) -> Result<(), ShareError> {
        let bytes = size_of::<N::Set>();
        if bytes > SHARED_STATE_MAX {
            return Err(ShareError::State { function: self.name.clone(), bytes });
        }
        KeyExtractor::compile(set)?;
        self.shared = Some(SharedSets::new(builder, &self.name, capacity)?);
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    fn indexed(&self) -> Option<usize> {
        self.held_sets().map(SharedSets::capacity)
    }

    fn find_expired_shared(&self, tx: &mut Tx, row: Range<u32>, into: &mut Vec<SetKey>) -> Result<(), Conflict> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.find_expired(tx, &self.function, row, into))
    }

    fn shared_room(&self) -> (usize, usize) {
        self.shared.as_ref().map_or((0, 0), |shared| (shared.capacity(), shared.len()))
    }

    fn find_candidates_shared(
        &self,
        tx: &mut Tx,
        row: Range<u32>,
        into: &mut Vec<Candidate<SetKey>>,
    ) -> Result<(), Conflict> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.find_candidates(tx, &self.function, row, into))
    }

    fn is_assured_shared(&self, tx: &mut Tx, key: &SetKey) -> Result<bool, Conflict> {
        self.shared.as_ref().map_or(Ok(false), |shared| shared.is_assured(tx, &self.function, key))
    }

    fn expire_shared(&self, event: &mut Event<'_>, key: &SetKey) -> Result<bool, Conflict> {
        self.shared.as_ref().map_or(Ok(false), |shared| shared.expire(event, &self.function, key))
    }

    fn end_shared(&self, event: &mut Event<'_>, key: &SetKey) -> Result<bool, Conflict> {
        self.shared.as_ref().map_or(Ok(false), |shared| shared.end(event, &self.function, key))
    }

    fn list_shared(&self, tx: &mut Tx, range: EntryRange, into: &mut Vec<SharedSet>) -> Result<Option<u32>, Conflict> {
        self.shared.as_ref().map_or(Ok(None), |shared| shared.list(tx, size_of::<N::Set>(), range, into))
    }

    fn objects(&self) -> Vec<Arc<dyn StateObject>> {
        let shared = self.shared.iter().map(SharedSets::object);
        self.function.objects().into_iter().chain(shared).collect()
    }

    fn has_objects(&self) -> bool {
        self.has_objects || self.shared.is_some()
    }

    fn inherits(&self, older: &dyn Stage) -> Result<(), String> {
        match older.as_any().downcast_ref::<N>() {
            Some(older) => self.function.inherits(older),
            None if older.kind() == N::NAME => {
                Err(format!("as it is configured now it is a {} of another sort, which keeps other things", N::NAME))
            }
            None => Err(format!("it was a {} before", older.kind())),
        }
    }

    fn as_any(&self) -> &dyn Any {
        &self.function
    }

    fn fields(&self) -> Vec<FieldUse> {
        self.function.fields()
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        self.function.relaxations()
    }

    fn rewrites(&self) -> Rewrites {
        self.function.rewrites()
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.function.shortest_timeout_ns()
    }

    fn ticks(&self) -> Vec<Duration> {
        self.function.ticks()
    }

    fn divides(&self, period: usize) -> bool {
        self.function.divides(period)
    }

    fn execute(&self, pass: &mut Pass<'_>, from: usize, to: usize) -> Result<usize, Interrupted> {
        let (function, place, shared) = (&self.function, self.place, self.shared.as_ref());
        if pass.goes_back {
            return pass.attempt_back(function, from, to).map(|()| to);
        }
        if N::ASKS_PORT {
            pass.logs.emitted.keep_decided(pass.verdicts, pass.batch.len());
        }
        if pass.goes_on {
            return pass.take_part(function, place, shared, from, to).map(|()| to);
        }
        match self.held_sets() {
            Some(sets) if !pass.is_logged => pass.attempt_held(function, sets, from, to),
            None if !self.has_objects => {
                pass.run(function, place, from, to);
                Ok(to)
            }
            _ => pass.attempt(function, place, shared, from, to),
        }
    }

    fn timeout_ns(&self, tables: &mut SetTables, at: SetSlot) -> Option<u64> {
        let live = tables.meta_mut(at).live & self.place.bit != 0;
        live.then(|| self.function.timeout_ns(tables.state::<N::Set>(at, self.place.offset)))
    }

    fn find_expired(&self, tables: &mut SetTables, among: &[(SetSlot, u32)], into: &mut Vec<SetSlot>) {
        for &(at, idle_ms) in among {
            if self.timeout_ns(tables, at).is_some_and(|timeout_ns| idle_ms as u64 * NS_PER_MS > timeout_ns) {
                into.push(at);
            }
        }
    }

    fn find_assured(&self, tables: &mut SetTables, among: &mut [Candidate]) {
        for candidate in among {
            let set = tables.state_at::<N::Set>(candidate.at, self.place);
            let lasts = |set| u64::from(candidate.idle_ms) * NS_PER_MS <= self.function.timeout_ns(set);
            candidate.is_assured |= set.is_some_and(|set| self.function.is_assured(set) && lasts(set));
        }
    }

    fn expire(&self, event: &mut Event<'_>, tables: &mut SetTables, at: SetSlot) -> Result<(), Conflict> {
        let (key, state) = (tables.key(at), *tables.state::<N::Set>(at, self.place.offset));
        self.function.expired(&mut event.cx(), &key, &state)
    }

    fn prefetch_expired(&self, tables: &mut SetTables, at: SetSlot) {
        if N::PREFETCHES_EXPIRED {
            let key = tables.key(at);
            self.function.prefetch_expired(&key, tables.state::<N::Set>(at, self.place.offset));
        }
    }

    fn place(&self) -> Place {
        self.place
    }

    fn tick(&self, event: &mut Event<'_>, tick: Tick) -> Result<(), Conflict> {
        self.function.tick(&mut event.cx(), tick)
    }

    fn holds_packets(&self) -> bool {
        N::HOLDS
    }

    fn consumes(&self) -> &'static [Reason] {
        N::CONSUMES
    }

    fn turns_back(&self) -> bool {
        N::TURNS_BACK
    }

    fn follows_fragments(&self) -> bool {
        N::FOLLOWS_FRAGMENTS
    }

    fn hairpins(&self) -> Hairpins {
        self.function.hairpins()
    }

    fn holds(&self, event: &mut Event<'_>) -> Result<Option<u64>, Conflict> {
        self.function.holds(&mut event.cx())
    }

    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.function.held_in_vain()
    }

    fn start(&self, event: &mut Event<'_>) -> Result<(), Conflict> {
        self.function.start(&mut event.cx())
    }

    fn stop(&self, event: &mut Event<'_>) -> Result<(), Conflict> {
        self.function.stop(&mut event.cx())
    }

    fn report(&self, event: &mut Event<'_>, into: &mut Findings) -> Result<(), Conflict> {
        if let Some(shared) = &self.shared {
            shared.report(event.tx, &self.function, into)?;
        }
        self.function.report(&mut event.cx(), into)
    }

    fn report_sets(&self, tables: &mut SetTables, into: &mut Findings) {
        let mut live = Vec::new();
        tables.scan(0, tables.slots(), |at, meta| {
            if meta.live & self.place.bit != 0 {
                live.push(at);
            }
        });
        for at in live {
            let key = tables.key(at);
            self.function.report_set(&key, tables.state::<N::Set>(at, self.place.offset), into);
        }
    }

    fn describe(&self, event: &mut Event<'_>, key: &SetKey, state: &[u8]) -> Result<SetMeaning, Conflict> {
        let Ok(set) = N::Set::read_from_bytes(state) else {
            return Ok(SetMeaning { words: None, timeout_ns: u64::MAX });
        };
        let words = self.function.describe(&mut event.cx(), key, &set)?;
        Ok(SetMeaning { words, timeout_ns: self.function.timeout_ns(&set) })
    }

    fn link_down(&self, event: &mut Event<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict> {
        self.function.link_down(&mut event.cx(), port, range)
    }

    fn link_up(&self, event: &mut Event<'_>, port: Port) -> Result<(), Conflict> {
        self.function.link_up(&mut event.cx(), port)
    }

    fn lists_entries(&self) -> bool {
        N::LISTS_ENTRIES
    }

    fn list_entries(
        &self,
        event: &mut Event<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.function.list_entries(&mut event.cx(), range, tell)
    }
}
