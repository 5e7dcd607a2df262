//! Measures what shared state costs per packet, in alternation with the same work on the same number of objects without synchronisation.
//!
//! A packet's objects are prefetched `AHEAD` packets in advance, with and without synchronisation, as a function that knows its
//! keys can do. Times are processor time of the thread, in the best of many short rounds, because other programs can only make a
//! round slower. They still share caches and memory with it, so a quiet machine gives more accurate differences.

mod engines;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use braid_memory::thread_time;
use braid_nf::state::{Conflict, StateError};

use self::engines::{Alone, Engine, Objects, Shared};

/// Number of objects that exceeds every cache.
const MANY: u32 = 2_000_000;
/// Number of objects that fits the first-level cache.
const FEW: u32 = 256;
/// Number of packets between prefetching and using an object.
const AHEAD: usize = 16;
/// Number of packets in a round.
const ROUND: usize = 1 << 16;

/// Times of the same work without and with synchronisation.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Time without synchronisation.
    pub without: f64,
    /// Time with synchronisation.
    pub with: f64,
}

impl Pair {
    /// The cost of synchronisation.
    pub fn more(&self) -> f64 {
        self.with - self.without
    }
}

/// The work of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Modifies state of its own set; nothing is shared.
    Own,
    /// Reads one shared object and needs nothing else that is shared.
    ReadAlone,
    /// Reads one shared object in the same transaction as the other packets of the batch.
    ReadOne,
    /// Reads and writes one shared object.
    UpdateOne,
    /// Reads and writes three shared objects.
    UpdateThree,
}

/// Two workers on separate objects, compared with one worker.
#[derive(Clone, Copy, Debug)]
pub struct Scaling {
    /// Rate of both workers relative to one, by the processor time of the slower one.
    pub by_processor: f64,
    /// The same ratio by wall-clock time.
    pub by_wall: f64,
}

/// The measurement setup: objects of both kinds, in a large and a small number.
pub struct Cost {
    many: Objects,
    few: Objects,
    rounds: usize,
}

impl Cost {
    /// Makes the objects; every figure will be the best of this many rounds.
    pub fn new(rounds: usize) -> Result<Cost, StateError> {
        Ok(Cost { many: Objects::new(MANY)?, few: Objects::new(FEW)?, rounds: rounds.max(1) })
    }

    /// Nanoseconds per packet with objects that exceed every cache, in batches of `batch`.
    pub fn packet(&mut self, work: Work, batch: usize) -> Pair {
        match work {
            Work::Own => self.own(batch),
            Work::ReadAlone => self.pair::<_, false, 1>(batch, Alone),
            Work::ReadOne => self.pair::<_, false, 1>(batch, std::convert::identity),
            Work::UpdateOne => self.pair::<_, true, 1>(batch, std::convert::identity),
            Work::UpdateThree => self.pair::<_, true, 3>(batch, std::convert::identity),
        }
    }

    fn own(&mut self, batch: usize) -> Pair {
        let objects = &mut self.many;
        best(self.rounds, objects, |objects, with| {
            let count = objects.count();
            let course = Course::<1>::new(count, batch, 0);
            if with { course.run::<true>(&mut objects.untouched()) } else { course.run::<true>(&mut objects.plain()) }
        })
    }

    /// Measures a pair; `way` selects how shared objects are accessed.
    fn pair<E: Engine, const WRITES: bool, const OBJECTS: usize>(
        &mut self,
        batch: usize,
        way: impl Fn(Shared) -> E,
    ) -> Pair {
        let objects = &mut self.many;
        best(self.rounds, objects, |objects, with| {
            let course = Course::<OBJECTS>::new(objects.count(), batch, 0);
            if with {
                course.run::<WRITES>(&mut way(objects.shared(0, 0)))
            } else {
                course.run::<WRITES>(&mut objects.plain())
            }
        })
    }

    /// Nanoseconds per transaction on objects in the first-level cache: empty, with one read, and with one write.
    pub fn in_cache(&mut self) -> [Pair; 3] {
        let (objects, rounds) = (&mut self.few, self.rounds * 4);
        let empty = best(rounds, objects, |objects, with| {
            if with {
                in_turn::<false, 0>(&mut objects.shared(0, 0))
            } else {
                in_turn::<false, 0>(&mut objects.plain())
            }
        });
        let read = best(rounds, objects, |objects, with| {
            if with {
                in_turn::<false, 1>(&mut objects.shared(0, 0))
            } else {
                in_turn::<false, 1>(&mut objects.plain())
            }
        });
        let write = best(rounds, objects, |objects, with| {
            if with { in_turn::<true, 1>(&mut objects.shared(0, 0)) } else { in_turn::<true, 1>(&mut objects.plain()) }
        });
        [empty, read, write]
    }

    /// Compares two workers with one, each modifying one object of its own half per packet, in batches of `batch`: without
    /// synchronisation, which shows what the machine itself allows, and with it.
    pub fn scaling(&mut self, batch: usize) -> [Scaling; 2] {
        let (rounds, half) = (self.rounds, self.many.count() / 2);
        let without = scaling(rounds, &mut self.many.plain().halves(), batch);
        let shared = &self.many;
        let with = scaling(rounds, &mut [0, 1].map(|worker| shared.shared(worker, worker as u32 * half)), batch);
        [without, with]
    }
}

