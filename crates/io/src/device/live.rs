//! What a back end implements: one worker's way in by a port, and its way out.

use std::time::{Duration, SystemTime};

use braid_packet::pool::JUMBO_FRAME_MAX;
use braid_packet::{Batch, Buffers, FrameInfo, Link, Port, PortSet};

/// How a network card, or a program in its place, is to choose among receive queues, so that packets come to the workers to which
/// the plan steers them. A card that cannot, or hashes other fields, is used as it is: workers hand packets on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardHash {
    /// Key of the Toeplitz hash.
    pub key: Vec<u8>,
    /// Queue of each entry of the indirection table.
    pub table: Vec<u16>,
    /// What is hashed; none if that is more than addresses and ports, or nothing.
    pub tuple: Option<TupleHash>,
}

/// Bytes of the longest input that is hashed: two IPv6 addresses and two ports.
pub const TUPLE_MAX: usize = 36;

/// Which of a packet's addresses and ports are hashed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleHash {
    /// Source address, destination address, source port, destination port.
    pub fields: [bool; 4],
    /// Which end is first.
    pub order: EndOrder,
    /// The key, made into tables: what each value of each byte of the input contributes, 256 numbers for each of [`TUPLE_MAX`] bytes.
    pub contributions: Vec<u32>,
}

/// Which end of a connection is hashed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOrder {
    /// The source.
    AsTheyStand,
    /// The smaller one, compared as numbers: address, then port.
    SmallerFirst,
    /// The source; the destination of packets that come by these ports.
    ExchangedAt(PortSet),
}

/// Where a port puts what it receives: the rest of a batch.
pub(crate) struct Arrivals<'a> {
    pub(crate) batch: &'a mut Batch,
    pub(crate) buffers: &'a mut Buffers,
    /// Packets that are still wanted.
    pub(crate) wanted: usize,
    pub(crate) port: Port,
    /// Number of the next frame.
    pub(crate) sequence: &'a mut u64,
    /// Time of this receive, read when the first frame comes.
    pub(crate) now_ns: &'a mut Option<u64>,
    pub(crate) tally: Tally,
}

/// What came of one receive by one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Packets delivered.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Frames that fit into no buffer, or trains of segments that make no sense.
    pub(crate) too_long: u64,
}

impl Arrivals<'_> {
    /// Whether another frame is wanted.
    pub(crate) fn has_room(&self) -> bool {
        self.wanted > 0 && self.batch.room() > 0
    }

    /// What is known of the next frame.
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

    /// Copies a frame in. False if none is wanted or no buffer is free: offer it again later. A frame that fits into no buffer
    /// is counted and gone.
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

/// One queue of a port, to receive from.
pub(crate) trait RxPort: Send {
    /// Adds what has come. It does not wait.
    fn receive(&mut self, into: &mut Arrivals<'_>);

    /// Frames that the kernel had to drop before they reached us, since the port was opened.
    fn missed(&mut self) -> u64;
}

/// What became of packets that were to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The device had no room.
    pub(crate) device_full: u64,
    /// Longer than the device takes.
    pub(crate) too_long: u64,
}

/// One queue of a port, to send by.
pub(crate) trait TxPort: Send {
    /// Copies packets of the batch out.
    fn send(&mut self, batch: &Batch, buffers: &mut Buffers, out: &[u16]) -> Sent;

    /// The same, and may keep the buffers of these packets: it puts others into the batch instead.
    fn send_owned(&mut self, batch: &mut Batch, buffers: &mut Buffers, out: &[u16]) -> Sent {
        self.send(batch, buffers, out)
    }

    /// Called after every batch and while idle: what was sent and could not leave at once may leave now.
    fn push(&mut self) {}
}
