//! What a worker is made of.

use std::sync::Arc;

use braid_io::{RxQueue, TxQueue};
use braid_memory::HugePages;
use braid_packet::Pool;
use braid_state::{Share, Tx};

use crate::chain::Chain;
use crate::clock::{Clock, Timeline};

/// What it is given at the start.
pub struct Parts {
    /// Its number, from 0.
    pub id: usize,
    /// The functions.
    pub chain: Arc<Chain>,
    /// Buffers of the run.
    pub pool: Arc<Pool>,
    /// Where packets come from.
    pub receive: Box<dyn RxQueue>,
    /// Where packets go.
    pub send: Box<dyn TxQueue>,
    /// Its transaction.
    pub tx: Tx,
    /// Time.
    pub clock: Clock,
    /// Everybody's time.
    pub timeline: Arc<Timeline>,
    /// Ports of the plan.
    pub ports: u16,
    /// Most packets in a batch.
    pub batch: usize,
    /// Packet sets per group that this worker may keep.
    pub sets: usize,
    /// Pages for its tables.
    pub pages: HugePages,
}

impl Parts {
    /// What it does of work that all workers divide.
    pub(super) fn share(&self) -> Share {
        Share::new(self.id, self.timeline.workers())
    }
}
