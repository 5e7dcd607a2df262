//! The passive description of a run: what [`launch`](crate::launch()) makes live.

use std::sync::Arc;
use std::time::Duration;

use braid_memory::HugePages;
use braid_nf::Stage;
use braid_nf::state::StateBuilder;
use braid_packet::fields::StageUse;
use braid_steer::reta::imbalance;
use braid_steer::{Fields, Reta, Steering, Symmetry, toeplitz};

use crate::balance::Balance;
use crate::course::Course;

/// Why a function cannot be built; the text says what to write instead.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{function}: {reason}")]
pub struct BuildError {
    /// Its name in the plan.
    pub function: String,
    /// What is wrong.
    pub reason: String,
}

/// Builds the functions of the chain with fresh state; called once per run, and once more to replay one.
pub type BuildChain = dyn Fn(&mut StateBuilder) -> Result<Vec<Box<dyn Stage>>, BuildError> + Send + Sync;

/// How packets come to their workers. The result is the same; the cost is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// The source splits its packets into one queue per worker, as a network card does.
    #[default]
    Hardware,
    /// One more thread receives, and hands packets on through rings.
    Software,
}

/// Which time the functions see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The packets' time stamps.
    #[default]
    Capture,
    /// The machine's clock.
    Live,
}

/// Everything a run needs besides a source and a sink.
#[derive(Clone)]
pub struct Plan {
    /// Builds the functions.
    pub build: Arc<BuildChain>,
    /// Ports, numbered from 0.
    pub ports: u16,
    /// Worker threads.
    pub workers: usize,
    /// Most packets in a batch.
    pub batch: usize,
    /// Packet sets that one group of functions may keep, over all workers.
    pub sets: usize,
    /// Buffers of the pool; 0: enough for the workers' batches.
    pub buffers: usize,
    /// Pages for buffers, tables and objects.
    pub pages: HugePages,
    /// Which time the functions see.
    pub time: Time,
    /// How packets come to workers.
    pub distribution: Distribution,
    /// Which packet comes to which worker.
    pub steering: Arc<Steering>,
    /// Which packets meet which functions, and in which order.
    pub course: Course,
    /// Metadata that source and sink write and read.
    pub own_fields: Vec<StageUse>,
    /// Longest time for which a worker gathers packets into a batch that is not full. It does so only while as many come that it
    /// is worth it (`gather.rs` says when). Zero: it takes what is there.
    pub gather: Duration,
    /// Workers handle packets in the order of their numbers in the input, one after another; these have to be carried.
    pub in_order: bool,
    /// Load is moved between workers; with software distribution only.
    pub balance: Option<Balance>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("ports", &self.ports)
            .field("workers", &self.workers)
            .field("batch", &self.batch)
            .field("sets", &self.sets)
            .field("time", &self.time)
            .field("distribution", &self.distribution)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// A small one for tests to change: two ports, connections steered one way, functions that see the capture's time, which goes with
    /// each packet from source to sink, as its number does.
    pub fn for_tests(workers: usize, build: Arc<BuildChain>) -> Plan {
        let reta = Reta::new(256, workers).expect("a power of two, and no more workers");
        let key = toeplitz::Key::microsoft();
        let steering = Steering::new(Fields::FOUR_TUPLE, Symmetry::OneWay, &key, reta).expect("four fields fit");
        Plan {
            build,
            ports: 2,
            workers,
            batch: 32,
            sets: 64,
            buffers: 0,
            pages: HugePages::Never,
            time: Time::Capture,
            distribution: Distribution::Hardware,
            steering: Arc::new(steering),
            course: Course::default(),
            own_fields: vec![
                StageUse::new("source").writes("timestamp_ns", 8).writes("sequence", 8),
                StageUse::new("sink").reads("timestamp_ns", 8).reads("sequence", 8),
            ],
            gather: Duration::ZERO,
            in_order: false,
            balance: None,
        }
    }

    /// Buffers of its pool, without those that a source wants besides.
    pub fn own_buffers(&self) -> usize {
        if self.buffers == 0 { self.workers * 4 * self.batch.max(64) + 8192 } else { self.buffers }
    }

    /// Packet sets of one group that one worker may keep: the largest share that the indirection table gives to one, and what chance
    /// may add to it, a twelfth or four standard deviations; where load is moved between workers, a quarter.
    pub fn sets_per_worker(&self) -> usize {
        self.share_of(self.sets)
    }

    /// The fewest packet sets of all workers, in thousands, of which one worker may keep so many.
    pub(crate) fn sets_for(&self, live: usize) -> usize {
        let (mut first, mut last) = (1, live.saturating_mul(self.workers).div_ceil(1000) + 1);
        while first < last {
            let middle = first.midpoint(last);
            if self.share_of(middle * 1000) < live { first = middle + 1 } else { last = middle }
        }
        last * 1000
    }

    fn share_of(&self, sets: usize) -> usize {
        if self.workers <= 1 {
            return sets;
        }
        let reta = self.steering.reta();
        let uneven = imbalance(&reta.load(&vec![1; reta.entries().len()]));
        let share = ((sets / self.workers) as f64 * uneven) as usize;
        let spare = if self.balance.is_some() { share / 4 } else { (share / 12).max(4 * share.isqrt()) };
        (share + spare).max(64)
    }
}
