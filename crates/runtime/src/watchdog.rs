//! Somebody who notices that a handler does not come back.
//!
//! A handler that never ends keeps its worker, and under a seeded schedule all of them; no thread can be ended from outside.
//! So the watchdog only tells, and whoever asked for it decides: a command prints the function's name and gives up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::chain::Chain;
use crate::schedule::Scheduler;

/// Who is told, and after how long.
#[derive(Clone)]
pub struct Watchdog {
    /// A stretch of handlers of one function over one batch, one period, or the end of one packet set may take so long; in a replay
    /// each transaction.
    pub limit: Duration,
    /// Told the function's name, once.
    pub tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watchdog({:?})", self.limit)
    }
}

/// Where a worker is: written by it, read by the watchdog. Relaxed throughout: nothing else is read because of it.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The function's position plus one; 0 outside.
    within: AtomicUsize,
    beats: AtomicU64,
}

impl Pulse {
    /// Handlers of the function at a position begin.
    pub(crate) fn enter(&self, position: usize) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.within.store(position + 1, Ordering::Relaxed);
    }

    /// They have come back.
    pub(crate) fn leave(&self) {
        self.within.store(0, Ordering::Relaxed);
    }
}

/// What was seen last of a worker, and since when it has been so.
struct Seen {
    mark: u64,
    since: Instant,
}

/// Looks at the workers until `done`; `chain` is asked for what they run.
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
            // Under a schedule the others wait for their turn, and whoever touches its transaction goes on.
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
