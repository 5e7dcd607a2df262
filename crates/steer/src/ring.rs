//! Software steering: a dispatcher thread hands frames to workers through one ring each.
//!
//! For sources with a single queue, NICs that cannot hash what a chain needs, and replays. One dispatcher is the only
//! producer of every ring and one worker the only consumer of its ring, so neither locks. Frames of one packet set keep
//! their order: they go to one ring, which is first in, first out. Frames move in chunks, one publication per worker
//! and batch.
//!
//! A full ring is back-pressure: [`WhenFull::Wait`] stalls the dispatcher, and with it the source, and loses nothing;
//! [`WhenFull::Drop`] is for live traffic, where the NIC would drop instead, and counts every frame.
//!
//! A ring owns the buffers of the frames in it. A worker ends only when [`Inlet::is_finished`] says so; what lies in a
//! ring whose worker ended early is lost to the pool.

use std::sync::atomic::{Ordering, fence};

use braid_packet::{BATCH_MAX, Batch, Buffers, Frame};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::steering::Steering;

/// Frames that a ring holds unless said otherwise: a few batches, little enough to stay in the second-level cache.
pub const RING_FRAMES_DEFAULT: usize = 1024;

/// What the dispatcher does when a worker's ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits until the worker has taken some; nothing is lost.
    #[default]
    Wait,
    /// Drops the newest frames and counts them.
    Drop,
}

/// What the dispatcher counted since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounters {
    /// Frames handed to each worker.
    pub packets: Vec<u64>,
    /// Times that a ring had less room than frames were to go into it.
    pub full: u64,
    /// Frames dropped because a ring was full (drop reason `ring_full`).
    pub ring_full: u64,
    /// Frames dropped because their worker is gone (drop reason `worker_gone`).
    pub worker_gone: u64,
}

/// The producing side of all rings.
#[derive(Debug)]
pub struct Dispatcher {
    rings: Vec<Producer<Frame>>,
    /// Frames of the current batch for each worker, newest first.
    staged: Vec<Vec<Frame>>,
    workers: [u16; BATCH_MAX],
    when_full: WhenFull,
    counters: DispatchCounters,
}

/// A worker's side of its ring.
#[derive(Debug)]
pub struct Inlet {
    ring: Consumer<Frame>,
}

/// Makes a dispatcher with a ring of `frames` frames (at least a batch) for each worker.
pub fn rings(workers: usize, frames: usize, when_full: WhenFull) -> (Dispatcher, Vec<Inlet>) {
    let capacity = frames.max(BATCH_MAX);
    let (rings, inlets) = (0..workers)
        .map(|_| RingBuffer::new(capacity))
        .map(|(producer, consumer)| (producer, Inlet { ring: consumer }))
        .unzip();
    let dispatcher = Dispatcher {
        rings,
        staged: (0..workers).map(|_| Vec::with_capacity(BATCH_MAX)).collect(),
        workers: [0; BATCH_MAX],
        when_full,
        counters: DispatchCounters { packets: vec![0; workers], ..DispatchCounters::default() },
    };
    (dispatcher, inlets)
}

impl Dispatcher {
    /// Empties a parsed batch into the workers' rings. Buffers of dropped frames go back to `buffers`.
    ///
    /// The steering must be for as many workers as there are rings.
    pub fn dispatch(&mut self, batch: &mut Batch, steering: &Steering, buffers: &mut Buffers) {
        debug_assert_eq!(steering.workers(), self.rings.len());
        steering.workers_of(batch, &mut self.workers);
        self.distribute(batch, buffers);
    }

    /// The same, and counts the packets of each entry of the indirection table.
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
        // A batch gives its packets from the end, so each worker's stage holds the newest first.
        while let Some(frame) = batch.pop() {
            let worker = usize::from(self.workers[batch.len()]);
            self.staged[worker].push(frame);
        }
        for worker in 0..self.rings.len() {
            self.hand_over(worker, batch);
        }
        // Nothing is left in it but frames that were dropped.
        batch.release(buffers);
    }

    /// Moves a worker's staged frames into its ring; what has to be dropped goes back into the empty batch.
    fn hand_over(&mut self, worker: usize, dropped: &mut Batch) {
        let (ring, staged) = (&mut self.rings[worker], &mut self.staged[worker]);
        let packets = &mut self.counters.packets[worker];
        *packets += push_oldest(ring, staged);
        if staged.is_empty() {
            return;
        }
        self.counters.full += 1;
        while !staged.is_empty() && self.when_full == WhenFull::Wait && !ring.is_abandoned() {
            std::thread::yield_now();
            *packets += push_oldest(ring, staged);
        }
        let lost = if ring.is_abandoned() { &mut self.counters.worker_gone } else { &mut self.counters.ring_full };
        *lost += staged.len() as u64;
        staged.drain(..).for_each(|frame| dropped.push(frame));
    }

    /// Whether workers have taken all that was handed to them, or are gone. What they took may be in their hands still.
    pub fn is_drained(&self) -> bool {
        self.rings.iter().all(|ring| ring.is_abandoned() || ring.slots() == ring.buffer().capacity())
    }

    /// What it counted so far.
    pub fn counters(&self) -> &DispatchCounters {
        &self.counters
    }
}

/// Pushes as many of the oldest staged frames as the ring has room for; says how many.
fn push_oldest(ring: &mut Producer<Frame>, staged: &mut Vec<Frame>) -> u64 {
    let count = staged.len().min(ring.slots());
    let oldest = staged.drain(staged.len() - count..).rev();
    match ring.write_chunk_uninit(count) {
        Ok(chunk) => chunk.fill_from_iter(oldest) as u64,
        Err(_) => unreachable!("only this thread fills the ring, so its free slots do not get fewer"),
    }
}

impl Inlet {
    /// Adds at most `limit` frames of what waits in the ring to a batch; says how many frames came. The frames are of the batch's pool.
    pub fn receive(&mut self, batch: &mut Batch, limit: usize) -> usize {
        let count = self.ring.slots().min(batch.room()).min(limit);
        match self.ring.read_chunk(count) {
            Ok(chunk) => chunk.into_iter().for_each(|frame| batch.push(frame)),
            Err(_) => unreachable!("only this thread empties the ring, so the frames in it do not get fewer"),
        }
        count
    }

    /// Whether nothing is in it and nothing will come: the dispatcher is gone.
    pub fn is_finished(&self) -> bool {
        if !self.ring.is_abandoned() {
            return false;
        }
        // Acquire: `is_abandoned` reads the ring's reference count relaxed; the partner is the release decrement by
        // which the dispatcher's side was dropped, after its last push.
        fence(Ordering::Acquire);
        self.ring.is_empty()
    }

    /// The frame that comes next, if it is there already.
    pub fn next_frame(&self) -> Option<&Frame> {
        self.ring.peek().ok()
    }

    /// Frames that wait in it.
    pub fn waiting(&self) -> usize {
        self.ring.slots()
    }
}
