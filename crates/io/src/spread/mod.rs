//! Distributes one stream over the queues of the workers.
//!
//! A single queue reads the stream itself, unless the stream may block. For several queues a thread reads
//! the stream and hands over frames in [`Packed`] loads through bounded channels, so a stream may be larger
//! than memory. The thread ends when the stream ends or when all queues are dropped.
//!
//! There is no deadlock: while the thread waits for a full queue, every other queue gets what is held for it as soon as it has room, and
//! its horizon is published. The same happens after every few loads, however fast the workers are. So no other worker, and no sink that
//! restores the order, waits long for a frame that the thread holds back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use braid_packet::pool::JUMBO_FRAME_MAX;
use braid_packet::{Batch, Buffers, FrameInfo, Port};
use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, TrySendError, bounded};

use crate::capture::Damage;
use crate::packed::Packed;
use crate::source::{Ahead, OpenError, QueueSelect, Received, RxCounters, RxQueue};
use crate::stream::{FrameStream, Next};

/// Maximum number of loads that wait for one worker.
const LOADS_WAITING: usize = 8;
/// Number of full loads after which all queues get what is held for them: less than 2 MiB of frames behind one that is held.
const LOADS_BETWEEN: u32 = 16;
/// Maximum sleep of the reading thread, which bounds how late it notices that its queues are gone.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// Opens `queues` queues over a stream.
pub(crate) fn spread<S: FrameStream + 'static>(
    stream: S,
    queues: usize,
    select: Arc<dyn QueueSelect>,
) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
    match queues {
        0 => Err(OpenError::Nothing { what: "a source needs at least one queue" }),
        1 if !stream.may_block() => Ok(vec![Box::new(Inline::new(stream))]),
        _ => spread_by_thread(stream, queues, select),
    }
}

/// Copies a frame into the batch and counts it; false if no buffer is free.
fn take(
    (bytes, info): (&[u8], &FrameInfo),
    batch: &mut Batch,
    buffers: &mut Buffers,
    counters: &mut RxCounters,
) -> bool {
    if !batch.copy_in(buffers, bytes, info) {
        return false;
    }
    counters.packets += 1;
    counters.bytes += u64::from(info.wire_len);
    true
}

/// Counts a frame that cannot be delivered, because it is too long or there is no port for it; returns whether it is one.
fn leave_out((bytes, info): (&[u8], &FrameInfo), ports_max: Port, counters: &mut RxCounters) -> bool {
    let is_too_long = bytes.len() > JUMBO_FRAME_MAX;
    let has_no_port = !is_too_long && info.port >= ports_max;
    counters.too_long += u64::from(is_too_long);
    counters.no_port += u64::from(has_no_port);
    is_too_long || has_no_port
}

fn ahead(info: &FrameInfo) -> Ahead {
    Ahead::Packet { sequence: info.sequence, timestamp_ns: info.timestamp_ns }
}

/// A single queue, which reads the stream itself.
pub(crate) struct Inline<S> {
    stream: S,
    /// Whether the stream's current frame is still to be taken, because no buffer was free.
    held: bool,
    horizon: u64,
    counters: RxCounters,
}

impl<S: FrameStream> Inline<S> {
    pub(crate) fn new(stream: S) -> Inline<S> {
        Inline { stream, held: false, horizon: 0, counters: RxCounters::default() }
    }

    /// Makes sure that the stream holds a frame that can be delivered; if there is none, the error says why.
    fn hold(&mut self) -> Result<(), Received> {
        while !self.held {
            match self.stream.advance() {
                Next::Frame => {
                    let (bytes, info) = self.stream.frame();
                    self.held = !leave_out((bytes, &info), self.stream.ports_max(), &mut self.counters);
                }
                Next::Wait(_) => return Err(Received::Idle),
                Next::End => {
                    self.horizon = u64::MAX;
                    return Err(Received::End);
                }
            }
        }
        Ok(())
    }
}

