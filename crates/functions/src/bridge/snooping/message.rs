//! What IGMP and MLD messages say about groups.

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, checksum};
use braid_nf::prelude::*;

use crate::parts::answers::icmpv6::ALL_NODES;
use crate::parts::answers::membership::is_of_link;
use crate::parts::headers::scope;

/// The protocol number of IGMP.
pub(super) const IGMP: u8 = 2;
/// A message about groups, or the IP header before it, has a wrong checksum.
const BAD_CHECKSUM: Reason = Reason("bad_checksum");
/// How long hosts may take to answer a query that does not say it, as of IGMPv1: the query response interval (RFC 3376 section 8.3).
const ANSWER_S: u32 = 10;

/// What an IGMP or MLD message says about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A query.
    Query {
        /// Whether a router sent it.
        is_routers: bool,
        /// If it asks for all groups, in how many seconds all hosts have answered.
        answer_s: Option<u32>,
        /// The group that it asks for, if all members of it are to answer, and in how many seconds they have.
        group: Option<(IpAddress, u32)>,
    },
    /// A host wants the group.
    Joins(IpAddress),
    /// A host no longer wants the group.
    Leaves(IpAddress),
}

/// The address under which queriers of this family are stored.
pub(super) fn asking(version: IpVersion) -> IpAddress {
    match version {
        IpVersion::V4 => IpAddress::from_v4([0; 4]),
        IpVersion::V6 => IpAddress::UNSPECIFIED,
    }
}

/// Iterates over what a message says about groups; ends early if it is truncated.
pub(super) struct Message<'p> {
    rest: &'p [u8],
    /// Bytes of an address.
    width: usize,
    /// How the rest is read: as so many records of a report, or after a single result found already.
    next: Next,
}

enum Next {
    One(Said),
    Records(u16),
}

impl<'p> Message<'p> {
    /// Returns `None` if a packet is not a message about groups. Reports that say nothing of interest are messages too.
    pub(super) fn of(packet: &'p Packet<'_>, version: IpVersion) -> Option<Message<'p>> {
        let bytes = packet.ip_payload();
        let (width, number) = if version == IpVersion::V4 { (4, IGMP) } else { (16, protocol::ICMPV6) };
        let group_at = if version == IpVersion::V4 { 4 } else { 8 };
        let group = bytes.get(group_at..group_at + width).map(address);
        if packet.protocol() != number || version == IpVersion::V6 && !is_mld(packet, version) {
            return None;
        }
        let is_general = group.is_none_or(|group| group == asking(version));
        let next = match (bytes.first()?, group) {
            // One of IGMP without a source comes from a bridge that acts in place of a router (RFC 4541 section 2.1.1 (1) c).
            (0x11 | 130, _) => Next::One(Said::Query {
                is_routers: packet.src_ip() != IpAddress::from_v4([0; 4]),
                answer_s: is_general.then(|| answer_s(bytes, version)),
                group: group
                    .filter(|_| !is_general && asks_all_members(bytes, version))
                    .map(|group| (group, answer_s(bytes, version))),
            }),
            (0x12 | 0x16 | 131, Some(group)) => Next::One(Said::Joins(group)),
            (0x17 | 132, Some(group)) => Next::One(Said::Leaves(group)),
            (0x22 | 143, _) => Next::Records(u16::from_be_bytes(*bytes.get(6..)?.first_chunk()?)),
            _ => return None,
        };
        Some(Message { rest: bytes.get(8..).unwrap_or_default(), width, next })
    }

    /// Reads a record of IGMPv3 (RFC 3376 section 4.2.4) or MLDv2 (RFC 3810 section 5.2.4), and returns what it says.
    fn record(&mut self) -> Option<Option<Said>> {
        let [kind, auxiliary, high, low] = *self.rest.first_chunk()?;
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let group = address(self.rest.get(4..4 + self.width)?);
        let len = 4 + self.width * (1 + sources) + 4 * usize::from(auxiliary);
        self.rest = self.rest.get(len..)?;
        Some(match (kind, sources) {
            (1 | 3, 0) => Some(Said::Leaves(group)),
            (1..=5, _) => Some(Said::Joins(group)),
            _ => None,
        })
    }
}

impl Iterator for Message<'_> {
    type Item = Said;

    fn next(&mut self) -> Option<Said> {
        loop {
            match self.next {
                Next::Records(0) => return None,
                Next::One(said) => {
                    self.next = Next::Records(0);
                    return Some(said);
                }
                Next::Records(left) => {
                    self.next = Next::Records(left - 1);
                    if let Some(said) = self.record()? {
                        return Some(said);
                    }
                }
            }
        }
    }
}

/// The seconds that a query allows for answers, rounded up (RFC 2236 section 2.2, RFC 3376 section 4.1.1, RFC 2710 section 3.4, RFC 3810
/// section 5.1.3): tenths of a second in IGMP, milliseconds in MLD. Large values of the newest versions are floating-point numbers.
fn answer_s(query: &[u8], version: IpVersion) -> u32 {
    let float = |code: u32, bits: u32| (code & ((1 << bits) - 1) | 1 << bits) << ((code >> bits & 7) + 3);
    let (code, per_s) = match (version, query) {
        (IpVersion::V4, [_, code, ..]) if query.len() >= 12 && *code >= 128 => (float((*code).into(), 4), 10),
        (IpVersion::V4, [_, code, ..]) => (u32::from(*code), 10),
        (IpVersion::V6, [_, _, _, _, high, low, ..]) if query.len() >= 28 && *high >= 128 => {
            (float(u32::from_be_bytes([0, 0, *high, *low]), 12), 1000)
        }
        (IpVersion::V6, [_, _, _, _, high, low, ..]) => (u32::from_be_bytes([0, 0, *high, *low]), 1000),
        _ => (0, 1),
    };
    if code == 0 { ANSWER_S } else { code.div_ceil(per_s) }
}

