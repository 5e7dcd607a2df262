//! Anonymous mappings, made with `mmap(2)` and `madvise(2)`; mappings with a descriptor are made in `shared.rs`.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size in bytes of a huge page on x86-64 and most 64-bit ARM kernels.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Size in bytes of the smallest page on x86-64 and most 64-bit ARM kernels.
pub(super) const PAGE: usize = 4096;

/// Kind of pages to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Reserved huge pages if there are enough, otherwise transparent ones.
    #[default]
    Prefer,
    /// Transparent huge pages only.
    Transparent,
    /// Ordinary pages, for measurements.
    Never,
    /// Like [`Prefer`](Self::Prefer), with all pages touched when mapped (`MADV_POPULATE_WRITE`, Linux 5.14): no page faults
    /// while packets pass, but the memory is in use from the start. On older kernels the same as `Prefer`.
    Touched,
}

/// Kind of pages that the kernel provided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Reserved huge pages (`MAP_HUGETLB`).
    Huge,
    /// An ordinary mapping for which `MADV_HUGEPAGE` was accepted.
    Transparent,
    /// Ordinary pages.
    Ordinary,
}

impl std::fmt::Display for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Backing::Huge => "reserved huge pages",
            Backing::Transparent => "transparent huge pages",
            Backing::Ordinary => "ordinary pages",
        })
    }
}

/// The largest size of a region: one that can be rounded to pages and is no larger than an allocation may be.
const BYTES_MAX: usize = isize::MAX as usize - 2 * HUGE_PAGE;

/// A region could not be mapped.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {bytes} bytes: {source}")]
pub struct Error {
    /// The requested size in bytes.
    pub bytes: usize,
    /// The kernel's error.
    pub source: rustix::io::Errno,
}

impl Error {
    /// Refuses sizes that an allocation may not have, and such as could be no multiple of a page any more.
    pub(super) fn check(bytes: usize) -> Result<(), Error> {
        if bytes <= BYTES_MAX { Ok(()) } else { Err(Error::too_large(bytes)) }
    }

    /// Creates the error for memory received from another process that is not what it was declared to be.
    pub fn foreign(bytes: usize) -> Error {
        Error { bytes, source: rustix::io::Errno::INVAL }
    }

    /// Creates the error for a size beyond the address space.
    pub fn too_large(bytes: usize) -> Error {
        Error { bytes, source: rustix::io::Errno::NOMEM }
    }
}

/// A mapping of its own, zeroed when it was made. It is aligned to 2 MiB if it is at least that large and huge pages are
/// allowed, otherwise to a page.
#[derive(Debug)]
pub struct Region {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) mapped: usize,
    pub(super) backing: Backing,
    /// Descriptor by which the memory can be mapped again, if there is one.
    pub(super) descriptor: Option<OwnedFd>,
}

// SAFETY: a `Region` is only an address range; it owns the mapping and hands out no references.
unsafe impl Send for Region {}
// SAFETY: as above; every method takes `&self` and only reads plain fields.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `bytes` zeroed bytes. Untouched pages take no memory unless they are reserved huge pages.
    pub fn new(bytes: usize, pages: HugePages) -> Result<Region, Error> {
        Error::check(bytes)?;
        let large = bytes >= HUGE_PAGE;
        let reserved = match pages {
            HugePages::Prefer | HugePages::Touched if large => Self::reserved(bytes).ok(),
            _ => None,
        };
        let region = reserved.map_or_else(|| Self::ordinary(bytes, pages != HugePages::Never && large), Ok)?;
        if pages == HugePages::Touched {
            region.touch(0..bytes);
        }
        Ok(region)
    }

    /// Touches the pages of a range of bytes, so that their first use causes no page fault (`MADV_POPULATE_WRITE`, Linux
    /// 5.14; no effect on older kernels). Any part outside the region is ignored.
    pub fn touch(&self, bytes: Range<usize>) {
        let (from, to) = (bytes.start / PAGE * PAGE, bytes.end.min(self.mapped));
        if from < to {
            // SAFETY: populating part of our own mapping, from the start of a page, changes no contents.
            let _ = unsafe { madvise(self.base().add(from).cast(), to - from, Advice::LinuxPopulateWrite) };
        }
    }

    fn reserved(bytes: usize) -> rustix::io::Result<Region> {
        let mapped = bytes.next_multiple_of(HUGE_PAGE);
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
        // SAFETY: a new anonymous mapping at an address chosen by the kernel aliases nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let base = NonNull::new(base.cast()).expect("mmap returns no null page");
        Ok(Region { base, bytes, mapped, backing: Backing::Huge, descriptor: None })
    }

    fn ordinary(bytes: usize, transparent: bool) -> Result<Region, Error> {
        let wanted = bytes.max(1).next_multiple_of(PAGE);
        // Over-map by one huge page so that the base can be aligned to one, then unmap both ends.
        let slack = if transparent { HUGE_PAGE } else { 0 };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address chosen by the kernel aliases nothing.
        let raw = unsafe { mmap_anonymous(ptr::null_mut(), wanted + slack, protection, flags) }
            .map_err(|source| Error { bytes, source })?;
        let start = raw as usize;
        let aligned = if transparent { start.next_multiple_of(HUGE_PAGE) } else { start };
        let (head, tail) = (aligned - start, start + wanted + slack - (aligned + wanted));
        if head > 0 {
            // SAFETY: this is the head of the mapping made above, to which nothing refers yet.
            let _ = unsafe { munmap(raw, head) };
        }
        if tail > 0 {
            // SAFETY: this is the tail of the mapping made above, to which nothing refers yet.
            let _ = unsafe { munmap(raw.cast::<u8>().add(head + wanted).cast(), tail) };
        }
        // SAFETY: `head` lies inside the mapping.
        let base = unsafe { raw.cast::<u8>().add(head) };
        // SAFETY: advice on our own mapping changes no contents.
        let advised = transparent && unsafe { madvise(base.cast(), wanted, Advice::LinuxHugepage) }.is_ok();
        let base = NonNull::new(base).expect("mmap returns no null page");
        let backing = if advised { Backing::Transparent } else { Backing::Ordinary };
        Ok(Region { base, bytes, mapped: wanted, backing, descriptor: None })
    }

    /// Returns the first byte; valid for reads and writes of [`len`](Self::len) bytes while the region lives.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the usable length in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the kind of pages that the kernel provided.
    pub fn backing(&self) -> Backing {
        self.backing
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: we own the mapping, and everything that was built on it has been dropped or has given up its pointers.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// A region that one owner uses as plain bytes.
#[derive(Debug)]
pub struct Bytes(Region);

impl Bytes {
    /// Maps `bytes` zeroed bytes.
    pub fn new(bytes: usize, pages: HugePages) -> Result<Bytes, Error> {
        Region::new(bytes, pages).map(Bytes)
    }

    /// Returns the kind of pages that the kernel provided.
    pub fn backing(&self) -> Backing {
        self.0.backing()
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the region is mapped, zeroed by the kernel, owned by `self` alone, and borrowed for as long as the result.
        unsafe { std::slice::from_raw_parts(self.0.base(), self.0.len()) }
    }
}

impl std::ops::DerefMut for Bytes {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.0.base(), self.0.len()) }
    }
}

