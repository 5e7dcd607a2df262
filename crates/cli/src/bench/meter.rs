//! A source that reads the clocks twice: when its queue has delivered every flow often enough for the tables to have reached their
//! final fill level, and at the end. In between, only the effects of the continuing traffic change anything.
//!
//! The readings are taken on the receiving thread, which is the worker's own thread with hardware distribution. When a queue is
//! asked for packets, the previous batch has been processed and sent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_control::runtime::io::{
    OpenError, Progress, QueueSelect, Received, ReplaySource, RxCounters, RxQueue, Source,
};
use braid_control::runtime::nf::packet::{Batch, Buffers};
use braid_control::runtime::thread_time;

use super::warm::open_counted;

/// The unmeasured warm-up; it lasts until both conditions hold.
#[derive(Clone, Copy, Debug)]
pub struct Warm {
    /// Number of passes over the trace.
    pub passes: u64,
    /// Minimum time.
    pub time: Duration,
}

/// What one queue's thread did between the end of the warm-up and the end of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Number of packets.
    pub packets: u64,
    /// Processor time of the thread.
    pub cpu: Duration,
    /// Wall-clock time.
    pub wall: Duration,
}

/// Readings of all queues that delivered anything; complete when the run has ended.
pub type Readings = Arc<Mutex<Vec<Reading>>>;

/// A replay that is measured after a warm-up.
pub struct Metered {
    inner: ReplaySource,
    warm: Warm,
    packets: u64,
    readings: Readings,
}

impl Metered {
    /// Measures `packets` packets on each queue; `inner` must repeat forever.
    pub fn new(inner: ReplaySource, warm: Warm, packets: u64) -> (Metered, Readings) {
        let readings = Readings::default();
        (Metered { inner, warm, packets, readings: Arc::clone(&readings) }, readings)
    }
}

impl Source for Metered {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn ports(&self) -> usize {
        self.inner.ports()
    }

    fn progress(&self) -> Arc<Progress> {
        self.inner.progress()
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        open_counted(self.inner, queues, select, |_, inner, frames| {
            let (packets, readings) = (self.packets, Arc::clone(&self.readings));
            let warm = frames * self.warm.passes;
            Box::new(MeteredQueue {
                inner,
                delivered: 0,
                warm,
                until: Instant::now() + self.warm.time,
                end: u64::MAX,
                packets,
                begun: None,
                readings,
            })
        })
    }
}

struct MeteredQueue {
    inner: Box<dyn RxQueue>,
    delivered: u64,
    /// Number of packets in the warm-up, and its earliest end.
    warm: u64,
    until: Instant,
    /// Number of packets at which the queue ends; set when the measurement begins.
    end: u64,
    packets: u64,
    begun: Option<(u64, Duration, Instant)>,
    readings: Readings,
}

impl MeteredQueue {
    fn note(&mut self) {
        if let Some((delivered, cpu, wall)) = self.begun.take() {
            let reading =
                Reading { packets: self.delivered - delivered, cpu: thread_time() - cpu, wall: wall.elapsed() };
            self.readings.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
        }
    }
}

impl RxQueue for MeteredQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        if self.delivered >= self.end {
            self.note();
            return Received::End;
        }
        if self.begun.is_none() && self.delivered >= self.warm && Instant::now() >= self.until {
            self.begun = Some((self.delivered, thread_time(), Instant::now()));
            self.end = self.delivered + self.packets;
        }
        let before = batch.len();
        let left = usize::try_from(self.end - self.delivered).unwrap_or(usize::MAX);
        let received = self.inner.receive(batch, buffers, limit.min(left));
        self.delivered += (batch.len() - before) as u64;
        received
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
}
