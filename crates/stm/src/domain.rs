//! A domain: the clock, the workers and the structures that transactions share.

use std::sync::atomic::{AtomicU64 as PlainU64, Ordering as PlainOrdering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::arena::ArenaMemory;
use crate::boosted::Boosted;
use crate::conflict::{ObjectId, Part};
use crate::header::OWNERS;
use crate::raw::object::ObjectRef;
use crate::registry::Registry;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::turn::Turn;

/// Maximum number of workers of a domain, limited by the owner field of a header.
pub const WORKERS_MAX: usize = OWNERS;

/// Name and kind of a structure, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name in the plan, such as `nat.sessions`.
    pub name: String,
    /// Kind, such as `Map`; determines the meaning of operation numbers.
    pub kind: &'static str,
}

/// Per-worker flags, on a cache line of their own.
pub(crate) struct WorkerCell {
    /// A commit with deferred actions is in progress.
    pub(crate) committing: AtomicBool,
    /// A commit of this worker is locking objects with plain stores (`commit/locks.rs`). It is read by workers that take over
    /// an object, hence kept apart from what every commit may write.
    pub(crate) locking: CachePadded<AtomicBool>,
}

/// Everything that transactions share.
pub struct Domain {
    id: u64,
    pub(crate) clock: CachePadded<AtomicU64>,
    pub(crate) sequence: CachePadded<AtomicU64>,
    pub(crate) turn: Turn,
    pub(crate) cells: Box<[CachePadded<WorkerCell>]>,
    registry: Mutex<Registry>,
}

impl Domain {
    /// Creates a domain of `workers` workers, at most [`WORKERS_MAX`].
    pub fn new(workers: usize) -> Arc<Domain> {
        static NEXT: PlainU64 = PlainU64::new(1);
        assert!((1..=WORKERS_MAX).contains(&workers), "{workers} workers: 1 to {WORKERS_MAX} are possible");
        let flag = || AtomicBool::new(false);
        let cell = || WorkerCell { committing: flag(), locking: CachePadded::new(flag()) };
        Arc::new(Domain {
            // Relaxed: only uniqueness matters.
            id: NEXT.fetch_add(1, PlainOrdering::Relaxed),
            clock: CachePadded::new(AtomicU64::new(1)),
            sequence: CachePadded::new(AtomicU64::new(0)),
            turn: Turn::new(),
            cells: (0..workers).map(|_| CachePadded::new(cell())).collect(),
            registry: Mutex::new(Registry::new(workers)),
        })
    }

    /// Returns the number of workers.
    #[inline(always)]
    pub fn workers(&self) -> usize {
        self.cells.len()
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Registers a structure.
    pub fn register(&self, info: ObjectInfo) -> ObjectId {
        self.registry().register(info)
    }

    /// Attaches the implementation of a structure's deferred actions. Handles of the structure must hold it too: an
    /// implementation held by the domain alone is [given up](Domain::reclaim).
    pub fn attach(&self, object: ObjectId, boosted: Arc<dyn Boosted>) {
        self.registry().attach(object, boosted);
    }

    /// Returns the name and kind of a structure.
    pub fn info(&self, object: ObjectId) -> ObjectInfo {
        self.registry().info(object).clone()
    }

    /// Returns all structures by number, including those that are gone.
    pub fn objects(&self) -> Vec<(ObjectId, ObjectInfo)> {
        let named = |(n, info): (usize, &ObjectInfo)| (ObjectId(n as u32), info.clone());
        self.registry().infos().enumerate().map(named).collect()
    }

    /// Returns the number of committed transactions in the serial order; counted only while recording.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::SeqCst)
    }

    /// Returns whether another worker is between checking the turn and the end of its deferred actions. Only the worker that
    /// holds the turn can rely on `false`.
    pub(crate) fn others_committing(&self, owner: u64) -> bool {
        // SeqCst: pairs with the store of `committing` before the turn check in `commit.rs`.
        let busy =
            |(n, cell): (usize, &CachePadded<WorkerCell>)| n as u64 != owner && cell.committing.load(Ordering::SeqCst);
        self.cells.iter().enumerate().any(busy)
    }

    /// Frees memory that is no longer reachable: no handle of its structure is left, and every transaction has [let
    /// go](crate::Tx::let_go) since this function noticed that. Returns whether something is still waiting; it is freed once
    /// all transactions have let go and this is called again. A structure is dropped before its memory, and what only the
    /// structure holds after that, so complete reclamation takes a few rounds. Anything still in use waits for a later call.
    pub fn reclaim(&self) -> bool {
        let unused = self.registry().take_unused();
        drop(unused);
        let unreachable = self.registry().take_unreachable();
        drop(unreachable);
        self.registry().is_waiting()
    }

    /// Returns the bytes mapped for the objects of all structures, including memory that is about to be freed.
    pub fn mapped_bytes(&self) -> usize {
        self.registry().mapped_bytes()
    }

    pub(crate) fn claim(&self, owner: usize) {
        self.registry().claim(owner);
    }

    pub(crate) fn release(&self, owner: usize, last_version: u64) {
        // The next transaction of this owner starts above this version, so that no header word ever recurs.
        self.clock.fetch_max(last_version, Ordering::SeqCst);
        self.registry().release(owner);
    }

    pub(crate) fn let_go(&self, owner: usize) {
        self.registry().let_go(owner);
    }

    pub(crate) fn keep(&self, arena: Arc<ArenaMemory>) {
        self.registry().keep(arena);
    }

    /// Returns the structure, arena and object to which an address belongs.
    pub(crate) fn identify(&self, object: ObjectRef) -> Option<(ObjectId, Part, u32)> {
        self.registry().identify(object)
    }

    pub(crate) fn boosted(&self, object: ObjectId) -> Option<Arc<dyn Boosted>> {
        self.registry().boosted(object)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic while the lock is held (a second transaction of a worker, an unknown number) happens before any change.
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
