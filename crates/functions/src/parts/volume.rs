//! Packets and their bytes on the wire: what reports count by.

use braid_nf::packet::Packet;
use braid_nf::prelude::*;

/// So many packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Volume {
    /// One packet more.
    pub fn count(&mut self, packet: &Packet<'_>) {
        self.note(packet.wire_len() as usize);
    }

    /// One of so many bytes more.
    pub fn note(&mut self, bytes: usize) {
        *self = self.plus(Volume { packets: 1, bytes: bytes as u64 });
    }

    /// Both together.
    pub fn plus(self, more: Volume) -> Volume {
        Volume { packets: self.packets + more.packets, bytes: self.bytes + more.bytes }
    }

    /// Adds both to the findings, under names made of `what`.
    pub fn tell(self, into: &mut Findings, what: impl Fn(&str) -> String) {
        into.add(what("packets"), self.packets);
        into.add(what("bytes"), self.bytes);
    }
}
