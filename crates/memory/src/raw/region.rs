//! An anonymous mapping, by `mmap(2)` and `madvise(2)`; one with a descriptor is made in `shared.rs`.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes in a huge page on x86-64 and most 64-bit ARM kernels.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Bytes in the smallest page of x86-64 and most 64-bit ARM kernels.
pub(super) const PAGE: usize = 4096;

/// Which pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Reserved huge pages if there are enough, else transparent ones.
    #[default]
    Prefer,
    /// Transparent huge pages only.
    Transparent,
    /// Ordinary pages, for measurements.
    Never,
    /// As [`Prefer`](Self::Prefer), and all of them touched when they are mapped (`MADV_POPULATE_WRITE`, Linux 5.14): no page fault
    /// while packets pass, and memory in use from the beginning. On older kernels the same as `Prefer`.
    Touched,
}

/// What the kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Reserved huge pages (`MAP_HUGETLB`).
    Huge,
    /// Ordinary mapping with `MADV_HUGEPAGE` accepted.
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

/// The region cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {bytes} bytes: {source}")]
pub struct Error {
    /// The size asked for.
    pub bytes: usize,
    /// The kernel's answer.
    pub source: rustix::io::Errno,
}

impl Error {
    /// Memory of somebody else, which is not what it was said to be.
    pub fn foreign(bytes: usize) -> Error {
        Error { bytes, source: rustix::io::Errno::INVAL }
    }

    /// More than can be addressed.
    pub fn too_large(bytes: usize) -> Error {
        Error { bytes, source: rustix::io::Errno::NOMEM }
    }
}

/// A mapping of its own, aligned to 2 MiB when larger than that, else to a page. Zeroed when it was made.
#[derive(Debug)]
pub struct Region {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) mapped: usize,
    pub(super) backing: Backing,
    /// By which it can be mapped again, if there is one.
    pub(super) descriptor: Option<OwnedFd>,
}

// SAFETY: a `Region` is only an address range; it owns the mapping and hands out no references.
unsafe impl Send for Region {}
// SAFETY: as above; every method takes `&self` and reads plain fields.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `bytes` zeroed bytes. Untouched pages cost no memory unless they are reserved huge pages.
    pub fn new(bytes: usize, pages: HugePages) -> Result<Region, Error> {
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

    /// Touches the pages of some bytes, so that whoever uses them first meets no page fault: `MADV_POPULATE_WRITE` (Linux 5.14; on
    /// older kernels nothing happens). What lies outside the region is left out.
    pub fn touch(&self, bytes: Range<usize>) {
        let (from, to) = (bytes.start / PAGE * PAGE, bytes.end.min(self.mapped));
        if from < to {
            // SAFETY: populating a part of our own mapping, from a page's first byte on, changes no contents.
            let _ = unsafe { madvise(self.base().add(from).cast(), to - from, Advice::LinuxPopulateWrite) };
        }
    }

    fn reserved(bytes: usize) -> rustix::io::Result<Region> {
        let mapped = bytes.next_multiple_of(HUGE_PAGE);
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let base = NonNull::new(base.cast()).expect("mmap returns no null page");
        Ok(Region { base, bytes, mapped, backing: Backing::Huge, descriptor: None })
    }

    fn ordinary(bytes: usize, transparent: bool) -> Result<Region, Error> {
        let wanted = bytes.max(1).next_multiple_of(PAGE);
        // Over-map by one huge page so that the base can be aligned to one, then give the ends back.
        let slack = if transparent { HUGE_PAGE } else { 0 };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let raw = unsafe { mmap_anonymous(ptr::null_mut(), wanted + slack, protection, flags) }
            .map_err(|source| Error { bytes, source })?;
        let start = raw as usize;
        let aligned = if transparent { start.next_multiple_of(HUGE_PAGE) } else { start };
        let (head, tail) = (aligned - start, start + wanted + slack - (aligned + wanted));
        if head > 0 {
            // SAFETY: the head of the mapping made above, which nobody knows of yet.
            let _ = unsafe { munmap(raw, head) };
        }
        if tail > 0 {
            // SAFETY: the tail of the mapping made above, which nobody knows of yet.
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

    /// First byte; valid for reads and writes of [`len`](Self::len) bytes while the region lives.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Usable bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True for a region of no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What the kernel gave.
    pub fn backing(&self) -> Backing {
        self.backing
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever built on it has been dropped or has given up its pointers.
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

    /// What the kernel gave.
    pub fn backing(&self) -> Backing {
        self.0.backing()
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the region is mapped, zeroed by the kernel, owned by `self` alone and borrowed for as long as the result.
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

/// Asks the processor to bring the line at `address` near, for reading. Any address is allowed; none is dereferenced.
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

/// As [`prefetch_read`], but no nearer than the second-level cache: for one of many lines in a row. Of those that are asked for into the
/// first-level cache a processor forgets what exceeds some twenty under way.
#[inline(always)]
pub fn prefetch_second_level<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(braid_no_prefetch)))]
    // SAFETY: a prefetch never faults and has no architectural effect. Written so that the compiler knows that no memory changes: behind the
    // intrinsic it loads again what it had in registers.
    unsafe {
        std::arch::asm!("prefetcht1 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(braid_no_prefetch))))]
    let _ = address;
}

/// As [`prefetch_read`], but asks for the line in a state in which it can be written (`prefetchw`).
#[inline(always)]
pub fn prefetch_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(braid_no_prefetch)))]
    // SAFETY: a prefetch never faults and has no architectural effect; every x86-64 processor since 2014 has `prefetchw`,
    // and older ones take it for a no-op.
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
        // SAFETY: both ends lie inside the region, which nobody else knows of.
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
        // SAFETY: inside the region, which nobody else knows of.
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
    }

    #[test]
    fn prefetch_of_any_address_is_harmless() {
        prefetch_read(usize::MAX as *const u8);
        prefetch_write(std::ptr::null::<u8>());
    }
}
