//! How many connections there may be: half-open ones in all, and connections and half-open ones of each inside host.
//!
//! Whoever floods with SYNs fills tables with connections that never come about. From half the limit on, those that open have
//! little time; at the limit there are no more. The sum is of parts that workers count by themselves and read a millisecond
//! late at most, so a flood makes no conflicts. A host's counts are exact; they are kept only if they are limited.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, Inserted, MapConfig, StateError, StateObject};

use super::connection::Connection;

/// As many connections wait for their confirmation as may, in all or of a host.
pub const HALF_OPEN_LIMIT: Reason = Reason("half_open_limit");
/// An inside host has as many connections as it may have.
pub const HOST_LIMIT: Reason = Reason("host_limit");
/// No room to count for another host.
pub const HOST_TABLE_FULL: Reason = Reason("host_table_full");

/// How late other workers' counts are seen, in nanoseconds.
const STALENESS_NS: u64 = 1_000_000;

/// The limits; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) half_open: i64,
    pub(super) host_connections: u32,
    pub(super) host_half_open: u32,
}

/// What an inside host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Host {
    connections: u32,
    half_open: u32,
}

/// The counts.
pub(super) struct Limits {
    most: Most,
    half_open: Distributed<i64>,
    hosts: Map<IpAddress, Host>,
}

/// Whether a connection may be, and if so whether it must hurry.
pub(super) type Admitted = Result<bool, Reason>;

impl Limits {
    pub(super) fn new(builder: &mut StateBuilder, most: Most, hosts_max: u32) -> Result<Limits, StateError> {
        let config = DistributedConfig { name: "half_open".into(), staleness_ns: STALENESS_NS };
        let half_open = Distributed::new(builder, &config, 0)?;
        let capacity = if most.counts_hosts() { hosts_max } else { 1 };
        let hosts = Map::new(builder, &MapConfig { name: "hosts".into(), capacity, ..MapConfig::default() })?;
        Ok(Limits { most, half_open, hosts })
    }

    /// Counts a connection of an inside host in, if the limits allow it.
    pub(super) fn admit(&self, cx: &mut Cx<'_>, host: IpAddress, opens: bool) -> Result<Admitted, Conflict> {
        let hurries = match self.admit_half_open(cx, opens)? {
            Ok(hurries) => hurries,
            Err(reason) => return Ok(Err(reason)),
        };
        if !self.most.counts_hosts() {
            return Ok(Ok(hurries));
        }
        let mut counts = self.hosts.get(cx, &host)?.unwrap_or_default();
        let refusal = if is_reached(counts.connections, self.most.host_connections) {
            Some(HOST_LIMIT)
        } else if opens && is_reached(counts.half_open, self.most.host_half_open) {
            Some(HALF_OPEN_LIMIT)
        } else {
            counts.connections += 1;
            counts.half_open += u32::from(opens);
            (self.hosts.insert(cx, &host, &counts)? == Inserted::Full).then_some(HOST_TABLE_FULL)
        };
        match refusal {
            None => Ok(Ok(hurries)),
            Some(reason) => {
                self.count_half_open(cx, opens, -1)?;
                Ok(Err(reason))
            }
        }
    }

    fn admit_half_open(&self, cx: &mut Cx<'_>, opens: bool) -> Result<Admitted, Conflict> {
        if !opens || self.most.half_open == 0 {
            return Ok(Ok(false));
        }
        let count = self.half_open.read(cx, |sum, part| *sum += part)?;
        if count >= self.most.half_open {
            return Ok(Err(HALF_OPEN_LIMIT));
        }
        self.count_half_open(cx, true, 1)?;
        Ok(Ok(count * 2 >= self.most.half_open))
    }

    /// The connection, counted as half open so far, has been confirmed or refused.
    #[cold]
    pub(super) fn settle(&self, cx: &mut Cx<'_>, host: IpAddress, connection: &mut Connection) -> Result<(), Conflict> {
        connection.settle();
        self.count_half_open(cx, true, -1)?;
        if self.most.counts_hosts() {
            self.hosts.update(cx, &host, |counts| counts.half_open = counts.half_open.saturating_sub(1))?;
        }
        Ok(())
    }

    /// Counts a connection out.
    pub(super) fn end(&self, cx: &mut Cx<'_>, host: IpAddress, is_half_open: bool) -> Result<(), Conflict> {
        self.count_half_open(cx, is_half_open, -1)?;
        if !self.most.counts_hosts() {
            return Ok(());
        }
        let Some(mut counts) = self.hosts.get(cx, &host)? else { return Ok(()) };
        counts.connections = counts.connections.saturating_sub(1);
        counts.half_open = counts.half_open.saturating_sub(u32::from(is_half_open));
        if counts.connections == 0 {
            self.hosts.remove(cx, &host)?;
        } else {
            self.hosts.insert(cx, &host, &counts)?;
        }
        Ok(())
    }

    fn count_half_open(&self, cx: &mut Cx<'_>, counts: bool, by: i64) -> Result<(), Conflict> {
        if counts && self.most.half_open != 0 {
            self.half_open.update(cx, |count| *count += by)?;
        }
        Ok(())
    }
}

impl Most {
    /// Whether hosts' connections are counted.
    fn counts_hosts(&self) -> bool {
        self.host_connections != 0 || self.host_half_open != 0
    }

    /// Whether half-open connections are counted.
    pub(super) fn counts_half_open(&self) -> bool {
        self.half_open != 0 || self.host_half_open != 0
    }
}

fn is_reached(count: u32, most: u32) -> bool {
    most != 0 && count >= most
}

impl Part for Limits {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.half_open.objects(into);
        self.hosts.objects(into);
    }
}
