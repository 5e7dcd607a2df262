//! Software steering: a dispatcher thread passes frames to workers through one ring each.
//!
//! This is for sources with a single queue, NICs that cannot hash what a chain needs, and replays. The dispatcher is the only producer of every
//! ring, and each worker the only consumer of its ring, so neither locks. Frames of one packet set keep their order, because they go through
//! the same first-in-first-out ring. Frames move in chunks, with one publication per worker and batch.
//!
//! A full ring causes back-pressure: [`WhenFull::Wait`] stalls the dispatcher, and with it the source, and loses nothing.
//! [`WhenFull::WaitAtMost`] is for live traffic: a worker that takes nothing does not keep the others from their packets, and every frame that is
//! dropped for it is counted.
//!
//! A ring owns the buffers of the frames in it. A worker must end only when [`Inlet::is_finished`] says so; frames in a ring whose worker
//! ended early are lost to the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use braid_packet::{BATCH_MAX, Batch, Buffers, Frame};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::steering::Steering;

/// Default capacity of a ring in frames: a few batches, few enough to stay in the second-level cache.
pub const RING_FRAMES_DEFAULT: usize = 1024;

/// What the dispatcher does when a worker's ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits until the worker has taken some frames; nothing is lost.
    #[default]
    Wait,
    /// Waits so long at most, then drops the newest frames and counts them. From then on it drops them at once, until the worker takes some again.
    WaitAtMost(Duration),
}

impl WhenFull {
    fn is_over(self, begun: Instant) -> bool {
        matches!(self, WhenFull::WaitAtMost(most) if begun.elapsed() >= most)
    }
}

/// The counters of a dispatcher since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounters {
    /// Frames passed to each worker.
    pub packets: Vec<u64>,
    /// How often a ring had less room than there were frames for it.
    pub full: u64,
    /// Frames dropped because a ring was full (drop reason `ring_full`).
    pub ring_full: u64,
    /// Frames dropped because their worker has ended (drop reason `worker_gone`).
    pub worker_gone: u64,
}

/// The producing side of all rings.
#[derive(Debug)]
pub struct Dispatcher {
    rings: Vec<Producer<Frame>>,
    /// Frames of the current batch for each worker, newest first.
    staged: Vec<Vec<Frame>>,
    workers: [u16; BATCH_MAX],
    /// Whether each worker had frames in the latest batch.
    handed: Vec<bool>,
    when_full: WhenFull,
    /// For each worker whether its ring has been waited for in vain.
    stuck: Vec<bool>,
    /// Frames dropped because a worker's ring was full, as the workers see it.
    lost: Vec<Arc<AtomicU64>>,
    counters: DispatchCounters,
}

/// A worker's side of its ring.
#[derive(Debug)]
pub struct Inlet {
    ring: Consumer<Frame>,
    lost: Arc<AtomicU64>,
}

/// Creates a dispatcher with a ring of `frames` frames (at least one batch) for each worker.
pub fn rings(workers: usize, frames: usize, when_full: WhenFull) -> (Dispatcher, Vec<Inlet>) {
    let capacity = frames.max(BATCH_MAX);
    let lost: Vec<Arc<AtomicU64>> = (0..workers).map(|_| Arc::default()).collect();
    let (rings, inlets) = lost
        .iter()
        .map(|lost| (RingBuffer::new(capacity), Arc::clone(lost)))
        .map(|((producer, ring), lost)| (producer, Inlet { ring, lost }))
        .unzip();
    let dispatcher = Dispatcher {
        rings,
        staged: (0..workers).map(|_| Vec::with_capacity(BATCH_MAX)).collect(),
        workers: [0; BATCH_MAX],
        handed: vec![false; workers],
        when_full,
        stuck: vec![false; workers],
        lost,
        counters: DispatchCounters { packets: vec![0; workers], ..DispatchCounters::default() },
    };
    (dispatcher, inlets)
}

impl Dispatcher {
    /// Empties a parsed batch into the workers' rings. Buffers of dropped frames return to `buffers`.
    ///
    /// The steering must have as many workers as there are rings.
    pub fn dispatch(&mut self, batch: &mut Batch, steering: &Steering, buffers: &mut Buffers) {
        debug_assert_eq!(steering.workers(), self.rings.len());
        steering.workers_of(batch, &mut self.workers);
        self.distribute(batch, buffers);
    }

