//! Packets and bytes to and from each backend, if `traffic` is set: the basis for an operator's billing and capacity
//! planning.
//!
//! Counts packets that the balancer sends on, with the length at which they arrived: frames without check sequence.
//! Counts are exact, so they are part of each packet's transaction, in counters of each worker's own: no worker waits for
//! another. But no packet takes the steady path any more ([`NetworkFunction::steady`] has no transaction), which costs
//! more than the counting; hence the option.

use braid_nf::prelude::*;

use super::LoadBalancer;
use super::flow::FROM_BACKEND;
use crate::parts::Volume;
use crate::parts::tables::tallies::Adds;

/// The volume from a backend and to it.
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
    /// A volume in one direction.
    #[inline(always)]
    fn of(way: u8, volume: Volume) -> Traffic {
        match way {
            FROM_BACKEND => Traffic { from: volume, ..Traffic::default() },
            _ => Traffic { to: volume, ..Traffic::default() },
        }
    }

    /// Reports all counts, under the names of their metrics.
    pub(super) fn tell(&self, into: &mut Findings, kinds: [&'static str; 4], subject: &str) {
        let Traffic { from, to } = self;
        for (kind, number) in kinds.into_iter().zip([to.packets, to.bytes, from.packets, from.bytes]) {
            into.count(kind, subject, number, number.to_string());
        }
    }
}

/// Metric names for a backend.
pub(super) const BACKEND: [&str; 4] =
    ["backend_packets_to", "backend_bytes_to", "backend_packets_from", "backend_bytes_from"];
/// Metric names for a service.
pub(super) const SERVICE: [&str; 4] =
    ["service_packets_to", "service_bytes_to", "service_packets_from", "service_bytes_from"];

impl LoadBalancer {
    /// Counts a volume in one direction, if counting is on.
    #[inline]
    pub(super) fn count_traffic(&self, cx: &mut Cx<'_>, backend: u16, way: u8, volume: Volume) -> Result<(), Conflict> {
        self.traffic.count(cx, backend.into(), Traffic::of(way, volume))
    }
}
