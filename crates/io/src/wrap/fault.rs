//! A faulty link in front of the workers: it drops, duplicates, corrupts, truncates and reorders packets,
//! each with its own probability, from a seed. Every fault is counted. Each queue has its own random
//! numbers, so a run with one queue is exactly reproducible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_packet::{Batch, Buffers, Frame, FrameInfo, Pool, PoolConfig};

use crate::bell::Bell;
use crate::capture::Damage;
use crate::generate::ConfigError;
use crate::progress::Progress;
use crate::random::Random;
use crate::source::{OpenError, QueueSelect, Received, RxCounters, RxQueue, Source, Waited};

/// Probabilities of faults, per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The seed; the same seed produces the same faults.
    pub seed: u64,
    /// The packet is lost.
    pub drop: f64,
    /// The packet is duplicated, if the batch has room.
    pub duplicate: f64,
    /// One byte of the packet changes.
    pub corrupt: f64,
    /// The packet loses its tail; its wire length is kept, as with a snap length.
    pub truncate: f64,
    /// The packet is swapped with the next packet of its batch.
    pub reorder: f64,
}

/// Number of faults of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Packets lost.
    pub dropped: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets with a changed byte.
    pub corrupted: u64,
    /// Packets truncated.
    pub truncated: u64,
    /// Packets swapped with their successor.
    pub reordered: u64,
}

/// The fault counters of all queues of a [`FaultSource`], updated and read with relaxed ordering.
#[derive(Clone, Debug, Default)]
pub struct FaultReport(Arc<[AtomicU64; 5]>);

