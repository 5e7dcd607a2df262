//! How many connections each owner has, and how fast it may open others: one table for all workers, so the counts are exact.
//!
//! A refusal only reads: a flood of connections that are one too many makes no conflicts.

use std::sync::Arc;
use std::time::Duration;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateBuilder, StateError, StateObject, Tx, Visit};

use crate::token_bucket::{Bucket, Limit};

/// An owner has as many connections as it may have.
pub const TOO_MANY: Reason = Reason("too_many_connections");
/// An owner has opened as many as it may in that time.
pub const TOO_FAST: Reason = Reason("too_many_new_connections");
/// No room to count for another owner.
pub const TABLE_FULL: Reason = Reason("owner_table_full");

/// How often owners without connections are looked for, and how many are looked at.
pub const SWEEP_EVERY: Duration = Duration::from_millis(100);
const PIECE: u32 = 256;

/// The limits of each owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Connections at once; 0: any number.
    pub connections: u32,
    /// New ones.
    pub per_second: Option<Limit>,
}

braid_nf::plain!(Most);

/// What an owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Owner {
    connections: u64,
    bucket: Bucket,
}

/// All owners.
#[derive(Debug)]
pub struct Owners {
    most: Most,
    table: Map<IpAddress, Owner>,
}

impl Owners {
    /// Nobody yet.
    pub fn new(builder: &mut StateBuilder, most: Most, capacity: u32) -> Result<Owners, StateError> {
        let config = MapConfig { name: "owners".into(), capacity, ..MapConfig::default() };
        Ok(Owners { most, table: Map::new(builder, &config)? })
    }

    /// Counts a connection in, or says why not.
    pub fn admit(&self, cx: &mut Cx<'_>, address: &IpAddress) -> Result<Result<(), Reason>, Conflict> {
        let now = cx.now();
        let full = || self.most.per_second.map_or(Bucket::default(), |limit| limit.full(now));
        let mut owner = self.table.get(cx, address)?.unwrap_or_else(|| Owner { connections: 0, bucket: full() });
        if self.most.connections != 0 && owner.connections >= u64::from(self.most.connections) {
            return Ok(Err(TOO_MANY));
        }
        if let Some(limit) = &self.most.per_second
            && !limit.take(&mut owner.bucket, now, 1)
        {
            return Ok(Err(TOO_FAST));
        }
        owner.connections += 1;
        let has_room = self.table.insert(cx, address, &owner)? != Inserted::Full;
        Ok(if has_room { Ok(()) } else { Err(TABLE_FULL) })
    }

    /// Counts one out.
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

    /// Forgets owners that have no connections and could open as many as anybody, a few at a time.
    pub fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let now = cx.now();
        let pieces = u64::from(self.table.capacity().div_ceil(PIECE));
        let turn = (now / SWEEP_EVERY.as_nanos() as u64 % pieces) as u32;
        self.table.for_each(cx, turn * PIECE, PIECE, |_, _, owner| {
            let rested = self.most.per_second.is_none_or(|limit| limit.is_full(&owner.bucket, now));
            Ok(if owner.connections == 0 && rested { Visit::Remove } else { Visit::Keep })
        })?;
        Ok(())
    }
}

impl Part for Owners {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
    }
}
