//! The control channel and the shared memory of memif by system calls, and the rings and buffers in that memory.
//!
//! The other side may write to the shared memory at any time and may be hostile. Therefore the memory is read as numbers or copied
//! as bytes, but never borrowed; indices and offsets found there are compared with what is mapped before they are used; and memory
//! that could shrink (because a seal is missing) is refused, since an access beyond its end would raise a signal.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::message::{MESSAGE, Message};
use crate::again;
use crate::device::sys::{self, Mapping, Plain};

/// `struct sockaddr_un` with its length: family, path, zero.
struct UnixAddress(libc::sockaddr_un, libc::socklen_t);

impl UnixAddress {
    fn new(path: &Path) -> io::Result<UnixAddress> {
        // SAFETY: all zeros is a valid value.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
            let what = format!("the path of a socket has at most {} bytes", address.sun_path.len() - 1);
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = *byte as libc::c_char;
        }
        let len = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        Ok(UnixAddress(address, len as libc::socklen_t))
    }
}

/// One end of a control channel, or a listening socket.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

// SAFETY: two integers of eight bytes, without padding.
unsafe impl Plain for [i64; 2] {}

impl Channel {
    fn new() -> io::Result<Channel> {
        sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0).map(Channel)
    }

    /// Connects to a server.
    pub(super) fn connect(path: &Path) -> io::Result<Channel> {
        let (channel, address) = (Channel::new()?, UnixAddress::new(path)?);
        // SAFETY: passes an address with its length.
        sys::check(unsafe { libc::connect(channel.0.as_raw_fd(), ptr::from_ref(&address.0).cast(), address.1) })?;
        Ok(channel)
    }

    /// Listens at a path.
    pub(super) fn listen(path: &Path) -> io::Result<Channel> {
        let (channel, address) = (Channel::new()?, UnixAddress::new(path)?);
        // SAFETY: passes an address with its length.
        sys::check(unsafe { libc::bind(channel.0.as_raw_fd(), ptr::from_ref(&address.0).cast(), address.1) })?;
        // SAFETY: passes no pointers.
        sys::check(unsafe { libc::listen(channel.0.as_raw_fd(), 4) })?;
        Ok(channel)
    }

    /// Accepts the next connection, within the time limit set by [`Channel::patience`].
    pub(super) fn accept(&self) -> io::Result<Channel> {
        let flags = libc::SOCK_CLOEXEC;
        // SAFETY: requests no address.
        let accept =
            || sys::check(unsafe { libc::accept4(self.0.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) });
        let fd = again(accept)?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Channel(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets how long receiving, accepting and sending wait before they return `WouldBlock`.
    pub(super) fn patience(&self, time: Duration) -> io::Result<()> {
        // struct timeval
        let time = [time.as_secs() as i64, i64::from(time.subsec_micros())];
        sys::set_option(&self.0, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
        sys::set_option(&self.0, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)
    }

    /// Sends a message, with a descriptor if one is given.
    pub(super) fn send(&self, message: &Message, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        again(|| self.send_once(message, descriptor))
    }

    fn send_once(&self, message: &Message, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        let mut bytes = message.encode();
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MESSAGE };
        let mut control = Control::default();
        // SAFETY: all zeros is an empty header.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
        if let Some(descriptor) = descriptor {
            control.attach(&mut header, descriptor);
        }
        // SAFETY: the header describes `bytes` and `control`, which live during the call.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
        if sent == MESSAGE as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives a message and its descriptor, if any. Returns `UnexpectedEof` if the other side has gone.
    pub(super) fn receive(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        again(|| self.receive_once())
    }

    fn receive_once(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        let mut bytes = [0u8; MESSAGE];
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MESSAGE };
        let mut control = Control::default();
        // SAFETY: all zeros is an empty header.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
        control.offer(&mut header);
        // SAFETY: the header describes `bytes` and `control`, which live during the call and may be written to.
        let received = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        let descriptor = if received >= 0 { control.take(&header) } else { None };
        match received {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            len if len == MESSAGE as isize => Ok((Message::decode(&bytes), descriptor)),
            len if len > 0 => Err(io::Error::new(ErrorKind::InvalidData, "a message has 128 bytes")),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Ancillary data of a message, with room for one descriptor.
#[derive(Default)]
#[repr(C, align(8))]
struct Control([u8; 32]);

impl Control {
    /// Offers room for exactly one descriptor: if a peer sends several, the kernel closes the others (`scm_max_fds`, net/core/scm.c).
    fn offer(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.0.as_mut_ptr().cast();
        // SAFETY: passes no pointers; the result is 20 of the 32 bytes.
        header.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as _;
    }

    fn attach(&mut self, header: &mut libc::msghdr, descriptor: &OwnedFd) {
        self.offer(header);
        // SAFETY: passes no pointers; one descriptor takes 24 of the 32 bytes.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as _;
        // SAFETY: the header has room for one control message, to which the macros point.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
            libc::CMSG_DATA(first).cast::<i32>().write_unaligned(descriptor.as_raw_fd());
        }
    }

    /// The received descriptor, if any; there was no room for a second one.
    fn take(&self, header: &libc::msghdr) -> Option<OwnedFd> {
        // SAFETY: the kernel wrote the control messages that the header describes; a descriptor in them belongs only to us.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(header);
            let is_descriptor = !first.is_null()
                && (*first).cmsg_level == libc::SOL_SOCKET
                && (*first).cmsg_type == libc::SCM_RIGHTS
                && (*first).cmsg_len as usize >= libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            is_descriptor.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<i32>().read_unaligned()))
        }
    }
}

