//! How many connections of each backend are remembered (closed ones too, for a while) and how many it has had: what an
//! operator checks before removing a backend that drains.
//!
//! Flows to a backend are counted when they begin, move or end. If the set table is full, packets of flows that found no
//! room are counted instead.

use std::collections::BTreeMap;

use braid_nf::prelude::*;

use super::flow::OWN;
use super::ports::shown;
use super::traffic::{BACKEND, SERVICE, Traffic};
use super::{FROM_BACKEND, Flow, LoadBalancer};
use crate::parts::of_each;
use crate::parts::tables::tallies::{Adds, Tally};

/// Backends per state object.
pub(super) const STEP: u32 = 64;

impl LoadBalancer {
    /// Counts that a flow to a backend begins, ends or was refused; flows from a backend do not count.
    pub(super) fn count(&self, cx: &mut Cx<'_>, flow: &Flow, by: Tally) -> Result<(), Conflict> {
        match flow.way {
            FROM_BACKEND | OWN => Ok(()),
            _ => self.load.count(cx, flow.backend.into(), by),
        }
    }

    /// Reports each backend's state, weight and connections. A backend that has left is reported only while it has
    /// connections.
    pub(super) fn tell_load(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let (mut services, counts_traffic) = (BTreeMap::<String, Traffic>::new(), !self.traffic.is_empty());
        for (number, server) in (0u32..).zip(&self.settings.servers) {
            let (tally, traffic) = (self.load.sum(cx, number)?, self.traffic.sum(cx, number)?);
            let service = server.service();
            if counts_traffic {
                services.entry(service.clone()).or_default().add(&traffic);
            }
            if server.has_left && tally.live() == 0 {
                continue;
            }
            let state = match self.is_up(cx, number)? {
                _ if server.has_left => "left",
                true => "up",
                false => "down",
            };
            let (backend, live) = (shown(server.address, server.ports()), tally.live());
            let way = self.known_mtu(cx, server)?.map_or_else(String::new, |mtu| format!(", path MTU {mtu}"));
            let most = server.connections_max.map_or_else(String::new, |most| format!(" of at most {most}"));
            let refused = match tally.refused {
                0 => String::new(),
                packets => format!(", {} of others that found no room", of_each(packets, "packet")),
            };
            let detail = format!(
                "{state}, weight {}, connections: {live}{most} remembered, {} in all{refused}{way}",
                server.weight, tally.all
            );
            let subject = format!("{service} at {backend}");
            if counts_traffic {
                traffic.tell(into, BACKEND, &subject);
            }
            into.count("backend", subject, live, detail);
        }
        for (service, sum) in services {
            sum.tell(into, SERVICE, &service);
        }
        Ok(())
    }
}
