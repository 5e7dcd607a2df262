//! The runtime's interface to everything that accepts packets.

use std::path::PathBuf;

use braid_packet::{Batch, Buffers, Port};

use crate::source::OpenError;

/// Where packets go.
pub trait Sink: Send {
    /// A name for people.
    fn name(&self) -> String;

    /// Opens the sink for `queues` workers.
    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError>;
}

/// Counts of what a queue has accepted, and what it could not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Packets accepted.
    pub packets: u64,
    /// Bytes of these packets, as stored.
    pub bytes: u64,
    /// Packets for a port that the sink does not have; they were not sent.
    pub no_such_port: u64,
    /// Packets of the whole sink that were written after a packet with a larger sequence number, because a worker was silent for
    /// too long or a function sent them later. The queue that finishes last reports them.
    pub disordered: u64,
    /// Packets for which a device had no room; they were not sent.
    pub device_full: u64,
    /// Packets longer than the device accepts; they were not sent.
    pub too_long: u64,
}

impl TxCounters {
    /// Returns the packets that were taken for a device and not sent, by reason.
    pub fn losses(&self) -> [(&'static str, u64); 2] {
        [("device_full", self.device_full), ("frame_too_long", self.too_long)]
    }
}

/// Why accepted packets did not reach their destination.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Writing failed; `lost` packets are missing at the end of the file.
    #[error("{path}: {reason}; {lost} packets not written", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
        /// Packets that are missing.
        lost: u64,
    },
    /// Packets have another link type than the file; a pcap file supports only one.
    #[error("{path}: {lost} packets of another link type than the file's do not fit into a pcap file: write .pcapng", path = path.display())]
    LinkTypes {
        /// The file.
        path: PathBuf,
        /// Packets that are missing.
        lost: u64,
    },
    /// The writer thread has ended.
    #[error("the writer ended early; packets are missing")]
    WriterGone,
    /// Several files failed.
    #[error("{}", _0.iter().map(SinkError::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<SinkError>),
}

impl SinkError {
    /// The failures of several files as one result.
    pub(crate) fn all(mut failures: Vec<SinkError>) -> Result<(), SinkError> {
        match failures.len() {
            0 => Ok(()),
            1 => failures.pop().map_or(Ok(()), Err),
            _ => Err(SinkError::Several(failures)),
        }
    }

    /// How many packets are missing, as far as that is known.
    pub fn lost(&self) -> u64 {
        match self {
            SinkError::Write { lost, .. } | SinkError::LinkTypes { lost, .. } => *lost,
            SinkError::WriterGone => 0,
            SinkError::Several(failures) => failures.iter().map(SinkError::lost).sum(),
        }
    }
}

/// One worker's access to a sink.
pub trait TxQueue: Send {
    /// Sends packets of the batch in the order of `out`, which lists the index and the output port of each. The bytes are copied; a
    /// packet that is listed twice is sent twice.
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]);

    /// Like [`send`](Self::send), but may keep the buffers of the packets that it sends; it puts other buffers into the batch instead.
    fn send_owned(&mut self, batch: &mut Batch, _: &mut Buffers, out: &[(u16, Port)]) {
        self.send(batch, out);
    }

    /// Declares that no packet sent later has a sequence number below `sequence`. Called after every batch and while idle.
    fn progress(&mut self, sequence: u64);

    /// Counts of what it has accepted so far.
    fn counters(&self) -> TxCounters;

    /// Sends everything that is pending. When the last queue of a sink finishes, files are complete, and an error of the whole sink
    /// is returned there. Dropping a queue also finishes it, but reports nothing.
    fn finish(&mut self) -> Result<TxCounters, SinkError>;
}
