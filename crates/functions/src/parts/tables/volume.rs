//! Packets and their bytes on the wire, as counted in reports.

use braid_nf::packet::Packet;
use braid_nf::prelude::*;

/// A number of packets and of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Volume {
    /// Number of packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Volume {
    /// Counts one more packet.
    pub fn count(&mut self, packet: &Packet<'_>) {
        self.note(packet.wire_len() as usize);
    }

    /// Counts one more packet, of `bytes` bytes.
    pub fn note(&mut self, bytes: usize) {
        *self = self.plus(Volume { packets: 1, bytes: bytes as u64 });
    }

    /// The sum of both.
    pub fn plus(self, more: Volume) -> Volume {
        Volume { packets: self.packets + more.packets, bytes: self.bytes + more.bytes }
    }

    /// Adds both counts to the findings, under names that `what` makes.
    pub fn tell(self, into: &mut Findings, what: impl Fn(&str) -> String) {
        into.add(what("packets"), self.packets);
        into.add(what("bytes"), self.bytes);
    }
}
