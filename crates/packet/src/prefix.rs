//! Ranges of addresses that share their first bits: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use std::fmt;
use std::str::FromStr;

use crate::address::IpAddress;

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddress,
    bits: u8,
}

/// The error for a text that is not an address range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address range, expected `10.0.0.0/8`, `2001:db8::/32`, a single address, or `0.0.0.0/0` or `::/0` for all"
)]
pub struct PrefixError(pub String);

impl Prefix {
    /// Returns the range of the addresses that share the first `bits` bits with `address`. `bits` counts within the
    /// address's own version of IP and is limited to its length.
    pub fn new(address: IpAddress, bits: u8) -> Prefix {
        let bits = bits.min(address.version().address_bits() as u8);
        Prefix { address: address.prefix(bits), bits }
    }

    /// Returns whether `address` is of the same version and in the range.
    #[inline]
    pub fn contains(&self, address: IpAddress) -> bool {
        match (self.address.v4(), address.v4()) {
            (Some(ours), Some(theirs)) => {
                let differ = u32::from_be_bytes(ours) ^ u32::from_be_bytes(theirs);
                differ.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (None, None) => address.prefix(self.bits) == self.address,
            _ => false,
        }
    }

    /// Returns whether all addresses of another range are in this one.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.is_v4() == other.is_v4() && self.bits <= other.bits && self.contains(other.address)
    }

    /// Returns whether the range consists of IPv4 addresses.
    pub fn is_v4(&self) -> bool {
        self.address.is_v4()
    }

    /// Returns how many leading bits its addresses share.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns the first address of the range.
    pub fn first(&self) -> IpAddress {
        self.address
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let wrong = || PrefixError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddress = address.parse().map_err(|_| wrong())?;
        let most = address.version().address_bits() as u8;
        match bits.unwrap_or(most) {
            bits if bits <= most => Ok(Prefix::new(address, bits)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: &str, address: &str, inside: bool) {
        let (range, address): (Prefix, IpAddress) = (range.parse().unwrap(), address.parse().unwrap());
        assert_eq!(range.contains(address), inside, "{range} {address}");
    }

    #[test]
    fn a_range_holds_addresses_of_its_own_version_only() {
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.9.9.9/8", "10.0.0.1", true);
        check("0.0.0.0/0", "203.0.113.1", true);
        check("0.0.0.0/0", "2001:db8::1", false);
        check("2001:db8::/32", "2001:db8:ffff::1", true);
        check("2001:db8::/32", "2001:db9::1", false);
        check("192.0.2.1", "192.0.2.1", true);
        check("192.0.2.1", "192.0.2.2", false);
    }

    #[test]
    fn what_is_no_range_is_refused_with_an_example() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "2001:db8::/129", "10.0.0.0/-1", "10.0.0.0/8/8"] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains("10.0.0.0/8"), "{error}");
        }
    }
}
