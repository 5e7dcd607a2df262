//! Groups of 16-bit tags, each group one cache line that is compared at once. A group's tags are among its records, in the place of the
//! record that the first lane would have, and so on the same page if a group is no longer than a page. The first lane counts the keys for
//! which the group had no room.

use std::marker::PhantomData;

use braid_memory::prefetch_second_level;

use crate::flow_table::Slot;
use crate::raw::records::{HALF, LINE, Records};

/// Places in a group, one for each lane of a 64-byte cache line.
pub(crate) const GROUP: usize = 32;
/// Maximum number of hashes in a batch.
const BATCH_MAX: usize = 256;
/// The lane that holds the count.
const STRAYS: usize = 0;
/// A bit that is set in each tag and clear in each count, so that a tag never equals a count.
pub(crate) const TAGGED: u16 = 2;
/// Position of the count in its lane.
const STRAYS_SHIFT: u32 = 2;
/// The maximum count.
pub(crate) const STRAYS_MAX: u16 = u16::MAX >> STRAYS_SHIFT;
const _: () = assert!(TAGGED < 1 << STRAYS_SHIFT);

/// The location of a table's groups among [`Records`], and their division: the first ones are homes of hashes, the others take what finds no room
/// there.
///
/// A *place* is the position of a record, counted in records from the table's first one. Lane *l* of a group belongs to the place whose
/// number is that of the group's tags XOR *l*. The tags take a different place in successive groups; otherwise they would all map to the
/// same sets of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// The half line at which the first place begins.
    first: usize,
    /// Half lines per place.
    halves: usize,
    /// At least two, at most `groups`, fewer than 2^32.
    homes: u64,
    groups: usize,
    /// The bits of a group's number that select the place of its tags, chosen such that tags begin at a line.
    turns: usize,
    /// One bit for each lane whose place can hold a record.
    lanes: u32,
}

impl Tags {
    /// Creates `homes` groups for hashes, and `more` after them, of records of `halves` half lines, from half line `first`, an even number.
    pub(crate) fn new((homes, more): (usize, usize), first: usize, halves: usize) -> Tags {
        assert!(homes > 1 && u32::try_from(homes).is_ok() && first.is_multiple_of(2));
        let turns = if halves.is_multiple_of(2) { GROUP - 1 } else { GROUP - 2 };
        Tags { first, halves, homes: homes as u64, groups: homes + more, turns, lanes: lanes_of(halves) }
    }

    /// Number of groups that are homes of hashes.
    #[inline(always)]
    pub(crate) fn homes(&self) -> usize {
        self.homes as usize
    }

    /// Number of all groups.
    #[inline(always)]
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Half lines of a record.
    #[inline(always)]
    pub(crate) fn halves(&self) -> usize {
        self.halves
    }

