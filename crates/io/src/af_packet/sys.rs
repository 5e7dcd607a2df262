//! AF_PACKET sockets: a receive ring that the kernel fills, and transmission of many frames by one call.
//!
//! The ring is memory shared with the kernel (Documentation/networking/packet_mmap.rst). A slot is ours while its status word has
//! `TP_STATUS_USER`: the kernel writes to it again only after we have stored `TP_STATUS_KERNEL`. A [`Slot`] borrows the ring, so
//! there is at most one, and releases its slot when dropped.
//!
//! The ring has version 2, not 3: version 3 hands over whole blocks, and the last one only after a timer
//! expires, so an echo would wait for a millisecond at each port.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::device::offload::VNET_HEADER;
use crate::device::sys::{self, Mapping, Plain};

// include/uapi/linux/if_packet.h
const SOL_PACKET: i32 = 263;
const PACKET_ADD_MEMBERSHIP: i32 = 1;
const PACKET_RX_RING: i32 = 5;
const PACKET_STATISTICS: i32 = 6;
const PACKET_COPY_THRESH: i32 = 7;
const PACKET_VERSION: i32 = 10;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_FANOUT: i32 = 18;
const PACKET_QDISC_BYPASS: i32 = 20;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const PACKET_MR_PROMISC: u16 = 1;
/// These go above the group number: distribution by a hash of both ends, and a group number that is not in use.
const FANOUT_HASH: u32 = 0;
const FANOUT_UNIQUE: u32 = 0x2000 << 16;
const TPACKET_V2: i32 = 1;
const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_USER: u32 = 1;
const TP_STATUS_COPY: u32 = 1 << 1;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// include/uapi/linux/if_ether.h
const ETH_P_ALL: u16 = 3;
const ETH_P_8021Q: u16 = 0x8100;

/// Bytes of a slot: its header, a frame of 1,500 bytes with tags, and some room.
pub(super) const SLOT: usize = 2048;
/// Bytes of one contiguous block of kernel memory.
const BLOCK: usize = 1 << 18;
/// Number of slots in a ring, unless the port says otherwise.
pub(super) const SLOTS_DEFAULT: usize = 4096;
/// Total bytes of frames that wait outside the ring because they are longer than a slot.
const LONG_FRAMES_BYTES: i32 = 32 << 20;
/// Length of the longest frame that waits there: a train of segments with its headers. Its payload has at most `GSO_MAX_SIZE` bytes, eight times 65,535
/// (include/linux/netdevice.h; BIG TCP).
const LONG_FRAME_MAX: usize = VNET_HEADER + 256 + 8 * 65_535;

/// `struct tpacket2_hdr`.
#[derive(Clone, Copy)]
#[repr(C)]
struct SlotHeader {
    status: u32,
    len: u32,
    snap_len: u32,
    mac: u16,
    net: u16,
    sec: u32,
    nsec: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    padding: [u8; 4],
}

/// `struct sockaddr_ll`.
#[repr(C)]
struct LinkAddress {
    family: u16,
    protocol: u16,
    interface: i32,
    hardware_type: u16,
    packet_type: u8,
    address_len: u8,
    address: [u8; 8],
}
// SAFETY: consists of integers without padding: 2 + 2 + 4 + 2 + 1 + 1 + 8 = 20 bytes.
unsafe impl Plain for LinkAddress {}

/// `struct packet_mreq`.
#[repr(C)]
struct Membership {
    interface: i32,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}
// SAFETY: consists of integers without padding: 4 + 2 + 2 + 8 = 16 bytes.
unsafe impl Plain for Membership {}

fn bind(socket: &OwnedFd, interface: u32, protocol: u16) -> io::Result<()> {
    sys::bind(
        socket,
        &LinkAddress {
            family: libc::AF_PACKET as u16,
            protocol: protocol.to_be(),
            interface: interface as i32,
            hardware_type: 0,
            packet_type: 0,
            address_len: 0,
            address: [0; 8],
        },
    )
}

/// `struct sock_fprog`: a filter of one instruction that drops everything (`BPF_RET`, 0 bytes).
#[repr(C)]
struct ClosedFilter {
    count: u16,
    padding: [u16; 3],
    instructions: *const [u16; 4],
}
// SAFETY: consists of integers and a raw pointer, for which every bit pattern is valid, without padding: 2 + 6 + 8 bytes.
unsafe impl Plain for ClosedFilter {}

/// One `struct sock_filter`.
static DROP_ALL: [u16; 4] = [6, 0, 0, 0];
const CLOSED: ClosedFilter = ClosedFilter { count: 1, padding: [0; 3], instructions: &raw const DROP_ALL };

/// A receive ring of one interface, which gets all of its packets or a share of them.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    memory: Mapping,
    /// Number of slots.
    slots: usize,
    next: usize,
    missed: u64,
    long: Vec<u8>,
    /// The slot at which the next receiver continues, once this ring is dropped.
    left_at: Arc<AtomicUsize>,
}

/// The value of `left_at` while somebody still receives from the ring.
const NOT_LEFT: usize = usize::MAX;

