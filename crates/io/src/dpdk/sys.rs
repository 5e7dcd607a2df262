//! Safe wrappers of the functions of `shim.c`.
//!
//! [`Mbufs`] holds the loans of all buffers that DPDK has, under a lock that is taken once per burst. All threads share the loans
//! because the mbuf of a packet that was sent becomes free for receiving, so a thread may receive into what another has lent.
//! Devices are closed before the mbufs are freed, and the mbufs are freed before the loans return their buffers.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use braid_packet::{Buffers, Loans, Pool};

use crate::device::CardHash;

/// Maximum number of frames in a burst.
pub(super) const BURST: usize = 64;
/// Number of entries of each queue of a device, unless its driver prefers another number.
pub(super) const DESCRIPTORS: u16 = 512;
/// Number of mbufs that are kept free for devices, in addition to those in their rings.
pub(super) const FREE: usize = 1024;

#[repr(C)]
struct RawMbufs([u8; 0]);

#[repr(C)]
struct RawMbuf([u8; 0]);

/// `struct braid_frame`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Frame {
    /// Offset in Braid's region.
    pub(super) at: u64,
    pub(super) len: u32,
    unused: u32,
    foreign: *mut RawMbuf,
}

// SAFETY: an mbuf is not bound to a thread.
unsafe impl Send for Frame {}

impl Frame {
    pub(super) const NONE: Frame = Frame { at: 0, len: 0, unused: 0, foreign: ptr::null_mut() };

    pub(super) fn new(at: u64, len: usize) -> Frame {
        Frame { at, len: len as u32, ..Frame::NONE }
    }

    /// Whether it lies completely in one of Braid's buffers.
    pub(super) fn is_in_place(&self) -> bool {
        self.foreign.is_null()
    }
}

/// `struct braid_device`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Facts {
    pub(super) receive_queues: u16,
    pub(super) send_queues: u16,
    /// Maximum size of a packet without its Ethernet header.
    pub(super) mtu: u16,
    port: u16,
    is_hashing: u8,
    offers_hash: u8,
    offers_split: u8,
    agrees: u8,
    driver: [u8; 32],
}

impl Facts {
    /// Name of the driver.
    pub(super) fn driver(&self) -> String {
        CStr::from_bytes_until_nul(&self.driver).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Describes how the device chooses queues, and what else it supports.
    pub(super) fn described(&self) -> String {
        let hash = match (self.receive_queues, self.is_hashing != 0, self.agrees != 0) {
            (..=1, ..) => "",
            (_, true, true) => ", its hash set as the plan steers",
            (_, true, false) => ", its hash is its own",
            (_, false, _) => ", no hash of its own",
        };
        let offers: Vec<&str> = [(self.offers_hash, "hash of each packet"), (self.offers_split, "header split")]
            .iter()
            .filter(|(offered, _)| *offered != 0)
            .map(|(_, name)| *name)
            .collect();
        let offers = if offers.is_empty() { String::new() } else { format!("; offers {}", offers.join(", ")) };
        format!("queues: {}, out: {}{hash}{offers}", self.receive_queues, self.send_queues)
    }
}

/// `struct braid_hash`.
#[repr(C)]
struct RawHash {
    key: *const u8,
    table: *const u16,
    key_bytes: u32,
    entries: u32,
    udp_ports: u32,
}

unsafe extern "C" {
    safe fn braid_dpdk_version() -> *const c_char;
    fn braid_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn braid_dpdk_mbufs(base: *mut u8, stride: usize, count: u32) -> *mut RawMbufs;
    fn braid_dpdk_mbufs_free(mbufs: *mut RawMbufs);
    fn braid_dpdk_mbufs_available(mbufs: *const RawMbufs) -> u32;
    fn braid_dpdk_mbufs_put(mbufs: *mut RawMbufs, at: u64);
    fn braid_dpdk_mbufs_take(mbufs: *mut RawMbufs) -> u64;
    fn braid_dpdk_probe(arguments: *const c_char, name: *const c_char, device: *mut Facts) -> c_int;
    fn braid_dpdk_open(device: *mut Facts, mbufs: *mut RawMbufs, descriptors: u16, hash: *const RawHash) -> c_int;
    fn braid_dpdk_close(port: u16);
    fn braid_dpdk_receive(mbufs: *mut RawMbufs, port: u16, queue: u16, frames: *mut Frame, room: u16) -> u32;
    fn braid_dpdk_copy(mbuf: *mut RawMbuf, into: *mut u8, len: u32);
    fn braid_dpdk_send(mbufs: *mut RawMbufs, port: u16, queue: u16, frames: *const Frame, count: u32) -> u32;
    fn braid_dpdk_missed(port: u16) -> u64;
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result)) }
}