impl<S: FrameStream> RxQueue for Inline<S> {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let limit = limit.min(batch.room());
        let (mut taken, mut end) = (0, Received::Idle);
        while taken < limit {
            if let Err(nothing) = self.hold() {
                end = nothing;
                break;
            }
            let (bytes, info) = self.stream.frame();
            if !take((bytes, &info), batch, buffers, &mut self.counters) {
                break;
            }
            taken += 1;
            self.held = false;
            self.horizon = info.sequence + 1;
        }
        if taken > 0 { Received::Packets } else { end }
    }

    fn horizon(&self) -> u64 {
        self.horizon
    }

    fn ahead(&mut self) -> Ahead {
        match self.hold() {
            Ok(()) => ahead(&self.stream.frame().1),
            Err(Received::End) => Ahead::End,
            Err(_) => Ahead::Nothing,
        }
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn damages(&self) -> Vec<Damage> {
        self.stream.damages().to_vec()
    }
}

/// What the reading thread tells its queues in addition to frames.
struct Shared {
    /// For each queue, a lower bound for the numbers of frames handed over later. The thread stores it with
    /// Release after a hand-over; a queue loads it with Acquire before it looks for loads. So a queue that
    /// reads a horizon finds every earlier load in the channel.
    horizons: Vec<AtomicU64>,
    damages: Mutex<Vec<Damage>>,
    /// Whether the thread has reached the end of the stream.
    complete: AtomicBool,
}

fn spread_by_thread<S: FrameStream + 'static>(
    stream: S,
    queues: usize,
    select: Arc<dyn QueueSelect>,
) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
    let shared = Arc::new(Shared {
        horizons: (0..queues).map(|_| AtomicU64::new(0)).collect(),
        damages: Mutex::new(Vec::new()),
        complete: AtomicBool::new(false),
    });
    let mut lanes = Vec::new();
    let mut ends: Vec<Box<dyn RxQueue>> = Vec::new();
    for number in 0..queues {
        let (full, loads) = bounded(LOADS_WAITING);
        let (empties, empty) = bounded(LOADS_WAITING + 2);
        lanes.push(Lane { partial: Packed::new(), full, empty, open: true });
        ends.push(Box::new(Spread {
            number,
            loads,
            empties,
            load: Packed::default(),
            at: 0,
            horizon: 0,
            ports_max: stream.ports_max(),
            counters: RxCounters::default(),
            shared: Arc::clone(&shared),
        }));
    }
    let reader = Reader { stream, select, lanes, shared, sequence: 0, since_all: 0 };
    thread::Builder::new()
        .name("braid-source".into())
        .spawn(move || reader.run())
        .map_err(|source| OpenError::Io { path: "thread".into(), source })?;
    Ok(ends)
}

/// The reading thread's side of one queue.
struct Lane {
    partial: Packed,
    full: Sender<Packed>,
    empty: Receiver<Packed>,
    open: bool,
}

struct Reader<S> {
    stream: S,
    select: Arc<dyn QueueSelect>,
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
    /// Sequence number of the next frame.
    sequence: u64,
    /// Number of full loads since all queues got what was held for them.
    since_all: u32,
}

impl<S: FrameStream> Reader<S> {
    fn run(mut self) {
        while self.lanes.iter().any(|lane| lane.open) {
            match self.stream.advance() {
                Next::Frame => self.place(),
                Next::Wait(time) => {
                    self.hand_over_all();
                    thread::sleep(time.min(SLEEP_MAX));
                }
                Next::End => break,
            }
        }
        self.hand_over_all();
        *self.shared.damages.lock().unwrap_or_else(PoisonError::into_inner) = self.stream.damages().to_vec();
        // Release, before the channels close: a queue that sees a closed channel also sees this flag and the damages.
        self.shared.complete.store(true, Ordering::Release);
    }

    fn place(&mut self) {
        let (bytes, info) = self.stream.frame();
        let last = self.lanes.len() - 1;
        // Nobody knows where to steer a frame for which there is no port.
        let is_steered = info.port < self.stream.ports_max();
        let number = if is_steered { self.select.queue(bytes, info.link, info.port).min(last) } else { 0 };
        self.sequence = info.sequence + 1;
        let lane = &mut self.lanes[number];
        if lane.open {
            lane.partial.push(bytes, info);
            if lane.partial.is_full() {
                self.hand_over(number);
                self.since_all += 1;
                if self.since_all >= LOADS_BETWEEN {
                    self.since_all = 0;
                    self.offer_all();
                }
            }
        }
    }

    /// Hands over everything held, because the stream may now block for a long time.
    fn hand_over_all(&mut self) {
        (0..self.lanes.len()).for_each(|number| self.hand_over(number));
    }

