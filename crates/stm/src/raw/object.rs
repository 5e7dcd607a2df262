//! Objects: a header word and a payload of relaxed atomic words, at a stride of whole cache lines or of half a line.
//!
//! A payload may be read while another worker writes it. Because every word is atomic, the result is at worst a torn value,
//! never undefined behaviour, and the header reveals it. This module makes no decisions: the protocol is in `tx.rs` and `commit.rs`.

use std::ptr::NonNull;

use braid_memory::{Backing, Error, HugePages, prefetch_read, prefetch_write};

use crate::header::Header;
use crate::sync::{AtomicU64, Ordering, fence};

const LINE_WORDS: usize = 8;
/// Payload sizes, in words, that are copied without a loop: half a line and a whole line, each minus the header.
const SHORT: usize = LINE_WORDS / 2 - 1;
pub(crate) const LINE: usize = LINE_WORDS - 1;

/// Returns the number of words copied for a payload of `payload_words`: the words after it, up to the end of its line or half
/// line ([`Spacing`]), belong to no other object.
#[inline(always)]
pub(crate) const fn span(payload_words: usize) -> usize {
    match payload_words {
        words if cfg!(loom) || words > LINE => words,
        words if words > SHORT => LINE,
        _ => SHORT,
    }
}

/// How objects are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Each object on cache lines of its own, so that workers that write neighbouring objects do not contend.
    Lines,
    /// Two objects per line if a payload has at most three words: half the memory.
    Halves,
}

impl Spacing {
    /// Returns the distance between two objects in words.
    fn stride(self, payload_words: usize) -> usize {
        let words = 1 + payload_words;
        if self == Spacing::Halves && words <= LINE_WORDS / 2 {
            return LINE_WORDS / 2;
        }
        words.next_multiple_of(LINE_WORDS)
    }
}

/// The memory of an arena's objects.
#[derive(Debug)]
pub(crate) struct Memory {
    #[cfg(not(loom))]
    region: braid_memory::Region,
    #[cfg(loom)]
    words: Vec<AtomicU64>,
    objects: u32,
    payload_words: usize,
    stride: usize,
}

impl Memory {
    pub(crate) fn new(objects: u32, payload_words: usize, spacing: Spacing, pages: HugePages) -> Result<Memory, Error> {
        let stride = spacing.stride(payload_words);
        #[cfg(not(loom))]
        {
            let region = braid_memory::Region::new((objects as usize).max(1) * stride * 8, pages)?;
            Ok(Memory { region, objects, payload_words, stride })
        }
        #[cfg(loom)]
        {
            let _ = pages;
            let words = (0..objects as usize * stride).map(|_| AtomicU64::new(0)).collect();
            Ok(Memory { words, objects, payload_words, stride })
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.objects as usize * self.stride * 8
    }

    pub(crate) fn backing(&self) -> Backing {
        #[cfg(not(loom))]
        return self.region.backing();
        #[cfg(loom)]
        return Backing::Ordinary;
    }

    #[cfg_attr(loom, expect(unused_variables, reason = "no pages there"))]
    pub(crate) fn touch(&self, objects: u32) {
        #[cfg(not(loom))]
        self.region.touch(0..objects as usize * self.stride * 8);
    }

    fn base(&self) -> *const AtomicU64 {
        #[cfg(not(loom))]
        return self.region.base().cast();
        #[cfg(loom)]
        return self.words.as_ptr();
    }

    /// Returns a copy of the geometry, to locate objects without accessing this again.
    pub(crate) fn locator(&self) -> Locator {
        Locator { base: self.base(), stride: self.stride, objects: self.objects, payload_words: self.payload_words }
    }

    /// Returns the index of the object at this address, if it belongs to this arena.
    pub(crate) fn index_of(&self, object: ObjectRef) -> Option<u32> {
        let unit = self.stride * size_of::<AtomicU64>();
        let offset = object.address().checked_sub(self.base() as usize)?;
        let index = offset / unit;
        (index < self.objects as usize).then_some(index as u32)
    }
}

/// A copy of an arena's geometry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Locator {
    base: *const AtomicU64,
    stride: usize,
    objects: u32,
    payload_words: usize,
}

// SAFETY: a locator is an address of atomics that any thread may use while the memory lives (`object` states for how long).
unsafe impl Send for Locator {}
// SAFETY: as above.
unsafe impl Sync for Locator {}

impl Locator {
    #[inline(always)]
    pub(crate) fn payload_words(&self) -> usize {
        self.payload_words
    }

    #[inline(always)]
    pub(crate) fn objects(&self) -> u32 {
        self.objects
    }

    /// Returns object `index`.
    ///
    /// The methods of [`ObjectRef`] rely on this invariant of the crate: references are made from an `Arena` handle, which
    /// holds the memory, and outlive the use of that handle only in the logs of a transaction; `Glance` and `Holding`, which
    /// a caller may keep, borrow the handle. A transaction, which holds its domain, logs only objects of arenas of that
    /// domain (checked at each access). A domain keeps the memory of its arenas until no handle is left and, since then, each
    /// of its transactions has been seen with empty logs (`registry.rs`), or until the domain itself is dropped.
    #[inline(always)]
    pub(crate) fn object(&self, index: u32) -> ObjectRef {
        assert!(index < self.objects, "object {index} of an arena of {}", self.objects);
        // SAFETY: the index is in range, so the address lies inside the memory, which is not null.
        ObjectRef(unsafe { NonNull::new_unchecked(self.base.add(index as usize * self.stride).cast_mut()) })
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_read(self.base.wrapping_add(index as usize * self.stride));
    }

