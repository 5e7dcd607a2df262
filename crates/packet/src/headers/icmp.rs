//! ICMP for IPv4 (RFC 792, RFC 4884).

use zerocopy::byteorder::network_endian::{U16, U32};

use super::{Header, header};

/// Common message types.
pub mod icmp_type {
    #![allow(missing_docs)]
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const SOURCE_QUENCH: u8 = 4;
    pub const REDIRECT: u8 = 5;
    pub const ECHO_REQUEST: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    pub const TIMESTAMP_REQUEST: u8 = 13;
    pub const TIMESTAMP_REPLY: u8 = 14;
}

header! {
    /// The eight bytes before data or the quoted packet.
    Icmp { kind: u8, code: u8, checksum: U16, rest: U32 }
}

impl Header for Icmp {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Icmp {
    /// Type.
    #[inline(always)]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Code, which qualifies the type.
    #[inline(always)]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Checksum as stored.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// The four bytes whose meaning depends on the type.
    #[inline(always)]
    pub fn rest(&self) -> u32 {
        self.rest.get()
    }

    /// Whether the message quotes the packet that caused it (RFC 1122 section 3.2.2).
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        Self::quotes(self.kind)
    }

    /// Whether messages of this type quote the packet that caused them.
    #[inline(always)]
    pub const fn quotes(kind: u8) -> bool {
        matches!(kind, 3 | 4 | 5 | 11 | 12)
    }

    /// Whether messages of this type are queries or replies with an identifier.
    #[inline(always)]
    pub const fn has_id(kind: u8) -> bool {
        matches!(kind, 0 | 8 | 13..=18)
    }

    /// Identifier of a query or reply.
    #[inline(always)]
    pub fn id(&self) -> Option<u16> {
        Self::has_id(self.kind).then(|| (self.rest.get() >> 16) as u16)
    }

    /// Sets type and code.
    #[inline(always)]
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        (self.kind, self.code) = (kind, code);
    }

    /// Sets the checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = checksum.into();
    }

    /// Sets the four bytes whose meaning depends on the type.
    #[inline(always)]
    pub fn set_rest(&mut self, rest: u32) {
        self.rest = rest.into();
    }
}
