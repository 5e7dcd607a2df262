//! Where each worker of a capture stands: at which packet of the input, and how far time has come for all of them.
//!
//! Two make use of it. Workers that go abreast ([`Abreast`](crate::abreast::Abreast)) handle packets in the order of the input. Where functions hold packets
//! back, time goes on for all workers together: the first one leads, others wait until what is due before their packets has been done
//! ([`worker/paced.rs`](crate::worker)).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;

/// Places that a worker looks at before it sleeps: with two workers 256 times where the other one stands, with many a few times where all do.
const LOOKS: usize = 512;
/// How long it sleeps at most, though nobody wakes it: it has other things to do.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Where each worker stands.
#[derive(Debug)]
pub(crate) struct Places {
    places: Box<[CachePadded<AtomicU64>]>,
    /// Time stamps of the packets at which they stand, as far as they know.
    times_ns: Box<[CachePadded<AtomicU64>]>,
    /// How far time has come for all workers, with all that functions had to do until then.
    led_ns: AtomicU64,
    /// How many sleep until somebody has gone on.
    asleep: AtomicUsize,
    /// Where each of them sleeps: only the one whose turn it is gets woken, however many there are.
    beds: Box<[(Mutex<()>, Condvar)]>,
}

impl Places {
    /// All workers at the beginning.
    pub(crate) fn new(workers: usize) -> Arc<Places> {
        Arc::new(Places {
            places: (0..workers).map(|_| CachePadded::default()).collect(),
            times_ns: (0..workers).map(|_| CachePadded::default()).collect(),
            led_ns: AtomicU64::new(0),
            asleep: AtomicUsize::new(0),
            beds: (0..workers).map(|_| Default::default()).collect(),
        })
    }

    /// Says where a worker stands. Release: whoever sees it sees what the packets before have changed. Partner: `others`.
    pub(crate) fn publish(&self, worker: usize, sequence: u64) {
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
        let least = self.least();
        let stands = move |place: &AtomicU64| place.load(Ordering::Acquire) <= least;
        self.places.iter().enumerate().filter(move |(_, place)| stands(place)).map(|(worker, _)| worker)
    }

    /// The same, before the packet with this time stamp, if it knows that one.
    pub(crate) fn stand(&self, worker: usize, sequence: u64, timestamp_ns: Option<u64>) {
        self.publish(worker, sequence);
        if let Some(timestamp_ns) = timestamp_ns {
            // Release, and behind the number. Partner: `front`.
            self.times_ns[worker].store(timestamp_ns, Ordering::Release);
        }
    }

    /// Below which number all packets have been handled; `u64::MAX` if all workers have come to the end.
    pub(crate) fn least(&self) -> u64 {
        self.places.iter().map(|place| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }

    /// Where the hindmost stands, and the time stamp of its packet: that, or an earlier one where it does not know it yet.
    pub(crate) fn front(&self) -> (u64, u64) {
        loop {
            let places = self.places.iter().map(|place| place.load(Ordering::Acquire)).zip(0..);
            let (least, worker) = places.min().unwrap_or((u64::MAX, 0));
            let timestamp_ns = self.times_ns[worker].load(Ordering::Acquire);
            // A time that is later than that of this packet came with a later number. Acquire above. Partner: `stand`.
            if self.places[worker].load(Ordering::Acquire) == least {
                return (least, timestamp_ns);
            }
        }
    }

    /// Time has come to `now_ns` for all workers. Release: whoever sees it sees what functions have done until then. Partner: `led_ns`.
    pub(crate) fn lead(&self, now_ns: u64) {
        self.led_ns.store(now_ns, Ordering::Release);
    }

    /// How far time has come for all workers, if one of them leads; else 0.
    pub(crate) fn led_ns(&self) -> u64 {
        self.led_ns.load(Ordering::Acquire)
    }

    /// Where the hindmost of the others stands. Acquire: the partner is `publish`.
    pub(crate) fn others(&self, worker: usize) -> u64 {
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != worker);
        others.map(|(_, place)| place.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }

    /// The same, if need be after a while, once all others have come beyond `sequence`.
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
