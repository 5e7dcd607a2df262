//! A bounded table whose entries die of age: for what has no packet set of its own, such as fragments and echo requests.
//!
//! Age is checked at every access, so a dead entry is never seen; a tick takes the dead ones out piece by piece. Which piece
//! follows from the time alone, so there is no cursor to share.

use std::fmt::Debug;
use std::sync::Arc;

use braid_nf::state::{Inserted, Map, MapConfig, StateBuilder, StateError, StateObject, Visit};
use braid_nf::{Conflict, Cx, Part, Plain};

/// A value that knows when it was last used.
pub trait Stamp: Plain {
    /// Nanoseconds.
    fn seen_ns(&self) -> u64;
}

impl Stamp for u64 {
    fn seen_ns(&self) -> u64 {
        *self
    }
}

/// The table.
pub struct Aged<K, V> {
    map: Map<K, V>,
    lifetime_ns: u64,
}

/// Entries that one sweep looks at.
const PIECE: u32 = 256;
/// How often [`Aged::sweep`] is to be called.
pub const SWEEP_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

impl<K: Plain + Debug, V: Stamp> Aged<K, V> {
    /// An empty table. Entries live for `lifetime_ns` after their stamp.
    pub fn new(builder: &mut StateBuilder, name: &str, capacity: u32, lifetime_ns: u64) -> Result<Self, StateError> {
        let map = Map::new(builder, &MapConfig { name: name.into(), capacity, ..MapConfig::default() })?;
        Ok(Aged { map, lifetime_ns })
    }

    /// How long an entry lives after its stamp.
    pub fn lifetime_ns(&self) -> u64 {
        self.lifetime_ns
    }

    /// The value of a key, unless it is too old.
    pub fn get(&self, cx: &mut Cx<'_>, key: &K) -> Result<Option<V>, Conflict> {
        let now = cx.now();
        Ok(self.map.get(cx, key)?.filter(|value| !self.is_dead(value, now)))
    }

    /// Sets the value of a key. False if the table is full.
    pub fn insert(&self, cx: &mut Cx<'_>, key: &K, value: &V) -> Result<bool, Conflict> {
        Ok(self.map.insert(cx, key, value)? != Inserted::Full)
    }

    /// Removes a key; its value, unless it was too old.
    pub fn remove(&self, cx: &mut Cx<'_>, key: &K) -> Result<Option<V>, Conflict> {
        let now = cx.now();
        Ok(self.map.remove(cx, key)?.filter(|value| !self.is_dead(value, now)))
    }

    /// Takes dead entries out of the piece whose turn it is.
    pub fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.sweep_telling(cx, |_, _| Ok(()))
    }

    /// The same; `ended` is told of each that was taken out.
    pub fn sweep_telling(
        &self,
        cx: &mut Cx<'_>,
        mut ended: impl FnMut(&mut Cx<'_>, &K) -> Result<(), Conflict>,
    ) -> Result<(), Conflict> {
        let now = cx.now();
        let pieces = u64::from(self.map.capacity().div_ceil(PIECE));
        let turn = now / SWEEP_EVERY.as_nanos() as u64 % pieces;
        let mut dead = Vec::new();
        self.map.for_each(cx, turn as u32 * PIECE, PIECE, |_, key, value| {
            let is_dead = self.is_dead(value, now);
            dead.extend(is_dead.then_some(*key));
            Ok(if is_dead { Visit::Remove } else { Visit::Keep })
        })?;
        dead.iter().try_for_each(|key| ended(cx, key))
    }

    fn is_dead(&self, value: &V, now: u64) -> bool {
        now.saturating_sub(value.seen_ns()) > self.lifetime_ns
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
