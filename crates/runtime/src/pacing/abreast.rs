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
use braid_packet::{Batch, Buffers};

use super::places::Places;

/// A worker's queue that keeps the order of the input. A packet takes a buffer when its turn has come, so workers that wait hold none.
pub(crate) struct Abreast {
    /// It can look ahead.
    inner: Box<dyn RxQueue>,
    worker: usize,
    places: Arc<Places>,
    /// Whether it waits within a call. It must not where one worker runs at a time, because the workers it waits for could not run.
    waits: bool,
    /// The run is to end before the input.
    closed: bool,
}

impl Abreast {
    /// Wraps `inner`, the queue of a worker.
    pub(crate) fn new(inner: Box<dyn RxQueue>, (worker, waits): (usize, bool), places: &Arc<Places>) -> Abreast {
        Abreast { inner, worker, places: Arc::clone(places), waits, closed: false }
    }

    /// The next packet's number, if it has arrived and is not later than `until_ns`.
    fn next(&mut self, until_ns: u64) -> Option<u64> {
        match self.inner.ahead() {
            Ahead::Packet { sequence, timestamp_ns } if timestamp_ns <= until_ns => Some(sequence),
            _ => None,
        }
    }
}

impl RxQueue for Abreast {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        self.receive_until(batch, buffers, limit, u64::MAX)
    }

    fn receive_until(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize, until_ns: u64) -> Received {
        let first = match self.ahead() {
            Ahead::Packet { sequence, .. } => sequence,
            Ahead::End => return self.inner.receive(batch, buffers, limit),
            Ahead::Nothing | Ahead::Untold => return Received::Idle,
        };
        let others = if self.waits { self.places.beyond(self.worker, first) } else { self.places.others(self.worker) };
        let before = batch.len();
        while batch.len() - before < limit
            && self.next(until_ns).is_some_and(|sequence| sequence < others)
            && self.inner.receive(batch, buffers, 1) == Received::Packets
        {}
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn ahead(&mut self) -> Ahead {
        // The caller has handled everything delivered before, and may not go on for now: the others must not wait for it.
        let ahead = self.inner.ahead();
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
