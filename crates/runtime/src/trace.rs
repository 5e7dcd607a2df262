//! Packets followed through the chain, step by step: what each function saw, changed, read, wrote and decided.
//!
//! A worker with a [`Tracer`] asks the filter about every packet of a batch. A function's pass over a batch that holds a
//! wanted packet is cut: the packets before it, the packet alone in a transaction of its own, the packets behind it. So what
//! the transaction has touched is what that packet touched. Nothing else changes: order, answers and state are those of an
//! ordinary run. Where a packet's whole way is one transaction nothing is cut (`whole/followed.rs`). Without a
//! tracer it costs a worker two tests per batch.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, SetSlot, SetTables, Stage, Verdict, Verdicts};
use braid_packet::{Batch, Link, Port};
use braid_stm::Access;

/// Which packets are wanted: bytes, link kind, port of entry.
pub type Wanted = dyn Fn(&[u8], Link, Port) -> bool + Send + Sync;

/// What is to be traced; shared by all workers.
#[derive(Clone)]
pub struct TraceOrder {
    /// Which packets.
    pub wanted: Arc<Wanted>,
    /// How many more; all workers count it down.
    pub left: Arc<AtomicU64>,
    /// Where they go. If nobody takes them as fast, packets go untraced.
    pub into: SyncSender<Traced>,
}

impl fmt::Debug for TraceOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceOrder").field("left", &self.left).finish_non_exhaustive()
    }
}

impl TraceOrder {
    /// Takes one of those that are left.
    fn take(&self) -> bool {
        // Relaxed: only the number counts.
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// A packet's way through the chain.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Who handled it.
    pub worker: usize,
    /// Its number in the source, if the run carries it.
    pub sequence: u64,
    /// Its time.
    pub now_ns: u64,
    /// Port by which it came.
    pub port: Port,
    /// Kind of its link.
    pub link: Link,
    /// As it came.
    pub input: Vec<u8>,
    /// Functions that it reached, in order.
    pub steps: Vec<TracedStep>,
    /// What was decided in the end.
    pub verdict: Verdict,
    /// As it left; also there if it was dropped.
    pub output: Vec<u8>,
}

/// What one function did with a packet.
#[derive(Clone, Debug)]
pub struct TracedStep {
    /// Position of the function.
    pub stage: usize,
    /// Its name.
    pub function: String,
    /// Its packet set, if the function has sets and the packet is in one.
    pub key: Option<SetKey>,
    /// State of the set before, if it was live for the function and this worker keeps it.
    pub set_before: Option<Vec<u8>>,
    /// The same afterwards.
    pub set_after: Option<Vec<u8>>,
    /// Bytes of the packet before.
    pub before: Vec<u8>,
    /// Bytes afterwards.
    pub after: Vec<u8>,
    /// What has been decided so far.
    pub verdict: Verdict,
    /// Accesses of state objects by the attempt that was committed.
    pub accesses: Vec<Access>,
    /// Attempts that were taken back.
    pub aborts: u64,
    /// Packets that the function made because of it.
    pub emitted: Vec<(Port, Vec<u8>)>,
}

/// A worker's traced packets of the current batch.
#[derive(Debug)]
pub struct Tracer {
    order: TraceOrder,
    /// Index in the batch.
    packets: Vec<(u16, Traced)>,
}

impl Tracer {
    /// Carries out an order.
    pub fn new(order: TraceOrder) -> Tracer {
        Tracer { order, packets: Vec::new() }
    }

    /// Whether as many were traced as were wanted.
    pub fn is_done(&self) -> bool {
        self.packets.is_empty() && self.order.left.load(Ordering::Relaxed) == 0
    }

    /// Chooses packets of a new batch.
    pub(crate) fn select(&mut self, worker: usize, batch: &Batch, now_ns: &[u64; 256]) {
        self.packets.clear();
        for (i, record) in batch.records().iter().enumerate() {
            let (bytes, link) = (batch.bytes(i), record.flags.link());
            if !(self.order.wanted)(bytes, link, record.port) || !self.order.take() {
                continue;
            }
            let traced = Traced {
                worker,
                sequence: batch.sequence(i),
                now_ns: now_ns[i & 255],
                port: record.port,
                link,
                input: bytes.to_vec(),
                steps: Vec::new(),
                verdict: Verdict::Onward,
                output: Vec::new(),
            };
            self.packets.push((i as u16, traced));
        }
    }

    /// Whether a packet of the current batch is traced.
    pub(crate) fn follows(&self, i: u16) -> bool {
        self.packets.iter().any(|(traced, _)| *traced == i)
    }

    /// A function has handled a packet.
    pub(crate) fn note(&mut self, i: u16, step: TracedStep) {
        if let Some((_, traced)) = self.packets.iter_mut().find(|(traced, _)| *traced == i) {
            traced.steps.push(step);
        }
    }

    /// The batch is about to be sent.
    pub(crate) fn finish(&mut self, batch: &Batch, verdicts: &Verdicts) {
        for (i, mut traced) in self.packets.drain(..) {
            traced.verdict = verdicts.get(usize::from(i));
            traced.output = batch.bytes(usize::from(i)).to_vec();
            // Full: whoever asked is slower than packets come. Gone: nobody asks any more.
            let _ = self.order.into.try_send(traced);
        }
    }
}

/// State of the set at a place for a function, if it is live for it and this worker keeps it.
pub(crate) fn state_of(stage: &dyn Stage, tables: &mut SetTables, at: SetSlot) -> Option<Vec<u8>> {
    if stage.is_shared() || at == SetSlot::MISS || tables.meta_mut(at).live & stage.place().bit == 0 {
        return None;
    }
    let states = tables.state_bytes(at);
    states.get(stage.place().offset..stage.place().offset + stage.set_bytes()).map(<[u8]>::to_vec)
}

/// Packets among `emitted` from `from` on that packet `i` caused.
pub(crate) fn emitted_by(emitted: &Emitted, from: usize, i: u16) -> Vec<(Port, Vec<u8>)> {
    let own = emitted.iter().skip(from).filter(|(cause, ..)| *cause == i);
    own.map(|(_, port, bytes)| (port, bytes.to_vec())).collect()
}
