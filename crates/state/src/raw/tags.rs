//! Groups of eight 16-bit tags in one region, compared eight at a time.

use braid_memory::{Error, HugePages, Region, prefetch_read};

/// Tags in a group: 16 bytes.
pub(crate) const GROUP: usize = 8;

/// The tags of a table; 0 is an empty place. The first groups are homes of hashes, the others are for what finds no room
/// there.
#[derive(Debug)]
pub(crate) struct Tags {
    region: Region,
    /// At least one, at most `groups`, fewer than 2^32.
    homes: u64,
    groups: usize,
}

impl Tags {
    /// `homes` groups for hashes, and `more` behind them.
    pub(crate) fn new(homes: usize, more: usize, pages: HugePages) -> Result<Tags, Error> {
        assert!(homes > 0 && u32::try_from(homes).is_ok());
        let groups = homes + more;
        Ok(Tags { region: Region::new(groups * GROUP * 2, pages)?, homes: homes as u64, groups })
    }

    /// Groups that are homes of hashes.
    #[inline(always)]
    pub(crate) fn homes(&self) -> usize {
        self.homes as usize
    }

    /// The two groups of a hash.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> (usize, usize) {
        // The upper and the lower half: both are uniform, and neither tells the other.
        let first = ((hash >> 32) * self.homes) >> 32;
        let second = ((hash & u64::from(u32::MAX)) * self.homes) >> 32;
        (first as usize, second as usize)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Touches all pages.
    pub(crate) fn touch(&self) {
        self.region.touch(0..self.region.len());
    }

    #[inline(always)]
    fn address(&self, group: usize) -> *mut [u8; 16] {
        self.region.base().wrapping_add(group * GROUP * 2).cast()
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, group: usize) {
        prefetch_read(self.address(group));
    }

    /// A bit pair `11` at `2·lane` for each lane of the group that holds `tag`.
    #[inline(always)]
    pub(crate) fn lanes(&self, group: usize, tag: u16) -> u32 {
        assert!(group < self.groups);
        // SAFETY: the group lies inside the region, which is initialised, and only `&mut self` writes to it.
        equal_lanes(unsafe { &*self.address(group) }, tag)
    }

    /// The first slot that holds `tag` in the groups of a hash.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, tag: u16) -> Option<usize> {
        let (first, second) = self.home(hash);
        // SAFETY: as in `lanes`, for both: half a hash is below 2^32, so a home is below `homes`.
        let (here, there) =
            unsafe { (equal_lanes(&*self.address(first), tag), equal_lanes(&*self.address(second), tag)) };
        let (group, lanes) = if here != 0 { (first, here) } else { (second, there) };
        (lanes != 0).then(|| group * GROUP + lanes.trailing_zeros() as usize / 2)
    }

    #[inline(always)]
    pub(crate) fn tag(&self, slot: usize) -> u16 {
        assert!(slot < self.groups * GROUP);
        // SAFETY: as in `lanes`; the region is aligned to a page.
        unsafe { self.region.base().cast::<u16>().add(slot).read() }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, slot: usize, tag: u16) {
        assert!(slot < self.groups * GROUP);
        // SAFETY: as in `tag`; `&mut self` makes the access unique.
        unsafe { self.region.base().cast::<u16>().add(slot).write(tag) }
    }
}

#[inline(always)]
fn equal_lanes(group: &[u8; 16], tag: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi16};
        // SAFETY: SSE2 is part of every x86-64; the load is unaligned and inside the array.
        unsafe {
            let tags = _mm_loadu_si128(group.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16))) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable(group, tag)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable(group: &[u8; 16], tag: u16) -> u32 {
    let lane = |i: usize| u16::from_ne_bytes([group[2 * i], group[2 * i + 1]]);
    (0..8).fold(0, |lanes, i| if lane(i) == tag { lanes | 3 << (2 * i) } else { lanes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_form_equals_the_portable_one() {
        let group: [u8; 16] = [1, 0, 2, 0, 1, 0, 255, 255, 0, 1, 1, 1, 0, 0, 1, 0];
        for tag in [0, 1, 2, 256, 257, 65535, 7] {
            assert_eq!(equal_lanes(&group, tag), portable(&group, tag), "tag {tag}");
        }
    }
}
