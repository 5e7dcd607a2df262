//! AF_XDP: frames are received into Braid's own buffers and sent from them, past the kernel's stack.
//!
//! All sockets of a run share one region, the pool's (unaligned chunks: its stride is 33 cache lines). A received frame becomes
//! a packet where it lies; a packet that is sent stays where it lies, and the batch gets another buffer in its place. In copy
//! mode the kernel copies into and out of the region; in zero-copy mode, asked for by `copy=zero`, the driver does not.
//!
//! A packet can only be given to a socket of the receive queue in which it already is. So each queue has a socket for each receiver, and
//! the program in front of them chooses as the plan steers (`program.rs`); what it does not understand, and what is steered by
//! more than addresses and ports, comes to one receiver of the queue, who hands on. Receivers share the queue's fill ring, and
//! workers its send ring: they take turns, once per batch.
//!
//! Interfaces whose other end is on this machine hand over TCP and UDP packets without their checksum, and nothing says so:
//! it is recognised and completed ([`complete_if_partial`]).

mod program;
mod sys;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_packet::{Buffers, Lent, Loans, Pool};

use self::program::{Program, Steered};
use self::sys::{Descriptor, RING, Ring, Rings, Socket};
use crate::device::lending::{LendingQueue, Transmitter};
use crate::device::live::{Arrivals, RxPort, Sent};
use crate::device::offload::complete_if_partial;
use crate::device::open::Lanes;
use crate::device::{Interface, PortSpec, XdpCopy, XdpMode};

/// Buffers that one queue keeps: a full fill ring, a full send ring, one behind that, and each receiver's ring.
pub(crate) fn buffers_of_a_queue(receivers: usize) -> usize {
    (3 + receivers) * RING as usize
}

/// Buffers that one send queue keeps: those in its ring, and those whose packets somebody has not finished with.
const LENT_MAX: usize = 2 * RING as usize;
/// Bytes that the kernel leaves free before a frame (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM: usize = 256;
/// Ethernet header and two tags.
const LINK_HEADERS: usize = 22;
/// How long something that is taken may be on its way back.
const TAKEN_MAX: Duration = Duration::from_millis(500);
/// Times that the kernel is asked to send before packets are dropped.
const RETRIES: usize = 64;

/// The region of a run, registered with its first socket.
#[derive(Clone, Default)]
pub(crate) struct Umem(Option<Arc<Socket>>);

/// Longest frame that a buffer takes.
fn frame_max(buffer: usize) -> usize {
    buffer - KERNEL_HEADROOM
}

/// Why AF_XDP is not to be had.
pub(crate) enum Refused {
    /// The kernel refused.
    Kernel(io::Error),
    /// Packets of the interface are longer than a buffer: its MTU, and the largest that would do.
    Mtu(usize, usize),
    /// Another program is attached to the interface.
    Taken,
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        if is_taken(&error) { Refused::Taken } else { Refused::Kernel(error) }
    }
}

/// Loads the program and lets it go.
pub(crate) fn probe_program() -> io::Result<()> {
    Program::load(&[], &Lanes { receivers: 1, senders: 1, hash: None, port: 0 }, None).map(drop)
}

/// An open port: how it works, its ways in, its ways out.
pub(crate) type Open = (String, Vec<Receiver>, Vec<Transmitter<QueueOut>>);

/// Opens all queues of an interface.
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
    let plan = Steered::of(lanes);
    let sharers = plan.as_ref().map_or(1, |_| lanes.receivers);
    let mut queues = Vec::new();
    let mut outs = Vec::new();
    for number in 0..interface.queues {
        let (socket, rings) = open_queue(spec, interface, pool, umem, number as u32)?;
        let Rings { fill, receive, send, completed } = rings;
        let mut filling = Filling { fill, loans: Loans::new(pool) };
        // Before the program is attached, so that the first packet finds a buffer.
        filling.refill(&mut Buffers::new(pool));
        let loans = Loans::new(pool);
        let longest = interface.mtu + LINK_HEADERS;
        outs.push(QueueOut { socket: Arc::clone(&socket), send, completed, loans, longest });
        let mut sockets = vec![(socket, receive)];
        for _ in 1..sharers {
            sockets.push(open_sharer(spec, interface, &sockets[0].0, number as u32)?);
        }
        let filling = Arc::new(Mutex::new(filling));
        let end = |(socket, receive)| QueueIn { socket, receive, filling: Arc::clone(&filling) };
        queues.push(sockets.into_iter().map(end).collect::<Vec<_>>());
    }
    let (program, where_it_runs) = attach(spec, interface, &queues, lanes, plan.as_ref())?;
    let copy = if queues[0][0].socket.is_zero_copy() { "zero-copy" } else { "the kernel copies" };
    let polling = if spec.busy_poll_us > 0 { ", busy polling" } else { "" };
    let steers = if plan.is_some() { " and steers as the plan" } else { "" };
    let queued = interface.queues;
    let how = format!("AF_XDP, program in the {where_it_runs}{steers}, {copy}, queues: {queued}{polling}");
    let program = Arc::new(Mutex::new(Some(program)));
    let receiver = |queues| Receiver {
        program: Arc::clone(&program),
        queues,
        first: 0,
        checksums_may_lack: interface.is_virtual(),
        is_polling: spec.busy_poll_us > 0,
        senseless: 0,
    };
    let shares = match plan {
        Some(_) => by_receiver(queues, sharers),
        None => lanes.share(queues.into_iter().flatten().collect()),
    };
    Ok((how, shares.into_iter().map(receiver).collect(), Transmitter::over(outs, lanes.senders)))
}

