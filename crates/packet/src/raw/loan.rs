//! Buffers lent to a device that reads or writes them on its own.
//!
//! Invariant: a lent buffer is in [`Loans`] under its number and nowhere else. While it is there, nothing in this program
//! refers to its bytes; it leaves only for a batch or a stock. A device refers to buffers by offset, and an offset into a
//! buffer that was not lent to it has no effect: a device can return a wrong packet, but never create a second owner.

use std::sync::Arc;

use crate::batch::{Batch, FrameInfo};
use crate::pool::{Buffers, FRAME_MAX, HEADROOM, Pool};
use crate::raw::slab::{Buffer, STRIDE};
use crate::record::Record;

/// Where all ordinary buffers of a pool are, for a device that registers the region once.
#[derive(Clone, Copy, Debug)]
pub struct LendableRegion {
    /// First byte, at the beginning of a page.
    pub address: *mut u8,
    /// Length of the region in bytes.
    pub len: usize,
    /// Size of each buffer in bytes; the buffers are contiguous.
    pub buffer: usize,
}

/// Part of a buffer that a device was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Offset of its first byte in the region.
    pub at: u64,
    /// Length in bytes.
    pub len: usize,
}

/// The buffers of a pool that are lent to one device.
#[derive(Debug)]
pub struct Loans {
    pool: Arc<Pool>,
    /// Indexed by buffer number; the default buffer (no buffer) where none is lent.
    lent: Box<[Buffer]>,
    count: usize,
}

impl Loans {
    /// Creates loans with no buffer lent.
    pub fn new(pool: &Arc<Pool>) -> Loans {
        let lent = (0..pool.slab.buffers()).map(|_| Buffer::default()).collect();
        Loans { pool: Arc::clone(pool), lent, count: 0 }
    }

    /// Creates loans of these buffers, which must belong to the pool.
    pub(crate) fn of(pool: &Arc<Pool>, lent: Vec<Buffer>) -> Loans {
        let mut loans = Loans::new(pool);
        for buffer in lent {
            loans.enter(buffer);
        }
        loans
    }

    /// Returns where the buffers are. Valid while the loans live.
    pub fn region(&self) -> LendableRegion {
        let region = self.pool.slab.region();
        LendableRegion { address: region.base(), len: region.len(), buffer: STRIDE }
    }

    /// Returns the numbers of the buffers that are lent, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let numbered = (0..).zip(&*self.lent);
        numbered.filter(|(_, buffer)| !buffer.is(&Buffer::default())).map(|(number, _)| number)
    }

    /// Returns the number of buffers that are lent.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lends a free buffer to be filled and returns the offset of its first byte; `None` if the pool is exhausted.
    #[inline]
    pub fn lend(&mut self, buffers: &mut Buffers) -> Option<u64> {
        assert!(Arc::ptr_eq(buffers.pool(), &self.pool));
        let buffer = buffers.take(0)?;
        Some(self.enter(buffer))
    }

    /// Lends a buffer with a copy of these bytes; `None` if the pool is exhausted or no buffer is large enough.
    pub fn lend_copy(&mut self, buffers: &mut Buffers, bytes: &[u8]) -> Option<Lent> {
        assert!(Arc::ptr_eq(buffers.pool(), &self.pool));
        let buffer = if bytes.len() <= FRAME_MAX { buffers.take(0)? } else { return None };
        // SAFETY: the buffer was taken from a stock of this pool and is in no record yet.
        let room = unsafe { self.pool.slab.bases().bytes_mut(&buffer) };
        room[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        Some(Lent { at: self.enter(buffer) + HEADROOM as u64, len: bytes.len() })
    }

    /// Lends packet `i` of a batch to be read: its bytes then belong to the device, and the packet's bytes in the batch
    /// become meaningless. Returns `None`, with no effect, if the packet is in a jumbo buffer or the pool has no buffer to
    /// replace it.
    #[inline]
    pub fn lend_packet(&mut self, batch: &mut Batch, buffers: &mut Buffers, i: usize) -> Option<Lent> {
        assert!(Arc::ptr_eq(buffers.pool(), &self.pool) && Arc::ptr_eq(batch.pool(), &self.pool));
        if batch.records()[i].buffer.is_jumbo() {
            return None;
        }
        let buffer = batch.exchange(i, buffers.take(0)?, self.pool.id());
        let record = &batch.records()[i];
        let (start, len) = (u64::from(record.start), record.len());
        Some(Lent { at: self.enter(buffer) + start, len })
    }

    /// Adds a frame that the device has written into a buffer lent to it. Returns `false` if the buffer was not lent, or if
    /// the frame extends beyond it; nothing happens then. Panics if the batch is full.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch, frame: Lent, info: &FrameInfo) -> bool {
        let start = (frame.at % STRIDE as u64) as usize;
        if frame.len > STRIDE - start {
            return false;
        }
        let Some(buffer) = self.leave(frame.at) else { return false };
        let record = Record { buffer, start: start as u16, ..Record::arrived(frame.len as u32, info.port, info.link) };
        batch.push_record(record, self.pool.id(), info);
        true
    }

    /// Takes back the buffer that contains this offset, when the device is done with it. Returns `false` if it was not lent.
    #[inline]
    pub fn give_back(&mut self, buffers: &mut Buffers, at: u64) -> bool {
        assert!(Arc::ptr_eq(buffers.pool(), &self.pool));
        let buffer = self.leave(at);
        let is_known = buffer.is_some();
        buffers.put(buffer.into_iter());
        is_known
    }

    #[inline]
    fn enter(&mut self, buffer: Buffer) -> u64 {
        let number = buffer.number();
        self.lent[number] = buffer;
        self.count += 1;
        (number * STRIDE) as u64
    }

    #[inline]
    fn leave(&mut self, at: u64) -> Option<Buffer> {
        let place = self.lent.get_mut(usize::try_from(at).ok()? / STRIDE)?;
        let buffer = std::mem::take(place);
        let is_lent = !buffer.is(&Buffer::default());
        self.count -= usize::from(is_lent);
        is_lent.then_some(buffer)
    }
}

