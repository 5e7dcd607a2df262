//! PPP over Ethernet (RFC 2516 section 4).

use zerocopy::byteorder::network_endian::U16;

use super::{Header, View, header};

header! {
    /// The six bytes after the Ethernet type.
    Pppoe { version_type: u8, code: u8, session: U16, length: U16 }
}

impl Header for Pppoe {
    /// Requires version 1 and type 1.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        (self.version_type == 0x11).then_some(0)
    }
}

impl Pppoe {
    /// Code: 0 in a session; 0x09, 0x07, 0x19, 0x65, 0xa7 in discovery.
    #[inline(always)]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Session number.
    #[inline(always)]
    pub fn session(&self) -> u16 {
        self.session.get()
    }

    /// Length of the payload in bytes, including the PPP protocol number, as the header states it.
    #[inline(always)]
    pub fn length(&self) -> u16 {
        self.length.get()
    }

    /// Sets version and type to 1, and the code.
    #[inline(always)]
    pub fn set_code(&mut self, code: u8) {
        (self.version_type, self.code) = (0x11, code);
    }

    /// Sets the session number.
    #[inline(always)]
    pub fn set_session(&mut self, session: u16) {
        self.session = session.into();
    }

    /// Sets the length.
    #[inline(always)]
    pub fn set_length(&mut self, length: u16) {
        self.length = length.into();
    }
}

impl View<'_, Pppoe> {
    /// PPP protocol number of a session packet, if it is present: 0x0021 is IPv4, 0x0057 IPv6. It may be compressed to one byte (RFC 1661 section
    /// 6.5).
    #[inline(always)]
    pub fn ppp_protocol(&self) -> Option<u16> {
        match *self.payload() {
            [first, ..] if first & 1 != 0 => Some(first.into()),
            [high, low, ..] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }
}
