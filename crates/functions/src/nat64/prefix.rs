//! IPv4 addresses embedded in IPv6 addresses (RFC 6052 section 2.2).
//!
//! ```text
//! bits   0      32    40    48    56    64   72    80    88    96          127
//!  32  | prefix | v4 (32)              | 0 | suffix                          |
//!  40  | prefix       | v4 (24)        | 0 | 8 | suffix                      |
//!  48  | prefix             | v4 (16)  | 0 | (16)  | suffix                  |
//!  56  | prefix                   | 8  | 0 | v4 (24)     | suffix            |
//!  64  | prefix                        | 0 | v4 (32)         | suffix        |
//!  96  | prefix                                              | v4 (32)       |
//! ```
//!
//! Bits 64 to 71 are zero under any prefix; the suffix is written as zero and otherwise ignored.

use braid_nf::packet::IpAddress;

use crate::config::ConfigError;
use crate::parts::Prefix;
use crate::parts::headers::scope::is_routed_v6;

/// The prefix, and the positions of the four address bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix64 {
    prefix: Prefix,
    places: [usize; 4],
}

impl Prefix64 {
    /// Checks that the prefix has one of the six lengths.
    pub(super) fn check(prefix: Prefix) -> Result<Prefix64, ConfigError> {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("prefix", reason, instead));
        let places = match (prefix.is_v4(), prefix.bits()) {
            (false, 32) => [4, 5, 6, 7],
            (false, 40) => [5, 6, 7, 9],
            (false, 48) => [6, 7, 9, 10],
            (false, 56) => [7, 9, 10, 11],
            (false, 64) => [9, 10, 11, 12],
            (false, 96) => [12, 13, 14, 15],
            _ => {
                let instead = "write an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, as 64:ff9b::/96";
                return wrong(format!("{prefix} can hold no IPv4 addresses"), instead);
            }
        };
        if !is_routed_v6(prefix.first()) {
            return wrong(format!("{prefix} is no prefix of hosts"), "write one that is routed, as 64:ff9b::/96");
        }
        if prefix.first().octets()[8] != 0 {
            return wrong(format!("{prefix} has bits from 64 to 71"), "leave them zero (RFC 6052 section 2.2)");
        }
        Ok(Prefix64 { prefix, places })
    }

    /// Whether this is the well-known prefix, which may only be used with global addresses (section 3.1). Prefixes of
    /// 64:ff9b:1::/48 may be used with private ones too (RFC 8215).
    pub(super) fn is_well_known(&self) -> bool {
        const WELL_KNOWN: IpAddress = IpAddress::from_v6([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.prefix.first() == WELL_KNOWN && self.prefix.bits() == 96
    }

    /// Whether all addresses of a range are under the prefix.
    pub(super) fn covers(&self, range: &Prefix) -> bool {
        self.prefix.covers(range)
    }

    /// Whether an address is under the prefix.
    #[inline(always)]
    pub(super) fn contains(&self, address: IpAddress) -> bool {
        self.prefix.contains(address)
    }

    /// The address that embeds an IPv4 address.
    #[inline(always)]
    pub(super) fn embed(&self, address: [u8; 4]) -> IpAddress {
        let mut octets = self.prefix.first().octets();
        for (place, byte) in self.places.iter().zip(address) {
            octets[*place] = byte;
        }
        IpAddress::from_v6(octets)
    }

    /// The IPv4 address embedded in an address, if that is under the prefix.
    #[inline(always)]
    pub(super) fn extract(&self, address: IpAddress) -> Option<[u8; 4]> {
        let octets = address.octets();
        self.contains(address).then(|| self.places.map(|place| octets[place]))
    }
}
