//! What the runtime sees of everything that delivers packets.

use std::path::PathBuf;
use std::sync::Arc;

use braid_packet::{Batch, Buffers, Link, Pool, PoolConfig, Port};

use crate::capture::{Damage, classic};
use crate::progress::Progress;

/// Chooses the receive queue of a frame, as a network card's receive-side scaling does.
pub trait QueueSelect: Send + Sync {
    /// Number of the queue; the source takes anything beyond its last queue for its last queue.
    fn queue(&self, frame: &[u8], link: Link, port: Port) -> usize;
}

/// Everything goes to the first queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstQueue;

impl QueueSelect for FirstQueue {
    fn queue(&self, _: &[u8], _: Link, _: Port) -> usize {
        0
    }
}

/// What came of one [`RxQueue::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// At least one packet was added to the batch.
    Packets,
    /// Nothing now, perhaps later.
    Idle,
    /// Nothing any more.
    End,
}

/// What a queue has delivered, and what it could not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Packets put into batches.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Frames left out because no buffer is long enough.
    pub too_long: u64,
    /// Frames taken away on purpose by a wrapper.
    pub injected_loss: u64,
    /// Frames that a device dropped before they reached us, because nobody took them in time.
    pub missed: u64,
    /// Frames that came to this queue and were handed on to another one, whose they are as the plan steers.
    pub handed_on: u64,
}

/// What a file that is no capture begins with.
fn beginning(start: &[u8]) -> String {
    match start {
        [] => "nothing is in it".to_owned(),
        start if classic::begins(start) => "it ends within its header".to_owned(),
        start => format!("it begins with `{}`, not as pcap or pcapng does", start.escape_ascii()),
    }
}

/// Why a source or sink could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },
    /// Neither pcap nor pcapng.
    #[error("{path}: not a capture: {}", beginning(start), path = path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// Its first bytes, at most four.
        start: Vec<u8>,
    },
    /// A compression that is not read.
    #[error("{path}: compressed with {method}, which is not read here: decompress it, or compress it with gzip", path = path.display())]
    Compression {
        /// The file.
        path: PathBuf,
        /// Name of the compression.
        method: &'static str,
    },
    /// No memory for the frames.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
    /// No input file was named, or no queue asked for.
    #[error("nothing to open: {what}")]
    Nothing {
        /// What is missing.
        what: &'static str,
    },
    /// A device that cannot be opened, and the command that mends it.
    #[error("{device}: {what}")]
    Device {
        /// The port as it was written.
        device: String,
        /// What is wrong.
        what: String,
        /// What to do about it.
        mend: String,
    },
    /// A configuration that contradicts itself.
    #[error("{0}")]
    Config(String),
}

/// Where packets come from.
pub trait Source: Send {
    /// What it is, for people: a file name, a profile.
    fn name(&self) -> String;

    /// Ports by which its packets come in: 0 to this number, exclusive.
    fn ports(&self) -> usize;

    /// How far it is; shared, so that it can be asked for before opening and drawn while it runs.
    fn progress(&self) -> Arc<Progress>;

    /// Buffers that it wants besides those of the workers' batches.
    fn buffers(&self) -> usize {
        0
    }

    /// Makes the buffers of the run: where its devices want them.
    fn pool(&mut self, config: &PoolConfig) -> Result<Arc<Pool>, braid_memory::Error> {
        Pool::new(config)
    }

    /// Told before anything is opened which buffers the run has, and how many workers will send.
    fn prepare(&mut self, _: &Arc<Pool>, _senders: usize) -> Result<(), OpenError> {
        Ok(())
    }

    /// Opens it for `queues` workers.
    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError>;
}

/// What a queue knows of the packet that it delivers next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// It has that packet.
    Packet {
        /// Its sequence number.
        sequence: u64,
        /// Its time stamp, in nanoseconds.
        timestamp_ns: u64,
    },
    /// It has none now; there may be more.
    Nothing,
    /// There is none any more.
    End,
    /// It does not look ahead.
    Untold,
}

/// One worker's share of a source.
pub trait RxQueue: Send {
    /// Adds at most `limit` packets (and at most what fits) to the batch. It does not wait.
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received;

    /// No packet that this queue delivers later has a smaller sequence number. An idle worker passes it to
    /// [`TxQueue::progress`](crate::TxQueue::progress), so that a sink which restores the input order need not wait for it.
    fn horizon(&self) -> u64;

    /// What it knows of the packet that it delivers next: of a capture.
    fn ahead(&mut self) -> Ahead {
        Ahead::Untold
    }

    /// As [`receive`](Self::receive), but only packets that are [`ahead`](Self::ahead) and whose time stamps are not behind `until_ns`.
    fn receive_until(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize, until_ns: u64) -> Received {
        let before = batch.len();
        while batch.len() - before < limit
            && matches!(self.ahead(), Ahead::Packet { timestamp_ns, .. } if timestamp_ns <= until_ns)
            && self.receive(batch, buffers, 1) == Received::Packets
        {}
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    /// What it has delivered so far.
    fn counters(&self) -> RxCounters;

    /// Whether the records of its packets name their headers already: somebody had to parse them to bring them here.
    fn has_parsed(&self) -> bool {
        false
    }

    /// The run is to end. True if packets that have arrived already are still delivered, and then [`Received::End`]; false if
    /// whoever asks need not wait for anything.
    fn close(&mut self) -> bool {
        false
    }

    /// Places at which the source turned out to be damaged; the first queue reports them for all.
    fn damages(&self) -> Vec<Damage> {
        Vec::new()
    }
}
