//! A map of plain keys to plain values with a declared capacity.
//!
//! Buckets and entries lie on lines of their own, but two entries with at most 20 bytes of key and value share one: they come
//! from per-worker pools, so neighbours mostly are one worker's. An entry describes itself (live, key, value), so a hit reads the bucket
//! only as a hint and a commit depends on the entry alone; a change of a value touches the entry alone; insertion and removal
//! touch the bucket too, and a miss depends on both buckets of the key. Free entries come from per-worker pools. The
//! declared capacity is always reachable, and `Full` is as exact as if one core ran everything.
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
mod held;
mod image;

pub use image::keys_of_image;
mod locate;
mod outside;
mod succession;

pub use handle::Handle;
pub use held::Held;

/// Most places of the main buckets that are filled when the map is, in per cent: two choices of eight rarely overflow below.
const LOAD_PER_CENT: u64 = 75;

/// What a map shall be.
#[derive(Clone, Debug)]
pub struct MapConfig {
    /// Its name within the function.
    pub name: String,
    /// Most entries.
    pub capacity: u32,
    /// Seed of the hash.
    pub seed: u64,
    /// The hash of a key's bytes.
    pub hash: HashFn,
}

impl Default for MapConfig {
    fn default() -> Self {
        MapConfig { name: "map".into(), capacity: 1024, seed: 0x5EED, hash: hash::mixed }
    }
}

/// What an insertion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key was not there.
    New,
    /// The key was there; its value was replaced.
    Replaced,
    /// The key was not there, and all entries are in use. Nothing changed.
    Full,
}

/// Where a key would go that was looked for and is not there: good until the end of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    home: Home,
    /// The emptier of its buckets, if it had room when it was glanced at.
    main: Option<u32>,
    /// What the attempt had deferred by then: every insertion defers something.
    deferrals: usize,
}

/// What a walk over a map does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit<V> {
    /// Leave it.
    Keep,
    /// Replace its value.
    Replace(V),
    /// Remove it.
    Remove,
}

/// A transactional map. Cloning gives the same map.
pub struct Map<K, V> {
    shared: Arc<Shared>,
    types: PhantomData<fn() -> (K, V)>,
}

struct Shared {
    named: Named,
    buckets: Buckets,
    /// As `layout` says.
    entries: Arena,
    free: Pool,
    hash: HashFn,
    seed: u64,
    key_bytes: usize,
    value_bytes: usize,
    layout: Layout,
    /// Shows the key in an entry's words.
    show: fn(&[u64]) -> String,
}

impl<K: Plain + fmt::Debug, V: Plain> Map<K, V> {
    /// An empty map. Keys can be shown, for a profile names those that workers fight over.
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
    /// Where key and value begin, in bytes.
    const KEY: usize = Self::LAYOUT.key;
    const VALUE: usize = Self::LAYOUT.value;
    /// Words of an entry.
    const ENTRY: usize = Self::LAYOUT.words;

    /// Most entries.
    pub fn capacity(&self) -> u32 {
        self.shared.free.numbers()
    }

    /// Entries now; exact while no transaction runs. For reports: a handler's decision must not depend on it.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether there are none; as [`len`](Map::len).
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

    /// Whether a key is there.
    #[inline]
    #[track_caller]
    pub fn contains(&self, tx: &mut Tx, key: &K) -> Result<bool, Conflict> {
        Ok(self.locate(tx, key, self.home(key), MapOp::Get.op())?.is_ok())
    }

    /// Sets the value of a key, whether it was there or not.
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

    /// The value of a key, and where its entry lies; else where the key would go, for [`fill`](Self::fill).
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

    /// Inserts a key for which this attempt has [looked](Self::look) and found nothing; none if all entries are in use. Saves
    /// [`insert`](Self::insert)'s look-up, unless the attempt has inserted or removed keys since.
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

    /// Fills what may have been filled by the same attempt since it looked.
    #[cold]
    #[track_caller]
    fn fill_late(&self, tx: &mut Tx, key: &K, value: &V) -> Result<Option<Handle>, Conflict> {
        match self.locate(tx, key, self.home(key), MapOp::Insert.op())? {
            Err(vacancy) => self.fill(tx, vacancy, key, value),
            Ok(index) => self.replace(tx, index, value).map(Some),
        }
    }

    /// Sets the value of an entry that lives.
    #[track_caller]
    fn replace(&self, tx: &mut Tx, index: u32, value: &V) -> Result<Handle, Conflict> {
        let words = tx.update_words(&self.shared.entries, index, Self::ENTRY, MapOp::Update.op())?;
        entry::store(words, Self::VALUE, value);
        Ok(Handle { index, generation: entry::generation(words) })
    }

    /// Changes the value of a key in place and returns what `change` returns; none if the key is not there.
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

    /// Where the entry of a key lies.
    #[inline]
    #[track_caller]
    pub fn find(&self, tx: &mut Tx, key: &K) -> Result<Option<Handle>, Conflict> {
        let op = MapOp::Get.op();
        let Ok(index) = self.locate(tx, key, self.home(key), op)? else { return Ok(None) };
        let words = tx.read_unlogged(&self.shared.entries, index, op)?;
        Ok(Some(Handle { index, generation: entry::generation(words) }))
    }

    /// Walks over the next `budget` entries from `cursor` on, as a tick does in pieces. Returns where to go on; `None`
    /// when the end is reached. Entries that live during the whole walk are visited exactly once.
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

    /// Asks for the buckets of a key that will be looked up soon.
    #[inline(always)]
    pub fn prefetch(&self, key: &K) {
        self.shared.buckets.prefetch(self.home(key));
    }

    /// The structure, seen from outside.
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
