//! Addresses as plain bytes: zerocopy types of fixed size without padding, so that they can be part of keys and state.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::packet::IpVersion;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An IEEE 802 address.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Returns whether the group bit is set: broadcast or multicast (IEEE 802 section 8.2).
    #[inline(always)]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no Ethernet address, expected six pairs of digits such as 02:00:00:00:00:01")]
pub struct NotMac(pub String);

/// Parses six numbers of one or two hexadecimal digits, separated by `:` or `-`.
impl std::str::FromStr for MacAddress {
    type Err = NotMac;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let byte = |digits: &str| {
            let is_number = matches!(digits.len(), 1..=2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(digits, 16).ok().filter(|_| is_number)
        };
        let bytes: Option<Vec<u8>> = text.split(if text.contains(':') { ':' } else { '-' }).map(byte).collect();
        let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        bytes.map(MacAddress).ok_or_else(|| NotMac(text.to_owned()))
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(bytes: [u8; 6]) -> Self {
        MacAddress(bytes)
    }
}

/// An IPv4 or IPv6 address in 16 bytes; IPv4 in its mapped form `::ffff:a.b.c.d` (RFC 4291 section 2.5.5.2).
///
/// The mapped form is not legal on the wire, so the two families do not collide; a packet that carries it anyway yields an
/// address that counts as IPv4. Order and equality are those of the 16 bytes.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct IpAddress([u8; 16]);

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl IpAddress {
    /// The IPv6 address `::`, also the default. No packet should carry it as its destination.
    pub const UNSPECIFIED: IpAddress = IpAddress([0; 16]);

    /// Creates an address from the four bytes of an IPv4 header.
    #[inline(always)]
    pub const fn from_v4(address: [u8; 4]) -> IpAddress {
        // As an integer, because the compiler needs sixty instructions for the byte-wise form.
        let mapped = 0xffff << 32 | u32::from_be_bytes(address) as u128;
        IpAddress(mapped.to_be_bytes())
    }

    /// Creates an address from the sixteen bytes of an IPv6 header.
    #[inline(always)]
    pub const fn from_v6(address: [u8; 16]) -> IpAddress {
        IpAddress(address)
    }

    /// Returns whether this is an IPv4 address.
    #[inline(always)]
    pub fn is_v4(&self) -> bool {
        self.0[..12] == MAPPED
    }

    /// Returns the IP version whose packets have it.
    #[inline(always)]
    pub fn version(&self) -> IpVersion {
        if self.is_v4() { IpVersion::V4 } else { IpVersion::V6 }
    }

    /// Returns the four bytes of an IPv4 address.
    #[inline(always)]
    pub fn v4(&self) -> Option<[u8; 4]> {
        // As one chunk: if taken byte by byte, it would be loaded byte by byte too.
        self.0.last_chunk().copied().filter(|_| self.is_v4())
    }

    /// Returns all sixteen bytes.
    #[inline(always)]
    pub const fn octets(&self) -> [u8; 16] {
        self.0
    }

    /// Returns the address with all bits after the first `bits` bits cleared; `bits` counts within the address's own family.
    pub fn prefix(&self, bits: u8) -> IpAddress {
        let keep = if self.is_v4() { 96 + u32::from(bits.min(32)) } else { u32::from(bits.min(128)) };
        let mask = u128::MAX.checked_shl(128 - keep).unwrap_or(0);
        IpAddress((u128::from_be_bytes(self.0) & mask).to_be_bytes())
    }
}

impl From<Ipv4Addr> for IpAddress {
    fn from(address: Ipv4Addr) -> Self {
        IpAddress::from_v4(address.octets())
    }
}

impl From<Ipv6Addr> for IpAddress {
    fn from(address: Ipv6Addr) -> Self {
        IpAddress(address.octets())
    }
}

impl From<IpAddr> for IpAddress {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<IpAddress> for IpAddr {
    fn from(address: IpAddress) -> Self {
        match address.v4() {
            Some(bytes) => IpAddr::V4(bytes.into()),
            None => IpAddr::V6(address.0.into()),
        }
    }
}

impl fmt::Display for IpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for IpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for IpAddress {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<IpAddr>().map(IpAddress::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, v4: bool) {
        let address: IpAddress = text.parse().unwrap();
        assert_eq!(address.is_v4(), v4);
        assert_eq!(address.to_string(), text);
        assert_eq!(IpAddress::from(IpAddr::from(address)), address);
    }

    #[test]
    fn both_families_print_as_they_are_written() {
        check("10.0.0.1", true);
        check("0.0.0.0", true);
        check("2001:db8::1", false);
        check("::", false);
    }

    #[test]
    fn an_ethernet_address_is_six_numbers_and_nothing_else() {
        for text in ["02:00:00:0a:00:01", "02-00-00-0A-00-01", "2:0:0:a:0:1"] {
            assert_eq!(text.parse(), Ok(MacAddress([2, 0, 0, 10, 0, 1])), "{text}");
        }
        let (long, short) = ("02:00:00:00:00:01:02", "02:00:00:00:00");
        for text in [long, short, "02:00:00:00:00:01:", "02:00:00:00:00:01:zz", "+2:0:0:0:0:1", "002:0:0:0:0:1", ""] {
            assert_eq!(text.parse::<MacAddress>(), Err(NotMac(text.to_owned())));
        }
        assert!("02:00:00-00-00-01".parse::<MacAddress>().is_err());
    }

    #[test]
    fn a_prefix_counts_in_its_own_family() {
        let cut = |text: &str, bits| text.parse::<IpAddress>().unwrap().prefix(bits).to_string();
        assert_eq!(cut("10.1.2.3", 8), "10.0.0.0");
        assert_eq!(cut("10.1.2.3", 0), "0.0.0.0");
        assert_eq!(cut("10.1.2.3", 99), "10.1.2.3");
        assert_eq!(cut("2001:db8:1::1", 32), "2001:db8::");
        assert_eq!(cut("2001:db8:1::1", 0), "::");
    }
}