impl Drop for Ring {
    fn drop(&mut self) {
        // Relaxed: it is read after the receiving thread has been joined.
        self.left_at.store(self.next, Ordering::Relaxed);
    }
}

impl AsRawFd for Ring {
    /// The socket, which is readable while the ring has a filled slot.
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Keeps a ring's socket open when the ring is dropped, so that the kernel keeps filling it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) socket: OwnedFd,
    left_at: Arc<AtomicUsize>,
}

impl Kept {
    /// The slot at which to continue; `None` while somebody still receives.
    pub(super) fn left_at(&self) -> Option<usize> {
        Some(self.left_at.load(Ordering::Relaxed)).filter(|at| *at != NOT_LEFT)
    }
}

/// Takes ownership of the socket of a ring that the previous program in this process left open under this number.
pub(super) fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // This query fails on anything but a packet socket.
    let version = sys::option(&fd, SOL_PACKET, PACKET_VERSION, -1i32).ok()?;
    if version != TPACKET_V2 {
        return None;
    }
    // SAFETY: `sys::socket` opens all packet sockets of this program, and exec closes them unless they are left open.
    unsafe { sys::adopt(fd) }
}

impl Ring {
    /// Continues to receive from a ring of `slots` slots of [`SLOT`] bytes.
    pub(super) fn continued(socket: OwnedFd, slots: usize, next: usize) -> io::Result<Ring> {
        let memory = Mapping::new(socket.as_fd(), slots * SLOT, 0)?;
        Ok(Ring::new(socket, memory, slots, next % slots))
    }

    fn new(socket: OwnedFd, memory: Mapping, slots: usize, next: usize) -> Ring {
        Ring {
            socket,
            memory,
            slots,
            next,
            missed: 0,
            long: vec![0; LONG_FRAME_MAX],
            left_at: Arc::new(NOT_LEFT.into()),
        }
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// A handle that keeps the ring open.
    pub(super) fn keep_open(&self) -> io::Result<Kept> {
        Ok(Kept { socket: self.socket.try_clone()?, left_at: Arc::clone(&self.left_at) })
    }

    /// Opens `count` rings of `slots` slots. The kernel chooses among them by a hash of a packet's ends, so all packets of a connection go into one ring.
    pub(super) fn open_all(interface: u32, slots: usize, count: usize) -> io::Result<Vec<Ring>> {
        let first = Ring::open(interface, slots, |_| Ok(()))?;
        if count > 1 {
            sys::set_option(&first.socket, SOL_PACKET, PACKET_FANOUT, &(FANOUT_UNIQUE | FANOUT_HASH << 16))?;
        }
        let mut rings = vec![first];
        while rings.len() < count {
            let group = sys::option(&rings[0].socket, SOL_PACKET, PACKET_FANOUT, 0u32)? & 0xffff;
            let ring = Ring::open(interface, slots, |socket| {
                // Packets that arrive before this ring joins the group are already in the first ring.
                sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &CLOSED)
            })?;
            sys::set_option(&ring.socket, SOL_PACKET, PACKET_FANOUT, &(group | FANOUT_HASH << 16))?;
            sys::set_option(&ring.socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)?;
            rings.push(ring);
        }
        Ok(rings)
    }

    /// Opens a ring in promiscuous mode, which ends with the socket; calls `prepare` just before the socket begins to receive.
    fn open(interface: u32, slots: usize, prepare: impl FnOnce(&OwnedFd) -> io::Result<()>) -> io::Result<Ring> {
        // Protocol 0: nothing is received until the socket is bound to the interface.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let set = |name, value: i32| sys::set_option(&socket, SOL_PACKET, name, &value);
        set(PACKET_VERSION, TPACKET_V2)?;
        set(PACKET_VNET_HDR, 1)?;
        set(PACKET_COPY_THRESH, 1)?;
        set(PACKET_IGNORE_OUTGOING, 1)?;
        // Without the privilege to exceed the system's limit, use up to that limit.
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &LONG_FRAMES_BYTES)
            .or_else(|_| sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &LONG_FRAMES_BYTES))?;
        // struct tpacket_req: bytes of a block, number of blocks, bytes of a slot, number of slots
        let ring = [BLOCK, slots * SLOT / BLOCK, SLOT, slots].map(|number| number as u32);
        sys::set_option(&socket, SOL_PACKET, PACKET_RX_RING, &ring)?;
        let memory = Mapping::new(socket.as_fd(), slots * SLOT, 0)?;
        let promiscuous =
            Membership { interface: interface as i32, kind: PACKET_MR_PROMISC, address_len: 0, address: [0; 8] };
        sys::set_option(&socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        prepare(&socket)?;
        bind(&socket, interface, ETH_P_ALL)?;
        Ok(Ring::new(socket, memory, slots, 0))
    }

    /// The next slot, if the kernel has filled it.
    #[inline]
    pub(super) fn slot(&mut self) -> Option<Slot<'_>> {
        let at = self.next * SLOT;
        // SAFETY: the status word is at the beginning of the slot, inside the mapping and aligned. The kernel may write to it at
        // any time, so it is accessed as an atomic.
        let status = unsafe { AtomicU32::from_ptr(self.memory.at(at)) };
        // Acquire: makes visible what the kernel wrote to the slot before it set the status. Pairs with
        // `smp_wmb` in `tpacket_rcv` (net/packet/af_packet.c).
        let value = status.load(Ordering::Acquire);
        (value & TP_STATUS_USER != 0).then(|| Slot { ring: self, at, status: value })
    }

    /// Number of frames that the kernel has dropped since the ring was opened because it was full.
    pub(super) fn missed(&mut self) -> u64 {
        // struct tpacket_stats: packets, drops; reading resets both
        if let Ok([_, drops]) = sys::option(&self.socket, SOL_PACKET, PACKET_STATISTICS, [0u32; 2]) {
            self.missed += u64::from(drops);
        }
        self.missed
    }
}

