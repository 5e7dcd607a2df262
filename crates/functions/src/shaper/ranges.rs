//! Rates of address ranges: one for all addresses that share a prefix, whichever workers handle their packets. A host of IPv6 may use any address
//! of its /64 (RFC 8981), and a subscriber's line has one rate for all of them.
//!
//! What is known of a range is what else would be the state of an address's packet set.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, Share, StateBuilder, StateObject};
use braid_nf::{Cx, Part};

use super::link::SharedLink;
use super::{ADDRESS_TABLE_FULL, Shaped, Shaper};
use crate::ConfigError;
use crate::parts::tables::sweep::{Over, Sweep, make_room, take_out};
use crate::policer::{By, Lengths};

/// The schedule on which ranges are forgotten, and the most that one sweep forgets.
const SWEEP: Sweep = Sweep { every: Duration::from_millis(10), round: Duration::from_secs(5) };
const SWEPT: u32 = 256;
/// How many entries are searched at a time for one to forget when the table is full.
const SEARCHED: u32 = 16;

/// The ranges that have sent lately.
pub struct Ranges {
    lengths: Lengths,
    timeout_ns: u64,
    known: Map<IpAddress, Shaped>,
}

impl Ranges {
    /// How often [`sweep`](Self::sweep) must be called.
    pub const SWEEP_EVERY: Duration = SWEEP.every;

    /// An empty table. A range is forgotten `timeout_ns` after its last packet has left.
    pub fn new(builder: &mut StateBuilder, lengths: Lengths, timeout_ns: u64) -> Result<Ranges, ConfigError> {
        lengths.bits().check("prefix")?;
        let map = MapConfig { name: "ranges".into(), capacity: lengths.capacity, ..MapConfig::default() };
        let known = Map::new(builder, &map).map_err(|error| ConfigError::state("prefix.capacity", &error))?;
        Ok(Ranges { lengths, timeout_ns, known })
    }

    /// The prefix lengths for IPv4 and IPv6.
    pub fn bits(&self) -> (u8, u8) {
        (self.lengths.v4, self.lengths.v6)
    }

    fn of(&self, address: IpAddress) -> IpAddress {
        self.lengths.bits().range_of(address)
    }

    /// Notes what is known of a range; false if there is no room for another one.
    fn note(
        &self,
        cx: &mut Cx<'_>,
        range: &IpAddress,
        shaped: &Shaped,
        link: Option<&SharedLink>,
    ) -> Result<bool, Conflict> {
        if self.known.insert(cx, range, shaped)? != Inserted::Full {
            return Ok(true);
        }
        let size = (SEARCHED, self.known.capacity());
        let has_room = make_room(cx, range, size, |cx, among| self.forget(cx, once(among), link))?;
        Ok(has_room && self.known.insert(cx, range, shaped)? != Inserted::Full)
    }

    /// Forgets ranges of which nothing has come for long, a few at a time.
    pub fn sweep(&self, cx: &mut Cx<'_>, share: Share, link: Option<&SharedLink>) -> Result<(), Conflict> {
        let piece = SWEEP.piece(cx.now(), self.known.capacity(), share);
        self.forget(cx, piece, link).map(drop)
    }

    fn forget(
        &self,
        cx: &mut Cx<'_>,
        among: impl Iterator<Item = Range<u32>>,
        link: Option<&SharedLink>,
    ) -> Result<u32, Conflict> {
        let mut silent = Silent { now: cx.now(), timeout_ns: self.timeout_ns, link };
        take_out(cx, &self.known, among, SWEPT, &mut silent)
    }
}

impl Part for Ranges {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.known.objects(into);
    }
}

/// Decides which ranges are forgotten.
struct Silent<'a> {
    now: u64,
    timeout_ns: u64,
    link: Option<&'a SharedLink>,
}

impl Over<IpAddress, Shaped> for Silent<'_> {
    fn is_over(&self, _: &IpAddress, shaped: &Shaped) -> bool {
        self.now.saturating_sub(shaped.last_ns) > self.timeout_ns
    }

    fn ended(&mut self, cx: &mut Cx<'_>, _: &IpAddress, shaped: &Shaped) -> Result<(), Conflict> {
        self.link.map_or(Ok(()), |link| link.forget(cx, shaped.place))
    }
}

impl Shaper {
    /// Shapes a packet together with all others of its range.
    #[inline(never)]
    pub(super) fn shape_range(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, ranges: &Ranges) -> Handled {
        let (now, link) = (cx.now(), self.link.as_ref());
        let range = ranges.of(if self.by == By::Source { packet.src_ip() } else { packet.dst_ip() });
        let known = ranges.known.get(cx, &range)?;
        let mut shaped =
            known.unwrap_or_else(|| Shaped { bucket: self.limit.full(now), last_ns: now, ..Shaped::default() });
        // It is entered first: a packet that waits without an entry could be overtaken.
        if known.is_none() && !ranges.note(cx, &range, &shaped, link)? {
            return Ok(Verdict::Drop(ADDRESS_TABLE_FULL));
        }
        let verdict = self.packet(cx, packet, &mut shaped)?;
        shaped.last_ns = shaped.last_ns.max(now);
        let _there = ranges.note(cx, &range, &shaped, link)?;
        Ok(verdict)
    }
}
