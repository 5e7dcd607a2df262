//! ICMPv6 (RFC 4443) and the types of neighbour discovery (RFC 4861).

use zerocopy::byteorder::network_endian::{U16, U32};

use super::{Header, header};

/// Common message types.
pub mod icmpv6_type {
    #![allow(missing_docs)]
    pub const UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    pub const REDIRECT: u8 = 137;
}

header! {
    /// The eight bytes before data or the quoted packet.
    Icmpv6 { kind: u8, code: u8, checksum: U16, rest: U32 }
}

impl Header for Icmpv6 {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Icmpv6 {
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

    /// Whether it is an error message, which quotes the packet that caused it (section 2.1).
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        Self::quotes(self.kind)
    }

    /// Whether messages of this type quote the packet that caused them.
    #[inline(always)]
    pub const fn quotes(kind: u8) -> bool {
        matches!(kind, 1..=4)
    }

    /// Whether messages of this type have an identifier.
    #[inline(always)]
    pub const fn has_id(kind: u8) -> bool {
        matches!(kind, 128 | 129)
    }

    /// Identifier of an echo request or reply.
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
