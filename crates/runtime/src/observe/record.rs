//! What happened in a run, in commit order: the raw material of a certificate.

use std::any::Any;

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, Pass, Tick, Verdict, Verdicts};
use braid_packet::{Batch, FrameInfo, Port};
use braid_state::Tx;

use crate::attempt::{End, Witness};
use crate::chain::course::Direction;

/// One packet as the source delivered it, or as a function made it for further functions.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Port, time stamp, length on the wire, number in the source.
    pub info: FrameInfo,
    /// Its verdict if no function decides.
    pub expected: Verdict,
}

/// The result for one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The final verdict.
    pub verdict: Verdict,
    /// Its bytes; empty if it was dropped.
    pub bytes: Vec<u8>,
    /// Packets that handlers made because of it.
    pub emitted: Vec<(Port, Vec<u8>)>,
}

/// What one transaction did.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Handlers of one function ran on packets of a batch.
    Handled {
        /// Number of the batch on its worker.
        batch: usize,
        /// Position of the function.
        stage: usize,
        /// Indices in the batch.
        packets: Vec<u16>,
        /// Their times in nanoseconds.
        now_ns: Vec<u64>,
    },
    /// A packet passed through the whole chain.
    Through {
        /// Number of the batch on its worker.
        batch: usize,
        /// Index in the batch.
        packet: u16,
        /// The order in which it met the functions.
        direction: Direction,
        /// Its time in nanoseconds.
        now_ns: u64,
    },
    /// Packet sets ended.
    Expired {
        /// Position of the function.
        stage: usize,
        /// The sets, at least one.
        keys: Vec<SetKey>,
        /// Why they ended.
        end: End,
        /// When, in nanoseconds.
        now_ns: u64,
    },
    /// A periodic tick was handled.
    Ticked {
        /// Position of the function.
        stage: usize,
        /// Which of its periods, and which share of the work.
        tick: Tick,
        /// When, in nanoseconds.
        now_ns: u64,
    },
}

impl Deed {
    /// The position of the function; 0, that of the first, for a packet that passed through the whole chain.
    pub fn stage(&self) -> usize {
        match self {
            Deed::Handled { stage, .. } | Deed::Expired { stage, .. } | Deed::Ticked { stage, .. } => *stage,
            Deed::Through { .. } => 0,
        }
    }

    /// The number of the batch, if the transaction handled packets.
    pub(crate) fn batch(&self) -> Option<usize> {
        match self {
            Deed::Handled { batch, .. } | Deed::Through { batch, .. } => Some(*batch),
            Deed::Expired { .. } | Deed::Ticked { .. } => None,
        }
    }
}

/// One committed transaction.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its place in the commit order of the whole run.
    pub sequence: u64,
    /// The worker that committed it.
    pub worker: usize,
    /// What it did.
    pub deed: Deed,
    /// Choices that the state does not determine: which resource was handed out, that a table was full.
    pub choices: Vec<u64>,
    /// Packets made by an expiry or a tick; packets caused by other packets are recorded in their batch.
    pub made: Vec<(Port, Vec<u8>)>,
}

/// One batch of a worker.
#[derive(Clone, Debug, Default)]
pub struct RecordedBatch {
    /// The packets as received, or as functions made them.
    pub inputs: Vec<Input>,
    /// The packets as sent, one output per input.
    pub outputs: Vec<Output>,
    /// The packets are answers on their way back.
    pub goes_back: bool,
}

/// Everything that one worker did.
#[derive(Clone, Debug, Default)]
pub struct WorkerLog {
    /// Its transactions.
    pub entries: Vec<Entry>,
    /// Its batches.
    pub batches: Vec<RecordedBatch>,
}

/// Records everything that one worker does.
#[derive(Debug)]
pub struct Recorder {
    worker: usize,
    log: WorkerLog,
}

