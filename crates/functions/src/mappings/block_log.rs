//! Who had which block of ports, and when (RFC 6888 REQ-14, RFC 7422): one entry for each block that a host gets or
//! returns, instead of one for each connection.
//!
//! The log is bounded; events that find no room are counted. It is part of the report at the end of the run; with a
//! collector each event is also sent immediately.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Distributed, DistributedConfig, Inserted, Map, MapConfig, StateError, StateObject, Visit};
use braid_nf::{Findings, Part};

use super::hosts::Name;
use super::networks::List;
use crate::parts::{Syslog, seconds};

/// An event of one block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Event {
    at_ns: u64,
    /// The external address.
    address: [u8; 4],
    /// The block's first port.
    first: u16,
    /// 1: assigned to a host; 0: released.
    assigned: u16,
}

/// A host got a block, or returned it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) host: Name,
    /// The number of the external address.
    pub(crate) address: u32,
    /// The block's first port.
    pub(crate) first: u16,
    pub(crate) assigned: bool,
}

/// The log of blocks.
pub(crate) struct BlockLog {
    events: Option<Map<Event, Name>>,
    lost: Distributed<u64>,
    syslog: Option<Syslog>,
    /// Ports per block.
    size: u16,
    networks: List,
}

impl BlockLog {
    /// A log of blocks of `size` ports for hosts of these networks, with at most `capacity` events for the report.
    pub(crate) fn new(
        builder: &mut StateBuilder,
        capacity: u32,
        syslog: Option<Syslog>,
        (size, networks): (u16, List),
    ) -> Result<BlockLog, StateError> {
        let map = MapConfig { name: "block_log".into(), capacity, ..MapConfig::default() };
        let lost = DistributedConfig { name: "block_log_lost".into(), staleness_ns: 0 };
        let events = (capacity > 0).then(|| Map::new(builder, &map)).transpose()?;
        Ok(BlockLog { events, lost: Distributed::new(builder, &lost, 0)?, syslog, size, networks })
    }

    /// Logs a change on this external address.
    pub(crate) fn note(&self, cx: &mut Cx<'_>, change: &Change, address: [u8; 4]) -> Result<(), Conflict> {
        let &Change { host, first, assigned, .. } = change;
        let event = Event { at_ns: cx.wall(), address, first, assigned: assigned.into() };
        if let Some(syslog) = &self.syslog {
            syslog.send(cx, "port_block", format_args!("host {} {}", host.words(&self.networks), self.words(&event)));
        }
        if let Some(events) = &self.events
            && events.insert(cx, &event, &host)? == Inserted::Full
        {
            self.lost.update(cx, |lost| *lost += 1)?;
        }
        Ok(())
    }

    fn words(&self, event: &Event) -> String {
        let address = IpAddress::from_v4(event.address);
        let (last, what) = (event.first + (self.size - 1), if event.assigned == 1 { "assigned" } else { "released" });
        format!("{address} ports {} to {last} {what} at {}", event.first, seconds(event.at_ns))
    }

    /// Reports all events.
    pub(crate) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let Some(events) = &self.events else { return Ok(()) };
        into.pieces(|into, from, entries| {
            events.for_each(cx, from, entries, |_, event, host| {
                into.find("port_block", host.words(&self.networks), self.words(event));
                Ok(Visit::Keep)
            })
        })?;
        let lost = self.lost.read(cx, |sum, part| *sum += part)?;
        if lost > 0 {
            into.add("blocks for which the log had no room", lost);
        }
        Ok(())
    }
}

impl Part for BlockLog {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.events.objects(into);
        self.lost.objects(into);
    }
}
