//! A bounded table whose entries expire by age, for things that have no packet set of their own, such as fragments and echo
//! requests.
//!
//! Every access checks the age, so a dead entry is never seen. A periodic tick removes dead entries piece by piece. When the
//! table is full, an insertion removes some dead entries itself.

use std::fmt::Debug;
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::state::{Inserted, Map, MapConfig, ROW, Share, StateBuilder, StateError, StateObject, Visit};
use braid_nf::{Conflict, Cx, EntryRange, Fate, Part, Plain};

use super::sweep::{Over, Sweep, make_room, take_out};

/// A value that knows when it was last used.
pub trait Stamp: Plain {
    /// When the value was last used, in nanoseconds.
    fn seen_ns(&self) -> u64;

    /// How long it lives after that, in nanoseconds: `most_ns`, the lifetime of its table, or less.
    fn lives_ns(&self, most_ns: u64) -> u64 {
        most_ns
    }
}

impl Stamp for u64 {
    fn seen_ns(&self) -> u64 {
        *self
    }
}

/// A bounded table of values that expire by age. The function that owns it must sweep it:
///
/// ```
/// use std::time::Duration;
///
/// use braid_functions::parts::Aged;
/// use braid_functions::parts::tables::aged;
/// use braid_nf::packet::IpAddress;
/// use braid_nf::prelude::*;
///
/// network_function! {
///     /// Knows who has sent something lately.
///     struct Lately { sources: Aged<IpAddress, u64> }
/// }
///
/// impl NetworkFunction for Lately {
///     type Set = ();
///     const NAME: &'static str = "lately";
///
///     fn ticks(&self) -> Vec<Duration> {
///         vec![aged::SWEEP_EVERY]
///     }
///
///     fn divides(&self, _: usize) -> bool {
///         true
///     }
///
///     fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
///         self.sources.sweep(cx, tick.share)
///     }
///
///     fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
///         let now = cx.now();
///         // The stamp is the value itself here; a value that holds more says with `Stamp` which part of it is.
///         if !self.sources.insert(cx, &packet.src_ip(), &now)? {
///             return Ok(Verdict::Drop(Reason("sources_full")));
///         }
///         Ok(cx.pass())
///     }
/// }
/// ```
pub struct Aged<K, V> {
    map: Map<K, V>,
    lifetime_ns: u64,
}

/// The schedule on which the tables are swept.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(5) };
/// The period at which [`Aged::sweep`] must be called.
pub const SWEEP_EVERY: Duration = Duration::from_millis(10);
/// The most entries that one sweep removes, so that no packet is delayed for long.
const MOST: u32 = 1024;
/// When [`Aged::crowd_in`] needs room, the fractions of the lifetime beyond which entries may be evicted, tried in this order.
/// With a lifetime of 30 s, that is entries older than 1 s, then 0.1 s, then 0.01 s.
pub const CROWDED: [u64; 3] = [30, 300, 3000];
/// How many bytes of entries are searched at a time for dead ones when the table is full.
const SEARCH_BYTES: usize = 1024;

/// Decides which entries are dead, and reports each one that is removed.
struct Dead<F> {
    now: u64,
    lifetime_ns: u64,
    told: F,
}

impl<K, V: Stamp, F: FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>> Over<K, V> for Dead<F> {
    #[inline(always)]
    fn is_over(&self, _: &K, value: &V) -> bool {
        is_dead(value, self.now, self.lifetime_ns)
    }

    fn ended(&mut self, cx: &mut Cx<'_>, key: &K, _: &V) -> Result<(), Conflict> {
        (self.told)(cx, key)
    }
}

fn is_dead(value: &impl Stamp, now: u64, lifetime_ns: u64) -> bool {
    now.saturating_sub(value.seen_ns()) > value.lives_ns(lifetime_ns)
}

impl<K: Plain + Debug, V: Stamp> Aged<K, V> {
    /// How many entries are searched at a time for dead ones when the table is full.
    const SEARCH: u32 = {
        let entries = (SEARCH_BYTES / (size_of::<K>() + size_of::<V>())) as u32 + 1;
        if entries < ROW { entries } else { ROW }
    };

    /// Creates an empty table whose entries live for `lifetime_ns` after their stamp.
    pub fn new(builder: &mut StateBuilder, name: &str, capacity: u32, lifetime_ns: u64) -> Result<Self, StateError> {
        let map = Map::new(builder, &MapConfig { name: name.into(), capacity, ..MapConfig::default() })?;
        Ok(Aged { map, lifetime_ns })
    }

    /// How long an entry lives after its stamp, in nanoseconds.
    pub fn lifetime_ns(&self) -> u64 {
        self.lifetime_ns
    }

    /// How many entries the table holds, as exact as [`Map::len`].
    pub fn used(&self) -> usize {
        self.map.len()
    }

    /// The most entries that the table can hold.
    pub fn capacity(&self) -> u32 {
        self.map.capacity()
    }

