//! The parts a worker is built from.

use std::sync::Arc;

use braid_io::{RxQueue, TxQueue};
use braid_memory::HugePages;
use braid_packet::Pool;
use braid_state::{Share, Tx};

use crate::chain::Chain;
use crate::pacing::clock::{Clock, Timeline};

/// What a worker is given at the start.
pub struct Parts {
    /// The worker's number, from 0.
    pub id: usize,
    /// The chain of functions.
    pub chain: Arc<Chain>,
    /// The buffer pool of the run.
    pub pool: Arc<Pool>,
    /// The queue that packets are received from.
    pub receive: Box<dyn RxQueue>,
    /// The queue that packets are sent to.
    pub send: Box<dyn TxQueue>,
    /// The worker's transaction.
    pub tx: Tx,
    /// The clock that stamps packets.
    pub clock: Clock,
    /// The times of all workers.
    pub timeline: Arc<Timeline>,
    /// The number of ports in the plan.
    pub ports: u16,
    /// Maximum number of packets in a batch.
    pub batch: usize,
    /// Maximum number of packet sets per group on this worker.
    pub sets: usize,
    /// Page size for the worker's tables.
    pub pages: HugePages,
}

impl Parts {
    /// This worker's share of work that is divided among all workers.
    pub(super) fn share(&self) -> Share {
        Share::new(self.id, self.timeline.workers())
    }
}
