//! Sockets that outlive their program: when the process becomes another one (`braid upgrade`), sockets, program and the memory of the
//! buffers stay open, the kernel goes on receiving into the buffers that it has, and the next program finds what came in the receive rings.
//! So nothing is lost unless more frames come meanwhile than a queue has buffers to be filled, 2,048; the kernel counts those, as ever.
//!
//! Who has which buffer is told by number and not read from the rings: the kernel takes entries before it says so, and keeps buffers of
//! its own, in a driver's rings and on their way out. The program that ends knows what it has lent; all else is free, since what was in
//! its own hands has been sent or dropped.
//!
//! The plan may steer otherwise: then another XDP program takes the place of the one that is attached. What does not fit (other
//! ports, keys, queues, workers, buffers, or a kernel before 6.4, which maps rings of a bound socket only once) is closed by it, and
//! opened anew.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_memory::{Backing, HugePages};
use braid_packet::pool::{FRAME_MAX, HEADROOM};
use braid_packet::{Buffers, Loans, Pool, PoolConfig};
use rustix::fs::{MemfdFlags, memfd_create};

use super::ledger::{Ledger, PortEntry, QueueEntry};
use super::program::Program;
use super::queues::{Filling, Missed, QueueIn, QueueOut};
use super::sys::{Descriptor, Link, RING, Ring, Rings, Socket};
use super::{Queue, sockets_of_a_queue};
use crate::device::open::Lanes;
use crate::device::sys::{adopt, set_outlives_exec};
use crate::device::{Interface, PortSpec, XdpCopy};

/// Where the program before this one in the process names the ledger of what it left open.
pub(crate) const INHERITED: &str = "BRAID_XDP_SOCKETS";

/// A program where it is attached.
pub(super) struct Attached {
    pub(super) interface: u32,
    pub(super) is_native: bool,
    /// What it does, in a number.
    pub(super) print: u64,
    pub(super) program: Arc<Program>,
}

/// Keeps a port open when its ends are dropped. The program goes first, before queues give buffers back.
pub(crate) struct Wire {
    attached: Attached,
    keys: String,
    shape: String,
    queues: Vec<KeptQueue>,
    pool: Arc<Pool>,
}

struct KeptQueue {
    sockets: Vec<(Arc<Socket>, Arc<Missed>)>,
    out: Arc<Mutex<QueueOut>>,
    filling: Arc<Mutex<Filling>>,
}

impl Wire {
    /// Of a port: its program and its queues.
    pub(super) fn new(
        spec: &PortSpec,
        attached: Attached,
        pool: &Arc<Pool>,
        umem: &Umem,
        ins: &[Vec<QueueIn>],
        outs: &[Arc<Mutex<QueueOut>>],
    ) -> Wire {
        let queue = |(ends, out): (&Vec<QueueIn>, &Arc<Mutex<QueueOut>>)| KeptQueue {
            sockets: ends.iter().map(|end| (Arc::clone(&end.socket), Arc::clone(&end.missed))).collect(),
            out: Arc::clone(out),
            filling: Arc::clone(&ends[0].filling),
        };
        let queues = ins.iter().zip(outs).map(queue).collect();
        Wire { attached, keys: keys(spec), shape: umem.shape.clone(), queues, pool: Arc::clone(pool) }
    }

    /// What is told of it; none if somebody still receives or sends by it.
    fn entry(&self) -> Option<PortEntry> {
        let Attached { interface, is_native, print, program } = &self.attached;
        let (interface, is_native, print, link) = (*interface, *is_native, *print, program.link()?);
        let queues = self.queues.iter().map(|queue| queue.entry(&self.pool)).collect::<Option<_>>()?;
        Some(PortEntry { interface, link, is_native, print, keys: self.keys.clone(), queues })
    }
}

impl KeptQueue {
    /// What is told of it, filled up with buffers, so that as much as can be may arrive meanwhile.
    fn entry(&self, pool: &Arc<Pool>) -> Option<QueueEntry> {
        if Arc::strong_count(&self.filling) > 1 || Arc::strong_count(&self.out) > 1 {
            return None;
        }
        // What a panic leaves behind are buffers that are lent and not filled: they are missing, and nothing else is wrong.
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        filling.fill_up(&mut Buffers::new(pool));
        let sockets = self.sockets.iter().map(|(socket, missed)| (socket.as_raw_fd(), missed.last())).collect();
        Some(QueueEntry { sockets, filled: filling.loans.numbers().collect(), sent: out.loans.numbers().collect() })
    }
}

/// What has to be the same, so that the sockets of a port can be gone on with.
fn keys(spec: &PortSpec) -> String {
    format!("{:?}-{:?}-{}", spec.mode, spec.copy, spec.busy_poll_us)
}

