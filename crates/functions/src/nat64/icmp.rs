//! Translates ICMP errors of one version into the other (RFC 7915 sections 4.2, 4.3, 5.2 and 5.3).
//!
//! Types and codes follow the RFC's tables, pointers into the quoted header its figures, and MTUs are corrected by the
//! difference in header length. Errors that are meaningful only on the local link, or unknown to the other version, have
//! no counterpart.

use braid_nf::packet::headers::{icmp_type, icmpv6_type};

use super::header::GROWTH;
use crate::parts::headers::lengths::plateau_below;

/// Type, code, and the four bytes after the checksum.
pub(super) type Message = (u8, u8, u32);

/// Offsets in an IPv4 header, and the corresponding ones in an IPv6 header (RFC 7915 figure 3).
const V4_POINTERS: [(std::ops::RangeInclusive<u8>, u8); 7] =
    [(0..=0, 0), (1..=1, 1), (2..=3, 4), (8..=8, 7), (9..=9, 6), (12..=15, 8), (16..=19, 24)];
/// The reverse direction (RFC 7915 figure 6).
const V6_POINTERS: [(std::ops::RangeInclusive<u32>, u32); 7] =
    [(0..=0, 0), (1..=1, 1), (4..=5, 2), (6..=6, 9), (7..=7, 8), (8..=23, 12), (24..=39, 16)];

/// MTUs of both sides, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mtus {
    pub(super) v4: u16,
    pub(super) v6: u16,
}

/// Translates an ICMP error to ICMPv6. `quoted_len` is the length in the quoted packet's header.
pub(super) fn to_v6((kind, code, rest): Message, quoted_len: u16, mtus: Mtus) -> Option<Message> {
    Some(match (kind, code) {
        // Protocol unreachable: the next header is not recognized.
        (icmp_type::UNREACHABLE, 2) => (icmpv6_type::PARAMETER_PROBLEM, 1, 6),
        (icmp_type::UNREACHABLE, 3) => (icmpv6_type::UNREACHABLE, 4, 0),
        (icmp_type::UNREACHABLE, 4) => {
            let said = match rest as u16 {
                0 => plateau_below(quoted_len),
                mtu => mtu,
            };
            let grown = |mtu: u16| u32::from(mtu) + GROWTH as u32;
            let mtu = grown(said).min(mtus.v6.into()).min(grown(mtus.v4));
            // IPv6 senders never go below the minimum MTU of its links (RFC 8200 section 5).
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

/// Translates an ICMPv6 error to ICMP.
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
