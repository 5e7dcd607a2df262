//! The runtime's interface to everything that delivers packets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use braid_packet::{Batch, Buffers, Link, Pool, PoolConfig, Port};

use crate::bell::Bell;
use crate::capture::{Damage, classic};
use crate::progress::Progress;

/// Chooses the receive queue of a frame, as a network card's receive-side scaling does.
pub trait QueueSelect: Send + Sync {
    /// The queue number; the source treats any number beyond its last queue as the last queue.
    fn queue(&self, frame: &[u8], link: Link, port: Port) -> usize;
}

/// Selects the first queue for every frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstQueue;

impl QueueSelect for FirstQueue {
    fn queue(&self, _: &[u8], _: Link, _: Port) -> usize {
        0
    }
}

/// The result of one [`RxQueue::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// At least one packet was added to the batch.
    Packets,
    /// There are no packets now, but more may follow.
    Idle,
    /// There will be no more packets.
    End,
}

/// Counts of what a queue has delivered, and what it could not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Packets added to batches.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// Frames left out because they are longer than any buffer.
    pub too_long: u64,
    /// Frames left out because they arrived by an interface for which there is no port.
    pub no_port: u64,
    /// Frames that a wrapper dropped on purpose.
    pub injected_loss: u64,
    /// Frames that the device dropped before Braid received them, because they were not fetched in time.
    pub missed: u64,
    /// Frames that a dispatcher dropped because the worker took none of those that waited for it.
    pub ring_full: u64,
    /// Frames that arrived on this queue and were handed over to another one, to which the plan steers them.
    pub handed_on: u64,
}

impl RxCounters {
    /// Returns the frames that came and were not delivered, by reason.
    pub fn losses(&self) -> [(&'static str, u64); 5] {
        [
            ("frame_too_long", self.too_long),
            ("no_port", self.no_port),
            ("injected_loss", self.injected_loss),
            ("missed", self.missed),
            ("ring_full", self.ring_full),
        ]
    }
}

/// Describes the first bytes of a file that is not a capture.
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
    /// The operating system reported an error.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file is neither pcap nor pcapng.
    #[error("{path}: not a capture: {}", beginning(start), path = path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// Its first bytes, at most four.
        start: Vec<u8>,
    },
    /// The file uses an unsupported compression.
    #[error("{path}: compressed with {method}, which is not read here: decompress it, or compress it with gzip", path = path.display())]
    Compression {
        /// The file.
        path: PathBuf,
        /// Name of the compression method.
        method: &'static str,
    },
    /// There is no memory for the frames.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
    /// No input file was named, or no queue was requested.
    #[error("nothing to open: {what}")]
    Nothing {
        /// What is missing.
        what: &'static str,
    },
    /// A device cannot be opened; the error includes a command that solves the problem.
    #[error("{device}: {what}")]
    Device {
        /// The port as the user wrote it.
        device: String,
        /// What is wrong.
        what: String,
        /// What to do about it.
        mend: String,
    },
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
}

/// Where packets come from.
pub trait Source: Send {
    /// A name for people, such as a file name or a profile.
    fn name(&self) -> String;

    /// Number of ports on which its packets arrive; ports are numbered from 0.
    fn ports(&self) -> usize;

    /// Its progress. The value is shared, so it can be fetched before opening and displayed during the run.
    fn progress(&self) -> Arc<Progress>;

    /// Number of buffers that it needs in addition to those of the workers' batches.
    fn buffers(&self) -> usize {
        0
    }

    /// Allocates the buffers of the run, in the memory that its devices require.
    fn pool(&mut self, config: &PoolConfig) -> Result<Arc<Pool>, braid_memory::Error> {
        Pool::new(config)
    }

    /// Called before anything is opened, with the buffers of the run and the number of workers that will send.
    fn prepare(&mut self, _: &Arc<Pool>, _senders: usize) -> Result<(), OpenError> {
        Ok(())
    }

    /// Opens the source for `queues` workers.
    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError>;
}

/// What a queue knows about the packet that it will deliver next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The queue has the packet.
    Packet {
        /// Its sequence number.
        sequence: u64,
        /// Its timestamp, in nanoseconds.
        timestamp_ns: u64,
    },
    /// The queue has no packet now, but more may follow.
    Nothing,
    /// There will be no more packets.
    End,
    /// The queue cannot look ahead.
    Untold,
}

/// How a wait for packets ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A packet may have arrived, or somebody has rung the bell.
    Woken,
    /// Nothing happened in that time.
    TimedOut,
    /// The queue cannot wait; the caller has to look again a little later.
    Cannot,
}

/// One worker's share of a source.
pub trait RxQueue: Send {
    /// Adds at most `limit` packets (and no more than fit) to the batch, without waiting.
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received;

    /// A lower bound for the sequence numbers of all packets that this queue will still deliver. An idle
    /// worker passes it to [`TxQueue::progress`](crate::TxQueue::progress), so that a sink which restores
    /// the input order need not wait for this worker.
    fn horizon(&self) -> u64;

    /// Looks ahead to the next packet; captures support this.
    fn ahead(&mut self) -> Ahead {
        Ahead::Untold
    }

    /// Like [`receive`](Self::receive), but adds only packets that are [`ahead`](Self::ahead) and whose timestamps are at most `until_ns`.
    fn receive_until(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize, until_ns: u64) -> Received {
        let before = batch.len();
        while batch.len() - before < limit
            && matches!(self.ahead(), Ahead::Packet { timestamp_ns, .. } if timestamp_ns <= until_ns)
            && self.receive(batch, buffers, 1) == Received::Packets
        {}
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    /// Counts of what it has delivered so far.
    fn counters(&self) -> RxCounters;

    /// Whether the records of its packets already contain the header positions, because the packets had to be parsed for distribution.
    fn has_parsed(&self) -> bool {
        false
    }

    /// Announces that the run is to end. Returns true if the queue will still deliver the packets that have already arrived,
    /// followed by [`Received::End`]; false if the caller need not wait for anything.
    fn close(&mut self) -> bool {
        false
    }

    /// Waits until a packet arrives, somebody rings the [`bell`](Self::bell), or `at_most` has passed. Called when a receive found nothing.
    fn wait(&mut self, _at_most: Duration) -> Waited {
        Waited::Cannot
    }

    /// What ends a [`wait`](Self::wait) of this queue; `None` if it cannot wait.
    fn bell(&self) -> Option<Arc<Bell>> {
        None
    }

    /// Positions at which the source is damaged; the first queue reports them for all queues.
    fn damages(&self) -> Vec<Damage> {
        Vec::new()
    }
}
