//! Address ranges as configuration names them.

use std::net::Ipv4Addr;

pub use braid_nf::packet::PrefixError;
use braid_nf::packet::{self, IpAddress};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::config::{ConfigError, backwards, check_lengths};

/// An [address range](packet::Prefix) that can be read from configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix(packet::Prefix);

impl std::ops::Deref for Prefix {
    type Target = packet::Prefix;

    #[inline(always)]
    fn deref(&self) -> &packet::Prefix {
        &self.0
    }
}

braid_nf::plain!(Prefix);

/// Prefix lengths of the address ranges that are one host to a limit: an IPv6 host may use any address of its /64 (RFC 8981).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lengths {
    /// For IPv4.
    pub v4: u8,
    /// For IPv6.
    pub v6: u8,
}

braid_nf::plain!(Lengths);

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { v4: 32, v6: 64 }
    }
}

impl Lengths {
    /// Checks that addresses have so many bits; the error names this key.
    pub(crate) fn check(self, key: &str) -> Result<Lengths, ConfigError> {
        check_lengths(key, self.v4, self.v6)?;
        Ok(self)
    }

    /// The range of an address, as its first address.
    pub fn range_of(self, address: IpAddress) -> IpAddress {
        address.prefix(if address.is_v4() { self.v4 } else { self.v6 })
    }
}

impl Prefix {
    /// Returns the range of the addresses that share the first `bits` bits with `address`.
    pub fn new(address: IpAddress, bits: u8) -> Prefix {
        Prefix(packet::Prefix::new(address, bits))
    }

    /// Returns the first range of a list that adds nothing to the others, and the range that already contains all of it.
    pub fn idle_of(list: &[Prefix]) -> Option<(Prefix, Prefix)> {
        let wider = |at: usize, range: &Prefix| {
            let covers = |(other, wide): &(usize, &Prefix)| {
                *other != at && wide.covers(range) && (*wide != range || *other < at)
            };
            list.iter().enumerate().find(covers).map(|(_, wide)| *wide)
        };
        list.iter().enumerate().find_map(|(at, range)| Some((*range, wider(at, range)?)))
    }

    /// How many bits its addresses share, out of the 128 bits of the IPv4-mapped form.
    pub(crate) fn mapped_bits(&self) -> u32 {
        u32::from(self.bits()) + if self.is_v4() { 96 } else { 0 }
    }

    /// The number of addresses of an IPv4 range; `None` for an IPv6 range.
    pub fn len_v4(&self) -> Option<u64> {
        self.is_v4().then(|| 1 << (32 - u32::from(self.bits().min(32))))
    }

    /// The addresses of an IPv4 range, in order; empty for an IPv6 range.
    pub fn addresses_v4(&self) -> impl Iterator<Item = [u8; 4]> {
        let first = self.first().v4().map_or(0, u32::from_be_bytes);
        (0..self.len_v4().unwrap_or(0)).map(move |n| first.wrapping_add(n as u32).to_be_bytes())
    }

    /// The fewest ranges that together have all IPv4 addresses from the first to the last, in order.
    fn spanning(first: u32, last: u32) -> Vec<Prefix> {
        let (mut ranges, mut next) = (Vec::new(), u64::from(first));
        while next <= u64::from(last) {
            // As many as the alignment allows, and as are left.
            let most = (next as u32).trailing_zeros().min((u64::from(last) - next + 1).ilog2());
            ranges.push(Prefix::new(IpAddress::from_v4((next as u32).to_be_bytes()), 32 - most as u8));
            next += 1 << most;
        }
        ranges
    }
}

/// Ranges of IPv4 addresses, in a form that can be searched for each first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixesV4(Box<[MaskedV4]>);

/// The addresses that equal `first` in the bits of `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MaskedV4 {
    mask: u32,
    first: u32,
}

braid_nf::plain!(PrefixesV4);

impl PrefixesV4 {
    /// Collects the IPv4 ranges of a list.
    pub fn of(ranges: &[Prefix]) -> PrefixesV4 {
        let masked = |range: &Prefix| {
            let first = u32::from_be_bytes(range.first().v4()?);
            Some(MaskedV4 { mask: u32::MAX.checked_shl(32 - u32::from(range.bits())).unwrap_or(0), first })
        };
        PrefixesV4(ranges.iter().filter_map(masked).collect())
    }

    /// Whether an address is in one of the ranges.
    #[inline(always)]
    pub fn contains(&self, address: [u8; 4]) -> bool {
        let address = u32::from_be_bytes(address);
        self.0.iter().any(|range| address & range.mask == range.first)
    }
}