/// From the ends of each queue to those of each receiver.
fn by_receiver(queues: Vec<Vec<QueueIn>>, receivers: usize) -> Vec<Vec<QueueIn>> {
    let mut shares: Vec<Vec<QueueIn>> = (0..receivers).map(|_| Vec::new()).collect();
    for queue in queues {
        shares.iter_mut().zip(queue).for_each(|(share, end)| share.push(end));
    }
    shares
}

fn open_queue(
    spec: &PortSpec,
    interface: &Interface,
    pool: &Arc<Pool>,
    umem: &mut Umem,
    queue: u32,
) -> Result<(Arc<Socket>, Rings), Refused> {
    let socket = Socket::new()?;
    if umem.0.is_none() {
        socket.register(&Loans::new(pool).region())?;
    }
    let rings = socket.rings()?;
    patiently(|| socket.bind(interface.index, queue, umem.0.as_deref(), spec.copy == XdpCopy::Zero))?;
    if spec.busy_poll_us > 0 {
        socket.busy_poll(spec.busy_poll_us)?;
    }
    let socket = Arc::new(socket);
    umem.0.get_or_insert_with(|| Arc::clone(&socket));
    Ok((socket, rings))
}

/// Another socket of a queue, to receive only; it shares all else with the first one.
fn open_sharer(
    spec: &PortSpec,
    interface: &Interface,
    first: &Socket,
    queue: u32,
) -> Result<(Arc<Socket>, Ring<Descriptor>), Refused> {
    let socket = Socket::new()?;
    let receive = socket.receive_ring()?;
    socket.bind(interface.index, queue, Some(first), false)?;
    if spec.busy_poll_us > 0 {
        socket.busy_poll(spec.busy_poll_us)?;
    }
    Ok((Arc::new(socket), receive))
}

/// Tries again while something is taken: the kernel takes queues and program back some milliseconds after their owner has ended.
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

/// Attaches the program where it may run; the second value says where.
fn attach(
    spec: &PortSpec,
    interface: &Interface,
    queues: &[Vec<QueueIn>],
    lanes: &Lanes<'_>,
    plan: Option<&Steered<'_>>,
) -> Result<(Program, &'static str), Refused> {
    let sockets: Vec<Vec<&Socket>> =
        queues.iter().map(|queue| queue.iter().map(|end| &*end.socket).collect()).collect();
    let mut program = Program::load(&sockets, lanes, plan)?;
    let mut attach = |is_native| {
        program.attach(interface.index, is_native)?;
        Ok(if is_native { "driver" } else { "kernel's stack (generic)" })
    };
    let attached = match spec.mode {
        XdpMode::Native => attach(true),
        XdpMode::Generic => attach(false),
        XdpMode::Any => attach(true).or_else(|error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST | libc::EPERM) => Err(error),
            _ => attach(false),
        }),
    };
    let where_it_runs = attached?;
    Ok((program, where_it_runs))
}

/// What the receivers of one queue share: the buffers that the kernel fills.
struct Filling {
    fill: Ring<u64>,
    loans: Loans,
}

/// One receiver's end of a receive queue.
struct QueueIn {
    socket: Arc<Socket>,
    receive: Ring<Descriptor>,
    filling: Arc<Mutex<Filling>>,
}

/// One receiver's way in, by some queues of an interface. The first of them to go takes the program off, before its queues give
/// buffers back: nothing is written to buffers after that.
pub(crate) struct Receiver {
    program: Arc<Mutex<Option<Program>>>,
    queues: Vec<QueueIn>,
    /// Queue that is asked first.
    first: usize,
    checksums_may_lack: bool,
    is_polling: bool,
    /// Descriptors that made no sense.
    senseless: u64,
}

