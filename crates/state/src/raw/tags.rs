//! Groups of 31 tags of 16 bits in one region, each a cache line, compared all at once. The last lane of a line counts what had no room in it.

use braid_memory::{Error, HugePages, Region, prefetch_second_level};

/// Positions in a group, one for each lane of a cache line: 64 bytes.
pub(crate) const GROUP: usize = 32;
/// Those of them that hold tags.
pub(crate) const PLACES: usize = GROUP - 1;
/// The lane behind them.
const STRAYS: usize = PLACES;

/// The tags of a table; 0 is an empty place. The first groups are homes of hashes, the others are for what finds no room
/// there.
#[derive(Debug)]
pub(crate) struct Tags {
    region: Region,
    /// At least two, at most `groups`, fewer than 2^32.
    homes: u64,
    groups: usize,
}

impl Tags {
    /// `homes` groups for hashes, and `more` behind them.
    pub(crate) fn new(homes: usize, more: usize, pages: HugePages) -> Result<Tags, Error> {
        assert!(homes > 1 && u32::try_from(homes).is_ok());
        let groups = homes + more;
        Ok(Tags { region: Region::new(groups * size_of::<Line>(), pages)?, homes: homes as u64, groups })
    }

    /// Groups that are homes of hashes.
    #[inline(always)]
    pub(crate) fn homes(&self) -> usize {
        self.homes as usize
    }

    /// The group where a hash is at home, by its upper half.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.homes) >> 32) as usize
    }

    /// How many groups behind its home, in the ring of all homes, a stray with this tag is; never 0.
    #[inline(always)]
    pub(crate) fn way(&self, tag: u16) -> usize {
        1 + ((u64::from(tag) * (self.homes - 1)) >> 16) as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Touches all pages.
    pub(crate) fn touch(&self) {
        self.region.touch(0..self.region.len());
    }

    #[inline(always)]
    fn address(&self, group: usize) -> *mut Line {
        self.region.base().cast::<Line>().wrapping_add(group)
    }

    /// Asks for one group of many.
    #[inline(always)]
    pub(crate) fn prefetch(&self, group: usize) {
        prefetch_second_level(self.address(group));
    }

    #[inline(always)]
    fn line(&self, group: usize) -> &Line {
        assert!(group < self.groups);
        // SAFETY: the group lies inside the region, which is initialised and aligned to a page, and only `&mut self` writes to it.
        unsafe { &*self.address(group) }
    }

    /// A bit for each place of the group that holds `tag`.
    #[inline(always)]
    pub(crate) fn lanes(&self, group: usize, tag: u16) -> u32 {
        equal_lanes(self.line(group), tag)
    }

    /// A bit for each place of the group that holds one.
    #[inline(always)]
    pub(crate) fn taken(&self, group: usize) -> u32 {
        !self.lanes(group, 0) & ((1 << PLACES) - 1)
    }

    /// The first position of a group that holds `tag`.
    #[inline(always)]
    pub(crate) fn first(&self, group: usize, tag: u16) -> Option<usize> {
        let lanes = self.lanes(group, tag);
        (lanes != 0).then(|| group * GROUP + lanes.trailing_zeros() as usize)
    }

    /// The first position that holds `tag` in the home of a hash; no place: what its strays are counted as.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, tag: u16) -> Result<usize, u16> {
        let home = self.home(hash);
        // SAFETY: as in `line`: half a hash is below 2^32, so a home is below `homes`.
        let line = unsafe { &*self.address(home) };
        match equal_lanes(line, tag) {
            0 => Err(line.0[STRAYS]),
            lanes => Ok(home * GROUP + lanes.trailing_zeros() as usize),
        }
    }

    /// How many are at home in the group and stay in another.
    #[inline(always)]
    pub(crate) fn strays(&self, group: usize) -> u16 {
        self.line(group).0[STRAYS]
    }

    pub(crate) fn set_strays(&mut self, group: usize, strays: u16) {
        self.write(group * GROUP + STRAYS, strays);
    }

    /// The tag at a position: 0 at one that holds none.
    #[inline(always)]
    pub(crate) fn tag(&self, position: usize) -> u16 {
        match position % GROUP {
            STRAYS => 0,
            lane => self.line(position / GROUP).0[lane],
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, position: usize, tag: u16) {
        debug_assert!(position % GROUP != STRAYS);
        self.write(position, tag);
    }

    #[inline(always)]
    fn write(&mut self, lane: usize, value: u16) {
        assert!(lane < self.groups * GROUP);
        // SAFETY: inside the region, which is aligned to a page; `&mut self` makes the access unique.
        unsafe { self.region.base().cast::<u16>().add(lane).write(value) }
    }
}

/// One group.
#[derive(Debug)]
#[repr(align(64))]
struct Line([u16; GROUP]);

/// A bit for each lane but the last that holds `tag`.
#[inline(always)]
fn equal_lanes(line: &Line, tag: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    let all = {
        use std::arch::x86_64::{
            __m256i, _mm256_cmpeq_epi16, _mm256_load_si256, _mm256_movemask_epi8, _mm256_packs_epi16,
            _mm256_permute4x64_epi64, _mm256_set1_epi16,
        };
        let halves = line.0.as_ptr().cast::<__m256i>();
        // SAFETY: the program is built for processors with AVX2; both loads are inside the line and aligned to half of it.
        unsafe {
            let wanted = _mm256_set1_epi16(tag as i16);
            let low = _mm256_cmpeq_epi16(_mm256_load_si256(halves), wanted);
            let high = _mm256_cmpeq_epi16(_mm256_load_si256(halves.add(1)), wanted);
            // Packing takes quarters by turns: 0 2 1 3.
            let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
            _mm256_movemask_epi8(bytes) as u32
        }
    };
    #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
    let all = portable(line, tag);
    all & !(1 << STRAYS)
}

#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "avx2"))))]
fn portable(line: &Line, tag: u16) -> u32 {
    line.0.iter().rev().fold(0, |lanes, lane| lanes << 1 | u32::from(*lane == tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_form_equals_the_portable_one() {
        let line = Line(std::array::from_fn(|i| [1, 0, 256, 0xffff, 3, 1, 0x0101][i * 3 % 7]));
        for tag in [0, 1, 2, 3, 256, 257, 0xff00, 0xffff] {
            assert_eq!(equal_lanes(&line, tag), portable(&line, tag) & u32::MAX >> 1, "tag {tag}");
        }
    }

    #[test]
    fn a_stray_never_stays_at_home() {
        for homes in [2, 3, 1000] {
            let tags = Tags::new(homes, 0, HugePages::Never).expect("a small table fits");
            assert!((0..=u16::MAX).all(|tag| (1..homes).contains(&tags.way(tag))), "{homes} homes");
        }
    }
}