/// Likewise, of the memory that all share.
fn shape(config: &PoolConfig) -> String {
    let (buffers, bytes, pages) = (config.buffers, HEADROOM + FRAME_MAX, config.pages);
    format!("{buffers} buffers of {bytes} bytes (pages: {pages:?}), rings of {RING}")
}

/// Leaves sockets, programs and memory open for the program that this process becomes, if nobody uses them any more: what it is to find
/// under [`INHERITED`].
pub(crate) fn leave(wires: &[Wire]) -> io::Result<String> {
    let memory = wires.first().and_then(|first| Some((first.pool.memory()?.as_raw_fd(), first.shape.clone())));
    let (Some((memory, shape)), Some(ports)) = (memory, wires.iter().map(Wire::entry).collect::<Option<Vec<_>>>())
    else {
        return Ok(String::new());
    };
    let ledger = Ledger { memory, shape, ports };
    let mut file = File::from(memfd_create(c"braid ledger", MemfdFlags::CLOEXEC)?);
    file.write_all(ledger.to_string().as_bytes())?;
    ledger.descriptors().chain([file.as_raw_fd()]).try_for_each(|fd| set_outlives_exec(fd, true))?;
    // It is the next program's.
    Ok(file.into_raw_fd().to_string())
}

/// What the sockets of a run have in common: the region, registered with the first one, and ports that the program before this one has
/// left.
#[derive(Default)]
pub(crate) struct Umem {
    pub(super) first: Option<Arc<Socket>>,
    left: Vec<Left>,
    shape: String,
}

impl Umem {
    /// What was left of a port, if anything.
    pub(super) fn take(&mut self, interface: u32) -> Option<Left> {
        let at = self.left.iter().position(|left| left.interface == interface)?;
        Some(self.left.swap_remove(at))
    }
}

/// A port as the program before has left it.
pub(super) struct Left {
    interface: u32,
    pub(super) is_native: bool,
    pub(super) print: u64,
    /// Before the queues: the program goes before they give buffers back.
    pub(super) link: Link,
    pub(super) queues: Vec<Queue>,
}

/// How long the kernel takes to give memory back when its sockets have been closed; it does so after a grace period.
const GIVEN_BACK: Duration = Duration::from_millis(50);

/// A port of this run: where it is, how it is to be opened.
pub(crate) type Wanted = (Interface, PortSpec);

/// Makes the buffers of a run: with ports of AF_XDP those that the program before has left if they fit, else new ones that can be left;
/// then also why they do not fit, if there were any.
pub(crate) fn pool(
    config: &PoolConfig,
    ports: &[Wanted],
    lanes: &Lanes<'_>,
) -> Result<(Arc<Pool>, Umem, Option<String>), braid_memory::Error> {
    let why = match Inherited::of_process().map(|inherited| inherited.go_on(config, ports, lanes)) {
        Some(Ok((pool, umem))) => return Ok((pool, umem, None)),
        Some(Err(why)) => {
            // Locked memory and reserved huge pages may be enough for one run only.
            std::thread::sleep(GIVEN_BACK);
            Some(why)
        }
        None => None,
    };
    let shared = if ports.is_empty() { None } else { Pool::shared(config).ok() };
    let pool = shared.filter(|pool| suits(pool, config, ports)).map_or_else(|| Pool::new(config), Ok)?;
    Ok((pool, Umem { shape: shape(config), ..Umem::default() }, why))
}

/// A driver that works on the buffers itself takes no frame across two pages that do not lie one behind the other, as small ones rarely do.
fn suits(pool: &Pool, config: &PoolConfig, ports: &[Wanted]) -> bool {
    let is_zero_copy = ports.iter().any(|(_, spec)| spec.copy == XdpCopy::Zero);
    !is_zero_copy || config.pages == HugePages::Never || pool.backing() != Backing::Ordinary
}

/// What this process was left; whatever nobody goes on with is closed.
struct Inherited {
    memory: OwnedFd,
    shape: String,
    ports: Vec<InheritedPort>,
}

struct InheritedPort {
    entry: PortEntry,
    link: Link,
    /// By queue.
    sockets: Vec<Vec<Socket>>,
}

