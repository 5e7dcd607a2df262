//! A watchdog that detects a handler that does not return.
//!
//! A handler that never returns blocks its worker, and under a seeded schedule all workers; a thread cannot be ended from outside. So the
//! watchdog only reports, and its owner decides: a command prints the function's name and gives up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::chain::Chain;
use crate::model::schedule::Scheduler;

/// The time limit, and the callback for a handler that exceeds it.
#[derive(Clone)]
pub struct Watchdog {
    /// Time limit for the handlers of one function over one batch, for one tick, and for the end of packet sets; in a replay, for each
    /// transaction.
    pub limit: Duration,
    /// Called once with the function's name.
    pub tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watchdog({:?})", self.limit)
    }
}

/// Where a worker is: written by the worker, read by the watchdog. Relaxed throughout, because nothing else is read on the strength of it.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The function's position plus one; 0 outside handlers.
    within: AtomicUsize,
    beats: AtomicU64,
}

impl Pulse {
    /// Notes that handlers of the function at a position start.
    pub(crate) fn enter(&self, position: usize) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.within.store(position + 1, Ordering::Relaxed);
    }

    /// Notes that they have returned.
    pub(crate) fn leave(&self) {
        self.within.store(0, Ordering::Relaxed);
    }
}

/// The last state seen of a worker, and since when it has not changed.
struct Seen {
    mark: u64,
    since: Instant,
}

/// Observes the workers until `done`; `chain` returns the chain that they run.
pub(crate) fn watch(
    watchdog: &Watchdog,
    chain: impl Fn() -> Arc<Chain>,
    pulses: &[Arc<Pulse>],
    scheduler: Option<&Scheduler>,
    done: &AtomicBool,
) {
    let mut seen: Vec<Seen> = pulses.iter().map(|_| Seen { mark: 0, since: Instant::now() }).collect();
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(watchdog.limit / 8);
        for (worker, (pulse, seen)) in pulses.iter().zip(&mut seen).enumerate() {
            // Under a schedule, workers that wait for their turn are fine, and one that reaches yield points makes progress.
            let (runs, steps) = scheduler.map_or((worker, 0), Scheduler::progress);
            let mark = pulse.beats.load(Ordering::Relaxed).wrapping_add(steps);
            let within = pulse.within.load(Ordering::Relaxed);
            if within == 0 || runs != worker || mark != seen.mark {
                *seen = Seen { mark, since: Instant::now() };
            } else if seen.since.elapsed() >= watchdog.limit {
                let chain = chain();
                let stage = chain.stages().get(within - 1);
                (watchdog.tell)(stage.map_or("a function that is gone", |stage| stage.name()));
                return;
            }
        }
    }
}
