//! SCTP's common header (RFC 9260 section 3.1).

use zerocopy::byteorder::network_endian::{U16, U32};

use super::{Header, header};

header! {
    /// The twelve bytes before the chunks.
    Sctp { source_port: U16, destination_port: U16, verification_tag: U32, checksum: [u8; 4] }
}

impl Header for Sctp {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Sctp {
    /// Source port.
    #[inline(always)]
    pub fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// Destination port.
    #[inline(always)]
    pub fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// Verification tag, chosen by the receiver of the packet.
    #[inline(always)]
    pub fn verification_tag(&self) -> u32 {
        self.verification_tag.get()
    }

    /// CRC32c as stored; its least significant byte comes first (appendix A).
    #[inline(always)]
    pub fn checksum(&self) -> u32 {
        u32::from_le_bytes(self.checksum)
    }

    /// Sets the source port.
    #[inline(always)]
    pub fn set_source_port(&mut self, port: u16) {
        self.source_port = port.into();
    }

    /// Sets the destination port.
    #[inline(always)]
    pub fn set_destination_port(&mut self, port: u16) {
        self.destination_port = port.into();
    }

    /// Sets the verification tag.
    #[inline(always)]
    pub fn set_verification_tag(&mut self, tag: u32) {
        self.verification_tag = tag.into();
    }

    /// Sets the CRC32c.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u32) {
        self.checksum = checksum.to_le_bytes();
    }
}