impl Drop for Loans {
    /// Gives all buffers back to the pool, since the device has been closed.
    fn drop(&mut self) {
        let mut buffers = Buffers::new(&self.pool);
        let lent = self.lent.iter_mut().map(std::mem::take).filter(|buffer| !buffer.is(&Buffer::default()));
        let lent: Vec<Buffer> = lent.collect();
        buffers.put(lent.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use braid_memory::HugePages;

    use super::*;
    use crate::fields::Layout;
    use crate::pool::PoolConfig;

    fn some() -> (Arc<Pool>, Batch, Buffers, Loans) {
        let pool = Pool::new(&PoolConfig { buffers: 4, jumbos: 1, pages: HugePages::Never }).unwrap();
        let batch = Batch::new(&pool, &Arc::new(Layout::bare()));
        let (buffers, loans) = (Buffers::new(&pool), Loans::new(&pool));
        (pool, batch, buffers, loans)
    }

    #[test]
    fn a_buffer_that_is_lent_comes_back_as_a_packet_once() {
        let (_, mut batch, mut buffers, mut loans) = some();
        let at = loans.lend(&mut buffers).unwrap();
        let frame = Lent { at: at + 256, len: 60 };
        assert!(loans.receive(&mut batch, frame, &FrameInfo::default()));
        assert_eq!((batch.len(), batch.bytes(0).len(), loans.count()), (1, 60, 0));
        assert!(!loans.receive(&mut batch, frame, &FrameInfo::default()), "it is not lent any more");
        assert!(!loans.give_back(&mut buffers, at));
    }

    #[test]
    fn offsets_that_no_device_was_lent_come_to_nothing() {
        let (_, mut batch, mut buffers, mut loans) = some();
        let at = loans.lend(&mut buffers).unwrap();
        let mut check = |at, len| assert!(!loans.receive(&mut batch, Lent { at, len }, &FrameInfo::default()));
        check(u64::MAX, 1);
        check(at ^ STRIDE as u64, 60);
        check(at + 256, STRIDE - 255);
        check(at, usize::MAX);
    }

    #[test]
    fn a_packet_that_is_lent_leaves_another_buffer_in_its_place() {
        let (pool, mut batch, mut buffers, mut loans) = some();
        batch.copy_in(&mut buffers, &[7; 60], &FrameInfo::default());
        let lent = loans.lend_packet(&mut batch, &mut buffers, 0).unwrap();
        assert_eq!((lent.at % STRIDE as u64, lent.len, loans.count()), (HEADROOM as u64, 60, 1));
        batch.release(&mut buffers);
        assert!(loans.give_back(&mut buffers, lent.at));
        drop(buffers);
        assert_eq!(pool.shared_free(), 5);
    }

    #[test]
    fn another_program_goes_on_with_what_devices_have() {
        let config = PoolConfig { buffers: 8, jumbos: 1, pages: HugePages::Never };
        let pool = Pool::shared(&config).unwrap();
        let (mut buffers, mut filled, mut sent) = (Buffers::new(&pool), Loans::new(&pool), Loans::new(&pool));
        let (first, _) = (filled.lend(&mut buffers).unwrap(), filled.lend(&mut buffers).unwrap());
        let lent = sent.lend_copy(&mut buffers, &[7; 60]).unwrap();
        let memory = || pool.memory().expect("it is shared").try_clone_to_owned().unwrap();
        let numbers = [filled.numbers().collect(), sent.numbers().collect()];
        let (pool, mut loans) = Pool::continued(&config, memory(), &numbers).unwrap();
        assert_eq!((pool.shared_free(), loans.len(), loans[0].count(), loans[1].count()), (6, 2, 2, 1));
        let mut batch = Batch::new(&pool, &Arc::new(Layout::bare()));
        assert!(loans[0].receive(&mut batch, Lent { at: first + 256, len: 60 }, &FrameInfo::default()));
        assert!(loans[1].receive(&mut batch, lent, &FrameInfo::default()));
        assert_eq!(batch.bytes(1), [7; 60], "the bytes are where they were");
        let check = |lent: &[Vec<u32>]| assert!(Pool::continued(&config, memory(), lent).is_err(), "{lent:?}");
        check(&[vec![8]]);
        check(&[vec![3, 3]]);
        check(&[vec![3], vec![3]]);
    }

    #[test]
    fn what_a_closed_device_had_is_free_again() {
        let (pool, _, mut buffers, mut loans) = some();
        while loans.lend(&mut buffers).is_some() {}
        assert_eq!((loans.count(), pool.exhausted()), (4, 1));
        assert!(loans.lend_copy(&mut buffers, &[1]).is_none());
        drop((loans, buffers));
        assert_eq!(pool.shared_free(), 5);
    }
}
