//! The DPDK back end: any of its poll-mode drivers, with packets in Braid's own buffers.
//!
//! Mbufs are only headers; each one's data is in the buffer of Braid's pool with the same number. A received frame becomes a packet
//! in place. A packet that is sent stays in place, and another buffer replaces it in the batch. Two kinds of frames are copied:
//! those in a chain of mbufs, and those in mbufs of another program's pool (net_ring).
//!
//! The environment (EAL) is started once, with the first port. Nothing is shared with other processes and no file is created, so
//! nothing stays behind. Drivers that treat the memory of mbufs as the memory of packets are refused ([`UNFIT`]).

mod sys;

use std::io;
use std::sync::{Arc, Mutex};

use braid_packet::pool::FRAME_MAX;
use braid_packet::{Buffers, Lent, Loans, Pool};

pub(crate) use self::sys::version;
use self::sys::{BURST, DESCRIPTORS, Device, FREE, Frame, Mbufs, QueueNumber};
use crate::device::lending::{LendingQueue, Transmitter, lend_each};
use crate::device::live::{Arrivals, RxPort, Sent};
use crate::device::offload::complete_if_partial;
use crate::device::open::Lanes;
use crate::device::{BackEnd, PortSpec};

/// Drivers that share the memory of mbufs with a kernel or a guest, and what to use instead.
const UNFIT: [(&str, &str); 2] =
    [("net_af_xdp", "af_xdp:INTERFACE, which is Braid's own"), ("net_virtio_user", "memif: or tap:")];
/// Drivers whose packets may come from another process on this machine and therefore have undone checksums.
const VIRTUAL: [&str; 3] = ["net_af_packet", "net_tap", "net_pcap"];
/// Drivers that distribute packets over as many queues as their arguments specify, regardless of how many
/// are requested: all of these queues are received from.
const SPREADING: [&str; 3] = ["net_af_packet", "net_pcap", "net_ring"];
/// Size of an Ethernet header and two tags.
const LINK_HEADERS: usize = 22;
/// Number of retries on a full device before packets are dropped.
const RETRIES: usize = 16;
/// Memory for mbufs and rings in MiB, if no huge pages are reserved.
const MEMORY_MIB: &str = "256";

/// Number of buffers that one port holds with this number of receivers.
pub(crate) fn buffers_of_a_port(receivers: usize) -> usize {
    usize::from(DESCRIPTORS) * 2 * (receivers + 1) + FREE * 2
}

/// The mbufs of a run, allocated with its first port.
#[derive(Clone, Default)]
pub(crate) struct Memory(Option<Arc<Mbufs>>);

