//! How many translations of protocols without ports each host has. Otherwise one host that sends to many addresses takes the room of all
//! others (RFC 6888 REQ-4, REQ-5).

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateError, StateObject};

use super::config::Config;

/// A host in its network.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Host {
    pub(super) address: [u8; 4],
    pub(super) network: u16,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of network {}", IpAddress::from_v4(self.address), self.network)
    }
}

/// How many translations each host has, so that none takes the room of all others.
pub(super) struct Quota {
    hosts: Map<Host, u32>,
    most: u32,
}

impl Quota {
    /// None if hosts may have as many as fit.
    pub(super) fn new(builder: &mut StateBuilder, config: &Config) -> Result<Option<Quota>, StateError> {
        if config.portless_per_host == 0 {
            return Ok(None);
        }
        // Ended translations count until they are removed, and each has an entry of an inside address.
        let capacity = config.portless_max.saturating_mul(2);
        let map = MapConfig { name: "portless_hosts".into(), capacity, ..MapConfig::default() };
        Ok(Some(Quota { hosts: Map::new(builder, &map)?, most: config.portless_per_host }))
    }

    /// Counts one more. False if that is too many.
    pub(super) fn enter(&self, cx: &mut Cx<'_>, host: Host) -> Result<bool, Conflict> {
        let count = self.hosts.get(cx, &host)?.unwrap_or(0);
        Ok(count < self.most && self.hosts.insert(cx, &host, &(count + 1))? != Inserted::Full)
    }

    /// Counts one less.
    pub(super) fn leave(&self, cx: &mut Cx<'_>, host: Host) -> Result<(), Conflict> {
        match self.hosts.get(cx, &host)? {
            None => Ok(()),
            Some(0 | 1) => self.hosts.remove(cx, &host).map(drop),
            Some(count) => self.hosts.insert(cx, &host, &(count - 1)).map(drop),
        }
    }
}

impl Part for Quota {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.hosts.objects(into);
    }
}
