//! A map of plain keys to plain values with a declared capacity.
//!
//! Buckets and entries have cache lines of their own, except that two entries with at most 20 bytes of key and value share one. Free entries
//! come from per-worker pools, so such neighbours mostly belong to one worker. An entry describes itself (live, key, value). Therefore a hit
//! reads the bucket only as a hint, and its commit depends on the entry alone. A change of a value touches only the entry. Insertion and
//! removal touch the bucket too, and a miss depends on both buckets of the key. The declared capacity can always be reached, and `Full`
//! is as exact as on a single core.
//!
//! Conflicts are the rows for `Map` in [`causes`](crate::causes).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use braid_stm::{Arena, Boosted, Conflict, Op, Part, Tx};

use self::entry::Layout;
use crate::buckets::{BUCKET_WORDS, Buckets, Home, PLACES};
use crate::causes::{MAP_BUCKETS, MAP_ENTRIES, MapOp};
use crate::hash::{self, HashFn};
use crate::object::{Named, StateBuilder, StateError, StateObject};
use crate::plain::Plain;
use crate::pool::{GIVEN, Giving, Pool};

mod entry;
mod handle;
mod image;
mod locked;

pub use image::{entries_of_image, image_of_entries};
mod locate;
mod outside;
mod succession;

pub use handle::Handle;
pub use locked::Locked;

/// How many of the places in the main buckets are taken when the map is full, in per cent. Up to this load, two choices of eight places
/// rarely overflow.
const LOAD_PER_CENT: u64 = 75;

/// The configuration of a map.
#[derive(Clone, Debug)]
pub struct MapConfig {
    /// Its name within the function.
    pub name: String,
    /// Maximum number of entries.
    pub capacity: u32,
    /// Seed of the hash.
    pub seed: u64,
    /// The hash of a key's bytes.
    pub hash: HashFn,
}

impl Default for MapConfig {
    fn default() -> Self {
        MapConfig { name: "map".into(), capacity: 1024, seed: hash::seed(), hash: hash::mixed }
    }
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key was new.
    New,
    /// The key existed; its value was replaced.
    Replaced,
    /// The key did not exist, and all entries are in use. Nothing changed.
    Full,
}

/// Where a missing key would be inserted; valid until the end of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    home: Home,
    /// The emptier of the key's buckets, if it had room when it was glanced at.
    main: Option<u32>,
    /// The number of operations that the attempt had deferred by then; every insertion defers one.
    deferrals: usize,
}

/// What a walk over a map does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit<V> {
    /// Keeps it.
    Keep,
    /// Replaces its value.
    Replace(V),
    /// Removes it.
    Remove,
}

/// A transactional map. A clone refers to the same map.
pub struct Map<K, V> {
    shared: Arc<Shared>,
    types: PhantomData<fn() -> (K, V)>,
}

struct Shared {
    named: Named,
    buckets: Buckets,
    /// Laid out according to `layout`.
    entries: Arena,
    free: Pool,
    hash: HashFn,
    seed: u64,
    key_bytes: usize,
    value_bytes: usize,
    layout: Layout,
    /// Formats the key stored in an entry's words.
    show: fn(&[u64]) -> String,
}

impl<K: Plain + fmt::Debug, V: Plain> Map<K, V> {
    /// Creates an empty map. Keys must implement `Debug`, because a profile names those with the most conflicts.
    pub fn new(builder: &mut StateBuilder, config: &MapConfig) -> Result<Map<K, V>, StateError> {
        let name = &config.name;
        let capacity = builder.check_capacity(name, config.capacity.into(), 1 << 31)?;
        let is_like = |shared: &Shared| {
            let sizes = (shared.key_bytes, shared.value_bytes) == (size_of::<K>(), size_of::<V>());
            sizes && shared.free.numbers() == capacity && shared.seed == config.seed
        };
        if let Some(shared) = builder.inherited(name, is_like) {
            return Ok(Map { shared, types: PhantomData });
        }
        let named = builder.register(name, "Map");
        let spare = builder.register(&format!("{name}.overflow"), "Pool");
        let main = (u64::from(capacity) * 100).div_ceil(LOAD_PER_CENT * PLACES as u64) as u32;
        let overflow = capacity / PLACES as u32 + 1;
        let take = MapOp::Insert.op();
        let buckets = Buckets {
            main: builder.arena(Arena::new, &named, MAP_BUCKETS, main, BUCKET_WORDS)?,
            overflow: builder.arena(Arena::new, &named, Part(MAP_BUCKETS.0), overflow, BUCKET_WORDS)?,
            spare: Arc::new(Pool::new(builder, &spare, take, overflow)?),
        };
        let shared = Arc::new(Shared {
            buckets,
            entries: builder.arena(Arena::packed, &named, MAP_ENTRIES, capacity, Self::ENTRY)?,
            free: Pool::new(builder, &named, take, capacity)?,
            named,
            hash: config.hash,
            seed: config.seed,
            key_bytes: size_of::<K>(),
            value_bytes: size_of::<V>(),
            layout: Self::LAYOUT,
            show: |words| format!("{:?}", entry::load::<K>(words, Self::KEY)),
        });
        builder.attach(shared.named.id, Arc::clone(&shared) as Arc<dyn Boosted>);
        builder.attach(spare.id, Arc::clone(&shared.buckets.spare) as Arc<dyn Boosted>);
        builder.list(Arc::clone(&shared) as Arc<dyn StateObject>);
        Ok(Map { shared, types: PhantomData })
    }
}

