//! A mapping's entry, packed into twelve bytes: with an IPv4 inside endpoint it takes half a cache line.

use braid_nf::prelude::*;

use crate::mappings::roster::NUMBERS_MAX;

/// The end time of a mapping that never ends.
pub(crate) const NEVER: u64 = u64::MAX;
/// The largest count of live TCP sets. A mapping that ever had so many, or that flows without a set have used, ends only
/// by time.
const SETS_MAX: u32 = (1 << SETS_BITS) - 1;
/// End times are kept in units of 2^22 ns (4.2 ms), rounded up.
pub(crate) const TICK_BITS: u32 = 22;
const ENDS_BITS: u32 = 40;
const SETS_BITS: u32 = 15;
/// The position of the flag that the host counts the mapping.
const KNOWN_BIT: u32 = ENDS_BITS + SETS_BITS;
/// The position of what has been [`Heard`].
const HEARD_BIT: u32 = KNOWN_BIT + 1;
const HOME_BIT: u32 = HEARD_BIT + 2;
const ENDS_MAX: u64 = (1 << ENDS_BITS) - 1;
const PORT_BITS: u32 = 16;

const _: () = assert!(NUMBERS_MAX <= 1 << (32 - PORT_BITS) && HOME_BIT + 6 == 64);

/// Whether anybody has answered the owner of a TCP mapping. One end alone establishes no connection, whatever it sends (RFC 5382 REQ-5,
/// RFC 7857 section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Heard {
    /// Not yet.
    #[default]
    Nothing = 0,
    /// Not yet, and its owner has sent what would otherwise have established a connection.
    Awaited = 1,
    /// Somebody has, or nobody has to.
    Answered = 2,
}

/// How long a TCP mapping lives after a packet of its owner, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// As long as nobody has answered.
    pub(crate) unanswered_ns: u64,
    /// In an established connection.
    pub(crate) established_ns: u64,
    /// How much longer is written, so that few packets have to write.
    pub(crate) spare_ns: u64,
}

/// The entry of an inside endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When the mapping ends, in nanoseconds.
    pub(crate) ends_ns: u64,
    /// The number of the external address.
    pub(crate) address: u32,
    /// The number of live TCP sets that use it.
    pub(crate) sets: u32,
    pub(crate) port: u16,
    /// The port of the plan on which the owner sent last; ports with a side are below 64.
    pub(crate) home: Port,
    /// Whether the host counts the mapping.
    pub(crate) is_known: bool,
    pub(crate) heard: Heard,
}

impl Entry {
    /// Has it live for `lives_ns` from now on, or less as long as nobody has answered. Returns for how long, and whether the entry has changed.
    pub(crate) fn prolong(&mut self, now: u64, lives_ns: u64, waits: &Waits) -> (u64, bool) {
        let before = *self;
        let is_cut = self.heard != Heard::Answered && lives_ns > waits.unanswered_ns;
        let lives_ns = if is_cut { waits.unanswered_ns } else { lives_ns };
        if is_cut {
            self.heard = Heard::Awaited;
        }
        if self.ends_ns <= now + lives_ns {
            self.ends_ns = now + lives_ns + waits.spare_ns;
        }
        (lives_ns, *self != before)
    }

    /// Notes that somebody has sent to it; `is_established`: neither opening nor ending a connection, which lives on if that was all that it lacked.
    pub(crate) fn answer(&mut self, now: u64, is_established: bool, waits: &Waits) {
        if self.heard == Heard::Awaited && is_established {
            self.ends_ns = self.ends_ns.max(now + waits.established_ns + waits.spare_ns);
        }
        self.heard = Heard::Answered;
    }

    /// Counts one more TCP set.
    pub(crate) fn attach(&mut self) {
        self.sets = (self.sets + 1).min(SETS_MAX);
    }

    /// Whether sets are still counted exactly.
    pub(crate) fn counts(&self) -> bool {
        self.sets < SETS_MAX
    }

    /// Notes that it is used without sets too, so that it ends only by time. Nobody can say any more whether somebody answers.
    pub(crate) fn count_no_more(&mut self) {
        self.sets = SETS_MAX;
        self.heard = Heard::Answered;
    }

    /// Counts one TCP set less, and returns how many are left.
    pub(crate) fn detach(&mut self) -> u32 {
        if self.counts() {
            self.sets = self.sets.saturating_sub(1);
        }
        self.sets
    }
}

/// An entry as stored. First word, from the low bits: end, TCP sets, whether the host counts it, who has been heard, port of the plan.
/// Then the external port and the number of the external address.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Packed {
    times: [u32; 2],
    place: u32,
}