    /// Hands over what is held for one queue; waits if that queue is full. Meanwhile the other queues get what is held for them as
    /// soon as they have room: they may have been full as well, and the worker of the full queue may wait for theirs.
    fn hand_over(&mut self, number: usize) {
        self.lanes[number].offer();
        self.publish();
        while self.lanes[number].holds() {
            self.wait_for_room();
            self.offer_all();
        }
    }

    /// Waits until one of the queues for which something is held has room, or is gone; there is one.
    fn wait_for_room(&self) {
        let mut room = Select::new();
        for lane in self.lanes.iter().filter(|lane| lane.holds()) {
            room.send(&lane.full);
        }
        room.ready();
    }

    fn offer_all(&mut self) {
        for lane in &mut self.lanes {
            lane.offer();
        }
        self.publish();
    }

    fn publish(&self) {
        for (lane, horizon) in self.lanes.iter().zip(&self.shared.horizons) {
            horizon.store(lane.partial.first_sequence().unwrap_or(self.sequence), Ordering::Release);
        }
    }
}

impl Lane {
    /// Whether something is held for the queue.
    fn holds(&self) -> bool {
        self.open && !self.partial.is_empty()
    }

    /// Hands over the load without waiting; false if the queue is full.
    fn offer(&mut self) -> bool {
        if self.partial.is_empty() || !self.open {
            self.partial.clear();
            return true;
        }
        match self.full.try_send(std::mem::take(&mut self.partial)) {
            Ok(()) => {}
            Err(TrySendError::Full(load)) => {
                self.partial = load;
                return false;
            }
            Err(TrySendError::Disconnected(_)) => self.open = false,
        }
        self.partial = self.fresh();
        true
    }

    fn fresh(&self) -> Packed {
        self.empty.try_recv().unwrap_or_else(|_| Packed::new())
    }
}

/// One of several queues.
struct Spread {
    number: usize,
    loads: Receiver<Packed>,
    empties: Sender<Packed>,
    load: Packed,
    /// Index of the next frame in the load.
    at: usize,
    horizon: u64,
    ports_max: Port,
    counters: RxCounters,
    shared: Arc<Shared>,
}

impl Spread {
    /// Goes to the next frame that can be delivered, in the next load if the current one is used up. Returns `None` if there is one.
    fn seek(&mut self) -> Option<Received> {
        loop {
            while let Some((bytes, info)) = self.load.frame(self.at) {
                if !leave_out((bytes, &info), self.ports_max, &mut self.counters) {
                    return None;
                }
                self.at += 1;
                self.horizon = info.sequence + 1;
            }
            let horizon = self.shared.horizons[self.number].load(Ordering::Acquire);
            match self.loads.try_recv() {
                Ok(load) => {
                    let mut used = std::mem::replace(&mut self.load, load);
                    self.at = 0;
                    used.clear();
                    // If the return channel is full or closed, the reader just allocates a new load.
                    let _ = self.empties.try_send(used);
                }
                Err(TryRecvError::Empty) => {
                    self.horizon = self.horizon.max(horizon);
                    return Some(Received::Idle);
                }
                Err(TryRecvError::Disconnected) => {
                    self.horizon = u64::MAX;
                    return Some(Received::End);
                }
            }
        }
    }
}

impl RxQueue for Spread {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let limit = limit.min(batch.room());
        let mut taken = 0;
        while taken < limit {
            if let Some(nothing) = self.seek() {
                return if taken > 0 { Received::Packets } else { nothing };
            }
            let Some((bytes, info)) = self.load.frame(self.at) else { break };
            if !take((bytes, &info), batch, buffers, &mut self.counters) {
                break;
            }
            taken += 1;
            self.at += 1;
            self.horizon = info.sequence + 1;
        }
        if taken > 0 { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        self.horizon
    }

    fn ahead(&mut self) -> Ahead {
        match self.seek() {
            None => self.load.frame(self.at).map_or(Ahead::Nothing, |(_, info)| ahead(&info)),
            Some(Received::End) => Ahead::End,
            Some(_) => Ahead::Nothing,
        }
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn damages(&self) -> Vec<Damage> {
        if self.number != 0 {
            return Vec::new();
        }
        let mut damages = self.shared.damages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.horizon == u64::MAX && !self.shared.complete.load(Ordering::Acquire) {
            damages.push(Damage::reader_gone());
        }
        damages
    }
}

#[cfg(test)]
mod tests;
