//! Packets followed through the chain, step by step: what each function saw, changed, read, wrote and decided.
//!
//! A worker with a [`Tracer`] applies its filter to every packet of a batch. A function's pass over a batch with a wanted packet is split:
//! the packets before it, the packet alone in a transaction of its own, the packets after it. So what the transaction has accessed is what
//! that packet accessed. Nothing else changes: order, results and state are those of an ordinary run. Where a packet passes through
//! the whole chain in one transaction, nothing is split (`whole/followed.rs`). Without a tracer a worker pays two tests per batch.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, SetSlot, SetTables, Stage, Verdict, Verdicts};
use braid_packet::{Batch, Link, Port};
use braid_stm::Access;

/// The filter for packets to trace: bytes, link type, port of arrival.
pub type Wanted = dyn Fn(&[u8], Link, Port) -> bool + Send + Sync;

/// A request to trace packets, shared by all workers.
#[derive(Clone)]
pub struct TraceOrder {
    /// Which packets to trace.
    pub wanted: Arc<Wanted>,
    /// The number of packets yet to trace; all workers decrement it.
    pub left: Arc<AtomicU64>,
    /// The channel for traced packets. If it is full, packets go untraced.
    pub into: SyncSender<Traced>,
}

impl fmt::Debug for TraceOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceOrder").field("left", &self.left).finish_non_exhaustive()
    }
}

impl TraceOrder {
    /// Claims one of the remaining packets; returns false if none remain.
    fn take(&self) -> bool {
        // Relaxed: only the number matters.
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// A packet's passage through the chain.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The worker that handled it.
    pub worker: usize,
    /// Its number in the source, if the run carries it.
    pub sequence: u64,
    /// Its time in nanoseconds.
    pub now_ns: u64,
    /// The port on which it arrived.
    pub port: Port,
    /// The type of its link.
    pub link: Link,
    /// Its bytes on arrival.
    pub input: Vec<u8>,
    /// The functions that it reached, in order.
    pub steps: Vec<TracedStep>,
    /// The final verdict.
    pub verdict: Verdict,
    /// Its bytes at the end; present even if it was dropped.
    pub output: Vec<u8>,
}

/// What one function did with a packet.
#[derive(Clone, Debug)]
pub struct TracedStep {
    /// Position of the function.
    pub stage: usize,
    /// Name of the function.
    pub function: String,
    /// The packet set, if the function has sets and the packet belongs to one.
    pub key: Option<SetKey>,
    /// State of the set before, if it was live for the function and is kept by this worker.
    pub set_before: Option<Vec<u8>>,
    /// State of the set afterwards, under the same conditions.
    pub set_after: Option<Vec<u8>>,
    /// Bytes of the packet before.
    pub before: Vec<u8>,
    /// Bytes of the packet afterwards.
    pub after: Vec<u8>,
    /// The verdict so far.
    pub verdict: Verdict,
    /// Accesses to state objects by the attempt that committed.
    pub accesses: Vec<Access>,
    /// Number of attempts that were rolled back.
    pub aborts: u64,
    /// Packets that the function made because of it.
    pub emitted: Vec<(Port, Vec<u8>)>,
}

/// A worker's traced packets of the current batch.
#[derive(Debug)]
pub struct Tracer {
    order: TraceOrder,
    /// Index in the batch, and the packet.
    packets: Vec<(u16, Traced)>,
}

impl Tracer {
    /// Creates a tracer for an order.
    pub fn new(order: TraceOrder) -> Tracer {
        Tracer { order, packets: Vec::new() }
    }

    /// Whether as many packets were traced as requested.
    pub fn is_done(&self) -> bool {
        self.packets.is_empty() && self.order.left.load(Ordering::Relaxed) == 0
    }

    /// Selects the packets to trace from a new batch.
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

    /// Adds a function's step to a traced packet.
    pub(crate) fn note(&mut self, i: u16, step: TracedStep) {
        if let Some((_, traced)) = self.packets.iter_mut().find(|(traced, _)| *traced == i) {
            traced.steps.push(step);
        }
    }

    /// Completes the traced packets of a batch that is about to be sent.
    pub(crate) fn finish(&mut self, batch: &Batch, verdicts: &Verdicts) {
        for (i, mut traced) in self.packets.drain(..) {
            traced.verdict = verdicts.get(usize::from(i));
            traced.output = batch.bytes(usize::from(i)).to_vec();
            // If the channel is full, the receiver is slower than the packets; if it is closed, no receiver is left.
            let _ = self.order.into.try_send(traced);
        }
    }
}

/// State of the set in a slot for a function, if it is live for the function and kept by this worker.
pub(crate) fn state_of(stage: &dyn Stage, tables: &mut SetTables, at: SetSlot) -> Option<Vec<u8>> {
    if stage.is_shared() || at == SetSlot::MISS || tables.meta_mut(at).live & stage.place().bit == 0 {
        return None;
    }
    let states = tables.state_bytes(at).to_vec();
    states.get(stage.place().offset..stage.place().offset + stage.set_bytes()).map(<[u8]>::to_vec)
}

/// The packets in `emitted`, from position `from` on, that packet `i` caused.
pub(crate) fn emitted_by(emitted: &Emitted, from: usize, i: u16) -> Vec<(Port, Vec<u8>)> {
    let own = emitted.sent_from(from).filter(|(cause, ..)| *cause == i);
    own.map(|(_, port, bytes)| (port, bytes.to_vec())).collect()
}
