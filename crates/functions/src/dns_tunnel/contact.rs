//! What is known of an address that a client was told: the orphans that a contact would clear, or that it has been contacted.

use braid_nf::prelude::*;

use crate::parts::aged::Stamp;

/// Orphans of one zone that were told one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sum {
    /// The hash of the zone.
    pub(super) zone: u64,
    pub(super) names: u64,
    pub(super) bytes: u64,
}

/// An address that a client was told.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Awaited {
    /// By zone, the latest one first. If more zones share the address, the orphans of the earliest stay orphans: otherwise a
    /// few zones could hide those of all others that are told the same address.
    sums: [Sum; 2],
    /// Whether the client has contacted it, so that names of this address lead somewhere.
    is_contacted: u64,
    /// When it was contacted, or told last.
    seen_ns: u64,
}

impl Stamp for Awaited {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

impl Awaited {
    /// An address that was contacted.
    pub(super) fn contacted(seen_ns: u64) -> Awaited {
        Awaited { is_contacted: 1, seen_ns, ..Awaited::default() }
    }

    pub(super) fn is_contacted(&self) -> bool {
        self.is_contacted == 1
    }

    /// With one more name of a zone, whose orphan carries so many bytes.
    pub(super) fn with(mut self, zone: u64, bytes: u64, seen_ns: u64) -> Awaited {
        if self.sums[0].zone != zone {
            self.sums.swap(0, 1);
        }
        if self.sums[0].zone != zone {
            self.sums[0] = Sum { zone, ..Sum::default() };
        }
        let sum = &mut self.sums[0];
        (sum.names, sum.bytes) = (sum.names + 1, sum.bytes + bytes);
        Awaited { seen_ns, ..self }
    }

    /// What a contact clears.
    pub(super) fn sums(&self) -> impl Iterator<Item = Sum> {
        self.sums.into_iter().filter(|sum| sum.names > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_knows_the_last_two_zones_that_share_it() {
        let told = |zones: &[u64]| {
            let awaited = zones.iter().fold(Awaited::default(), |awaited, zone| awaited.with(*zone, 10, 0));
            awaited.sums().map(|sum| (sum.zone, sum.names, sum.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(told(&[7, 7, 7]), [(7, 3, 30)]);
        assert_eq!(told(&[7, 8, 7, 8]), [(8, 2, 20), (7, 2, 20)]);
        assert_eq!(told(&[7, 8, 8, 9]), [(9, 1, 10), (8, 2, 20)]);
    }
}
