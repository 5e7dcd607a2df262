//! Time: that of the capture when replaying, so that every run is the same; that of the machine when live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use braid_packet::Batch;
use crossbeam_utils::CachePadded;

use super::places::Places;
use crate::model::virtual_time::Cluster;

/// The source of a worker's time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Each packet's own time stamp, never going back.
    Capture,
    /// Like `Capture`, for workers that wait for each other: never before the latest time of any of them, which is kept here in nanoseconds.
    Abreast(Arc<AtomicU64>),
    /// One reading per batch, in nanoseconds: the time since `epoch` plus `base_ns`, thus since 1970 as in captures.
    Live {
        /// When the clock was started.
        epoch: Instant,
        /// The time at `epoch`: wall-clock time, or the time that a continued run had reached.
        base_ns: u64,
    },
    /// Set by a test: one reading per batch, in nanoseconds.
    Told(Arc<AtomicU64>),
    /// Each reading is `step_ns` after the one before, so whatever depends on time happens after the same packets on any machine, however
    /// busy it is. For one worker.
    Stepped {
        /// The latest reading.
        now_ns: Arc<AtomicU64>,
        /// Nanoseconds between two readings.
        step_ns: u64,
    },
    /// The clock of a model: one reading of the worker's virtual clock per batch.
    Virtual {
        /// The virtual clocks of all workers.
        cluster: Arc<Cluster>,
        /// The worker's number.
        worker: usize,
    },
}

/// The machine's wall-clock time, in nanoseconds since 1970. A run begins with it; after that its own clock advances independently of changes to the
/// machine's clock.
pub fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64).min(LATEST_NS)
}

/// The latest time stamp accepted from a capture, in nanoseconds; timeouts and periods can be added to it without overflow.
pub(crate) const LATEST_NS: u64 = u64::MAX / 2;

impl Clock {
    /// A live clock that starts now at time `base_ns`.
    pub fn live(base_ns: u64) -> Clock {
        Clock::Live { epoch: Instant::now(), base_ns }
    }

    /// Fills in the time of each packet of the batch and returns the latest; `last` is the worker's latest time before the batch.
    #[inline]
    pub fn stamp(&self, batch: &Batch, last: u64, now_ns: &mut [u64; 256]) -> u64 {
        match self {
            Clock::Capture | Clock::Abreast(_) => {
                let mut now = last.max(self.latest());
                for (i, place) in now_ns[..batch.len()].iter_mut().enumerate() {
                    now = now.max(batch.timestamp_ns(i).min(LATEST_NS));
                    *place = now;
                }
                if let Clock::Abreast(latest_ns) = self {
                    // Relaxed: `Places` orders the workers, so a worker that continues sees what those before it have done (abreast.rs).
                    latest_ns.fetch_max(now, Ordering::Relaxed);
                }
                now
            }
            Clock::Live { .. } | Clock::Told(_) | Clock::Stepped { .. } | Clock::Virtual { .. } => {
                let now = self.idle(last);
                now_ns[..batch.len()].fill(now);
                now
            }
        }
    }

    /// The time before which no packet of the batch may be, whatever its stamp. Relaxed: as in `stamp`.
    fn latest(&self) -> u64 {
        if let Clock::Abreast(latest_ns) = self { latest_ns.load(Ordering::Relaxed) } else { 0 }
    }

    /// The wall-clock time if it may differ from this clock's.
    pub(crate) fn wall_ns(&self) -> Option<u64> {
        matches!(self, Clock::Live { .. }).then(wall_ns)
    }

    /// Whether the time comes from the packets.
    pub(crate) fn is_of_capture(&self) -> bool {
        matches!(self, Clock::Capture | Clock::Abreast(_))
    }

    /// The time when there is no packet to determine it.
    pub fn idle(&self, last: u64) -> u64 {
        match self {
            Clock::Capture | Clock::Abreast(_) => last.max(self.latest()),
            Clock::Live { epoch, base_ns } => last.max(base_ns + epoch.elapsed().as_nanos() as u64),
            // Relaxed: the thread that sets the time also runs the steps.
            Clock::Told(now_ns) => last.max(now_ns.load(Ordering::Relaxed)),
            // Relaxed: no other thread reads it.
            Clock::Stepped { now_ns, step_ns } => last.max(now_ns.fetch_add(*step_ns, Ordering::Relaxed)),
            Clock::Virtual { cluster, worker } => last.max(cluster.now_ns(*worker)),
        }
    }
}

