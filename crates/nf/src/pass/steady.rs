//! What the loops for packets of live sets read and what they record.

use braid_packet::time::NS_PER_MS;
use braid_packet::{Batch, Order, Turn, Walk};
use braid_state::{Plain, SetMeta};

use super::{Found, Pass, PassSets, Place};
use crate::NetworkFunction;
use crate::sets::StatesAt;

/// What the loops for packets of live sets check before they run a handler.
pub(super) struct Steady<'a, N: NetworkFunction> {
    function: &'a N,
    states: StatesAt<'a, N::Set>,
    pub(super) found: &'a Found,
    pub(super) swapped: &'a [bool; 256],
    bit: u16,
}

impl<'a, N: NetworkFunction> Steady<'a, N> {
    #[inline(always)]
    pub(super) fn new(function: &'a N, sets: &'a mut PassSets<'_>, place: Place) -> Steady<'a, N> {
        let PassSets { tables, keys, found } = sets;
        Steady { function, states: tables.states_at(place.offset), found, swapped: &keys.swapped, bit: place.bit }
    }

    /// Returns whether packet `i`'s set is live for the function and within its timeout. `ALL`: this is known of all
    /// packets ([`Found::is_steady`]) and only the existence of a record is checked. It is separate from
    /// [`state`](Self::state) because the compiler would test an optional reference once more for `None`.
    #[inline(always)]
    pub(super) fn is_live<const ALL: bool>(&mut self, i: usize) -> bool {
        let slot = self.found.slots[i];
        let goes_on = |(meta, state): (&mut SetMeta, &mut N::Set)| {
            meta.live & self.bit != 0 && !is_late(self.function, state, self.found.since_ms[i])
        };
        self.states.has(slot) && (ALL || goes_on(self.states.get(slot)))
    }

    /// Returns the state of packet `i`'s set, which must be live.
    #[inline(always)]
    pub(super) fn state(&mut self, i: usize) -> &mut N::Set {
        self.states.get(self.found.slots[i]).1
    }
}

/// The state of a set while a handler may change it: if the handler panics, the set has its earlier state again.
pub(super) struct InHand<'a, S: Plain> {
    pub(super) state: &'a mut S,
    before: S,
}

impl<'a, S: Plain> InHand<'a, S> {
    #[inline(always)]
    pub(super) fn new(state: &'a mut S) -> InHand<'a, S> {
        let before = *state;
        InHand { state, before }
    }

    /// After the handler has returned: the earlier state if it was changed. Most packets leave their set unchanged.
    #[inline(always)]
    pub(super) fn changed(self) -> Option<S> {
        let before = self.before;
        let changed = (self.state.as_bytes() != before.as_bytes()).then_some(before);
        std::mem::forget(self);
        changed
    }
}

impl<S: Plain> Drop for InHand<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.state = self.before;
    }
}

/// Arrival times of packets; with `ALIKE`, one time for all.
pub(super) struct Times<'a, const ALIKE: bool> {
    each_ns: &'a [u64; 256],
    one_ns: u64,
}

impl<const ALIKE: bool> Times<'_, ALIKE> {
    /// Returns the arrival time of packet `i`, in nanoseconds.
    #[inline(always)]
    pub(super) fn of(&self, i: usize) -> u64 {
        if ALIKE { self.one_ns } else { self.each_ns[i] }
    }
}

impl<'p> Pass<'p> {
    /// Returns whether all packets arrived at the same time, according to the look-up, and lie whole in ordinary
    /// buffers.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.batch.is_ordinary() && self.sets.as_ref().is_some_and(|sets| sets.found.alike)
    }

    /// Returns the arrival times of the packets from position `from` on.
    #[inline(always)]
    pub(super) fn times<const ALIKE: bool>(&self, from: usize) -> Times<'p, ALIKE> {
        let one = self.todo.get(from).map_or(0, |&i| usize::from(i) & 255);
        Times { each_ns: self.now_ns, one_ns: self.now_ns[one] }
    }
}

/// A walk over packets that records how far it came, even if a handler panics. The walk itself counts; the position is
/// written to `kept` when this is dropped.
pub(super) struct Reached<'a, const ORDINARY: bool> {
    kept: &'a mut usize,
    walk: Walk<'a, ORDINARY>,
    from: usize,
    in_turn: bool,
}

impl<'a, const ORDINARY: bool> Reached<'a, ORDINARY> {
    /// Starts a walk over packets whose positions begin at `from`.
    #[inline(always)]
    pub(super) fn new(batch: &'a mut Batch, from: usize, packets: Order<'a>, kept: &'a mut usize) -> Self {
        Reached { kept, walk: batch.walk(packets), from, in_turn: false }
    }

    /// Advances to the next packet.
    #[inline(always)]
    pub(super) fn step(&mut self) -> Option<Turn<'_>> {
        let turn = self.walk.step();
        self.in_turn = turn.is_some();
        turn
    }

    /// Marks the current packet as final.
    #[inline(always)]
    pub(super) fn note(&mut self) {
        self.in_turn = false;
    }

    /// Returns the position of the current packet, or the position after the last final one.
    #[inline(always)]
    pub(super) fn at(&self) -> usize {
        self.from + self.walk.lent() - usize::from(self.in_turn)
    }
}

impl<const ORDINARY: bool> Drop for Reached<'_, ORDINARY> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.kept = self.at();
    }
}

/// Returns whether a set is past its timeout, given the time since its last packet ([`SetMeta::since_ms`]). Timeouts
/// are not negative, so a set whose last packet came within the same millisecond, or later than now, need not be asked.
#[inline(always)]
pub(super) fn is_late<N: NetworkFunction>(function: &N, state: &N::Set, since_ms: u32) -> bool {
    let may_be = since_ms != 0 && since_ms <= SetMeta::LONGEST_MS;
    may_be && u64::from(since_ms) * NS_PER_MS > function.timeout_ns(state)
}
