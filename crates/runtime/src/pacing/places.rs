//! The position of each worker in a capture: the packet of the input at which it is, and the time up to which all of them may go.
//!
//! It has two uses. Workers that keep the input order ([`Abreast`](super::abreast::Abreast)) handle packets one after another in that order. Where
//! functions hold packets back, the time advances for all workers together: the first worker leads, and the others wait until everything due
//! before their packets has been done ([`worker/paced.rs`](crate::worker)).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;

/// Position reads before a worker sleeps, over all workers: with two workers 256 of the other one's, with many a few of each.
const LOOKS: usize = 512;
/// Longest sleep without being woken, because the worker has other things to do.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// The positions of all workers.
#[derive(Debug)]
pub(crate) struct Places {
    places: Box<[CachePadded<AtomicU64>]>,
    /// Time stamps of the packets at which the workers are, as far as they know them.
    times_ns: Box<[CachePadded<AtomicU64>]>,
    /// The time that all workers have reached, including everything that functions had to do until then.
    led_ns: AtomicU64,
    /// Number of workers that sleep until another one advances.
    asleep: AtomicUsize,
    /// Where each worker sleeps; one each, so that only the worker whose turn it is gets woken, however many there are.
    beds: Box<[(Mutex<()>, Condvar)]>,
}

impl Places {
    /// Creates the places, with all workers at the beginning.
    pub(crate) fn new(workers: usize) -> Arc<Places> {
        Arc::new(Places {
            places: (0..workers).map(|_| CachePadded::default()).collect(),
            times_ns: (0..workers).map(|_| CachePadded::default()).collect(),
            led_ns: AtomicU64::new(0),
            asleep: AtomicUsize::new(0),
            beds: (0..workers).map(|_| Default::default()).collect(),
        })
    }

    /// Publishes a worker's place. Release, pairs with the Acquire in `others`: a worker that sees the place sees the changes made by earlier packets.
    pub(crate) fn publish(&self, worker: usize, sequence: u64) {
        if self.places[worker].swap(sequence, Ordering::Release) == sequence {
            return;
        }
        // Pairs with the fence in `beyond`: either this worker sees the sleeper, or the sleeper sees the new place. Also pairs with itself in
        // other workers' calls: of several workers that advance at once, the last one sees all their places, and so whose turn it is.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) > 0 {
            self.hindmost().filter(|next| *next != worker).for_each(|next| {
                let (lock, woken) = &self.beds[next];
                drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
                woken.notify_one();
            });
        }
    }

    /// The workers at the smallest place; no other may go on. Acquire, pairs with the Release in `publish`.
    fn hindmost(&self) -> impl Iterator<Item = usize> {
        let least = self.least();
        let stands = move |place: &AtomicU64| place.load(Ordering::Acquire) <= least;
        self.places.iter().enumerate().filter(move |(_, place)| stands(place)).map(|(worker, _)| worker)
    }

    /// Publishes a worker's place and, if it is known, the time stamp of the packet there.
    pub(crate) fn stand(&self, worker: usize, sequence: u64, timestamp_ns: Option<u64>) {
        self.publish(worker, sequence);
        if let Some(timestamp_ns) = timestamp_ns {
            // Release, and after the number. Pairs with the Acquire in `front`.
            self.times_ns[worker].store(timestamp_ns, Ordering::Release);
        }
    }

    /// The number below which all packets have been handled; `u64::MAX` if all workers have reached the end.
    pub(crate) fn least(&self) -> u64 {
        self.places.iter().map(|place| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }

    /// The smallest place and the time stamp of the packet there, or an earlier one if its worker does not know the time stamp yet.
    pub(crate) fn front(&self) -> (u64, u64) {
        loop {
            let places = self.places.iter().map(|place| place.load(Ordering::Acquire)).zip(0..);
            let (least, worker) = places.min().unwrap_or((u64::MAX, 0));
            let timestamp_ns = self.times_ns[worker].load(Ordering::Acquire);
            // A time stamp later than this packet's was stored after a later number, which this load then sees: the Acquire load above pairs
            // with the Release store in `stand`.
            if self.places[worker].load(Ordering::Acquire) == least {
                return (least, timestamp_ns);
            }
        }
    }

    /// Sets the time of all workers. Release, pairs with the Acquire in `led_ns`: a worker that sees it sees what functions have done until then.
    pub(crate) fn lead(&self, now_ns: u64) {
        self.led_ns.store(now_ns, Ordering::Release);
    }

    /// The time of all workers if one of them leads, otherwise 0.
    pub(crate) fn led_ns(&self) -> u64 {
        self.led_ns.load(Ordering::Acquire)
    }

    /// The smallest place of the other workers. Acquire, pairs with the Release in `publish`.
    pub(crate) fn others(&self, worker: usize) -> u64 {
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != worker);
        others.map(|(_, place)| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }

    /// Waits a while, if necessary, for all other workers to advance beyond `sequence`; returns their smallest place.
    pub(crate) fn beyond(&self, worker: usize, sequence: u64) -> u64 {
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
    fn the_front_is_the_packet_of_the_hindmost() {
        let places = Places::new(2);
        places.stand(0, 5, Some(50));
        places.stand(1, 3, Some(30));
        assert_eq!((places.front(), places.least()), ((3, 30), 3));
        places.stand(1, 7, Some(70));
        assert_eq!(places.front(), (5, 50));
        places.stand(0, 6, None);
        assert_eq!(places.front(), (6, 50), "it does not know yet, and holds time back");
        places.stand(0, u64::MAX, None);
        assert_eq!(places.front(), (7, 70));
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
