//! The number of connections of each owner, and the rate at which it may open others: one table for all workers, so
//! counts are exact.
//!
//! A refusal only reads, so a flood of connections beyond the limit causes no conflicts.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, Share, StateBuilder, StateError, StateObject, Tx, Visit};

use crate::parts::tables::sweep::{Sweep, make_room};
use crate::token_bucket::{Bucket, Limit};

/// The owner has as many connections as it may.
pub const TOO_MANY: Reason = Reason("too_many_connections");
/// The owner has opened connections too fast.
pub const TOO_FAST: Reason = Reason("too_many_new_connections");
/// There is no room to count for another owner.
pub const TABLE_FULL: Reason = Reason("owner_table_full");

/// The schedule of the search for owners without connections.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(5) };
/// The interval between two steps of the sweep.
pub const SWEEP_EVERY: Duration = Duration::from_millis(10);
/// Entries to search at a time when all are in use.
const SEARCH: u32 = 16;

/// The limits of each owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Concurrent connections; 0: no limit.
    pub connections: u32,
    /// New connections per second; `None`: no limit.
    pub per_second: Option<Limit>,
}

braid_nf::plain!(Most);

/// The state of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Owner {
    connections: u64,
    bucket: Bucket,
}

/// The table of all owners.
#[derive(Debug)]
pub struct Owners {
    most: Most,
    table: Map<IpAddress, Owner>,
}

impl Owners {
    /// An empty table.
    pub fn new(builder: &mut StateBuilder, most: Most, capacity: u32) -> Result<Owners, StateError> {
        let pace = most.per_second.map_or_else(String::new, |limit| format!(", {}", limit.in_words("new ones")));
        builder.agree("owners", format!("{} connections of each owner{pace}", most.connections));
        let config = MapConfig { name: "owners".into(), capacity, ..MapConfig::default() };
        Ok(Owners { most, table: Map::new(builder, &config)? })
    }

    /// Counts a new connection instead of so many that end with it, or returns the reason to refuse it.
    pub fn admit(&self, cx: &mut Cx<'_>, address: &IpAddress, instead: u64) -> Result<Result<(), Reason>, Conflict> {
        let now = cx.now();
        let full = || self.most.per_second.map_or(Bucket::default(), |limit| limit.full(now));
        let mut owner = self.table.get(cx, address)?.unwrap_or_else(|| Owner { connections: 0, bucket: full() });
        owner.connections = owner.connections.saturating_sub(instead);
        if self.most.connections != 0 && owner.connections >= u64::from(self.most.connections) {
            return Ok(Err(TOO_MANY));
        }
        if let Some(limit) = &self.most.per_second
            && !limit.take(&mut owner.bucket, now, 1)
        {
            return Ok(Err(TOO_FAST));
        }
        owner.connections += 1;
        let enters = |cx: &mut Cx<'_>| Ok(self.table.insert(cx, address, &owner)? != Inserted::Full);
        let has_room = enters(cx)? || (self.makes_room(cx, address)? && enters(cx)?);
        Ok(if has_room { Ok(()) } else { Err(TABLE_FULL) })
    }

    /// Stops counting a connection.
    pub fn release(&self, tx: &mut Tx, address: &IpAddress) -> Result<(), Conflict> {
        let Some(mut owner) = self.table.get(tx, address)? else { return Ok(()) };
        owner.connections = owner.connections.saturating_sub(1);
        if owner.connections == 0 && self.most.per_second.is_none() {
            self.table.remove(tx, address)?;
        } else {
            self.table.insert(tx, address, &owner)?;
        }
        Ok(())
    }

    /// Forgets owners without connections and with a full bucket, in the piece of the share that is due.
    pub fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        SWEEP.piece(cx.now(), self.table.capacity(), share).try_for_each(|row| self.forget(cx, row).map(drop))
    }

    /// Tries to free entries for this owner when all are in use. True if some were freed.
    #[cold]
    fn makes_room(&self, cx: &mut Cx<'_>, address: &IpAddress) -> Result<bool, Conflict> {
        make_room(cx, address, (SEARCH, self.table.capacity()), |cx, among| self.forget(cx, among))
    }

    /// Forgets idle owners among these entries, and returns how many.
    fn forget(&self, cx: &mut Cx<'_>, among: Range<u32>) -> Result<u32, Conflict> {
        let (now, mut forgotten) = (cx.now(), 0);
        self.table.for_each(cx, among.start, among.end - among.start, |_, _, owner| {
            let rested = self.most.per_second.is_none_or(|limit| limit.is_full(&owner.bucket, now));
            let goes = owner.connections == 0 && rested;
            forgotten += u32::from(goes);
            Ok(if goes { Visit::Remove } else { Visit::Keep })
        })?;
        Ok(forgotten)
    }
}

impl Part for Owners {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
    }
}
