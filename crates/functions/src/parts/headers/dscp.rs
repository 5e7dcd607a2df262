//! The differentiated services code point (RFC 2474): six bits of IPv4's type of service and IPv6's traffic class.

use braid_nf::Packet;
use braid_nf::packet::IpVersion;
use braid_nf::packet::checksum::Change;
use serde::Deserialize;

/// A code point in configuration: a number, or a name from RFC 2474, 2597, 3246, 5865 or 8622.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NumberOrName")]
pub struct CodePoint(pub u8);

braid_nf::plain!(CodePoint);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrName {
    Number(i64),
    Name(String),
}

impl TryFrom<NumberOrName> for CodePoint {
    type Error = String;

    fn try_from(written: NumberOrName) -> Result<CodePoint, String> {
        let (found, text) = match written {
            NumberOrName::Number(number) => (u8::try_from(number).ok().filter(|point| *point < 64), number.to_string()),
            NumberOrName::Name(name) => (named(&name), name),
        };
        let wrong =
            || format!("`{text}` is no code point, expected 0 to 63 or a name such as \"af11\", \"ef\", \"cs1\"");
        found.map(CodePoint).ok_or_else(wrong)
    }
}

/// Returns the code point with this name.
pub fn named(name: &str) -> Option<u8> {
    let digits: Vec<u8> = name.bytes().skip(2).map(|digit| digit.wrapping_sub(b'0')).collect();
    match (name.get(..2)?, digits.as_slice()) {
        ("ef", []) => Some(46),
        ("va", []) => Some(44),
        ("le", []) => Some(1),
        ("cs", [class @ 0..=7]) => Some(class << 3),
        ("af", [class @ 1..=4, precedence @ 1..=3]) => Some(class << 3 | precedence << 1),
        _ => None,
    }
}

/// Returns the code point of a packet, or `None` if it is not IP.
pub fn of(packet: &Packet<'_>) -> Option<u8> {
    match packet.ip_version()? {
        IpVersion::V4 => Some(packet.ipv4()?.dscp()),
        IpVersion::V6 => Some(packet.ipv6()?.traffic_class() >> 2),
    }
}

/// Writes the code point; the two bits of explicit congestion notification stay.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names() {
        let names = ["cs0", "le", "cs1", "af11", "af23", "af43", "va", "ef", "cs7"];
        assert_eq!(names.map(|name| named(name).unwrap()), [0, 1, 8, 10, 22, 38, 44, 46, 56]);
        for wrong in ["af51", "af14", "cs8", "e", "eff", "af1", ""] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
