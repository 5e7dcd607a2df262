//! System calls that the device back ends share: sockets and their options, interface requests, mappings.
//!
//! The interface is safe: sizes come from the types, pointers from references, and a [`Mapping`] returns only addresses inside itself.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

/// The result of a system call, or `errno` if it failed.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Drops all supplementary groups and all capabilities, and switches to another user irrevocably, in every thread (the C library
/// takes care of that, setuid(2)). Whoever is not root but has the capabilities to do this becomes root in between: the kernel takes
/// capabilities away only from what was root (capabilities(7)).
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: passes only numbers; with a count of zero, the null pointer is not read.
    check(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: passes only numbers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    if !rustix::process::getuid().is_root() {
        // SAFETY: passes only numbers.
        check(unsafe { libc::setresuid(0, 0, 0) })?;
    }
    // SAFETY: passes only numbers.
    check(unsafe { libc::setresuid(uid, uid, uid) })?;
    // The security bits may be set so that a change of user leaves capabilities alone.
    match rustix::thread::capabilities(None)?.permitted {
        none if none.is_empty() => Ok(()),
        some => Err(io::Error::other(format!("the capabilities {some:?} would remain"))),
    }
}

/// Blocks or unblocks signals in this thread and those that it starts from now on. A mask and the signals that wait survive `exec`.
pub(crate) fn mask(signals: &[i32], is_blocked: bool) -> io::Result<()> {
    // SAFETY: all zeros is a valid value, and sigemptyset initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: passes a set that lives during the call.
    check(unsafe { libc::sigemptyset(&mut set) })?;
    for &signal in signals {
        // SAFETY: as above.
        check(unsafe { libc::sigaddset(&mut set, signal) })?;
    }
    let how = if is_blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: passes an initialised set that lives during the call; the former mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &set, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Whether a descriptor is open and survives `exec`.
pub(crate) fn outlives_exec(fd: RawFd) -> bool {
    // SAFETY: passes only numbers.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) }).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Sets whether a descriptor survives `exec`.
pub(crate) fn set_outlives_exec(fd: RawFd, is_wanted: bool) -> io::Result<()> {
    // SAFETY: passes only numbers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, if is_wanted { 0 } else { libc::FD_CLOEXEC }) }).map(drop)
}

/// Takes ownership of the descriptor that the previous program in this process left open under this number; a second call returns `None`.
pub(crate) fn adopt(fd: RawFd) -> Option<OwnedFd> {
    if !outlives_exec(fd) {
        return None;
    }
    set_outlives_exec(fd, false).ok()?;
    // SAFETY: the previous program left the descriptor for us, since it survives exec and none of our own descriptors does. From
    // here on it does not survive exec either, so nobody adopts it twice.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain data that the kernel may read or write as a whole: integers and `repr(C)` structures of integers.
///
/// # Safety
/// Every bit pattern is a valid value, and there is no padding.
pub(crate) unsafe trait Plain: Sized {}

// SAFETY: integers have neither padding nor invalid values.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u64; N] {}

/// Opens a socket that is closed on exec.
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: passes no pointers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option.
pub(crate) fn set_option<T: Plain>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(value).cast(), len) }).map(drop)
}

/// Reads a socket option; bytes that an older kernel does not fill keep their value.
pub(crate) fn option<T: Plain>(fd: &impl AsRawFd, level: i32, name: i32, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, for which every bit pattern is valid.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T: Plain>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(address).cast(), len) }).map(drop)
}

