//! Who is where on the links: a bounded table, filled by answers of ARP and neighbour discovery, and the packets that wait for
//! them.
//!
//! A neighbour that has not answered is asked once a second, three times. One that has answered is believed for its
//! lifetime; then it is asked again and used meanwhile, until it has not answered three times. Only the last packet for
//! a neighbour waits (RFC 1122 section 2.3.2.2 asks for one at least).

use std::sync::Arc;

use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateBuilder, StateError, StateObject, VectorConfig, Visit};
use braid_nf::{Part, Port};

use crate::parts::SECOND;

/// How often a neighbour is asked before it counts as absent.
const TRIES: u8 = 3;
/// How long an absent one is left alone, and a packet waits.
const REST_NS: u64 = 3 * SECOND;
/// The longest frame that waits.
const HELD_MAX: usize = 1520;
/// Entries that one sweep looks at.
const PIECE: u32 = 256;
/// How often [`Neighbours::sweep`] is to be called.
pub const SWEEP_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// A neighbour's address and the port where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hop {
    /// The address.
    pub address: IpAddress,
    /// The port.
    pub port: Port,
    zero: [u8; 6],
}

impl Hop {
    /// A neighbour.
    pub fn new(address: IpAddress, port: Port) -> Hop {
        Hop { address, port, zero: [0; 6] }
    }
}

/// What is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Neighbour {
    /// When it answered last; for ever, if the configuration says where it is.
    seen_ns: u64,
    asked_ns: u64,
    mac: [u8; 6],
    /// Questions without an answer.
    tries: u8,
    /// 1 if `mac` is known.
    known: u8,
}

const FIXED: u64 = u64::MAX;

/// A packet that waits: complete but for its Ethernet destination.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Held {
    since_ns: u64,
    len: u64,
    bytes: [u8; HELD_MAX],
}

/// What is known of a neighbour now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Where it is, until when that need not be looked at again.
    At(MacAddress, u64),
    /// It has been asked for, or is to be with this answer.
    Waits {
        /// Whether it is to be asked for now.
        ask: bool,
    },
    /// Where it is; it is to be asked for again now.
    Doubtful(MacAddress, u64),
    /// It does not answer.
    Absent,
    /// No room for another one.
    Full,
}

/// The table.
pub struct Neighbours {
    table: Map<Hop, Neighbour>,
    waiting: Map<Hop, Held>,
    /// How often a neighbour has moved or was forgotten.
    changes: Vector<u64>,
    lifetime_ns: u64,
}

impl Neighbours {
    /// Nobody yet.
    pub fn new(
        builder: &mut StateBuilder,
        most: u32,
        waiting: u32,
        lifetime_ns: u64,
    ) -> Result<Neighbours, StateError> {
        let map = |name: &str, capacity| MapConfig { name: name.into(), capacity, ..MapConfig::default() };
        Ok(Neighbours {
            table: Map::new(builder, &map("neighbours", most))?,
            waiting: Map::new(builder, &map("waiting", waiting))?,
            changes: Vector::new(builder, &VectorConfig { name: "changes".into(), len: 1 }, 0)?,
            lifetime_ns,
        })
    }

    /// How often a neighbour has moved or was forgotten: while it stays, so do the answers, for as long as they said.
    #[inline(always)]
    pub fn changes(&self, cx: &mut Cx<'_>) -> Result<u64, Conflict> {
        Ok(self.changes.get(cx, 0)?.unwrap_or(0))
    }

    /// A neighbour that the configuration knows.
    pub fn fix(&self, cx: &mut Cx<'_>, hop: Hop, mac: MacAddress) -> Result<(), Conflict> {
        let fixed = Neighbour { seen_ns: FIXED, mac: mac.0, known: 1, ..Neighbour::default() };
        self.table.insert(cx, &hop, &fixed).map(drop)
    }

