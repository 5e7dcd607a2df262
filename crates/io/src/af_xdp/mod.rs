//! The AF_XDP back end: frames are received into Braid's own buffers and sent from them, bypassing the kernel's network stack.
//!
//! All sockets of a run share one memory region, the pool's (in unaligned chunks, because its stride is 33 cache lines). A received
//! frame becomes a packet in place. A packet that is sent stays in place, and another buffer replaces it in the batch. In copy mode
//! the kernel copies into and out of the region; in zero-copy mode, requested by `copy=zero`, the driver accesses it directly.
//!
//! An XDP program can redirect a packet only to a socket of the receive queue on which the packet arrived.
//! Therefore each queue has one socket for each receiver, and the program chooses among them as the plan
//! steers (`program.rs`). Packets that the program does not understand, and all packets if steering uses
//! more than addresses and ports, go to one receiver of the queue, which hands them over. The receivers
//! share the queue's fill ring, and the workers share its send ring; they take turns, once per batch.
//!
//! Interfaces whose other end is on this machine deliver TCP, UDP and SCTP packets without their checksum and without saying so. Such
//! packets are recognised and completed ([`complete_if_partial`](crate::device::offload::complete_if_partial)).
//!
//! The region has a descriptor, so sockets, program and buffers can outlive this program when the process executes another one (`kept.rs`).

mod kept;
mod ledger;
mod program;
mod queues;
mod sys;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_packet::{Buffers, Loans, Pool};

use self::kept::{Attached, Left};
pub(crate) use self::kept::{INHERITED, Umem, Wire, leave, pool};
use self::program::{Program, Steered, print_of};
use self::queues::{Filling, Missed, QueueIn};
pub(crate) use self::queues::{QueueOut, Receiver};
use self::sys::{Descriptor, Ring, Rings, SEND_RING, Socket};
use crate::device::lending::Transmitter;
use crate::device::open::Lanes;
use crate::device::{Interface, PortSpec, XdpCopy, XdpMode};

/// Number of entries of a receive ring and of a fill ring, unless the port says otherwise.
const RING_DEFAULT: u32 = 2048;

/// Number of entries of a receive ring and of a fill ring of this port.
fn ring_of(spec: &PortSpec) -> u32 {
    spec.ring.unwrap_or(RING_DEFAULT)
}

/// Number of buffers that one queue holds: a full fill ring, each receiver's ring, a full send ring, and as many awaiting completion.
pub(crate) fn buffers_of_a_queue(spec: &PortSpec, receivers: usize) -> usize {
    (1 + receivers) * ring_of(spec) as usize + 2 * SEND_RING as usize
}

/// Bytes that the kernel reserves before a frame (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM: usize = 256;
/// Size of an Ethernet header and two tags.
const LINK_HEADERS: usize = 22;
/// How long to wait for an occupied queue or interface to become free.
const TAKEN_MAX: Duration = Duration::from_millis(500);

/// Length of the longest frame that a buffer holds.
fn frame_max(buffer: usize) -> usize {
    buffer - KERNEL_HEADROOM
}

/// Why AF_XDP cannot be used.
pub(crate) enum Refused {
    /// The kernel reported an error.
    Kernel(io::Error),
    /// Packets of the interface may be longer than a buffer: its MTU, and the largest MTU that would fit.
    Mtu(usize, usize),
    /// Another program is attached to the interface, or has its queues.
    Taken,
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        if is_taken(&error) { Refused::Taken } else { Refused::Kernel(error) }
    }
}

/// Loads the program and unloads it again.
pub(crate) fn probe_program() -> io::Result<()> {
    Program::load(&[], &Lanes { receivers: 1, senders: 1, hash: None, port: 0 }, None).map(drop)
}

/// An open port: how it operates, its receive sides, its send sides, and what keeps it open.
pub(crate) type Open = (String, Vec<Receiver>, Vec<Transmitter<QueueOut>>, Wire);

/// A queue with its rings, new or as the previous program left it. When dropped, it closes its sockets before it returns buffers.
struct Queue {
    /// One entry for each receiver if the program steers, else a single one: a socket, its receive ring, and the number of missed
    /// frames that previous programs have already reported.
    ends: Vec<(Arc<Socket>, Ring<Descriptor>, u64)>,
    fill: Ring<u64>,
    send: Ring<Descriptor>,
    completed: Ring<u64>,
    filled: Loans,
    sent: Loans,
}