/// Prefetches the cache line at `address` for reading. Any address is allowed; it is not dereferenced.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(braid_no_prefetch)))]
    // SAFETY: a prefetch never faults and has no architectural effect.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(braid_no_prefetch))))]
    let _ = address;
}

/// Like [`prefetch_read`], but only into the second-level cache; for one of many lines in a row. Of prefetches into the
/// first-level cache, a processor drops those beyond some twenty in flight.
#[inline(always)]
pub fn prefetch_second_level<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(braid_no_prefetch)))]
    // SAFETY: a prefetch never faults and has no architectural effect. Written as assembly that declares that no memory
    // changes; after the intrinsic, the compiler would reload what it had in registers.
    unsafe {
        std::arch::asm!("prefetcht1 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(braid_no_prefetch))))]
    let _ = address;
}

/// Like [`prefetch_read`], but requests the line in a writable state (`prefetchw`).
#[inline(always)]
pub fn prefetch_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(braid_no_prefetch)))]
    // SAFETY: a prefetch never faults and has no architectural effect; every x86-64 processor since 2014 has `prefetchw`, and
    // older ones treat it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(braid_no_prefetch))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: usize, pages: HugePages) {
        let region = Region::new(bytes, pages).expect("this much memory is there");
        assert!(region.len() == bytes && !region.is_empty());
        // SAFETY: both ends lie inside the region, to which nothing else refers.
        unsafe {
            assert_eq!((region.base().read(), region.base().add(bytes - 1).read()), (0, 0));
            region.base().add(bytes - 1).write(7);
            assert_eq!(region.base().add(bytes - 1).read(), 7);
        }
        if region.backing() != Backing::Ordinary {
            assert_eq!(region.base() as usize % HUGE_PAGE, 0);
        }
    }

    #[test]
    fn regions_are_zeroed_and_writable_to_the_last_byte() {
        check(1, HugePages::Never);
        check(4097, HugePages::Prefer);
        check((3 << 20) + 5, HugePages::Prefer);
        check((3 << 20) + 5, HugePages::Transparent);
        check((3 << 20) + 5, HugePages::Touched);
    }

    #[test]
    fn touching_any_part_of_a_region_changes_nothing() {
        let region = Region::new(3 * PAGE + 5, HugePages::Never).expect("this much memory is there");
        // SAFETY: this lies inside the region, to which nothing else refers.
        unsafe { region.base().add(PAGE).write(7) };
        for part in [0..0, 0..1, 5..PAGE + 1, PAGE..usize::MAX, usize::MAX..usize::MAX] {
            region.touch(part);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { (region.base().add(PAGE).read(), region.base().read()) }, (7, 0));
    }

    #[test]
    fn an_impossible_size_is_an_error_with_the_size() {
        let error = Region::new(1 << 60, HugePages::Never).unwrap_err();
        assert!(error.to_string().contains(&(1u64 << 60).to_string()));
        for pages in [HugePages::Never, HugePages::Transparent, HugePages::Prefer] {
            assert!(Region::new(usize::MAX, pages).is_err());
            assert!(Region::shared(usize::MAX, pages).is_err());
        }
    }

    #[test]
    fn prefetch_of_any_address_is_harmless() {
        prefetch_read(usize::MAX as *const u8);
        prefetch_write(std::ptr::null::<u8>());
    }
}
