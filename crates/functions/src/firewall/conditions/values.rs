//! The values in conditions: address ranges, protocols, port ranges, ICMP types and TCP flags, each as written in plans
//! and rule files.

use std::net::SocketAddr;

use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, services};
use serde::Deserialize;

use super::masked::disjoint;
use super::{fields, names};
use crate::config::backwards;
use crate::parts::Prefix;

/// An address as a number, which preserves order; IPv4 in its mapped form.
pub(in crate::firewall) fn number(address: IpAddress) -> u128 {
    u128::from_be_bytes(address.octets())
}

/// The address for a number.
pub(in crate::firewall) fn address(number: u128) -> IpAddress {
    IpAddress::from_v6(number.to_be_bytes())
}

/// A range of addresses of one IP version, ends included: `10.0.0.0/8`, `10.0.0.1`, `10.0.0.1-10.0.0.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Addresses {
    pub(in crate::firewall) first: u128,
    pub(in crate::firewall) last: u128,
}

impl Addresses {
    /// All addresses of an IP version.
    pub(in crate::firewall) fn all(version: IpVersion) -> Addresses {
        let base = match version {
            IpVersion::V4 => IpAddress::from_v4([0; 4]),
            IpVersion::V6 => IpAddress::UNSPECIFIED,
        };
        Addresses::of(Prefix::new(base, 0))
    }

    fn of(prefix: Prefix) -> Addresses {
        let first = number(prefix.first());
        Addresses { first, last: first | u128::MAX.checked_shr(prefix.mapped_bits()).unwrap_or(0) }
    }

    pub(in crate::firewall) fn version(&self) -> IpVersion {
        address(self.first).version()
    }

    pub(in crate::firewall) fn contains(&self, number: u128) -> bool {
        (self.first..=self.last).contains(&number) && address(number).version() == self.version()
    }

    /// The addresses of which the first `bits` bits, followed by zeros, are in this range; `None` if there are none.
    pub(in crate::firewall) fn under(&self, bits: u32) -> Option<Addresses> {
        let size = self.version().address_bits();
        let behind = u128::MAX.checked_shr(128 - size + bits).unwrap_or(0);
        let behind = if self.version() == IpVersion::V4 { behind & u128::from(u32::MAX) } else { behind };
        let (first, last) = (self.first.checked_add(behind)? & !behind, self.last & !behind);
        (first <= last).then_some(Addresses { first, last: last | behind })
    }

    /// The intersection of both ranges, if there is one.
    pub(in crate::firewall) fn meet(&self, other: &Addresses) -> Option<Addresses> {
        let both = Addresses { first: self.first.max(other.first), last: self.last.min(other.last) };
        (self.version() == other.version() && both.first <= both.last).then_some(both)
    }

    /// The ranges of addresses that are in both of two lists, found in one pass along both.
    pub(in crate::firewall) fn in_both(one: &[Addresses], other: &[Addresses]) -> Vec<Addresses> {
        let mut both = Vec::new();
        for version in IpVersion::BOTH {
            let of_version = |list: &[Addresses]| {
                let list = list.iter().filter(|range| range.version() == version);
                disjoint(list.map(|range| (range.first, range.last)).collect())
            };
            let (one, other) = (of_version(one), of_version(other));
            let mut at = 0;
            for (first, last) in one {
                at += other.get(at..).unwrap_or_default().iter().take_while(|range| range.1 < first).count();
                let met = other.get(at..).unwrap_or_default().iter().take_while(|range| range.0 <= last);
                both.extend(met.map(|range| Addresses { first: range.0.max(first), last: range.1.min(last) }));
            }
        }
        both
    }

    /// All addresses of the IP version that are in none of `taken`.
    pub(in crate::firewall) fn except(version: IpVersion, mut taken: Vec<Addresses>) -> Vec<Addresses> {
        let all = Addresses::all(version);
        if version == IpVersion::V6 {
            // The range of mapped IPv4 addresses is not IPv6.
            taken.push(Addresses::all(IpVersion::V4));
        }
        taken.sort_by_key(|range| range.first);
        let mut left = Vec::new();
        let mut from = Some(all.first);
        for range in taken {
            let Some(first) = from else { break };
            if range.first > first {
                left.push(Addresses { first, last: range.first - 1 });
            }
            if range.last >= first {
                from = range.last.checked_add(1);
            }
        }
        if let Some(first) = from
            && first <= all.last
        {
            left.push(Addresses { first, last: all.last });
        }
        left
    }
}

impl std::str::FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Addresses, String> {
        let wrong = || {
            format!("`{text}` is no address range, expected 10.0.0.0/8, 2001:db8::/32, 10.0.0.1 or 10.0.0.1-10.0.0.9")
        };
        let Some((first, last)) = text.split_once('-') else {
            return text.parse::<Prefix>().map(Addresses::of).map_err(|_| wrong());
        };
        let ends = (first.trim().parse::<IpAddress>(), last.trim().parse::<IpAddress>());
        match ends {
            (Ok(first), Ok(last)) if first <= last && first.version() == last.version() => {
                Ok(Addresses { first: number(first), last: number(last) })
            }
            (Ok(first), Ok(last)) if first.version() == last.version() => Err(backwards(text, first, last)),
            _ => Err(wrong()),
        }
    }
}

