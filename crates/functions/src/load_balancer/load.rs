//! How many connections each backend has, and has had: what an operator looks at before a backend that drains is taken away.
//!
//! Counted when a flow to a backend begins, moves and ends. While the table of sets is full, the packets of flows that found no room are counted instead.

use braid_nf::prelude::*;

use super::ports::shown;
use super::{FROM_BACKEND, Flow, LoadBalancer};
use crate::parts::tallies::Tally;

/// So many backends in each object.
pub(super) const STEP: u32 = 64;

impl LoadBalancer {
    /// A flow begins, or it ends or goes on elsewhere.
    pub(super) fn count(&self, cx: &mut Cx<'_>, flow: &Flow, by: Tally) -> Result<(), Conflict> {
        match flow.way {
            FROM_BACKEND => Ok(()),
            _ => self.load.count(cx, flow.backend.into(), by),
        }
    }

    /// Each backend: whether it is up, its weight and its connections; of those that have left, who still have some.
    pub(super) fn tell_load(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        for (number, server) in (0u32..).zip(&self.settings.servers) {
            let tally = self.load.sum(cx, number)?;
            if server.has_left && tally.live() == 0 {
                continue;
            }
            let state = match self.is_up(cx, number)? {
                _ if server.has_left => "left",
                true => "up",
                false => "down",
            };
            let service = shown(server.service_address, server.service_ports);
            let (backend, live) = (shown(server.address, server.ports()), tally.live());
            let way = self.known_mtu(cx, server)?.map_or_else(String::new, |mtu| format!(", path MTU {mtu}"));
            let refused = match tally.refused {
                0 => String::new(),
                packets => format!(", {packets} packets of others that found no room"),
            };
            let detail = format!(
                "{state}, weight {}, connections: {live} now, {} in all{refused}{way}",
                server.weight, tally.all
            );
            into.count("backend", format!("{service} at {backend}"), live, detail);
        }
        Ok(())
    }
}
