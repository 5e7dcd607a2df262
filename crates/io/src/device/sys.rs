//! The system calls that device back ends share: sockets with options, requests about interfaces, mappings.
//!
//! Safe to call: sizes come from the types, pointers from references, and a [`Mapping`] hands out addresses inside itself only.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

/// The result of a system call, with `errno` if it failed.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Leaves all groups and becomes another user, in every thread (the C library sees to that, setuid(2)), with no way back.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: numbers only; no groups are read from the null pointer.
    check(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: numbers only.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: numbers only.
    check(unsafe { libc::setresuid(uid, uid, uid) }).map(drop)
}

/// Whether a descriptor is open and stays so when this process becomes another program.
pub(crate) fn outlives_exec(fd: RawFd) -> bool {
    // SAFETY: numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) }).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Has a descriptor stay open, or not, when this process becomes another program.
pub(crate) fn set_outlives_exec(fd: RawFd, is_wanted: bool) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, if is_wanted { 0 } else { libc::FD_CLOEXEC }) }).map(drop)
}

/// The descriptor that the program before this one in the process left open under that number; asked again, there is none.
pub(crate) fn adopt(fd: RawFd) -> Option<OwnedFd> {
    if !outlives_exec(fd) {
        return None;
    }
    set_outlives_exec(fd, false).ok()?;
    // SAFETY: the program before left it for us, since it outlives exec, which no descriptor of ours does; and from here on it does
    // not, so that nobody adopts it twice.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain bytes that the kernel may read or write as a whole: integers and `repr(C)` structures of them.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub(crate) unsafe trait Plain: Sized {}

// SAFETY: integers have neither padding nor forbidden values.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u64; N] {}

/// A socket, closed on exec.
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option.
pub(crate) fn set_option<T: Plain>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(value).cast(), len) }).map(drop)
}

/// Reads a socket option; what an older kernel does not fill stays as it was.
pub(crate) fn option<T: Plain>(fd: &impl AsRawFd, level: i32, name: i32, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, of which every bit pattern is valid.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T: Plain>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(address).cast(), len) }).map(drop)
}

/// A shared mapping of a descriptor, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range; whoever reads and writes through it states why that is right.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` on, to read and write.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset as libc::off_t) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Mapping { base, len })
    }

    /// Address of a `T` at `offset`.
    ///
    /// # Panics
    /// If it does not lie inside, or is not aligned.
    #[inline]
    pub(crate) fn at<T>(&self, offset: usize) -> *mut T {
        assert!(
            offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len)
                && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and who used its addresses holds no reference any more.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// `struct ifreq` of include/uapi/linux/if.h: a name, and a union of 24 bytes.
#[repr(C, align(8))]
pub(crate) struct InterfaceRequest {
    name: [u8; 16],
    value: [u8; 24],
}

impl InterfaceRequest {
    /// A request about the interface of that name, with the first bytes of the union.
    pub(crate) fn new(name: &str, first: [u8; 4]) -> io::Result<InterfaceRequest> {
        let mut request = InterfaceRequest { name: [0; 16], value: [0; 24] };
        if name.is_empty() || name.len() >= request.name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no interface can be named `{name}`")));
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request.value[..4].copy_from_slice(&first);
        Ok(request)
    }

    /// Sends it to a socket or device; the first bytes of the union come back. Only requests whose union holds numbers.
    pub(crate) fn send(mut self, fd: RawFd, request: libc::c_ulong) -> io::Result<[u8; 4]> {
        // SAFETY: the request takes an ifreq, which this is, 40 bytes long, and its union holds no pointer.
        check(unsafe { libc::ioctl(fd, request as _, ptr::from_mut(&mut self)) })?;
        Ok([self.value[0], self.value[1], self.value[2], self.value[3]])
    }

    /// Sends it, and the name comes back.
    pub(crate) fn name(mut self, fd: RawFd, request: libc::c_ulong) -> io::Result<String> {
        // SAFETY: the request fills an ifreq, which this is, 40 bytes long.
        check(unsafe { libc::ioctl(fd, request as _, ptr::from_mut(&mut self)) })?;
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        Ok(String::from_utf8_lossy(&self.name[..len]).into_owned())
    }

    /// Sends `SIOCETHTOOL` with a structure that the kernel fills.
    pub(crate) fn ethtool<T: Plain>(mut self, fd: RawFd, structure: &mut T) -> io::Result<()> {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        let address = ptr::from_mut(structure) as usize;
        self.value[..size_of::<usize>()].copy_from_slice(&address.to_ne_bytes());
        // SAFETY: the union holds a pointer to `structure`, which lives until the call returns and has the size that its
        // first word, the command, stands for; every bit pattern of it is valid.
        check(unsafe { libc::ioctl(fd, SIOCETHTOOL as _, ptr::from_mut(&mut self)) }).map(drop)
    }
}