/// The target of a port forwarding: an inside address, or one port of it: `10.0.0.5`, `10.0.0.5:443`,
/// `[2001:db8::5]:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Forward {
    pub(in crate::firewall) address: Addresses,
    /// `None`: all ports.
    pub(in crate::firewall) port: Option<u16>,
}

impl TryFrom<String> for Forward {
    type Error = String;

    fn try_from(text: String) -> Result<Forward, String> {
        let (address, port) = match text.parse::<SocketAddr>() {
            Ok(end) => (end.ip().to_string(), Some(end.port())),
            Err(_) => (text.clone(), None),
        };
        match address.parse::<Addresses>() {
            Ok(address) if port != Some(0) => Ok(Forward { address, port }),
            _ => {
                Err(format!("`{text}` is nothing to forward to, expected 10.0.0.5, 10.0.0.5:443 or [2001:db8::5]:443"))
            }
        }
    }
}

impl TryFrom<String> for Addresses {
    type Error = String;

    fn try_from(text: String) -> Result<Addresses, String> {
        text.parse()
    }
}

impl std::fmt::Display for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.last - self.first;
        let family = self.version().address_bits();
        match (size, size.wrapping_add(1).is_power_of_two() || size == u128::MAX, self.first & size) {
            (0, ..) => write!(f, "{}", address(self.first)),
            (_, true, 0) => write!(f, "{}/{}", address(self.first), family - size.count_ones()),
            _ => write!(f, "{}-{}", address(self.first), address(self.last)),
        }
    }
}

/// A protocol, given by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NameOrNumber")]
pub struct Protocol(pub u8);

/// A range of ports, ends included: `"80"`, `80` or `"6000-6063"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NameOrNumber")]
pub struct PortRange {
    pub(in crate::firewall) first: u16,
    pub(in crate::firewall) last: u16,
}

impl PortRange {
    pub(in crate::firewall) fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// The intersection of both ranges, if there is one.
    pub(in crate::firewall) fn meet(&self, other: &PortRange) -> Option<PortRange> {
        let both = PortRange { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }
}

/// An ICMP or ICMPv6 type, optionally with a code: `8`, `"3/4"`; in rule files also by the names of nftables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NameOrNumber")]
pub struct IcmpKind {
    pub(in crate::firewall) first: u16,
    pub(in crate::firewall) last: u16,
}

impl IcmpKind {
    pub(in crate::firewall) fn contains(&self, kind: u16) -> bool {
        (self.first..=self.last).contains(&kind)
    }

    /// Reads a type as written in rule files: an ICMP or ICMPv6 name, `8`, `3/4`, `128-130`.
    pub(in crate::firewall) fn written(text: &str, version: IpVersion) -> Option<IcmpKind> {
        let hexadecimal = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let one = |text: &str| {
            let named = IcmpKind::named(text, version).or_else(|| NameOrNumber::Name(text.to_owned()).try_into().ok());
            named.or_else(|| hexadecimal(text).map(|kind| IcmpKind::of(kind, None)))
        };
        let ends = || text.split_once('-').and_then(|(first, last)| Some((one(first)?, one(last)?)));
        let range = |(first, last): (IcmpKind, IcmpKind)| IcmpKind { first: first.first, last: last.last };
        one(text).or_else(|| ends().map(range).filter(|range| range.first <= range.last))
    }

    /// All types that are in none of `taken`.
    pub(in crate::firewall) fn except(taken: &[IcmpKind]) -> Vec<IcmpKind> {
        let taken = taken.iter().map(|kind| (kind.first.into(), kind.last.into())).collect();
        let left = fields::except(taken, u16::MAX.into()).into_iter();
        left.map(|(first, last)| IcmpKind { first: first as u16, last: last as u16 }).collect()
    }

    /// Looks a type up by its ICMP or ICMPv6 name.
    fn named(name: &str, version: IpVersion) -> Option<IcmpKind> {
        let names = match version {
            IpVersion::V4 => names::ICMP_NAMES,
            IpVersion::V6 => names::ICMPV6_NAMES,
        };
        names.iter().find(|(known, _)| *known == name).map(|(_, kind)| IcmpKind::of(*kind, None))
    }

    /// All codes of a range of types.
    pub(in crate::firewall) fn types(first: u8, last: u8) -> IcmpKind {
        IcmpKind { first: IcmpKind::of(first, None).first, last: IcmpKind::of(last, None).last }
    }

