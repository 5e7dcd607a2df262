//! Packets that arrive at a steady rate regardless of the worker. For each packet it measures how long the packet waited and was
//! processed, from the time at which it was due to the time at which it was sent.
//!
//! The rate is kept from the first packet on: a packet that cannot be taken in time waits, and the waiting counts (there is no
//! coordinated omission). The wire holds any number of packets. With hardware distribution each worker receives and sends a batch
//! on one thread, so a packet's position in the batch determines when it was due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_control::runtime::io::{
    OpenError, Progress, QueueSelect, Received, ReplaySource, RxCounters, RxQueue, Sink, SinkError, Source, TxCounters,
    TxQueue,
};
use braid_control::runtime::nf::packet::{Batch, Buffers, Port};
use hdrhistogram::Histogram;

use super::warm::open_counted;

/// Longest time that the histogram distinguishes.
const LONGEST_NS: u64 = 10_000_000_000;

/// The rate at which packets arrive at each queue, and the duration.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Packets per second; `None` for as fast as they are taken.
    pub rate: Option<f64>,
    /// Duration, from the end of the first pass on.
    pub time: Duration,
}

/// Measurements of one worker's packets.
#[derive(Clone, Debug)]
pub struct Waits {
    /// Nanoseconds from due to sent.
    pub ns: Histogram<u64>,
    /// Number of packets.
    pub packets: u64,
    /// Number of batches in which they arrived.
    pub batches: u64,
    /// Wall-clock time from the first to the last packet.
    pub wall: Duration,
}

/// Shared state of one worker's two ends: what the receiving end tells the sending end.
struct Lane {
    /// When the pace began, in nanoseconds after `epoch`; 0 before that.
    begun_ns: AtomicU64,
    /// Number, counted from then, of the current batch's first packet.
    first: AtomicU64,
}

/// The two ends of a measured run.
pub struct Rig {
    lanes: Arc<[Lane]>,
    epoch: Instant,
    pace: Pace,
    waits: Arc<Mutex<Vec<Waits>>>,
}

impl Rig {
    /// Prepares the ends for this number of workers.
    pub fn new(workers: usize, pace: Pace) -> Rig {
        let lane = |_| Lane { begun_ns: AtomicU64::new(0), first: AtomicU64::new(0) };
        Rig { lanes: (0..workers).map(lane).collect(), epoch: Instant::now(), pace, waits: Arc::default() }
    }

    /// The source. `inner` must repeat forever; its first pass arrives without pacing.
    pub fn source(&self, inner: ReplaySource) -> PacedSource {
        PacedSource { inner, lanes: Arc::clone(&self.lanes), epoch: self.epoch, pace: self.pace }
    }

    /// The sink.
    pub fn sink(&self) -> WaitSink {
        let (lanes, waits) = (Arc::clone(&self.lanes), Arc::clone(&self.waits));
        WaitSink { lanes, epoch: self.epoch, pace: self.pace, waits }
    }

    /// The measurements, when the run has ended.
    pub fn waits(&self) -> Vec<Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A replay at a steady rate.
pub struct PacedSource {
    inner: ReplaySource,
    lanes: Arc<[Lane]>,
    epoch: Instant,
    pace: Pace,
}

impl Source for PacedSource {
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
        open_counted(self.inner, queues, select, |lane, inner, warm| {
            let (lanes, epoch, pace) = (Arc::clone(&self.lanes), self.epoch, self.pace);
            Box::new(PacedQueue { inner, lanes, lane, epoch, pace, warm, taken: 0 })
        })
    }
}

struct PacedQueue {
    inner: Box<dyn RxQueue>,
    lanes: Arc<[Lane]>,
    lane: usize,
    epoch: Instant,
    pace: Pace,
    /// Number of frames still to deliver before the pace begins.
    warm: u64,
    /// Number of packets taken since the pace began.
    taken: u64,
}

