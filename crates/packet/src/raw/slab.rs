//! Buffers by number in two regions: ordinary ones at a stride of 33 cache lines, a few jumbo ones.

use std::marker::PhantomData;

use braid_memory::{Backing, Error, HugePages, Region};

/// Distance between two buffers in bytes: 33 cache lines. An odd number of lines spreads the headers over all sets of the
/// first-level cache; 2048 would use two of them.
pub(crate) const STRIDE: usize = 33 * 64;
/// Distance between two jumbo buffers: room for the largest snap length in use (256 KiB), again an odd number of lines.
pub(crate) const JUMBO_STRIDE: usize = 4101 * 64;
/// Marks the number of a jumbo buffer.
pub(crate) const JUMBO: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Slab {
    ordinary: Region,
    jumbo: Region,
    buffers: u32,
    jumbos: u32,
}

/// The regions' first bytes and counts, in registers: a loop that writes records need not read them again.
#[derive(Clone, Copy)]
pub(crate) struct Bases<'a> {
    ordinary: *mut u8,
    jumbo: *mut u8,
    buffers: u32,
    jumbos: u32,
    slab: PhantomData<&'a Slab>,
}

impl<'a> Bases<'a> {
    #[inline(always)]
    fn address(&self, buffer: u32) -> (*mut u8, usize) {
        // One comparison: the numbers of jumbo buffers are greater than any count.
        if buffer < self.buffers {
            // SAFETY: the number is in range, so the buffer lies inside the region.
            return (unsafe { self.ordinary.add(buffer as usize * STRIDE) }, STRIDE);
        }
        self.jumbo_address(buffer)
    }

    #[cold]
    fn jumbo_address(&self, buffer: u32) -> (*mut u8, usize) {
        let number = buffer ^ JUMBO;
        assert!(number < self.jumbos);
        // SAFETY: as above, for the jumbo region.
        (unsafe { self.jumbo.add(number as usize * JUMBO_STRIDE) }, JUMBO_STRIDE)
    }

    /// All bytes of a buffer, to read.
    ///
    /// # Safety
    /// The caller owns the buffer's number, and nobody writes to its bytes for as long as the result lives.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&self, buffer: u32) -> &'a [u8] {
        let (address, len) = self.address(buffer);
        // SAFETY: in range and initialised (zeroed by the kernel); not written to by this function's contract.
        unsafe { std::slice::from_raw_parts(address, len) }
    }
}

impl Slab {
    pub(crate) fn new(buffers: u32, jumbos: u32, pages: HugePages) -> Result<Slab, Error> {
        assert!(buffers < JUMBO && jumbos < JUMBO);
        let ordinary = Region::new(buffers as usize * STRIDE, pages)?;
        let jumbo = Region::new(jumbos as usize * JUMBO_STRIDE, HugePages::Never)?;
        Ok(Slab { ordinary, jumbo, buffers, jumbos })
    }

    pub(crate) fn backing(&self) -> Backing {
        self.ordinary.backing()
    }

    /// Where the buffers lie, to keep at hand in a loop over many of them.
    #[inline(always)]
    pub(crate) fn bases(&self) -> Bases<'_> {
        let (ordinary, jumbo) = (self.ordinary.base(), self.jumbo.base());
        Bases { ordinary, jumbo, buffers: self.buffers, jumbos: self.jumbos, slab: PhantomData }
    }

    #[inline(always)]
    fn address(&self, buffer: u32) -> (*mut u8, usize) {
        self.bases().address(buffer)
    }

    /// Where a buffer begins, for prefetching.
    #[inline(always)]
    pub(crate) fn pointer(&self, buffer: u32) -> *const u8 {
        self.address(buffer).0
    }

    /// All bytes of a buffer, to change.
    ///
    /// # Safety
    /// The caller owns the buffer's number (it was taken from the free list once and not given back) and holds no other
    /// reference to its bytes for as long as the result lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn bytes_mut(&self, buffer: u32) -> &mut [u8] {
        let (address, len) = self.address(buffer);
        // SAFETY: in range and initialised (zeroed by the kernel); unique by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(address, len) }
    }
}
