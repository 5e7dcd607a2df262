//! Cache lines on the same kind of pages as the objects of an arena.

use braid_memory::{HugePages, Region};

use crate::engines::Line;

pub struct Lines {
    region: Region,
    lines: usize,
}

impl Lines {
    pub fn new(lines: u32) -> Lines {
        let region = Region::new(lines as usize * size_of::<Line>(), HugePages::Prefer).expect("memory for the bench");
        Lines { region, lines: lines as usize }
    }
}

impl std::ops::Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        // SAFETY: the region holds that many lines, is page aligned, and is zeroed, which is a valid value of `Line` (atomics).
        unsafe { std::slice::from_raw_parts(self.region.base().cast(), self.lines) }
    }
}