/// Name and version of the library.
pub(crate) fn version() -> String {
    // SAFETY: the function returns a string that lives as long as the program.
    unsafe { CStr::from_ptr(braid_dpdk_version()) }.to_string_lossy().into_owned()
}

/// Starts DPDK's environment once for this process; later calls return the result of the first call.
pub(super) fn start(arguments: &[String]) -> io::Result<()> {
    static STARTED: OnceLock<c_int> = OnceLock::new();
    let result = STARTED.get_or_init(|| {
        let words = arguments.iter().map(|word| CString::new(word.as_str()).unwrap_or_default());
        // EAL keeps and modifies its arguments, so they are leaked.
        let words: &'static mut [*mut c_char] = words.map(CString::into_raw).collect::<Vec<_>>().leak();
        // SAFETY: passes an array of that many strings, to which nobody else has access, and which lives as long as the program.
        unsafe { braid_dpdk_start(words.len() as c_int, words.as_mut_ptr()) }
    });
    check(*result)
}

/// The mbufs of a run, one for each buffer of its pool.
pub(super) struct Mbufs {
    raw: *mut RawMbufs,
    loans: Mutex<Loans>,
}

// SAFETY: the pool of mbufs supports multiple producers and consumers; `by_number` does not change; an mbuf outside the pool
// belongs to the holder of its buffer's loan, and loans are looked up under the lock.
unsafe impl Send for Mbufs {}
// SAFETY: as above.
unsafe impl Sync for Mbufs {}

impl Mbufs {
    /// Makes the mbufs for the buffers of a pool; the environment must have been started.
    pub(super) fn new(pool: &Arc<Pool>) -> io::Result<Arc<Mbufs>> {
        let loans = Loans::new(pool);
        let region = loans.region();
        let count = (region.len / region.buffer) as u32;
        // SAFETY: the region has that many buffers, which stay valid while the loans live, and the loans outlive the mbufs.
        let raw = unsafe { braid_dpdk_mbufs(region.address, region.buffer, count) };
        if raw.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Ok(Arc::new(Mbufs { raw, loans: Mutex::new(loans) }))
    }

    /// The loans of the buffers that DPDK has.
    pub(super) fn loans(&self) -> MutexGuard<'_, Loans> {
        // Ignore poisoning: after a panic some buffers may be lent but unused. They are missing, and nothing else is wrong.
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of mbufs that a device may take.
    fn available(&self) -> usize {
        // SAFETY: the mbufs are alive.
        unsafe { braid_dpdk_mbufs_available(self.raw) as usize }
    }

    /// Whether too few or too many mbufs are free.
    pub(super) fn is_uneven(&self) -> bool {
        !(FREE / 2..=FREE * 2).contains(&self.available())
    }

    /// Lends buffers until `wanted` mbufs are free, as far as there are buffers, or takes surplus buffers back.
    pub(super) fn balance(&self, loans: &mut Loans, buffers: &mut Buffers, wanted: usize) {
        for _ in self.available()..wanted {
            let Some(at) = loans.lend(buffers) else { return };
            // SAFETY: the buffer was not lent before, so its mbuf is not in use anywhere.
            unsafe { braid_dpdk_mbufs_put(self.raw, at) };
        }
        for _ in wanted..self.available() {
            // SAFETY: the mbufs are alive. The result is u64::MAX or the offset of a lent buffer.
            loans.give_back(buffers, unsafe { braid_dpdk_mbufs_take(self.raw) });
        }
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        // SAFETY: devices hold these mbufs in an Arc, and close before they release it.
        unsafe { braid_dpdk_mbufs_free(self.raw) };
    }
}

