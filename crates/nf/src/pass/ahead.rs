//! Moves packets of live sets ahead of first packets. Where the two kinds alternate, each of the two loops then starts
//! once per batch instead of once per new set.
//!
//! The result is also a valid sequential order. A packet that goes ahead accesses its own set and makes at most one
//! read of state that others may write ([`NetworkFunction::steady`]). A first packet belongs to another set; otherwise
//! its set would have been found. The two therefore commute as packets on different workers do, and a recording uses
//! the new order. Packets of the same set keep their order, because a look-up finds a set for all of its packets or for
//! none, and packets leave in their order of arrival. As soon as a packet that goes ahead turns out not to be steady,
//! the packets that it has overtaken are put before it again
//! ([decision](../../../../docs/decisions/0015-live-sets-go-ahead.md)).

use braid_packet::key::KeyClass;

use super::{Pass, PassSets, Place};
use crate::NetworkFunction;

/// The packets that were moved ahead.
pub(super) struct Ahead {
    /// Position after the last of them.
    pub(super) to: usize,
    /// Whether all of their sets are live for the function and within their timeout.
    pub(super) steady: bool,
}

impl Pass<'_> {
    /// Returns whether packets go ahead for this function. They do not if the function has an era, since a first packet
    /// may change it. They do not if the function prefetches for first packets either: the packets of live sets between
    /// them fill the time until the memory arrives.
    pub(super) const fn goes_ahead<N: NetworkFunction>() -> bool {
        !N::ERAS && !N::PREFETCHES_FIRST
    }

    /// Moves packets whose sets are not live for the function behind the others among positions `from..to`.
    ///
    /// No packet moves if one of them belongs to no set, since its handler may affect any other packet, or if a
    /// recorded order is replayed.
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

    /// The general case of [`let_live_ahead`](Self::let_live_ahead), where there may be first packets.
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
