//! AF_XDP sockets by system calls (Documentation/networking/af_xdp.rst).
//!
//! Four rings of descriptors connect us with the kernel. Each ring has one producer and one consumer, and each of them has a
//! counter. The side that advances its counter stores it with Release after accessing the entries; the other side loads it with
//! Acquire before accessing them. The kernel does the same (net/xdp/xsk_queue.h).
//!
//! The counters are in the rings' memory, which lives as long as the socket, so a program that maps a ring
//! again continues where the previous one stopped.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use braid_packet::LendableRegion;

use crate::device::sys::{self, Mapping, Plain};

// include/uapi/linux/if_xdp.h
const SOL_XDP: i32 = 283;
const XDP_MMAP_OFFSETS: i32 = 1;
const XDP_RX_RING: i32 = 2;
const XDP_TX_RING: i32 = 3;
const XDP_UMEM_REG: i32 = 4;
const XDP_UMEM_FILL_RING: i32 = 5;
const XDP_UMEM_COMPLETION_RING: i32 = 6;
const XDP_STATISTICS: i32 = 7;
const XDP_OPTIONS: i32 = 8;
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const XDP_UMEM_UNALIGNED_CHUNK_FLAG: u32 = 1;
const XDP_SHARED_UMEM: u16 = 1;
const XDP_COPY: u16 = 1 << 1;
const XDP_ZEROCOPY: u16 = 1 << 2;
const XDP_USE_NEED_WAKEUP: u16 = 1 << 3;
const XDP_RING_NEED_WAKEUP: u32 = 1;
/// In unaligned chunk mode the upper bits of an address are an offset to be added to the lower bits.
const OFFSET_SHIFT: u32 = 48;
// include/uapi/asm-generic/socket.h
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Maximum number of packets handled by one busy poll.
const BUSY_POLL_BUDGET: i32 = 64;

// include/uapi/linux/bpf.h
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Number of entries of the rings through which a queue sends: the send ring and the completion ring; a power of two.
pub(super) const SEND_RING: u32 = 2048;

/// `struct xdp_desc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    address: u64,
    len: u32,
    options: u32,
}

impl Descriptor {
    pub(super) fn new(at: u64, len: usize) -> Descriptor {
        Descriptor { address: at, len: len as u32, options: 0 }
    }

    /// Offset in the region of its first byte.
    pub(super) fn at(self) -> u64 {
        (self.address & ((1 << OFFSET_SHIFT) - 1)) + (self.address >> OFFSET_SHIFT)
    }

    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

/// Which counter of a ring is ours.
enum Side {
    Producer,
    Consumer,
}

/// One ring with entries `T`, of which we are the producer or the consumer.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: Mapping,
    /// Number of entries; a power of two.
    size: u32,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    /// Our own counter; the ring's memory holds its last published value.
    own: u32,
    /// The other side's counter as last read.
    other: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries; `offsets` are those of producer, consumer, entries and flags.
    fn map(socket: &OwnedFd, page_offset: u64, offsets: &[u64], side: Side, size: u32) -> io::Result<Ring<T>> {
        let [producer, consumer, entries, flags] = [0, 1, 2, 3].map(|i| offsets[i] as usize);
        let memory = Mapping::new(socket.as_fd(), entries + size as usize * size_of::<T>(), page_offset)?;
        let mut ring = Ring {
            memory,
            size,
            producer,
            consumer,
            flags,
            entries,
            own: 0,
            other: 0,
            entry: std::marker::PhantomData,
        };
        // Relaxed: only we advance this counter, or the previous program, which has ended. The other counter is loaded before it is
        // used: a consumer that knows of no entry loads it, and so does a producer that asks for room.
        ring.own = ring.word(if let Side::Producer = side { producer } else { consumer }).load(Ordering::Relaxed);
        ring.other = ring.own;
        Ok(ring)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the word lies inside the mapping and is aligned (`Mapping::at` asserts both); the kernel reads and writes it as a whole.
        unsafe { AtomicU32::from_ptr(self.memory.at(offset)) }
    }

    fn place(&self, number: u32) -> *mut T {
        self.memory.at(self.entries + (number & (self.size - 1)) as usize * size_of::<T>())
    }

    /// Whether the kernel needs a system call before it looks at this ring again.
    pub(super) fn needs_wakeup(&self) -> bool {
        // Relaxed: a stale value only costs one more check.
        self.word(self.flags).load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }

    /// Number of entries, used or not.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// As the producer: number of entries that can be added.
    pub(super) fn room(&mut self) -> u32 {
        // Acquire: the kernel has finished reading the consumed entries. Pairs with `__xskq_cons_release`.
        self.other = self.word(self.consumer).load(Ordering::Acquire);
        self.size - self.own.wrapping_sub(self.other)
    }

