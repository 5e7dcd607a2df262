//! Buffers by number in two regions: ordinary ones at a stride of 33 cache lines, a few jumbo ones.
//!
//! Invariant: a [`Buffer`] is the only one with its number. The slab makes each once, at the start; it cannot be cloned, so
//! whoever holds it owns the bytes, and a borrow of it is a borrow of them. Which slab it belongs to is not written on it: the
//! pool keeps buffers and slab together, and [`Held`](super::held::Held) compares pools before it lets a buffer in.

use std::marker::PhantomData;

use braid_memory::{Error, HugePages, Region};

/// Distance between two buffers in bytes: 33 cache lines. An odd number of lines spreads the headers over all sets of the
/// first-level cache; 2048 would use two of them.
pub(crate) const STRIDE: usize = 33 * 64;
/// Distance between two jumbo buffers: room for the largest snap length in use (256 KiB), again an odd number of lines.
pub(crate) const JUMBO_STRIDE: usize = 4101 * 64;
/// Marks the number of a jumbo buffer.
const JUMBO: u32 = 1 << 31;
/// First bytes of a buffer's contents that can be read without asking where the frame ends: more than any offset that a
/// [`Record`](crate::Record) can name (255 to the IP header, 1020 across it) and a transport header's ports.
pub(crate) const HEAD: usize = 1280;

/// A buffer of a pool; to hold it is to own its bytes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Buffer(u32);

impl Default for Buffer {
    /// No buffer: the number of none.
    fn default() -> Buffer {
        Buffer(u32::MAX)
    }
}

impl Buffer {
    #[inline(always)]
    pub(crate) fn is_jumbo(&self) -> bool {
        self.0 & JUMBO != 0
    }

    /// Its number among the ordinary buffers.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        debug_assert!(!self.is_jumbo());
        self.0 as usize
    }

    #[inline(always)]
    pub(crate) fn is(&self, other: &Buffer) -> bool {
        self.0 == other.0
    }

    /// The same number again, to recognise the buffer by; never to be put where buffers are owned.
    #[inline(always)]
    pub(crate) fn alias(&self) -> Buffer {
        Buffer(self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Slab {
    ordinary: Region,
    jumbo: Region,
    buffers: u32,
    jumbos: u32,
}

/// The regions' first bytes and counts, in registers: a loop that writes records need not read them again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bases<'a> {
    ordinary: *mut u8,
    jumbo: *mut u8,
    buffers: u32,
    jumbos: u32,
    slab: PhantomData<&'a Slab>,
}

impl<'a> Bases<'a> {
    #[inline(always)]
    fn address(&self, buffer: &Buffer) -> (*mut u8, usize) {
        // One comparison: the numbers of jumbo buffers are greater than any count.
        if buffer.0 < self.buffers {
            // SAFETY: the number is in range, so the buffer lies inside the region.
            return (unsafe { self.ordinary.add(buffer.0 as usize * STRIDE) }, STRIDE);
        }
        self.jumbo_address(buffer)
    }

    #[cold]
    fn jumbo_address(&self, buffer: &Buffer) -> (*mut u8, usize) {
        let number = buffer.0 ^ JUMBO;
        assert!(number < self.jumbos);
        // SAFETY: as above, for the jumbo region.
        (unsafe { self.jumbo.add(number as usize * JUMBO_STRIDE) }, JUMBO_STRIDE)
    }

    /// Where a buffer begins, for prefetching.
    #[inline(always)]
    pub(crate) fn pointer(&self, buffer: &Buffer) -> *const u8 {
        self.address(buffer).0
    }

    /// All bytes of a buffer, to read.
    ///
    /// # Safety
    /// The buffer is of this slab and owned, and nobody writes to its bytes for as long as the result lives.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&self, buffer: &Buffer) -> &'a [u8] {
        let (address, len) = self.address(buffer);
        // SAFETY: in range and initialised (zeroed by the kernel); not written to by this function's contract.
        unsafe { std::slice::from_raw_parts(address, len) }
    }

    /// All bytes of a buffer, to change.
    ///
    /// # Safety
    /// The buffer is of this slab and owned, and there is no other reference to its bytes for as long as the result lives.
    #[inline(always)]
    pub(crate) unsafe fn bytes_mut(&self, buffer: &Buffer) -> &'a mut [u8] {
        let (address, len) = self.address(buffer);
        // SAFETY: in range and initialised (zeroed by the kernel); unique by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(address, len) }
    }

    /// All bytes of an ordinary buffer, to change, without a look at the number.
    ///
    /// # Safety
    /// As for [`Bases::bytes_mut`], and it is no jumbo buffer.
    #[inline(always)]
    pub(crate) unsafe fn ordinary_bytes_mut(&self, buffer: &Buffer) -> &'a mut [u8] {
        // SAFETY: an ordinary buffer lies inside the region; as above.
        unsafe { std::slice::from_raw_parts_mut(self.ordinary(buffer), STRIDE) }
    }

    /// [`HEAD`] bytes of an ordinary buffer from `start` on; none of a jumbo buffer or too near to the end.
    ///
    /// # Safety
    /// As for [`Bases::bytes`].
    #[inline(always)]
    pub(crate) unsafe fn head(&self, buffer: &Buffer, start: u16) -> Option<&'a [u8; HEAD]> {
        if buffer.0 >= self.buffers || start as usize > STRIDE - HEAD {
            return None;
        }
        // SAFETY: the number is in range, `start` leaves so many bytes of the buffer, and they are as in `bytes`.
        Some(unsafe { &*self.ordinary.add(buffer.0 as usize * STRIDE + start as usize).cast() })
    }

    /// Address of an ordinary buffer, without a look at the number.
    ///
    /// # Safety
    /// The buffer is of this slab and no jumbo buffer.
    #[inline(always)]
    pub(crate) unsafe fn ordinary(&self, buffer: &Buffer) -> *mut u8 {
        debug_assert!(buffer.0 < self.buffers);
        // SAFETY: ordinary numbers are below the count, so the buffer lies inside the region.
        unsafe { self.ordinary.add(buffer.0 as usize * STRIDE) }
    }
}

impl Slab {
    /// The slab with its ordinary buffers in this region, those buffers, its jumbo buffers. The first of each is the last of its list.
    pub(crate) fn new(ordinary: Region, jumbos: u32) -> Result<(Slab, Vec<Buffer>, Vec<Buffer>), Error> {
        let buffers = (ordinary.len() / STRIDE) as u32;
        assert!(buffers < JUMBO && jumbos < JUMBO - 1);
        let jumbo = Region::new(jumbos as usize * JUMBO_STRIDE, HugePages::Never)?;
        let slab = Slab { ordinary, jumbo, buffers, jumbos };
        let jumbos = (0..jumbos).rev().map(|n| Buffer(n | JUMBO)).collect();
        Ok((slab, (0..buffers).rev().map(Buffer).collect(), jumbos))
    }

    /// Number of ordinary buffers.
    pub(crate) fn buffers(&self) -> u32 {
        self.buffers
    }

    /// The region of the ordinary buffers.
    pub(crate) fn region(&self) -> &Region {
        &self.ordinary
    }

    /// Where the buffers lie, to keep at hand in a loop over many of them.
    #[inline(always)]
    pub(crate) fn bases(&self) -> Bases<'_> {
        let (ordinary, jumbo) = (self.ordinary.base(), self.jumbo.base());
        Bases { ordinary, jumbo, buffers: self.buffers, jumbos: self.jumbos, slab: PhantomData }
    }
}
