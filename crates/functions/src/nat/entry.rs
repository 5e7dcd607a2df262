//! A mapping's entry, packed into twelve bytes: with an IPv4 inside endpoint it takes half a cache line.

use braid_nf::prelude::*;

use super::roster::NUMBERS_MAX;

/// The end time of a mapping that never ends.
pub(crate) const NEVER: u64 = u64::MAX;
/// The largest count of live TCP sets. A mapping that ever had so many, or that flows without a set have used, ends only
/// by time.
const SETS_MAX: u32 = (1 << SETS_BITS) - 1;
/// End times are kept in units of 2^22 ns (4.2 ms), rounded up.
pub(super) const TICK_BITS: u32 = 22;
const ENDS_BITS: u32 = 40;
const SETS_BITS: u32 = 17;
/// The position of the flag that the host counts the mapping.
const KNOWN_BIT: u32 = ENDS_BITS + SETS_BITS;
const HOME_BIT: u32 = KNOWN_BIT + 1;
const ENDS_MAX: u64 = (1 << ENDS_BITS) - 1;
const PORT_BITS: u32 = 16;

const _: () = assert!(NUMBERS_MAX <= 1 << (32 - PORT_BITS) && HOME_BIT + 6 == 64);

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
}

impl Entry {
    /// Counts one more TCP set.
    pub(crate) fn attach(&mut self) {
        self.sets = (self.sets + 1).min(SETS_MAX);
    }

    /// Whether sets are still counted exactly.
    pub(crate) fn counts(&self) -> bool {
        self.sets < SETS_MAX
    }

    /// Notes that it is used without sets too, so that it ends only by time.
    pub(crate) fn count_no_more(&mut self) {
        self.sets = SETS_MAX;
    }

    /// Counts one TCP set less, and returns how many are left.
    pub(crate) fn detach(&mut self) -> u32 {
        if self.counts() {
            self.sets = self.sets.saturating_sub(1);
        }
        self.sets
    }
}

/// An entry as stored. First word, from the low bits: end, TCP sets, whether the host counts it, port of the plan. Then
/// the external port and the number of the external address.
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
        let flags = u64::from(entry.home) << HOME_BIT | u64::from(entry.is_known) << KNOWN_BIT;
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
        let entry = Entry { ends_ns: 0, address: 8191, sets: SETS_MAX, port: 65_535, home: 63, is_known: false };
        check(entry, 0);
        check(Entry { is_known: true, home: 0, ..entry }, 0);
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
        let mut few = Entry::default();
        few.attach();
        assert_eq!((few.detach(), few.detach()), (0, 0));
    }
}
