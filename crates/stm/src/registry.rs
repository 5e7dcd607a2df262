//! The registry of a domain: structures, their memory, and how that memory is freed while transactions continue.
//!
//! The memory of an arena is reachable in two ways: through a handle ([`Arena`](crate::Arena)), which anything else that a
//! caller may keep (a [`Glance`](crate::Glance), a [`Holding`](crate::Holding)) borrows, and through the logs of a
//! transaction. It is therefore freed in two steps:
//!
//! 1. No handle is left. Handles are created only by cloning, so none can appear any more, and no log can pick up the arena.
//!    The memory is *retired* and waits for every transaction that exists now, since their logs may refer to it.
//! 2. Each of these transactions has been seen with empty logs ([`Tx::let_go`](crate::Tx::let_go)) or has been dropped.
//!    Nothing can refer to the memory any more, and it is unmapped.
//!
//! A structure with deferred actions is dropped before its memory, in the same two steps: only the domain holds it, and each
//! transaction has been seen without noted actions and without the structures that it had obtained from here.
//!
//! All of this happens under one lock, which orders everything that a transaction did with the memory before its `let_go`,
//! and that before the unmapping. Transactions pay nothing for it on their fast path.

use std::sync::Arc;

use crate::arena::ArenaMemory;
use crate::boosted::Boosted;
use crate::conflict::{ObjectId, Part};
use crate::domain::ObjectInfo;
use crate::raw::object::ObjectRef;

/// For each worker, whether its transaction still has to let go.
type Awaits = Box<[bool]>;

/// A registered structure.
struct Entry {
    info: ObjectInfo,
    boosted: Option<Arc<dyn Boosted>>,
    /// Set while only the domain holds the structure, but a transaction may have noted an action of it.
    leaving: Option<Awaits>,
    /// The memory has been freed; only the number is left, for the next structure with the same name and kind.
    is_gone: bool,
}

impl Entry {
    /// Returns the structure, to be dropped, once nothing can refer to it any more.
    fn leave(&mut self, claimed: &Awaits) -> Option<Arc<dyn Boosted>> {
        if Arc::get_mut(self.boosted.as_mut()?).is_none() {
            self.leaving = None;
            return None;
        }
        let awaits = self.leaving.get_or_insert_with(|| claimed.clone());
        if awaits.contains(&true) {
            return None;
        }
        self.leaving = None;
        self.boosted.take()
    }
}

/// Memory without a handle.
struct Retired {
    arena: Arc<ArenaMemory>,
    awaits: Awaits,
}

pub(crate) struct Registry {
    entries: Vec<Entry>,
    arenas: Vec<Arc<ArenaMemory>>,
    retired: Vec<Retired>,
    /// For each worker, whether a transaction of it exists.
    claimed: Awaits,
}

impl Registry {
    pub(crate) fn new(workers: usize) -> Registry {
        let claimed = vec![false; workers].into();
        Registry { entries: Vec::new(), arenas: Vec::new(), retired: Vec::new(), claimed }
    }

    /// Registers a structure, reusing the number of one with the same name and kind that is gone. Thus numbers do not grow
    /// with the changes of a run, and counters continue from the old structure to the new one.
    pub(crate) fn register(&mut self, info: ObjectInfo) -> ObjectId {
        let at = match self.entries.iter().position(|entry| entry.is_gone && entry.info == info) {
            Some(at) => at,
            None => {
                self.entries.push(Entry { info, boosted: None, leaving: None, is_gone: false });
                self.entries.len() - 1
            }
        };
        self.entries[at].is_gone = false;
        ObjectId(at as u32)
    }

    pub(crate) fn attach(&mut self, object: ObjectId, boosted: Arc<dyn Boosted>) {
        self.entries[object.0 as usize].boosted = Some(boosted);
    }

    pub(crate) fn info(&self, object: ObjectId) -> &ObjectInfo {
        &self.entries[object.0 as usize].info
    }

    /// Returns the structures in order of their numbers.
    pub(crate) fn infos(&self) -> impl Iterator<Item = &ObjectInfo> {
        self.entries.iter().map(|entry| &entry.info)
    }

    pub(crate) fn boosted(&self, object: ObjectId) -> Option<Arc<dyn Boosted>> {
        self.entries.get(object.0 as usize)?.boosted.clone()
    }

    pub(crate) fn keep(&mut self, arena: Arc<ArenaMemory>) {
        self.arenas.push(arena);
    }

    fn all_arenas(&self) -> impl Iterator<Item = &Arc<ArenaMemory>> {
        self.arenas.iter().chain(self.retired.iter().map(|retired| &retired.arena))
    }

    /// Returns the structure, arena and object to which an address belongs.
    pub(crate) fn identify(&self, object: ObjectRef) -> Option<(ObjectId, Part, u32)> {
        let named =
            |arena: &Arc<ArenaMemory>| Some((arena.init.object, arena.init.part, arena.memory.index_of(object)?));
        self.all_arenas().find_map(named)
    }

    /// Returns the bytes mapped for all arenas.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.all_arenas().map(|arena| arena.memory.bytes()).sum()
    }

    pub(crate) fn claim(&mut self, owner: usize) {
        assert!(owner < self.claimed.len(), "worker {owner} of {}", self.claimed.len());
        let taken = std::mem::replace(&mut self.claimed[owner], true);
        assert!(!taken, "worker {owner} has a transaction already");
    }

    /// Unregisters a worker's transaction when it is dropped.
    pub(crate) fn release(&mut self, owner: usize) {
        self.claimed[owner] = false;
        self.let_go(owner);
    }

    /// Records that the logs of a worker's transaction are empty.
    pub(crate) fn let_go(&mut self, owner: usize) {
        let leaving = self.entries.iter_mut().filter_map(|entry| entry.leaving.as_mut());
        let retired = self.retired.iter_mut().map(|retired| &mut retired.awaits);
        leaving.chain(retired).for_each(|awaits| awaits[owner] = false);
    }

    /// Returns whether something will be freed as soon as transactions let go of it.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.retired.is_empty() || self.entries.iter().any(|entry| entry.leaving.is_some())
    }

    /// Performs both steps for structures and returns those that can be dropped, together with their handles of memory. The
    /// caller drops them without the lock.
    #[must_use]
    pub(crate) fn take_unused(&mut self) -> Vec<Arc<dyn Boosted>> {
        self.entries.iter_mut().filter_map(|entry| entry.leave(&self.claimed)).collect()
    }

    /// Performs both steps for memory and returns what can be unmapped. The caller drops it without the lock, because
    /// unmapping takes time.
    #[must_use]
    pub(crate) fn take_unreachable(&mut self) -> Vec<Arc<ArenaMemory>> {
        // `get_mut` orders everything done through the handles before this point.
        for arena in self.arenas.extract_if(.., |arena| Arc::get_mut(arena).is_some()) {
            self.retired.push(Retired { arena, awaits: self.claimed.clone() });
        }
        let awaits_nobody = |retired: &mut Retired| !retired.awaits.contains(&true);
        let free: Vec<_> = self.retired.extract_if(.., awaits_nobody).map(|retired| retired.arena).collect();
        for arena in &free {
            let object = arena.init.object;
            let has_memory = self.all_arenas().any(|arena| arena.init.object == object);
            let entry = &mut self.entries[object.0 as usize];
            entry.is_gone = !has_memory && entry.boosted.is_none();
        }
        free
    }
}