impl PacedQueue {
    /// Number of packets that are due and have not been taken; `None` if time is up.
    fn due(&mut self) -> Option<u64> {
        let lane = &self.lanes[self.lane];
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        // Relaxed: both ends of a lane are used by one thread.
        let begun_ns = match lane.begun_ns.load(Ordering::Relaxed) {
            0 => {
                lane.begun_ns.store(now_ns.max(1), Ordering::Relaxed);
                now_ns.max(1)
            }
            begun_ns => begun_ns,
        };
        let elapsed_ns = now_ns.saturating_sub(begun_ns);
        if elapsed_ns >= self.pace.time.as_nanos() as u64 {
            return None;
        }
        let due = self.pace.rate.map_or(u64::MAX, |rate| (elapsed_ns as f64 * rate / 1e9) as u64);
        Some(due.saturating_sub(self.taken))
    }
}

impl RxQueue for PacedQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let before = batch.len();
        if self.warm > 0 {
            let received = self.inner.receive(batch, buffers, limit);
            self.warm = self.warm.saturating_sub((batch.len() - before) as u64);
            return received;
        }
        let Some(due) = self.due() else { return Received::End };
        if due == 0 {
            return Received::Idle;
        }
        if before == 0 {
            self.lanes[self.lane].first.store(self.taken, Ordering::Relaxed);
        }
        let received = self.inner.receive(batch, buffers, limit.min(usize::try_from(due).unwrap_or(limit)));
        self.taken += (batch.len() - before) as u64;
        received
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
}

/// Records the time of every packet and discards the packet.
pub struct WaitSink {
    lanes: Arc<[Lane]>,
    epoch: Instant,
    pace: Pace,
    waits: Arc<Mutex<Vec<Waits>>>,
}

impl Sink for WaitSink {
    fn name(&self) -> String {
        "waits".into()
    }

    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError> {
        let queue = |lane| -> Result<Box<dyn TxQueue>, OpenError> {
            let ns =
                Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| OpenError::Config(error.to_string()))?;
            let found = Waits { ns, packets: 0, batches: 0, wall: Duration::ZERO };
            let (lanes, waits) = (Arc::clone(&self.lanes), Arc::clone(&self.waits));
            let ns_per_packet = self.pace.rate.map_or(0.0, |rate| 1e9 / rate);
            let (epoch, counters) = (self.epoch, TxCounters::default());
            Ok(Box::new(WaitQueue { lanes, lane, epoch, ns_per_packet, found, waits, counters }))
        };
        (0..queues).map(queue).collect()
    }
}

struct WaitQueue {
    lanes: Arc<[Lane]>,
    lane: usize,
    epoch: Instant,
    ns_per_packet: f64,
    found: Waits,
    waits: Arc<Mutex<Vec<Waits>>>,
    counters: TxCounters,
}

impl TxQueue for WaitQueue {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        self.counters.packets += out.len() as u64;
        self.counters.bytes += batch.total_len(out);
        let lane = &self.lanes[self.lane];
        let begun_ns = lane.begun_ns.load(Ordering::Relaxed);
        if begun_ns == 0 {
            return;
        }
        let elapsed_ns = self.epoch.elapsed().as_nanos() as u64 - begun_ns;
        let first = lane.first.load(Ordering::Relaxed);
        self.found.batches += 1;
        self.found.packets += batch.len() as u64;
        self.found.wall = Duration::from_nanos(elapsed_ns);
        if self.ns_per_packet > 0.0 {
            for &(i, _) in out {
                let due_ns = ((first + u64::from(i) + 1) as f64 * self.ns_per_packet) as u64;
                self.found.ns.saturating_record(elapsed_ns.saturating_sub(due_ns).max(1));
            }
        }
    }

    fn progress(&mut self, _: u64) {}

    fn counters(&self) -> TxCounters {
        self.counters
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(self.found.clone());
        Ok(self.counters)
    }
}
