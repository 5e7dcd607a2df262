//! How many connections each backend has, and has had: what an operator looks at before a backend that drains is taken away.
//!
//! Each worker counts its own, when a flow to a backend begins, moves and ends. While the table of sets is full, flows that found no
//! room are not counted.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateError, StateObject};

use super::{FROM_BACKEND, Flow, LoadBalancer};

/// What one backend has, as far as a worker knows: it may see the end of a flow whose beginning another one saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Count {
    live: i64,
    all: u64,
}

/// The counts of all backends, so many in each object: those that are there stay when backends are added.
pub(super) struct Load(Vec<DistributedVector<Count>>);

const STEP: u32 = 64;

impl Load {
    pub(super) fn new(builder: &mut StateBuilder, backends: u32) -> Result<Load, StateError> {
        let add = |sum: &mut Count, part: &Count| *sum = sum.plus(part);
        let object = |number: u32| {
            let name = if number == 0 { "load".to_owned() } else { format!("load_{number}") };
            DistributedVector::new(builder, &DistributedVectorConfig { name, len: STEP }, add)
        };
        Ok(Load((0..backends.div_ceil(STEP)).map(object).collect::<Result<_, _>>()?))
    }

    /// A flow begins.
    pub(super) fn begin(&self, cx: &mut Cx<'_>, flow: &Flow) -> Result<(), Conflict> {
        self.change(cx, flow, Count { live: 1, all: 1 })
    }

    /// It ends, or goes on elsewhere.
    pub(super) fn end(&self, cx: &mut Cx<'_>, flow: &Flow) -> Result<(), Conflict> {
        self.change(cx, flow, Count { live: -1, all: 0 })
    }

    fn change(&self, cx: &mut Cx<'_>, flow: &Flow, by: Count) -> Result<(), Conflict> {
        let backend = u32::from(flow.backend);
        if flow.way != FROM_BACKEND
            && let Some(counts) = self.0.get((backend / STEP) as usize)
        {
            counts.update(cx, backend % STEP, |count| *count = count.plus(&by))?;
        }
        Ok(())
    }
}

impl Count {
    fn plus(&self, more: &Count) -> Count {
        Count { live: self.live + more.live, all: self.all + more.all }
    }
}

impl LoadBalancer {
    /// Each backend: whether it is up, its weight and its connections.
    pub(super) fn tell_load(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        for (number, server) in (0u32..).zip(&self.settings.servers) {
            let mut sum = Count::default();
            if let Some(counts) = self.load.0.get((number / STEP) as usize) {
                counts.visit(cx, number % STEP, |count| sum = sum.plus(count))?;
            }
            let state = if self.is_up(cx, number)? { "up" } else { "down" };
            let end = |address, port| match port {
                0 => format!("{address}"),
                port => format!("{}", std::net::SocketAddr::new(std::net::IpAddr::from(address), port)),
            };
            let service = end(server.service_address, server.service_port);
            let (backend, live) = (end(server.address, server.port), sum.live.max(0));
            let detail = format!("{state}, weight {}, connections: {live} now, {} in all", server.weight, sum.all);
            into.count("backend", format!("{service} at {backend}"), live as u64, detail);
        }
        Ok(())
    }
}

impl Part for Load {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.extend(self.0.iter().map(DistributedVector::object));
    }
}
