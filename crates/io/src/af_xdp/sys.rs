//! AF_XDP sockets and the XDP program in front of them, by system calls (Documentation/networking/af_xdp.rst).
//!
//! Four rings of descriptors lie between us and the kernel. Each has one producer and one consumer with a counter each; who
//! moves a counter stores it with Release after the entries, who reads the other's loads it with Acquire before them. The
//! kernel does the same (net/xdp/xsk_queue.h).
//!
//! The program is five instructions: redirect to the socket of the packet's receive queue, else let the packet pass. It is attached
//! by a link, which the kernel takes away with the last descriptor of it, also after `kill -9`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
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
/// Unaligned chunks: the upper bits of an address are an offset to be added to the lower ones.
const OFFSET_SHIFT: u32 = 48;
// include/uapi/asm-generic/socket.h
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Packets that one busy poll handles at most.
const BUSY_POLL_BUDGET: i32 = 64;

/// Entries of each ring; a power of two.
pub(super) const RING: u32 = 2048;

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

    /// Offset of the first byte in the region.
    pub(super) fn at(self) -> u64 {
        (self.address & ((1 << OFFSET_SHIFT) - 1)) + (self.address >> OFFSET_SHIFT)
    }

    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

/// One ring, of which we are the producer or the consumer of entries `T`.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    /// Our own counter; the ring's memory has what has been published of it.
    own: u32,
    /// The other side's counter as it was read last.
    other: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// `offsets` are those of producer, consumer, entries and flags.
    fn map(socket: &OwnedFd, page_offset: u64, offsets: &[u64]) -> io::Result<Ring<T>> {
        let [producer, consumer, entries, flags] = [0, 1, 2, 3].map(|i| offsets[i] as usize);
        let memory = Mapping::new(socket.as_fd(), entries + RING as usize * size_of::<T>(), page_offset)?;
        Ok(Ring { memory, producer, consumer, flags, entries, own: 0, other: 0, entry: std::marker::PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned (`Mapping::at` asserts both); the kernel reads and writes it as a whole.
        unsafe { AtomicU32::from_ptr(self.memory.at(offset)) }
    }

    fn place(&self, number: u32) -> *mut T {
        self.memory.at(self.entries + (number & (RING - 1)) as usize * size_of::<T>())
    }

    /// Whether the kernel waits for a system call before it looks at this ring again.
    pub(super) fn needs_wakeup(&self) -> bool {
        // Relaxed: being late costs one more look.
        self.word(self.flags).load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }

    /// As the producer: entries that can be put in.
    pub(super) fn room(&mut self) -> u32 {
        // Acquire: what the kernel read of an entry, it has read. Its partner is `__xskq_cons_release`.
        self.other = self.word(self.consumer).load(Ordering::Acquire);
        RING - self.own.wrapping_sub(self.other)
    }

    /// As the producer: puts an entry in; there must be room. It is published by [`Ring::publish`].
    pub(super) fn put(&mut self, entry: T) {
        debug_assert!(self.own.wrapping_sub(self.other) < RING);
        // SAFETY: an entry of the ring that the kernel has consumed and does not look at before it is published.
        unsafe { self.place(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// As the producer: hands over what was put in.
    pub(super) fn publish(&self) {
        // Release: the entries are written before the kernel sees the counter. Its partner is `__xskq_cons_peek`.
        self.word(self.producer).store(self.own, Ordering::Release);
    }

    /// As the producer: entries that the kernel has not taken yet.
    pub(super) fn waiting(&mut self) -> u32 {
        RING - self.room()
    }

    /// As the consumer: the next entry, if there is one. It is the kernel's again after [`Ring::release`].
    pub(super) fn take(&mut self) -> Option<T> {
        if self.own == self.other {
            // Acquire: entries before this counter are written. Its partner is `__xskq_prod_submit`.
            self.other = self.word(self.producer).load(Ordering::Acquire);
            if self.own == self.other {
                return None;
            }
        }
        // SAFETY: an entry of the ring that the kernel has published and does not change before it is released; all bit
        // patterns of a descriptor and of an address are values.
        let entry = unsafe { self.place(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// As the consumer: gives back the entries that were taken.
    pub(super) fn release(&self) {
        // Release: the entries are read before the kernel writes to them again. Its partner is `xskq_prod_is_full`.
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
// SAFETY: integers that fill their place: 2 + 2 + 4 + 4 + 4 = 16 bytes.
unsafe impl Plain for XdpAddress {}

/// A socket of one queue of an interface.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket; it is not bound yet.
    pub(super) fn new() -> io::Result<Socket> {
        sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map(Socket)
    }

    /// Registers the memory that all sockets of a run share. Buffers lie at a stride that is no power of two.
    pub(super) fn register(&self, region: &LendableRegion) -> io::Result<()> {
        // struct xdp_umem_reg: address, length, chunk size and headroom, flags and metadata
        let [chunk, flags] = [region.buffer as u64, u64::from(XDP_UMEM_UNALIGNED_CHUNK_FLAG)];
        let words = [region.address as u64, region.len as u64, chunk, flags];
        sys::set_option(&self.0, SOL_XDP, XDP_UMEM_REG, &words)
    }

    /// Sizes and maps the rings.
    pub(super) fn rings(&self) -> io::Result<Rings> {
        for ring in [XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING] {
            sys::set_option(&self.0, SOL_XDP, ring, &RING)?;
        }
        // struct xdp_mmap_offsets: of receive, send, fill and completion ring, four words each
        let offsets = sys::option(&self.0, SOL_XDP, XDP_MMAP_OFFSETS, [0u64; 16])?;
        Ok(Rings {
            receive: Ring::map(&self.0, 0, &offsets[0..4])?,
            send: Ring::map(&self.0, 0x8000_0000, &offsets[4..8])?,
            fill: Ring::map(&self.0, 0x1_0000_0000, &offsets[8..12])?,
            completed: Ring::map(&self.0, 0x1_8000_0000, &offsets[12..16])?,
        })
    }

    /// Binds it to a queue. `first` is the socket with the registered memory, if that is another one; whether frames are copied
    /// is decided there.
    pub(super) fn bind(&self, interface: u32, queue: u32, first: Option<&Socket>, zero_copy: bool) -> io::Result<()> {
        let copy = if zero_copy { XDP_ZEROCOPY } else { XDP_COPY };
        let (flags, shared_umem) = match first {
            Some(first) => (XDP_SHARED_UMEM, first.0.as_raw_fd() as u32),
            None => (copy | XDP_USE_NEED_WAKEUP, 0),
        };
        let family = libc::AF_XDP as u16;
        sys::bind(&self.0, &XdpAddress { family, flags, interface, queue, shared_umem })?;
        // Kernels before 6.17 send 32 packets a call, and are called more often.
        let _ = sys::set_option(&self.0, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &(RING / 2));
        Ok(())
    }

    /// Whether the driver works on our memory itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        sys::option(&self.0, SOL_XDP, XDP_OPTIONS, 0u32).is_ok_and(|options| options & 1 != 0)
    }

    /// Has our system calls poll the device for so long.
    pub(super) fn busy_poll(&self, microseconds: u32) -> io::Result<()> {
        let set = |name, value: i32| sys::set_option(&self.0, libc::SOL_SOCKET, name, &value);
        set(SO_PREFER_BUSY_POLL, 1)?;
        set(libc::SO_BUSY_POLL, microseconds as i32)?;
        set(SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET)
    }

    /// Frames that were dropped because the program had no buffers or no room, and those that fit into none.
    pub(super) fn missed(&self) -> u64 {
        // struct xdp_statistics: dropped, invalid descriptors (receive, send), receive ring full, fill ring empty, send ring empty
        sys::option(&self.0, SOL_XDP, XDP_STATISTICS, [0u64; 6]).map_or(0, |words| words[0] + words[3])
    }

    /// Has the kernel look at the fill ring, or poll the device.
    pub(super) fn wake_receive(&self) {
        // SAFETY: no bytes are asked for. Whatever the answer, the next receive looks again.
        let _ = unsafe { libc::recv(self.0.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }

    /// Has the kernel send what is in the send ring, or some of it.
    pub(super) fn wake_send(&self) -> io::Result<()> {
        // SAFETY: no bytes are sent by this call itself.
        let sent = unsafe { libc::sendto(self.0.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        sys::check(sent as i32).map(drop)
    }
}

// include/uapi/linux/bpf.h
const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_PROG_LOAD: i64 = 5;
const BPF_LINK_CREATE: i64 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// include/uapi/linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// `union bpf_attr`, as much of it as is used, in words of four bytes; the rest is zero.
#[derive(Default)]
#[repr(C, align(8))]
struct BpfAttribute([u32; 32]);

impl BpfAttribute {
    fn new(words: &[(usize, u32)]) -> BpfAttribute {
        let mut attribute = BpfAttribute::default();
        words.iter().for_each(|&(at, word)| attribute.0[at] = word);
        attribute
    }

    fn pointer<T>(mut self, at: usize, value: &T) -> BpfAttribute {
        let address = ptr::from_ref(value) as u64;
        // Both halves in the order of this machine.
        let bytes = address.to_ne_bytes();
        let half = |from: usize| u32::from_ne_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
        (self.0[at], self.0[at + 1]) = (half(0), half(4));
        self
    }

    /// # Safety
    /// Pointers in it point to what the command reads there, and nothing is written to.
    unsafe fn call(&self, command: i64) -> io::Result<i32> {
        // SAFETY: the attribute has the size that is said; its pointers are the caller's business.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self, size_of::<BpfAttribute>()) };
        sys::check(result as i32)
    }

    /// # Safety
    /// As [`BpfAttribute::call`], for a command that makes a descriptor.
    unsafe fn make(&self, command: i64) -> io::Result<OwnedFd> {
        // SAFETY: by this function's own contract.
        let fd = unsafe { self.call(command) }?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// The program on an interface; dropping it takes it off.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

/// Makes the map from receive queues to sockets.
fn make_map(queues: usize) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries
    let create = BpfAttribute::new(&[(0, BPF_MAP_TYPE_XSKMAP), (1, 4), (2, 4), (3, queues as u32)]);
    // SAFETY: no pointers.
    unsafe { create.make(BPF_MAP_CREATE) }
}

/// Makes a map, loads the program, and lets both go.
pub(super) fn probe() -> io::Result<()> {
    load(&make_map(1)?).map(drop)
}

/// Attaches the program, with a socket for each receive queue from 0 on.
pub(super) fn attach(interface: u32, is_native: bool, sockets: &[&Socket]) -> io::Result<Attached> {
    let map = make_map(sockets.len())?;
    for (queue, socket) in sockets.iter().enumerate() {
        let (key, value) = (queue as u32, socket.0.as_raw_fd() as u32);
        // map_fd, key, value, flags
        let update = BpfAttribute::new(&[(0, map.as_raw_fd() as u32)]).pointer(2, &key).pointer(4, &value);
        // SAFETY: key and value have the four bytes that the map was made for, and live.
        unsafe { update.call(BPF_MAP_UPDATE_ELEM) }?;
    }
    let program = load(&map)?;
    let mode = if is_native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
    // prog_fd, target_ifindex, attach_type, flags
    let link = BpfAttribute::new(&[(0, program.as_raw_fd() as u32), (1, interface), (2, BPF_XDP), (3, mode)]);
    // SAFETY: no pointers.
    let link = unsafe { link.make(BPF_LINK_CREATE) }?;
    Ok(Attached { _link: link, _program: program, _map: map })
}

/// Loads `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`.
fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    let instructions: [u64; 6] = [
        instruction(0x61, 2, 1, 16, 0), // r2 = *(u32 *)(r1 + 16): xdp_md.rx_queue_index
        instruction(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = map (BPF_PSEUDO_MAP_FD), in two
        0,
        instruction(0xb7, 3, 0, 0, 2),  // r3 = XDP_PASS: where no socket is
        instruction(0x85, 0, 0, 0, 51), // call bpf_redirect_map
        instruction(0x95, 0, 0, 0, 0),  // exit
    ];
    let license = *b"Dual MIT/GPL\0";
    let count = instructions.len() as u32;
    // prog_type, insn_cnt, insns, license; expected_attach_type is word 17
    let load = BpfAttribute::new(&[(0, BPF_PROG_TYPE_XDP), (1, count), (17, BPF_XDP)]);
    let load = load.pointer(2, &instructions).pointer(4, &license);
    // SAFETY: both pointers point to arrays that live, one of as many instructions as is said, one with a zero at its end.
    unsafe { load.make(BPF_PROG_LOAD) }
}

/// `struct bpf_insn` as a number: code, registers, offset, immediate value.
fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    let [o0, o1] = offset.to_ne_bytes();
    let [i0, i1, i2, i3] = immediate.to_ne_bytes();
    let registers = if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    u64::from_ne_bytes([code, registers, o0, o1, i0, i1, i2, i3])
}