fn scaling<E: Engine + Send>(rounds: usize, engines: &mut [E; 2], batch: usize) -> Scaling {
    // Warm up: objects move to the caches of the workers that now write them, and the clock settles.
    together(engines, batch);
    let mut seconds = [[f64::MAX; 2]; 2];
    for _ in 0..rounds {
        for workers in [1, 2] {
            let (cpu, wall) = together(&mut engines[..workers], batch);
            let best = &mut seconds[workers - 1];
            *best = [best[0].min(cpu), best[1].min(wall)];
        }
    }
    let ratio = |of: usize| 2.0 * seconds[0][of] / seconds[1][of];
    Scaling { by_processor: ratio(0), by_wall: ratio(1) }
}

/// One round of all engines at the same time: the maximum processor time of a thread and the wall-clock time, in seconds.
fn together<E: Engine + Send>(engines: &mut [E], batch: usize) -> (f64, f64) {
    let start = Barrier::new(engines.len());
    let times: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let (mut threads, start) = (Vec::new(), &start);
        for (worker, engine) in engines.iter_mut().enumerate() {
            threads.push(scope.spawn(move || {
                let course = Course::<1>::new(MANY / 2, batch, worker as u64);
                start.wait();
                let begun = Instant::now();
                let cpu = course.run::<true>(engine) * ROUND as f64 / 1e9;
                (cpu, begun.elapsed().as_secs_f64())
            }));
        }
        threads.into_iter().map(|thread| thread.join().expect("a measurement does not panic")).collect()
    });
    times.into_iter().fold((0.0, 0.0), |most: (f64, f64), time| (most.0.max(time.0), most.1.max(time.1)))
}

/// The best of several rounds each without and with synchronisation, in alternation.
fn best(rounds: usize, objects: &mut Objects, mut round: impl FnMut(&mut Objects, bool) -> f64) -> Pair {
    let mut pair = Pair { without: f64::MAX, with: f64::MAX };
    for _ in 0..rounds {
        pair.without = pair.without.min(round(objects, false));
        pair.with = pair.with.min(round(objects, true));
    }
    pair
}

/// Packets in batches, whose objects are drawn at random.
struct Course<const OBJECTS: usize> {
    now: Vec<[u32; OBJECTS]>,
    next: Vec<[u32; OBJECTS]>,
    span: u32,
    random: u64,
}

impl<const OBJECTS: usize> Course<OBJECTS> {
    fn new(span: u32, batch: usize, seed: u64) -> Course<OBJECTS> {
        let batch = batch.max(AHEAD);
        let packets = || vec![[0; OBJECTS]; batch];
        let mut course = Course { now: packets(), next: packets(), span, random: 0x9E37_79B9_7F4A_7C15 + seed };
        course.draw();
        course.turn();
        course
    }

    /// Makes the next batch the current one.
    fn turn(&mut self) {
        std::mem::swap(&mut self.now, &mut self.next);
        self.draw();
    }

    fn draw(&mut self) {
        for object in self.next.iter_mut().flatten() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            *object = (((self.random >> 32) * u64::from(self.span)) >> 32) as u32;
        }
    }

    /// Runs one round; returns nanoseconds of processor time per packet.
    fn run<const WRITES: bool>(mut self, engine: &mut impl Engine) -> f64 {
        let batches = ROUND / self.now.len();
        let begun = thread_time();
        for _ in 0..batches {
            while self.attempt::<WRITES>(engine).is_err() {
                engine.abort();
            }
            self.turn();
        }
        (thread_time() - begun).as_nanos() as f64 / (batches * self.now.len()) as f64
    }

    #[inline(never)]
    fn attempt<const WRITES: bool>(&self, engine: &mut impl Engine) -> Result<(), Conflict> {
        let coming = self.now[AHEAD..].iter().chain(&self.next);
        for (packet, coming) in self.now.iter().zip(coming) {
            coming.iter().for_each(|object| engine.prefetch(*object));
            engine.packet::<WRITES, OBJECTS>(packet)?;
        }
        engine.commit()
    }
}

/// Runs transactions of one packet each, over [`FEW`] objects in turn; returns nanoseconds per transaction.
fn in_turn<const WRITES: bool, const OBJECTS: usize>(engine: &mut impl Engine) -> f64 {
    const TRANSACTIONS: u32 = 4096;
    let begun = thread_time();
    for at in 0..TRANSACTIONS {
        while one::<WRITES, OBJECTS>(engine, std::hint::black_box(at)).is_err() {
            engine.abort();
        }
    }
    (thread_time() - begun).as_nanos() as f64 / f64::from(TRANSACTIONS)
}

#[inline(always)]
fn one<const WRITES: bool, const OBJECTS: usize>(engine: &mut impl Engine, at: u32) -> Result<(), Conflict> {
    engine.packet::<WRITES, OBJECTS>(&[at % FEW; OBJECTS])?;
    engine.commit()
}

/// Cycles of the time-stamp counter per nanosecond.
pub fn gigahertz() -> f64 {
    let (begun, cycles) = (Instant::now(), braid_memory::cycles());
    std::thread::sleep(Duration::from_millis(50));
    (braid_memory::cycles() - cycles) as f64 / begun.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_do_the_same_work() {
        let mut objects = Objects::new(FEW).expect("memory for 256 objects");
        Course::<3>::new(FEW, 64, 7).run::<true>(&mut objects.plain());
        let mut shared = objects.shared(0, 0);
        Course::<3>::new(FEW, 64, 7).run::<true>(&mut shared);
        assert_eq!(shared.tx.stats().updates as usize, ROUND / 64);
        for object in 0..FEW {
            let value = shared.elements.get(&mut shared.tx, object).expect("alone").expect("below the end");
            assert_eq!(objects.plain().0[object as usize][..2], value, "{object}");
        }
    }
}
