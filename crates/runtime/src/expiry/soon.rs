//! Sets with short timeouts, ordered by when they expire: a round of the scan takes a second or more, and until then sets that lived for half a
//! second would take the room of others.
//!
//! A set that begins with a short timeout is noted under the clock tick by which it will have expired. The note is only a hint: a slot
//! to look at then. Whatever set is in that slot ends only if it has expired. A set that is not noted, because there is no room or its timeout became
//! short later, is left to the scan. So nothing need be updated when a set ends, moves or sees more packets. A set that has not expired
//! when its tick comes, because packets have arrived, is noted again, up to [`AGAIN_MAX`] times.

use braid_nf::SetSlot;
use braid_packet::BATCH_MAX;
use braid_packet::time::NS_PER_MS;

use super::{Expiring, Scan};
use crate::attempt::Witness;

/// Sets with longer timeouts are left to the scan; in milliseconds.
const SOON_MS: u64 = TICK_MS * (TICKS as u64 - 1);
/// The length of a tick, by which a set may outlive its timeout, in milliseconds.
const TICK_MS: u64 = 16;
const TICKS: usize = 512;
/// Maximum number of hints; 12 bytes each, in memory that is touched only when it is used.
const HINTS_MAX: usize = 1 << 17;
/// Maximum number of hints taken at once: twice the number of sets that one batch can begin.
const LOOKS_MAX: usize = 2 * BATCH_MAX;
/// How often a set is noted again; one that is still in use after that is not short-lived.
const AGAIN_MAX: u8 = 3;
/// Marks the end of a list of hints.
const NONE: u32 = u32::MAX;

/// A slot to look at.
#[derive(Clone, Copy, Debug)]
struct Hint {
    at: SetSlot,
    /// How often the set has been noted again.
    again: u8,
    /// The next hint under the same tick, or the next free one.
    next: u32,
}

/// The hints, listed by tick.
#[derive(Debug)]
pub(super) struct Soon {
    /// The latest hint under each tick, by tick modulo `TICKS`.
    last: Box<[u32; TICKS]>,
    hints: Vec<Hint>,
    free: u32,
    len: usize,
    /// Scratch space: slots where sets have begun, and hints that were taken.
    begun: Vec<SetSlot>,
    taken: Vec<Hint>,
    /// All hints under this tick and earlier ones have been taken.
    reached: u64,
}

impl Default for Soon {
    fn default() -> Soon {
        let (hints, begun, taken) = Default::default();
        Soon { last: Box::new([NONE; TICKS]), hints, free: NONE, len: 0, begun, taken, reached: 0 }
    }
}

impl Hint {
    /// A hint for a set that has begun.
    fn new(at: SetSlot) -> Hint {
        Hint { at, again: 0, next: NONE }
    }

    /// The hint for a set that is still in use; `None` if it has been noted too often.
    fn again(self) -> Option<Hint> {
        (self.again < AGAIN_MAX).then_some(Hint { again: self.again + 1, ..self })
    }
}

impl Soon {
    /// Notes a set that expires in `in_ms` milliseconds, unless that is too far off or there is no room.
    fn note(&mut self, hint: Hint, now_ms: u64, in_ms: u64) {
        // In captures, time may have gone back.
        let tick = (now_ms.saturating_add(in_ms) / TICK_MS + 1).max(self.reached + 1);
        if tick - self.reached > TICKS as u64 {
            return;
        }
        let Some(place) = self.place() else { return };
        let last = &mut self.last[tick as usize % TICKS];
        self.hints[place as usize] = Hint { next: *last, ..hint };
        *last = place;
        self.len += 1;
    }

    /// Takes at most `most` hints whose ticks have come; the rest are taken next time.
    fn take(&mut self, now_ms: u64, most: usize, mut take: impl FnMut(Hint)) {
        let (now, mut taken) = (now_ms / TICK_MS, 0);
        while self.reached < now && self.len > 0 {
            let last = &mut self.last[(self.reached + 1) as usize % TICKS];
            if *last == NONE {
                self.reached += 1;
                continue;
            }
            if taken == most {
                return;
            }
            let place = std::mem::replace(last, self.hints[*last as usize].next);
            take(self.hints[place as usize]);
            self.hints[place as usize].next = std::mem::replace(&mut self.free, place);
            (taken, self.len) = (taken + 1, self.len - 1);
        }
        if self.len == 0 {
            self.reached = self.reached.max(now);
        }
    }

    /// Whether hints whose ticks have come are left, because there were too many to take at once.
    pub(super) fn is_behind(&self, now_ms: u64) -> bool {
        self.len > 0 && self.reached < now_ms / TICK_MS
    }

    /// Allocates a place for one more hint.
    fn place(&mut self) -> Option<u32> {
        if self.free != NONE {
            let place = self.free;
            self.free = self.hints[place as usize].next;
            return Some(place);
        }
        if self.hints.capacity() == 0 {
            self.hints.reserve_exact(HINTS_MAX);
        }
        let place = self.hints.len();
        (place < HINTS_MAX).then(|| {
            self.hints.push(Hint::new(SetSlot::MISS));
            place as u32
        })
    }
}

/// The number of slots of new sets to keep until they are noted, if no set has a shorter timeout than `shortest_ns`.
pub(crate) fn begun_max(shortest_ns: u64) -> usize {
    if (1..SOON_MS * NS_PER_MS).contains(&shortest_ns) { BATCH_MAX } else { 0 }
}

