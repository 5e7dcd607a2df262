//! A function whose packet set the plan replaces.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_runtime::nf::packet::key::{SetDef, SetKey};
use braid_runtime::nf::state::{Conflict, StateBuilder, StateObject, Tx};
use braid_runtime::nf::{
    Candidate, EntryRange, Event, Fate, FieldUse, Findings, Hairpins, Interrupted, Pass, Place, Port, Reason,
    Relaxation, Rewrites, SetMeaning, SetSlot, SetTables, ShareError, SharedSet, Stage, TableEntry, Tick,
};

/// Delegates everything except the packet set to the inner function.
pub(crate) struct Overridden {
    inner: Box<dyn Stage>,
    set: SetDef,
}

impl Overridden {
    pub(crate) fn new(inner: Box<dyn Stage>, set: SetDef) -> Overridden {
        Overridden { inner, set }
    }
}

impl Stage for Overridden {
    fn packet_set(&self) -> Option<SetDef> {
        Some(self.set.clone())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
    fn takes_any_set(&self) -> bool {
        self.inner.takes_any_set()
    }
    fn set_keys(&self) -> &'static [&'static str] {
        self.inner.set_keys()
    }
    fn set_bytes(&self) -> usize {
        self.inner.set_bytes()
    }
    fn is_steady(&self) -> bool {
        self.inner.is_steady()
    }
    fn settle(&mut self, place: Place) {
        self.inner.settle(place);
    }
    fn share(&mut self, builder: &mut StateBuilder, set: &SetDef, capacity: usize) -> Result<(), ShareError> {
        self.inner.share(builder, set, capacity)
    }
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
    fn indexed(&self) -> Option<usize> {
        self.inner.indexed()
    }
    fn find_expired_shared(&self, tx: &mut Tx, row: Range<u32>, into: &mut Vec<SetKey>) -> Result<(), Conflict> {
        self.inner.find_expired_shared(tx, row, into)
    }
    fn shared_room(&self) -> (usize, usize) {
        self.inner.shared_room()
    }
    fn find_candidates_shared(
        &self,
        tx: &mut Tx,
        row: Range<u32>,
        into: &mut Vec<Candidate<SetKey>>,
    ) -> Result<(), Conflict> {
        self.inner.find_candidates_shared(tx, row, into)
    }
    fn is_assured_shared(&self, tx: &mut Tx, key: &SetKey) -> Result<bool, Conflict> {
        self.inner.is_assured_shared(tx, key)
    }
    fn expire_shared(&self, event: &mut Event<'_>, key: &SetKey) -> Result<bool, Conflict> {
        self.inner.expire_shared(event, key)
    }
    fn end_shared(&self, event: &mut Event<'_>, key: &SetKey) -> Result<bool, Conflict> {
        self.inner.end_shared(event, key)
    }
    fn list_shared(&self, tx: &mut Tx, range: EntryRange, into: &mut Vec<SharedSet>) -> Result<Option<u32>, Conflict> {
        self.inner.list_shared(tx, range, into)
    }
    fn objects(&self) -> Vec<Arc<dyn StateObject>> {
        self.inner.objects()
    }
    fn has_objects(&self) -> bool {
        self.inner.has_objects()
    }
    fn inherits(&self, older: &dyn Stage) -> Result<(), String> {
        self.inner.inherits(older)
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
    fn fields(&self) -> Vec<FieldUse> {
        self.inner.fields()
    }
    fn relaxations(&self) -> Vec<Relaxation> {
        self.inner.relaxations()
    }
    fn rewrites(&self) -> Rewrites {
        self.inner.rewrites()
    }
    fn shortest_timeout_ns(&self) -> u64 {
        self.inner.shortest_timeout_ns()
    }
    fn ticks(&self) -> Vec<Duration> {
        self.inner.ticks()
    }
    fn holds_packets(&self) -> bool {
        self.inner.holds_packets()
    }
    fn hairpins(&self) -> Hairpins {
        self.inner.hairpins()
    }
    fn consumes(&self) -> &'static [Reason] {
        self.inner.consumes()
    }
    fn turns_back(&self) -> bool {
        self.inner.turns_back()
    }
    fn follows_fragments(&self) -> bool {
        self.inner.follows_fragments()
    }
    fn holds(&self, event: &mut Event<'_>) -> Result<Option<u64>, Conflict> {
        self.inner.holds(event)
    }
    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.inner.held_in_vain()
    }
    fn execute(&self, pass: &mut Pass<'_>, from: usize, to: usize) -> Result<usize, Interrupted> {
        self.inner.execute(pass, from, to)
    }
    fn timeout_ns(&self, tables: &mut SetTables, at: SetSlot) -> Option<u64> {
        self.inner.timeout_ns(tables, at)
    }
    fn find_expired(&self, tables: &mut SetTables, among: &[(SetSlot, u32)], into: &mut Vec<SetSlot>) {
        self.inner.find_expired(tables, among, into);
    }
    fn find_assured(&self, tables: &mut SetTables, among: &mut [Candidate]) {
        self.inner.find_assured(tables, among);
    }
    fn expire(&self, event: &mut Event<'_>, tables: &mut SetTables, at: SetSlot) -> Result<(), Conflict> {
        self.inner.expire(event, tables, at)
    }
    fn prefetch_expired(&self, tables: &mut SetTables, at: SetSlot) {
        self.inner.prefetch_expired(tables, at);
    }
    fn place(&self) -> Place {
        self.inner.place()
    }
    fn divides(&self, period: usize) -> bool {
        self.inner.divides(period)
    }
    fn tick(&self, event: &mut Event<'_>, tick: Tick) -> Result<(), Conflict> {
        self.inner.tick(event, tick)
    }
    fn start(&self, event: &mut Event<'_>) -> Result<(), Conflict> {
        self.inner.start(event)
    }
    fn stop(&self, event: &mut Event<'_>) -> Result<(), Conflict> {
        self.inner.stop(event)
    }
    fn report(&self, event: &mut Event<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.inner.report(event, into)
    }
    fn report_sets(&self, tables: &mut SetTables, into: &mut Findings) {
        self.inner.report_sets(tables, into);
    }
    fn describe(&self, event: &mut Event<'_>, key: &SetKey, state: &[u8]) -> Result<SetMeaning, Conflict> {
        self.inner.describe(event, key, state)
    }
    fn link_down(&self, event: &mut Event<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict> {
        self.inner.link_down(event, port, range)
    }
    fn link_up(&self, event: &mut Event<'_>, port: Port) -> Result<(), Conflict> {
        self.inner.link_up(event, port)
    }
    fn lists_entries(&self) -> bool {
        self.inner.lists_entries()
    }
    fn list_entries(
        &self,
        event: &mut Event<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.inner.list_entries(event, range, tell)
    }
}
