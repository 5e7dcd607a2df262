//! Arenas: equal objects side by side, each on cache lines of its own unless they are packed.

use std::sync::Arc;

use braid_memory::{Backing, Error, HugePages};

use crate::conflict::{ObjectId, Part};
use crate::domain::Domain;
use crate::raw::object::{Locator, Memory, ObjectRef, Spacing};

/// What an arena shall be.
#[derive(Clone, Copy, Debug)]
pub struct ArenaInit {
    /// The structure that it belongs to.
    pub object: ObjectId,
    /// Which of the structure's arenas it is.
    pub part: Part,
    /// Number of objects.
    pub objects: u32,
    /// Words of 8 bytes in an object, below 65,536; up to 7 make one cache line together with the header.
    pub payload_words: usize,
    /// Which pages to ask for.
    pub pages: HugePages,
}

pub(crate) struct ArenaMemory {
    pub(crate) init: ArenaInit,
    pub(crate) memory: Memory,
}

/// Objects of equal size in one region. Cloning is cheap and gives the same objects.
#[derive(Clone)]
pub struct Arena {
    locator: Locator,
    domain: u64,
    shared: Arc<ArenaMemory>,
}

impl Arena {
    /// Maps zeroed objects. Their memory lives until the last handle is dropped and the domain [gives it back](Domain::reclaim), or is
    /// dropped itself.
    pub fn new(domain: &Domain, init: ArenaInit) -> Result<Arena, Error> {
        Arena::spaced(domain, init, Spacing::Lines)
    }

    /// The same with two objects on a cache line if they have at most three words: for many objects of which different workers
    /// seldom write neighbours.
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

    /// Number of objects.
    #[inline(always)]
    pub fn objects(&self) -> u32 {
        self.locator.objects()
    }

    /// Words of an object.
    #[inline(always)]
    pub fn payload_words(&self) -> usize {
        self.locator.payload_words()
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.shared.memory.bytes()
    }

    /// Which pages the objects lie on.
    pub fn backing(&self) -> Backing {
        self.shared.memory.backing()
    }

    /// Sets an object before the first transaction. While transactions run it may tear what they read.
    pub fn initialise(&self, index: u32, payload: &[u64]) {
        assert!(payload.len() <= self.payload_words());
        self.locator.object(index).write(0, payload);
    }

    /// The committed content of an object, atomically, outside any transaction; for reports and snapshots.
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

    /// Word `k` of an object as it is at this moment, outside any transaction and perhaps in the middle of a commit: a hint.
    #[inline(always)]
    pub fn hint(&self, index: u32, k: usize) -> u64 {
        assert!(k < self.payload_words());
        self.locator.object(index).some_word(k)
    }

    /// Asks for the first line of an object, to read it soon. Any index is allowed.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        self.locator.prefetch(index);
    }

    /// As [`prefetch`](Arena::prefetch), to write it soon.
    #[inline(always)]
    pub fn prefetch_write(&self, index: u32) {
        self.locator.prefetch_write(index);
    }

    /// Asks for another line of an object, to read it or to `WRITE` it; 0 is its first one.
    #[inline(always)]
    pub fn prefetch_line<const WRITE: bool>(&self, index: u32, line: usize) {
        self.locator.prefetch_line::<WRITE>(index, line);
    }

    /// Touches the pages on which the first objects lie, so that whoever writes them first meets no page fault.
    pub fn touch(&self, objects: u32) {
        self.shared.memory.touch(objects.min(self.objects()));
    }

    /// Which object begins at this address, if one of this arena does.
    pub(crate) fn index_of(&self, object: ObjectRef) -> Option<u32> {
        self.shared.memory.index_of(object)
    }

    /// Panics unless it belongs to the domain with this number.
    #[inline(always)]
    pub(crate) fn check(&self, domain: u64) {
        assert!(self.domain == domain, "an arena of another domain");
    }

    /// The object, for a transaction of the domain with this number.
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
