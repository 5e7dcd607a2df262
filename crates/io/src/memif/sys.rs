//! Control channel and shared memory of memif, by system calls; rings and buffers in that memory.
//!
//! The other side may write to the shared memory at any time and may be hostile. So it is read as numbers or copied as bytes, never
//! borrowed; indices and offsets found there are compared with what is mapped before they are used; and memory that could shrink
//! under us (a missing seal) is refused, because reading behind its end would be a signal.
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
use crate::device::sys::{self, Mapping, Plain};

/// `struct sockaddr_un` as bytes: family, path, zero.
struct UnixAddress(libc::sockaddr_un, libc::socklen_t);

impl UnixAddress {
    fn new(path: &Path) -> io::Result<UnixAddress> {
        // SAFETY: zeros are a value of it.
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

/// One end of a control channel, or the socket at which others come in.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

// SAFETY: two integers of eight bytes.
unsafe impl Plain for [i64; 2] {}

impl Channel {
    fn new() -> io::Result<Channel> {
        sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0).map(Channel)
    }

    /// Connects to a server.
    pub(super) fn connect(path: &Path) -> io::Result<Channel> {
        let (channel, address) = (Channel::new()?, UnixAddress::new(path)?);
        // SAFETY: address and length belong together.
        sys::check(unsafe { libc::connect(channel.0.as_raw_fd(), ptr::from_ref(&address.0).cast(), address.1) })?;
        Ok(channel)
    }

    /// Listens at a path.
    pub(super) fn listen(path: &Path) -> io::Result<Channel> {
        let (channel, address) = (Channel::new()?, UnixAddress::new(path)?);
        // SAFETY: address and length belong together.
        sys::check(unsafe { libc::bind(channel.0.as_raw_fd(), ptr::from_ref(&address.0).cast(), address.1) })?;
        // SAFETY: no pointers.
        sys::check(unsafe { libc::listen(channel.0.as_raw_fd(), 4) })?;
        Ok(channel)
    }

    /// The next that comes in, within the time of [`Channel::patience`].
    pub(super) fn accept(&self) -> io::Result<Channel> {
        let flags = libc::SOCK_CLOEXEC;
        // SAFETY: no address is asked for.
        let fd = sys::check(unsafe { libc::accept4(self.0.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Channel(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// How long receiving, accepting and sending wait before they return `WouldBlock`.
    pub(super) fn patience(&self, time: Duration) -> io::Result<()> {
        // struct timeval
        let time = [time.as_secs() as i64, i64::from(time.subsec_micros())];
        sys::set_option(&self.0, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
        sys::set_option(&self.0, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)
    }

    /// Sends a message, with a descriptor if one is given.
    pub(super) fn send(&self, message: &Message, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        let mut bytes = message.encode();
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MESSAGE };
        let mut control = Control::default();
        // SAFETY: zeros are an empty header.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
        if let Some(descriptor) = descriptor {
            control.attach(&mut header, descriptor);
        }
        // SAFETY: the header describes `bytes` and `control`, which live.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
        if sent == MESSAGE as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives a message and the descriptor that came with it. `UnexpectedEof` if the other side has gone.
    pub(super) fn receive(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        let mut bytes = [0u8; MESSAGE];
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MESSAGE };
        let mut control = Control::default();
        // SAFETY: zeros are an empty header.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
        control.offer(&mut header);
        // SAFETY: the header describes `bytes` and `control`, which live and may be written to.
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

/// Room for one descriptor beside a message.
#[derive(Default)]
#[repr(C, align(8))]
struct Control([u8; 32]);

impl Control {
    /// Room for exactly one descriptor: a peer that sends several has the others closed by the kernel (`scm_max_fds`, net/core/scm.c).
    fn offer(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.0.as_mut_ptr().cast();
        // SAFETY: no pointers; that is 20 of the 32 bytes.
        header.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as _;
    }

    fn attach(&mut self, header: &mut libc::msghdr, descriptor: &OwnedFd) {
        self.offer(header);
        // SAFETY: no pointers; one descriptor takes 24 of the 32 bytes.
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

    /// The descriptor that came, if one did; there was no room for a second one.
    fn take(&self, header: &libc::msghdr) -> Option<OwnedFd> {
        // SAFETY: the kernel wrote the control messages that the header describes; a descriptor in them is ours alone.
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

/// Memory to share: zeroed, and it cannot shrink any more.
pub(super) fn memory(len: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string with a zero at its end.
    let fd = sys::check(unsafe { libc::memfd_create(c"braid-memif".as_ptr(), flags) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(len as u64)?;
    // SAFETY: no pointers.
    sys::check(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) })?;
    Ok(file.into())
}

/// A counter of events: what a ring's consumer sleeps on.
pub(super) fn events() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = sys::check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Wakes whoever sleeps on the events.
pub(super) fn wake(events: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes that live. If the counter is full, the other side is awake or gone.
    let _ = unsafe { libc::write(events.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Shared memory, mapped.
#[derive(Debug)]
pub(super) struct Region {
    memory: Mapping,
    len: usize,
}

impl Region {
    /// Maps memory that the other side (or we) made. It must have the size that is said, and be sealed against shrinking.
    pub(super) fn map(memory: &OwnedFd, size: u64) -> io::Result<Region> {
        let refused = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
        // SAFETY: no pointers.
        let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(refused("a region that may shrink"));
        }
        let actual = File::from(memory.try_clone()?).metadata()?.len();
        match usize::try_from(size) {
            Ok(len) if len > 0 && size <= actual => Ok(Region { memory: Mapping::new(memory.as_fd(), len, 0)?, len }),
            _ => Err(refused("a region of another size than was said")),
        }
    }

    /// Whether `len` bytes at `offset` lie inside.
    pub(super) fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Appends bytes to `into`; false if they do not lie inside.
    pub(super) fn copy_out(&self, offset: usize, len: usize, into: &mut Vec<u8>) -> bool {
        if !self.holds(offset, len) {
            return false;
        }
        into.reserve(len);
        // SAFETY: the source lies inside the mapping, and the target in memory just reserved; if the other side writes to the
        // source meanwhile, the copy is some mixture of bytes, which is all that is promised.
        unsafe {
            let from = self.memory.at::<u8>(0).add(offset);
            ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(into.len()), len);
            into.set_len(into.len() + len);
        }
        true
    }

    /// Writes bytes; false if they do not fit inside.
    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        if !self.holds(offset, bytes.len()) {
            return false;
        }
        // SAFETY: the target lies inside the mapping, and nobody here borrows it.
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
/// The consumer looks by itself and wants no events.
const MASK_INTERRUPTS: u16 = 1;
/// `memif_ring_t`: flags, head, tail and descriptors behind its beginning, each counter in a cache line of its own.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

/// Where a ring lies in its region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    offset: usize,
    mask: u16,
}

impl Ring {
    /// Bytes of a ring.
    pub(super) fn bytes(log2: u8) -> usize {
        DESCRIPTORS + (size_of::<Descriptor>() << log2)
    }

    /// A ring in a region, if it lies in there as a ring does.
    pub(super) fn at(region: &Region, offset: usize, log2: u8) -> Option<Ring> {
        let fits = log2 < 16 && offset.is_multiple_of(64) && region.holds(offset, Ring::bytes(log2));
        fits.then(|| Ring { offset, mask: ((1u32 << log2) - 1) as u16 })
    }

    /// Writes the beginning of a new ring.
    pub(super) fn begin(self, region: &Region) {
        region.copy_in(self.offset, &COOKIE.to_ne_bytes());
    }

    /// Whether a ring begins here.
    pub(super) fn has_begun(self, region: &Region) -> bool {
        let mut cookie = Vec::with_capacity(4);
        region.copy_out(self.offset, 4, &mut cookie) && cookie == COOKIE.to_ne_bytes()
    }

    pub(super) fn size(self) -> u16 {
        // A ring has at most 2^15 descriptors.
        self.mask + 1
    }

    fn word(self, region: &Region, at: usize) -> &AtomicU16 {
        // SAFETY: inside the region and aligned, as `Ring::at` found; both sides access it as a whole.
        unsafe { AtomicU16::from_ptr(region.memory.at(self.offset + at)) }
    }

    /// The counter of whoever owns the memory, the client. Acquire: descriptors and bytes before it are written, or read. Its
    /// partner is the other side's `set_head`, Release.
    pub(super) fn head(self, region: &Region) -> u16 {
        self.word(region, HEAD).load(Ordering::Acquire)
    }

    pub(super) fn set_head(self, region: &Region, head: u16) {
        self.word(region, HEAD).store(head, Ordering::Release);
    }

    /// The counter of the server; ordered as [`Ring::head`].
    pub(super) fn tail(self, region: &Region) -> u16 {
        self.word(region, TAIL).load(Ordering::Acquire)
    }

    pub(super) fn set_tail(self, region: &Region, tail: u16) {
        self.word(region, TAIL).store(tail, Ordering::Release);
    }

    /// As the consumer: says that no events are wanted.
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
        // SAFETY: inside the ring and aligned; integers only, and volatile because the other side may write to it.
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
        // SAFETY: room for both ends.
        sys::check(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) }).unwrap();
        // SAFETY: the descriptors are new and nobody else's.
        let [here, there] = ends.map(|fd| Channel(unsafe { OwnedFd::from_raw_fd(fd) }));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writers: Vec<OwnedFd> = (0..4).map(|_| writer.try_clone().unwrap().into()).collect();
        let mut bytes = Message::Ack.encode();
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MESSAGE };
        let mut control = Control::default();
        // SAFETY: zeros are an empty header.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
        control.attach(&mut header, &writers[0]);
        header.msg_controllen = control.0.len() as _;
        // SAFETY: the message is the first in room for itself and four descriptors.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_len = libc::CMSG_LEN(4 * size_of::<i32>() as u32) as _;
            for (place, writer) in writers.iter().enumerate() {
                libc::CMSG_DATA(first).cast::<i32>().add(place).write_unaligned(writer.as_raw_fd());
            }
        }
        // SAFETY: the header describes `bytes` and `control`, which live.
        let sent = unsafe { libc::sendmsg(there.0.as_raw_fd(), &header, 0) };
        assert_eq!(sent, MESSAGE as isize);
        let (message, descriptor) = here.receive().unwrap();
        assert!(message == Message::Ack && descriptor.is_some());
        drop((descriptor, writer, writers));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody can write to the pipe any more");
    }
}
