//! Sets that end soon after they have begun, by when: the scan comes round in a second or two, and until then what has lived for half a second would
//! take the room of others.
//!
//! A set whose time is short when it begins is noted, under the tick of the clock by which it will be over. What is kept is a hint and no more: a place
//! in the tables to look at then. Whatever set is there ends only if its time is over, and a set that nobody has noted, for want of room or because its time
//! became short later, is one for the scan. So nothing is told of a set that ends, moves or hears more packets. One that is not over when its tick
//! comes, for packets have come, is noted again, [`AGAIN_MAX`] times.

use braid_nf::SetSlot;
use braid_packet::BATCH_MAX;

use super::{Expiring, MS, Scan};
use crate::attempt::Witness;

/// Whose time is longer is left to the scan, in milliseconds.
const SOON_MS: u64 = TICK_MS * (TICKS as u64 - 1);
/// How much later a set may end than its time is over, in milliseconds.
const TICK_MS: u64 = 16;
const TICKS: usize = 512;
/// Most hints; 12 bytes each, mapped as they are used.
const HINTS_MAX: usize = 1 << 17;
/// Most hints in one go: twice what one batch can have begun.
const LOOKS_MAX: usize = 2 * BATCH_MAX;
/// How often a set is noted again: one that goes on is nothing that leaves soon.
const AGAIN_MAX: u8 = 3;
/// No hint.
const NONE: u32 = u32::MAX;

/// A place to look at.
#[derive(Clone, Copy, Debug)]
struct Hint {
    at: SetSlot,
    /// How often the set was noted again.
    again: u8,
    /// The next one under the same tick, or that is free.
    next: u32,
}

/// The hints, each under its tick.
#[derive(Debug)]
pub(super) struct Soon {
    /// The last hint under each tick, by the tick's remainder.
    last: Box<[u32; TICKS]>,
    hints: Vec<Hint>,
    free: u32,
    len: usize,
    /// Where sets have begun; and the hints that were taken.
    begun: Vec<SetSlot>,
    taken: Vec<Hint>,
    /// All hints under this tick and those before it were taken.
    reached: u64,
}

impl Default for Soon {
    fn default() -> Soon {
        let (hints, begun, taken) = Default::default();
        Soon { last: Box::new([NONE; TICKS]), hints, free: NONE, len: 0, begun, taken, reached: 0 }
    }
}

impl Hint {
    /// Of a set that has begun.
    fn new(at: SetSlot) -> Hint {
        Hint { at, again: 0, next: NONE }
    }

    /// Of the same one, which goes on; none if it has gone on too often.
    fn again(self) -> Option<Hint> {
        (self.again < AGAIN_MAX).then_some(Hint { again: self.again + 1, ..self })
    }
}

impl Soon {
    /// Notes a set that will be over in so many milliseconds, unless that is too late or there is no room.
    fn note(&mut self, hint: Hint, now_ms: u64, in_ms: u64) {
        // Of captures time may have gone back.
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

    /// Takes at most `most` hints whose ticks have come; the others come the next time.
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

    /// A place for one more.
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

/// How many places of sets that begin are to be kept until they are noted, where no set's time is shorter than this.
pub(crate) fn begun_max(shortest_ns: u64) -> usize {
    if (1..SOON_MS * MS).contains(&shortest_ns) { BATCH_MAX } else { 0 }
}

impl Scan {
    /// Ends sets whose time was short and is over, at most [`LOOKS_MAX`], and notes those that have begun; if any has so little time.
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
        let (now_ms, mut taken) = (now_ns / MS, std::mem::take(&mut self.soon.taken));
        taken.clear();
        self.soon.take(now_ms, LOOKS_MAX, |hint| taken.push(hint));
        // Two may be of one place, and no set ends twice.
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
        begun.iter().for_each(|&at| self.look_ahead(Hint::new(at), now_ns / MS, on));
        self.soon.begun = begun;
    }

    /// Notes the set at a place, if there is one, by when the first of its functions lets it go.
    fn look_ahead(&mut self, hint: Hint, now_ms: u64, on: &mut Expiring<'_>) {
        if !on.tables.holds(hint.at) {
            return;
        }
        let of = |&position: &usize| on.chain.stages()[position].timeout_ns(on.tables, hint.at);
        let shortest_ns = on.chain.groups()[on.group].stages.iter().filter_map(of).min();
        let Some(timeout_ms) = shortest_ns.map(|ns| ns.div_ceil(MS)).filter(|ms| *ms < SOON_MS) else { return };
        let idle_ms = on.tables.meta(hint.at).idle_ms(now_ms as u32);
        self.soon.note(hint, now_ms, (timeout_ms + 1).saturating_sub(idle_ms.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are taken at this time, of at most so many.
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
