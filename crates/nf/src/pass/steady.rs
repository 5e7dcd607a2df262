//! What the loops for packets of live sets look at, and what they leave behind.

use super::{Found, MS, PassSets, Place};
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

    /// The state of packet `i`'s set if it is live for the function and within its timeout. `ALL`: all are ([`Found::is_steady`]), and need
    /// not be asked.
    #[inline(always)]
    pub(super) fn state<const ALL: bool>(&mut self, i: usize) -> Option<&mut N::Set> {
        let (meta, state) = self.states.get(self.found.slots[i])?;
        if !ALL && (meta.live & self.bit == 0 || is_late(self.function, state, self.found.idle_ms[i])) {
            return None;
        }
        Some(state)
    }
}

/// How far a loop has come: noted when it ends, by a panic too, and kept in a register until then.
pub(super) struct Reached<'a> {
    pub(super) kept: &'a mut usize,
    pub(super) at: usize,
}

impl Drop for Reached<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.kept = self.at;
    }
}

/// Whether a set is past its timeout. No timeout is shorter than nothing: whoever was here within the millisecond need not be
/// asked for it.
#[inline(always)]
pub(super) fn is_late<N: NetworkFunction>(function: &N, state: &N::Set, idle_ms: u32) -> bool {
    idle_ms != 0 && u64::from(idle_ms) * MS > function.timeout_ns(state)
}
