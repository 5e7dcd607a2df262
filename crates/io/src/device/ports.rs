//! The ports of a plan, and the source over all of them; the sink is in `sending.rs`.
//!
//! Ports are opened, all or none, once the run has its buffers ([`Source::prepare`]). Either one receiver takes from all ports, or
//! several receivers share the ports' queues and hand packets over to the receiver to which they are steered (`redistribute.rs`). A
//! receiver polls its ports in turn and begins with a different one each time, so that a flooded port leaves room for the others.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_packet::{Batch, Buffers, Pool, PoolConfig, Port};

use super::live::{Arrivals, CardHash, RxPort, Tally, TxPort};
use super::open::{Lanes, Opened, Wires, open_all};
use super::redistribute::Handover;
use super::sending::LiveSink;
use super::spec::PortSpec;
use super::user::User;
use crate::af_xdp::Umem;
use crate::bell::Bell;
use crate::progress::{Progress, Unit};
use crate::source::{OpenError, QueueSelect, Received, RxCounters, RxQueue, Source, Waited};

/// Number of receives between two queries of the kernel's drop counters.
const MISSED_PERIOD: u32 = 4096;

/// Traffic counters of one port, over all queues. They are written once per batch and may be read at any time.
#[derive(Debug, Default)]
pub struct DeviceCounters {
    /// Packets received.
    pub rx_packets: AtomicU64,
    /// Bytes received.
    pub rx_bytes: AtomicU64,
    /// Frames that the kernel dropped before Braid received them, and descriptors of the device that made no sense.
    pub rx_missed: AtomicU64,
    /// Packets sent.
    pub tx_packets: AtomicU64,
    /// Bytes sent.
    pub tx_bytes: AtomicU64,
    /// Packets for which the device had no room, or which are too long for it.
    pub tx_dropped: AtomicU64,
}

/// The send sides, by worker, then by port.
type SendingEnds = Vec<Vec<Box<dyn TxPort>>>;

/// The receive sides of one receiver's ports, each with its port number.
type ReceivingEnds = Vec<(Port, Box<dyn RxPort>)>;

/// A callback that receives a message on how a port was opened.
type Announce = Arc<dyn Fn(&str) + Send + Sync>;

/// The ports of a run before they are opened; makes the run's source and sink.
#[derive(Clone)]
pub struct Ports {
    specs: Vec<PortSpec>,
    announce: Announce,
    counters: Arc<[DeviceCounters]>,
    receivers: usize,
    hash: Option<CardHash>,
    user: Option<User>,
    /// The send sides, from [`Source::prepare`] to [`Sink::open`].
    sending: Arc<Mutex<SendingEnds>>,
    /// The resources that [`leave_open`](Ports::leave_open) leaves open.
    wires: Arc<Mutex<Wires>>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("specs", &self.specs).finish_non_exhaustive()
    }
}

impl Ports {
    /// Takes ports in the order of their numbers; `announce` receives one line for each port on how it was opened.
    pub fn new(specs: Vec<PortSpec>, announce: impl Fn(&str) + Send + Sync + 'static) -> Ports {
        let counters = specs.iter().map(|_| DeviceCounters::default()).collect();
        Ports {
            specs,
            announce: Arc::new(announce),
            counters,
            receivers: 1,
            hash: None,
            user: None,
            sending: Arc::default(),
            wires: Arc::default(),
        }
    }

    /// Sets the number of threads that receive (otherwise one). Network cards that support it are told how to choose among their queues.
    pub fn received_by(self, receivers: usize, hash: CardHash) -> Ports {
        Ports { receivers: receivers.max(1), hash: Some(hash), ..self }
    }

    /// Makes the process switch to this user once the ports are open.
    pub fn then_as(self, user: Option<User>) -> Ports {
        Ports { user, ..self }
    }

    /// The counters of each port.
    pub fn counters(&self) -> Arc<[DeviceCounters]> {
        Arc::clone(&self.counters)
    }

    /// The specification of each port.
    pub fn specs(&self) -> &[PortSpec] {
        &self.specs
    }