impl Inherited {
    fn of_process() -> Option<Inherited> {
        let ledger = adopt(std::env::var(INHERITED).ok()?.parse().ok()?)?;
        let (mut file, mut text) = (File::from(ledger), String::new());
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        let Ledger { memory, shape, ports } = Ledger::parse(&text)?;
        let port = |entry: PortEntry| {
            let link = Link::adopt(entry.link);
            let adopted =
                |queue: &QueueEntry| queue.sockets.iter().map(|(fd, _)| Socket::adopt(*fd)).collect::<Vec<_>>();
            // All of them, before one that is missing ends it.
            let sockets: Vec<_> = entry.queues.iter().map(adopted).collect();
            let sockets = sockets.into_iter().map(|queue| queue.into_iter().collect()).collect::<Option<_>>();
            Some(InheritedPort { sockets: sockets?, link: link?, entry })
        };
        let (memory, ports) = (adopt(memory), ports.into_iter().map(port).collect::<Vec<_>>());
        Some(Inherited { memory: memory?, shape, ports: ports.into_iter().collect::<Option<_>>()? })
    }

    /// Goes on with it, or says why not.
    fn go_on(self, config: &PoolConfig, ports: &[Wanted], lanes: &Lanes<'_>) -> Result<(Arc<Pool>, Umem), String> {
        let shape = shape(config);
        if self.shape != shape {
            return Err(format!("it had {}, and this run has {shape}", self.shape));
        }
        let mut mapped = Vec::new();
        for InheritedPort { entry, link, sockets } in self.ports {
            check(&entry, ports, sockets_of_a_queue(lanes))?;
            let queues = entry.queues.iter().zip(sockets).map(|(entry, sockets)| Mapped::new(entry, sockets));
            let queues = queues.collect::<io::Result<Vec<_>>>();
            let queues = queues.map_err(|error| format!("rings are mapped again since Linux 6.4 only ({error})"))?;
            mapped.push((entry, link, queues));
        }
        let entries = mapped.iter().flat_map(|(entry, ..)| &entry.queues);
        let lent: Vec<_> = entries.flat_map(|queue| [queue.filled.clone(), queue.sent.clone()]).collect();
        let (pool, loans) = Pool::continued(config, self.memory, &lent).map_err(|error| error.to_string())?;
        let mut loans = loans.into_iter();
        let mut next = || loans.next().unwrap_or_else(|| unreachable!("each queue has two lists"));
        let left = mapped.into_iter().map(|(entry, link, queues)| Left {
            interface: entry.interface,
            is_native: entry.is_native,
            print: entry.print,
            link,
            queues: queues.into_iter().map(|queue| queue.with(next(), next())).collect(),
        });
        let left: Vec<Left> = left.collect();
        let first = left.iter().flat_map(|port| &port.queues).flat_map(|queue| &queue.ends).next();
        let first = first.map(|(socket, ..)| Arc::clone(socket));
        Ok((pool, Umem { first, left, shape }))
    }
}

/// Whether a port goes on as it was left, with so many sockets for a queue.
fn check(entry: &PortEntry, ports: &[Wanted], sockets: usize) -> Result<(), String> {
    let wanted = ports.iter().find(|(interface, _)| interface.index == entry.interface);
    let Some((Interface { name, queues, .. }, spec)) = wanted else {
        return Err(format!("interface {} has no port any more", entry.interface));
    };
    if keys(spec) != entry.keys {
        return Err(format!("{name} had {}, and now has {}", entry.keys, keys(spec)));
    }
    if *queues != entry.queues.len() {
        return Err(format!("{name} had {} queues, and now has {queues}", entry.queues.len()));
    }
    match entry.queues.iter().find(|queue| queue.sockets.len() != sockets) {
        Some(queue) => Err(format!("{name} had {} sockets for a queue, and now has {sockets}", queue.sockets.len())),
        None => Ok(()),
    }
}

/// A queue without its buffers.
struct Mapped {
    ends: Vec<(Arc<Socket>, Ring<Descriptor>, u64)>,
    fill: Ring<u64>,
    send: Ring<Descriptor>,
    completed: Ring<u64>,
}

impl Mapped {
    fn new(entry: &QueueEntry, sockets: Vec<Socket>) -> io::Result<Mapped> {
        let mut sockets = sockets.into_iter().zip(entry.sockets.iter().map(|(_, missed)| *missed));
        let (first, missed) = sockets.next().ok_or(io::ErrorKind::InvalidData)?;
        let Rings { fill, receive, send, completed } = first.rings()?;
        let mut ends = vec![(Arc::new(first), receive, missed)];
        for (socket, missed) in sockets {
            let receive = socket.receive_ring()?;
            ends.push((Arc::new(socket), receive, missed));
        }
        Ok(Mapped { ends, fill, send, completed })
    }

    fn with(self, filled: Loans, sent: Loans) -> Queue {
        let Mapped { ends, fill, send, completed } = self;
        Queue { ends, fill, send, completed, filled, sent }
    }
}