    /// Like [`dispatch`](Self::dispatch), and counts the packets of each entry of the indirection table.
    pub fn dispatch_counting(
        &mut self,
        batch: &mut Batch,
        steering: &Steering,
        buffers: &mut Buffers,
        per_entry: &mut [u64],
    ) {
        debug_assert_eq!(steering.workers(), self.rings.len());
        let reta = steering.reta();
        for (i, worker) in self.workers.iter_mut().enumerate().take(batch.len()) {
            let hash = steering.hash(batch, i);
            per_entry[reta.entry(hash)] += 1;
            *worker = reta.worker(hash) as u16;
        }
        self.distribute(batch, buffers);
    }

    fn distribute(&mut self, batch: &mut Batch, buffers: &mut Buffers) {
        // A batch pops packets from its end, so each worker's staged frames are newest first.
        while let Some(frame) = batch.pop() {
            let worker = usize::from(self.workers[batch.len()]);
            self.staged[worker].push(frame);
        }
        for worker in 0..self.rings.len() {
            self.hand_over(worker, batch);
        }
        // Only frames that were dropped are left in the batch.
        batch.release(buffers);
    }

    /// Moves a worker's staged frames into its ring; frames that have to be dropped go back into the empty batch.
    fn hand_over(&mut self, worker: usize, dropped: &mut Batch) {
        let (ring, staged) = (&mut self.rings[worker], &mut self.staged[worker]);
        self.handed[worker] = !staged.is_empty();
        let (packets, is_stuck) = (&mut self.counters.packets[worker], &mut self.stuck[worker]);
        let pushed = push_oldest(ring, staged);
        *packets += pushed;
        *is_stuck &= pushed == 0;
        if staged.is_empty() {
            return;
        }
        self.counters.full += 1;
        let begun = Instant::now();
        while !staged.is_empty() && !*is_stuck && !ring.is_abandoned() {
            std::thread::yield_now();
            *packets += push_oldest(ring, staged);
            *is_stuck = !staged.is_empty() && self.when_full.is_over(begun);
        }
        let lost = staged.len() as u64;
        if ring.is_abandoned() {
            self.counters.worker_gone += lost;
        } else {
            self.counters.ring_full += lost;
            // Relaxed: a counter.
            self.lost[worker].fetch_add(lost, Ordering::Relaxed);
        }
        staged.drain(..).for_each(|frame| dropped.push(frame));
    }

    /// The workers that had frames in the latest batch.
    pub fn handed(&self) -> impl Iterator<Item = usize> {
        self.handed.iter().enumerate().filter(|(_, handed)| **handed).map(|(worker, _)| worker)
    }

    /// Whether all workers have taken everything passed to them, or have ended. They may still be handling what they took.
    pub fn is_drained(&self) -> bool {
        self.rings.iter().all(|ring| ring.is_abandoned() || ring.slots() == ring.buffer().capacity())
    }

    /// The counters so far.
    pub fn counters(&self) -> &DispatchCounters {
        &self.counters
    }
}

/// Pushes as many of the oldest staged frames as the ring has room for; returns how many.
fn push_oldest(ring: &mut Producer<Frame>, staged: &mut Vec<Frame>) -> u64 {
    let count = staged.len().min(ring.slots());
    let oldest = staged.drain(staged.len() - count..).rev();
    match ring.write_chunk_uninit(count) {
        Ok(chunk) => chunk.fill_from_iter(oldest) as u64,
        Err(_) => unreachable!("only this thread fills the ring, so its free slots do not get fewer"),
    }
}

impl Inlet {
    /// Adds at most `limit` of the frames waiting in the ring to a batch, which must use the same pool; returns how many.
    pub fn receive(&mut self, batch: &mut Batch, limit: usize) -> usize {
        let count = self.ring.slots().min(batch.room()).min(limit);
        match self.ring.read_chunk(count) {
            Ok(chunk) => chunk.into_iter().for_each(|frame| batch.push(frame)),
            Err(_) => unreachable!("only this thread empties the ring, so the frames in it do not get fewer"),
        }
        count
    }

    /// Whether the ring is empty and will stay so, because the dispatcher has ended.
    pub fn is_finished(&self) -> bool {
        if !self.ring.is_abandoned() {
            return false;
        }
        // Acquire: `is_abandoned` reads the ring's reference count relaxed. Pairs with the Release decrement that dropped the dispatcher's
        // side, after its last push.
        fence(Ordering::Acquire);
        self.ring.is_empty()
    }

    /// The next frame, if it has already arrived.
    pub fn next_frame(&self) -> Option<&Frame> {
        self.ring.peek().ok()
    }

    /// The number of frames for this ring that were dropped because it was full.
    pub fn lost(&self) -> u64 {
        // Relaxed: a counter.
        self.lost.load(Ordering::Relaxed)
    }

    /// The number of frames waiting in the ring.
    pub fn waiting(&self) -> usize {
        self.ring.slots()
    }
}