impl Recorder {
    /// Creates a recorder for a worker, whose transaction must be recording too.
    pub fn new(worker: usize) -> Recorder {
        Recorder { worker, log: WorkerLog::default() }
    }

    /// Returns what has been recorded.
    pub fn into_log(self) -> WorkerLog {
        self.log
    }

    fn note(&mut self, tx: &Tx, sequence: u64, deed: Deed) {
        let choices = tx.recorded_choices().to_vec();
        self.log.entries.push(Entry { sequence, worker: self.worker, deed, choices, made: Vec::new() });
    }
}

impl Witness for Recorder {
    fn committed(&mut self, pass: &mut Pass<'_>, stage: usize, from: usize, to: usize, sequence: u64) {
        let packets = pass.todo[from..to].to_vec();
        if packets.is_empty() {
            return;
        }
        let now_ns = packets.iter().map(|&i| pass.now_ns[i as usize]).collect();
        let batch = self.log.batches.len() - 1;
        self.note(pass.tx, sequence, Deed::Handled { batch, stage, packets, now_ns });
    }

    fn went_through(&mut self, tx: &mut Tx, packet: u16, direction: Direction, now_ns: u64, sequence: u64) {
        let batch = self.log.batches.len() - 1;
        self.note(tx, sequence, Deed::Through { batch, packet, direction, now_ns });
    }

    fn expired(
        &mut self,
        tx: &mut Tx,
        stage: usize,
        keys: &mut dyn Iterator<Item = SetKey>,
        end: End,
        now_ns: u64,
        sequence: u64,
    ) {
        self.note(tx, sequence, Deed::Expired { stage, keys: keys.collect(), end, now_ns });
    }

    fn ticked(&mut self, tx: &mut Tx, stage: usize, tick: Tick, now_ns: u64, sequence: u64) {
        self.note(tx, sequence, Deed::Ticked { stage, tick, now_ns });
    }

    fn made(&mut self, emitted: &Emitted, from: usize) {
        if let Some(last) = self.log.entries.last_mut() {
            last.made = made(emitted, from);
        }
    }

    fn received(&mut self, batch: &Batch, verdicts: &Verdicts) {
        let input = |i: usize| {
            let record = &batch.records()[i];
            let info = FrameInfo {
                port: record.port,
                link: record.flags.link(),
                timestamp_ns: batch.timestamp_ns(i),
                wire_len: batch.wire_len(i),
                sequence: batch.sequence(i),
            };
            Input { bytes: batch.bytes(i).to_vec(), info, expected: verdicts.get(i) }
        };
        let inputs = (0..batch.len()).map(input).collect();
        self.log.batches.push(RecordedBatch { inputs, ..RecordedBatch::default() });
    }

    fn goes_back(&mut self) {
        if let Some(last) = self.log.batches.last_mut() {
            last.goes_back = true;
        }
    }

    fn finished(&mut self, batch: &Batch, verdicts: &Verdicts, emitted: &Emitted) {
        if let Some(last) = self.log.batches.last_mut() {
            last.outputs = outputs(batch, verdicts, emitted);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The packets that handlers made, from position `from` on.
pub(crate) fn made(emitted: &Emitted, from: usize) -> Vec<(Port, Vec<u8>)> {
    emitted.sent_from(from).map(|(_, port, bytes)| (port, bytes.to_vec())).collect()
}

/// The result for each packet of a batch.
pub(crate) fn outputs(batch: &Batch, verdicts: &Verdicts, emitted: &Emitted) -> Vec<Output> {
    let output = |i: usize| {
        let bytes = if verdicts.is_drop(i) { Vec::new() } else { batch.bytes(i).to_vec() };
        let own = emitted.sent_from(0).filter(|(cause, _, _)| *cause as usize == i);
        Output {
            verdict: verdicts.get(i),
            bytes,
            emitted: own.map(|(_, port, bytes)| (port, bytes.to_vec())).collect(),
        }
    };
    (0..batch.len()).map(output).collect()
}
