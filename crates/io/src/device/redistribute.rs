//! Several threads receive packets, and each hands over the packets that are steered to another one.
//!
//! A network card or the kernel decides on which queue a packet arrives; the plan decides to which receiver
//! it belongs. Where both agree, nothing is handed over. A connection arrives on one queue as long as the
//! device hashes it to one, and passes through one ring, so its packets keep their order.
//!
//! Each pair of receivers has one ring in each direction. Nobody waits for a full ring, since two receivers might wait for each
//! other: the packet is dropped and counted as missed, as a network card would do.
//!
//! Each receiver has a [`Bell`], which is rung when packets have been handed over to it, since it may be asleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_packet::{Batch, Buffers, Frame};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::bell::Bell;
use crate::source::QueueSelect;

/// Number of packets that a ring holds.
const RING: usize = 1024;

/// One receiver's ends of the rings.
pub(super) struct Handover {
    own: usize,
    select: Arc<dyn QueueSelect>,
    /// The ring to each receiver; the ring to itself is unused.
    to: Vec<Producer<Frame>>,
    from: Vec<Consumer<Frame>>,
    /// The bell of each receiver; none if there are no descriptors left for bells, and then nobody waits.
    bells: Vec<Arc<Bell>>,
    /// Whether each receiver has been handed something in this round.
    handed: Vec<bool>,
    /// Packets after the first one that belongs to another receiver, newest first, each with its owner.
    staged: Vec<(usize, Frame)>,
    /// Packets whose ring was full, until their buffers are returned.
    refused: Option<Batch>,
    /// Number of receivers whose devices deliver nothing any more.
    quiet: Arc<AtomicUsize>,
    is_quiet: bool,
}

