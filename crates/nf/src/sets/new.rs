//! How a handler makes a set live.

use std::marker::PhantomData;

use braid_packet::key::{Keys, SetKey};
use braid_state::{Plain, Tx};

use super::{SetSlot, SetTables, SetUndo};
use crate::shared::SharedPlace;

/// A set that is not live, as passed to the handler of a first packet ([`NetworkFunction::first`]).
///
/// [`NetworkFunction::first`]: crate::NetworkFunction::first
#[derive(Debug)]
pub struct NewSet<'a, S> {
    place: Place<'a>,
    /// Registering stores an `S`; the pointer keeps the type on the worker's thread.
    kind: PhantomData<(S, *const ())>,
}

/// Where the set would be stored.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    Local(NewPlace<'a>),
    Shared(SharedPlace<'a>),
}

#[derive(Debug)]
pub(crate) struct NewPlace<'a> {
    pub(crate) tables: &'a mut SetTables,
    pub(crate) undo: &'a mut SetUndo,
    pub(crate) keys: &'a Keys,
    pub(crate) slot: &'a mut SetSlot,
    pub(crate) index: usize,
    pub(crate) now_ms: u32,
    pub(crate) bit: u16,
    pub(crate) offset: usize,
}

impl<'a, S: Plain> NewSet<'a, S> {
    #[inline(always)]
    pub(crate) fn new(place: Place<'a>) -> NewSet<'a, S> {
        NewSet { place, kind: PhantomData }
    }

    /// Returns the key of the set.
    pub fn key(&self) -> SetKey {
        match &self.place {
            Place::Local(place) => place.keys.key(place.index),
            Place::Shared(place) => place.key,
        }
    }

    /// Makes the set live with this state, in the handler's transaction `tx` (pass the context). The set's next packet
    /// then goes to the handler of live sets.
    ///
    /// Returns `false` if the table is full. The set's next packet is then again a first packet, and the function
    /// decides what happens to packets that it cannot remember;
    /// [`Reason::SET_TABLE_FULL`](crate::Reason::SET_TABLE_FULL) is the usual reason to drop them.
    #[must_use = "the table may be full"]
    pub fn register(&mut self, tx: &mut Tx, state: S) -> bool {
        match &mut self.place {
            Place::Local(place) => place.register(tx, state),
            Place::Shared(place) => place.register(tx, &state),
        }
    }
}

impl NewPlace<'_> {
    fn register<S: Plain>(&mut self, tx: &mut Tx, state: S) -> bool {
        // Whether a table is full depends on this worker, and so does when the record of an ended set becomes free. A
        // certificate therefore replays the answer, and the choice is made whether or not there is a record.
        let has_record = *self.slot != SetSlot::MISS;
        let has_room = tx.choice(|| u64::from(has_record || self.tables.has_room())) != 0;
        let slot = match has_room {
            true if has_record => Some(*self.slot),
            true => self.insert(),
            false => None,
        };
        let Some(slot) = slot else {
            self.tables.refused += 1;
            self.undo.note_refused();
            return false;
        };
        let meta = *self.tables.meta_mut(slot);
        // A new record is rolled back as a whole.
        if has_record {
            self.undo.save_meta(slot, meta);
            self.undo.save_state(slot, self.offset, self.tables.state::<S>(slot, self.offset));
        }
        self.tables.set_live(slot, meta.live | self.bit);
        if meta.live == 0 {
            self.tables.note_begun(slot);
        }
        *self.tables.state::<S>(slot, self.offset) = state;
        true
    }

    /// Creates a record; `None` if there is no room after all.
    fn insert(&mut self) -> Option<SetSlot> {
        let slot = self.tables.insert(self.keys, self.index)?;
        *self.slot = slot;
        self.undo.note_inserted(slot);
        self.tables.meta_mut(slot).last_seen_ms = self.now_ms;
        Some(slot)
    }
}