impl FaultReport {
    /// The sums so far.
    pub fn counters(&self) -> FaultCounters {
        let [dropped, duplicated, corrupted, truncated, reordered] =
            std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed));
        FaultCounters { dropped, duplicated, corrupted, truncated, reordered }
    }

    fn add(&self, more: &FaultCounters) {
        let FaultCounters { dropped, duplicated, corrupted, truncated, reordered } = *more;
        for (sum, more) in self.0.iter().zip([dropped, duplicated, corrupted, truncated, reordered]) {
            if more > 0 {
                sum.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

/// A source behind a faulty link.
pub struct FaultSource {
    inner: Box<dyn Source>,
    faults: Faults,
    report: FaultReport,
}

impl FaultSource {
    /// Puts a source behind a faulty link; also returns a view of the fault counters.
    pub fn new(inner: Box<dyn Source>, faults: Faults) -> Result<(FaultSource, FaultReport), ConfigError> {
        let Faults { drop, duplicate, corrupt, truncate, reorder, .. } = faults;
        let fields = [
            ("drop", drop),
            ("duplicate", duplicate),
            ("corrupt", corrupt),
            ("truncate", truncate),
            ("reorder", reorder),
        ];
        for (field, value) in fields {
            if !(0.0..=1.0).contains(&value) {
                return Err(ConfigError::Share { field, value });
            }
        }
        let report = FaultReport::default();
        Ok((FaultSource { inner, faults, report: report.clone() }, report))
    }
}

impl Source for FaultSource {
    fn name(&self) -> String {
        format!("{} with faults", self.inner.name())
    }

    fn ports(&self) -> usize {
        self.inner.ports()
    }

    fn progress(&self) -> Arc<Progress> {
        self.inner.progress()
    }

    fn buffers(&self) -> usize {
        self.inner.buffers()
    }

    fn pool(&mut self, config: &PoolConfig) -> Result<Arc<Pool>, braid_memory::Error> {
        self.inner.pool(config)
    }

    fn prepare(&mut self, pool: &Arc<Pool>, senders: usize) -> Result<(), OpenError> {
        self.inner.prepare(pool, senders)
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        let FaultSource { inner, faults, report } = *self;
        let queues = inner.open(queues, select)?;
        let faulty = |(number, inner)| -> Box<dyn RxQueue> {
            let random = Random::new(faults.seed.wrapping_add(number as u64));
            Box::new(FaultQueue {
                inner,
                faults,
                random,
                frames: Vec::new(),
                total: RxCounters::default(),
                report: report.clone(),
            })
        };
        Ok(queues.into_iter().enumerate().map(faulty).collect())
    }
}

struct FaultQueue {
    inner: Box<dyn RxQueue>,
    faults: Faults,
    random: Random,
    /// Scratch space, empty between two receives.
    frames: Vec<Frame>,
    /// Counts of what was let through.
    total: RxCounters,
    report: FaultReport,
}

impl FaultQueue {
    /// Removes the packets from `first` on from the batch, applies faults, and puts the results back.
    fn spoil(&mut self, batch: &mut Batch, buffers: &mut Buffers, first: usize, limit: usize) -> FaultCounters {
        let mut counters = FaultCounters::default();
        let mut lost = Batch::new(batch.pool(), batch.layout());
        while batch.len() > first {
            self.frames.extend(batch.pop());
        }
        while let Some(frame) = self.frames.pop() {
            if self.random.chance(self.faults.drop) {
                counters.dropped += 1;
                lost.push(frame);
                continue;
            }
            let swap = !self.frames.is_empty() && self.random.chance(self.faults.reorder);
            if swap && let Some(next) = self.frames.pop() {
                counters.reordered += 1;
                batch.push(next);
            }
            batch.push(frame);
            let place = batch.len() - 1;
            if self.random.chance(self.faults.corrupt) {
                counters.corrupted += u64::from(corrupt(batch, place, self.random.bits()));
            }
            let (bits, present) = (self.random.bits(), batch.bytes(place).len());
            if present > 1 && self.random.chance(self.faults.truncate) {
                let len = 1 + (bits % (present as u64 - 1)) as usize;
                if copy(batch, buffers, place, len) {
                    // The shorter copy is now behind the original: remove both and put the copy back.
                    counters.truncated += 1;
                    let cut = batch.pop();
                    lost.push(batch.pop().expect("it was pushed above"));
                    cut.into_iter().for_each(|cut| batch.push(cut));
                }
            }
            let room = batch.len() + self.frames.len() < first + limit;
            if room && self.random.chance(self.faults.duplicate) {
                let len = batch.bytes(batch.len() - 1).len();
                counters.duplicated += u64::from(copy(batch, buffers, batch.len() - 1, len));
            }
        }
        lost.release(buffers);
        counters
    }
}

/// Changes one byte; false if the packet is empty.
fn corrupt(batch: &mut Batch, place: usize, bits: u64) -> bool {
    let mut packet = batch.packet(place, None);
    let bytes = packet.bytes_mut();
    let Some(at) = bits.checked_rem(bytes.len() as u64) else { return false };
    // The value is never zero, so the byte does change.
    bytes[at as usize] ^= ((bits >> 32) % 255 + 1) as u8;
    true
}

/// Adds a copy of the first `len` bytes of a packet; false if no buffer is free.
fn copy(batch: &mut Batch, buffers: &mut Buffers, place: usize, len: usize) -> bool {
    let bytes = batch.bytes(place)[..len].to_vec();
    let record = &batch.records()[place];
    let info = FrameInfo {
        port: record.port,
        link: record.flags.link(),
        timestamp_ns: batch.timestamp_ns(place),
        wire_len: batch.wire_len(place),
        sequence: batch.sequence(place),
    };
    batch.copy_in(buffers, &bytes, &info)
}

impl RxQueue for FaultQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let first = batch.len();
        let limit = limit.min(batch.room());
        // Leave room for the expected duplicates; duplicates beyond the limit are not made.
        let wanted = (limit as f64 / (1.0 + self.faults.duplicate)) as usize;
        let received = self.inner.receive(batch, buffers, wanted.max(1));
        if received != Received::Packets {
            return received;
        }
        let counters = self.spoil(batch, buffers, first, limit);
        self.report.add(&counters);
        self.total.injected_loss += counters.dropped;
        self.total.packets += (batch.len() - first) as u64;
        self.total.bytes += (first..batch.len()).map(|i| u64::from(batch.wire_len(i))).sum::<u64>();
        if batch.len() > first { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn counters(&self) -> RxCounters {
        let RxCounters { too_long, no_port, missed, .. } = self.inner.counters();
        RxCounters { too_long, no_port, missed, ..self.total }
    }

    fn close(&mut self) -> bool {
        self.inner.close()
    }

    fn wait(&mut self, at_most: Duration) -> Waited {
        self.inner.wait(at_most)
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        self.inner.bell()
    }

    fn damages(&self) -> Vec<Damage> {
        self.inner.damages()
    }
}