/// Allocates memory to share: zeroed, and sealed against shrinking.
pub(super) fn memory(len: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a zero-terminated string.
    let fd = sys::check(unsafe { libc::memfd_create(c"braid-memif".as_ptr(), flags) })?;
    // SAFETY: the descriptor is new and has no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(len as u64)?;
    // SAFETY: passes no pointers.
    sys::check(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) })?;
    Ok(file.into())
}

/// Mapped shared memory.
#[derive(Debug)]
pub(super) struct Region {
    memory: Mapping,
    len: usize,
}

impl Region {
    /// Maps memory of [`memory`], with all of its pages.
    pub(super) fn own(memory: &OwnedFd, len: usize) -> io::Result<Region> {
        Ok(Region { memory: Mapping::new(memory.as_fd(), len, 0)?, len })
    }

    /// Maps memory that the other side allocated. It must have at least the announced size and be sealed against shrinking. Pages
    /// that the other side has never used stay unallocated, because whoever touches them first pays for them. There is no limit: a
    /// client without copies announces all memory of its packets.
    pub(super) fn map(memory: &OwnedFd, size: u64) -> io::Result<Region> {
        let refused = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
        // SAFETY: passes no pointers.
        let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(refused("a region that may shrink"));
        }
        let actual = File::from(memory.try_clone()?).metadata()?.len();
        match usize::try_from(size) {
            Ok(len) if len > 0 && size <= actual => {
                Ok(Region { memory: Mapping::of_another(memory.as_fd(), len)?, len })
            }
            _ => Err(refused("a region of another size than was said")),
        }
    }

    /// Whether `len` bytes at `offset` lie inside the region.
    pub(super) fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Appends bytes of the region to `into`; false if they do not lie inside the region.
    pub(super) fn copy_out(&self, offset: usize, len: usize, into: &mut Vec<u8>) -> bool {
        if !self.holds(offset, len) {
            return false;
        }
        into.reserve(len);
        // SAFETY: the source lies inside the mapping, and the target in memory reserved above. If the other side writes to the
        // source meanwhile, the copy is an arbitrary mixture of bytes, and no more is promised.
        unsafe {
            let from = self.memory.at::<u8>(0).add(offset);
            ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(into.len()), len);
            into.set_len(into.len() + len);
        }
        true
    }

    /// Writes bytes to the region; false if they do not fit.
    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        if !self.holds(offset, bytes.len()) {
            return false;
        }
        // SAFETY: the target lies inside the mapping, and nobody in this program borrows it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.at::<u8>(0).add(offset), bytes.len()) };
        true
    }
}

/// `memif_desc_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) flags: u16,
    pub(super) region: u16,
    pub(super) len: u32,
    pub(super) offset: u32,
    pub(super) metadata: u32,
}

/// `MEMIF_COOKIE`: the first word of a ring.
const COOKIE: u32 = 0x03E3_1F20;
/// Flag: the consumer polls and needs no events.
const MASK_INTERRUPTS: u16 = 1;
/// Offsets in `memif_ring_t` of flags, head, tail and descriptors; each counter has its own cache line.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

/// The position of a ring in its region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    offset: usize,
    mask: u16,
}

impl Ring {
    /// Size of a ring in bytes.
    pub(super) fn bytes(log2: u8) -> usize {
        DESCRIPTORS + (size_of::<Descriptor>() << log2)
    }