    /// The intersection of both ranges, if there is one.
    pub(in crate::firewall) fn meet(&self, other: &IcmpKind) -> Option<IcmpKind> {
        let both = IcmpKind { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }

    fn of(kind: u8, code: Option<u8>) -> IcmpKind {
        let [first, last] = code.map_or([0, 255], |code| [code, code]).map(|code| u16::from_be_bytes([kind, code]));
        IcmpKind { first, last }
    }
}

/// A condition on TCP control bits: `"syn / syn,ack"` compares the second list's bits with the first; `"syn,ack"`
/// requires at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bits {
    pub(in crate::firewall) set: u8,
    /// The bits to compare; 0: at least one of `set` must be set.
    pub(in crate::firewall) of: u8,
    /// Whether the condition is negated.
    pub(in crate::firewall) not: bool,
}

impl Bits {
    pub(in crate::firewall) fn fit(self, flags: u8) -> bool {
        let is_so = if self.of == 0 { flags & self.set != 0 } else { flags & self.of == self.set };
        is_so != self.not
    }
}

const FLAG_NAMES: [(&str, u8); 8] = [
    ("fin", tcp_flags::FIN),
    ("syn", tcp_flags::SYN),
    ("rst", tcp_flags::RST),
    ("psh", tcp_flags::PSH),
    ("ack", tcp_flags::ACK),
    ("urg", tcp_flags::URG),
    ("ecn", tcp_flags::ECE),
    ("cwr", tcp_flags::CWR),
];

/// The control bit with this name.
pub(in crate::firewall) fn flag(name: &str) -> Option<u8> {
    FLAG_NAMES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

impl std::str::FromStr for Bits {
    type Err = String;

    fn from_str(text: &str) -> Result<Bits, String> {
        let (text, not) = text.strip_prefix("not ").map_or((text, false), |text| (text, true));
        let bits = |list: &str| match list.trim() {
            "none" => Some(0),
            list => list.split(',').try_fold(0, |bits, name| Some(bits | flag(name.trim())?)),
        };
        let (set, of) = text.split_once('/').map_or((text, None), |(set, of)| (set, Some(of)));
        match (bits(set), of.map(bits)) {
            (Some(set), None) if set != 0 => Ok(Bits { set, of: 0, not }),
            (Some(set), Some(Some(of))) if set & !of == 0 && of != 0 => Ok(Bits { set, of, not }),
            _ => Err(format!("`{text}` are no TCP flags, expected such as syn,ack or syn / fin,syn,rst,ack")),
        }
    }
}

impl std::fmt::Display for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |bits: u8| {
            let names: Vec<_> = FLAG_NAMES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(",") }
        };
        if self.not {
            f.write_str("not ")?;
        }
        f.write_str(&names(self.set))?;
        if self.of == 0 { Ok(()) } else { write!(f, " / {}", names(self.of)) }
    }
}

impl TryFrom<String> for Bits {
    type Error = String;

    fn try_from(text: String) -> Result<Bits, String> {
        text.parse()
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "neither a number nor a text, expected such as 80 or \"ssh\", or several in a list")]
pub(in crate::firewall) enum NameOrNumber {
    Number(i64),
    Name(String),
}

impl TryFrom<NameOrNumber> for Protocol {
    type Error = String;

    fn try_from(written: NameOrNumber) -> Result<Protocol, String> {
        let text = match written {
            NameOrNumber::Number(number) => number.to_string(),
            NameOrNumber::Name(name) => name,
        };
        let named = || names::PROTOCOLS.iter().find(|(known, _)| *known == text).map(|(_, number)| *number);
        let number = text.parse().ok().or_else(named);
        let number = number.or_else(|| (0..=255).find(|number| protocol::name(*number) == Some(&text)));
        number
            .map(Protocol)
            .ok_or_else(|| format!("`{text}` is no protocol, expected a number up to 255 or a name such as tcp"))
    }
}

impl TryFrom<NameOrNumber> for PortRange {
    type Error = String;

    fn try_from(written: NameOrNumber) -> Result<PortRange, String> {
        let text = match written {
            NameOrNumber::Number(port) => port.to_string(),
            NameOrNumber::Name(text) => text,
        };
        if let Some(port) = services::port(&text) {
            return Ok(PortRange { first: port, last: port });
        }
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(PortRange { first, last }),
            (Ok(first), Ok(last)) => Err(backwards(&text, first, last)),
            _ => Err(format!("`{text}` is no range of ports, expected 80, \"6000-6063\" or a name such as \"ssh\"")),
        }
    }
}

impl TryFrom<NameOrNumber> for IcmpKind {
    type Error = String;

    fn try_from(written: NameOrNumber) -> Result<IcmpKind, String> {
        let text = match written {
            NameOrNumber::Number(number) => number.to_string(),
            NameOrNumber::Name(name) => name,
        };
        let (kind, code) = text.split_once('/').map_or((text.as_str(), None), |(kind, code)| (kind, Some(code)));
        match (kind.trim().parse(), code.map(|code| code.trim().parse())) {
            (Ok(kind), None) => Ok(IcmpKind::of(kind, None)),
            (Ok(kind), Some(Ok(code))) => Ok(IcmpKind::of(kind, Some(code))),
            _ => Err(format!("`{text}` is no ICMP type, expected 8 or \"3/4\"; rule files take names")),
        }
    }
}