    /// Where a neighbour is, and whether to ask.
    pub fn resolve(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<Resolved, Conflict> {
        let now = cx.now();
        let Some(entry) = self.table.get(cx, &hop)? else {
            let asked = Neighbour { asked_ns: now, tries: 1, ..Neighbour::default() };
            let full = self.table.insert(cx, &hop, &asked)? == Inserted::Full;
            return Ok(if full { Resolved::Full } else { Resolved::Waits { ask: true } });
        };
        let (mac, known) = (MacAddress(entry.mac), entry.known == 1);
        let until = entry.seen_ns.saturating_add(self.lifetime_ns);
        if known && now < until {
            return Ok(Resolved::At(mac, until));
        }
        let since = now.saturating_sub(entry.asked_ns);
        // The count of an earlier doubt is old when there was an answer since.
        let tries = if entry.asked_ns < entry.seen_ns || since >= REST_NS { 0 } else { entry.tries };
        if tries > 0 && since < SECOND {
            let at = Resolved::At(mac, entry.asked_ns + SECOND);
            return Ok(if known { at } else { Resolved::Waits { ask: false } });
        }
        if tries >= TRIES {
            if known {
                self.table.update(cx, &hop, |entry| entry.known = 0)?;
                self.changes.update(cx, 0, |changes| *changes += 1)?;
            }
            return Ok(Resolved::Absent);
        }
        self.table.update(cx, &hop, |entry| (entry.asked_ns, entry.tries) = (now, tries + 1))?;
        Ok(if known { Resolved::Doubtful(mac, now + SECOND) } else { Resolved::Waits { ask: true } })
    }

    /// Notes where a neighbour says it is. One that is not in the table is added if it `asked` for this router.
    pub fn learn(&self, cx: &mut Cx<'_>, hop: Hop, mac: MacAddress, asked: bool) -> Result<(), Conflict> {
        let now = cx.now();
        let before = self.table.get(cx, &hop)?;
        let is_known = before.is_some_and(|entry| entry.known == 1);
        if mac.is_group() || before.is_none() && !asked || before.is_some_and(|entry| entry.seen_ns == FIXED) {
            return Ok(());
        }
        let seen_ns = before.map_or(now, |entry| entry.seen_ns.max(now));
        let entry = Neighbour { seen_ns, mac: mac.0, known: 1, ..Neighbour::default() };
        self.table.insert(cx, &hop, &entry)?;
        if is_known && before.is_some_and(|entry| entry.mac != mac.0) {
            self.changes.update(cx, 0, |changes| *changes += 1)?;
        }
        if let Some(mut held) = self.waiting.remove(cx, &hop)? {
            held.bytes[..6].copy_from_slice(&mac.0);
            cx.emit(hop.port, &held.bytes[..HELD_MAX.min(held.len as usize)]);
        }
        Ok(())
    }

    /// Keeps a packet until the neighbour answers, instead of an earlier one; false if there is no room.
    pub fn hold(&self, cx: &mut Cx<'_>, hop: Hop, frame: &[u8]) -> Result<bool, Conflict> {
        let mut held = Held { since_ns: cx.now(), len: frame.len() as u64, bytes: [0; HELD_MAX] };
        let Some(bytes) = held.bytes.get_mut(..frame.len()) else { return Ok(false) };
        bytes.copy_from_slice(frame);
        Ok(self.waiting.insert(cx, &hop, &held)? != Inserted::Full)
    }

    /// Forgets who has been silent for long, and packets that have waited long enough: a piece at a time.
    pub fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let now = cx.now();
        let turn = now / SWEEP_EVERY.as_nanos() as u64;
        let piece = |capacity: u32| (turn % u64::from(capacity.div_ceil(PIECE))) as u32 * PIECE;
        let mut removed = 0;
        self.table.for_each(cx, piece(self.table.capacity()), PIECE, |_, _, entry| {
            let last = entry.seen_ns.max(entry.asked_ns);
            let old = last.saturating_add(self.lifetime_ns).saturating_add(2 * REST_NS) < now;
            removed += u64::from(old && entry.known == 1);
            Ok(if old { Visit::Remove } else { Visit::Keep })
        })?;
        if removed > 0 {
            self.changes.update(cx, 0, |changes| *changes += removed)?;
        }
        self.waiting.for_each(cx, piece(self.waiting.capacity()), PIECE, |_, _, held| {
            Ok(if held.since_ns.saturating_add(REST_NS) < now { Visit::Remove } else { Visit::Keep })
        })?;
        Ok(())
    }
}

impl Part for Neighbours {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.waiting.objects(into);
        self.changes.objects(into);
    }
}
