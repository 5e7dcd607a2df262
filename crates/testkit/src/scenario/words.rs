//! Names of ICMP types and codes (IANA), for IPv4 and IPv6.

use braid_packet::IpVersion;

/// The value for an incorrect checksum.
pub const WRONG: &str = "wrong";

/// Name, ICMP type, ICMPv6 type.
const TYPES: [(&str, Option<u8>, Option<u8>); 18] = [
    ("echo", Some(8), Some(128)),
    ("echo-reply", Some(0), Some(129)),
    ("unreachable", Some(3), Some(1)),
    ("too-big", None, Some(2)),
    ("exceeded", Some(11), Some(3)),
    ("parameter-problem", Some(12), Some(4)),
    ("redirect", Some(5), Some(137)),
    ("source-quench", Some(4), None),
    ("timestamp", Some(13), None),
    ("timestamp-reply", Some(14), None),
    ("information", Some(15), None),
    ("information-reply", Some(16), None),
    ("mask", Some(17), None),
    ("mask-reply", Some(18), None),
    ("router-solicitation", Some(10), Some(133)),
    ("router-advertisement", Some(9), Some(134)),
    ("neighbor-solicitation", None, Some(135)),
    ("neighbor-advertisement", None, Some(136)),
];

/// Names of the codes of "unreachable", with the codes of ICMP and ICMPv6.
const CODES: [(&str, Option<u8>, Option<u8>); 9] = [
    ("net", Some(0), None),
    ("host", Some(1), None),
    ("protocol", Some(2), None),
    ("port", Some(3), Some(4)),
    ("needs-frag", Some(4), None),
    ("route-failed", Some(5), None),
    ("admin", Some(13), Some(1)),
    ("no-route", None, Some(0)),
    ("address", None, Some(3)),
];

fn of(row: &(&str, Option<u8>, Option<u8>), version: IpVersion) -> Option<u8> {
    match version {
        IpVersion::V4 => row.1,
        IpVersion::V6 => row.2,
    }
}

/// The type with this name or number.
pub fn icmp_type(name: &str, version: IpVersion) -> Option<u8> {
    let known = TYPES.iter().find(|row| row.0 == name).and_then(|row| of(row, version));
    known.or_else(|| name.parse().ok())
}

/// The name of a type, or its number.
pub fn type_name(kind: u8, version: IpVersion) -> String {
    TYPES.iter().find(|row| of(row, version) == Some(kind)).map_or_else(|| kind.to_string(), |row| row.0.to_owned())
}

/// The code with this name or number.
pub fn code(name: &str, version: IpVersion) -> Option<u8> {
    CODES.iter().find(|row| row.0 == name).and_then(|row| of(row, version)).or_else(|| name.parse().ok())
}

/// The name of a code, or its number.
pub fn code_name(operation: &str, version: IpVersion, code: u64) -> String {
    let known = CODES.iter().find(|row| operation == "unreachable" && of(row, version).map(u64::from) == Some(code));
    known.map_or_else(|| code.to_string(), |row| row.0.to_owned())
}

/// The names of all types, for help texts.
pub fn type_names() -> String {
    TYPES.iter().map(|row| row.0).collect::<Vec<_>>().join(", ")
}

/// Whether messages of this type quote a packet.
pub fn is_error(kind: u8, version: IpVersion) -> bool {
    match version {
        IpVersion::V4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
        IpVersion::V6 => kind < 128,
    }
}

/// Least bytes of a quoted packet before an extension, padding included (RFC 4884 section 4).
pub const QUOTED_MIN: usize = 128;

/// Where, among the four bytes behind the checksum, an error of this type says how long the quoted packet is that an extension
/// follows, and in units of how many bytes (RFC 4884 section 4).
pub fn quoted_length(kind: u8, version: IpVersion) -> Option<(usize, usize)> {
    match (kind, version) {
        (1 | 3, IpVersion::V6) => Some((0, 8)),
        (3 | 11 | 12, IpVersion::V4) => Some((1, 4)),
        _ => None,
    }
}

/// Whether it has an identifier and a sequence number.
pub fn is_query(kind: u8, version: IpVersion) -> bool {
    match version {
        IpVersion::V4 => matches!(kind, 0 | 8 | 13..=18),
        IpVersion::V6 => matches!(kind, 128 | 129),
    }
}