impl Handover {
    /// Makes the ends for `receivers` receivers.
    pub(super) fn between(receivers: usize, select: &Arc<dyn QueueSelect>) -> Vec<Handover> {
        let quiet = Arc::default();
        let bells =
            (0..receivers).map(|_| Bell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        let end = |own| Handover {
            own,
            select: Arc::clone(select),
            to: Vec::new(),
            from: Vec::new(),
            bells: bells.clone(),
            handed: vec![false; receivers],
            staged: Vec::new(),
            refused: None,
            quiet: Arc::clone(&quiet),
            is_quiet: false,
        };
        let mut ends: Vec<Handover> = (0..receivers).map(end).collect();
        for from in 0..receivers {
            for to in 0..receivers {
                let (producer, consumer) = RingBuffer::new(if from == to { 1 } else { RING });
                ends[from].to.push(producer);
                ends[to].from.push(consumer);
            }
        }
        ends
    }

    /// Takes packets that other receivers have handed over, at most `limit`.
    pub(super) fn collect(&mut self, batch: &mut Batch, limit: usize) {
        let end = batch.len() + limit;
        for ring in &mut self.from {
            while batch.len() < end {
                let Ok(frame) = ring.pop() else { break };
                batch.push(frame);
            }
        }
    }

    /// Hands over packets from `first` on that belong to other receivers; returns how many were lost because a ring was full.
    pub(super) fn hand_on(&mut self, batch: &mut Batch, buffers: &mut Buffers, first: usize) -> u64 {
        let owner = |batch: &Batch, i: usize| {
            let record = &batch.records()[i];
            self.select.queue(batch.bytes(i), record.flags.link(), record.port).min(self.to.len() - 1)
        };
        let Some(other) = (first..batch.len()).find(|&i| owner(batch, i) != self.own) else { return 0 };
        while batch.len() > other {
            let owner = owner(batch, batch.len() - 1);
            let Some(frame) = batch.pop() else { break };
            self.staged.push((owner, frame));
        }
        let mut lost = 0;
        while let Some((owner, frame)) = self.staged.pop() {
            if owner == self.own {
                batch.push(frame);
            } else if let Err(rtrb::PushError::Full(frame)) = self.to[owner].push(frame) {
                let refused = self.refused.get_or_insert_with(|| Batch::new(batch.pool(), batch.layout()));
                refused.push(frame);
                lost += 1;
            } else {
                self.handed[owner] = true;
            }
        }
        for (bell, handed) in self.bells.iter().zip(&mut self.handed) {
            if std::mem::take(handed) {
                bell.ring();
            }
        }
        if let Some(refused) = self.refused.as_mut().filter(|_| lost > 0) {
            refused.release(buffers);
        }
        lost
    }

    /// This receiver's bell.
    pub(super) fn bell(&self) -> Option<&Arc<Bell>> {
        self.bells.get(self.own)
    }

    /// Whether this receiver still polls its devices, which it does until they deliver nothing while the run ends.
    pub(super) fn asks_devices(&self) -> bool {
        !self.is_quiet
    }

    /// Called while the run ends, when neither devices nor other receivers have delivered anything. Returns whether nothing more can come.
    pub(super) fn is_over(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_quiet, true) {
            // Release: everything handed over earlier is in its ring. Pairs with the Acquire load below.
            self.quiet.fetch_add(1, Ordering::Release);
        }
        // Acquire: a receiver that sees all receivers quiet sees everything that they have handed over. Pairs with the Release above.
        self.quiet.load(Ordering::Acquire) == self.to.len() && self.from.iter().all(Consumer::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use braid_memory::HugePages;
    use braid_packet::{FrameInfo, Layout, Link, Pool, PoolConfig, Port};

    use std::time::Duration;

    use super::*;
    use crate::source::Waited;

    /// The first byte of a packet is the number of its receiver.
    struct ByFirstByte;

    impl QueueSelect for ByFirstByte {
        fn queue(&self, frame: &[u8], _: Link, _: Port) -> usize {
            frame[0].into()
        }
    }

    #[test]
    fn a_packet_that_is_handed_over_wakes_its_receiver() {
        const LONG: Duration = Duration::from_secs(60);
        let (_, mut all) = receivers(2, 512);
        let mut waits = all.remove(1);
        let bell = Arc::clone(waits.end.bell().unwrap());
        let waiting = std::thread::spawn(move || bell.wait(LONG));
        assert_eq!(all[0].arrives(&[[0, 1], [1, 2]]), 0);
        assert_eq!(waiting.join().unwrap(), Waited::Woken);
        waits.end.collect(&mut waits.batch, 8);
        assert_eq!(waits.has(), [[1, 2]]);
        assert_eq!(
            all[0].end.bell().unwrap().wait(Duration::from_millis(1)),
            Waited::TimedOut,
            "it was handed nothing"
        );
    }

    struct Receiver {
        end: Handover,
        batch: Batch,
        buffers: Buffers,
    }

    fn receivers(count: usize, buffers: u32) -> (Arc<Pool>, Vec<Receiver>) {
        let pool = Pool::new(&PoolConfig { buffers, jumbos: 1, pages: HugePages::Never }).unwrap();
        let select: Arc<dyn QueueSelect> = Arc::new(ByFirstByte);
        let receiver =
            |end| Receiver { end, batch: Batch::new(&pool, &Arc::new(Layout::bare())), buffers: Buffers::new(&pool) };
        let all = Handover::between(count, &select).into_iter().map(receiver).collect();
        (pool, all)
    }

    impl Receiver {
        fn arrives(&mut self, frames: &[[u8; 2]]) -> u64 {
            for frame in frames {
                assert!(self.batch.copy_in(&mut self.buffers, frame, &FrameInfo::default()));
            }
            let first = self.batch.len() - frames.len();
            self.end.hand_on(&mut self.batch, &mut self.buffers, first)
        }

        fn has(&self) -> Vec<[u8; 2]> {
            (0..self.batch.len()).map(|i| [self.batch.bytes(i)[0], self.batch.bytes(i)[1]]).collect()
        }
    }

    #[test]
    fn every_packet_comes_to_its_receiver_in_order() {
        let (_, mut all) = receivers(3, 512);
        assert_eq!(all[0].arrives(&[[0, 1], [1, 2], [0, 3], [2, 4], [1, 5]]), 0);
        assert_eq!(all[2].arrives(&[[1, 6], [2, 7]]), 0);
        for receiver in &mut all {
            receiver.end.collect(&mut receiver.batch, 100);
        }
        assert_eq!(all[0].has(), [[0, 1], [0, 3]]);
        assert_eq!(all[1].has(), [[1, 2], [1, 5], [1, 6]]);
        assert_eq!(all[2].has(), [[2, 7], [2, 4]]);
    }

    #[test]
    fn a_full_ring_holds_nobody_up_and_gives_the_buffer_back() {
        let (pool, mut all) = receivers(2, RING as u32 + 8);
        for _ in 0..RING {
            assert_eq!(all[0].arrives(&[[1, 0]]), 0);
        }
        assert_eq!(all[0].arrives(&[[1, 1], [0, 2]]), 1);
        assert_eq!(all[0].has(), [[0, 2]]);
        all[0].batch.release(&mut Buffers::new(&pool));
        drop(all.remove(0));
        assert_eq!(pool.shared_free(), 8 + 1, "all but those in the ring");
    }

    #[test]
    fn it_is_over_when_all_are_quiet_and_nothing_waits() {
        let (_, mut all) = receivers(2, 512);
        assert!(!all[1].end.is_over(), "the first one may still hand on");
        all[0].arrives(&[[1, 1]]);
        assert!(all[0].end.asks_devices() && all[0].end.is_over() && !all[0].end.asks_devices());
        assert!(!all[1].end.is_over(), "something waits");
        let Receiver { end, batch, .. } = &mut all[1];
        end.collect(batch, 8);
        assert!(end.is_over());
    }
}
