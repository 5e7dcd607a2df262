//! AF_XDP sockets that outlive their program. When the process executes another program (`braid upgrade`),
//! the sockets, the XDP program and the buffer memory stay open. The kernel keeps receiving into the buffers
//! that it holds, and the next program finds the frames in the receive rings. So nothing is lost unless more
//! frames arrive meanwhile than a queue has buffers to fill (`ring=`); the kernel counts those as usual.
//!
//! Ownership of buffers is passed on as a list of numbers instead of being read from the rings, because the kernel takes entries
//! before it reports so and holds further buffers in a driver's rings and in transmission. The ending program knows which buffers
//! it has lent; all others are free, since the packets that it held have been sent or dropped.
//!
//! If the plan steers differently, another XDP program replaces the attached one. What does not fit (other
//! ports, keys, queues, workers or buffers, or a kernel before 6.4, which maps the rings of a bound socket
//! only once) is closed by the next program and opened anew.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_memory::{Backing, HugePages, Region};
use braid_packet::pool::{FRAME_MAX, HEADROOM};
use braid_packet::{Buffers, Loans, Pool, PoolConfig};
use rustix::fs::{MemfdFlags, memfd_create};

use super::ledger::{Ledger, PortEntry, QueueEntry};
use super::program::Program;
use super::queues::{Filling, Missed, QueueIn, QueueOut};
use super::sys::{Descriptor, Link, Ring, Rings, Socket};
use super::{Queue, ring_of, sockets_of_a_queue};
use crate::device::open::Lanes;
use crate::device::sys::{adopt_memory, give_up, leave_open};
use crate::device::{Interface, PortSpec, XdpCopy};

/// Environment variable with the descriptor of the ledger in which the previous program in this process describes what it left open.
pub(crate) const INHERITED: &str = "BRAID_XDP_SOCKETS";

/// Name of the memory that holds the ledger.
const LEDGER: &str = "braid ledger";

/// An XDP program that is attached to an interface.
pub(super) struct Attached {
    pub(super) interface: u32,
    pub(super) is_native: bool,
    /// Fingerprint of what it does.
    pub(super) print: u64,
    pub(super) program: Arc<Program>,
}

/// Keeps a port open when its ends are dropped. The program is detached first, before queues return buffers.
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
    /// Makes the wire of a port from its program and its queues.
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

    /// The ledger entry of the port; `None` if somebody still receives or sends through it.
    fn entry(&self) -> Option<PortEntry> {
        let Attached { interface, is_native, print, program } = &self.attached;
        let (interface, is_native, print, link) = (*interface, *is_native, *print, program.link()?);
        let queues = self.queues.iter().map(|queue| queue.entry(&self.pool)).collect::<Option<_>>()?;
        Some(PortEntry { interface, link, is_native, print, keys: self.keys.clone(), queues })
    }
}

impl KeptQueue {
    /// The ledger entry of the queue, after filling it up with buffers so that as many frames as possible can arrive meanwhile.
    fn entry(&self, pool: &Arc<Pool>) -> Option<QueueEntry> {
        if Arc::strong_count(&self.filling) > 1 || Arc::strong_count(&self.out) > 1 {
            return None;
        }
        // Ignore poisoning: after a panic some buffers may be lent but not filled. They are missing, and nothing else is wrong.
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        filling.fill_up(&mut Buffers::new(pool));
        let sockets = self.sockets.iter().map(|(socket, missed)| (socket.as_raw_fd(), missed.last())).collect();
        Some(QueueEntry { sockets, filled: filling.loans.numbers().collect(), sent: out.loans.numbers().collect() })
    }
}

/// The properties of a port that must be the same for its sockets to be continued.
fn keys(spec: &PortSpec) -> String {
    format!("{:?}-{:?}-{}-{}", spec.mode, spec.copy, spec.busy_poll_us, ring_of(spec))
}

/// The properties of the shared memory that must be the same.
fn shape(config: &PoolConfig) -> String {
    let (buffers, bytes, pages) = (config.buffers, HEADROOM + FRAME_MAX, config.pages);
    format!("{buffers} buffers of {bytes} bytes (pages: {pages:?})")
}

/// Leaves sockets, programs and memory open for the program that this process will execute, if nobody uses them any more. Returns
/// the value of [`INHERITED`] for that program.
pub(crate) fn leave(wires: &[Wire]) -> io::Result<String> {
    let memory = wires.first().and_then(|first| Some((first.pool.memory()?.as_raw_fd(), first.shape.clone())));
    let (Some((memory, shape)), Some(ports)) = (memory, wires.iter().map(Wire::entry).collect::<Option<Vec<_>>>())
    else {
        return Ok(String::new());
    };
    let ledger = Ledger { memory, shape, ports };
    let mut file = File::from(memfd_create(LEDGER, MemfdFlags::CLOEXEC)?);
    file.write_all(ledger.to_string().as_bytes())?;
    ledger.descriptors().try_for_each(leave_open)?;
    Ok(give_up(file)?.to_string())
}

/// What the sockets of a run share: the memory region, registered with the first socket, and the ports that the previous program left open.
#[derive(Default)]
pub(crate) struct Umem {
    pub(super) first: Option<Arc<Socket>>,
    left: Vec<Left>,
    shape: String,
}

impl Umem {
    /// Takes what was left of a port, if anything.
    pub(super) fn take(&mut self, interface: u32) -> Option<Left> {
        let at = self.left.iter().position(|left| left.interface == interface)?;
        Some(self.left.swap_remove(at))
    }
}

