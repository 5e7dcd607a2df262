//! Workers that go abreast: a packet is handled when all that came before it have been, whoever had them.
//!
//! A capture is replayed as fast as each worker goes, and one with few packets comes to the end when the others have begun. What
//! belongs together goes to one worker in order, but what only hangs together may not: an ICMP error of a router on the way reaches
//! another worker than the connection that it reports. With this wrapper around each worker's queue the packets of all are
//! handled one after another in the order of the input, so the result is that of one worker; workers wait for each other.
//!
//! Each worker publishes the number of the packet that it handles next, or below which none will come to it. It goes on while its own
//! packets have smaller numbers than all others publish. The smallest of all is never kept waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_io::capture::Damage;
use braid_io::{Received, RxCounters, RxQueue};
use braid_packet::{Batch, Buffers, Frame, Layout, Pool};
use crossbeam_utils::CachePadded;

/// Where each worker stands.
pub(crate) type Places = Arc<[CachePadded<AtomicU64>]>;

/// All workers at the beginning.
pub(crate) fn places(workers: usize) -> Places {
    (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect()
}

/// A worker's queue.
pub(crate) struct Abreast {
    inner: Box<dyn RxQueue>,
    worker: usize,
    places: Places,
    received: Batch,
    /// Packets that are not handed out yet, newest first.
    waiting: Vec<Frame>,
}

impl Abreast {
    /// The packets' numbers have to be among what `layout` carries.
    pub(crate) fn new(
        inner: Box<dyn RxQueue>,
        worker: usize,
        places: &Places,
        pool: &Arc<Pool>,
        layout: &Arc<Layout>,
    ) -> Abreast {
        Abreast { inner, worker, places: Arc::clone(places), received: Batch::new(pool, layout), waiting: Vec::new() }
    }

    /// Says where this worker stands. Release: whoever sees it sees what the packets before have changed. Partner: `others`.
    fn publish(&self, sequence: u64) {
        self.places[self.worker].store(sequence, Ordering::Release);
    }

    /// Where the hindmost of the others stands. Acquire: the partner is `publish`.
    fn others(&self) -> u64 {
        let others = self.places.iter().enumerate().filter(|(worker, _)| *worker != self.worker);
        others.map(|(_, place)| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }
}

impl RxQueue for Abreast {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        // Whoever asks has handled all that it was given before.
        if self.waiting.is_empty() {
            let received = self.inner.receive(&mut self.received, buffers, limit);
            self.waiting.extend(std::iter::from_fn(|| self.received.pop()));
            if received != Received::Packets {
                self.publish(if received == Received::End { u64::MAX } else { self.inner.horizon() });
                return received;
            }
        }
        self.publish(self.horizon());
        let (others, before) = (self.others(), batch.len());
        while batch.room() > 0 && batch.len() - before < limit {
            let Some(frame) = self.waiting.pop_if(|frame| frame.sequence() < others) else { break };
            batch.push(frame);
        }
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        self.waiting.last().map_or(self.inner.horizon(), Frame::sequence)
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }

    fn has_parsed(&self) -> bool {
        self.inner.has_parsed()
    }

    fn close(&mut self) -> bool {
        self.inner.close() || !self.waiting.is_empty()
    }

    fn damages(&self) -> Vec<Damage> {
        self.inner.damages()
    }
}

impl Drop for Abreast {
    fn drop(&mut self) {
        // Nobody waits for a worker that has ended.
        self.publish(u64::MAX);
    }
}
