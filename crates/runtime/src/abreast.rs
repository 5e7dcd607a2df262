//! Workers that go abreast: a packet is handled when all that came before it have been, whoever had them.
//!
//! A capture is replayed as fast as each worker goes, and one with few packets comes to the end when the others have begun. What
//! belongs together goes to one worker in order, but what only hangs together may not: an ICMP error of a router on the way reaches
//! another worker than the connection that it reports. With this wrapper around each worker's queue the packets of all are
//! handled one after another in the order of the input, so the result is that of one worker; workers wait for each other.
//!
//! Each worker publishes the number of the packet that it handles next, or below which none will come to it. It goes on while its own
//! packets have smaller numbers than all others publish. The smallest of all is never kept waiting. Who waits sleeps soon, and is woken: where
//! more threads run than there are processors, the one whose turn it is gets one at once.

use std::sync::Arc;

use braid_io::capture::Damage;
use braid_io::{Ahead, Received, RxCounters, RxQueue};
use braid_packet::{Batch, Buffers, Frame, Layout, Pool};

use crate::places::Places;

/// A worker's queue.
pub(crate) struct Abreast {
    inner: Box<dyn RxQueue>,
    worker: usize,
    places: Arc<Places>,
    /// Whether it waits within a call. Not where one worker runs at a time: those that it waits for could not go on.
    waits: bool,
    received: Batch,
    /// Packets that are not handed out yet, newest first.
    waiting: Vec<Frame>,
}

impl Abreast {
    /// The packets' numbers have to be among what `layout` carries.
    pub(crate) fn new(
        inner: Box<dyn RxQueue>,
        (worker, waits): (usize, bool),
        places: &Arc<Places>,
        pool: &Arc<Pool>,
        layout: &Arc<Layout>,
    ) -> Abreast {
        let (places, received) = (Arc::clone(places), Batch::new(pool, layout));
        Abreast { inner, worker, places, waits, received, waiting: Vec::new() }
    }
}

impl RxQueue for Abreast {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        self.receive_until(batch, buffers, limit, u64::MAX)
    }

    fn receive_until(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize, until_ns: u64) -> Received {
        // Whoever asks has handled all that it was given before.
        if self.waiting.is_empty() {
            let received = self.inner.receive(&mut self.received, buffers, limit);
            self.waiting.extend(std::iter::from_fn(|| self.received.pop()));
            if received != Received::Packets {
                let horizon = if received == Received::End { u64::MAX } else { self.inner.horizon() };
                self.places.publish(self.worker, horizon);
                return received;
            }
        }
        let first = self.horizon();
        self.places.publish(self.worker, first);
        let others = if self.waits { self.places.beyond(self.worker, first) } else { self.places.others(self.worker) };
        let before = batch.len();
        while batch.room() > 0 && batch.len() - before < limit {
            let is_next = |frame: &mut Frame| frame.sequence() < others && frame.timestamp_ns() <= until_ns;
            let Some(frame) = self.waiting.pop_if(is_next) else { break };
            batch.push(frame);
        }
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        self.waiting.last().map_or(self.inner.horizon(), Frame::sequence)
    }

    fn ahead(&mut self) -> Ahead {
        // Whoever asks has handled all that it was given before, and may go no further for now: others shall not wait for it.
        let ahead = match self.waiting.last() {
            Some(frame) => Ahead::Packet { sequence: frame.sequence(), timestamp_ns: frame.timestamp_ns() },
            None => self.inner.ahead(),
        };
        match ahead {
            Ahead::Packet { sequence, .. } => self.places.publish(self.worker, sequence),
            Ahead::Nothing => self.places.publish(self.worker, self.inner.horizon()),
            Ahead::End => self.places.publish(self.worker, u64::MAX),
            Ahead::Untold => {}
        }
        ahead
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
        self.places.publish(self.worker, u64::MAX);
    }
}
