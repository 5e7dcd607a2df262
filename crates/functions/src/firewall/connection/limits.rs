//! Limits on connections: half-open ones in total, and all and half-open ones of each inside host.
//!
//! A SYN flood fills tables with connections that are never established. From a quarter of the limit on, opening
//! connections have less time, and the less the fewer more are allowed. So they leave as fast as others arrive, and a
//! client that answers in time still gets through. At the limit no more are admitted.
//!
//! The total is the sum of counts that each worker keeps, read with a delay of at most a millisecond, so a flood causes
//! no conflicts. It is kept even without a limit, because one may be set during the run. A host's counts are exact. They
//! are kept only if they are limited, and a connection remembers whether it is included: limits may come and go, and
//! whatever was added is subtracted again.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, Inserted, MapConfig, StateError, StateObject};
use braid_nf::{Findings, Part};

use super::Connection;

/// As many connections are half open as may be, in total or for a host.
pub const HALF_OPEN_LIMIT: Reason = Reason("half_open_limit");
/// An inside host has as many connections as it may.
pub const HOST_LIMIT: Reason = Reason("host_limit");
/// There is no room to count for another host.
pub const HOST_TABLE_FULL: Reason = Reason("host_table_full");

/// Opening connections have less time from this fraction of the limit on (one quarter).
const HURRY_PART: i64 = 4;

/// The maximum age of other workers' counts, in nanoseconds.
const STALENESS_NS: u64 = 1_000_000;

/// The limits; 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::firewall) struct Most {
    pub(in crate::firewall) half_open: i64,
    pub(in crate::firewall) host_connections: u32,
    pub(in crate::firewall) host_half_open: u32,
}

/// The connections of an inside host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Host {
    connections: u32,
    half_open: u32,
}

/// The counts of connections.
pub(in crate::firewall) struct Limits {
    most: Most,
    half_open: Distributed<i64>,
    /// Connections with reduced time that ended before they were established.
    left_early: Distributed<u64>,
    /// Present only if hosts are limited, or were in the run that this one continues.
    hosts: Option<Map<IpAddress, Host>>,
}

impl Limits {
    pub(in crate::firewall) fn new(
        builder: &mut StateBuilder,
        most: Most,
        hosts_max: u32,
    ) -> Result<Limits, StateError> {
        let config = DistributedConfig { name: "half_open".into(), staleness_ns: STALENESS_NS };
        let half_open = Distributed::new(builder, &config, 0)?;
        let config = DistributedConfig { name: "half_open_left_early".into(), staleness_ns: 0 };
        let left_early = Distributed::new(builder, &config, 0)?;
        let remembers = most.counts_hosts() || builder.has_left("hosts", "Map");
        let config = MapConfig { name: "hosts".into(), capacity: hosts_max, ..MapConfig::default() };
        let hosts = remembers.then(|| Map::new(builder, &config)).transpose()?;
        Ok(Limits { most, half_open, left_early, hosts })
    }

    /// Counts a new connection of an inside host, if the limits allow it. `opens`: it begins with a SYN.
    pub(in crate::firewall) fn admit(
        &self,
        cx: &mut Cx<'_>,
        host: IpAddress,
        connection: &mut Connection,
        opens: bool,
    ) -> Result<Result<(), Reason>, Conflict> {
        let left = match self.room(cx, opens)? {
            Ok(left) => left,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Some(hosts) = self.hosts.as_ref().filter(|_| self.most.counts_hosts()) {
            let mut counts = hosts.get(cx, &host)?.unwrap_or_default();
            if is_reached(counts.connections, self.most.host_connections) {
                return Ok(Err(HOST_LIMIT));
            }
            if opens && is_reached(counts.half_open, self.most.host_half_open) {
                return Ok(Err(HALF_OPEN_LIMIT));
            }
            counts.connections += 1;
            counts.half_open += u32::from(opens);
            if hosts.insert(cx, &host, &counts)? == Inserted::Full {
                return Ok(Err(HOST_TABLE_FULL));
            }
            connection.count_for_host();
        }
        if opens {
            self.half_open.update(cx, |count| *count += 1)?;
            connection.count_half_open(left);
        }
        Ok(Ok(()))
    }

    /// Whether one more connection may open; if so little room is left that it has less time, how much is left, and of
    /// how much.
    fn room(&self, cx: &mut Cx<'_>, opens: bool) -> Result<Result<Option<(u64, u64)>, Reason>, Conflict> {
        let most = self.most.half_open;
        if !opens || most == 0 {
            return Ok(Ok(None));
        }
        let count = self.half_open.read(cx, |sum, part| *sum += part)?;
        let calm = most / HURRY_PART;
        Ok(match count >= most {
            true => Err(HALF_OPEN_LIMIT),
            false => Ok((count > calm).then(|| ((most - count) as u64, (most - calm) as u64))),
        })
    }

    /// Handles the confirmation or refusal of a connection that was counted as half open.
    #[cold]
    pub(in crate::firewall) fn settle(
        &self,
        cx: &mut Cx<'_>,
        host: IpAddress,
        connection: &mut Connection,
    ) -> Result<(), Conflict> {
        connection.settle();
        self.half_open.update(cx, |count| *count -= 1)?;
        if let Some(hosts) = self.hosts.as_ref().filter(|_| connection.is_counted_for_host()) {
            hosts.update(cx, &host, |counts| counts.half_open = counts.half_open.saturating_sub(1))?;
        }
        Ok(())
    }

    /// Stops counting a connection.
    pub(in crate::firewall) fn end(
        &self,
        cx: &mut Cx<'_>,
        host: IpAddress,
        connection: &Connection,
    ) -> Result<(), Conflict> {
        if connection.is_half_open() {
            self.half_open.update(cx, |count| *count -= 1)?;
        }
        if connection.is_hurried() {
            self.left_early.update(cx, |count| *count += 1)?;
        }
        let Some(hosts) = self.hosts.as_ref().filter(|_| connection.is_counted_for_host()) else { return Ok(()) };
        let Some(mut counts) = hosts.get(cx, &host)? else { return Ok(()) };
        counts.connections = counts.connections.saturating_sub(1);
        counts.half_open = counts.half_open.saturating_sub(u32::from(connection.is_half_open()));
        if counts.connections == 0 {
            hosts.remove(cx, &host)?;
        } else {
            hosts.insert(cx, &host, &counts)?;
        }
        Ok(())
    }

    /// Reports how many connections left early under a flood, including the flood's own.
    pub(in crate::firewall) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let left_early = self.left_early.read(cx, |sum, part| *sum += part)?;
        if left_early > 0 {
            into.add("half_open_left_early", left_early);
        }
        Ok(())
    }
}

impl Most {
    /// Whether hosts' connections are limited.
    fn counts_hosts(&self) -> bool {
        self.host_connections != 0 || self.host_half_open != 0
    }
}

fn is_reached(count: u32, most: u32) -> bool {
    most != 0 && count >= most
}

impl Part for Limits {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.half_open.objects(into);
        self.left_early.objects(into);
        self.hosts.objects(into);
    }
}
