//! Who had which block of ports, and when (RFC 6888 REQ-14, RFC 7422): an entry for each block that a host gets and gives back, instead of one
//! for each of its connections.
//!
//! The log is bounded: what finds no room is counted. It is read when the run ends, in its report.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{Distributed, DistributedConfig, Inserted, Map, MapConfig, StateError, StateObject, Tx, Visit};
use braid_nf::{Findings, Part};

use super::hosts::Name;
use crate::parts::seconds;

/// Of one block, at one time.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Event {
    at_ns: u64,
    /// Number of the external address.
    address: u32,
    /// The block's first port.
    first: u16,
    /// 1: a host got it; 0: it gave it back.
    assigned: u16,
}

/// The log.
pub(super) struct BlockLog {
    events: Map<Event, Name>,
    lost: Distributed<u64>,
}

impl BlockLog {
    /// A log of at most `capacity` events.
    pub(super) fn new(builder: &mut StateBuilder, capacity: u32) -> Result<BlockLog, StateError> {
        let map = MapConfig { name: "block_log".into(), capacity, ..MapConfig::default() };
        let lost = DistributedConfig { name: "block_log_lost".into(), staleness_ns: 0 };
        Ok(BlockLog { events: Map::new(builder, &map)?, lost: Distributed::new(builder, &lost, 0)? })
    }

    /// A host got a block, or gave it back.
    pub(super) fn note(
        &self,
        tx: &mut Tx,
        host: Name,
        (address, first): (u32, u16),
        assigned: bool,
    ) -> Result<(), Conflict> {
        let event = Event { at_ns: tx.now(), address, first, assigned: assigned.into() };
        if self.events.insert(tx, &event, &host)? == Inserted::Full {
            self.lost.update(tx, |lost| *lost += 1)?;
        }
        Ok(())
    }

    /// Tells all of it; `external` are the addresses by number, `size` the ports of a block.
    pub(super) fn report(
        &self,
        cx: &mut Cx<'_>,
        into: &mut Findings,
        external: &[[u8; 4]],
        size: u16,
    ) -> Result<(), Conflict> {
        self.events.for_each(cx, 0, u32::MAX, |_, event, host| {
            let address = external.get(event.address as usize).copied().unwrap_or_default();
            let address = braid_nf::packet::IpAddress::from_v4(address);
            let (last, what) = (event.first + (size - 1), if event.assigned == 1 { "assigned" } else { "released" });
            let detail = format!("{address} ports {} to {last} {what} at {}", event.first, seconds(event.at_ns));
            into.find("port_block", host, detail);
            Ok(Visit::Keep)
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
