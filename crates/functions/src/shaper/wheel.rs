//! Waiting packets in the order in which they are due: a timing wheel of lists (Carousel, SIGCOMM 2017, section 4).
//!
//! A turn is 2^20 ns, slightly more than a millisecond; a list holds the packets that are due in one turn, in order of arrival.
//! [`Wheel::release`] takes off turns one after another, never before they are over, so a packet may leave late but never
//! early. If the caller does not let a packet go yet, it stays, with everything behind it. Of packets that wait for a link only
//! the first of each address is in the wheel; when it leaves, the caller names the one that takes its place.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateError, StateObject, VectorConfig};

use super::store::{Store, Waiting};

/// A turn is 2 to this power nanoseconds.
const TURN: u32 = 20;
/// Turns of the wheel.
const TURNS: u64 = 8192;
/// The longest that a packet may wait: the span of the wheel, less a margin for lateness.
pub const WAIT_MAX_NS: u64 = (TURNS - 1024) << TURN;
/// The most packets that one call releases.
const RELEASED_MAX: u32 = 1024;

/// The packets of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct List {
    first: Lease,
    last: Lease,
    is_full: u64,
}

/// How far the wheel has turned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Progress {
    /// The first turn that has not been taken off.
    turn: u64,
    /// Number of packets in the wheel.
    pub waiting: u64,
}

/// Whether the first packet of the wheel leaves.
pub enum Departure {
    /// Not yet.
    Later,
    /// It leaves.
    Now,
    /// It leaves, and this packet of its address comes into the wheel, due at this time.
    NowBefore(Lease, u64),
}

impl Progress {
    /// Whether no packet of this turn or an earlier one waits any more.
    pub fn has_released(&self, turn: u64) -> bool {
        self.waiting == 0 || self.turn > turn
    }

    /// The list of what is due then. If the wheel is so far behind that it has no turn for that time, the last turn must do.
    fn at(&self, due_ns: u64) -> u32 {
        (turn(due_ns).clamp(self.turn, self.turn + TURNS - 1) % TURNS) as u32
    }
}

/// A timing wheel.
#[derive(Debug)]
pub struct Wheel {
    store: Store,
    turns: Vector<List>,
    progress: Vector<Progress>,
}

/// The turn that contains a time, counted from 1, so that 0 is before all.
pub fn turn(ns: u64) -> u64 {
    (ns >> TURN) + 1
}

impl Wheel {
    /// Creates an empty wheel with a store.
    pub fn new(builder: &mut StateBuilder, store: Store) -> Result<Wheel, StateError> {
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        Ok(Wheel {
            store,
            turns: Vector::new(builder, &named("turns", TURNS as u32), List::default())?,
            progress: Vector::new(builder, &named("progress", 1), Progress::default())?,
        })
    }

    /// The store of the packets.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How far the wheel has turned.
    #[inline]
    pub fn progress(&self, cx: &mut Cx<'_>) -> Result<Progress, Conflict> {
        Ok(self.progress.get(cx, 0)?.unwrap_or_default())
    }

    /// Lets a packet wait until it is due. Returns `None` if there is no room, or it is due too late.
    #[cold]
    pub fn hold(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (cost, due_ns, queue): (u32, u64, u32),
    ) -> Result<Option<Lease>, Conflict> {
        let (mut progress, now) = (self.progress(cx)?, cx.now());
        if due_ns.saturating_sub(now) > WAIT_MAX_NS {
            return Ok(None);
        }
        let Some(lease) = self.store.put(cx, packet, (cost, due_ns, queue), None)? else { return Ok(None) };
        if progress.waiting == 0 {
            // Turns without packets need not be examined.
            progress.turn = progress.turn.max(self::turn(now));
        }
        let at = progress.at(due_ns);
        let mut list = self.turns.get(cx, at)?.unwrap_or_default();
        self.append(cx, &mut list, lease)?;
        self.turns.set(cx, at, list)?;
        progress.waiting += 1;
        self.progress.set(cx, 0, progress)?;
        Ok(Some(lease))
    }

    /// Appends a packet to a list.
    fn append(&self, cx: &mut Cx<'_>, list: &mut List, lease: Lease) -> Result<(), Conflict> {
        let first = if list.is_full == 1 { list.first } else { lease };
        if list.is_full == 1 {
            self.store.link(cx, list.last, lease)?;
        }
        *list = List { first, last: lease, is_full: 1 };
        Ok(())
    }

    /// The packet that leaves first, and when its turn is over; `None` if no packet waits.
    pub fn first(&self, cx: &mut Cx<'_>) -> Result<Option<(u64, Waiting)>, Conflict> {
        let progress = self.progress(cx)?;
        for turn in progress.turn..progress.turn + if progress.waiting > 0 { TURNS } else { 0 } {
            let list = self.turns.get(cx, (turn % TURNS) as u32)?.unwrap_or_default();
            if list.is_full == 1 {
                return Ok(Some((turn << TURN, self.store.get(cx, list.first)?)));
            }
        }
        Ok(None)
    }

    /// Sends packets of turns that are over, in order, as long as `leaves` lets them go.
    pub fn release(
        &self,
        cx: &mut Cx<'_>,
        mut leaves: impl FnMut(&mut Cx<'_>, &Waiting) -> Result<Departure, Conflict>,
    ) -> Result<(), Conflict> {
        let (before, now) = (self.progress(cx)?, turn(cx.now()));
        let mut progress = before;
        let mut left = RELEASED_MAX;
        while progress.waiting > 0 && progress.turn < now && left > 0 {
            let at = (progress.turn % TURNS) as u32;
            let full = self.turns.get(cx, at)?.unwrap_or_default();
            let mut list = full;
            while list.is_full == 1 && left > 0 {
                let (lease, packet) = (list.first, self.store.get(cx, list.first)?);
                let departure = leaves(cx, &packet)?;
                if matches!(departure, Departure::Later) {
                    left = 0;
                    break;
                }
                self.store.send(cx, lease, &packet)?;
                list = if packet.has_next == 1 { List { first: packet.next, ..list } } else { List::default() };
                match departure {
                    Departure::NowBefore(lease, due_ns) => self.replace(cx, &progress, &mut list, (lease, due_ns))?,
                    _ => progress.waiting -= 1,
                }
                left -= 1;
            }
            if list != full {
                self.turns.set(cx, at, list)?;
            }
            progress.turn += u64::from(list.is_full == 0);
        }
        if progress != before {
            self.progress.set(cx, 0, progress)?;
        }
        Ok(())
    }

    /// Puts a packet, already stored, into the wheel, of which `list` is the turn being taken off.
    fn replace(
        &self,
        cx: &mut Cx<'_>,
        progress: &Progress,
        list: &mut List,
        (lease, due_ns): (Lease, u64),
    ) -> Result<(), Conflict> {
        self.store.set_due(cx, lease, due_ns)?;
        let at = progress.at(due_ns);
        if at == progress.at(0) {
            return self.append(cx, list, lease);
        }
        let mut later = self.turns.get(cx, at)?.unwrap_or_default();
        self.append(cx, &mut later, lease)?;
        self.turns.set(cx, at, later).map(drop)
    }
}

impl Part for Wheel {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.store.objects(into);
        self.turns.objects(into);
        self.progress.objects(into);
    }
}