    /// Leaves TAP interfaces with their addresses, AF_PACKET rings and AF_XDP sockets open for the program that this process is
    /// about to execute. Returns names and values of environment variables that describe them. Packets that arrive meanwhile wait
    /// in the kernel. All other ports are opened anew, and so are AF_XDP ports unless `knows_of` reports that the program knows
    /// their variable, one of [`INHERITED`](super::INHERITED). Call this when nobody receives any more.
    pub fn leave_open(&self, knows_of: impl Fn(&str) -> bool) -> io::Result<[(&'static str, String); 3]> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner).leave(knows_of, &*self.announce)
    }

    /// Makes the source and the sink.
    pub fn ends(&self) -> (LiveSource, LiveSink) {
        (
            LiveSource { ports: self.clone(), umem: Umem::default(), receiving: Vec::new() },
            LiveSink { ports: self.clone() },
        )
    }

    fn lanes(&self, senders: usize) -> Lanes<'_> {
        Lanes { receivers: self.receivers, senders, hash: self.hash.as_ref(), port: 0 }
    }

    pub(super) fn name(&self) -> String {
        self.specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn sending(&self) -> std::sync::MutexGuard<'_, SendingEnds> {
        // Ignore poisoning: the value is only ever replaced as a whole.
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives from all ports.
pub struct LiveSource {
    ports: Ports,
    /// State shared by AF_XDP sockets, from [`Source::pool`] to [`Source::prepare`].
    umem: Umem,
    /// The receive sides by receiver, once the ports are open.
    receiving: Vec<ReceivingEnds>,
}

impl Source for LiveSource {
    fn name(&self) -> String {
        self.ports.name()
    }

    fn ports(&self) -> usize {
        self.ports.specs.len()
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::new(Progress::new(Unit::Packets))
    }

    fn buffers(&self) -> usize {
        super::open::buffers(&self.ports.specs, self.ports.receivers)
    }

    fn pool(&mut self, config: &PoolConfig) -> Result<Arc<Pool>, braid_memory::Error> {
        let (pool, umem) = super::open::pool(&self.ports.specs, config, &self.ports.lanes(0), &*self.ports.announce)?;
        self.umem = umem;
        Ok(pool)
    }

    fn prepare(&mut self, pool: &Arc<Pool>, senders: usize) -> Result<(), OpenError> {
        let Ports { specs, receivers, .. } = &self.ports;
        let opened = open_all(specs, pool, std::mem::take(&mut self.umem), &self.ports.lanes(senders))?;
        self.receiving = (0..*receivers).map(|_| Vec::new()).collect();
        let mut sending: Vec<Vec<_>> = (0..senders).map(|_| Vec::new()).collect();
        for (number, (spec, Opened { how, receive, send, wires })) in specs.iter().zip(opened).enumerate() {
            (self.ports.announce)(&format!("{}: {how}", spec.name));
            self.ports.wires.lock().unwrap_or_else(PoisonError::into_inner).extend(wires);
            // A port with fewer queues than receivers begins at the receiver with the port's number, so that ports begin at different
            // receivers. A port with as many queues as receivers steers by itself, so each receiver gets its own queue.
            let first = if receive.len() < *receivers { number } else { 0 };
            let ends = receive.into_iter().enumerate();
            ends.for_each(|(i, end)| self.receiving[(first + i) % receivers].push((number as Port, end)));
            sending.iter_mut().zip(send).for_each(|(queue, port)| queue.push(port));
        }
        *self.ports.sending() = sending;
        let Some(user) = self.ports.user else { return Ok(()) };
        user.take_over().map_err(|error| OpenError::Device {
            device: format!("user {}:{}", user.uid, user.gid),
            what: format!("not allowed to become this user ({error})"),
            mend: "begin as root; without --user the run stays who began it".to_owned(),
        })
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        if queues != self.receiving.len() {
            let what = format!("ports were opened for {} receivers, not for {queues}", self.receiving.len());
            return Err(OpenError::Config(what));
        }
        let ends = match queues {
            1 => vec![None],
            _ => Handover::between(queues, &select).into_iter().map(Some).collect(),
        };
        let receiving = self.receiving.into_iter().zip(ends);
        Ok(receiving
            .map(|(ports, others)| Box::new(LiveRx::new(&self.ports, ports, others)) as Box<dyn RxQueue>)
            .collect())
    }
}

/// One receiver's side of all its ports.
struct LiveRx {
    ports: ReceivingEnds,
    counters: Arc<[DeviceCounters]>,
    /// For each port, the missed frames already counted.
    missed: Vec<u64>,
    /// The port that is polled first.
    first: usize,
    sequence: u64,
    rounds: u32,
    total: RxCounters,
    /// The rings to the other receivers, if there are any.
    others: Option<Handover>,
    /// What ends a wait; `None` if no descriptor was available.
    bell: Option<Arc<Bell>>,
    /// Scratch space: the descriptors of a wait.
    readable: Vec<RawFd>,
    closing: bool,
}

impl LiveRx {
    fn new(of: &Ports, ports: ReceivingEnds, others: Option<Handover>) -> LiveRx {
        let bell = match &others {
            Some(others) => others.bell().cloned(),
            None => Bell::new().ok().map(Arc::new),
        };
        LiveRx {
            missed: vec![0; ports.len()],
            ports,
            counters: of.counters(),
            first: 0,
            sequence: 0,
            rounds: 0,
            total: RxCounters::default(),
            others,
            bell,
            readable: Vec::new(),
            closing: false,
        }
    }

    fn count_missed(&mut self) {
        for ((number, port), known) in self.ports.iter_mut().zip(&mut self.missed) {
            let more = port.missed().saturating_sub(*known);
            *known += more;
            self.total.missed += more;
            self.counters[usize::from(*number)].rx_missed.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Takes what all ports have, up to `wanted` packets.
    fn take(&mut self, batch: &mut Batch, buffers: &mut Buffers, mut wanted: usize) -> Tally {
        let (mut now_ns, count, mut all) = (None, self.ports.len(), Tally::default());
        for step in 0..count {
            let at = if self.first + step < count { self.first + step } else { self.first + step - count };
            let (number, port) = &mut self.ports[at];
            let mut into = Arrivals {
                batch: &mut *batch,
                buffers: &mut *buffers,
                wanted,
                port: *number,
                sequence: &mut self.sequence,
                now_ns: &mut now_ns,
                tally: Default::default(),
            };
            port.receive(&mut into);
            let tally = into.tally;
            wanted = into.wanted;
            self.total.too_long += tally.too_long;
            (all.packets, all.bytes) = (all.packets + tally.packets, all.bytes + tally.bytes);
            if tally.packets > 0 {
                let counters = &self.counters[usize::from(*number)];
                counters.rx_packets.fetch_add(tally.packets, Ordering::Relaxed);
                counters.rx_bytes.fetch_add(tally.bytes, Ordering::Relaxed);
            }
        }
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        self.rounds = self.rounds.wrapping_add(1);
        if self.closing || self.rounds.is_multiple_of(MISSED_PERIOD) {
            self.count_missed();
        }
        all
    }

    /// Counts what has been delivered.
    fn received(&mut self, tally: Tally, is_over: bool) -> Received {
        self.total.packets += tally.packets;
        self.total.bytes += tally.bytes;
        match tally.packets > 0 {
            true => Received::Packets,
            false if is_over => Received::End,
            false => Received::Idle,
        }
    }
}

impl RxQueue for LiveRx {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let (before, limit) = (batch.len(), limit.min(batch.room()));
        let Some(mut others) = self.others.take() else {
            let tally = self.take(batch, buffers, limit);
            return self.received(tally, self.closing);
        };
        // At most half of the room, so that neither other receivers nor the devices wait forever.
        others.collect(batch, limit.div_ceil(2));
        let own = batch.len();
        if others.asks_devices() {
            self.take(batch, buffers, limit - (own - before));
        }
        let is_quiet = batch.len() == before;
        let came = batch.len();
        let lost = others.hand_on(batch, buffers, own);
        self.total.missed += lost;
        self.total.handed_on += (came - batch.len()) as u64 - lost;
        let is_over = is_quiet && self.closing && others.is_over();
        self.others = Some(others);
        let len = |i| batch.bytes(i).len() as u64;
        let (packets, bytes) = ((batch.len() - before) as u64, (before..batch.len()).map(len).sum());
        self.received(Tally { packets, bytes, too_long: 0 }, is_over)
    }

    fn horizon(&self) -> u64 {
        self.sequence
    }

    fn counters(&self) -> RxCounters {
        self.total
    }

    fn wait(&mut self, at_most: Duration) -> Waited {
        // Waits are rare enough, and without receives nobody else would ask.
        self.count_missed();
        self.readable.clear();
        let announces = self.ports.iter().all(|(_, port)| port.awaits(&mut self.readable));
        match &self.bell {
            Some(bell) if announces && !self.closing => bell.wait_on(&mut self.readable, at_most),
            _ => Waited::Cannot,
        }
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        self.bell.clone()
    }

    fn close(&mut self) -> bool {
        self.closing = true;
        true
    }
}