impl<K: Plain, V: Plain> Map<K, V> {
    const LAYOUT: Layout = Layout::of(size_of::<K>(), size_of::<V>());
    /// Byte offsets of key and value.
    const KEY: usize = Self::LAYOUT.key;
    const VALUE: usize = Self::LAYOUT.value;
    /// Words of an entry.
    const ENTRY: usize = Self::LAYOUT.words;

    /// Maximum number of entries.
    pub fn capacity(&self) -> u32 {
        self.shared.free.numbers()
    }

    /// Current number of entries; exact while no transaction runs. For reports only: a handler's decision must not depend on it.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether the map is empty, as exact as [`len`](Map::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    #[inline]
    #[track_caller]
    pub fn get(&self, tx: &mut Tx, key: &K) -> Result<Option<V>, Conflict> {
        let Ok(index) = self.locate(tx, key, self.home(key), MapOp::Get.op())? else { return Ok(None) };
        let words = tx.read_unlogged(&self.shared.entries, index, MapOp::Get.op())?;
        Ok(Some(entry::load(words, Self::VALUE)))
    }

    /// Whether a key exists.
    #[inline]
    #[track_caller]
    pub fn contains(&self, tx: &mut Tx, key: &K) -> Result<bool, Conflict> {
        Ok(self.locate(tx, key, self.home(key), MapOp::Get.op())?.is_ok())
    }

    /// Sets the value of a key, whether or not it exists.
    #[track_caller]
    pub fn insert(&self, tx: &mut Tx, key: &K, value: &V) -> Result<Inserted, Conflict> {
        let vacancy = match self.locate(tx, key, self.home(key), MapOp::Insert.op())? {
            Err(vacancy) => vacancy,
            Ok(index) => {
                self.replace(tx, index, value)?;
                return Ok(Inserted::Replaced);
            }
        };
        Ok(if self.fill(tx, vacancy, key, value)?.is_some() { Inserted::New } else { Inserted::Full })
    }

    /// Looks up a key: returns its value and a handle to its entry or, if it does not exist, the place to insert it with [`fill`](Self::fill).
    #[inline]
    #[track_caller]
    pub fn look(&self, tx: &mut Tx, key: &K) -> Result<Result<(Handle, V), Vacancy>, Conflict> {
        let op = MapOp::Get.op();
        let index = match self.locate(tx, key, self.home(key), op)? {
            Ok(index) => index,
            Err(vacancy) => return Ok(Err(vacancy)),
        };
        let words = tx.read_unlogged(&self.shared.entries, index, op)?;
        let handle = Handle { index, generation: entry::generation(words) };
        Ok(Ok((handle, entry::load(words, Self::VALUE))))
    }

    /// Inserts a key that this attempt has [looked](Self::look) up and not found; returns `None` if all entries are in use. Saves the look-up
    /// of [`insert`](Self::insert), unless the attempt has inserted or removed keys since.
    #[inline]
    #[track_caller]
    pub fn fill(&self, tx: &mut Tx, vacancy: Vacancy, key: &K, value: &V) -> Result<Option<Handle>, Conflict> {
        let (op, Vacancy { home, main, deferrals }) = (MapOp::Insert.op(), vacancy);
        if tx.has_deferred_since(deferrals, self.shared.named.id) {
            return self.fill_late(tx, key, value);
        }
        let Some(index) = self.shared.free.take(tx)? else { return Ok(None) };
        let words = tx.update_words(&self.shared.entries, index, Self::ENTRY, op)?;
        let generation = entry::begin(words, (Self::KEY, key), (Self::VALUE, value));
        self.shared.buckets.insert(tx, home, main, index, op)?;
        Ok(Some(Handle { index, generation }))
    }

