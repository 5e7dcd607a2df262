//! The functions of `shim.c`, and what makes them safe to call.
//!
//! [`Mbufs`] holds the loans of all buffers that DPDK has, under a lock that is taken once per burst: any thread may find what any
//! other has lent, since the mbuf of a packet that was sent is free for receiving. Devices close before the mbufs go, and the
//! mbufs go before the loans give their buffers back.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use braid_packet::{Buffers, Loans, Pool};

use crate::device::CardHash;

/// Frames of one burst.
pub(super) const BURST: usize = 64;
/// Entries of each queue of a device, if its driver has no other wish.
pub(super) const DESCRIPTORS: u16 = 512;
/// Mbufs that are kept free for devices, besides those in their rings.
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

// SAFETY: an mbuf belongs to nobody's thread.
unsafe impl Send for Frame {}

impl Frame {
    pub(super) const NONE: Frame = Frame { at: 0, len: 0, unused: 0, foreign: ptr::null_mut() };

    pub(super) fn new(at: u64, len: usize) -> Frame {
        Frame { at, len: len as u32, ..Frame::NONE }
    }

    /// Whether it lies in one of Braid's buffers, whole.
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
    /// Largest packet without its Ethernet header.
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

    /// How it chooses queues, and what it could do besides.
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
    // SAFETY: a text that lives as long as the program.
    unsafe { CStr::from_ptr(braid_dpdk_version()) }.to_string_lossy().into_owned()
}

/// Starts DPDK's environment once for this process; later calls get the result of the first.
pub(super) fn start(arguments: &[String]) -> io::Result<()> {
    static STARTED: OnceLock<c_int> = OnceLock::new();
    let result = STARTED.get_or_init(|| {
        let words = arguments.iter().map(|word| CString::new(word.as_str()).unwrap_or_default());
        // It keeps and changes what it is given.
        let words: &'static mut [*mut c_char] = words.map(CString::into_raw).collect::<Vec<_>>().leak();
        // SAFETY: an array of as many texts, which nobody else has, for as long as the program runs.
        unsafe { braid_dpdk_start(words.len() as c_int, words.as_mut_ptr()) }
    });
    check(*result)
}

/// The mbufs of a run: one for each buffer of its pool.
pub(super) struct Mbufs {
    raw: *mut RawMbufs,
    loans: Mutex<Loans>,
}

// SAFETY: the pool of mbufs is made for many producers and consumers; `by_number` does not change; an mbuf outside of the
// pool belongs to who holds the loan of its buffer, and loans are found under the lock.
unsafe impl Send for Mbufs {}
// SAFETY: as above.
unsafe impl Sync for Mbufs {}

impl Mbufs {
    /// For the buffers of a pool; the environment is started.
    pub(super) fn new(pool: &Arc<Pool>) -> io::Result<Arc<Mbufs>> {
        let loans = Loans::new(pool);
        let region = loans.region();
        let count = (region.len / region.buffer) as u32;
        // SAFETY: so many buffers lie there, and stay while the loans live, which is longer than the mbufs do.
        let raw = unsafe { braid_dpdk_mbufs(region.address, region.buffer, count) };
        if raw.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Ok(Arc::new(Mbufs { raw, loans: Mutex::new(loans) }))
    }

    /// What DPDK has been lent.
    pub(super) fn loans(&self) -> MutexGuard<'_, Loans> {
        // What a panic leaves behind are buffers that are lent and used by nobody: they are missing, and nothing else is wrong.
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mbufs that a device may take.
    fn available(&self) -> usize {
        // SAFETY: the mbufs live.
        unsafe { braid_dpdk_mbufs_available(self.raw) as usize }
    }

    /// Whether too few or too many mbufs are free.
    pub(super) fn is_uneven(&self) -> bool {
        !(FREE / 2..=FREE * 2).contains(&self.available())
    }

