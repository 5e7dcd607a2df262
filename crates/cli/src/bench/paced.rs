//! Packets that come at a steady rate, whatever the worker does: how long each waited and was worked on, from the time at which it
//! was due to the time at which it was sent.
//!
//! The rate is kept from the first packet on: one that could not be taken in time waits, and its waiting counts (there is no
//! coordinated omission). The wire holds as much as comes. With hardware distribution each worker receives and sends a batch on
//! one thread, so a packet's place in the batch says when it was due.

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

/// Longest time that is told apart from longer ones.
const LONGEST_NS: u64 = 10_000_000_000;

/// How fast packets come to each queue, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Packets a second; none: as fast as they are taken.
    pub rate: Option<f64>,
    /// From the end of the first pass on.
    pub time: Duration,
}

/// What one worker's packets went through.
#[derive(Clone, Debug)]
pub struct Waits {
    /// Nanoseconds from due to sent.
    pub ns: Histogram<u64>,
    /// Packets, batches and time on the wall.
    pub packets: u64,
    /// Batches that they came in.
    pub batches: u64,
    /// From the first to the last.
    pub wall: Duration,
}

/// Both ends of one worker: what the receiving one tells the sending one.
struct Lane {
    /// When the pace began, in nanoseconds after `epoch`; 0 before.
    begun_ns: AtomicU64,
    /// Number of the current batch's first packet since then.
    first: AtomicU64,
}

/// Both ends of a run.
pub struct Rig {
    lanes: Arc<[Lane]>,
    epoch: Instant,
    pace: Pace,
    waits: Arc<Mutex<Vec<Waits>>>,
}

impl Rig {
    /// For so many workers.
    pub fn new(workers: usize, pace: Pace) -> Rig {
        let lane = |_| Lane { begun_ns: AtomicU64::new(0), first: AtomicU64::new(0) };
        Rig { lanes: (0..workers).map(lane).collect(), epoch: Instant::now(), pace, waits: Arc::default() }
    }

    /// The end that packets come from; `inner` has to repeat for ever, and the first pass comes at once.
    pub fn source(&self, inner: ReplaySource) -> PacedSource {
        PacedSource { inner, lanes: Arc::clone(&self.lanes), epoch: self.epoch, pace: self.pace }
    }

    /// The end that packets go to.
    pub fn sink(&self) -> WaitSink {
        let (lanes, waits) = (Arc::clone(&self.lanes), Arc::clone(&self.waits));
        WaitSink { lanes, epoch: self.epoch, pace: self.pace, waits }
    }

    /// What was measured, when the run has ended.
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
    /// Frames still to come before the pace begins.
    warm: u64,
    /// Packets since then.
    taken: u64,
}

impl PacedQueue {
    /// Packets that are due and were not taken, or that time is up.
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

/// Takes the time of every packet and forgets it.
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
