//! What the runtime sees of everything that takes packets.

use std::path::PathBuf;

use braid_packet::{Batch, Buffers, Port};

use crate::source::OpenError;

/// Where packets go.
pub trait Sink: Send {
    /// What it is, for people.
    fn name(&self) -> String;

    /// Opens it for `queues` workers.
    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError>;
}

/// What a queue has taken, and what it could not put where it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Packets taken.
    pub packets: u64,
    /// Their bytes, as present.
    pub bytes: u64,
    /// Packets taken for a port that the sink does not have, and therefore not sent.
    pub no_such_port: u64,
    /// Packets of the whole sink that were written behind a packet with a larger sequence number: because a worker was silent
    /// for too long, or because a function sent them later. Reported by the queue that finishes last.
    pub disordered: u64,
    /// Packets that a device had no room for, and that were therefore not sent.
    pub device_full: u64,
    /// Packets longer than the device takes, and therefore not sent.
    pub too_long: u64,
}

/// Why packets that were taken did not get where they should.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Writing failed: `lost` packets are missing at the end of the file.
    #[error("{path}: {reason}; {lost} packets not written", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        reason: String,
        /// Packets that are missing.
        lost: u64,
    },
    /// A pcap file has one link type, and packets of another came.
    #[error("{path}: {lost} packets of another link type than the file's do not fit into a pcap file: write .pcapng", path = path.display())]
    LinkTypes {
        /// The file.
        path: PathBuf,
        /// Packets that are missing.
        lost: u64,
    },
    /// The thread that writes is gone.
    #[error("the writer ended early; packets are missing")]
    WriterGone,
}

/// One worker's way into a sink.
pub trait TxQueue: Send {
    /// Sends packets of the batch, in this order: which packet, and out of which port. The bytes are copied; a packet listed
    /// twice is sent twice.
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]);

    /// The same, and may keep the buffers of packets that it sends: it puts others into the batch in their place.
    fn send_owned(&mut self, batch: &mut Batch, _: &mut Buffers, out: &[(u16, Port)]) {
        self.send(batch, out);
    }

    /// Says that no packet sent later has a sequence number below `sequence`. Called after every batch and while idle.
    fn progress(&mut self, sequence: u64);

    /// What it has taken so far.
    fn counters(&self) -> TxCounters;

    /// Sends everything that waits. When the last queue of a sink finishes, files are complete; an error of the whole sink is
    /// returned there. Dropping a queue finishes it as well, without a report.
    fn finish(&mut self) -> Result<TxCounters, SinkError>;
}
