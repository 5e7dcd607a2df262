//! Arenas: objects of equal size side by side, each on cache lines of its own unless they are packed.

use std::sync::Arc;

use braid_memory::{Backing, Error, HugePages};

use crate::conflict::{ObjectId, Part};
use crate::domain::Domain;
use crate::raw::object::{Locator, Memory, ObjectRef, Spacing};

/// Parameters of an arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaInit {
    /// The structure to which it belongs.
    pub object: ObjectId,
    /// Which of the structure's arenas it is.
    pub part: Part,
    /// Number of objects.
    pub objects: u32,
    /// Number of 8-byte words per object, below 65,536; up to 7 words fit one cache line together with the header.
    pub payload_words: usize,
    /// Kind of pages to request.
    pub pages: HugePages,
}

pub(crate) struct ArenaMemory {
    pub(crate) init: ArenaInit,
    pub(crate) memory: Memory,
}

/// Objects of equal size in one region. Cloning is cheap and refers to the same objects.
#[derive(Clone)]
pub struct Arena {
    locator: Locator,
    domain: u64,
    shared: Arc<ArenaMemory>,
}

impl Arena {
    /// Maps zeroed objects. Their memory lives until the last handle has been dropped and the domain has [freed
    /// it](Domain::reclaim), or until the domain itself is dropped.
    pub fn new(domain: &Domain, init: ArenaInit) -> Result<Arena, Error> {
        Arena::spaced(domain, init, Spacing::Lines)
    }

    /// Like [`new`](Self::new), but with two objects per cache line if they have at most three words; for many objects whose
    /// neighbours are seldom written by different workers.
    pub fn packed(domain: &Domain, init: ArenaInit) -> Result<Arena, Error> {
        Arena::spaced(domain, init, Spacing::Halves)
    }

    fn spaced(domain: &Domain, init: ArenaInit, spacing: Spacing) -> Result<Arena, Error> {
        assert!(init.payload_words <= usize::from(u16::MAX), "{} words in an object", init.payload_words);
        let memory = Memory::new(init.objects, init.payload_words, spacing, init.pages)?;
        let shared = Arc::new(ArenaMemory { init, memory });
        domain.keep(Arc::clone(&shared));
        Ok(Arena { locator: shared.memory.locator(), domain: domain.id(), shared })
    }

    /// Returns the number of objects.
    #[inline(always)]
    pub fn objects(&self) -> u32 {
        self.locator.objects()
    }

    /// Returns the number of words per object.
    #[inline(always)]
    pub fn payload_words(&self) -> usize {
        self.locator.payload_words()
    }

    /// Returns the number of bytes mapped.
    pub fn bytes(&self) -> usize {
        self.shared.memory.bytes()
    }

    /// Returns the kind of pages that the objects are on.
    pub fn backing(&self) -> Backing {
        self.shared.memory.backing()
    }

    /// Sets an object before the first transaction. If transactions are running, they may read a torn value.
    pub fn initialise(&self, index: u32, payload: &[u64]) {
        assert!(payload.len() <= self.payload_words());
        self.locator.object(index).write(0, payload);
    }

    /// Copies the committed value of an object atomically, outside of any transaction; for reports and snapshots.
    pub fn snapshot(&self, index: u32, out: &mut [u64]) {
        assert!(out.len() <= self.payload_words());
        let object = self.locator.object(index);
        let mut round = 0;
        loop {
            let header = object.load();
            if !header.is_locked() && object.copy_to(out, header) {
                return;
            }
            crate::sync::pause(round);
            round += 1;
        }
    }

    /// Returns word `k` of an object at this moment, outside of any transaction and possibly in the middle of a commit: a
    /// hint only.
    #[inline(always)]
    pub fn hint(&self, index: u32, k: usize) -> u64 {
        assert!(k < self.payload_words());
        self.locator.object(index).some_word(k)
    }

    /// Prefetches the first line of an object for reading. Any index is allowed.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        self.locator.prefetch(index);
    }

    /// Prefetches the first line of an object for writing. Any index is allowed.
    #[inline(always)]
    pub fn prefetch_write(&self, index: u32) {
        self.locator.prefetch_write(index);
    }

    /// Prefetches any line of an object, for reading or, with `WRITE`, for writing; line 0 is the first.
    #[inline(always)]
    pub fn prefetch_line<const WRITE: bool>(&self, index: u32, line: usize) {
        self.locator.prefetch_line::<WRITE>(index, line);
    }

    /// Touches the pages of the first objects, so that their first writer meets no page fault.
    pub fn touch(&self, objects: u32) {
        self.shared.memory.touch(objects.min(self.objects()));
    }

    /// Returns the index of the object at this address, if it belongs to this arena.
    pub(crate) fn index_of(&self, object: ObjectRef) -> Option<u32> {
        self.shared.memory.index_of(object)
    }

    /// Panics unless the arena belongs to the domain with this number.
    #[inline(always)]
    pub(crate) fn check(&self, domain: u64) {
        assert!(self.domain == domain, "an arena of another domain");
    }

    /// Returns an object, for a transaction of the domain with this number.
    #[inline(always)]
    pub(crate) fn object(&self, index: u32, domain: u64) -> ObjectRef {
        self.check(domain);
        self.locator.object(index)
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("init", &self.shared.init).finish_non_exhaustive()
    }
}