    #[inline(always)]
    pub(crate) fn prefetch_write(&self, index: u32) {
        prefetch_write(self.base.wrapping_add(index as usize * self.stride));
    }

    #[inline(always)]
    pub(crate) fn prefetch_line<const WRITE: bool>(&self, index: u32, line: usize) {
        let address = self.base.wrapping_add(index as usize * self.stride + line * LINE_WORDS);
        if WRITE { prefetch_write(address) } else { prefetch_read(address) }
    }
}

/// A reference to an object of a live arena (see [`Locator::object`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRef(NonNull<AtomicU64>);

// SAFETY: represents a shared reference to atomics, see the invariant at `Locator::object`.
unsafe impl Send for ObjectRef {}

impl ObjectRef {
    /// A placeholder for no object; must not be accessed.
    pub(crate) const NOWHERE: ObjectRef = ObjectRef(NonNull::dangling());

    #[inline(always)]
    pub(crate) fn address(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Returns the address of the cache line on which the object begins.
    pub(crate) fn line(self) -> usize {
        self.address() & !(LINE_WORDS * size_of::<AtomicU64>() - 1)
    }

    #[inline(always)]
    fn header(&self) -> &AtomicU64 {
        // SAFETY: points to the header of a live object, by the invariant at `Locator::object`.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn word(&self, k: usize) -> &AtomicU64 {
        // SAFETY: callers stay below `span` of the arena's payload words (`copy_to` and `store` take slices of at most that
        // length, which `tx.rs` checks). The payload follows the header, and the stride extends to the end of a line, or of
        // half a line where that is as long as the shortest span.
        unsafe { self.0.add(1 + k).as_ref() }
    }

    /// Loads the header, in the single total order of clock, locks and headers.
    #[inline(always)]
    pub(crate) fn load(self) -> Header {
        Header(self.header().load(Ordering::SeqCst))
    }

    /// Copies the payload and returns whether the header was `seen` throughout.
    #[inline(always)]
    pub(crate) fn copy_to(self, out: &mut [u64], seen: Header) -> bool {
        // The two short lengths of `span`, without a loop.
        if let Ok(out) = <&mut [u64; SHORT]>::try_from(&mut *out) {
            self.copy_words(out);
        } else if let Ok(out) = <&mut [u64; LINE]>::try_from(&mut *out) {
            self.copy_words(out);
        } else {
            self.copy_words(out);
        }
        // Acquire fence: pairs with the Release fence in `open`. If one of the words above came from a later commit, the load
        // below sees that commit's lock or its new header.
        fence(Ordering::Acquire);
        self.header().load(Ordering::Relaxed) == seen.0
    }

    #[inline(always)]
    fn copy_words(self, out: &mut [u64]) {
        for (k, word) in out.iter_mut().enumerate() {
            *word = self.some_word(k);
        }
    }

    /// Loads word `k`, even while it is being written: the value is reliable only while this worker has the object locked, or
    /// after the header has been checked.
    #[inline(always)]
    pub(crate) fn some_word(self, k: usize) -> u64 {
        // Relaxed: whoever holds the lock has read a header that was stored after the payload, and `copy_to` checks the
        // header afterwards; without either, the value is a hint.
        self.word(k).load(Ordering::Relaxed)
    }

    /// Writes words from `first` on, of an object that this worker has locked or that is not in use yet.
    #[inline(always)]
    pub(crate) fn write(self, first: usize, words: &[u64]) {
        for (k, word) in words.iter().enumerate() {
            self.word(first + k).store(*word, Ordering::Relaxed);
        }
    }

    /// Replaces a header by another one: a settled header by a lock, or back.
    #[inline(always)]
    pub(crate) fn replace(self, seen: Header, by: Header) -> bool {
        // SeqCst: a lock must precede its commit's loads of the clock, the turn and the headers it validates, in the same
        // total order as a reader's loads of clock and header.
        self.header().compare_exchange(seen.0, by.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Locks an object last written by this worker, while its flag announces this to other workers (`commit/locks.rs`).
    #[inline(always)]
    pub(crate) fn lock_own(self, lock: Header) {
        // Relaxed: `commit/locks.rs` executes a SeqCst fence after the last of these stores.
        #[cfg(not(loom))]
        self.header().store(lock.0, Ordering::Relaxed);
        // A concurrent compare-and-swap of another worker that succeeds precedes this store in the header's modification
        // order, because nothing comes between the value it read and the value it wrote. loom does not know that: it orders
        // values only by happens-before, so the model states it with a swap.
        #[cfg(loom)]
        self.header().swap(lock.0, Ordering::AcqRel);
    }

    #[inline(always)]
    pub(crate) fn unlock(self, old: Header) {
        self.header().store(old.0, Ordering::Release);
    }

    /// Must be called once between the last lock and the first `store` of a commit.
    #[inline(always)]
    pub(crate) fn open() {
        // Release fence: pairs with the Acquire fence in `copy_to`.
        fence(Ordering::Release);
    }

    /// Writes the payload of a locked object and unlocks it with its new header.
    #[inline(always)]
    pub(crate) fn store(self, payload: &[u64], header: Header) {
        if let Ok(payload) = <&[u64; SHORT]>::try_from(payload) {
            self.write(0, payload);
        } else if let Ok(payload) = <&[u64; LINE]>::try_from(payload) {
            self.write(0, payload);
        } else {
            self.write(0, payload);
        }
        // Release: a reader whose SeqCst load of the header sees it also sees the payload.
        self.header().store(header.0, Ordering::Release);
    }
}
