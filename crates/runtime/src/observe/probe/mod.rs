//! Where a worker's time goes: read from the cycle counter between the stages of a batch or, in a model, computed from the known cost of
//! each stage. When off, it costs one test per stage and batch; nothing is ever read per packet.

use braid_nf::packet::key::SetKey;
use braid_stm::{Access, Tx};

use crate::model::virtual_time::VirtualWorker;

mod fit;
mod split;

pub use self::fit::Fit;
pub use self::split::{Lap, StageTime, TimeSplit};

/// A part of a worker's batch loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Receiving packets from the source into the batch.
    Receive,
    /// Parsing headers and stamping times.
    Parse,
    /// Extracting keys and looking up packet sets for the function at this position.
    LookUp(usize),
    /// Running the handlers of the function at this position.
    Handlers(usize),
    /// Committing what these handlers did.
    Commit(usize),
    /// Sending to the sink.
    Send,
    /// Expiry of packet sets, and ticks.
    Expire,
    /// An empty receive.
    Idle,
}

/// Which attempts a calibration measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// Transactions alternately cover many packets and few, so that the fixed cost of a commit can be told from its cost per
    /// access.
    OfAllLengths,
    /// The first attempt of every packet that writes shared state is refused, so that `handlers_fit` measures second attempts.
    Second,
}

/// What the stages of a worker report to.
#[derive(Debug, Default)]
pub enum Probe {
    /// Nothing is measured.
    #[default]
    Off,
    /// A profile.
    Split(Box<TimeSplit>),
    /// A model.
    Virtual(VirtualWorker),
    /// A packet is being traced: the accesses of the last attempt that handled it.
    Accesses(Vec<Access>),
}

impl Probe {
    /// Whether anything is measured.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !matches!(self, Probe::Off)
    }

    /// The profile so far.
    pub fn split(&self) -> Option<&TimeSplit> {
        if let Probe::Split(split) = self { Some(split) } else { None }
    }

    /// Starts measuring when the worker begins.
    pub fn begin(&mut self) {
        if let Probe::Split(split) = self {
            split.begin();
        }
    }

    /// Reports that a span which handled `packets` packets has ended.
    #[inline(always)]
    pub fn passed(&mut self, span: Span, packets: usize) {
        if self.is_on() {
            self.note(span, packets);
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&mut self, span: Span, packets: usize) {
        match self {
            Probe::Off | Probe::Accesses(_) => {}
            Probe::Split(split) => split.lap(span, packets),
            Probe::Virtual(worker) => worker.passed(span, packets),
        }
    }

    /// Reports that handlers of the function at `stage` have run over `packets` packets and the transaction is about to commit.
    #[inline(always)]
    pub fn executed(&mut self, stage: usize, packets: usize, tx: &Tx) {
        if self.is_on() {
            if let Probe::Split(split) = self {
                split.touch(stage, tx);
            }
            if let Probe::Accesses(accesses) = self
                && packets > 0
            {
                *accesses = tx.accesses();
            }
            self.note(Span::Handlers(stage), packets);
        }
    }

    /// Whether this attempt is to fail so that the profile measures the next one: the first attempt of each packet, if it writes shared
    /// state.
    #[inline(always)]
    pub fn refuses(&mut self, is_first: bool, tx: &Tx) -> bool {
        self.is_on() && self.refuses_one(is_first, tx)
    }

    #[cold]
    #[inline(never)]
    fn refuses_one(&mut self, is_first: bool, tx: &Tx) -> bool {
        if let Probe::Split(split) = self { split.refuses(is_first, tx) } else { false }
    }

    /// The maximum number of packets in the next transaction.
    #[inline(always)]
    pub fn length_max(&mut self) -> usize {
        if self.is_on() { self.length() } else { usize::MAX }
    }

    #[cold]
    #[inline(never)]
    fn length(&mut self) -> usize {
        if let Probe::Split(split) = self { split.length() } else { usize::MAX }
    }

    /// Reports a failed commit: the work of the handlers of the function at `stage` on the last `packets` packets was wasted.
    #[cold]
    pub fn aborted(&mut self, stage: usize, packets: usize) {
        match self {
            Probe::Split(split) => split.waste(stage, packets),
            Probe::Virtual(worker) => worker.aborted(packets),
            Probe::Off | Probe::Accesses(_) => {}
        }
    }

    /// Reports that a packet met a conflict in its handler and starts again.
    #[cold]
    pub fn interrupted(&mut self) {
        if let Probe::Virtual(worker) = self {
            worker.aborted(1);
        }
    }

    /// Notes the batch's time, and one of its packet sets as a sample.
    #[cold]
    pub fn sample(&mut self, packets: usize, now_ns: u64, key: impl FnOnce(usize) -> SetKey) {
        if let Probe::Split(split) = self {
            split.sample(packets, now_ns, key);
        }
    }
}
