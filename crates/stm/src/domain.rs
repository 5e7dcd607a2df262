//! A domain: the clock, the workers and the structures that transactions share.

use std::sync::atomic::{AtomicU64 as PlainU64, Ordering as PlainOrdering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::arena::ArenaMemory;
use crate::boosted::Boosted;
use crate::conflict::{ObjectId, Part};
use crate::header::OWNERS;
use crate::raw::object::ObjectRef;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::turn::Turn;

/// Most workers of a domain: the owner field of a header.
pub const WORKERS_MAX: usize = OWNERS;

/// What reports call a structure.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// Its name in the plan, as `nat.sessions`.
    pub name: String,
    /// Its kind, as `Map`; decides what the operation numbers mean.
    pub kind: &'static str,
}

/// Per worker, on a line of its own.
pub(crate) struct WorkerCell {
    /// A transaction of this worker exists.
    claimed: AtomicBool,
    /// A commit with deferred actions is on its way.
    pub(crate) committing: AtomicBool,
    /// A commit of this worker is locking objects by stores (`commit/locks.rs`). Read by workers that take an object over, hence
    /// apart from what every commit may write.
    pub(crate) locking: CachePadded<AtomicBool>,
}

#[derive(Default)]
struct Registry {
    objects: Vec<(ObjectInfo, Option<Arc<dyn Boosted>>)>,
    arenas: Vec<Arc<ArenaMemory>>,
}

/// What transactions share.
pub struct Domain {
    id: u64,
    pub(crate) clock: CachePadded<AtomicU64>,
    pub(crate) sequence: CachePadded<AtomicU64>,
    pub(crate) turn: Turn,
    pub(crate) cells: Box<[CachePadded<WorkerCell>]>,
    registry: Mutex<Registry>,
}

impl Domain {
    /// A domain of `workers` workers, at most [`WORKERS_MAX`].
    pub fn new(workers: usize) -> Arc<Domain> {
        static NEXT: PlainU64 = PlainU64::new(1);
        assert!((1..=WORKERS_MAX).contains(&workers), "{workers} workers: 1 to {WORKERS_MAX} are possible");
        let flag = || AtomicBool::new(false);
        let cell = || WorkerCell { claimed: flag(), committing: flag(), locking: CachePadded::new(flag()) };
        Arc::new(Domain {
            // Relaxed: only uniqueness matters.
            id: NEXT.fetch_add(1, PlainOrdering::Relaxed),
            clock: CachePadded::new(AtomicU64::new(1)),
            sequence: CachePadded::new(AtomicU64::new(0)),
            turn: Turn::new(),
            cells: (0..workers).map(|_| CachePadded::new(cell())).collect(),
            registry: Mutex::default(),
        })
    }

    /// Number of workers.
    #[inline(always)]
    pub fn workers(&self) -> usize {
        self.cells.len()
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Enters a structure into the books.
    pub fn register(&self, info: ObjectInfo) -> ObjectId {
        let mut registry = self.registry();
        registry.objects.push((info, None));
        ObjectId(registry.objects.len() as u32 - 1)
    }

    /// Names who carries out the deferred actions of a structure.
    pub fn attach(&self, object: ObjectId, boosted: Arc<dyn Boosted>) {
        self.registry().objects[object.0 as usize].1 = Some(boosted);
    }

    /// Name and kind of a structure.
    pub fn info(&self, object: ObjectId) -> ObjectInfo {
        self.registry().objects[object.0 as usize].0.clone()
    }

    /// All structures in the order in which they were registered.
    pub fn objects(&self) -> Vec<(ObjectId, ObjectInfo)> {
        let named = |(n, (info, _)): (usize, &(ObjectInfo, _))| (ObjectId(n as u32), info.clone());
        self.registry().objects.iter().enumerate().map(named).collect()
    }

    /// Committed transactions so far in the serial order; counts only while recording.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::SeqCst)
    }

    /// Whether another worker is between the check of the turn and the end of its deferred actions. Only the worker
    /// whose turn it is can rely on `false`.
    pub(crate) fn others_committing(&self, owner: u64) -> bool {
        // SeqCst: pairs with the store before the turn check in `commit.rs`.
        let busy =
            |(n, cell): (usize, &CachePadded<WorkerCell>)| n as u64 != owner && cell.committing.load(Ordering::SeqCst);
        self.cells.iter().enumerate().any(busy)
    }

    pub(crate) fn claim(&self, owner: usize) {
        assert!(owner < self.workers(), "worker {owner} of {}", self.workers());
        let taken = self.cells[owner].claimed.swap(true, Ordering::AcqRel);
        assert!(!taken, "worker {owner} has a transaction already");
    }

    pub(crate) fn release(&self, owner: usize, last_version: u64) {
        // The next transaction of this owner starts above: a header word never comes back.
        self.clock.fetch_max(last_version, Ordering::SeqCst);
        self.cells[owner].claimed.store(false, Ordering::Release);
    }

    pub(crate) fn keep(&self, arena: Arc<ArenaMemory>) {
        self.registry().arenas.push(arena);
    }

    /// Which structure, arena and object an address belongs to.
    pub(crate) fn identify(&self, object: ObjectRef) -> Option<(ObjectId, Part, u32)> {
        let registry = self.registry();
        let named =
            |arena: &Arc<ArenaMemory>| Some((arena.init.object, arena.init.part, arena.memory.index_of(object)?));
        registry.arenas.iter().find_map(named)
    }

    pub(crate) fn boosted(&self) -> Vec<Option<Arc<dyn Boosted>>> {
        self.registry().objects.iter().map(|(_, boosted)| boosted.clone()).collect()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Pushes and reads only: a panic cannot leave it half changed.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("workers", &self.workers())
            .field("objects", &self.objects())
            .finish_non_exhaustive()
    }
}