/// Number of sockets per queue.
fn sockets_of_a_queue(lanes: &Lanes<'_>) -> usize {
    Steered::of(lanes).map_or(1, |_| lanes.receivers)
}

/// Opens all queues of an interface, or continues with those that the previous program left.
pub(crate) fn open(
    spec: &PortSpec,
    interface: &Interface,
    pool: &Arc<Pool>,
    umem: &mut Umem,
    lanes: &Lanes<'_>,
) -> Result<Open, Refused> {
    let most = frame_max(Loans::new(pool).region().buffer) - LINK_HEADERS;
    if interface.mtu > most {
        return Err(Refused::Mtu(interface.mtu, most));
    }
    let (plan, sockets) = (Steered::of(lanes), sockets_of_a_queue(lanes));
    let print = print_of(interface.queues, sockets, lanes, plan.as_ref());
    let (queues, program, is_native, goes_on) = match umem.take(interface.index) {
        Some(Left { queues, link, print: had, is_native, .. }) if had == print => {
            (queues, Program::left(link), is_native, true)
        }
        Some(Left { queues, link, is_native, .. }) => {
            let mut program = load(&queues, lanes, plan.as_ref())?;
            program.replace(link)?;
            (queues, program, is_native, true)
        }
        None => {
            let queues = open_queues(spec, interface, pool, umem, sockets)?;
            let mut program = load(&queues, lanes, plan.as_ref())?;
            let is_native = attach(&mut program, spec, interface)?;
            (queues, program, is_native, false)
        }
    };
    let is_zero_copy = queues[0].ends[0].0.is_zero_copy();
    let how = how(spec, &queues, [is_native, is_zero_copy, plan.is_some(), goes_on]);
    let (program, mut ins, mut outs) = (Arc::new(program), Vec::new(), Vec::new());
    for queue in queues {
        let (inward, out) = halves(queue, interface.mtu + LINK_HEADERS);
        ins.push(inward);
        outs.push(Arc::new(Mutex::new(out)));
    }
    let attached = Attached { interface: interface.index, is_native, print, program: Arc::clone(&program) };
    let wire = Wire::new(spec, attached, pool, umem, &ins, &outs);
    let shares = match plan {
        Some(_) => by_receiver(ins, lanes.receivers),
        None => lanes.share(ins.into_iter().flatten().collect()),
    };
    let receiver = |queues| Receiver::new(&program, queues, interface.is_virtual(), spec.busy_poll_us > 0);
    Ok((how, shares.into_iter().map(receiver).collect(), Transmitter::over(&outs, lanes.senders), wire))
}

/// Describes for people how the port operates.
fn how(spec: &PortSpec, queues: &[Queue], [is_native, is_zero_copy, steers, goes_on]: [bool; 4]) -> String {
    let program = if is_native { "driver" } else { "kernel's stack (generic)" };
    let steers = if steers { " and steers as the plan" } else { "" };
    let copy = if is_zero_copy { "zero-copy" } else { "the kernel copies" };
    let polling = if spec.busy_poll_us > 0 { ", busy polling" } else { "" };
    let lent: usize = queues.iter().map(|queue| queue.filled.count() + queue.sent.count()).sum();
    let left = if goes_on { format!(", goes on with its sockets and {lent} buffers in them") } else { String::new() };
    let ring = spec.ring.map(|ring| format!(" with rings of {ring}")).unwrap_or_default();
    format!("AF_XDP, program in the {program}{steers}, {copy}, queues: {}{ring}{polling}{left}", queues.len())
}

/// Splits a queue into its receiving ends and its sending end.
fn halves(queue: Queue, longest: usize) -> (Vec<QueueIn>, QueueOut) {
    let Queue { ends, fill, send, completed, filled, sent } = queue;
    let socket = Arc::clone(&ends[0].0);
    let filling = Arc::new(Mutex::new(Filling { fill, loans: filled }));
    let inward = ends.into_iter().map(|(socket, receive, told)| QueueIn {
        socket,
        receive,
        filling: Arc::clone(&filling),
        missed: Arc::new(Missed::after(told)),
    });
    (inward.collect(), QueueOut { socket, send, completed, loans: sent, longest, left: 0 })
}

