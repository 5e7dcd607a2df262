//! Removes expired entries from a map a few at a time: those of the piece whose turn it is, or some when the map is full.
//!
//! Whose turn it is follows from the time alone, so there is no shared cursor. Nothing may depend on which expired entries
//! remain. Which of them a sweep removes is left open, because the workers' clocks differ: while one worker examines an entry,
//! another may write one that has already expired by the first worker's clock.

use std::ops::Range;
use std::time::Duration;

use braid_nf::state::{Map, Share};
use braid_nf::{Conflict, Cx, Plain};

/// The fewest rows of a piece.
const LEAST: u32 = 4;
/// How many places of a full map are searched for expired entries.
const PLACES: u64 = 8;

/// The schedule on which a map is swept.
pub struct Sweep {
    /// The period of the tick; each tick sweeps one piece.
    pub every: Duration,
    /// The time in which every piece gets its turn, unless the map is small.
    pub round: Duration,
}

impl Sweep {
    /// The entries of that piece of a share whose turn it is, row by row.
    pub fn piece(&self, now_ns: u64, capacity: u32, share: Share) -> impl Iterator<Item = Range<u32>> + use<> {
        let (every_ns, round_ns) = (self.every.as_nanos() as u64, self.round.as_nanos() as u64);
        let rows = share.rows(capacity);
        let len = rows.div_ceil((round_ns / every_ns) as u32).max(LEAST);
        turn(now_ns / every_ns, len, rows).map(move |row| share.row(row, capacity))
    }
}

/// All entries of a map, row by row.
pub fn rows(capacity: u32) -> impl Iterator<Item = Range<u32>> {
    (0..Share::ALL.rows(capacity)).map(move |row| Share::ALL.row(row, capacity))
}

/// The piece, of `len` entries out of `all`, that has this turn; empty if there are no entries.
pub fn turn(turn: u64, len: u32, all: u32) -> Range<u32> {
    let first = (turn % u64::from(all.div_ceil(len).max(1))) as u32 * len;
    first..first.saturating_add(len).min(all)
}

