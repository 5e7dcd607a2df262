//! ICMP errors of one version told in the other (RFC 7915 sections 4.2, 4.3, 5.2 and 5.3).
//!
//! Types and codes by the RFC's tables; a pointer into the quoted header by its figures; a maximal length corrected by what headers
//! grow or shrink. Those that say nothing beyond this hop, or nothing that the other version knows, have no counterpart.

use braid_nf::packet::headers::{icmp_type, icmpv6_type};

use super::header::GROWTH;
use crate::parts::lengths::plateau_below;

/// Type, code, and the four bytes behind the checksum.
pub(super) type Message = (u8, u8, u32);

/// Places in an IPv4 header and what stands for them in an IPv6 header (RFC 7915 figure 3).
const V4_POINTERS: [(std::ops::RangeInclusive<u8>, u8); 7] =
    [(0..=0, 0), (1..=1, 1), (2..=3, 4), (8..=8, 7), (9..=9, 6), (12..=15, 8), (16..=19, 24)];
/// The other way (RFC 7915 figure 6).
const V6_POINTERS: [(std::ops::RangeInclusive<u32>, u32); 7] =
    [(0..=0, 0), (1..=1, 1), (4..=5, 2), (6..=6, 9), (7..=7, 8), (8..=23, 12), (24..=39, 16)];

/// Longest packets on both sides, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mtus {
    pub(super) v4: u16,
    pub(super) v6: u16,
}

/// An error of ICMP as one of ICMPv6. `quoted_len` is the length that the quoted packet says that it had.
pub(super) fn to_v6((kind, code, rest): Message, quoted_len: u16, mtus: Mtus) -> Option<Message> {
    Some(match (kind, code) {
        // Protocol unreachable: the next header is not known there.
        (icmp_type::UNREACHABLE, 2) => (icmpv6_type::PARAMETER_PROBLEM, 1, 6),
        (icmp_type::UNREACHABLE, 3) => (icmpv6_type::UNREACHABLE, 4, 0),
        (icmp_type::UNREACHABLE, 4) => {
            let said = match rest as u16 {
                0 => plateau_below(quoted_len),
                mtu => mtu,
            };
            let grown = |mtu: u16| u32::from(mtu) + GROWTH as u32;
            let mtu = grown(said).min(mtus.v6.into()).min(grown(mtus.v4));
            // Nobody sends less over IPv6 than what all its links take (RFC 8200 section 5).
            (icmpv6_type::PACKET_TOO_BIG, 0, mtu.max(1280))
        }
        (icmp_type::UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => (icmpv6_type::UNREACHABLE, 0, 0),
        (icmp_type::UNREACHABLE, 9 | 10 | 13 | 15) => (icmpv6_type::UNREACHABLE, 1, 0),
        (icmp_type::TIME_EXCEEDED, _) => (icmpv6_type::TIME_EXCEEDED, code, 0),
        (icmp_type::PARAMETER_PROBLEM, 0 | 2) => {
            let pointer = (rest >> 24) as u8;
            let (_, new) = V4_POINTERS.iter().find(|(from, _)| from.contains(&pointer))?;
            (icmpv6_type::PARAMETER_PROBLEM, 0, (*new).into())
        }
        _ => return None,
    })
}

/// An error of ICMPv6 as one of ICMP.
pub(super) fn to_v4((kind, code, rest): Message, mtus: Mtus) -> Option<Message> {
    Some(match (kind, code) {
        (icmpv6_type::UNREACHABLE, 0 | 2 | 3) => (icmp_type::UNREACHABLE, 1, 0),
        (icmpv6_type::UNREACHABLE, 1) => (icmp_type::UNREACHABLE, 10, 0),
        (icmpv6_type::UNREACHABLE, 4) => (icmp_type::UNREACHABLE, 3, 0),
        (icmpv6_type::PACKET_TOO_BIG, _) => {
            let shrunk = |mtu: u32| mtu.saturating_sub(GROWTH as u32);
            let mtu = shrunk(rest).min(mtus.v4.into()).min(shrunk(mtus.v6.into()));
            (icmp_type::UNREACHABLE, 4, mtu)
        }
        (icmpv6_type::TIME_EXCEEDED, _) => (icmp_type::TIME_EXCEEDED, code, 0),
        (icmpv6_type::PARAMETER_PROBLEM, 0) => {
            let (_, new) = V6_POINTERS.iter().find(|(from, _)| from.contains(&rest))?;
            (icmp_type::PARAMETER_PROBLEM, 0, new << 24)
        }
        (icmpv6_type::PARAMETER_PROBLEM, 1) => (icmp_type::UNREACHABLE, 2, 0),
        _ => return None,
    })
}
