//! How many connections a backend may have (`connections_max`, as HAProxy's `maxconn` and the upper threshold of IPVS).
//!
//! What counts is what the report shows: connections to the backend that are remembered, closed ones too, for a while. Sums over all workers are
//! read in the transaction that adds a connection, so the limit holds exactly: two workers cannot both give the last place away.
//! A connection that found its backend full is not where its hash leads, and is noted as such at once ([`strays`](super::strays)).

use braid_nf::prelude::*;

use super::choose::NO_BACKEND;
use super::flow::Flow;
use super::settings::{Pool, Virtual};
use super::strays::ends_of;
use super::{FROM_BACKEND, LoadBalancer, OWN};
use crate::parts::tables::tallies::Tally;

/// All backends of the service that are up have as many connections as they may have.
pub const BACKENDS_FULL: Reason = Reason("backends_full");

/// Which backends a search accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// Those that are up, full or not: it asks where a connection's hash leads.
    Full,
    /// Those with room for one more connection.
    Room,
    /// The same; the connection that looks for another backend still counts for this one.
    RoomBeside(u16),
}

/// What a search among the backends of a pool has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A backend.
    At(u32),
    /// Those that are up are full.
    Full,
    /// None is up.
    Nobody,
}

impl LoadBalancer {
    /// Whether a search accepts a backend that is up.
    pub(super) fn accepts(&self, cx: &mut Cx<'_>, accepts: Accepts, backend: u32) -> Result<bool, Conflict> {
        let most = self.settings.servers.get(backend as usize).and_then(|server| server.connections_max);
        let Some(most) = most else { return Ok(true) };
        let own = match accepts {
            Accepts::Full => return Ok(true),
            Accepts::Room => 0,
            Accepts::RoomBeside(other) => u64::from(u32::from(other) == backend),
        };
        Ok(self.load.sum(cx, backend)?.live().saturating_sub(own) < u64::from(most))
    }

    /// Why a packet to a service has no backend.
    pub(super) fn why_none(&self, cx: &mut Cx<'_>, service: Option<&Virtual>) -> Result<Reason, Conflict> {
        let pools = service.map_or(&[][..], |service| &service.pools);
        for backend in pools.iter().flat_map(|Pool { backends, .. }| backends) {
            if self.may_choose(cx, *backend)? {
                return Ok(BACKENDS_FULL);
            }
        }
        Ok(NO_BACKEND)
    }

    /// Counts a new flow, for which there was room among the packet sets (`is_kept`) or not. False if it may not go on: of a backend that may
    /// have so many connections each has to be remembered.
    pub(super) fn enter(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        flow: &Flow,
        is_kept: bool,
    ) -> Result<bool, Conflict> {
        self.count(cx, flow, if is_kept { Tally::BEGUN } else { Tally::REFUSED })?;
        let server = self.settings.server_of(flow).filter(|_| !matches!(flow.way, FROM_BACKEND | OWN));
        let Some(server) = server.filter(|server| server.is_displacing) else { return Ok(true) };
        if is_kept {
            self.note_place(cx, packet, flow)?;
        }
        Ok(is_kept || server.connections_max.is_none())
    }

    /// Notes whether a connection of a service whose backends may be full is where its hash leads.
    pub(super) fn note_place(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &Flow) -> Result<(), Conflict> {
        let ((client, port), end) = ends_of(packet);
        let Some(service) = self.settings.service(end) else { return Ok(()) };
        if self.choose(cx, service, (client, port), Accepts::Full)? == Some(flow.backend.into()) {
            return self.forget_stray(cx, packet);
        }
        self.note_stray(cx, packet, flow)
    }
}
