//! Ethernet II and 802.3 (IEEE 802.3 section 3).

use zerocopy::byteorder::network_endian::U16;

use super::{Header, header};
use crate::address::MacAddress;
use crate::parse::ETHER_TYPE_MIN;

/// Common Ethernet types.
pub mod ether_type {
    #![allow(missing_docs)]
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_UPSTREAM: u16 = 0x8848;
    pub const PPPOE_DISCOVERY: u16 = 0x8863;
    pub const PPPOE_SESSION: u16 = 0x8864;
    pub const QINQ: u16 = 0x88a8;
    pub const QINQ_OLD: u16 = 0x9100;
}

header! {
    /// The 14 bytes before the payload or the first tag.
    Ethernet { destination: [u8; 6], source: [u8; 6], kind: U16 }
}

impl Header for Ethernet {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Ethernet {
    /// Destination address.
    #[inline(always)]
    pub fn destination(&self) -> MacAddress {
        MacAddress(self.destination)
    }

    /// Source address.
    #[inline(always)]
    pub fn source(&self) -> MacAddress {
        MacAddress(self.source)
    }

    /// Type of what follows, or a length if below 0x0600.
    #[inline(always)]
    pub fn ether_type(&self) -> u16 {
        self.kind.get()
    }

    /// Whether it is an 802.3 frame: a length instead of a type.
    #[inline(always)]
    pub fn is_8023(&self) -> bool {
        self.kind.get() < ETHER_TYPE_MIN
    }

    /// Sets the destination address.
    #[inline(always)]
    pub fn set_destination(&mut self, address: MacAddress) {
        self.destination = address.0;
    }

    /// Sets the source address.
    #[inline(always)]
    pub fn set_source(&mut self, address: MacAddress) {
        self.source = address.0;
    }

    /// Sets the type of what follows.
    #[inline(always)]
    pub fn set_ether_type(&mut self, kind: u16) {
        self.kind = kind.into();
    }
}