/// Regroups the receiving ends from queues to receivers.
fn by_receiver(queues: Vec<Vec<QueueIn>>, receivers: usize) -> Vec<Vec<QueueIn>> {
    let mut shares: Vec<Vec<QueueIn>> = (0..receivers).map(|_| Vec::new()).collect();
    for queue in queues {
        shares.iter_mut().zip(queue).for_each(|(share, end)| share.push(end));
    }
    shares
}

fn open_queues(
    spec: &PortSpec,
    interface: &Interface,
    pool: &Arc<Pool>,
    umem: &mut Umem,
    sockets: usize,
) -> Result<Vec<Queue>, Refused> {
    let mut queues = Vec::new();
    for number in 0..interface.queues as u32 {
        let (socket, Rings { fill, receive, send, completed }) = open_queue(spec, interface, pool, umem, number)?;
        let mut filling = Filling { fill, loans: Loans::new(pool) };
        // Fill before the program is attached, so that the first packet finds a buffer.
        filling.fill_up(&mut Buffers::new(pool));
        let mut ends = vec![(socket, receive, 0)];
        for _ in 1..sockets {
            let (socket, receive) = open_sharer(spec, interface, &ends[0].0, number)?;
            ends.push((socket, receive, 0));
        }
        let Filling { fill, loans: filled } = filling;
        queues.push(Queue { ends, fill, send, completed, filled, sent: Loans::new(pool) });
    }
    Ok(queues)
}

fn open_queue(
    spec: &PortSpec,
    interface: &Interface,
    pool: &Arc<Pool>,
    umem: &mut Umem,
    queue: u32,
) -> Result<(Arc<Socket>, Rings), Refused> {
    let socket = Socket::new()?;
    if umem.first.is_none() {
        socket.register(&Loans::new(pool).region())?;
    }
    socket.size_rings(ring_of(spec))?;
    let rings = socket.rings(ring_of(spec))?;
    patiently(|| socket.bind(interface.index, queue, umem.first.as_deref(), spec.copy == XdpCopy::Zero))?;
    if spec.busy_poll_us > 0 {
        socket.busy_poll(spec.busy_poll_us)?;
    }
    let socket = Arc::new(socket);
    umem.first.get_or_insert_with(|| Arc::clone(&socket));
    Ok((socket, rings))
}

/// Opens another socket of a queue that only receives; it shares everything else with the first one.
fn open_sharer(
    spec: &PortSpec,
    interface: &Interface,
    first: &Socket,
    queue: u32,
) -> Result<(Arc<Socket>, Ring<Descriptor>), Refused> {
    let socket = Socket::new()?;
    socket.size_receive_ring(ring_of(spec))?;
    let receive = socket.receive_ring(ring_of(spec))?;
    socket.bind(interface.index, queue, Some(first), false)?;
    if spec.busy_poll_us > 0 {
        socket.busy_poll(spec.busy_poll_us)?;
    }
    Ok((Arc::new(socket), receive))
}

/// Retries while something is occupied: the kernel releases queues and programs some milliseconds after their owner has ended.
fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let give_up = Instant::now() + TAKEN_MAX;
    loop {
        match attempt() {
            Err(error) if is_taken(&error) && Instant::now() < give_up => std::thread::sleep(TAKEN_MAX / 50),
            result => return result,
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Loads the program for these queues.
fn load(queues: &[Queue], lanes: &Lanes<'_>, plan: Option<&Steered<'_>>) -> io::Result<Program> {
    let sockets: Vec<Vec<&Socket>> =
        queues.iter().map(|queue| queue.ends.iter().map(|(socket, ..)| &**socket).collect()).collect();
    Program::load(&sockets, lanes, plan)
}

/// Attaches the program where it may run; returns whether it runs in the driver.
fn attach(program: &mut Program, spec: &PortSpec, interface: &Interface) -> io::Result<bool> {
    let mut attach = |is_native| program.attach(interface.index, is_native).map(|()| is_native);
    match spec.mode {
        XdpMode::Native => attach(true),
        XdpMode::Generic => attach(false),
        XdpMode::Any => attach(true).or_else(|error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST | libc::EPERM) => Err(error),
            _ => attach(false),
        }),
    }
}