impl std::str::FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        text.parse().map(Prefix)
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Prefix, PrefixError> {
        text.parse()
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a network in a plan file as `ip route` takes it: an address with bits beyond the prefix length is refused, since its
/// author may have meant that address alone.
pub(crate) fn network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Prefix, D::Error> {
    let text = String::deserialize(deserializer)?;
    let prefix: Prefix = text.parse().map_err(D::Error::custom)?;
    let written: Option<IpAddress> = text.split('/').next().and_then(|address| address.parse().ok());
    match written.filter(|address| *address != prefix.first()) {
        None => Ok(prefix),
        Some(address) => {
            let alone = if address.is_v4() { 32 } else { 128 };
            let what = "has bits behind its length";
            Err(D::Error::custom(format!("`{text}` {what}, expected `{prefix}`, or `{address}/{alone}` for it alone")))
        }
    }
}

/// The same, for a key that may be left out.
pub(crate) fn some_network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Prefix>, D::Error> {
    network(deserializer).map(Some)
}

/// Reads address ranges in a plan file, including those with two ends: `198.51.100.3-198.51.100.9`.
pub(crate) fn with_ends<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let written = Vec::<Written>::deserialize(deserializer)?;
    Ok(written.into_iter().flat_map(|written| written.0).collect())
}

/// One element of such a list.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Written(Vec<Prefix>);

/// The error for a text that is neither form of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum WrittenError {
    #[error("{0}")]
    Backwards(String),
    #[error("`{0}` is no address range, expected `198.51.100.0/28`, `198.51.100.3-198.51.100.9`, or a single address")]
    Other(String),
}

impl TryFrom<String> for Written {
    type Error = WrittenError;

    fn try_from(text: String) -> Result<Written, WrittenError> {
        let Some((first, last)) = text.split_once('-') else {
            return text
                .parse()
                .map(|prefix| Written(vec![prefix]))
                .map_err(|PrefixError(text)| WrittenError::Other(text));
        };
        let end = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
        match (end(first), end(last)) {
            (Some(first), Some(last)) if first > last => {
                Err(WrittenError::Backwards(backwards(&text, Ipv4Addr::from(first), Ipv4Addr::from(last))))
            }
            (Some(first), Some(last)) => Ok(Written(Prefix::spanning(first, last))),
            _ => Err(WrittenError::Other(text)),
        }
    }
}

/// Private addresses (RFC 1918, RFC 6598, RFC 4193): the inside, unless configured otherwise.
pub(crate) fn private() -> Vec<Prefix> {
    let ranges = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];
    ranges.iter().filter_map(|range| range.parse().ok()).collect()
}

/// Checks that every range of a list adds something to the others.
pub(crate) fn apart(key: &str, ranges: &[Prefix]) -> Result<(), ConfigError> {
    match Prefix::idle_of(ranges) {
        None => Ok(()),
        Some((range, wide)) if range == wide => {
            Err(ConfigError::new(key, format!("{range} stands there twice"), "write it once"))
        }
        Some((range, wide)) => {
            let reason = format!("{range} lies in {wide}, which stands there too");
            Err(ConfigError::new(key, reason, "leave one of them out"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: &str, address: &str, inside: bool) {
        let (range, address): (Prefix, IpAddress) = (range.parse().unwrap(), address.parse().unwrap());
        assert_eq!(range.contains(address), inside, "{range} {address}");
        let listed = PrefixesV4::of(&[range]).contains(address.v4().unwrap());
        assert_eq!(listed, inside, "{range} {address} by mask");
    }

    #[test]
    fn a_list_of_ranges_holds_what_its_ranges_hold() {
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.9.9.9/8", "10.0.0.1", true);
        check("0.0.0.0/0", "203.0.113.1", true);
        check("192.0.2.1", "192.0.2.1", true);
        check("192.0.2.1", "192.0.2.2", false);
    }

    #[test]
    fn a_range_may_have_two_ends() {
        let ranges = |text: &str| {
            let words = |written: Written| written.0.iter().map(Prefix::to_string).collect::<Vec<_>>().join(" ");
            Written::try_from(text.to_owned()).map(words)
        };
        let is = |text: &str, expected: &str| assert_eq!(ranges(text), Ok(expected.to_owned()), "{text}");
        is("198.51.100.3-198.51.100.9", "198.51.100.3/32 198.51.100.4/30 198.51.100.8/31");
        is("198.51.100.3 - 198.51.100.3", "198.51.100.3/32");
        is("198.51.100.0/28", "198.51.100.0/28");
        is("10.0.0.0-10.255.255.255", "10.0.0.0/8");
        is("0.0.0.0-255.255.255.255", "0.0.0.0/0");
        is("0.0.0.0-9.255.255.255", "0.0.0.0/5 8.0.0.0/7");
        is("255.255.255.254-255.255.255.255", "255.255.255.254/31");
        for wrong in ["198.51.100.3-", "198.51.100.3-9", "::1-::2"] {
            assert_eq!(ranges(wrong), Err(WrittenError::Other(wrong.to_owned())));
        }
        let error = ranges("198.51.100.9-198.51.100.3").unwrap_err().to_string();
        assert!(error.ends_with("ends before it begins; write \"198.51.100.3-198.51.100.9\""), "{error}");
    }
}