/// Why a port cannot be opened.
pub(crate) enum Refused {
    /// The environment does not start.
    Environment(io::Error),
    /// There is no such device, or it does not start.
    Device(io::Error),
    /// Its driver works on memory other than ours; includes what to use instead.
    Unfit(String, &'static str),
    /// Its packets may be longer than a buffer: its MTU, and the largest MTU that would fit.
    Mtu(usize, usize),
}

/// An open port: how it operates, a receive side for each receiver, a send side for each sender.
pub(crate) type Open = (String, Vec<Receiver>, Vec<Transmitter<SendQueue>>);

/// Opens a device; `ports` are all ports of the run, from which the environment is configured.
pub(crate) fn open(
    spec: &PortSpec,
    ports: &[PortSpec],
    pool: &Arc<Pool>,
    memory: &mut Memory,
    lanes: &Lanes<'_>,
) -> Result<Open, Refused> {
    sys::start(&arguments(ports)).map_err(Refused::Environment)?;
    let mut found = sys::find(&complete(&spec.name)).map_err(Refused::Device)?;
    let driver = found.driver();
    if let Some((_, instead)) = UNFIT.iter().find(|(name, _)| *name == driver) {
        return Err(Refused::Unfit(driver, instead));
    }
    let mbufs = match &memory.0 {
        Some(mbufs) => Arc::clone(mbufs),
        None => Arc::clone(memory.0.insert(Mbufs::new(pool).map_err(Refused::Environment)?)),
    };
    let queues = spec.dpdk.queues.unwrap_or(lanes.receivers as u16);
    let is_spread = SPREADING.contains(&&*driver);
    (found.receive_queues, found.send_queues) = (if is_spread { u16::MAX } else { queues }, lanes.senders as u16);
    let taken = usize::from(DESCRIPTORS) * usize::from(queues.max(lanes.senders as u16));
    mbufs.balance(&mut mbufs.loans(), &mut Buffers::new(pool), taken + FREE);
    let device = Device::open(found, &mbufs, lanes.hash).map_err(Refused::Device)?;
    let longest = usize::from(device.facts.mtu) + LINK_HEADERS;
    if longest > FRAME_MAX {
        return Err(Refused::Mtu(device.facts.mtu.into(), FRAME_MAX - LINK_HEADERS));
    }
    let how = format!("{}, {driver}, packets in place, {}", version(), device.facts.described());
    let (ins, outs) = device.queues();
    let checksums_may_lack = VIRTUAL.contains(&&*driver);
    let receiver = |queues| Receiver::new(&device, queues, checksums_may_lack);
    let receivers = lanes.share(ins).into_iter().map(receiver).collect();
    let out = |queue| Arc::new(Mutex::new(SendQueue::new(&device, queue, longest)));
    let outs: Vec<_> = outs.into_iter().map(out).collect();
    Ok((how, receivers, Transmitter::over(&outs, lanes.senders)))
}

/// The arguments of EAL: nothing is shared with other processes, and only named cards are probed. EAL
/// arguments in the port specifications replace these defaults.
fn arguments(all: &[PortSpec]) -> Vec<String> {
    let ours = || all.iter().filter(|spec| spec.back_end == BackEnd::Dpdk);
    let mut words: Vec<String> = ["braid", "--no-telemetry", "--iova-mode=va"].map(String::from).into();
    let own: Vec<&str> = ours().flat_map(|spec| spec.dpdk.eal.split_whitespace()).collect();
    if !own.is_empty() {
        words.extend(own.into_iter().map(String::from));
        return words;
    }
    words.extend(["-l", &first_processor(), "--log-level=*:error"].map(String::from));
    let has_huge_pages = std::fs::read_to_string("/proc/meminfo").is_ok_and(|text| {
        let free = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
        free.is_some_and(|free| free.trim() != "0")
    });
    match has_huge_pages {
        true => words.push("--in-memory".to_owned()),
        false => words.extend(["--no-shconf", "--no-huge", "-m", MEMORY_MIB].map(String::from)),
    }
    let cards: Vec<&str> = ours().filter_map(|spec| card(&spec.name)).collect();
    match cards.is_empty() {
        true => words.push("--no-pci".to_owned()),
        false => words.extend(cards.into_iter().flat_map(|card| ["-a".to_owned(), card.to_owned()])),
    }
    words
}

/// A device's name and arguments, completed with what its driver needs: by default, frames of net_af_packet are longer than a
/// buffer, and its blocks must hold a whole number of frames.
fn complete(name: &str) -> String {
    let needs = name.starts_with("net_af_packet") && !name.contains("framesz=");
    format!("{name}{}", if needs { ",framesz=2016,blocksz=258048" } else { "" })
}

/// The name with its arguments, if it begins with a PCI address such as `0000:03:00.0`.
fn card(name: &str) -> Option<&str> {
    let address = name.split(',').next()?;
    (address.contains(':') && address.contains('.')).then_some(name)
}

/// A processor on which this process may run; EAL requires one for a thread that Braid does not use.
fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0").trim();
    list.chars().take_while(char::is_ascii_digit).collect()
}

