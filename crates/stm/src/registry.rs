//! The books of a domain: structures, their memory, and how that is given back while transactions go on.
//!
//! Memory of an arena can be reached in two ways: by a handle ([`Arena`](crate::Arena)), to which whatever else a caller may keep
//! (a [`Glance`](crate::Glance), a [`Holding`](crate::Holding)) is bound, and from the logs of a transaction. So it is given back
//! in two steps:
//!
//! 1. No handle is left. None can come any more, for they are made by cloning; hence no log takes the arena in any more.
//!    The memory is *retired*, and waits for each transaction that there is now: its logs may refer to it.
//! 2. Each of them has been seen with empty logs ([`Tx::let_go`](crate::Tx::let_go)) or has been dropped. Nobody can refer to
//!    the memory, and it is unmapped.
//!
//! A structure with deferred actions goes before its memory, in the same two steps: the domain alone has it, and each transaction
//! has been seen without noted actions and without the structures that it had got from here.
//!
//! All of this happens under one lock, which puts whatever a transaction did with the memory before its `let_go`, and that
//! before the unmapping. Transactions pay nothing for it on their way.

use std::sync::Arc;

use crate::arena::ArenaMemory;
use crate::boosted::Boosted;
use crate::conflict::{ObjectId, Part};
use crate::domain::ObjectInfo;
use crate::raw::object::ObjectRef;

/// By worker: whether its transaction has to let go first.
type Awaits = Box<[bool]>;

/// A structure.
struct Entry {
    info: ObjectInfo,
    boosted: Option<Arc<dyn Boosted>>,
    /// Nobody else has it; some transaction may have noted an action of it.
    leaving: Option<Awaits>,
    /// Its memory was given back: nothing is left but its number, for the next structure of that name and kind.
    is_gone: bool,
}

impl Entry {
    /// Gives the structure away if nobody can ask for it any more.
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
    /// By worker: a transaction of it exists.
    claimed: Awaits,
}

impl Registry {
    pub(crate) fn new(workers: usize) -> Registry {
        let claimed = vec![false; workers].into();
        Registry { entries: Vec::new(), arenas: Vec::new(), retired: Vec::new(), claimed }
    }

    /// Enters a structure, under the number of one of that name and kind that is gone: so numbers do not grow with the
    /// changes of a run, and what was counted for one goes on with the other.
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

    /// By number.
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

    /// Which structure, arena and object an address belongs to.
    pub(crate) fn identify(&self, object: ObjectRef) -> Option<(ObjectId, Part, u32)> {
        let named =
            |arena: &Arc<ArenaMemory>| Some((arena.init.object, arena.init.part, arena.memory.index_of(object)?));
        self.all_arenas().find_map(named)
    }

    /// Bytes of all arenas that are mapped.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.all_arenas().map(|arena| arena.memory.bytes()).sum()
    }

    pub(crate) fn claim(&mut self, owner: usize) {
        assert!(owner < self.claimed.len(), "worker {owner} of {}", self.claimed.len());
        let taken = std::mem::replace(&mut self.claimed[owner], true);
        assert!(!taken, "worker {owner} has a transaction already");
    }

    /// A transaction is dropped.
    pub(crate) fn release(&mut self, owner: usize) {
        self.claimed[owner] = false;
        self.let_go(owner);
    }

    /// The logs of a worker's transaction are empty.
    pub(crate) fn let_go(&mut self, owner: usize) {
        let leaving = self.entries.iter_mut().filter_map(|entry| entry.leaving.as_mut());
        let retired = self.retired.iter_mut().map(|retired| &mut retired.awaits);
        leaving.chain(retired).for_each(|awaits| awaits[owner] = false);
    }

    /// Whether something is to go as soon as transactions let go of it.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.retired.is_empty() || self.entries.iter().any(|entry| entry.leaving.is_some())
    }

    /// Both steps for structures; returns those to be dropped without the lock, and with them their handles of memory.
    #[must_use]
    pub(crate) fn take_unused(&mut self) -> Vec<Arc<dyn Boosted>> {
        self.entries.iter_mut().filter_map(|entry| entry.leave(&self.claimed)).collect()
    }

    /// Both steps for memory; returns what is to be dropped without the lock, for unmapping takes its time.
    #[must_use]
    pub(crate) fn take_unreachable(&mut self) -> Vec<Arc<ArenaMemory>> {
        // `get_mut`, for it puts what was done through the handles before this.
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
