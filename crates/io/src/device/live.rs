//! The interface that a back end implements: one worker's receive and transmit side of a port.

use std::os::fd::RawFd;
use std::time::{Duration, SystemTime};

use braid_packet::pool::JUMBO_FRAME_MAX;
use braid_packet::{Batch, Buffers, FrameInfo, Link, Port, PortSet};

/// How a network card, or a program in its place, is to choose among receive queues, so that packets reach the workers to which the
/// plan steers them. A card that cannot do this, or hashes other fields, is used as it is: workers then hand packets over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardHash {
    /// Key of the Toeplitz hash.
    pub key: Vec<u8>,
    /// The queue of each entry of the indirection table.
    pub table: Vec<u16>,
    /// What is hashed; `None` if fields other than addresses and ports are hashed, or none at all.
    pub tuple: Option<TupleHash>,
}

/// Length in bytes of the longest hash input: two IPv6 addresses and two ports.
pub const TUPLE_MAX: usize = 36;

/// Which of a packet's addresses and ports are hashed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleHash {
    /// Source address, destination address, source port, destination port.
    pub fields: [bool; 4],
    /// Whether hashed ports include those of UDP.
    pub udp_ports: bool,
    /// Which end comes first in the input.
    pub order: EndOrder,
    /// The key as tables: what each value of each input byte contributes to the hash, 256 numbers for each of [`TUPLE_MAX`] bytes.
    pub contributions: Vec<u32>,
}

/// Which end of a connection comes first in the hash input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOrder {
    /// The source first.
    AsTheyStand,
    /// The smaller end first, compared as numbers: address, then port.
    SmallerFirst,
    /// The source first, except for packets that arrive on these ports: there the destination.
    ExchangedAt(PortSet),
}

/// Where a port puts received packets: the free part of a batch.
pub(crate) struct Arrivals<'a> {
    pub(crate) batch: &'a mut Batch,
    pub(crate) buffers: &'a mut Buffers,
    /// Number of packets still wanted.
    pub(crate) wanted: usize,
    pub(crate) port: Port,
    /// Sequence number of the next frame.
    pub(crate) sequence: &'a mut u64,
    /// Time of this receive, read when the first frame arrives.
    pub(crate) now_ns: &'a mut Option<u64>,
    pub(crate) tally: Tally,
}

/// The result of one receive on one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Packets delivered.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Frames that fit into no buffer, and malformed trains of segments.
    pub(crate) too_long: u64,
}

impl Arrivals<'_> {
    /// Whether another frame is wanted.
    pub(crate) fn has_room(&self) -> bool {
        self.wanted > 0 && self.batch.room() > 0
    }

    /// Metadata of the next frame, of this length.
    pub(crate) fn info(&mut self, len: usize) -> FrameInfo {
        let timestamp_ns = *self.now_ns.get_or_insert_with(now_ns);
        let info = FrameInfo {
            port: self.port,
            link: Link::Ethernet,
            timestamp_ns,
            wire_len: len as u32,
            sequence: *self.sequence,
        };
        *self.sequence += 1;
        info
    }

    /// Copies a frame into the batch. Returns false if no frame is wanted or no buffer is free; offer the frame again later. A
    /// frame that fits into no buffer is counted and discarded.
    pub(crate) fn put(&mut self, frame: &[u8]) -> bool {
        if frame.len() > JUMBO_FRAME_MAX {
            self.tally.too_long += 1;
            return true;
        }
        if !self.has_room() {
            return false;
        }
        let info = self.info(frame.len());
        let taken = self.batch.copy_in(self.buffers, frame, &info);
        if taken {
            self.took(frame.len());
        }
        taken
    }

    /// Counts a frame that was added to the batch.
    pub(crate) fn took(&mut self, len: usize) {
        self.wanted -= 1;
        self.tally.packets += 1;
        self.tally.bytes += len as u64;
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as u64
}

/// The receive side of one queue of a port.
pub(crate) trait RxPort: Send {
    /// Adds packets that have arrived, without waiting.
    fn receive(&mut self, into: &mut Arrivals<'_>);

    /// Before a wait: adds the descriptors that are readable while frames wait. Returns false if there are none that say so; then this port
    /// has to be polled.
    fn awaits(&self, _readable: &mut Vec<RawFd>) -> bool {
        false
    }

    /// Number of frames that the kernel dropped before they reached Braid, since the port was opened.
    fn missed(&mut self) -> u64;
}

/// The result of sending packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets for which the device had no room.
    pub(crate) device_full: u64,
    /// Packets longer than the device accepts.
    pub(crate) too_long: u64,
}

/// The transmit side of one queue of a port.
pub(crate) trait TxPort: Send {
    /// Sends copies of the packets `out` of the batch.
    fn send(&mut self, batch: &Batch, buffers: &mut Buffers, out: &[u16]) -> Sent;

    /// Like [`send`](Self::send), but may keep the buffers of these packets; it puts other buffers into the batch instead.
    fn send_owned(&mut self, batch: &mut Batch, buffers: &mut Buffers, out: &[u16]) -> Sent {
        self.send(batch, buffers, out)
    }

    /// Called after every batch and while idle, to transmit packets that could not leave at once.
    fn push(&mut self) {}

    /// At the end: packets that were given to the device and that it has not taken, each counted once, by one of those who share a queue.
    fn left(&mut self) -> Left {
        Left::default()
    }
}

/// Packets that lie in front of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}