impl Filling {
    /// Gives the kernel as many buffers as it has room for.
    fn refill(&mut self, buffers: &mut Buffers) {
        let room = self.fill.room();
        if room < RING / 8 {
            return;
        }
        for _ in 0..room {
            let Some(at) = self.loans.lend(buffers) else { break };
            self.fill.put(at);
        }
        self.fill.publish();
    }
}

impl QueueIn {
    /// Has the kernel go on; whoever shares the queue may be at it already.
    fn keep_going(&self, buffers: &mut Buffers, is_polling: bool) {
        let Ok(mut filling) = self.filling.try_lock() else { return };
        filling.refill(buffers);
        let is_due = is_polling || filling.fill.needs_wakeup();
        drop(filling);
        if is_due {
            self.socket.wake_receive();
        }
    }

    /// Takes what has come; frames that make no sense are counted.
    fn take(&mut self, into: &mut Arrivals<'_>) -> u64 {
        if !self.receive.has_more() {
            return 0;
        }
        let mut senseless = 0;
        // What a panic leaves behind are buffers that are lent and not filled: they are missing, and nothing else is wrong.
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        while into.has_room() {
            let Some(frame) = self.receive.take() else { break };
            let info = into.info(frame.len());
            if filling.loans.receive(into.batch, Lent { at: frame.at(), len: frame.len() }, &info) {
                into.took(frame.len());
            } else {
                senseless += 1;
            }
        }
        self.receive.release();
        senseless
    }
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        let (count, before) = (self.queues.len(), into.batch.len());
        for step in 0..count {
            let at = if self.first + step < count { self.first + step } else { self.first + step - count };
            let queue = &mut self.queues[at];
            queue.keep_going(into.buffers, self.is_polling);
            self.senseless += queue.take(into);
        }
        if self.checksums_may_lack {
            (before..into.batch.len()).for_each(|i| complete_if_partial(into.batch.packet(i, None).bytes_mut()));
        }
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
    }

    fn missed(&mut self) -> u64 {
        self.queues.iter().map(|queue| queue.socket.missed()).sum::<u64>() + self.senseless
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// One send queue.
pub(crate) struct QueueOut {
    socket: Arc<Socket>,
    send: Ring<Descriptor>,
    completed: Ring<u64>,
    loans: Loans,
    /// Longest frame.
    longest: usize,
}

impl QueueOut {
    /// Takes back the buffers of packets that have left.
    fn reclaim(&mut self, buffers: &mut Buffers) {
        while let Some(at) = self.completed.take() {
            self.loans.give_back(buffers, Descriptor::new(at, 0).at());
        }
        self.completed.release();
    }

    /// Room for this many packets, made if need be; fewer if the device takes none.
    fn make_room(&mut self, buffers: &mut Buffers, wanted: usize) -> usize {
        self.reclaim(buffers);
        if (self.send.room() as usize) < wanted || self.loans.count() + wanted > LENT_MAX {
            self.push();
            self.reclaim(buffers);
        }
        (self.send.room() as usize).min(LENT_MAX.saturating_sub(self.loans.count()))
    }
}

impl LendingQueue for QueueOut {
    fn send(
        &mut self,
        buffers: &mut Buffers,
        out: &[u16],
        mut lend: impl FnMut(&mut Loans, &mut Buffers, usize) -> Option<Lent>,
    ) -> Sent {
        let room = self.make_room(buffers, out.len()).min(out.len());
        let mut sent = Sent { device_full: (out.len() - room) as u64, ..Sent::default() };
        for &i in &out[..room] {
            match lend(&mut self.loans, buffers, i.into()) {
                Some(frame) if frame.len <= self.longest => {
                    self.send.put(Descriptor::new(frame.at, frame.len));
                    sent.packets += 1;
                    sent.bytes += frame.len as u64;
                }
                Some(frame) => {
                    self.loans.give_back(buffers, frame.at);
                    sent.too_long += 1;
                }
                None => sent.device_full += 1,
            }
        }
        self.send.publish();
        self.push();
        sent
    }

    fn push(&mut self) {
        for _ in 0..RETRIES {
            if self.send.waiting() == 0 || !self.send.needs_wakeup() {
                return;
            }
            // EAGAIN: some are sent, ask again. Anything else means that the device has no room now.
            match self.socket.wake_send() {
                Err(error) if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => return,
                _ => {}
            }
        }
    }
}
