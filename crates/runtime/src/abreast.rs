//! Workers that go abreast: a packet is handled when all that came before it have been, whoever had them.
//!
//! A capture is replayed as fast as each worker goes, and one with few packets comes to the end when the others have begun. What
//! belongs together goes to one worker in order, but what only hangs together may not: an ICMP error of a router on the way reaches
//! another worker than the connection that it reports. With this wrapper around each worker's queue the packets of all are
//! handled one after another in the order of the input, so the result is that of one worker; workers wait for each other.
//!
//! Each worker publishes the number of the packet that it handles next, or below which none will come to it. It goes on while its own
//! packets have smaller numbers than all others publish. The smallest of all is never kept waiting. Who waits sleeps soon, and is woken: where
//! more threads run than there are processors, the one whose turn it is gets one at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use braid_io::capture::Damage;
use braid_io::{Received, RxCounters, RxQueue};
use braid_packet::{Batch, Buffers, Frame, Layout, Pool};
use crossbeam_utils::CachePadded;

/// Places that a worker looks at before it sleeps: with two workers 256 times where the other one stands, with many a few times where all do.
const LOOKS: usize = 512;
/// How long it sleeps at most, though nobody wakes it: it has other things to do.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Where each worker stands.
#[derive(Debug)]
pub(crate) struct Places {
    places: Box<[CachePadded<AtomicU64>]>,
    /// How many sleep until somebody has gone on.
    asleep: AtomicUsize,
    /// Where each of them sleeps: only the one whose turn it is gets woken, however many there are.
    beds: Box<[(Mutex<()>, Condvar)]>,
}

impl Places {
    /// All workers at the beginning.
    pub(crate) fn new(workers: usize) -> Arc<Places> {
        let places = (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let beds = (0..workers).map(|_| Default::default()).collect();
        Arc::new(Places { places, asleep: AtomicUsize::new(0), beds })
    }

    /// Says where a worker stands. Release: whoever sees it sees what the packets before have changed. Partner: `others`.
    fn publish(&self, worker: usize, sequence: u64) {
        if self.places[worker].swap(sequence, Ordering::Release) == sequence {
            return;
        }
        // Partner: the fence in `beyond`. Either this one sees the sleeper, or that one sees the place. And its own in another worker's call:
        // of several that go on at once the last one sees where all are, and so whose turn it is.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) > 0 {
            self.hindmost().filter(|next| *next != worker).for_each(|next| {
                let (lock, woken) = &self.beds[next];
                drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
                woken.notify_one();
            });
        }
    }

    /// Who stands at the smallest place: nobody else may go on. Acquire: the partner is `publish`.
    fn hindmost(&self) -> impl Iterator<Item = usize> {
        let least = self.places.iter().map(|place| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX);
        let stands = move |place: &AtomicU64| place.load(Ordering::Acquire) <= least;
        self.places.iter().enumerate().filter(move |(_, place)| stands(place)).map(|(worker, _)| worker)
    }

    /// Where the hindmost of the others stands. Acquire: the partner is `publish`.
    fn others(&self, worker: usize) -> u64 {
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != worker);
        others.map(|(_, place)| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }

    /// The same, if need be after a while, once all others have come beyond `sequence`.
    fn beyond(&self, worker: usize, sequence: u64) -> u64 {
        for _ in 0..LOOKS.div_ceil(self.places.len()) {
            let others = self.others(worker);
            if others > sequence {
                return others;
            }
            std::hint::spin_loop();
        }
        let (lock, woken) = &self.beds[worker];
        let bed = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.others(worker) <= sequence {
            drop(woken.wait_timeout(bed, SLEEP_MAX));
        }
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        self.others(worker)
    }
}

/// A worker's queue.
pub(crate) struct Abreast {
    inner: Box<dyn RxQueue>,
    worker: usize,
    places: Arc<Places>,
    received: Batch,
    /// Packets that are not handed out yet, newest first.
    waiting: Vec<Frame>,
    /// How long packets of a batch may be apart, by their time stamps.
    together_ns: u64,
}

impl Abreast {
    /// The packets' numbers have to be among what `layout` carries.
    pub(crate) fn new(
        inner: Box<dyn RxQueue>,
        worker: usize,
        places: &Arc<Places>,
        pool: &Arc<Pool>,
        layout: &Arc<Layout>,
        together_ns: Option<u64>,
    ) -> Abreast {
        Abreast {
            inner,
            worker,
            places: Arc::clone(places),
            received: Batch::new(pool, layout),
            waiting: Vec::new(),
            together_ns: together_ns.unwrap_or(u64::MAX),
        }
    }
}

impl RxQueue for Abreast {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        // Whoever asks has handled all that it was given before.
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
        let (others, before) = (self.places.beyond(self.worker, first), batch.len());
        let end_ns = self.waiting.last().map_or(0, Frame::timestamp_ns).saturating_add(self.together_ns);
        while batch.room() > 0 && batch.len() - before < limit {
            let is_next = |frame: &mut Frame| frame.sequence() < others && frame.timestamp_ns() <= end_ns;
            let Some(frame) = self.waiting.pop_if(is_next) else { break };
            batch.push(frame);
        }
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        self.waiting.last().map_or(self.inner.horizon(), Frame::sequence)
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }

    fn has_parsed(&self) -> bool {
        self.inner.has_parsed()
    }

    fn close(&mut self) -> bool {
        self.inner.close() || !self.waiting.is_empty()
    }

    fn damages(&self) -> Vec<Damage> {
        self.inner.damages()
    }
}

impl Drop for Abreast {
    fn drop(&mut self) {
        // Nobody waits for a worker that has ended.
        self.places.publish(self.worker, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_are_woken_whose_turn_it_is() {
        let places = Places::new(4);
        let next = |at: [u64; 4]| {
            at.iter().enumerate().for_each(|(worker, place)| places.publish(worker, *place));
            places.hindmost().collect::<Vec<_>>()
        };
        assert_eq!(next([5, 3, 9, 4]), [1]);
        assert_eq!(next([5, 8, 9, 7]), [0]);
        assert_eq!(next([8, 8, 9, u64::MAX]), [0, 1]);
    }

    #[test]
    fn workers_take_turns_and_whoever_sleeps_is_woken() {
        const TURNS: u64 = 3000;
        let (places, taken) = (&*Places::new(3), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            for worker in 0..3 {
                scope.spawn(move || {
                    for turn in (worker as u64..TURNS).step_by(3) {
                        places.publish(worker, turn);
                        while places.beyond(worker, turn) <= turn {}
                        assert_eq!(taken.fetch_add(1, Ordering::Relaxed), turn);
                    }
                    places.publish(worker, u64::MAX);
                });
            }
        });
        assert_eq!(taken.load(Ordering::Relaxed), TURNS);
        assert_eq!(places.asleep.load(Ordering::Relaxed), 0);
    }
}
