//! How many packets and bytes go to each backend and come from it, if that is wanted (`traffic`): what an operator bills and plans by.
//!
//! Counted is what the balancer sends on, as it came: frames without check sequence. Exact, so within each packet's transaction, in words of the
//! worker's own: nobody waits for another, but no packet is steady any more ([`NetworkFunction::steady`] has no transaction), which costs more
//! than the counting. Hence the choice.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateBuilder, StateError, StateObject, Tx};

use super::flow::FROM_BACKEND;
use crate::parts::Volume;

/// What goes one way and the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Traffic {
    from: Volume,
    to: Volume,
}

impl Traffic {
    pub(super) fn add(&mut self, more: &Traffic) {
        (self.from, self.to) = (self.from.plus(more.from), self.to.plus(more.to));
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

/// The traffic of all backends, by number: so many of them in each object, so that those that are there stay when there are more. None if nothing
/// is counted.
pub(super) struct Traffics(Vec<DistributedVector<Traffic>>);

const STEP: u32 = 64;

impl Traffics {
    /// For so many backends.
    pub(super) fn new(builder: &mut StateBuilder, count: u32) -> Result<Traffics, StateError> {
        let object = |number: u32| {
            let name = format!("traffic_{number}");
            DistributedVector::new(builder, &DistributedVectorConfig { name, len: STEP }, Traffic::add)
        };
        (0..count.div_ceil(STEP)).map(object).collect::<Result<_, _>>().map(Traffics)
    }

    /// Whether anything is counted.
    pub(super) fn is_counted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Counts what goes a way.
    #[inline]
    pub(super) fn count(&self, tx: &mut Tx, backend: u16, way: u8, more: Volume) -> Result<(), Conflict> {
        let backend = u32::from(backend);
        let Some(traffics) = self.0.get((backend / STEP) as usize) else { return Ok(()) };
        let counted = traffics.update(tx, backend % STEP, |traffic| {
            let volume = if way == FROM_BACKEND { &mut traffic.from } else { &mut traffic.to };
            *volume = volume.plus(more);
        });
        counted.map(drop)
    }

    /// What all workers counted.
    pub(super) fn sum(&self, cx: &mut Cx<'_>, backend: u32) -> Result<Traffic, Conflict> {
        let mut sum = Traffic::default();
        if let Some(traffics) = self.0.get((backend / STEP) as usize) {
            traffics.visit(cx, backend % STEP, |part| sum.add(part))?;
        }
        Ok(sum)
    }
}

impl Part for Traffics {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.extend(self.0.iter().map(DistributedVector::object));
    }
}
