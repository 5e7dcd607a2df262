//! ARP for IPv4 over Ethernet (RFC 826).

use zerocopy::byteorder::network_endian::U16;

use super::{Header, header};
use crate::address::{IpAddress, MacAddress};

/// Operation of an ARP packet; any other number is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Request: who has the target address?
    Request,
    /// Reply: the sender has it.
    Reply,
    /// Any other number.
    Other(u16),
}

impl ArpOperation {
    /// Its number in the packet.
    #[inline(always)]
    pub fn number(self) -> u16 {
        match self {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
            ArpOperation::Other(number) => number,
        }
    }
}

header! {
    /// The 28 bytes of an ARP packet for Ethernet and IPv4; ARP for other hardware or protocols is not parsed.
    Arp {
        hardware: U16, protocol: U16, hardware_len: u8, protocol_len: u8, operation: U16,
        sender_mac: [u8; 6], sender_ip: [u8; 4], target_mac: [u8; 6], target_ip: [u8; 4],
    }
}

impl Header for Arp {
    /// Requires Ethernet hardware and the IPv4 protocol.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        let fits = self.hardware.get() == 1 && self.protocol.get() == 0x0800;
        (fits && self.hardware_len == 6 && self.protocol_len == 4).then_some(0)
    }
}

impl Arp {
    /// Creates a packet with its fixed fields set.
    pub fn new(operation: ArpOperation) -> Arp {
        let kinds = Arp { hardware: 1.into(), protocol: 0x0800.into(), ..Arp::default() };
        let mut arp = Arp { hardware_len: 6, protocol_len: 4, ..kinds };
        arp.set_operation(operation);
        arp
    }

    /// Operation.
    #[inline(always)]
    pub fn operation(&self) -> ArpOperation {
        match self.operation.get() {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            other => ArpOperation::Other(other),
        }
    }

    /// Ethernet address of the sender.
    #[inline(always)]
    pub fn sender_mac(&self) -> MacAddress {
        MacAddress(self.sender_mac)
    }

    /// IPv4 address of the sender.
    #[inline(always)]
    pub fn sender_ip(&self) -> IpAddress {
        IpAddress::from_v4(self.sender_ip)
    }

    /// Ethernet address of the target; unknown in a request.
    #[inline(always)]
    pub fn target_mac(&self) -> MacAddress {
        MacAddress(self.target_mac)
    }

    /// IPv4 address of the target.
    #[inline(always)]
    pub fn target_ip(&self) -> IpAddress {
        IpAddress::from_v4(self.target_ip)
    }

    /// Sets the operation.
    #[inline(always)]
    pub fn set_operation(&mut self, operation: ArpOperation) {
        self.operation = operation.number().into();
    }

    /// Sets the sender's addresses; IPv4 as four bytes.
    #[inline(always)]
    pub fn set_sender(&mut self, mac: MacAddress, ip: [u8; 4]) {
        (self.sender_mac, self.sender_ip) = (mac.0, ip);
    }

    /// Sets the target's addresses; IPv4 as four bytes.
    #[inline(always)]
    pub fn set_target(&mut self, mac: MacAddress, ip: [u8; 4]) {
        (self.target_mac, self.target_ip) = (mac.0, ip);
    }
}