/// Whether a query for a group concerns all its members: it is not about sources, and does not say that routers ignore it (RFC 3376
/// sections 4.1.5 and 4.1.8, RFC 3810 sections 5.1.7 and 5.1.10).
fn asks_all_members(query: &[u8], version: IpVersion) -> bool {
    const SUPPRESS: u8 = 0x08;
    let newest = if version == IpVersion::V4 { 8 } else { 24 };
    match query.get(newest..) {
        Some([flags, _, high, low, ..]) => flags & SUPPRESS == 0 && (*high, *low) == (0, 0),
        _ => true,
    }
}

fn address(bytes: &[u8]) -> IpAddress {
    match (bytes.first_chunk::<16>(), bytes.first_chunk::<4>()) {
        (Some(v6), _) => IpAddress::from(std::net::IpAddr::from(*v6)),
        (None, Some(v4)) => IpAddress::from(std::net::IpAddr::from(*v4)),
        (None, None) => IpAddress::UNSPECIFIED,
    }
}

/// Whether a packet is an MLD message of this link; any other is multicast like any other. Queries must come from a link-local address (RFC 3810
/// section 5.1.14), and all else from one or from a host that has none yet (section 7.4, RFC 3590).
pub(super) fn is_mld(packet: &Packet<'_>, version: IpVersion) -> bool {
    if packet.protocol() != protocol::ICMPV6 || version != IpVersion::V6 {
        return false;
    }
    let source = packet.src_ip();
    let is_right = match packet.ip_payload().first() {
        Some(130) => scope::is_link_local_v6(source),
        Some(131 | 132 | 143) => source == IpAddress::UNSPECIFIED || scope::is_link_local_v6(source),
        _ => false,
    };
    is_right && is_of_link(packet)
}

/// What is wrong with a message: its checksums, and that of the IP header before it, or its form. For fragments and what a capture has cut
/// this cannot be determined, and they are accepted.
pub(super) fn objection(packet: &Packet<'_>, is_igmp: bool) -> Option<Reason> {
    let (body, is_cut) = (packet.ip_payload(), packet.wire_len() as usize > packet.len());
    let is_whole = !is_cut && !packet.is_fragment();
    if !packet.checksums_ok() || (is_whole && !packet.is_short() && is_igmp && !checksum::ipv4_header_ok(body)) {
        return Some(BAD_CHECKSUM);
    }
    let is_possible = if is_igmp { is_igmp_possible(packet, body) } else { is_mld_possible(packet, body) };
    (is_whole && (packet.is_short() || !is_possible)).then_some(Reason::MALFORMED)
}

/// A general query goes to all hosts (RFC 3376 section 4.1.12): others would not hear it, and lose what they do not repeat.
fn is_igmp_possible(packet: &Packet<'_>, body: &[u8]) -> bool {
    const ALL_HOSTS: [u8; 4] = [224, 0, 0, 1];
    match body.first_chunk::<8>() {
        Some([0x11, _, _, _, 0, 0, 0, 0]) => packet.dst_ip() == IpAddress::from_v4(ALL_HOSTS),
        Some(_) => true,
        // Multicast router solicitations and terminations (RFC 4286 sections 3.2 and 3.3).
        None => matches!(body, [0x31 | 0x32, _, _, _, ..]),
    }
}

/// A general query goes to all nodes (RFC 3810 section 5.1.15).
fn is_mld_possible(packet: &Packet<'_>, body: &[u8]) -> bool {
    match (body.first(), body.get(8..24)) {
        (Some(130), Some(group)) => {
            let is_general = group.iter().all(|byte| *byte == 0);
            !is_general || packet.dst_ip() == ALL_NODES
        }
        (Some(130..=132), None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_in_tenths_milliseconds_or_large_numbers_how_long_answers_take() {
        let igmp = |code: u8, len: usize| answer_s(&[&[0x11, code][..], &vec![0; len - 2]].concat(), IpVersion::V4);
        assert_eq!([igmp(0, 8), igmp(1, 8), igmp(100, 8), igmp(250, 8)], [10, 1, 10, 25]);
        assert_eq!([igmp(127, 12), igmp(128, 12), igmp(255, 12)], [13, 13, 3175], "12.8 s and 3174.4 s");
        let mld = |code: u16, len: usize| {
            let [high, low] = code.to_be_bytes();
            answer_s(&[&[130, 0, 0, 0, high, low][..], &vec![0; len - 6]].concat(), IpVersion::V6)
        };
        assert_eq!([mld(0, 24), mld(1, 24), mld(10_000, 24), mld(60_000, 24)], [10, 1, 10, 60]);
        assert_eq!([mld(32_767, 28), mld(32_768, 28), mld(65_535, 28)], [33, 33, 8388], "32.768 s and 8387.584 s");
    }
}