    /// Half lines of all groups.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.groups * GROUP * self.halves
    }

    /// The home group of a hash, determined by its upper half.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        // Both factors have 32 bits, which the compiler can see: a single multiplication.
        (((hash >> 32) * u64::from(self.homes as u32)) >> 32) as usize
    }

    /// How many groups after its home, in the ring of all homes, a stray with this tag is; never 0.
    #[inline(always)]
    pub(crate) fn way(&self, tag: u16) -> usize {
        1 + ((u64::from(tag) * (self.homes - 1)) >> 16) as usize
    }

    /// The place of a group's tags.
    #[inline(always)]
    pub(crate) fn of(&self, group: usize) -> usize {
        group * GROUP + (group & self.turns)
    }

    /// The group of a place.
    #[inline(always)]
    pub(crate) fn group(place: usize) -> usize {
        place / GROUP
    }

    /// The half line at which a place begins.
    #[inline(always)]
    pub(crate) fn half(&self, place: usize) -> usize {
        self.first + place * self.halves
    }

    /// The record at a place.
    #[inline(always)]
    pub(crate) fn slot(&self, place: usize) -> Slot {
        self.half(place) as Slot
    }

    /// The place of a record.
    #[inline(always)]
    pub(crate) fn place(&self, slot: Slot) -> usize {
        (slot as usize - self.first) / self.halves
    }

    /// The places of some lanes of a group.
    #[inline(always)]
    pub(crate) fn places(&self, group: usize, lanes: u32) -> impl Iterator<Item = usize> + use<> {
        let (tags, mut lanes) = (self.of(group), lanes);
        std::iter::from_fn(move || {
            let place = (lanes != 0).then(|| tags ^ lanes.trailing_zeros() as usize);
            lanes &= lanes.wrapping_sub(1);
            place
        })
    }

    /// Prefetches a group's tags.
    #[inline(always)]
    pub(crate) fn prefetch(&self, records: &Records, group: usize) {
        records.prefetch_head(self.half(self.of(group)));
    }

    #[inline(always)]
    fn line<'r>(&self, records: &'r Records, tags: usize) -> &'r Line {
        records.tags(self.slot(tags))
    }

    /// One bit for each lane of the group that holds `tag`.
    #[inline(always)]
    pub(crate) fn lanes(&self, records: &Records, group: usize, tag: u16) -> u32 {
        equal_lanes(self.line(records, self.of(group)), tag) & self.lanes
    }

    /// One bit for each lane of the group that holds any tag.
    #[inline(always)]
    pub(crate) fn taken(&self, records: &Records, group: usize) -> u32 {
        !self.lanes(records, group, 0) & self.lanes
    }

    /// The first place of a group that holds `tag`.
    #[inline(always)]
    pub(crate) fn first(&self, records: &Records, group: usize, tag: u16) -> Option<usize> {
        self.places(group, self.lanes(records, group, tag)).next()
    }

    /// The number of keys whose home is this group but that are in another one.
    #[inline(always)]
    pub(crate) fn strays(&self, records: &Records, group: usize) -> u16 {
        self.line(records, self.of(group)).strays()
    }

    /// Sets the number of strays, at most [`STRAYS_MAX`].
    pub(crate) fn set_strays(&self, records: &mut Records, group: usize, strays: u16) {
        self.set(records, self.of(group), strays << STRAYS_SHIFT);
    }

    /// The tag of a place; 0 if it has none.
    #[inline(always)]
    pub(crate) fn tag(&self, records: &Records, place: usize) -> u16 {
        let (tags, lane) = self.lane(place);
        if self.lanes & 1 << lane == 0 { 0 } else { self.line(records, tags).0[word_of(lane)] }
    }

    /// Sets the tag of a place; for the place of the tags themselves this is the lane with the count of strays.
    #[inline(always)]
    pub(crate) fn set(&self, records: &mut Records, place: usize, tag: u16) {
        let (tags, lane) = self.lane(place);
        records.tags_mut(self.slot(tags)).0[word_of(lane)] = tag;
    }

    /// The place of the group's tags, and the lane of a place.
    #[inline(always)]
    fn lane(&self, place: usize) -> (usize, usize) {
        let tags = self.of(Tags::group(place));
        (tags, (tags ^ place) % GROUP)
    }
}

/// Where the tags for a batch's hashes are and which tags to search for, computed in loops that the compiler vectorises.
#[derive(Debug)]
pub(crate) struct Homes<'r> {
    /// For each hash, the place of the tags of its home group.
    places: [u32; BATCH_MAX],
    wanted: [u16; BATCH_MAX],
    /// Bytes per place.
    stride: usize,
    /// The table's first place.
    base: *const u8,
    records: PhantomData<&'r Records>,
}

impl<'r> Homes<'r> {
    /// For the first `count` hashes, in the table with these tags; `tag` computes the tag to search for, which has the [`TAGGED`] bit.
    #[inline(always)]
    pub(crate) fn new(
        tags: &Tags,
        records: &'r Records,
        (hashes, count): (&[u64; BATCH_MAX], usize),
        tag: impl Fn(u64) -> u16,
    ) -> Homes<'r> {
        let base = records.lines(tags.range());
        // The place of the first group's tags is the first place, so the zeros in `places` are valid.
        let (mut places, mut wanted) = ([0; BATCH_MAX], [0; BATCH_MAX]);
        places.iter_mut().zip(hashes).take(count).for_each(|(home, hash)| *home = tags.of(tags.home(*hash)) as u32);
        wanted.iter_mut().zip(hashes).take(count).for_each(|(wanted, hash)| *wanted = tag(*hash));
        Homes { places, wanted, stride: tags.halves * HALF, base, records: PhantomData }
    }

    #[inline(always)]
    fn address(&self, i: usize) -> *const u8 {
        self.base.wrapping_add(self.places[i] as usize * self.stride)
    }

    /// Prefetches the tags for the `i`th hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, i: usize) {
        prefetch_second_level(self.address(i));
    }

    /// The first place in its home group that holds the tag of the `i`th hash.
    #[inline(always)]
    pub(crate) fn find(&self, i: usize) -> Option<usize> {
        // SAFETY: each place in `places` is that of a group's tags (`new`): half a hash is below 2^32, so a home is below `homes`, and the places of
        // all groups lie inside the region (`Records::lines`), each with room for a line after its beginning; it is aligned to half a line,
        // initialised, and not written to while `records` is borrowed.
        let line = unsafe { &*self.address(i).cast::<Line>() };
        let lanes = equal_lanes(line, self.wanted[i]);
        if lanes == 0 {
            seldom();
            return None;
        }
        Some(self.places[i] as usize ^ lanes.trailing_zeros() as usize)
    }
}