/// A port as the previous program left it.
pub(super) struct Left {
    interface: u32,
    pub(super) is_native: bool,
    pub(super) print: u64,
    /// Declared before the queues, so that the program is detached before they return buffers.
    pub(super) link: Link,
    pub(super) queues: Vec<Queue>,
}

/// How long the kernel takes to release memory after its sockets have been closed, which it does after a grace period.
const GIVEN_BACK: Duration = Duration::from_millis(50);

/// A port of this run: its interface and its specification.
pub(crate) type Wanted = (Interface, PortSpec);

/// Makes the buffers of a run. With AF_XDP ports these are the buffers that the previous program left, if they fit, else new ones
/// that can be left to the next program. If there were buffers that do not fit, also returns the reason.
pub(crate) fn pool(
    config: &PoolConfig,
    ports: &[Wanted],
    lanes: &Lanes<'_>,
) -> Result<(Arc<Pool>, Umem, Option<String>), braid_memory::Error> {
    let why = match Inherited::of_process().map(|inherited| inherited.go_on(config, ports, lanes)) {
        Some(Ok((pool, umem))) => return Ok((pool, umem, None)),
        Some(Err(why)) => {
            // Locked memory and reserved huge pages may suffice for only one run at a time.
            std::thread::sleep(GIVEN_BACK);
            Some(why)
        }
        None => None,
    };
    let shared = if ports.is_empty() { None } else { Pool::shared(config).ok() };
    let pool = shared.filter(|pool| suits(pool, config, ports)).map_or_else(|| Pool::new(config), Ok)?;
    Ok((pool, Umem { shape: shape(config), ..Umem::default() }, why))
}

/// Whether the pool suits the ports. A zero-copy driver accepts no frame that spans two pages which are not
/// physically contiguous, as small pages rarely are.
fn suits(pool: &Pool, config: &PoolConfig, ports: &[Wanted]) -> bool {
    let is_zero_copy = ports.iter().any(|(_, spec)| spec.copy == XdpCopy::Zero);
    !is_zero_copy || config.pages == HugePages::Never || pool.backing() != Backing::Ordinary
}

/// What this process inherited; whatever is not continued is closed.
struct Inherited {
    memory: OwnedFd,
    shape: String,
    ports: Vec<InheritedPort>,
}

struct InheritedPort {
    entry: PortEntry,
    link: Link,
    /// The sockets of each queue.
    sockets: Vec<Vec<Socket>>,
}

impl Inherited {
    fn of_process() -> Option<Inherited> {
        let ledger = adopt_memory(std::env::var(INHERITED).ok()?.parse().ok()?, LEDGER)?;
        let (mut file, mut text) = (File::from(ledger), String::new());
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        let Ledger { memory, shape, ports } = Ledger::parse(&text)?;
        let port = |entry: PortEntry| {
            let link = Link::adopt(entry.link);
            let adopted =
                |queue: &QueueEntry| queue.sockets.iter().map(|(fd, _)| Socket::adopt(*fd)).collect::<Vec<_>>();
            // Adopt all of them first, so that those that are not continued get closed even if one is missing.
            let sockets: Vec<_> = entry.queues.iter().map(adopted).collect();
            let sockets = sockets.into_iter().map(|queue| queue.into_iter().collect()).collect::<Option<_>>();
            Some(InheritedPort { sockets: sockets?, link: link?, entry })
        };
        let (memory, ports) = (adopt_memory(memory, Region::NAME), ports.into_iter().map(port).collect::<Vec<_>>());
        Some(Inherited { memory: memory?, shape, ports: ports.into_iter().collect::<Option<_>>()? })
    }

    /// Continues with the inherited sockets and memory; the error says why that is not possible.
    fn go_on(self, config: &PoolConfig, ports: &[Wanted], lanes: &Lanes<'_>) -> Result<(Arc<Pool>, Umem), String> {
        let shape = shape(config);
        if self.shape != shape {
            return Err(format!("it had {}, and this run has {shape}", self.shape));
        }
        let mut mapped = Vec::new();
        for InheritedPort { entry, link, sockets } in self.ports {
            let ring = ring_of(check(&entry, ports, sockets_of_a_queue(lanes))?);
            let queues = entry.queues.iter().zip(sockets).map(|(entry, sockets)| Mapped::new(entry, sockets, ring));
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

/// Checks that a port can continue as it was left, with this number of sockets per queue; returns its specification.
fn check<'a>(entry: &PortEntry, ports: &'a [Wanted], sockets: usize) -> Result<&'a PortSpec, String> {
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
        None => Ok(spec),
    }
}

/// A queue whose rings are mapped, still without its buffers.
struct Mapped {
    ends: Vec<(Arc<Socket>, Ring<Descriptor>, u64)>,
    fill: Ring<u64>,
    send: Ring<Descriptor>,
    completed: Ring<u64>,
}

impl Mapped {
    fn new(entry: &QueueEntry, sockets: Vec<Socket>, ring: u32) -> io::Result<Mapped> {
        let mut sockets = sockets.into_iter().zip(entry.sockets.iter().map(|(_, missed)| *missed));
        let (first, missed) = sockets.next().ok_or(io::ErrorKind::InvalidData)?;
        let Rings { fill, receive, send, completed } = first.rings(ring)?;
        let mut ends = vec![(Arc::new(first), receive, missed)];
        for (socket, missed) in sockets {
            let receive = socket.receive_ring(ring)?;
            ends.push((Arc::new(socket), receive, missed));
        }
        Ok(Mapped { ends, fill, send, completed })
    }

    fn with(self, filled: Loans, sent: Loans) -> Queue {
        let Mapped { ends, fill, send, completed } = self;
        Queue { ends, fill, send, completed, filled, sent }
    }
}
