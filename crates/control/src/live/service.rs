//! Answers requests about a run, whoever carries them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_runtime::Live;
use serde::Serialize;
use serde_json::Value;

use super::protocol::{Refused, Request};
use super::stats::Stats;

/// How long times are taken after somebody has asked for them.
pub const TIMING_LASTS: Duration = Duration::from_secs(10);

/// Who answers for a run.
#[derive(Debug)]
pub struct Service {
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    /// When somebody last asked for times; none if they are not taken.
    timed: Mutex<Option<Instant>>,
}

impl Service {
    /// For a run: its workers' desks, and the flag that ends it.
    pub fn new(live: &Arc<Live>, stop: &Arc<AtomicBool>) -> Arc<Service> {
        Arc::new(Service { live: Arc::clone(live), stop: Arc::clone(stop), timed: Mutex::new(None) })
    }

    /// Carries a request out.
    pub fn answer(&self, request: Request) -> Result<Value, Refused> {
        match request {
            Request::Stats { timing } => json(&self.stats(timing)),
            Request::Stop {} => {
                // Relaxed: the flag carries no data.
                self.stop.store(true, Ordering::Relaxed);
                Ok(Value::Null)
            }
        }
    }

    /// All figures now.
    pub fn stats(&self, timing: bool) -> Stats {
        if timing {
            self.begin_timing();
        }
        Stats::take(&self.live)
    }

    fn begin_timing(&self) {
        let mut timed = self.timed.lock().unwrap_or_else(PoisonError::into_inner);
        if timed.replace(Instant::now()).is_none() {
            // A worker that does not answer will not be timed.
            let _ = self.live.ask_all(|worker| worker.begin_timing());
        }
    }

    /// Called now and then: ends what nobody asks for any more.
    pub fn rest(&self) {
        let mut timed = self.timed.lock().unwrap_or_else(PoisonError::into_inner);
        if timed.is_some_and(|asked| asked.elapsed() > TIMING_LASTS) {
            *timed = None;
            let _ = self.live.ask_all(|worker| worker.end_timing());
        }
    }
}

pub(crate) fn json(value: &impl Serialize) -> Result<Value, Refused> {
    serde_json::to_value(value).map_err(|error| Refused::new(format!("no JSON can be made: {error}"), ""))
}
