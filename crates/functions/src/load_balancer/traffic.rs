//! How many packets and bytes go to each backend and come from it, if that is wanted (`traffic`): what an operator bills and plans by.
//!
//! Counted is what the balancer sends on, as it came: frames without check sequence. Exact, so within each packet's transaction, in words of the
//! worker's own: nobody waits for another, but no packet is steady any more ([`NetworkFunction::steady`] has no transaction), which costs more
//! than the counting. Hence the choice.

use braid_nf::prelude::*;

use super::LoadBalancer;
use super::flow::FROM_BACKEND;
use crate::parts::Volume;
use crate::parts::tallies::Adds;

/// What goes one way and the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Traffic {
    from: Volume,
    to: Volume,
}

impl Adds for Traffic {
    fn add(&mut self, more: &Traffic) {
        (self.from, self.to) = (self.from.plus(more.from), self.to.plus(more.to));
    }
}

impl Traffic {
    /// What goes a way.
    #[inline(always)]
    fn of(way: u8, volume: Volume) -> Traffic {
        match way {
            FROM_BACKEND => Traffic { from: volume, ..Traffic::default() },
            _ => Traffic { to: volume, ..Traffic::default() },
        }
    }

    /// Tells of all that is counted, under names for metrics.
    pub(super) fn tell(&self, into: &mut Findings, kinds: [&'static str; 4], subject: &str) {
        let Traffic { from, to } = self;
        for (kind, number) in kinds.into_iter().zip([to.packets, to.bytes, from.packets, from.bytes]) {
            into.count(kind, subject, number, number.to_string());
        }
    }
}

/// The names of a backend's.
pub(super) const BACKEND: [&str; 4] =
    ["backend_packets_to", "backend_bytes_to", "backend_packets_from", "backend_bytes_from"];
/// Those of a service's.
pub(super) const SERVICE: [&str; 4] =
    ["service_packets_to", "service_bytes_to", "service_packets_from", "service_bytes_from"];

impl LoadBalancer {
    /// Counts what goes a way, if that is wanted.
    #[inline]
    pub(super) fn count_traffic(&self, cx: &mut Cx<'_>, backend: u16, way: u8, volume: Volume) -> Result<(), Conflict> {
        self.traffic.count(cx, backend.into(), Traffic::of(way, volume))
    }
}