impl Scan {
    /// Ends sets with short timeouts that have expired, at most [`LOOKS_MAX`], and notes new ones, if the group has such timeouts.
    #[inline]
    pub(super) fn end_soon(&mut self, now_ns: u64, shortest_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        let most = begun_max(shortest_ns);
        on.tables.keep_begun(most);
        if most > 0 {
            self.end_due(now_ns, on, witness);
            self.note_begun(now_ns, on);
        }
    }

    fn end_due(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        let (now_ms, mut taken) = (now_ns / NS_PER_MS, std::mem::take(&mut self.soon.taken));
        taken.clear();
        self.soon.take(now_ms, LOOKS_MAX, |hint| taken.push(hint));
        // Two hints may name the same slot; a set must not end twice.
        taken.sort_unstable_by_key(|hint| hint.at);
        taken.dedup_by_key(|hint| hint.at);
        taken.retain(|hint| on.tables.holds(hint.at));
        self.found.clear();
        self.found.extend(taken.iter().map(|hint| (hint.at, on.tables.meta(hint.at).idle_ms(now_ms as u32))));
        if !self.found.is_empty() {
            self.end_found(now_ns, on, witness);
        }
        for hint in taken.iter().filter_map(|hint| hint.again()) {
            self.look_ahead(hint, now_ms, on);
        }
        self.soon.taken = taken;
    }

    fn note_begun(&mut self, now_ns: u64, on: &mut Expiring<'_>) {
        let mut begun = std::mem::take(&mut self.soon.begun);
        on.tables.take_begun(&mut begun);
        begun.iter().for_each(|&at| self.look_ahead(Hint::new(at), now_ns / NS_PER_MS, on));
        self.soon.begun = begun;
    }

    /// Notes the set in a slot, if there is one, by the time at which the first of its functions lets it expire.
    fn look_ahead(&mut self, hint: Hint, now_ms: u64, on: &mut Expiring<'_>) {
        if !on.tables.holds(hint.at) {
            return;
        }
        let of = |&position: &usize| on.chain.stages()[position].timeout_ns(on.tables, hint.at);
        let shortest_ns = on.chain.groups()[on.group].stages.iter().filter_map(of).min();
        let Some(timeout_ms) = shortest_ns.map(|ns| ns.div_ceil(NS_PER_MS)).filter(|ms| *ms < SOON_MS) else { return };
        let idle_ms = on.tables.meta(hint.at).idle_ms(now_ms as u32);
        self.soon.note(hint, now_ms, (timeout_ms + 1).saturating_sub(idle_ms.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks how many hints are taken at this time, of at most `most`.
    #[track_caller]
    fn check(soon: &mut Soon, now_ms: u64, most: usize, expected: usize) {
        let mut taken = 0;
        soon.take(now_ms, most, |_| taken += 1);
        assert_eq!(taken, expected);
    }

    fn note(soon: &mut Soon, count: usize, now_ms: u64, in_ms: u64) {
        (0..count).for_each(|_| soon.note(Hint::new(SetSlot::MISS), now_ms, in_ms));
    }

    #[test]
    fn each_is_taken_when_its_time_is_over_whatever_came_before_it() {
        let mut soon = Soon::default();
        check(&mut soon, 1 << 40, 9, 0);
        note(&mut soon, 1, 1 << 40, 5000);
        note(&mut soon, 2, 1 << 40, 300);
        check(&mut soon, (1 << 40) + 300, 9, 0);
        check(&mut soon, (1 << 40) + 300 + TICK_MS, 9, 2);
        check(&mut soon, (1 << 40) + 5000, 9, 0);
        check(&mut soon, (1 << 40) + 5000 + TICK_MS, 9, 1);
    }

    #[test]
    fn what_is_too_much_at_once_comes_the_next_time() {
        let mut soon = Soon::default();
        note(&mut soon, 10, 0, 300);
        check(&mut soon, 3_600_000, 4, 4);
        check(&mut soon, 3_600_000, 4, 4);
        note(&mut soon, 1, 3_600_000, 300);
        check(&mut soon, 3_600_000, 4, 2);
        check(&mut soon, 3_700_000, 4, 0);
    }

    #[test]
    fn what_is_too_late_or_too_many_is_left_to_the_scan() {
        let mut soon = Soon::default();
        note(&mut soon, 1, 0, SOON_MS + TICK_MS);
        note(&mut soon, HINTS_MAX + 1, 0, 300);
        check(&mut soon, 1000, usize::MAX, HINTS_MAX);
        note(&mut soon, 1, 1000, SOON_MS - 1);
        check(&mut soon, 1000 + SOON_MS + TICK_MS, 9, 1);
    }

    #[test]
    fn time_that_goes_back_loses_none() {
        let mut soon = Soon::default();
        check(&mut soon, 100_000, 9, 0);
        note(&mut soon, 1, 50_000, 300);
        check(&mut soon, 60_000, 9, 0);
        check(&mut soon, 100_000 + TICK_MS, 9, 1);
    }

    #[test]
    fn who_goes_on_and_on_is_noted_a_few_times() {
        let times = std::iter::successors(Some(Hint::new(SetSlot::MISS)), |hint| hint.again()).count();
        assert_eq!(times, 1 + usize::from(AGAIN_MAX));
    }
}
