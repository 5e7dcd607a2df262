//! Filtering: who outside may send to a mapping (RFC 4787 section 5).
//!
//! For every live outward packet set a peer is noted, and counted: with address-dependent filtering several sets share one. An
//! endpoint-independent filter notes nothing.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateObject};

use super::config::Filtering;
use super::endpoint::{Endpoint, Inside};
use crate::config::ConfigError;

/// An inside endpoint and whom outside it has sent to; port 0 with address-dependent filtering.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Peer {
    inside: Inside,
    remote: Endpoint,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with {}", self.inside, self.remote.ip())
    }
}

/// The filter.
pub(crate) struct Filter {
    with_port: bool,
    peers: Option<Map<Peer, u64>>,
}

impl Filter {
    /// Whether both ask the same of those who send in.
    pub(crate) fn is_like(&self, other: &Filter) -> bool {
        (self.with_port, self.peers.is_some()) == (other.with_port, other.peers.is_some())
    }

    /// A filter for as many peers as there may be mappings.
    pub(crate) fn new(
        builder: &mut StateBuilder,
        filtering: Filtering,
        mappings_max: u32,
    ) -> Result<Filter, ConfigError> {
        let with_port = filtering == Filtering::AddressAndPortDependent;
        let map = MapConfig { name: "peers".into(), capacity: mappings_max, ..MapConfig::default() };
        let peers = match filtering {
            Filtering::EndpointIndependent => None,
            _ => Some(Map::new(builder, &map).map_err(|error| ConfigError::state("mappings_max", &error))?),
        };
        Ok(Filter { with_port, peers })
    }

    /// Whether it lets nobody in who was not asked.
    pub(crate) fn is_strict(&self) -> bool {
        self.peers.is_some()
    }

    fn peer(&self, inside: Inside, remote: Endpoint) -> Peer {
        let port = if self.with_port { remote.port } else { 0 };
        Peer { inside, remote: Endpoint::new(remote.address, port, remote.protocol) }
    }

    /// Whether `remote` may send to `inside`.
    pub(crate) fn admits(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint) -> Result<bool, Conflict> {
        match &self.peers {
            Some(peers) => peers.contains(cx, &self.peer(inside, remote)),
            None => Ok(true),
        }
    }

    /// A set from `inside` to `remote` lives. False if nobody more can be noted.
    pub(crate) fn enter(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint) -> Result<bool, Conflict> {
        let Some(peers) = &self.peers else { return Ok(true) };
        let peer = self.peer(inside, remote);
        if peers.update(cx, &peer, |sets| *sets += 1)?.is_some() {
            return Ok(true);
        }
        Ok(peers.insert(cx, &peer, &1)? != Inserted::Full)
    }

    /// A set from `inside` to `remote` is gone.
    pub(crate) fn leave(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint) -> Result<(), Conflict> {
        match &self.peers {
            Some(peers) => self.forget(cx, peers, self.peer(inside, remote)),
            None => Ok(()),
        }
    }

    fn forget(&self, cx: &mut Cx<'_>, peers: &Map<Peer, u64>, peer: Peer) -> Result<(), Conflict> {
        let left = peers.update(cx, &peer, |sets| {
            *sets = sets.saturating_sub(1);
            *sets
        })?;
        if left == Some(0) {
            peers.remove(cx, &peer)?;
        }
        Ok(())
    }
}

impl Part for Filter {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.peers.objects(into);
    }
}
