//! What the loops for packets of live sets look at, and what they leave behind.

use braid_packet::{Batch, Order, Turn, Walk};
use braid_state::SetMeta;

use super::{Found, MS, Pass, PassSets, Place};
use crate::NetworkFunction;
use crate::sets::StatesAt;

/// What the loops for packets of live sets look at before they run a handler.
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

    /// Whether packet `i`'s set is live for the function and within its timeout. `ALL`: all are ([`Found::is_steady`]), and need not be
    /// asked. A question of its own, for the compiler asks of a reference that may be none whether it is one, and of this it need not.
    #[inline(always)]
    pub(super) fn is_live<const ALL: bool>(&mut self, i: usize) -> bool {
        let slot = self.found.slots[i];
        let goes_on = |(meta, state): (&mut SetMeta, &mut N::Set)| {
            meta.live & self.bit != 0 && !is_late(self.function, state, self.found.since_ms[i])
        };
        self.states.has(slot) && (ALL || goes_on(self.states.get(slot)))
    }

    /// The state of packet `i`'s set, which is live.
    #[inline(always)]
    pub(super) fn state(&mut self, i: usize) -> &mut N::Set {
        self.states.get(self.found.slots[i]).1
    }
}

/// When packets came: with `ALIKE` all at one time.
pub(super) struct Times<'a, const ALIKE: bool> {
    each_ns: &'a [u64; 256],
    one_ns: u64,
}

impl<const ALIKE: bool> Times<'_, ALIKE> {
    /// When packet `i` came.
    #[inline(always)]
    pub(super) fn of(&self, i: usize) -> u64 {
        if ALIKE { self.one_ns } else { self.each_ns[i] }
    }
}

impl<'p> Pass<'p> {
    /// Whether all packets came at one time, as far as a look-up looked, and lie whole in ordinary buffers.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.batch.is_ordinary() && self.sets.as_ref().is_some_and(|sets| sets.found.alike)
    }

    /// When the packets came that stand from position `from` on.
    #[inline(always)]
    pub(super) fn times<const ALIKE: bool>(&self, from: usize) -> Times<'p, ALIKE> {
        let one = self.todo.get(from).map_or(0, |&i| usize::from(i) & 255);
        Times { each_ns: self.now_ns, one_ns: self.now_ns[one] }
    }
}

/// A walk, and how far it has come: noted when it ends, by a panic too, and counted by the walk until then.
pub(super) struct Reached<'a, const ORDINARY: bool> {
    kept: &'a mut usize,
    walk: Walk<'a, ORDINARY>,
    from: usize,
    in_turn: bool,
}

impl<'a, const ORDINARY: bool> Reached<'a, ORDINARY> {
    /// A walk over packets that stand from position `from` on.
    #[inline(always)]
    pub(super) fn new(batch: &'a mut Batch, from: usize, packets: Order<'a>, kept: &'a mut usize) -> Self {
        Reached { kept, walk: batch.walk(packets), from, in_turn: false }
    }

    /// Goes on to the next packet.
    #[inline(always)]
    pub(super) fn step(&mut self) -> Option<Turn<'_>> {
        let turn = self.walk.step();
        self.in_turn = turn.is_some();
        turn
    }

    /// The packet whose turn it was stands.
    #[inline(always)]
    pub(super) fn note(&mut self) {
        self.in_turn = false;
    }

    /// Position of the packet whose turn it is, or behind all that stand.
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

/// Whether a set is past its timeout, so long after its last packet ([`SetMeta::since_ms`]). No timeout is shorter than nothing: whoever was
/// here within the millisecond, or later than now, need not be asked for it.
#[inline(always)]
pub(super) fn is_late<N: NetworkFunction>(function: &N, state: &N::Set, since_ms: u32) -> bool {
    let may_be = since_ms != 0 && since_ms <= SetMeta::LONGEST_MS;
    may_be && u64::from(since_ms) * MS > function.timeout_ns(state)
}