/// One receiver's side of some queues of a device.
pub(crate) struct Receiver {
    device: Arc<Device>,
    queues: Vec<QueueNumber>,
    /// The queue that is polled first.
    first: usize,
    checksums_may_lack: bool,
    frames: [Frame; BURST],
    /// Scratch space for a frame that is not in place.
    copy: Vec<u8>,
    /// Frames that were received but found no buffer, or were invalid.
    lost: u64,
}

impl Receiver {
    fn new(device: &Arc<Device>, queues: Vec<QueueNumber>, checksums_may_lack: bool) -> Receiver {
        let device = Arc::clone(device);
        Receiver {
            device,
            queues,
            first: 0,
            checksums_may_lack,
            frames: [Frame::NONE; BURST],
            copy: Vec::new(),
            lost: 0,
        }
    }

    /// Receives a burst from one queue; returns false if there was none.
    fn burst(&mut self, queue: usize, into: &mut Arrivals<'_>) -> bool {
        let Receiver { device, queues, frames, .. } = self;
        let room = into.wanted.min(into.batch.room());
        let burst = device.receive(&mut queues[queue], frames, room);
        if burst.is_empty() {
            return false;
        }
        let mut loans = device.mbufs.loans();
        for frame in burst {
            if !frame.is_in_place() {
                device.take_elsewhere(*frame, &mut self.copy);
                self.lost += u64::from(!into.put(&self.copy));
                continue;
            }
            let info = into.info(frame.len as usize);
            let lent = Lent { at: frame.at, len: frame.len as usize };
            if !loans.receive(into.batch, lent, &info) {
                self.lost += 1;
                continue;
            }
            into.took(lent.len);
            if self.checksums_may_lack {
                let last = into.batch.len() - 1;
                complete_if_partial(into.batch.packet(last, None).bytes_mut());
            }
        }
        true
    }
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        let mbufs = &self.device.mbufs;
        if mbufs.is_uneven() {
            mbufs.balance(&mut mbufs.loans(), into.buffers, FREE);
        }
        let count = self.queues.len();
        for step in 0..count {
            let queue = if self.first + step < count { self.first + step } else { self.first + step - count };
            while into.has_room() && self.burst(queue, into) {}
        }
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
    }

    fn missed(&mut self) -> u64 {
        self.device.missed() + self.lost
    }
}

/// One send queue.
pub(crate) struct SendQueue {
    device: Arc<Device>,
    queue: QueueNumber,
    frames: Vec<Frame>,
    /// Length of the longest frame that may be sent.
    longest: usize,
}

impl SendQueue {
    fn new(device: &Arc<Device>, queue: QueueNumber, longest: usize) -> SendQueue {
        SendQueue { device: Arc::clone(device), queue, frames: Vec::new(), longest }
    }
}

impl LendingQueue for SendQueue {
    fn send(
        &mut self,
        buffers: &mut Buffers,
        out: &[u16],
        lend: impl FnMut(&mut Loans, &mut Buffers, usize) -> Option<Lent>,
    ) -> Sent {
        let mut loans = self.device.mbufs.loans();
        self.frames.clear();
        let mut sent = lend_each((&mut loans, buffers), (out, self.longest), lend, |lent| {
            self.frames.push(Frame::new(lent.at, lent.len));
        });
        drop(loans);
        let mut done = 0;
        for _ in 0..RETRIES {
            done += self.device.send(&mut self.queue, &self.frames[done..]);
            if done == self.frames.len() {
                break;
            }
            std::thread::yield_now();
        }
        let (taken, left) = self.frames.split_at(done);
        sent.packets = done as u64;
        sent.bytes = taken.iter().map(|frame| u64::from(frame.len)).sum();
        sent.device_full += left.len() as u64;
        if !left.is_empty() {
            let mut loans = self.device.mbufs.loans();
            left.iter().for_each(|frame| {
                loans.give_back(buffers, frame.at);
            });
        }
        sent
    }
}