/// Makes an event counter, on which a thread sleeps until another one adds to it (eventfd(2)); reads and writes do not block.
pub(crate) fn events() -> io::Result<OwnedFd> {
    // SAFETY: passes no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Wakes whoever sleeps on the events.
pub(crate) fn wake(events: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: passes eight bytes that live during the call. If the counter is full, the other side is awake or gone.
    let _ = unsafe { libc::write(events.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Resets an event counter made by [`events`].
pub(crate) fn drain(events: &OwnedFd) {
    let mut count = [0; 8];
    // SAFETY: passes eight bytes that live during the call. An error means that the counter is zero already.
    let _ = unsafe { libc::read(events.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// What [`poll`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    /// Number of descriptors that are readable or in error.
    pub(crate) ready: usize,
    /// Whether the last descriptor is readable.
    pub(crate) last_is_readable: bool,
    /// Whether one of them is in error; a socket's error is cleared.
    pub(crate) has_failed: bool,
}

/// Waits until a descriptor is readable or in error, or `at_most` has passed (ppoll(2)). A signal ends the wait with an error.
pub(crate) fn poll(descriptors: &[RawFd], at_most: Duration) -> io::Result<Polled> {
    let mut polled: Vec<_> =
        descriptors.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let time = libc::timespec { tv_sec: at_most.as_secs() as _, tv_nsec: at_most.subsec_nanos() as _ };
    // SAFETY: pointer and length describe `polled`, and the time lives during the call; without a mask, signals stay as they are.
    let ready = check(unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as _, &time, ptr::null()) })?;
    let mut failed = polled.iter().filter(|one| one.revents & !libc::POLLIN != 0).peekable();
    let has_failed = failed.peek().is_some();
    // An interface that went down leaves an error on its socket, which is reported until somebody reads it. Other descriptors have none.
    failed.for_each(|one| drop(option(&one.fd, libc::SOL_SOCKET, libc::SO_ERROR, 0i32)));
    let last_is_readable = polled.last().is_some_and(|last| last.revents & libc::POLLIN != 0);
    Ok(Polled { ready: ready as usize, last_is_readable, has_failed })
}

/// Waits until a read does not block: there is something to read, the end, or an error.
pub(crate) fn until_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    until(fd, libc::POLLIN)
}

/// Waits until a write does not block: there is room, or an error.
pub(crate) fn until_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    until(fd, libc::POLLOUT)
}

fn until(fd: BorrowedFd<'_>, events: libc::c_short) -> io::Result<()> {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: passes one descriptor that lives during the call.
    check(unsafe { libc::poll(&mut polled, 1, -1) }).map(drop)
}

/// A shared mapping of a descriptor; it is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is only an address range; code that reads and writes through it justifies each access.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` on, readable and writable, and has all of their pages allocated.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::with(fd, len, offset, libc::MAP_POPULATE)
    }

    /// Maps memory that another program provides, which may be sparse: its pages are allocated only when they are used.
    pub(crate) fn of_another(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::with(fd, len, 0, 0)
    }

    fn with(fd: BorrowedFd<'_>, len: usize, offset: u64, flags: libc::c_int) -> io::Result<Mapping> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | flags);
        // SAFETY: a new mapping at an address chosen by the kernel does not alias any of our memory.
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
    /// If the `T` does not lie inside the mapping, or is not aligned.
    #[inline]
    pub(crate) fn at<T>(&self, offset: usize) -> *mut T {
        assert!(
            offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len)
                && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: the range lies inside the mapping, as asserted above.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and users of its addresses hold no references any more.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// `struct ifreq` of include/uapi/linux/if.h: a name and a union of 24 bytes.
#[repr(C, align(8))]
pub(crate) struct InterfaceRequest {
    name: [u8; 16],
    value: [u8; 24],
}

impl InterfaceRequest {
    /// Makes a request about the interface with this name, with the first bytes of the union.
    pub(crate) fn new(name: &str, first: [u8; 4]) -> io::Result<InterfaceRequest> {
        let mut request = InterfaceRequest { name: [0; 16], value: [0; 24] };
        if name.is_empty() || name.len() >= request.name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no interface can be named `{name}`")));
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request.value[..4].copy_from_slice(&first);
        Ok(request)
    }

    /// Sends the request to a socket or device; returns the first bytes of the union. Only for requests whose union holds numbers.
    pub(crate) fn send(self, fd: RawFd, request: libc::c_ulong) -> io::Result<[u8; 4]> {
        let [a, b, c, d, ..] = self.union(fd, request)?;
        Ok([a, b, c, d])
    }

    /// Like [`send`](Self::send); returns the whole union.
    pub(crate) fn union(mut self, fd: RawFd, request: libc::c_ulong) -> io::Result<[u8; 24]> {
        // SAFETY: the request takes an ifreq, which `self` is (40 bytes), and its union holds no pointer.
        check(unsafe { libc::ioctl(fd, request as _, ptr::from_mut(&mut self)) })?;
        Ok(self.value)
    }

    /// Sends the request; returns the name that the kernel filled in.
    pub(crate) fn name(mut self, fd: RawFd, request: libc::c_ulong) -> io::Result<String> {
        // SAFETY: the request fills an ifreq, which `self` is (40 bytes).
        check(unsafe { libc::ioctl(fd, request as _, ptr::from_mut(&mut self)) })?;
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        Ok(String::from_utf8_lossy(&self.name[..len]).into_owned())
    }

    /// Sends `SIOCETHTOOL` with a structure that the kernel fills.
    pub(crate) fn ethtool<T: Plain>(mut self, fd: RawFd, structure: &mut T) -> io::Result<()> {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        let address = ptr::from_mut(structure) as usize;
        self.value[..size_of::<usize>()].copy_from_slice(&address.to_ne_bytes());
        // SAFETY: the union holds a pointer to `structure`, which lives until the call returns and has the size that its first
        // word, the command, implies; every bit pattern of it is valid.
        check(unsafe { libc::ioctl(fd, SIOCETHTOOL as _, ptr::from_mut(&mut self)) }).map(drop)
    }
}
