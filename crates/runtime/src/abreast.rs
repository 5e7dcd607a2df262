//! Workers that keep the order of the input: a packet is handled when all packets before it have been, on whichever worker.
//!
//! Otherwise each worker replays its part of a capture as fast as it can, and one with few packets finishes when the others have just begun.
//! Packets of one set go to one worker in order, but packets that depend on each other need not: a router's ICMP error may reach another
//! worker than the connection that it reports. With this wrapper around each worker's queue, the packets of all workers are handled one after
//! another in the order of the input, so the result is that of one worker; in return workers wait for each other.
//!
//! Each worker publishes the number of the packet that it handles next, or the number below which it will get no packet. It continues while its
//! packets have smaller numbers than those that all others publish; the worker with the smallest number never waits. A waiting worker soon
//! sleeps and is woken, so where there are more threads than processors, the worker whose turn it is gets a processor at once.

use std::sync::Arc;

use braid_io::capture::Damage;
use braid_io::{Ahead, Received, RxCounters, RxQueue};
use braid_packet::{Batch, Buffers, Frame, Layout, Pool};

use crate::places::Places;

/// A worker's queue that keeps the order of the input.
pub(crate) struct Abreast {
    inner: Box<dyn RxQueue>,
    worker: usize,
    places: Arc<Places>,
    /// Whether it waits within a call. It must not where one worker runs at a time, because the workers it waits for could not run.
    waits: bool,
    received: Batch,
    /// Packets that have not been delivered yet, newest first.
    waiting: Vec<Frame>,
    /// The run is to end before the input.
    closed: bool,
}

impl Abreast {
    /// Wraps `inner`; `layout` must carry the packets' numbers.
    pub(crate) fn new(
        inner: Box<dyn RxQueue>,
        (worker, waits): (usize, bool),
        places: &Arc<Places>,
        pool: &Arc<Pool>,
        layout: &Arc<Layout>,
    ) -> Abreast {
        let (places, received) = (Arc::clone(places), Batch::new(pool, layout));
        Abreast { inner, worker, places, waits, received, waiting: Vec::new(), closed: false }
    }
}

impl RxQueue for Abreast {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        self.receive_until(batch, buffers, limit, u64::MAX)
    }

    fn receive_until(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize, until_ns: u64) -> Received {
        // The caller has handled everything delivered before.
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
        // The caller has handled everything delivered before, and may not go on for now: the others must not wait for it.
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
        // What has been read of a capture has not arrived anywhere: the others stop before it, as one worker would.
        self.closed = true;
        self.inner.close()
    }

    fn damages(&self) -> Vec<Damage> {
        self.inner.damages()
    }
}

impl Drop for Abreast {
    fn drop(&mut self) {
        // No worker must wait for one that has ended. But if the run stops, none may pass the packets that this one has not handled: what
        // has been handled then is the beginning of the input.
        if !self.closed {
            self.places.publish(self.worker, u64::MAX);
        }
    }
}