/// Tells the compiler that the branch that calls it is rare.
#[cold]
#[inline]
fn seldom() {}

/// The lanes of a group whose places can hold records of `halves` half lines; tags need a whole line.
const fn lanes_of(halves: usize) -> u32 {
    u32::MAX << (LINE / HALF).div_ceil(halves)
}

/// The number of records that fit into a group.
pub(crate) const fn room_of(halves: usize) -> usize {
    lanes_of(halves).count_ones() as usize
}

/// The tags of one group. It begins at a line, but no access relies on that.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Line([u16; GROUP]);

impl Line {
    #[inline(always)]
    fn strays(&self) -> u16 {
        self.0[STRAYS] >> STRAYS_SHIFT
    }
}

/// The index in a line of a lane's word: the order in which the processor packs two vectors into one, alternating quarters.
const fn word_of(lane: usize) -> usize {
    lane & 7 | (lane & 8) << 1 | (lane & 16) >> 1
}

/// One bit for each lane that holds `tag`.
#[inline(always)]
fn equal_lanes(line: &Line, tag: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    {
        use std::arch::x86_64::{
            __m256i, _mm256_cmpeq_epi16, _mm256_load_si256, _mm256_movemask_epi8, _mm256_packs_epi16, _mm256_set1_epi16,
        };
        let halves = line.0.as_ptr().cast::<__m256i>();
        // SAFETY: the program is built for processors with AVX2; both loads are inside the line and aligned like it.
        unsafe {
            let wanted = _mm256_set1_epi16(tag as i16);
            let low = _mm256_cmpeq_epi16(_mm256_load_si256(halves), wanted);
            let high = _mm256_cmpeq_epi16(_mm256_load_si256(halves.add(1)), wanted);
            _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32
        }
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
    portable(line, tag)
}

#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "avx2"))))]
fn portable(line: &Line, tag: u16) -> u32 {
    (0..GROUP).rev().fold(0, |lanes, lane| lanes << 1 | u32::from(line.0[word_of(lane)] == tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_form_equals_the_portable_one() {
        let line = Line(std::array::from_fn(|i| [1, 0, 256, 0xffff, 3, 1, 0x0101][i * 3 % 7]));
        for tag in [0, 1, 2, 3, 256, 257, 0xff00, 0xffff] {
            assert_eq!(equal_lanes(&line, tag), portable(&line, tag), "tag {tag}");
        }
    }

    #[test]
    fn a_stray_never_stays_at_home() {
        for homes in [2, 3, 1000] {
            let tags = Tags::new((homes, 0), 0, 2);
            assert!((0..=u16::MAX).all(|tag| (1..homes).contains(&tags.way(tag))), "{homes} homes");
        }
    }

    #[test]
    fn each_place_has_a_lane_and_tags_have_a_line_that_no_record_touches() {
        for halves in 1..=7 {
            let tags = Tags::new((40, 2), 6, halves);
            for group in 0..tags.groups() {
                let own = tags.of(group);
                let line = tags.slot(own) as usize..tags.slot(own) as usize + LINE / HALF;
                assert!(line.start % 2 == 0 && Tags::group(own) == group, "{halves} half lines, group {group}");
                let places: Vec<usize> = tags.places(group, tags.lanes).collect();
                assert_eq!(places.len(), room_of(halves));
                for place in places {
                    let record = tags.slot(place) as usize..tags.slot(place) as usize + halves;
                    assert!(record.end <= line.start || line.end <= record.start, "{halves}: {record:?} on {line:?}");
                    assert_eq!(
                        (Tags::group(place), tags.lane(place).0, tags.place(tags.slot(place))),
                        (group, own, place)
                    );
                    assert!(tags.range().contains(&record.start) && record.end <= tags.range().end);
                }
            }
        }
    }
}
