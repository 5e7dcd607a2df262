//! Conditions on arbitrary bits of addresses: `ip6 daddr & ::ffff:ffff:ffff:ffff == ::1234`, a host under any prefix.
//!
//! A network mask is a range like any other ([`Addresses`](super::values::Addresses)); these conditions are checked only
//! where everything else matches.

use std::fmt;

use super::values::{Addresses, address};

/// The address to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) enum End {
    Source,
    Destination,
    /// For an ICMP error about a connection: its opener, and the other end.
    Opener,
    Asked,
}

/// A condition on one address: the masked value is in one of these ranges, ends included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) struct Masked {
    pub(in crate::firewall) end: End,
    /// The mask as a number, IPv4 in its mapped form.
    pub(in crate::firewall) mask: u128,
    /// Bits to invert after masking.
    pub(in crate::firewall) turned: u128,
    pub(in crate::firewall) ranges: Vec<(u128, u128)>,
    pub(in crate::firewall) not: bool,
}

impl Masked {
    /// A condition that an address is in one of these ranges.
    pub(in crate::firewall) fn one_of(end: End, addresses: &[Addresses]) -> Masked {
        let ranges = addresses.iter().map(|range| (range.first, range.last)).collect();
        Masked { end, mask: u128::MAX, turned: 0, ranges, not: false }
    }

    /// Whether it holds for these addresses, in the order of [`End`].
    pub(in crate::firewall) fn fits(&self, ends: [u128; 4]) -> bool {
        let value = ends[self.end as usize] & self.mask ^ self.turned;
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&value)) != self.not
    }

    /// The name of the condition in reports.
    pub(in crate::firewall) fn name(&self) -> &'static str {
        ["source", "destination", "source of the connection", "destination of the connection"][self.end as usize]
    }
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.mask != u128::MAX {
            write!(f, " & {}", address(self.mask))?;
        }
        if self.turned != 0 {
            write!(f, " ^ {}", address(self.turned))?;
        }
        let one = |(first, last): &(u128, u128)| match first == last {
            true => address(*first).to_string(),
            false => format!("{}-{}", address(*first), address(*last)),
        };
        let ranges: Vec<_> = self.ranges.iter().map(one).collect();
        write!(f, " {} {}", if self.not { "!=" } else { "==" }, ranges.join(", "))
    }
}
