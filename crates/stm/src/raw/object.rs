//! Objects: a header word and a payload of relaxed atomic words, at a stride of whole cache lines, or of half a line.
//!
//! A payload is read while another worker may write it; because every word is atomic that is a torn value at worst, never
//! undefined behaviour, and the header tells. Nothing here decides anything: the protocol is in `tx.rs` and `commit.rs`.

use std::ptr::NonNull;

use braid_memory::{Backing, Error, HugePages, prefetch_read, prefetch_write};

use crate::header::Header;
use crate::sync::{AtomicU64, Ordering, fence};

const LINE_WORDS: usize = 8;
/// Payload words of an object that is copied by as many instructions: half a line, a line.
const SHORT: usize = LINE_WORDS / 2 - 1;
pub(crate) const LINE: usize = LINE_WORDS - 1;

/// Words that are copied for a payload of so many: those behind it, up to the end of its line or half line ([`Spacing`]), belong
/// to nobody else.
#[inline(always)]
pub(crate) const fn span(payload_words: usize) -> usize {
    match payload_words {
        words if cfg!(loom) || words > LINE => words,
        words if words > SHORT => LINE,
        _ => SHORT,
    }
}

/// How objects lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Each on lines of its own: workers that write neighbours do not meet.
    Lines,
    /// Two on a line, if a payload has at most three words: half the memory.
    Halves,
}

impl Spacing {
    /// Words from one object to the next.
    fn stride(self, payload_words: usize) -> usize {
        let words = 1 + payload_words;
        if self == Spacing::Halves && words <= LINE_WORDS / 2 {
            return LINE_WORDS / 2;
        }
        words.next_multiple_of(LINE_WORDS)
    }
}

/// Where the objects of an arena lie.
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

    /// How to find objects without looking here again.
    pub(crate) fn locator(&self) -> Locator {
        Locator { base: self.base(), stride: self.stride, objects: self.objects, payload_words: self.payload_words }
    }

    /// Which object begins at this address, if one of this arena does.
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

// SAFETY: a locator is an address of atomics that any thread may use while the memory lives (`object` says for how long).
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

    /// Object `index`.
    ///
    /// Invariant of this crate, on which the methods of [`ObjectRef`] stand: references are made from an `Arena` handle, which holds
    /// the memory, and outlive the use of that handle only in the logs of a transaction; `Glance` and `Holding`, which a caller
    /// may keep, borrow the handle. A transaction, which holds its domain, logs only objects of arenas of that domain (checked
    /// at each access), and a domain keeps the memory of its arenas until no handle is left and, since then, each of its
    /// transactions has been seen with empty logs (`registry.rs`), or until it is dropped itself.
    #[inline(always)]
    pub(crate) fn object(&self, index: u32) -> ObjectRef {
        assert!(index < self.objects, "object {index} of an arena of {}", self.objects);
        // SAFETY: in range, so the address lies inside the memory, which is not null.
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

/// One object of an arena that is alive (see [`Locator::object`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRef(NonNull<AtomicU64>);

// SAFETY: stands for a shared reference to atomics, see the invariant at `Locator::object`.
unsafe impl Send for ObjectRef {}

impl ObjectRef {
    /// Stands where there is none; nothing may be asked of it.
    pub(crate) const NOWHERE: ObjectRef = ObjectRef(NonNull::dangling());

    #[inline(always)]
    pub(crate) fn address(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Address of the cache line on which it begins.
    pub(crate) fn line(self) -> usize {
        self.address() & !(LINE_WORDS * size_of::<AtomicU64>() - 1)
    }

    #[inline(always)]
    fn header(&self) -> &AtomicU64 {
        // SAFETY: points at the header of an object that is alive, by the invariant at `Locator::object`.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn word(&self, k: usize) -> &AtomicU64 {
        // SAFETY: callers stay below `span` of the arena's payload words (`copy_to` and `store` take slices of at most that
        // length, which `tx.rs` checks): the payload follows the header, and the stride reaches to the end of a line, or of half
        // a line where that is as long as the shortest span.
        unsafe { self.0.add(1 + k).as_ref() }
    }

    /// The header, in the single total order of clock, locks and headers.
    #[inline(always)]
    pub(crate) fn load(self) -> Header {
        Header(self.header().load(Ordering::SeqCst))
    }

    /// Copies the payload and says whether the header was `seen` all the while.
    #[inline(always)]
    pub(crate) fn copy_to(self, out: &mut [u64], seen: Header) -> bool {
        // The two lengths of `span` without a loop.
        if let Ok(out) = <&mut [u64; SHORT]>::try_from(&mut *out) {
            self.copy_words(out);
        } else if let Ok(out) = <&mut [u64; LINE]>::try_from(&mut *out) {
            self.copy_words(out);
        } else {
            self.copy_words(out);
        }
        // Acquire fence: pairs with the Release fence in `open`. If one of the words above came from a later commit, the
        // load below sees that commit's lock or its new header.
        fence(Ordering::Acquire);
        self.header().load(Ordering::Relaxed) == seen.0
    }

    #[inline(always)]
    fn copy_words(self, out: &mut [u64]) {
        for (k, word) in out.iter_mut().enumerate() {
            *word = self.some_word(k);
        }
    }

    /// Word `k`, whoever is writing it: certain only while this worker has the object locked, or once the header says so.
    #[inline(always)]
    pub(crate) fn some_word(self, k: usize) -> u64 {
        // Relaxed: a lock has read the header that was stored behind it, and `copy_to` looks at the header afterwards; without
        // either it is a hint.
        self.word(k).load(Ordering::Relaxed)
    }

    /// Writes words from `first` on of an object that this worker has locked, or that nobody uses yet.
    #[inline(always)]
    pub(crate) fn write(self, first: usize, words: &[u64]) {
        for (k, word) in words.iter().enumerate() {
            self.word(first + k).store(*word, Ordering::Relaxed);
        }
    }

    /// Replaces a header by another: a settled one by a lock, or back.
    #[inline(always)]
    pub(crate) fn replace(self, seen: Header, by: Header) -> bool {
        // SeqCst: a lock must come before its commit's loads of the clock, the turn and the headers it validates, in the order
        // that a reader's clock load and header load take part in.
        self.header().compare_exchange(seen.0, by.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Locks an object that this worker wrote last, while its flag tells other workers that it does (`commit/locks.rs`).
    #[inline(always)]
    pub(crate) fn lock_own(self, lock: Header) {
        // Relaxed: `commit/locks.rs` puts a SeqCst fence behind the last of them.
        #[cfg(not(loom))]
        self.header().store(lock.0, Ordering::Relaxed);
        // Another worker's compare-and-swap that succeeded beside this store stands before it in the order of the header's
        // values, because nothing stands between what it read and what it wrote. loom does not know that: it orders values
        // only by what happens before what, so the model says it.
        #[cfg(loom)]
        self.header().swap(lock.0, Ordering::AcqRel);
    }

    #[inline(always)]
    pub(crate) fn unlock(self, old: Header) {
        self.header().store(old.0, Ordering::Release);
    }

    /// To be called once between the last lock and the first `store` of a commit.
    #[inline(always)]
    pub(crate) fn open() {
        // Release fence: partner of the Acquire fence in `copy_to`.
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
        // Release: a reader whose SeqCst header load sees it also sees the payload.
        self.header().store(header.0, Ordering::Release);
    }
}
