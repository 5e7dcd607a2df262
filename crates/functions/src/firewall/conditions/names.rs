//! Names of ICMP types, as in nftables.

/// ICMP types by nftables' names (RFC 792 and its successors).
pub(in crate::firewall) const ICMP_NAMES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

/// ICMPv6 types by nftables' names (RFC 4443, 4861 and 2710).
pub(in crate::firewall) const ICMPV6_NAMES: &[(&str, u8)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];

/// Codes of ICMP's "destination unreachable", by name.
pub(in crate::firewall) const ICMP_CODES: &[(&str, u8)] = &[
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];
/// Codes of ICMPv6's "destination unreachable", by name.
pub(in crate::firewall) const ICMPV6_CODES: &[(&str, u8)] = &[
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("addr-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];

/// Protocols that the parser does not name, with the names of Debian's /etc/protocols.
pub(in crate::firewall) const PROTOCOLS: &[(&str, u8)] = &[
    ("hopopt", 0),
    ("igmp", 2),
    ("ipencap", 4),
    ("egp", 8),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("ipip", 94),
    ("pim", 103),
    ("ipcomp", 108),
    ("comp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("mobility-header", 135),
    ("udplite", 136),
    ("hip", 139),
    ("shim6", 140),
];

/// The code with this name.
pub(in crate::firewall) fn code(codes: &[(&str, u8)], name: &str) -> Option<u64> {
    codes.iter().find(|(known, _)| *known == name).map(|(_, code)| u64::from(*code))
}
