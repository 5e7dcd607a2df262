//! Where a worker's time goes: read from the cycle counter between the stages of a batch, or, in a model, added up from
//! what each stage is known to cost. Off, it is one test per stage and batch; nothing is ever read per packet.

use braid_nf::packet::key::SetKey;
use braid_stm::{Access, Tx};

use crate::virtual_time::VirtualWorker;

mod fit;
mod split;

pub use fit::Fit;
pub use split::{Lap, StageTime, TimeSplit};

/// A part of a batch's way through a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From the source into the batch.
    Receive,
    /// Headers parsed, time noted.
    Parse,
    /// Keys and packet sets for the function at this position.
    LookUp(usize),
    /// Handlers of the function at this position.
    Handlers(usize),
    /// The commit of what they did.
    Commit(usize),
    /// To the sink.
    Send,
    /// Packet sets that ended, and periods.
    Expire,
    /// Nothing came.
    Idle,
}

/// What attempts a calibration asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// Transactions take on many packets and few, by turns: so what a commit costs by itself can be told from what it costs for each
    /// access.
    OfAllLengths,
    /// Every packet's first attempt that changes something shared is refused: so `handlers_fit` has what second ones take.
    Second,
}

/// What a worker's stages report to.
#[derive(Debug, Default)]
pub enum Probe {
    /// Nobody asks.
    #[default]
    Off,
    /// A profile.
    Split(Box<TimeSplit>),
    /// A model.
    Virtual(VirtualWorker),
    /// A packet is traced: what the last attempt that handled it has touched.
    Accesses(Vec<Access>),
}

impl Probe {
    /// Whether anybody asks.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !matches!(self, Probe::Off)
    }

    /// The profile so far.
    pub fn split(&self) -> Option<&TimeSplit> {
        if let Probe::Split(split) = self { Some(split) } else { None }
    }

    /// The worker begins.
    pub fn begin(&mut self) {
        if let Probe::Split(split) = self {
            split.begin();
        }
    }

    /// A span has ended that concerned so many packets.
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

    /// Handlers of the function at `stage` have run over `packets` packets, and the transaction is about to commit.
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

    /// Whether this attempt shall fail, so that the profile shows what the next one takes: the first one of each packet, if it
    /// changes something shared.
    #[inline(always)]
    pub fn refuses(&mut self, is_first: bool, tx: &Tx) -> bool {
        self.is_on() && self.refuses_one(is_first, tx)
    }

    #[cold]
    #[inline(never)]
    fn refuses_one(&mut self, is_first: bool, tx: &Tx) -> bool {
        if let Probe::Split(split) = self { split.refuses(is_first, tx) } else { false }
    }

    /// How many packets the next transaction may take on.
    #[inline(always)]
    pub fn length_max(&mut self) -> usize {
        if self.is_on() { self.length() } else { usize::MAX }
    }

    #[cold]
    #[inline(never)]
    fn length(&mut self) -> usize {
        if let Probe::Split(split) = self { split.length() } else { usize::MAX }
    }

    /// The commit failed: what the handlers of the function at `stage` did with the last `packets` packets was for nothing.
    #[cold]
    pub fn aborted(&mut self, stage: usize, packets: usize) {
        match self {
            Probe::Split(split) => split.waste(stage, packets),
            Probe::Virtual(worker) => worker.aborted(packets),
            Probe::Off | Probe::Accesses(_) => {}
        }
    }

    /// A packet has met a conflict within its handler, and begins again.
    #[cold]
    pub fn interrupted(&mut self) {
        if let Probe::Virtual(worker) = self {
            worker.aborted(1);
        }
    }

    /// Notes the batch's time and one of its packet sets, taken in turn.
    #[cold]
    pub fn sample(&mut self, packets: usize, now_ns: u64, key: impl FnOnce(usize) -> SetKey) {
        if let Probe::Split(split) = self {
            split.sample(packets, now_ns, key);
        }
    }
}
