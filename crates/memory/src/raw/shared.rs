//! Memory with a descriptor (`memfd_create(2)`): whoever has the descriptor can map it again, even after another program has
//! replaced this process. It has no name in any file system, so the size of `/dev/shm` does not limit it.
//!
//! Its size is sealed, so no holder of a descriptor can remove pages from under a mapping.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::region::{Backing, Error, HUGE_PAGE, HugePages, PAGE, Region};

/// From include/uapi/asm-generic/mman-common.h, since Linux 6.1: turns small pages into huge ones, immediately and regardless
/// of what `/sys/kernel/mm/transparent_hugepage` says about shared memory.
const MADV_COLLAPSE: libc::c_int = 25;
/// From include/uapi/linux/magic.h.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

impl Region {
    /// Name of the memory of [shared](Self::shared) regions, in the list of a process's descriptors in `/proc`.
    pub const NAME: &str = "braid";

    /// Maps at least `bytes` zeroed bytes with a descriptor. Transparent huge pages are made immediately (Linux 6.1), so the
    /// memory is in use from the start.
    pub fn shared(bytes: usize, pages: HugePages) -> Result<Region, Error> {
        Error::check(bytes)?;
        let large = bytes >= HUGE_PAGE;
        let reserved = match pages {
            HugePages::Prefer | HugePages::Touched if large => Self::made(bytes, MemfdFlags::HUGETLB, pages).ok(),
            _ => None,
        };
        let made = reserved.map_or_else(|| Self::made(bytes, MemfdFlags::empty(), pages), Ok);
        made.map_err(|source| Error { bytes, source })
    }

    /// Maps memory again that [`shared`](Self::shared) made, in this program or its predecessor. Returns an error if it is
    /// anything else or has another size.
    pub fn again(memory: OwnedFd, bytes: usize, pages: HugePages) -> Result<Region, Error> {
        Error::check(bytes)?;
        let failed = |source| Error { bytes, source };
        let is_sealed = fcntl_get_seals(&memory).map_err(failed)?.contains(SealFlags::SHRINK);
        let size = fstat(&memory).map_err(failed)?.st_size as usize;
        if !is_sealed || size != size_of(bytes) {
            return Err(Error::foreign(bytes));
        }
        Self::of(memory, bytes, pages).map_err(failed)
    }

    /// Returns the descriptor; `None` for private memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    fn made(bytes: usize, kind: MemfdFlags, pages: HugePages) -> rustix::io::Result<Region> {
        let size = if kind.contains(MemfdFlags::HUGETLB) { MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let memory = memfd_create(Region::NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind | size)?;
        ftruncate(&memory, size_of(bytes) as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Self::of(memory, bytes, pages)?;
        if bytes >= HUGE_PAGE && pages != HugePages::Never {
            // A collapsed mapping has been seen to show a byte that this process had written into memory it had since given
            // back (once, Linux 6.18 in a virtual machine, cause unknown). Its pages are there already, so zeroes cost little.
            // SAFETY: the region is `mapped` bytes long, and nothing else refers to it yet.
            unsafe { region.base().write_bytes(0, region.mapped) };
        }
        Ok(region)
    }

    fn of(memory: OwnedFd, bytes: usize, pages: HugePages) -> rustix::io::Result<Region> {
        let mapped = size_of(bytes);
        let base = map(&memory, mapped)?;
        let is_huge = fstatfs(&memory).is_ok_and(|system| system.f_type as u64 == HUGETLBFS_MAGIC);
        let mut region = Region { base, bytes, mapped, backing: Backing::Ordinary, descriptor: Some(memory) };
        if is_huge {
            region.backing = Backing::Huge;
        } else if pages != HugePages::Never && bytes >= HUGE_PAGE && region.collapse() {
            region.backing = Backing::Transparent;
        }
        if pages == HugePages::Touched {
            // SAFETY: populating our own mapping changes no contents.
            let _ = unsafe { madvise(region.base().cast(), mapped, Advice::LinuxPopulateWrite) };
        }
        Ok(region)
    }

    /// Turns small pages, which must exist, into huge ones; has no effect on huge pages. Returns whether it succeeded.
    fn collapse(&self) -> bool {
        for advice in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite] {
            // SAFETY: advice on our own mapping changes no contents.
            let _ = unsafe { madvise(self.base().cast(), self.mapped, advice) };
        }
        // SAFETY: as above.
        unsafe { libc::madvise(self.base().cast(), self.mapped, MADV_COLLAPSE) == 0 }
    }
}