/// The time each worker has reached, for everything that concerns all workers: ticks and leases.
#[derive(Debug)]
pub struct Timeline {
    workers: Box<[CachePadded<AtomicU64>]>,
    ended: AtomicUsize,
    /// The latest time of all workers that have ended.
    latest_ns: AtomicU64,
    /// The number after that of the last packet that any ended worker had.
    latest: AtomicU64,
    /// The packets of a capture at which the workers are.
    places: Arc<Places>,
}

impl Timeline {
    /// A timeline with all workers at time 0.
    pub fn new(workers: usize) -> Timeline {
        Timeline {
            workers: (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            ended: AtomicUsize::new(0),
            latest_ns: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            places: Places::new(workers),
        }
    }

    /// The packets of a capture at which the workers are.
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// The number of workers, including those that have ended.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Publishes that a worker has handled everything before `now_ns`; `u64::MAX` if it is idle or has ended. Relaxed: a late value only delays
    /// what waits for it.
    #[inline]
    pub fn publish(&self, worker: usize, now_ns: u64) {
        self.workers[worker].store(now_ns, Ordering::Relaxed);
    }

    /// Notes that a worker has ended at `now_ns`, before the packet with the number `next`. The last worker gets the maxima over all workers, since
    /// it may have had fewer packets than others, or none. Acquire and release: the last worker sees what the others have done.
    pub fn leave(&self, worker: usize, now_ns: u64, next: u64) -> Option<(u64, u64)> {
        self.publish(worker, u64::MAX);
        self.latest_ns.fetch_max(now_ns, Ordering::AcqRel);
        self.latest.fetch_max(next, Ordering::AcqRel);
        let is_last = self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.workers.len();
        is_last.then(|| (self.latest_ns.load(Ordering::Acquire), self.latest.load(Ordering::Acquire)))
    }

    /// The time that every worker has reached. Idle workers hold no other back; returns `own_ns` if all are idle.
    pub fn reached(&self, own_ns: u64) -> u64 {
        let earliest = self.workers.iter().map(|worker| worker.load(Ordering::Relaxed)).min();
        earliest.filter(|&reached| reached != u64::MAX).unwrap_or(own_ns)
    }
}

#[cfg(test)]
mod tests {
    use braid_memory::HugePages;
    use braid_packet::fields::{Layout, StageUse, TIMESTAMP_NS};
    use braid_packet::{Buffers, FrameInfo, Pool, PoolConfig};

    use super::*;

    #[test]
    fn the_last_worker_to_end_is_told_how_far_any_had_come() {
        let timeline = Timeline::new(3);
        assert_eq!(timeline.leave(1, 700, 8), None);
        assert_eq!(timeline.leave(0, 900, 7), None);
        assert_eq!(timeline.leave(2, 0, 0), Some((900, 8)));
    }

    /// A batch of packets with these times.
    fn batch(times_ns: &[u64]) -> (Batch, Buffers) {
        let pool = Pool::new(&PoolConfig { buffers: 4, jumbos: 1, pages: HugePages::Never }).expect("a few buffers");
        let layout = Layout::compose(&[StageUse::new("reader").reads(TIMESTAMP_NS, 8)]).expect("one field");
        let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(layout)), Buffers::new(&pool));
        for &timestamp_ns in times_ns {
            assert!(batch.copy_in(&mut buffers, &[0; 60], &FrameInfo { timestamp_ns, ..FrameInfo::default() }));
        }
        (batch, buffers)
    }

    #[test]
    fn a_capture_from_the_end_of_time_leaves_room_for_timeouts() {
        let (mut batch, mut buffers) = batch(&[7, u64::MAX, 9]);
        let mut now_ns = [0; 256];
        assert_eq!(Clock::Capture.stamp(&batch, 5, &mut now_ns), LATEST_NS);
        assert_eq!(now_ns[..3], [7, LATEST_NS, LATEST_NS], "and it never goes back");
        batch.release(&mut buffers);
    }

    #[test]
    fn time_goes_back_for_none_of_those_who_go_abreast() {
        let clock = Clock::Abreast(Arc::default());
        let (mut now_ns, [mut first, mut second]) = ([0; 256], [batch(&[7, 90]), batch(&[8, 100])]);
        assert_eq!(clock.stamp(&first.0, 0, &mut now_ns), 90);
        assert_eq!(clock.clone().stamp(&second.0, 0, &mut now_ns), 100, "of another worker, that has had nothing yet");
        assert_eq!(now_ns[..2], [90, 100]);
        first.0.release(&mut first.1);
        second.0.release(&mut second.1);
    }
}