/// A filled slot, which belongs to us until dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    ring: &'a mut Ring,
    at: usize,
    status: u32,
}

/// A frame as the kernel delivered it.
pub(super) struct Filled<'a> {
    /// The `virtio_net_hdr`, which says what the kernel left undone.
    pub(super) offload: [u8; VNET_HEADER],
    /// The VLAN tag that the kernel removed from the frame: protocol and control information.
    pub(super) tag: Option<(u16, u16)>,
    /// The bytes of the frame.
    pub(super) frame: &'a mut [u8],
}

impl Slot<'_> {
    /// Its frame; `None` if the frame did not fit into the slot and the kernel had no room for it elsewhere.
    pub(super) fn frame(&mut self) -> Option<Filled<'_>> {
        // SAFETY: the header lies in the slot, which is ours, and all of its fields are integers.
        let header = unsafe { self.ring.memory.at::<SlotHeader>(self.at).read() };
        let tpid = if self.status & TP_STATUS_VLAN_TPID_VALID != 0 { header.vlan_tpid } else { ETH_P_8021Q };
        let tag = (self.status & TP_STATUS_VLAN_VALID != 0).then_some((tpid, header.vlan_tci));
        if self.status & TP_STATUS_COPY != 0 {
            let len = receive(&self.ring.socket, &mut self.ring.long)?;
            let (offload, frame) = self.ring.long[..len].split_first_chunk_mut()?;
            return Some(Filled { offload: *offload, tag, frame });
        }
        let (begin, len) = (usize::from(header.mac), header.snap_len as usize);
        if header.snap_len != header.len || begin < size_of::<SlotHeader>() + VNET_HEADER || begin + len > SLOT {
            return None;
        }
        let first = self.ring.memory.at::<u8>(self.at + begin - VNET_HEADER);
        // SAFETY: these bytes lie in the slot, as compared above; it is ours until `self`, which the result borrows, is dropped.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first, VNET_HEADER + len) };
        let (offload, frame) = bytes.split_first_chunk_mut()?;
        Some(Filled { offload: *offload, tag, frame })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `Ring::slot`.
        let status = unsafe { AtomicU32::from_ptr(self.ring.memory.at(self.at)) };
        // Release: all our reads from the slot precede the kernel's next write to it. Pairs with the read
        // of the status in `packet_lookup_frame`.
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        self.ring.next = (self.ring.next + 1) % self.ring.slots;
    }
}

/// Receives the next frame that waits outside the ring; `None` if it is longer than `into`.
fn receive(socket: &OwnedFd, into: &mut [u8]) -> Option<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: pointer and length describe `into`.
    let len = unsafe { libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), flags) };
    // With `MSG_TRUNC` the length is the frame's own, of which the rest is lost.
    usize::try_from(len).ok().filter(|len| *len <= into.len())
}

/// A socket that only sends, through one interface.
#[derive(Debug)]
pub(super) struct Sender {
    socket: OwnedFd,
}

/// Maximum number of frames sent by one call.
pub(super) const SEND_MAX: usize = 64;

impl Sender {
    pub(super) fn open(interface: u32) -> io::Result<Sender> {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        // Bypass the queueing discipline; a kernel that does not support this sends through it.
        let _ = sys::set_option(&socket, SOL_PACKET, PACKET_QDISC_BYPASS, &1i32);
        bind(&socket, interface, 0)?;
        Ok(Sender { socket })
    }

    /// Sends up to [`SEND_MAX`] frames, in order; returns how many were sent. An error concerns the first frame.
    pub(super) fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; SEND_MAX];
        let mut count = 0;
        for (piece, frame) in pieces.iter_mut().zip(frames) {
            *piece = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            count += 1;
        }
        // SAFETY: an all-zero message is an empty message: null pointers with lengths of zero.
        let mut messages: [libc::mmsghdr; SEND_MAX] = unsafe { std::mem::zeroed() };
        for (message, piece) in messages.iter_mut().zip(&mut pieces).take(count) {
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (piece, 1);
        }
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: passes `count` messages of one piece each; the pieces describe borrowed frames, which the kernel only reads.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, flags as _) };
        sys::check(sent).map(|sent| sent as usize)
    }
}
