//! Gathers packets into larger batches: where a queue delivers small bursts, a worker waits a little for more packets, because they share the
//! fixed cost of a batch and their cache misses overlap.
//!
//! It waits only if that is worthwhile: if, at the recent rate, at least an eighth of a batch would arrive within the longest wait. So at
//! low load a packet leaves at once, as without gathering. Under full load a batch fills up while the previous one is handled, and there is
//! no wait either. Packets already received stay in the batch meanwhile, so packets are never reordered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_io::capture::Damage;
use braid_io::{Ahead, Bell, Received, RxCounters, RxQueue, Waited};
use braid_packet::{Batch, Buffers};

/// The fraction of a batch that must be expected for a wait to be worthwhile.
const WORTH: f64 = 1.0 / 8.0;
/// Weight of the latest batch in the smoothed rate.
const WEIGHT: f64 = 1.0 / 8.0;

/// A clock that counts nanoseconds.
pub(crate) trait Nanoseconds: Send {
    fn now(&mut self) -> u64;
}

/// The machine's clock, from an arbitrary origin.
pub(crate) struct Machine(Instant);

impl Nanoseconds for Machine {
    fn now(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// A queue whose packets are gathered.
pub(crate) struct Gather<C> {
    inner: Box<dyn RxQueue>,
    clock: C,
    longest_ns: u64,
    /// Packets per nanosecond, smoothed; and the time at which the previous batch was complete.
    rate: f64,
    last_ns: u64,
}

impl Gather<Machine> {
    /// Gathers what `inner` delivers, for at most `longest`.
    pub(crate) fn new(inner: Box<dyn RxQueue>, longest: Duration) -> Gather<Machine> {
        Gather::with_clock(inner, longest.as_nanos() as u64, Machine(Instant::now()))
    }
}

impl<C: Nanoseconds> Gather<C> {
    fn with_clock(inner: Box<dyn RxQueue>, longest_ns: u64, mut clock: C) -> Gather<C> {
        let last_ns = clock.now();
        Gather { inner, clock, longest_ns, rate: 0.0, last_ns }
    }

    /// Whether it is worthwhile to wait for more packets, up to `limit`.
    fn is_worth(&self, limit: usize) -> bool {
        self.rate * self.longest_ns as f64 >= limit as f64 * WORTH
    }

    fn note(&mut self, packets: usize, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.last_ns).max(1);
        self.rate += (packets as f64 / elapsed as f64 - self.rate) * WEIGHT;
        self.last_ns = now_ns;
    }
}

impl<C: Nanoseconds> RxQueue for Gather<C> {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let before = batch.len();
        let first = self.inner.receive(batch, buffers, limit);
        if first != Received::Packets {
            return first;
        }
        let begun_ns = self.clock.now();
        let mut now_ns = begun_ns;
        if self.is_worth(limit) {
            while batch.len() - before < limit && batch.room() > 0 && now_ns - begun_ns < self.longest_ns {
                match self.inner.receive(batch, buffers, limit - (batch.len() - before)) {
                    Received::Packets => {}
                    Received::Idle => std::hint::spin_loop(),
                    // The inner queue reports the end again at the next call.
                    Received::End => break,
                }
                now_ns = self.clock.now();
            }
        }
        self.note(batch.len() - before, now_ns);
        Received::Packets
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn ahead(&mut self) -> Ahead {
        self.inner.ahead()
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }

    fn has_parsed(&self) -> bool {
        self.inner.has_parsed()
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use braid_packet::{FrameInfo, Layout, Pool, PoolConfig};

    use super::*;

    /// A clock that advances by a microsecond with each reading, by the queue or by `Gather`.
    #[derive(Clone, Default)]
    struct Steps(Arc<AtomicU64>);

    impl Nanoseconds for Steps {
        fn now(&mut self) -> u64 {
            self.0.fetch_add(1_000, Ordering::Relaxed)
        }
    }

    /// Delivers `burst` packets every `every_us` readings.
    struct Bursts {
        clock: Steps,
        burst: usize,
        every_us: u64,
        next_us: u64,
    }

    impl RxQueue for Bursts {
        fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
            let now_us = self.clock.now() / 1_000;
            if now_us < self.next_us {
                return Received::Idle;
            }
            self.next_us = now_us + self.every_us;
            for _ in 0..self.burst.min(limit) {
                assert!(batch.copy_in(buffers, &[0; 60], &FrameInfo::default()));
            }
            Received::Packets
        }

        fn horizon(&self) -> u64 {
            0
        }

        fn counters(&self) -> RxCounters {
            RxCounters::default()
        }
    }

    /// The sizes of the batches that a worker gets, when it gathers for 50 µs and a batch holds 64 packets.
    fn batches(burst: usize, every_us: u64) -> Vec<usize> {
        let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).expect("memory");
        let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
        let clock = Steps::default();
        let bursts = Bursts { clock: clock.clone(), burst, every_us, next_us: 0 };
        let mut queue = Gather::with_clock(Box::new(bursts), 50_000, clock);
        let mut sizes = Vec::new();
        while sizes.len() < 40 {
            if queue.receive(&mut batch, &mut buffers, 64) == Received::Packets {
                sizes.push(batch.len());
                batch.release(&mut buffers);
            }
        }
        sizes
    }

    #[test]
    fn at_low_load_nobody_waits() {
        assert!(batches(1, 1_000).iter().all(|packets| *packets == 1));
        assert!(batches(4, 500).iter().all(|packets| *packets == 4));
    }

    #[test]
    fn many_small_bursts_become_full_batches() {
        let sizes = batches(4, 1);
        assert!(sizes[20..].iter().all(|packets| *packets == 64), "{sizes:?}");
    }

    #[test]
    fn the_wait_has_an_end() {
        let sizes = batches(4, 10);
        // About five bursts arrive within 50 µs.
        assert!(sizes[20..].iter().all(|packets| (8..=32).contains(packets)), "{sizes:?}");
    }
}