    /// Like [`fill`](Self::fill), when the attempt may have inserted the key since it looked.
    #[cold]
    #[track_caller]
    fn fill_late(&self, tx: &mut Tx, key: &K, value: &V) -> Result<Option<Handle>, Conflict> {
        match self.locate(tx, key, self.home(key), MapOp::Insert.op())? {
            Err(vacancy) => self.fill(tx, vacancy, key, value),
            Ok(index) => self.replace(tx, index, value).map(Some),
        }
    }

    /// Sets the value of a live entry.
    #[track_caller]
    fn replace(&self, tx: &mut Tx, index: u32, value: &V) -> Result<Handle, Conflict> {
        let words = tx.update_words(&self.shared.entries, index, Self::ENTRY, MapOp::Update.op())?;
        entry::store(words, Self::VALUE, value);
        Ok(Handle { index, generation: entry::generation(words) })
    }

    /// Changes the value of a key in place and returns the result of `change`; `None` if the key does not exist.
    #[inline]
    #[track_caller]
    pub fn update<R>(&self, tx: &mut Tx, key: &K, change: impl FnOnce(&mut V) -> R) -> Result<Option<R>, Conflict> {
        let op = MapOp::Update.op();
        let Ok(index) = self.locate(tx, key, self.home(key), op)? else { return Ok(None) };
        let words = tx.update_words(&self.shared.entries, index, Self::ENTRY, op)?;
        Ok(Some(entry::change(words, Self::VALUE, change)))
    }

    /// Removes a key and returns its value.
    #[track_caller]
    pub fn remove(&self, tx: &mut Tx, key: &K) -> Result<Option<V>, Conflict> {
        let (op, home) = (MapOp::Remove.op(), self.home(key));
        let Ok(index) = self.locate(tx, key, home, op)? else { return Ok(None) };
        self.remove_entry(tx, home, index, op).map(Some)
    }

    /// A handle to the entry of a key.
    #[inline]
    #[track_caller]
    pub fn find(&self, tx: &mut Tx, key: &K) -> Result<Option<Handle>, Conflict> {
        let op = MapOp::Get.op();
        let Ok(index) = self.locate(tx, key, self.home(key), op)? else { return Ok(None) };
        let words = tx.read_unlogged(&self.shared.entries, index, op)?;
        Ok(Some(Handle { index, generation: entry::generation(words) }))
    }

    /// Walks over the next `budget` entries from `cursor` on, for ticks that walk in pieces. Returns the cursor to continue from, or `None` at
    /// the end. Entries that are live during the whole walk are visited exactly once.
    #[track_caller]
    pub fn for_each(
        &self,
        tx: &mut Tx,
        cursor: u32,
        budget: u32,
        mut visit: impl FnMut(&mut Tx, &K, &V) -> Result<Visit<V>, Conflict>,
    ) -> Result<Option<u32>, Conflict> {
        let op = MapOp::Scan.op();
        let end = cursor.saturating_add(budget).min(self.capacity());
        for index in cursor..end {
            let words = tx.read_ref(&self.shared.entries, index, op)?;
            if !entry::is_live(words) {
                continue;
            }
            let (key, value): (K, V) = (entry::load(words, Self::KEY), entry::load(words, Self::VALUE));
            match visit(tx, &key, &value)? {
                Visit::Keep => {}
                Visit::Replace(value) => {
                    let words = tx.update_words(&self.shared.entries, index, Self::ENTRY, op)?;
                    entry::store(words, Self::VALUE, &value);
                }
                Visit::Remove => {
                    self.remove_entry(tx, self.home(&key), index, op)?;
                }
            }
        }
        Ok((end < self.capacity()).then_some(end))
    }

    /// Prefetches the buckets of a key that will be looked up soon.
    #[inline(always)]
    pub fn prefetch(&self, key: &K) {
        self.shared.buckets.prefetch(self.home(key));
    }

    /// The structure as seen from outside.
    pub fn object(&self) -> Arc<dyn StateObject> {
        Arc::clone(&self.shared) as Arc<dyn StateObject>
    }

    #[track_caller]
    fn remove_entry(&self, tx: &mut Tx, home: Home, index: u32, op: Op) -> Result<V, Conflict> {
        self.shared.buckets.remove(tx, home, index, op)?;
        let words = tx.update_words(&self.shared.entries, index, Self::ENTRY, op)?;
        let value = entry::load(words, Self::VALUE);
        entry::end(words);
        self.shared.free.give(tx, index, Giving { op, action: GIVEN, argument: u64::from(index) })?;
        Ok(value)
    }
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Map { shared: Arc::clone(&self.shared), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Map({}, {} of {})", self.shared.named.name, self.shared.len(), self.shared.capacity())
    }
}
