//! Packets of live sets go ahead of first ones: where they alternate, the loop for the former and the loop for the latter are each begun once for
//! a batch instead of once for each set that begins.
//!
//! It is a sequential order as well: what goes ahead touches its own set and has, of what others may write, at most a look at one thing
//! ([`NetworkFunction::steady`]), and a first packet is of another set, or it would not have been missed. So the two change places as those on different
//! workers do, and whatever is written down is in the new order. Packets of the same set keep theirs, for a look-up finds a set for all of them or for none, and
//! packets leave in the order in which they came. As soon as one that goes ahead turns out to be something else, those that it has passed come
//! before it again ([decision](../../../../docs/decisions/0015-live-sets-go-ahead.md)).

use braid_packet::key::KeyClass;

use super::{Pass, PassSets, Place};
use crate::NetworkFunction;

/// Packets that have gone ahead.
pub(super) struct Ahead {
    /// Position behind them.
    pub(super) to: usize,
    /// Their sets are live for the function and within their timeout, all of them.
    pub(super) steady: bool,
}

impl Pass<'_> {
    /// Whether it is so for the function. Not if what its era says may have changed with a first packet. Nor if first packets wait for memory, so
    /// that it asks for it: behind each of them packets of live sets are something to do meanwhile.
    pub(super) const fn goes_ahead<N: NetworkFunction>() -> bool {
        !N::ERAS && !N::PREFETCHES_FIRST
    }

    /// Puts packets of sets that are not live for the function behind the others among positions `from..to`.
    ///
    /// None moves where one belongs to no set, for what such a one has to do with others nobody knows, nor where a recorded order is replayed.
    #[inline(always)]
    pub(super) fn let_live_ahead<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> Ahead {
        match self.sets.as_ref().is_some_and(|sets| sets.found.is_steady(function, place)) {
            true => Ahead { to, steady: true },
            false => self.let_some_ahead(function, place, from, to),
        }
    }

    /// The same where there may be first packets.
    #[inline(never)]
    fn let_some_ahead<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) -> Ahead {
        let Some(sets) = &self.sets else { return Ahead { to, steady: false } };
        let PassSets { keys, found, .. } = sets;
        let has_key = |&i: &u16| keys.class[usize::from(i) & 255] != KeyClass::None;
        let all_have = keys.of_all != KeyClass::None || self.todo[from..to].iter().all(has_key);
        if !all_have || self.tx.is_replaying() {
            return Ahead { to, steady: false };
        }
        if found.live & place.bit == 0 {
            let to = self.todo.put_behind(from..to, |i| sets.is_first(place, usize::from(i) & 255));
            return Ahead { to, steady: false };
        }
        let to = self.todo.put_flagged_behind(from..to, &found.missed);
        Ahead { to, steady: found.is_steady_if_found(function, place) }
    }
}
