//! The passive description of a run, which [`launch`](crate::launch()) makes live.

use std::sync::Arc;
use std::time::Duration;

use braid_memory::HugePages;
use braid_nf::Stage;
use braid_nf::state::StateBuilder;
use braid_packet::fields::StageUse;
use braid_steer::reta::imbalance;
use braid_steer::{Fields, Reta, Steering, Symmetry, toeplitz};

use crate::balance::Balance;
use crate::chain::course::Course;

/// Why a function cannot be built; the text says what to write instead.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{function}: {reason}")]
pub struct BuildError {
    /// The function's name in the plan.
    pub function: String,
    /// What is wrong.
    pub reason: String,
}

/// Builds the functions of the chain with fresh state; called once per run, and once more for each replay.
pub type BuildChain = dyn Fn(&mut StateBuilder) -> Result<Vec<Box<dyn Stage>>, BuildError> + Send + Sync;

/// How packets reach their workers. The results are the same; the costs differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// The source splits its packets into one queue per worker, as a network card does.
    #[default]
    Hardware,
    /// An additional thread receives packets and passes them on to the workers through rings.
    Software,
}

/// The time that functions see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The packets' time stamps.
    #[default]
    Capture,
    /// The machine's clock.
    Live,
}

/// Everything a run needs apart from a source and a sink.
#[derive(Clone)]
pub struct Plan {
    /// Builds the functions.
    pub build: Arc<BuildChain>,
    /// Number of ports, numbered from 0.
    pub ports: u16,
    /// Number of worker threads.
    pub workers: usize,
    /// Maximum number of packets in a batch.
    pub batch: usize,
    /// Packet sets that one group of functions may keep, over all workers.
    pub sets: usize,
    /// Number of buffers in the pool; 0 selects enough for the workers' batches.
    pub buffers: usize,
    /// Page size for buffers, tables and objects.
    pub pages: HugePages,
    /// The time that functions see.
    pub time: Time,
    /// How packets reach the workers.
    pub distribution: Distribution,
    /// Which packet belongs to which worker.
    pub steering: Arc<Steering>,
    /// Which functions packets meet, and in which order.
    pub course: Course,
    /// Metadata fields that source and sink write and read.
    pub own_fields: Vec<StageUse>,
    /// Longest time for which a worker gathers packets into a batch that is not full. It gathers only while enough packets arrive to make it
    /// worthwhile (see `gather.rs`). Zero disables gathering.
    pub gather: Duration,
    /// Workers handle packets in the order of their numbers in the input, one at a time; the metadata must carry these numbers.
    pub in_order: bool,
    /// Moves load between workers; only with software distribution.
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
    /// A small plan for tests to modify: two ports, connections steered by direction, and the capture's time; each packet carries its time stamp
    /// and number from source to sink.
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

    /// Buffers of the pool, not counting those that the source needs in addition.
    pub fn own_buffers(&self) -> usize {
        if self.buffers == 0 { self.workers * 4 * self.batch.max(64) + 8192 } else { self.buffers }
    }

    /// Packet sets of one group that one worker may keep: the largest share that the indirection table gives to one worker, plus a margin for chance
    /// of a twelfth or four standard deviations. Where load is moved between workers, the margin is a quarter.
    pub fn sets_per_worker(&self) -> usize {
        self.share_of(self.sets)
    }

    /// The smallest multiple of 1000 that, as [`sets`](Plan::sets) of a plan, lets one worker keep `live` sets.
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