    /// Lends buffers until `wanted` mbufs are free, as far as there are buffers, or takes back what is too many.
    pub(super) fn balance(&self, loans: &mut Loans, buffers: &mut Buffers, wanted: usize) {
        for _ in self.available()..wanted {
            let Some(at) = loans.lend(buffers) else { return };
            // SAFETY: the buffer was not lent before, so its mbuf is nowhere else.
            unsafe { braid_dpdk_mbufs_put(self.raw, at) };
        }
        for _ in wanted..self.available() {
            // SAFETY: the mbufs live. What they give is u64::MAX or the offset of a lent buffer.
            loans.give_back(buffers, unsafe { braid_dpdk_mbufs_take(self.raw) });
        }
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        // SAFETY: devices hold these mbufs by an Arc and close before they let go of it.
        unsafe { braid_dpdk_mbufs_free(self.raw) };
    }
}

/// A port that is open. Dropping it closes it.
pub(super) struct Device {
    pub(super) facts: Facts,
    pub(super) mbufs: Arc<Mbufs>,
}

/// Finds a device: `arguments` are those of EAL, which begin with its name.
pub(super) fn find(arguments: &str) -> io::Result<Facts> {
    let text = |text: &str| CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let name = arguments.split(',').next().unwrap_or_default();
    let mut facts = Facts::default();
    let (arguments, name) = (text(arguments)?, text(name)?);
    // SAFETY: texts and a structure that live.
    check(unsafe { braid_dpdk_probe(arguments.as_ptr(), name.as_ptr(), &mut facts) })?;
    Ok(facts)
}

impl Device {
    /// Opens what was found, with so many queues if it has them.
    pub(super) fn open(mut facts: Facts, mbufs: &Arc<Mbufs>, hash: Option<&CardHash>) -> io::Result<Arc<Device>> {
        let none = CardHash::default();
        let CardHash { key, table, .. } = hash.unwrap_or(&none);
        let (key_bytes, entries) = (key.len() as u32, table.len() as u32);
        let hash = RawHash { key: key.as_ptr(), table: table.as_ptr(), key_bytes, entries };
        // SAFETY: structures that live, with arrays of as many elements as they say.
        check(unsafe { braid_dpdk_open(&mut facts, mbufs.raw, DESCRIPTORS, &hash) })?;
        Ok(Arc::new(Device { facts, mbufs: Arc::clone(mbufs) }))
    }

    /// Receives by a queue; nobody else uses it meanwhile.
    pub(super) fn receive<'a>(
        &self,
        queue: &mut QueueNumber,
        frames: &'a mut [Frame; BURST],
        room: usize,
    ) -> &'a [Frame] {
        // SAFETY: the port is open and has the queue, which has one user; at most a burst is written.
        let count = unsafe {
            braid_dpdk_receive(self.mbufs.raw, self.facts.port, queue.0, frames.as_mut_ptr(), room.min(BURST) as u16)
        };
        &frames[..count as usize]
    }

    /// Copies a received frame that does not lie in place, and lets it go.
    pub(super) fn take_elsewhere(&self, frame: Frame, into: &mut Vec<u8>) {
        into.resize(frame.len as usize, 0);
        // SAFETY: an mbuf that was received, which nobody else has; there is room for its bytes.
        unsafe { braid_dpdk_copy(frame.foreign, into.as_mut_ptr(), frame.len) };
    }

    /// Sends frames in buffers that were lent for it; how many of them, from the first on, the device took.
    pub(super) fn send(&self, queue: &mut QueueNumber, frames: &[Frame]) -> usize {
        // SAFETY: the port is open and has the queue, which has one user; the frames lie in lent buffers, whose mbufs are
        // nowhere else.
        unsafe {
            braid_dpdk_send(self.mbufs.raw, self.facts.port, queue.0, frames.as_ptr(), frames.len() as u32) as usize
        }
    }

    /// Frames that did not reach us.
    pub(super) fn missed(&self) -> u64 {
        // SAFETY: the port is open.
        unsafe { braid_dpdk_missed(self.facts.port) }
    }

    /// Its receive and send queues, each once.
    pub(super) fn queues(&self) -> (Vec<QueueNumber>, Vec<QueueNumber>) {
        let all = |count: u16| (0..count).map(QueueNumber).collect();
        (all(self.facts.receive_queues), all(self.facts.send_queues))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the port is open; its queues are used through this device only.
        unsafe { braid_dpdk_close(self.facts.port) };
    }
}

/// A queue of a device; who holds it is its only user.
pub(super) struct QueueNumber(u16);
