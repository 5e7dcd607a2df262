//! Numbered buffers in two regions: ordinary ones at a stride of 33 cache lines, and a few jumbo ones.
//!
//! Invariant: each [`Buffer`] is the only one with its number. The slab creates each once, at the start, and it cannot be
//! cloned. Whoever holds it therefore owns the bytes, and a borrow of it is a borrow of them. A buffer does not record its
//! slab: the pool keeps buffers and slab together, and [`Records`](super::records::Records) compares pools before it admits a buffer.

use std::marker::PhantomData;

use braid_memory::{Error, HugePages, Region};

/// Distance between two buffers in bytes: 33 cache lines. An odd number of lines spreads the headers over all sets of the
/// first-level cache; a stride of 2048 would use two of them.
pub(crate) const STRIDE: usize = 33 * 64;
/// Distance between two jumbo buffers: room for the largest snap length in use (256 KiB), again an odd number of lines.
pub(crate) const JUMBO_STRIDE: usize = 4101 * 64;
/// Bit that marks the number of a jumbo buffer.
const JUMBO: u32 = 1 << 31;
/// Number of bytes of a frame's buffer that can be read without checking where the frame ends: more than any offset that a
/// [`Record`](crate::Record) can express (255 to the IP header, 1020 across it) plus a transport header's ports.
pub(crate) const HEAD: usize = 1280;

/// A buffer of a pool; holding it means owning its bytes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Buffer(u32);

impl Default for Buffer {
    /// Returns the number that stands for no buffer.
    fn default() -> Buffer {
        Buffer(u32::MAX)
    }
}

impl Buffer {
    #[inline(always)]
    pub(crate) fn is_jumbo(&self) -> bool {
        self.0 & JUMBO != 0
    }

    /// Returns its number among the ordinary buffers.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        debug_assert!(!self.is_jumbo());
        self.0 as usize
    }

    #[inline(always)]
    pub(crate) fn is(&self, other: &Buffer) -> bool {
        self.0 == other.0
    }

    /// Copies the number, to recognise the buffer; must never be put where buffers are owned.
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

/// The regions' first bytes and buffer counts, kept in registers by loops that write records.
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
        // One comparison suffices: the numbers of jumbo buffers are greater than any count.
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

    /// Returns the address of a buffer, for prefetching.
    #[inline(always)]
    pub(crate) fn pointer(&self, buffer: &Buffer) -> *const u8 {
        self.address(buffer).0
    }

    /// Returns all bytes of a buffer.
    ///
    /// # Safety
    /// The buffer must belong to this slab and be owned, and nothing may write to its bytes while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&self, buffer: &Buffer) -> &'a [u8] {
        let (address, len) = self.address(buffer);
        // SAFETY: in range and initialised (zeroed by the kernel); not written to by this function's contract.
        unsafe { std::slice::from_raw_parts(address, len) }
    }

    /// Returns all bytes of a buffer for modification.
    ///
    /// # Safety
    /// The buffer must belong to this slab and be owned, and there must be no other reference to its bytes while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn bytes_mut(&self, buffer: &Buffer) -> &'a mut [u8] {
        let (address, len) = self.address(buffer);
        // SAFETY: in range and initialised (zeroed by the kernel); unique by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(address, len) }
    }

    /// Returns all bytes of an ordinary buffer for modification, without checking its number.
    ///
    /// # Safety
    /// As for [`Bases::bytes_mut`], and the buffer must not be a jumbo buffer.
    #[inline(always)]
    pub(crate) unsafe fn ordinary_bytes_mut(&self, buffer: &Buffer) -> &'a mut [u8] {
        // SAFETY: an ordinary buffer lies inside the region; otherwise as above.
        unsafe { std::slice::from_raw_parts_mut(self.ordinary(buffer), STRIDE) }
    }

    /// Returns [`HEAD`] bytes of an ordinary buffer from `start` on; `None` for a jumbo buffer, or if `start` is too close to
    /// the end.
    ///
    /// # Safety
    /// As for [`Bases::bytes`].
    #[inline(always)]
    pub(crate) unsafe fn head(&self, buffer: &Buffer, start: u16) -> Option<&'a [u8; HEAD]> {
        if buffer.0 >= self.buffers || start as usize > STRIDE - HEAD {
            return None;
        }
        // SAFETY: the number is in range, at least [`HEAD`] bytes of the buffer follow `start`, and the contract of `bytes` holds.
        Some(unsafe { &*self.ordinary.add(buffer.0 as usize * STRIDE + start as usize).cast() })
    }

    /// Returns the address of an ordinary buffer without checking its number.
    ///
    /// # Safety
    /// The buffer must belong to this slab and must not be a jumbo buffer.
    #[inline(always)]
    pub(crate) unsafe fn ordinary(&self, buffer: &Buffer) -> *mut u8 {
        debug_assert!(buffer.0 < self.buffers);
        // SAFETY: ordinary numbers are below the count, so the buffer lies inside the region.
        unsafe { self.ordinary.add(buffer.0 as usize * STRIDE) }
    }
}

impl Slab {
    /// Creates a slab with its ordinary buffers in the given region. Returns the slab, the ordinary buffers and the jumbo
    /// buffers, both lists in descending order of numbers.
    pub(crate) fn new(ordinary: Region, jumbos: u32) -> Result<(Slab, Vec<Buffer>, Vec<Buffer>), Error> {
        let buffers = (ordinary.len() / STRIDE) as u32;
        assert!(buffers < JUMBO && jumbos < JUMBO - 1);
        let jumbo = Region::new(jumbos as usize * JUMBO_STRIDE, HugePages::Never)?;
        let slab = Slab { ordinary, jumbo, buffers, jumbos };
        let jumbos = (0..jumbos).rev().map(|n| Buffer(n | JUMBO)).collect();
        Ok((slab, (0..buffers).rev().map(Buffer).collect(), jumbos))
    }

    /// Returns the number of ordinary buffers.
    pub(crate) fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Returns the region of the ordinary buffers.
    pub(crate) fn region(&self) -> &Region {
        &self.ordinary
    }

    /// Returns the base addresses, for loops over many buffers.
    #[inline(always)]
    pub(crate) fn bases(&self) -> Bases<'_> {
        let (ordinary, jumbo) = (self.ordinary.base(), self.jumbo.base());
        Bases { ordinary, jumbo, buffers: self.buffers, jumbos: self.jumbos, slab: PhantomData }
    }
}
