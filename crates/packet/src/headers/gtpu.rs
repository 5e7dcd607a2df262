//! GTP-U version 1 (3GPP TS 29.281 section 5) with optional fields and extension headers.

use zerocopy::byteorder::network_endian::{U16, U32};

use super::{Header, View, header};

const EXTENSION: u8 = 0x04;
const SEQUENCE: u8 = 0x02;
const N_PDU: u8 = 0x01;

header! {
    /// The eight fixed bytes; four optional bytes and the extension headers follow if a flag is set.
    GtpU { flags: u8, message: u8, length: U16, teid: U32 }
}

impl Header for GtpU {
    /// Requires version 1, protocol type GTP, and every extension header present with a length other than 0.
    #[inline(always)]
    fn variable_len(&self, rest: &[u8]) -> Option<usize> {
        if self.flags & 0xf0 != 0x30 {
            return None;
        }
        if self.flags & (EXTENSION | SEQUENCE | N_PDU) == 0 {
            return Some(0);
        }
        let mut next = *rest.get(3)?;
        let mut at = 4;
        // All four optional bytes are present if any flag is set; the extension type is valid only with its own flag.
        while self.flags & EXTENSION != 0 && next != 0 {
            let length = usize::from(*rest.get(at)?) * 4;
            if length == 0 {
                return None;
            }
            at += length;
            next = *rest.get(at - 1)?;
        }
        Some(at)
    }
}

impl GtpU {
    /// UDP port of user traffic.
    pub const PORT: u16 = 2152;
    /// Message type of a user's packet (G-PDU).
    pub const G_PDU: u8 = 255;

    /// Creates a header for a user's packet of `payload` bytes, without optional fields.
    pub fn new(teid: u32, payload: u16) -> GtpU {
        GtpU { flags: 0x30, message: GtpU::G_PDU, length: payload.into(), teid: teid.into() }
    }

    /// Message type; 255 carries a user's packet, 1 and 2 are echo request and response, 26 an error indication, 254 an end marker.
    #[inline(always)]
    pub fn message(&self) -> u8 {
        self.message
    }

    /// Length of what follows the eight fixed bytes, in bytes, as the header states it.
    #[inline(always)]
    pub fn length(&self) -> u16 {
        self.length.get()
    }

    /// Tunnel endpoint identifier.
    #[inline(always)]
    pub fn teid(&self) -> u32 {
        self.teid.get()
    }

    /// Sets the message type.
    #[inline(always)]
    pub fn set_message(&mut self, message: u8) {
        self.message = message;
    }

    /// Sets the length of what follows the eight fixed bytes, in bytes.
    #[inline(always)]
    pub fn set_length(&mut self, bytes: u16) {
        self.length = bytes.into();
    }

    /// Sets the tunnel endpoint identifier.
    #[inline(always)]
    pub fn set_teid(&mut self, teid: u32) {
        self.teid = teid.into();
    }
}

impl<'a> View<'a, GtpU> {
    /// Sequence number, if its flag is set.
    pub fn sequence(&self) -> Option<u16> {
        let pair = self.variable().first_chunk::<2>()?;
        (self.flags & SEQUENCE != 0).then_some(u16::from_be_bytes(*pair))
    }

    /// N-PDU number, if its flag is set.
    pub fn n_pdu(&self) -> Option<u8> {
        let number = *self.variable().get(2)?;
        (self.flags & N_PDU != 0).then_some(number)
    }

    /// Returns an iterator over the extension headers, in order.
    pub fn extensions(&self) -> Extensions<'a> {
        let next = self.variable().get(3).copied().filter(|_| self.flags & EXTENSION != 0);
        Extensions { next: next.unwrap_or(0), rest: self.variable().get(4..).unwrap_or_default() }
    }
}

/// One extension header, for example 0x85, the PDU session container (3GPP TS 38.415).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its type, as announced by the preceding header.
    pub kind: u8,
    /// Its content, without length and next type.
    pub content: &'a [u8],
}

/// Iterator over extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    next: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        let kind = self.next;
        if kind == 0 {
            return None;
        }
        let length = usize::from(*self.rest.first()?) * 4;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        let (&next, bytes) = bytes.split_last()?;
        (self.next, self.rest) = (next, rest);
        Some(Extension { kind, content: bytes.get(1..)? })
    }
}