/// Makes room for a key in a full map by removing expired entries. `take_out` gets a range of entries and returns how many of
/// them it removed. Returns true if any were removed.
pub fn make_room(
    cx: &mut Cx<'_>,
    key: &impl Plain,
    (entries, capacity): (u32, u32),
    mut take_out: impl FnMut(&mut Cx<'_>, Range<u32>) -> Result<u32, Conflict>,
) -> Result<bool, Conflict> {
    for among in places(cx.now(), key, entries, capacity) {
        if take_out(cx, among)? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The places to search, `entries` entries each, which differ with time and key. They lie far apart, because entries near a
/// place searched recently are all young.
fn places(now_ns: u64, key: &impl Plain, entries: u32, capacity: u32) -> impl Iterator<Item = Range<u32>> {
    const PRIME: u64 = 0x0100_0000_01b3;
    let folded = key.as_bytes().iter().fold(now_ns, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME));
    (0..PLACES).map(move |n| {
        let first = scaled(folded.wrapping_add(n.wrapping_mul(PRIME)), capacity.saturating_sub(entries) + 1);
        first..first.saturating_add(entries).min(capacity)
    })
}

/// A number below `end` (at least 1) that depends on all bits of `from`.
pub fn scaled(from: u64, end: u32) -> u32 {
    let mixed = (from ^ from >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(end)) >> 32) as u32
}

/// Decides which entries have expired.
pub trait Over<K, V> {
    /// Whether this entry has expired.
    fn is_over(&self, key: &K, value: &V) -> bool;

    /// Prefetches what [`ended`](Self::ended) will access.
    fn prefetch(&self, _key: &K, _value: &V) {}

    /// Called when an entry has been removed, to release what depends on it.
    fn ended(&mut self, _cx: &mut Cx<'_>, _key: &K, _value: &V) -> Result<(), Conflict> {
        Ok(())
    }
}

/// Removes at most `most` expired entries from these ranges, at most a [`ROW`](braid_nf::state::ROW) at a time, and returns how
/// many.
pub fn take_out<K: Plain, V: Plain>(
    cx: &mut Cx<'_>,
    map: &Map<K, V>,
    among: impl Iterator<Item = Range<u32>>,
    most: u32,
    over: &mut impl Over<K, V>,
) -> Result<u32, Conflict> {
    let (mut glances, mut out) = (Glances::at(among), 0);
    loop {
        let index = glances.next(cx, map, out < most, |key, value| {
            let is_over = over.is_over(key, value);
            if is_over {
                map.prefetch(key);
                over.prefetch(key, value);
            }
            is_over
        })?;
        let Some(index) = index else { return Ok(out) };
        if let Some((key, value)) = map.remove_if(cx, index, |key, value| over.is_over(key, value))? {
            over.ended(cx, &key, &value)?;
            out += 1;
        }
    }
}

/// The keys of the live entries in these ranges that `is_it` selects, at most a [`ROW`](braid_nf::state::ROW) at a time.
pub fn keys<K: Plain, V: Plain>(
    cx: &mut Cx<'_>,
    map: &Map<K, V>,
    among: impl Iterator<Item = Range<u32>>,
    is_it: impl Fn(&K, &V) -> bool,
) -> Result<Vec<K>, Conflict> {
    let (mut glances, mut keys) = (Glances::at(among), Vec::new());
    while let Some(index) = glances.next(cx, map, true, &is_it)? {
        let entry = map.entry_at(cx, index)?.filter(|(_, key, value)| is_it(key, value));
        keys.extend(entry.map(|(_, key, _)| key));
    }
    Ok(keys)
}

/// The entries seen at a glance in some ranges, one by one.
struct Glances<I> {
    among: I,
    /// The first entry of the range looked at, and which of those from it on were seen.
    first: u32,
    seen: u64,
}

impl<I: Iterator<Item = Range<u32>>> Glances<I> {
    fn at(among: I) -> Glances<I> {
        Glances { among, first: 0, seen: 0 }
    }

    /// The number of the next entry seen, if there is one and it `goes_on`.
    #[inline(always)]
    fn next<K: Plain, V: Plain>(
        &mut self,
        cx: &mut Cx<'_>,
        map: &Map<K, V>,
        goes_on: bool,
        mut is_it: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<u32>, Conflict> {
        while self.seen == 0
            && goes_on
            && let Some(row) = self.among.next()
        {
            self.first = row.start;
            self.seen = map.glance(cx, row, &mut is_it)?;
        }
        let seen = (self.seen != 0 && goes_on).then(|| self.first + self.seen.trailing_zeros());
        self.seen &= self.seen.wrapping_sub(1);
        Ok(map.pick(cx, seen))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn all_have_their_turn(capacity: u32, turns: u64, of: usize) {
        let sweep = Sweep { every: Duration::from_millis(10), round: Duration::from_secs(5) };
        for share in (0..of).map(|part| Share::new(part, of)) {
            let mut seen = BTreeSet::new();
            for turn in 7..7 + turns {
                let piece = sweep.piece(turn * 10_000_000 + 3, capacity, share);
                piece.for_each(|row| seen.extend([row.start]));
            }
            let all = (0..share.rows(capacity)).map(|number| share.row(number, capacity).start);
            assert!(seen.iter().copied().eq(all), "{capacity} entries, share {share:?}");
        }
    }

    #[test]
    fn all_entries_have_their_turn_within_a_round() {
        all_have_their_turn(1, 1, 1);
        all_have_their_turn(256, 1, 1);
        all_have_their_turn(257, 2, 1);
        all_have_their_turn(128_000, 500, 1);
        all_have_their_turn(1_000_003, 500, 1);
        all_have_their_turn(1_000_003, 500, 3);
        all_have_their_turn(1000, 1, 16);
        all_have_their_turn(1000, 1, 100);
    }

    #[test]
    fn places_are_within_the_map_and_differ() {
        let all = |now: u64, key: u64, capacity| places(now, &key, 64, capacity).collect::<Vec<_>>();
        for now in 0..1000 {
            let places = all(now << 20, 7, 100);
            assert!(places.iter().all(|place| place.len() == 64 && place.end <= 100), "{places:?}");
        }
        assert_eq!(all(7, 7, 3)[0], 0..3);
        let [some, later, other] = [(1, 7), (2, 7), (1, 8)].map(|(now, key)| all(now, key, 1 << 20));
        assert!(some != later && some != other && some[0] != some[1], "{some:?} {later:?} {other:?}");
    }
}