    /// As the producer: adds an entry, for which there must be room. [`Ring::publish`] publishes it.
    pub(super) fn put(&mut self, entry: T) {
        debug_assert!(self.own.wrapping_sub(self.other) < self.size);
        // SAFETY: this entry of the ring has been consumed by the kernel, which does not access it before it is published.
        unsafe { self.place(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// As the producer: publishes the added entries.
    pub(super) fn publish(&self) {
        // Release: the entries are written before the kernel sees the counter. Pairs with `__xskq_cons_peek`.
        self.word(self.producer).store(self.own, Ordering::Release);
    }

    /// As the producer: number of entries that the kernel has not taken yet.
    pub(super) fn waiting(&mut self) -> u32 {
        self.size - self.room()
    }

    /// As the producer: the entry with this number, below [`waiting`](Self::waiting), among those that the kernel had not taken yet.
    pub(super) fn waits_at(&self, number: u32) -> T {
        assert!(number < self.own.wrapping_sub(self.other), "it was put");
        // SAFETY: the entry lies inside the mapping. We have written it, and the kernel only reads it; we overwrite it in `put` only.
        unsafe { self.place(self.other.wrapping_add(number)).read() }
    }

    /// As the consumer: whether an entry is available.
    pub(super) fn has_more(&self) -> bool {
        // Relaxed: no data is read based on this value; `take` checks again.
        self.own != self.word(self.producer).load(Ordering::Relaxed)
    }

    /// As the consumer: takes the next entry, if there is one. The kernel may reuse it after [`Ring::release`].
    pub(super) fn take(&mut self) -> Option<T> {
        if self.own == self.other {
            // Acquire: the entries before this counter are completely written. Pairs with `__xskq_prod_submit`.
            self.other = self.word(self.producer).load(Ordering::Acquire);
            if self.own == self.other {
                return None;
            }
        }
        // SAFETY: this entry of the ring has been published by the kernel, which does not change it before it is released; every
        // bit pattern of a descriptor and of an address is a valid value.
        let entry = unsafe { self.place(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// As the consumer: returns the taken entries.
    pub(super) fn release(&self) {
        // Release: the entries are read before the kernel writes to them again. Pairs with `xskq_prod_is_full`.
        self.word(self.consumer).store(self.own, Ordering::Release);
    }
}

/// The four rings of a socket.
pub(super) struct Rings {
    pub(super) fill: Ring<u64>,
    pub(super) receive: Ring<Descriptor>,
    pub(super) send: Ring<Descriptor>,
    pub(super) completed: Ring<u64>,
}

/// `struct sockaddr_xdp`.
#[repr(C)]
struct XdpAddress {
    family: u16,
    flags: u16,
    interface: u32,
    queue: u32,
    shared_umem: u32,
}
// SAFETY: consists of integers without padding: 2 + 2 + 4 + 4 + 4 = 16 bytes.
unsafe impl Plain for XdpAddress {}

/// A socket of one queue of an interface.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Socket {
    /// Opens an unbound socket.
    pub(super) fn new() -> io::Result<Socket> {
        sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map(Socket)
    }

    /// Registers the memory that all sockets of a run share. The stride of its buffers is no power of two.
    pub(super) fn register(&self, region: &LendableRegion) -> io::Result<()> {
        // struct xdp_umem_reg: address, length, chunk size and headroom, flags and metadata
        let [chunk, flags] = [region.buffer as u64, u64::from(XDP_UMEM_UNALIGNED_CHUNK_FLAG)];
        let words = [region.address as u64, region.len as u64, chunk, flags];
        sys::set_option(&self.0, SOL_XDP, XDP_UMEM_REG, &words)
    }

    /// Takes ownership of the socket that the previous program in this process left open under this number.
    pub(super) fn adopt(fd: RawFd) -> Option<Socket> {
        // This query fails on anything but an AF_XDP socket.
        sys::option(&fd, SOL_XDP, XDP_OPTIONS, 0u32).ok()?;
        // SAFETY: `sys::socket` opens all AF_XDP sockets of this program, and exec closes them unless they are left open.
        unsafe { sys::adopt(fd) }.map(Socket)
    }

    /// Sets the sizes of all rings, for the first socket of a queue: `ring` is that of the receive ring and the fill ring.
    pub(super) fn size_rings(&self, ring: u32) -> io::Result<()> {
        self.size(&[XDP_UMEM_FILL_RING, XDP_RX_RING], ring)?;
        self.size(&[XDP_UMEM_COMPLETION_RING, XDP_TX_RING], SEND_RING)
    }

    /// Sets the size of the receive ring only, for a socket that shares all other rings with the first one of its queue.
    pub(super) fn size_receive_ring(&self, ring: u32) -> io::Result<()> {
        self.size(&[XDP_RX_RING], ring)
    }

    fn size(&self, rings: &[i32], entries: u32) -> io::Result<()> {
        rings.iter().try_for_each(|&ring| sys::set_option(&self.0, SOL_XDP, ring, &entries))
    }

    /// Maps the rings, sized with the same `ring`, in their current state. For a socket that is already bound this requires Linux 6.4.
    pub(super) fn rings(&self, ring: u32) -> io::Result<Rings> {
        let offsets = self.offsets()?;
        Ok(Rings {
            receive: Ring::map(&self.0, 0, &offsets[0..4], Side::Consumer, ring)?,
            send: Ring::map(&self.0, 0x8000_0000, &offsets[4..8], Side::Producer, SEND_RING)?,
            fill: Ring::map(&self.0, 0x1_0000_0000, &offsets[8..12], Side::Producer, ring)?,
            completed: Ring::map(&self.0, 0x1_8000_0000, &offsets[12..16], Side::Consumer, SEND_RING)?,
        })
    }

    /// Maps the receive ring only.
    pub(super) fn receive_ring(&self, ring: u32) -> io::Result<Ring<Descriptor>> {
        Ring::map(&self.0, 0, &self.offsets()?[0..4], Side::Consumer, ring)
    }

    /// `struct xdp_mmap_offsets`: four words each for the receive, send, fill and completion ring.
    fn offsets(&self) -> io::Result<[u64; 16]> {
        sys::option(&self.0, SOL_XDP, XDP_MMAP_OFFSETS, [0u64; 16])
    }

    /// Binds the socket to a queue. `first` is the socket with the registered memory, if that is another
    /// one; that socket also determines whether frames are copied.
    pub(super) fn bind(&self, interface: u32, queue: u32, first: Option<&Socket>, zero_copy: bool) -> io::Result<()> {
        let copy = if zero_copy { XDP_ZEROCOPY } else { XDP_COPY };
        let (flags, shared_umem) = match first {
            Some(first) => (XDP_SHARED_UMEM, first.0.as_raw_fd() as u32),
            None => (copy | XDP_USE_NEED_WAKEUP, 0),
        };
        let family = libc::AF_XDP as u16;
        sys::bind(&self.0, &XdpAddress { family, flags, interface, queue, shared_umem })?;
        // Ignore an error: kernels before 6.17 always send 32 packets per call, and are called more often.
        let _ = sys::set_option(&self.0, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &(SEND_RING / 2));
        Ok(())
    }

    /// Whether the driver works directly on our memory.
    pub(super) fn is_zero_copy(&self) -> bool {
        sys::option(&self.0, SOL_XDP, XDP_OPTIONS, 0u32).is_ok_and(|options| options & 1 != 0)
    }

    /// Makes our system calls busy-poll the device for this time.
    pub(super) fn busy_poll(&self, microseconds: u32) -> io::Result<()> {
        let set = |name, value: i32| sys::set_option(&self.0, libc::SOL_SOCKET, name, &value);
        set(SO_PREFER_BUSY_POLL, 1)?;
        set(libc::SO_BUSY_POLL, microseconds as i32)?;
        set(SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET)
    }

    /// Number of frames dropped because there were no buffers or no room in the receive ring, and of frames that fit into no buffer.
    pub(super) fn missed(&self) -> u64 {
        // struct xdp_statistics: dropped, invalid descriptors (receive, send), receive ring full, fill ring empty, send ring empty
        sys::option(&self.0, SOL_XDP, XDP_STATISTICS, [0u64; 6]).map_or(0, |words| words[0] + words[3])
    }

    /// Makes the kernel check the fill ring, or poll the device.
    pub(super) fn wake_receive(&self) {
        // SAFETY: requests no bytes. The result does not matter, because the next receive checks again.
        let _ = unsafe { libc::recv(self.0.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }

    /// Makes the kernel send what is in the send ring, or part of it.
    pub(super) fn wake_send(&self) -> io::Result<()> {
        // SAFETY: this call itself sends no bytes.
        let sent = unsafe { libc::sendto(self.0.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        sys::check(sent as i32).map(drop)
    }
}

/// The attachment of a program to an interface (`struct bpf_link`); the kernel detaches the program with the last descriptor of the link.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Link {
    /// Attaches a program in the driver or in the kernel's network stack.
    pub(super) fn new(program: BorrowedFd<'_>, interface: u32, is_native: bool) -> io::Result<Link> {
        let flags = if is_native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
        let fd = bpf(BPF_LINK_CREATE, [program.as_raw_fd() as u32, interface, BPF_XDP, flags])?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Link(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes ownership of the link that the previous program in this process left open under this number.
    pub(super) fn adopt(fd: RawFd) -> Option<Link> {
        if sys::listed(fd)? != Path::new("anon_inode:bpf_link") {
            return None;
        }
        // SAFETY: the kernel makes links that exec closes (bpf_link_prime() in kernel/bpf/syscall.c), unless they are left open.
        unsafe { sys::adopt(fd) }.map(Link)
    }

    /// Atomically replaces the attached program with another one, between two packets.
    pub(super) fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        bpf(BPF_LINK_UPDATE, [self.as_raw_fd() as u32, program.as_raw_fd() as u32, 0, 0]).map(drop)
    }
}

/// Calls bpf(2) with the first words of its `union bpf_attr`; only for commands that read numbers from there.
fn bpf(command: libc::c_int, words: [u32; 4]) -> io::Result<libc::c_int> {
    let mut attributes = [0u32; 16];
    attributes[..4].copy_from_slice(&words);
    let (pointer, size) = (attributes.as_ptr(), size_of_val(&attributes));
    // SAFETY: pointer and size describe `attributes`, which the kernel only reads for these commands.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size) };
    sys::check(result as libc::c_int)
}