/// Returns the size in bytes of the memory behind a region of `bytes` bytes.
fn size_of(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE })
}

/// Maps `bytes` bytes of the memory at an address that is a multiple of a huge page.
fn map(memory: &OwnedFd, bytes: usize) -> rustix::io::Result<NonNull<u8>> {
    let place = bytes + HUGE_PAGE;
    // SAFETY: a new anonymous mapping at an address chosen by the kernel aliases nothing.
    let place_at = unsafe { mmap_anonymous(ptr::null_mut(), place, ProtFlags::empty(), MapFlags::PRIVATE)? };
    let head = (place_at as usize).next_multiple_of(HUGE_PAGE) - place_at as usize;
    // SAFETY: `head` is less than a huge page, so it lies inside the place.
    let base = unsafe { place_at.cast::<u8>().add(head) };
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: this replaces part of the mapping made above, to which nothing refers yet.
    let mapped = unsafe { mmap(base.cast(), bytes, protection, MapFlags::SHARED | MapFlags::FIXED, memory, 0) };
    // SAFETY: this unmaps what is left of that mapping on both sides, or all of it if nothing has replaced it.
    unsafe {
        match mapped {
            Ok(_) if head > 0 => munmap(place_at, head)?,
            Err(_) => munmap(place_at, place)?,
            Ok(_) => {}
        }
        if mapped.is_ok() && head < HUGE_PAGE {
            munmap(base.add(bytes).cast(), HUGE_PAGE - head)?;
        }
    }
    mapped.map(|base| NonNull::new(base.cast()).expect("mmap returns no null page"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: usize, pages: HugePages) {
        let first = Region::shared(bytes, pages).expect("this much memory is there");
        let memory = first.descriptor().expect("it is shared").try_clone_to_owned().expect("a descriptor");
        // SAFETY: the last byte lies inside the region, to which nothing else refers yet.
        unsafe {
            assert_eq!(first.base().add(bytes - 1).read(), 0);
            first.base().add(bytes - 1).write(7);
        }
        let backing = first.backing();
        drop(first);
        let again = Region::again(memory, bytes, pages).expect("it is the same memory");
        // SAFETY: as above, and the first mapping is gone.
        assert_eq!(unsafe { again.base().add(bytes - 1).read() }, 7);
        assert_eq!(again.len(), bytes);
        assert!(backing == Backing::Ordinary || again.backing() == backing);
        assert!(bytes < HUGE_PAGE || (again.base() as usize).is_multiple_of(HUGE_PAGE));
    }

    #[test]
    fn memory_is_there_again_by_its_descriptor() {
        check(1, HugePages::Never);
        check(4097, HugePages::Prefer);
        check((3 << 20) + 5, HugePages::Never);
        check((3 << 20) + 5, HugePages::Prefer);
        check((3 << 20) + 5, HugePages::Touched);
    }

    #[test]
    fn memory_of_another_size_or_without_a_seal_is_refused() {
        let of = |region: &Region| region.descriptor().expect("shared").try_clone_to_owned().expect("a descriptor");
        let region = Region::shared(3 << 20, HugePages::Never).expect("memory");
        assert!(Region::again(of(&region), 5 << 20, HugePages::Never).is_err());
        let open = memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a descriptor");
        ftruncate(&open, 4 << 20).expect("it grows");
        assert!(Region::again(open, 3 << 20, HugePages::Never).is_err());
        assert!(ftruncate(of(&region), 0).is_err(), "nobody takes pages away");
    }
}