/// An open port. Dropping it closes it.
pub(super) struct Device {
    pub(super) facts: Facts,
    pub(super) mbufs: Arc<Mbufs>,
}

/// Finds a device; `arguments` are in EAL's syntax, which begins with the device's name.
pub(super) fn find(arguments: &str) -> io::Result<Facts> {
    let text = |text: &str| CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let name = arguments.split(',').next().unwrap_or_default();
    let mut facts = Facts::default();
    let (arguments, name) = (text(arguments)?, text(name)?);
    // SAFETY: passes strings and a structure that live during the call.
    check(unsafe { braid_dpdk_probe(arguments.as_ptr(), name.as_ptr(), &mut facts) })?;
    Ok(facts)
}

impl Device {
    /// Opens a device, with the number of queues in `facts` if the device supports it.
    pub(super) fn open(mut facts: Facts, mbufs: &Arc<Mbufs>, hash: Option<&CardHash>) -> io::Result<Arc<Device>> {
        let none = CardHash::default();
        let CardHash { key, table, tuple } = hash.unwrap_or(&none);
        let udp_ports = u32::from(tuple.as_ref().is_none_or(|tuple| tuple.udp_ports));
        let (key_bytes, entries) = (key.len() as u32, table.len() as u32);
        let hash = RawHash { key: key.as_ptr(), table: table.as_ptr(), key_bytes, entries, udp_ports };
        // SAFETY: passes structures that live during the call, whose arrays have as many elements as stated.
        check(unsafe { braid_dpdk_open(&mut facts, mbufs.raw, DESCRIPTORS, &hash) })?;
        Ok(Arc::new(Device { facts, mbufs: Arc::clone(mbufs) }))
    }

    /// Receives from a queue, which has no other user meanwhile.
    pub(super) fn receive<'a>(
        &self,
        queue: &mut QueueNumber,
        frames: &'a mut [Frame; BURST],
        room: usize,
    ) -> &'a [Frame] {
        // SAFETY: the port is open and has the queue, which has one user; at most `BURST` frames are written.
        let count = unsafe {
            braid_dpdk_receive(self.mbufs.raw, self.facts.port, queue.0, frames.as_mut_ptr(), room.min(BURST) as u16)
        };
        &frames[..count as usize]
    }

    /// Copies a received frame that is not in place, and frees its mbuf.
    pub(super) fn take_elsewhere(&self, frame: Frame, into: &mut Vec<u8>) {
        into.resize(frame.len as usize, 0);
        // SAFETY: the mbuf was received and has no other owner; there is room for its bytes.
        unsafe { braid_dpdk_copy(frame.foreign, into.as_mut_ptr(), frame.len) };
    }

    /// Sends frames in buffers that were lent for this purpose; returns how many frames the device accepted, counted from the first.
    pub(super) fn send(&self, queue: &mut QueueNumber, frames: &[Frame]) -> usize {
        // SAFETY: the port is open and has the queue, which has one user; the frames lie in lent buffers,
        // whose mbufs are not in use anywhere.
        unsafe {
            braid_dpdk_send(self.mbufs.raw, self.facts.port, queue.0, frames.as_ptr(), frames.len() as u32) as usize
        }
    }

    /// Number of frames that did not reach us.
    pub(super) fn missed(&self) -> u64 {
        // SAFETY: the port is open.
        unsafe { braid_dpdk_missed(self.facts.port) }
    }

    /// Its receive and send queues, each exactly once.
    pub(super) fn queues(&self) -> (Vec<QueueNumber>, Vec<QueueNumber>) {
        let all = |count: u16| (0..count).map(QueueNumber).collect();
        (all(self.facts.receive_queues), all(self.facts.send_queues))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the port is open, and its queues are only used through this device.
        unsafe { braid_dpdk_close(self.facts.port) };
    }
}

/// A queue of a device; its holder is its only user.
pub(super) struct QueueNumber(u16);
