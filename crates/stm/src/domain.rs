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

/// Most workers of a domain: the owner field of a header.
pub const WORKERS_MAX: usize = OWNERS;

/// What reports call a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name in the plan, as `nat.sessions`.
    pub name: String,
    /// Its kind, as `Map`; decides what the operation numbers mean.
    pub kind: &'static str,
}

/// Per worker, on a line of its own.
pub(crate) struct WorkerCell {
    /// A commit with deferred actions is on its way.
    pub(crate) committing: AtomicBool,
    /// A commit of this worker is locking objects by stores (`commit/locks.rs`). Read by workers that take an object over, hence
    /// apart from what every commit may write.
    pub(crate) locking: CachePadded<AtomicBool>,
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
        self.registry().register(info)
    }

    /// Names who carries out the deferred actions of a structure. Handles of the structure hold it too: what the domain alone has is
    /// [given up](Domain::reclaim).
    pub fn attach(&self, object: ObjectId, boosted: Arc<dyn Boosted>) {
        self.registry().attach(object, boosted);
    }

    /// Name and kind of a structure.
    pub fn info(&self, object: ObjectId) -> ObjectInfo {
        self.registry().info(object).clone()
    }

    /// All structures by number, those that are gone included.
    pub fn objects(&self) -> Vec<(ObjectId, ObjectInfo)> {
        let named = |(n, info): (usize, &ObjectInfo)| (ObjectId(n as u32), info.clone());
        self.registry().infos().enumerate().map(named).collect()
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

    /// Gives memory back that nobody can reach any more: no handle of its structure is left, and every transaction has
    /// [let go](crate::Tx::let_go) since that was noticed here. Says whether something waits for that: then it will go when all
    /// transactions have let go and this is called again. A structure goes before its memory, and what it alone holds after it, so
    /// that takes a few rounds. What somebody still has waits for the next time.
    pub fn reclaim(&self) -> bool {
        let unused = self.registry().take_unused();
        drop(unused);
        let unreachable = self.registry().take_unreachable();
        drop(unreachable);
        self.registry().is_waiting()
    }

    /// Bytes mapped for the objects of all structures, those that are to be given back included.
    pub fn mapped_bytes(&self) -> usize {
        self.registry().mapped_bytes()
    }

    pub(crate) fn claim(&self, owner: usize) {
        self.registry().claim(owner);
    }

    pub(crate) fn release(&self, owner: usize, last_version: u64) {
        // The next transaction of this owner starts above: a header word never comes back.
        self.clock.fetch_max(last_version, Ordering::SeqCst);
        self.registry().release(owner);
    }

    pub(crate) fn let_go(&self, owner: usize) {
        self.registry().let_go(owner);
    }

    pub(crate) fn keep(&self, arena: Arc<ArenaMemory>) {
        self.registry().keep(arena);
    }

    /// Which structure, arena and object an address belongs to.
    pub(crate) fn identify(&self, object: ObjectRef) -> Option<(ObjectId, Part, u32)> {
        self.registry().identify(object)
    }

    pub(crate) fn boosted(&self, object: ObjectId) -> Option<Arc<dyn Boosted>> {
        self.registry().boosted(object)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Whoever panics with it (a second transaction of a worker, an unknown number) has changed nothing.
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