    /// Locates a ring in a region; `None` if it does not fit or is not aligned.
    pub(super) fn at(region: &Region, offset: usize, log2: u8) -> Option<Ring> {
        let fits = log2 < 16 && offset.is_multiple_of(64) && region.holds(offset, Ring::bytes(log2));
        fits.then(|| Ring { offset, mask: ((1u32 << log2) - 1) as u16 })
    }

    /// Writes the cookie of a new ring.
    pub(super) fn begin(self, region: &Region) {
        region.copy_in(self.offset, &COOKIE.to_ne_bytes());
    }

    /// Whether a ring begins here, according to the cookie.
    pub(super) fn has_begun(self, region: &Region) -> bool {
        let mut cookie = Vec::with_capacity(4);
        region.copy_out(self.offset, 4, &mut cookie) && cookie == COOKIE.to_ne_bytes()
    }

    pub(super) fn size(self) -> u16 {
        // A ring has at most 2^15 descriptors, so this does not overflow.
        self.mask + 1
    }

    fn word(self, region: &Region, at: usize) -> &AtomicU16 {
        // SAFETY: inside the region and aligned, as `Ring::at` checked; both sides access it as a whole.
        unsafe { AtomicU16::from_ptr(region.memory.at(self.offset + at)) }
    }

    /// The counter of the client, which owns the memory. Acquire: descriptors and bytes before it are completely written, or read.
    /// Pairs with the Release in the other side's `set_head`.
    pub(super) fn head(self, region: &Region) -> u16 {
        self.word(region, HEAD).load(Ordering::Acquire)
    }

    pub(super) fn set_head(self, region: &Region, head: u16) {
        self.word(region, HEAD).store(head, Ordering::Release);
    }

    /// The counter of the server; ordered like [`Ring::head`].
    pub(super) fn tail(self, region: &Region) -> u16 {
        self.word(region, TAIL).load(Ordering::Acquire)
    }

    pub(super) fn set_tail(self, region: &Region, tail: u16) {
        self.word(region, TAIL).store(tail, Ordering::Release);
    }

    /// As the consumer: declares that no events are needed.
    pub(super) fn want_no_events(self, region: &Region) {
        self.word(region, FLAGS).store(MASK_INTERRUPTS, Ordering::Relaxed);
    }

    /// As the producer: whether the consumer sleeps.
    pub(super) fn wants_events(self, region: &Region) -> bool {
        self.word(region, FLAGS).load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    fn place(self, region: &Region, slot: u16) -> *mut Descriptor {
        let at = self.offset + DESCRIPTORS + usize::from(slot & self.mask) * size_of::<Descriptor>();
        region.memory.at(at)
    }

    pub(super) fn descriptor(self, region: &Region, slot: u16) -> Descriptor {
        // SAFETY: inside the ring and aligned; consists of integers; volatile because the other side may write to it.
        unsafe { self.place(region, slot).read_volatile() }
    }

    pub(super) fn set_descriptor(self, region: &Region, slot: u16, descriptor: Descriptor) {
        // SAFETY: as above.
        unsafe { self.place(region, slot).write_volatile(descriptor) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn of_several_descriptors_with_one_message_none_is_left_open() {
        let mut ends = [0; 2];
        // SAFETY: passes an array with room for both ends.
        sys::check(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) }).unwrap();
        // SAFETY: the descriptors are new and have no other owner.
        let [here, there] = ends.map(|fd| Channel(unsafe { OwnedFd::from_raw_fd(fd) }));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writers: Vec<OwnedFd> = (0..4).map(|_| writer.try_clone().unwrap().into()).collect();
        let mut bytes = Message::Ack.encode();
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MESSAGE };
        let mut control = Control::default();
        // SAFETY: all zeros is an empty header.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
        control.attach(&mut header, &writers[0]);
        header.msg_controllen = control.0.len() as _;
        // SAFETY: the message is the first in a buffer with room for it and four descriptors.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_len = libc::CMSG_LEN(4 * size_of::<i32>() as u32) as _;
            for (place, writer) in writers.iter().enumerate() {
                libc::CMSG_DATA(first).cast::<i32>().add(place).write_unaligned(writer.as_raw_fd());
            }
        }
        // SAFETY: the header describes `bytes` and `control`, which live during the call.
        let sent = unsafe { libc::sendmsg(there.0.as_raw_fd(), &header, 0) };
        assert_eq!(sent, MESSAGE as isize);
        let (message, descriptor) = here.receive().unwrap();
        assert!(message == Message::Ack && descriptor.is_some());
        drop((descriptor, writer, writers));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody can write to the pipe any more");
    }
}
