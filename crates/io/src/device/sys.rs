//! System calls that the device back ends share: sockets and their options, interface requests, mappings.
//!
//! The interface is safe: sizes come from the types, pointers from references, and a [`Mapping`] returns only addresses inside itself.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};
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

/// Descriptors that this program leaves open for the next one while something here still owns them.
static LEFT_OPEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Whether a descriptor is open and survives `exec`.
pub(crate) fn outlives_exec(fd: RawFd) -> bool {
    // SAFETY: passes only numbers.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) }).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Leaves a descriptor open for the program that this process executes next. Its owner keeps it, so it cannot be [adopted](adopt) here.
pub(crate) fn leave_open(fd: RawFd) -> io::Result<()> {
    let mut left = LEFT_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    left.push(fd);
    set_descriptor_flags(fd, 0)
}

/// Leaves a file open for the program that this process executes next, and gives up its ownership; returns its number.
pub(crate) fn give_up(file: File) -> io::Result<RawFd> {
    let fd = file.into_raw_fd();
    set_descriptor_flags(fd, 0).map(|()| fd)
}

fn set_descriptor_flags(fd: RawFd, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: passes only numbers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, flags) }).map(drop)
}

/// Takes ownership of the descriptor that the previous program in this process left open under this number. `None` for standard
/// input, output and error, for a descriptor that does not survive `exec` (one that has been adopted does not), and for one that
/// this program [leaves open](leave_open).
///
/// # Safety
/// If the descriptor survives `exec`, then because the previous program left it, or because this one left it open or gave it up. The
/// callers know that from its kind: this program opens descriptors of that kind only so that `exec` closes them.
pub(crate) unsafe fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // Held until the descriptor no longer survives exec, so that two threads cannot both adopt it.
    let left = LEFT_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if fd <= libc::STDERR_FILENO || left.contains(&fd) || !outlives_exec(fd) {
        return None;
    }
    set_descriptor_flags(fd, libc::FD_CLOEXEC).ok()?;
    // SAFETY: the descriptor is open. The caller guarantees that nothing in this program owns it, apart from what it leaves open,
    // which was excluded above. From here on it does not survive exec, so it is not adopted twice.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes ownership of memory with this name (memfd_create(2)), one of those that Braid makes, if the previous program in this process
/// left it open, or this one [gave it up](give_up).
pub(crate) fn adopt_memory(fd: RawFd, name: &str) -> Option<OwnedFd> {
    if listed(fd)? != format!("/memfd:{name} (deleted)") {
        return None;
    }
    // SAFETY: memory of these names is made only by Braid, and closed on exec unless it is left open or given up.
    unsafe { adopt(fd) }
}

/// What a descriptor refers to, as `/proc` lists it. `None` if it is closed or `/proc` is not mounted.
pub(crate) fn listed(fd: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
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

/// Makes an event counter that another process has sent one whose reads and writes do not block here; an error if it is something else, such as
/// a pipe. The other process shares the setting and can undo it.
pub(crate) fn take_events(events: &OwnedFd) -> io::Result<()> {
    // An anonymous inode has no file type (fs/anon_inodes.c).
    let kind = File::from(events.try_clone()?).metadata()?.mode() & libc::S_IFMT;
    if kind != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not an event descriptor"));
    }
    // SAFETY: passes no pointers.
    let flags = check(unsafe { libc::fcntl(events.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: passes no pointers.
    check(unsafe { libc::fcntl(events.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Like [`wake`], for a counter of another process, which may be full and block.
pub(crate) fn wake_other(events: &OwnedFd) {
    if poll_one(events.as_fd(), libc::POLLOUT, 0).is_ok_and(|found| found & libc::POLLOUT != 0) {
        wake(events);
    }
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
    poll_one(fd, events, -1).map(drop)
}

/// Waits for events of a descriptor, `at_most_ms` milliseconds (-1: without end); returns those that have come.
fn poll_one(fd: BorrowedFd<'_>, events: libc::c_short, at_most_ms: i32) -> io::Result<libc::c_short> {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: passes one descriptor that lives during the call.
    check(unsafe { libc::poll(&mut polled, 1, at_most_ms) })?;
    Ok(polled.revents)
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    const NAME: &str = "braid tested";

    fn memory() -> File {
        File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).expect("memory"))
    }

    #[test]
    fn standard_output_is_never_adopted() {
        assert!(outlives_exec(libc::STDOUT_FILENO), "or the test shows nothing");
        // SAFETY: the function refuses the number.
        assert!(unsafe { adopt(libc::STDOUT_FILENO) }.is_none());
        assert!(outlives_exec(libc::STDOUT_FILENO));
    }

    #[test]
    fn memory_that_was_given_up_is_adopted_once() {
        let fd = give_up(memory()).expect("it is open");
        assert!(adopt_memory(fd, "braid").is_none(), "it has another name");
        let own = adopt_memory(fd, NAME).expect("nobody owns it");
        assert_eq!(own.as_raw_fd(), fd);
        assert!(adopt_memory(fd, NAME).is_none(), "it has an owner");
    }

    #[test]
    fn what_is_left_open_keeps_its_owner() {
        let file = memory();
        assert!(adopt_memory(file.as_raw_fd(), NAME).is_none(), "exec would close it");
        leave_open(file.as_raw_fd()).expect("it is open");
        assert!(outlives_exec(file.as_raw_fd()));
        assert!(adopt_memory(file.as_raw_fd(), NAME).is_none());
        // Its number is noted for good; no other test may get it.
        std::mem::forget(file);
    }

    /// As a client may send it: blocking, and at its maximum.
    #[test]
    fn a_full_counter_of_another_process_stops_nobody() {
        // SAFETY: passes no pointers.
        let events = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        let mut counter = File::from(events.try_clone().unwrap());
        counter.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        wake_other(&events);
        take_events(&events).unwrap();
        wake(&events);
        drain(&events);
        drain(&events);
        wake_other(&events);
        counter.read_exact(&mut [0; 8]).unwrap();
    }
}