    /// Tells of the live ones among the entries in `range`, with how long each has left, in nanoseconds, and
    /// removes those that are to end; returns where to go on, none at the end. Calls `ended` for each entry that is removed.
    pub fn list(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        mut tell: impl FnMut(&K, &V, u64) -> Fate,
        mut ended: impl FnMut(&mut Cx<'_>, &K, &V) -> Result<(), Conflict>,
    ) -> Result<Option<u32>, Conflict> {
        let (now, mut chosen) = (cx.now(), Vec::new());
        let next = self.map.for_each(cx, range.first, range.count, |_, key, value| {
            if is_dead(value, now, self.lifetime_ns) {
                return Ok(Visit::Keep);
            }
            match tell(key, value, value.seen_ns().saturating_add(value.lives_ns(self.lifetime_ns)).saturating_sub(now))
            {
                Fate::Keep => Ok(Visit::Keep),
                Fate::End => {
                    chosen.push((*key, *value));
                    Ok(Visit::Remove)
                }
            }
        })?;
        chosen.iter().try_for_each(|(key, value)| ended(cx, key, value))?;
        Ok(next)
    }

    /// The value of a key, unless it is too old.
    pub fn get(&self, cx: &mut Cx<'_>, key: &K) -> Result<Option<V>, Conflict> {
        let now = cx.now();
        Ok(self.map.get(cx, key)?.filter(|value| !self.is_dead(value, now)))
    }

    /// Whether there is an entry of a key, too old or not.
    pub fn has(&self, cx: &mut Cx<'_>, key: &K) -> Result<bool, Conflict> {
        Ok(self.map.get(cx, key)?.is_some())
    }

    /// Sets the value of a key, replacing dead entries if necessary. Returns false if the table is full.
    pub fn insert(&self, cx: &mut Cx<'_>, key: &K, value: &V) -> Result<bool, Conflict> {
        self.insert_telling(cx, key, value, |_, _| Ok(()))
    }

    /// Like [`insert`](Self::insert), and calls `ended` for each entry that is removed.
    pub fn insert_telling(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        value: &V,
        mut ended: impl FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>,
    ) -> Result<bool, Conflict> {
        if self.map.insert(cx, key, value)? != Inserted::Full {
            return Ok(true);
        }
        self.insert_in_place_of(cx, (key, value), self.lifetime_ns, &mut ended)
    }

    /// Like [`insert`](Self::insert), for entries that are mostly needed only briefly. If no entry is dead, older live ones
    /// make room. Otherwise a few entries a second could fill the table for a whole lifetime, which must be long enough for an
    /// entry that is still awaited.
    pub fn crowd_in(&self, cx: &mut Cx<'_>, key: &K, value: &V) -> Result<bool, Conflict> {
        self.crowd_in_telling(cx, key, value, |_, _| Ok(()))
    }

    /// Like [`crowd_in`](Self::crowd_in), and calls `gone` for each entry that is removed.
    pub fn crowd_in_telling(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        value: &V,
        mut gone: impl FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>,
    ) -> Result<bool, Conflict> {
        if self.insert_telling(cx, key, value, &mut gone)? {
            return Ok(true);
        }
        for part in CROWDED {
            if self.insert_in_place_of(cx, (key, value), self.lifetime_ns / part, &mut gone)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the value of a key in place of some entries older than `age_ns`. Returns false if none is found.
    #[cold]
    fn insert_in_place_of(
        &self,
        cx: &mut Cx<'_>,
        (key, value): (&K, &V),
        age_ns: u64,
        ended: &mut impl FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>,
    ) -> Result<bool, Conflict> {
        let size = (Self::SEARCH, self.map.capacity());
        let has_room =
            make_room(cx, key, size, |cx, among| self.take_out(cx, (once(among), age_ns), Self::SEARCH, &mut *ended))?;
        Ok(has_room && self.map.insert(cx, key, value)? != Inserted::Full)
    }

    /// Removes a key and returns its value, unless it was too old.
    pub fn remove(&self, cx: &mut Cx<'_>, key: &K) -> Result<Option<V>, Conflict> {
        let now = cx.now();
        Ok(self.map.remove(cx, key)?.filter(|value| !self.is_dead(value, now)))
    }

    /// Removes the dead entries from that piece of the share whose turn it is.
    pub fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.sweep_telling(cx, share, |_, _| Ok(()))
    }

    /// Like [`sweep`](Self::sweep), and calls `ended` for each entry that is removed.
    pub fn sweep_telling(
        &self,
        cx: &mut Cx<'_>,
        share: Share,
        ended: impl FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>,
    ) -> Result<(), Conflict> {
        let piece = SWEEP.piece(cx.now(), self.map.capacity(), share);
        self.take_out(cx, (piece, self.lifetime_ns), MOST, ended).map(drop)
    }

    fn take_out(
        &self,
        cx: &mut Cx<'_>,
        (among, lifetime_ns): (impl Iterator<Item = Range<u32>>, u64),
        most: u32,
        told: impl FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>,
    ) -> Result<u32, Conflict> {
        let mut dead = Dead { now: cx.now(), lifetime_ns, told };
        take_out(cx, &self.map, among, most, &mut dead)
    }

    fn is_dead(&self, value: &V, now: u64) -> bool {
        is_dead(value, now, self.lifetime_ns)
    }
}

impl<K: Plain, V: Plain> Part for Aged<K, V> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.map.objects(into);
    }
}

impl<K, V> Debug for Aged<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aged")
    }
}
