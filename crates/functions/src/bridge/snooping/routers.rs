//! Multicast routers that need not be queriers: of several on a link only one asks (RFC 3376 section 6.6.2), and all want to hear reports.
//! They say that they are there by PIM (hellos) and by multicast router discovery (advertisements), and for how long. RFC 4541 section 2.1.1 (1) a
//! wants the latter; hellos are seen by most switches, as by Linux (`br_multicast_pim`, `br_ip4_multicast_mrd_rcv`).

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, checksum};
use braid_nf::prelude::*;

use super::message::IGMP;
use crate::parts::headers::scope::is_link_local_v6;

/// The protocol number of PIM.
const PIM: u8 = 103;
/// To which hellos go (RFC 7761 section 4.3.1): 224.0.0.13, ff02::d.
const ALL_PIM_ROUTERS: [IpAddress; 2] = [all_v4(13), all_v6(0x0d)];
/// To which advertisements go (RFC 4286 section 8): 224.0.0.106, ff02::6a.
const ALL_SNOOPERS: [IpAddress; 2] = [all_v4(106), all_v6(0x6a)];
/// How long a hello holds that does not say it (RFC 7761 section 4.11).
const HELLO_S: u32 = 105;
/// How many of its intervals an advertisement holds (RFC 4286 section 5.2).
const INTERVALS: u32 = 3;
/// Types of advertisements and terminations, of IGMP and of ICMPv6 (RFC 4286 section 8).
const ADVERTISEMENTS: [u8; 2] = [0x30, 151];
const TERMINATIONS: [u8; 2] = [0x32, 153];

const fn all_v4(last: u8) -> IpAddress {
    IpAddress::from_v4([224, 0, 0, last])
}

const fn all_v6(last: u8) -> IpAddress {
    IpAddress::from_v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// For how many seconds a router is where a packet comes from, if it is one by which a router says so; 0: it is no longer there, `u32::MAX`: for ever.
/// `None` for all other packets, and for damaged ones.
pub(super) fn hold_s(packet: &Packet<'_>, version: IpVersion) -> Option<u32> {
    let family = usize::from(version == IpVersion::V6);
    let is_discovery = packet.protocol() == [IGMP, protocol::ICMPV6][family];
    if !is_discovery && packet.protocol() != PIM {
        return None;
    }
    let (to, hold_s) = match is_discovery {
        true => (ALL_SNOOPERS, advertised_s(packet.ip_payload(), family)?),
        false => (ALL_PIM_ROUTERS, hello_s(packet.ip_payload())?),
    };
    let is_neighbours = match version {
        IpVersion::V4 => packet.src_ip() != IpAddress::from_v4([0; 4]),
        IpVersion::V6 => is_link_local_v6(packet.src_ip()),
    };
    let is_one = is_neighbours && packet.dst_ip() == to[family] && packet.ttl() == Some(1);
    (is_one && packet.is_whole() && is_intact(packet, version)).then_some(hold_s)
}

/// Whether the checksum of a message is right: in IPv4 it is over the message alone.
fn is_intact(packet: &Packet<'_>, version: IpVersion) -> bool {
    let body = packet.ip_payload();
    packet.header_checksum_ok()
        && match version {
            IpVersion::V4 => checksum::ipv4_header_ok(body),
            IpVersion::V6 => checksum::transport_ok(packet.src_ip(), packet.dst_ip(), packet.protocol(), body),
        }
}

/// Reads an advertisement (RFC 4286 section 3.1) or a termination (section 3.3). An interval out of range, from 4 to 180 seconds, is none.
fn advertised_s(message: &[u8], family: usize) -> Option<u32> {
    match *message {
        [kind, interval @ 4..=180, _, _, _, _, _, _, ..] if kind == ADVERTISEMENTS[family] => {
            Some(INTERVALS * u32::from(interval))
        }
        [kind, _, _, _, ..] if kind == TERMINATIONS[family] => Some(0),
        _ => None,
    }
}

/// Reads a hello of version 2 (RFC 7761 section 4.9.2): option 1 is its hold time; 0xffff: for ever.
fn hello_s(message: &[u8]) -> Option<u32> {
    const HELLO: u8 = 0x20;
    const HOLD_TIME: u16 = 1;
    let [HELLO, _, _, _, options @ ..] = message else { return None };
    let mut rest = options;
    while let [kind_high, kind, len_high, len, behind @ ..] = rest {
        let (kind, len) = (u16::from_be_bytes([*kind_high, *kind]), u16::from_be_bytes([*len_high, *len]));
        let value = behind.get(..len.into())?;
        match (kind, value) {
            (HOLD_TIME, [0xff, 0xff]) => return Some(u32::MAX),
            (HOLD_TIME, [high, low]) => return Some(u16::from_be_bytes([*high, *low]).into()),
            _ => rest = &behind[len.into()..],
        }
    }
    Some(HELLO_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_says_how_long_it_holds() {
        let hello = |options: &[u8]| hello_s(&[&[0x20, 0, 0, 0][..], options].concat());
        assert_eq!(hello(&[]), Some(105));
        assert_eq!(hello(&[0, 1, 0, 2, 0, 30]), Some(30));
        assert_eq!(hello(&[0, 20, 0, 4, 1, 2, 3, 4, 0, 1, 0, 2, 1, 0]), Some(256), "behind another option");
        assert_eq!(hello(&[0, 1, 0, 2, 0xff, 0xff]), Some(u32::MAX));
        assert_eq!(hello(&[0, 1, 0, 2, 0, 0]), Some(0));
        assert_eq!(hello(&[0, 20, 0, 9, 1]), None, "an option that is longer than its message");
        assert_eq!(hello_s(&[0x21, 0, 0, 0]), None, "a register");
    }

    #[test]
    fn an_advertisement_holds_three_intervals() {
        assert_eq!(advertised_s(&[0x30, 20, 0, 0, 0, 125, 0, 2], 0), Some(60));
        assert_eq!(advertised_s(&[151, 180, 0, 0, 0, 125, 0, 2], 1), Some(540));
        assert_eq!(advertised_s(&[0x30, 3, 0, 0, 0, 125, 0, 2], 0), None);
        assert_eq!(advertised_s(&[0x30, 20, 0, 0], 0), None, "cut");
        assert_eq!(advertised_s(&[0x32, 0, 0, 0], 0), Some(0));
        assert_eq!(advertised_s(&[0x31, 0, 0, 0], 0), None, "a solicitation");
    }
}
