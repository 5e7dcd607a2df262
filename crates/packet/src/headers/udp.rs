//! UDP (RFC 768).

use zerocopy::byteorder::network_endian::U16;

use super::{Header, header};

header! {
    /// The eight bytes before the payload.
    Udp { source_port: U16, destination_port: U16, length: U16, checksum: U16 }
}

impl Header for Udp {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Udp {
    /// Creates a header for `payload` bytes, without a checksum.
    pub fn new(source_port: u16, destination_port: u16, payload: u16) -> Udp {
        let ports =
            Udp { source_port: source_port.into(), destination_port: destination_port.into(), ..Udp::default() };
        Udp { length: payload.saturating_add(8).into(), ..ports }
    }

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

    /// Length of header and payload in bytes, as the header states it.
    #[inline(always)]
    pub fn length(&self) -> u16 {
        self.length.get()
    }

    /// Checksum as stored; 0 means none.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
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

    /// Sets the length of header and payload, in bytes.
    #[inline(always)]
    pub fn set_length(&mut self, bytes: u16) {
        self.length = bytes.into();
    }

    /// Sets the checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = checksum.into();
    }
}