impl Packed {
    fn times(&self) -> u64 {
        u64::from(self.times[0]) | u64::from(self.times[1]) << 32
    }

    /// When the mapping ends, in nanoseconds.
    #[inline(always)]
    pub(crate) fn ends_ns(&self) -> u64 {
        let ends = self.times() & ENDS_MAX;
        if ends == ENDS_MAX { NEVER } else { ends << TICK_BITS }
    }
}

impl From<Packed> for Entry {
    #[inline(always)]
    fn from(packed: Packed) -> Entry {
        let (times, place) = (packed.times(), packed.place);
        Entry {
            ends_ns: packed.ends_ns(),
            address: place >> PORT_BITS,
            sets: (times >> ENDS_BITS) as u32 & SETS_MAX,
            port: place as u16,
            home: (times >> HOME_BIT) as Port,
            is_known: times >> KNOWN_BIT & 1 == 1,
            heard: match times >> HEARD_BIT & 3 {
                0 => Heard::Nothing,
                1 => Heard::Awaited,
                _ => Heard::Answered,
            },
        }
    }
}

impl From<Entry> for Packed {
    #[inline(always)]
    fn from(entry: Entry) -> Packed {
        // An end a hundred years from now is slightly too early.
        let ends = match entry.ends_ns {
            NEVER => ENDS_MAX,
            ends_ns => ends_ns.div_ceil(1 << TICK_BITS).min(ENDS_MAX - 1),
        };
        let flags = u64::from(entry.home) << HOME_BIT | (entry.heard as u64) << HEARD_BIT;
        let flags = flags | u64::from(entry.is_known) << KNOWN_BIT;
        let times = ends | u64::from(entry.sets) << ENDS_BITS | flags;
        Packed {
            times: [times as u32, (times >> 32) as u32],
            place: entry.address << PORT_BITS | u32::from(entry.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: Entry, ends_ns: u64) {
        assert_eq!(Entry::from(Packed::from(entry)), Entry { ends_ns, ..entry });
    }

    #[test]
    fn an_entry_is_packed_and_unpacked_with_an_end_that_is_never_earlier() {
        let heard = Heard::Answered;
        let entry = Entry { ends_ns: 0, address: 8191, sets: SETS_MAX, port: 65_535, home: 63, is_known: false, heard };
        check(entry, 0);
        check(Entry { is_known: true, home: 0, ..entry }, 0);
        check(Entry { heard: Heard::Awaited, is_known: true, ..entry }, 0);
        check(Entry { ends_ns: 1, ..entry }, 1 << TICK_BITS);
        check(Entry { ends_ns: 300 << TICK_BITS, ..Entry::default() }, 300 << TICK_BITS);
        check(Entry { ends_ns: NEVER, ..entry }, NEVER);
        check(Entry { ends_ns: NEVER - 1, ..entry }, (ENDS_MAX - 1) << TICK_BITS);
    }

    #[test]
    fn more_tcp_sets_than_can_be_counted_never_end_a_mapping() {
        let mut entry = Entry { sets: SETS_MAX - 1, ..Entry::default() };
        entry.attach();
        entry.attach();
        assert_eq!((entry.detach(), entry.detach()), (SETS_MAX, SETS_MAX));
        assert_eq!(entry.heard, Heard::Nothing);
        let mut few = Entry::default();
        few.attach();
        assert_eq!((few.detach(), few.detach()), (0, 0));
    }

    #[test]
    fn who_has_not_been_answered_lives_briefly_until_he_is() {
        let waits = Waits { unanswered_ns: 240, established_ns: 7440, spare_ns: 10 };
        let mut alone = Entry::default();
        assert_eq!(alone.prolong(100, 7440, &waits), (240, true));
        assert_eq!((alone.ends_ns, alone.heard), (350, Heard::Awaited));
        assert_eq!(alone.prolong(105, 7440, &waits), (240, false));
        let mut reset = alone;
        reset.answer(200, false, &waits);
        assert_eq!((reset.ends_ns, reset.heard), (350, Heard::Answered));
        alone.answer(200, true, &waits);
        assert_eq!((alone.ends_ns, alone.heard), (7650, Heard::Answered));
        assert_eq!(alone.prolong(300, 7440, &waits), (7440, true));
        let mut asking = Entry::default();
        asking.prolong(100, 240, &waits);
        asking.answer(200, true, &waits);
        assert_eq!(asking.ends_ns, 350);
    }
}
