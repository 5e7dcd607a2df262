//! Addresses of which some bits are asked for, whichever they are: `ip6 daddr & ::ffff:ffff:ffff:ffff == ::1234`, a host whatever its prefix.
//! A mask of a network is a range like any other ([`Addresses`](super::values::Addresses)); these are looked at where everything else fits.

use std::fmt;

use braid_nf::packet::IpAddress;

/// A condition about one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Masked {
    pub(super) of_source: bool,
    /// As numbers, IPv4 in its mapped form.
    pub(super) mask: u128,
    pub(super) value: u128,
    pub(super) not: bool,
}

impl Masked {
    /// Whether it holds for a packet from one address to another.
    pub(super) fn fits(&self, [source, destination]: [u128; 2]) -> bool {
        let address = if self.of_source { source } else { destination };
        (address & self.mask == self.value) != self.not
    }

    /// What a mismatch is called.
    pub(super) fn name(&self) -> &'static str {
        if self.of_source { "source" } else { "destination" }
    }
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mask, value] = [self.mask, self.value].map(|number| IpAddress::from_v6(number.to_be_bytes()));
        write!(f, "{} & {mask} {} {value}", self.name(), if self.not { "!=" } else { "==" })
    }
}
