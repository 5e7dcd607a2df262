//! The differentiated services code point (RFC 2474): six bits of IPv4's type of service and IPv6's traffic class.

use braid_nf::Packet;
use braid_nf::packet::IpVersion;
use braid_nf::packet::checksum::Change;

/// The code point of a packet; none if it is not IP.
pub fn of(packet: &Packet<'_>) -> Option<u8> {
    match packet.ip_version()? {
        IpVersion::V4 => Some(packet.ipv4()?.dscp()),
        IpVersion::V6 => Some(packet.ipv6()?.traffic_class() >> 2),
    }
}

/// Writes it; the two bits of explicit congestion notification stay.
pub fn set(packet: &mut Packet<'_>, dscp: u8) {
    let at = usize::from(packet.record().l3);
    match packet.ip_version() {
        Some(IpVersion::V4) => {
            if let [lead, tos, _, _, _, _, _, _, _, _, high, low] = packet.change(at..at + 12) {
                let new = dscp << 2 | *tos & 3;
                let word = |tos| u16::from_be_bytes([*lead, tos]);
                let sum = Change::NONE.u16(word(*tos), word(new)).apply(u16::from_be_bytes([*high, *low]));
                *tos = new;
                [*high, *low] = sum.to_be_bytes();
            }
        }
        Some(IpVersion::V6) => {
            if let [first, second] = packet.change(at..at + 2) {
                *first = *first & 0xf0 | dscp >> 2;
                *second = dscp << 6 | *second & 0x3f;
            }
        }
        None => {}
    }
}
