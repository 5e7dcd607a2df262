//! A walk over packets of a batch, in an order that is validated as a whole rather than packet by packet.
//!
//! Invariant: every number of the order is that of a record, and with `ORDINARY` no record owns a jumbo buffer. Both are
//! checked when a walk begins; of the order, only its upper bound is checked ([`Order`]). Records and order are borrowed
//! until the walk ends, and whoever is lent a packet cannot exchange its buffer.

use super::order::Order;
use super::slab::Bases;
use crate::batch::BATCH_MAX;
use crate::metas::Metas;
use crate::packet::Packet;
use crate::record::Record;
use crate::undo::Undo;

/// A walk over packets of a batch. `ORDINARY`: no buffer is a jumbo buffer, so none has to be checked.
#[derive(Debug)]
pub struct Walk<'a, const ORDINARY: bool> {
    records: &'a mut [Record],
    bases: Bases<'a>,
    metas: &'a mut Metas,
    among_cuts: bool,
    order: &'a [u16],
    /// Number of packets lent so far.
    lent: usize,
}

impl<'a, const ORDINARY: bool> Walk<'a, ORDINARY> {
    /// Starts a walk over the packets listed in `order`. Panics if the order, or the order of which it is a part, contains a
    /// number that is out of range.
    ///
    /// # Safety
    /// The records must own buffers of the slab of `bases`; with `ORDINARY`, none of them may be a jumbo buffer.
    #[inline(always)]
    pub(super) unsafe fn new(
        records: &'a mut [Record],
        bases: Bases<'a>,
        metas: &'a mut Metas,
        Order { numbers: order, end }: Order<'a>,
    ) -> Self {
        assert!(end as usize <= records.len().min(BATCH_MAX), "a walk over packets that the batch has not");
        let among_cuts = !ORDINARY && metas.has_cuts();
        Walk { records, bases, metas, among_cuts, order, lent: 0 }
    }

    /// Advances to the next packet.
    #[inline(always)]
    pub fn step(&mut self) -> Option<Turn<'_>> {
        let index = usize::from(*self.order.get(self.lent)?) & 255;
        self.lent += 1;
        // SAFETY: the numbers of the order are those of records (the module's invariant); no batch has more than 256.
        let record = unsafe { self.records.get_unchecked_mut(index) };
        // SAFETY: the record owns the buffer, which belongs to this slab and, with `ORDINARY`, is not a jumbo buffer; it is
        // borrowed for as long as the walk, which lends one packet at a time.
        let room = unsafe {
            match ORDINARY {
                true => self.bases.ordinary_bytes_mut(&record.buffer),
                false => self.bases.bytes_mut(&record.buffer),
            }
        };
        Some(Turn { index, record, room, metas: self.metas, among_cuts: self.among_cuts })
    }

    /// Returns the number of packets lent so far, including the current one.
    #[inline(always)]
    pub fn lent(&self) -> usize {
        self.lent
    }
}

/// The current packet of a walk.
#[derive(Debug)]
pub struct Turn<'a> {
    index: usize,
    record: &'a mut Record,
    room: &'a mut [u8],
    metas: &'a mut Metas,
    among_cuts: bool,
}

impl<'a> Turn<'a> {
    /// Returns the packet's number in the batch, below 256.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the packet, to read and change; if there is an `undo` log, everything overwritten is saved there first.
    #[inline(always)]
    pub fn packet(self, undo: Option<&'a mut Undo>) -> Packet<'a> {
        Packet::new(self.index, self.record, self.room, (self.metas, self.among_cuts), undo)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_memory::HugePages;

    use crate::fields::Layout;
    use crate::pool::{Buffers, FRAME_MAX, Pool, PoolConfig};
    use crate::{Batch, FrameInfo, Order};

    /// Creates a batch of frames with these lengths, each filled with its number.
    fn batch(lens: &[usize]) -> (Batch, Buffers) {
        let pool = Pool::new(&PoolConfig { buffers: 8, jumbos: 1, pages: HugePages::Never }).unwrap();
        let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
        for (i, &len) in lens.iter().enumerate() {
            assert!(batch.copy_in(&mut buffers, &vec![i as u8; len], &FrameInfo::default()));
        }
        (batch, buffers)
    }

    fn walked<const ORDINARY: bool>(batch: &mut Batch, order: &[u16]) -> Vec<(usize, u8, usize)> {
        let (mut walk, mut seen) = (batch.walk::<ORDINARY>(Order::new(order)), Vec::new());
        while let Some(turn) = walk.step() {
            let i = turn.index();
            let mut packet = turn.packet(None);
            seen.push((i, packet.bytes()[0], packet.len()));
            packet.bytes_mut().fill(0xff);
        }
        assert_eq!(walk.lent(), order.len());
        seen
    }

    #[test]
    fn packets_have_their_turn_in_the_order_named() {
        let (mut packets, _buffers) = batch(&[60, 61, 62]);
        let all = walked::<true>(&mut packets, &[2, 0, 2]);
        assert_eq!(all, [(2, 2, 62), (0, 0, 60), (2, 0xff, 62)], "what was changed stays changed");
        assert_eq!(walked::<false>(&mut packets, &[1]), [(1, 1, 61)]);
        assert_eq!(walked::<true>(&mut packets, &[]), []);
    }

    #[test]
    fn a_part_of_an_order_is_walked_by_itself() {
        let (mut packets, _buffers) = batch(&[60, 61, 62]);
        let order = Order::new(&[2, 0, 1]);
        let (mut walk, mut seen) = (packets.walk::<true>(order.part(1..3)), Vec::new());
        while let Some(turn) = walk.step() {
            seen.push(turn.index());
        }
        assert_eq!((seen, &order[..]), (vec![0, 1], &[2, 0, 1][..]));
    }

    #[test]
    #[should_panic(expected = "a walk over packets that the batch has not")]
    fn a_part_of_an_order_that_names_no_packet_elsewhere_is_refused() {
        let (mut packets, _buffers) = batch(&[60, 61]);
        packets.walk::<true>(Order::new(&[2, 0, 1]).part(1..3));
    }

    #[test]
    #[should_panic(expected = "a walk over packets that the batch has not")]
    fn numbers_of_no_packet_are_refused() {
        let (mut packets, _buffers) = batch(&[60, 61]);
        walked::<true>(&mut packets, &[0, 2]);
    }

    #[test]
    fn a_batch_is_ordinary_until_a_jumbo_buffer_comes_in() {
        let (mut packets, mut buffers) = batch(&[60, FRAME_MAX + 1]);
        assert!(!packets.is_ordinary());
        assert_eq!(walked::<false>(&mut packets, &[0, 1]), [(0, 0, 60), (1, 1, FRAME_MAX + 1)]);
        packets.release(&mut buffers);
        assert!(packets.is_ordinary() && packets.copy_in(&mut buffers, &[7; 60], &FrameInfo::default()));
        assert_eq!(walked::<true>(&mut packets, &[0]), [(0, 7, 60)]);
    }

    #[test]
    #[should_panic(expected = "is_ordinary")]
    fn no_ordinary_walk_meets_a_jumbo_buffer() {
        let (mut packets, _buffers) = batch(&[60, FRAME_MAX + 1]);
        walked::<true>(&mut packets, &[0]);
    }
}
