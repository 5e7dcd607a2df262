//! Limits how many flows each source may begin during an attack. Each source has a token bucket, shared by all workers
//! and forgotten once it is full again.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Share, StateBuilder, StateError, StateObject};
use braid_nf::{Findings, Part};

pub use crate::parts::tables::aged::SWEEP_EVERY;
use crate::parts::tables::aged::Stamp;
use crate::parts::{Aged, Lengths, Unkept};
use crate::token_bucket::{Bucket, Limit};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Used {
    bucket: Bucket,
    seen_ns: u64,
}

impl Stamp for Used {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// Sources that have begun flows under attack.
#[derive(Debug)]
pub struct Sources {
    limit: Limit,
    lengths: Lengths,
    table: Aged<IpAddress, Used>,
    unkept: Unkept,
}

impl Sources {
    /// An empty table. Each range of addresses with these prefix lengths is one source.
    pub fn new(
        builder: &mut StateBuilder,
        (limit, lengths): (Limit, Lengths),
        most: u32,
    ) -> Result<Sources, StateError> {
        let table = Aged::new(builder, "sources", most, limit.timeout_ns())?;
        let unkept = Unkept::new(builder, "unkept", "flows whose source found no room")?;
        Ok(Sources { limit, lengths, table, unkept })
    }

    /// Whether the source with this address may begin one more flow; false if the table has no room for the source.
    pub fn admit(&self, cx: &mut Cx<'_>, address: IpAddress) -> Result<bool, Conflict> {
        let (now, source) = (cx.now(), self.lengths.range_of(address));
        let known = self.table.get(cx, &source)?;
        let mut bucket = known.map_or_else(|| self.limit.full(now), |used| used.bucket);
        if !self.limit.take(&mut bucket, now, 1) {
            return Ok(false);
        }
        let is_kept = self.table.insert(cx, &source, &Used { bucket, seen_ns: now })?;
        if !is_kept {
            self.unkept.count(cx)?;
        }
        Ok(is_kept)
    }

    /// Reports how many flows were refused because their source found no room.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.unkept.report(cx, into)
    }

    /// Forgets sources whose bucket is full again, a few at a time.
    pub fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.table.sweep(cx, share)
    }
}

impl Part for Sources {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.unkept.objects(into);
    }
}
