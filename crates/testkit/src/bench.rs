//! A test bench: one worker, packets handed in one at a time, and what became of each handed back.
//!
//! It is the worker that real runs have, with queues in memory: what a function does here it does everywhere.
//!
//! ```text
//!  send(port, time, frame) ──▶ RxQueue ──▶ Worker::step ──▶ TxQueue ──▶ Outcome { sent, dropped }
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use braid_io::{Received, RxCounters, RxQueue, SinkError, TxCounters, TxQueue};
use braid_memory::HugePages;
use braid_nf::state::{Domain, StateBuilder, StateObject, Tx};
use braid_nf::{Emitted, Event, Stage};
use braid_packet::fields::{SEQUENCE, StageUse, TIMESTAMP_NS, WIRE_LEN};
use braid_packet::{Batch, Buffers, FrameInfo, Pool, PoolConfig, Port};
use braid_runtime::{Chain, Clock, Parts, Sharing, Timeline, Worker, WorkerCounters};

/// Packet sets that a bench keeps if nothing is said about it.
const SETS: usize = 1024;

/// What became of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was sent because of it, and by which port.
    pub sent: Vec<(Port, Vec<u8>)>,
    /// Why it was dropped.
    pub dropped: Option<&'static str>,
}

impl Outcome {
    /// The ports by which something was sent.
    pub fn ports(&self) -> Vec<Port> {
        self.sent.iter().map(|(port, _)| *port).collect()
    }

    /// The one frame that was sent, and its port; panics if there is none, or more than one.
    #[track_caller]
    pub fn only(&self) -> (Port, &[u8]) {
        match &self.sent[..] {
            [(port, bytes)] => (*port, bytes),
            sent => panic!("{} frames were sent, dropped: {:?}", sent.len(), self.dropped),
        }
    }
}

/// One worker and its chain.
pub struct Bench {
    worker: Worker,
    wire: Arc<Mutex<Wire>>,
    objects: Vec<Arc<dyn StateObject>>,
    sequence: u64,
}

/// Frames on their way in and out.
#[derive(Default)]
struct Wire {
    waiting: VecDeque<(FrameInfo, Vec<u8>)>,
    sent: Vec<(Port, Vec<u8>)>,
}

impl Bench {
    /// A bench with a single function, on `ports` ports.
    #[track_caller]
    pub fn new(ports: u16, build: impl FnOnce(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
        Bench::chain(ports, SETS, |builder| vec![build(builder)])
    }

    /// A bench with a single function and room for `sets` packet sets.
    #[track_caller]
    pub fn with_sets(ports: u16, sets: usize, build: impl FnOnce(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
        Bench::chain(ports, sets, |builder| vec![build(builder)])
    }

    /// A bench with several functions.
    #[track_caller]
    pub fn chain(ports: u16, sets: usize, build: impl FnOnce(&mut StateBuilder) -> Vec<Box<dyn Stage>>) -> Bench {
        let pages = HugePages::Never;
        let domain = Domain::new(1);
        let mut builder = StateBuilder::new(&domain, pages);
        let stages = build(&mut builder);

        let source = StageUse::new("source").writes(TIMESTAMP_NS, 8).writes(WIRE_LEN, 4).writes(SEQUENCE, 8);
        let sink = StageUse::new("sink").reads(TIMESTAMP_NS, 8).reads(WIRE_LEN, 4).reads(SEQUENCE, 8);
        let sharing = &mut Sharing { is_local: &|_| true, builder: &mut builder, capacity: sets };
        let chain = Arc::new(Chain::new(stages, &[source, sink], sharing).expect("a chain that can be built"));
        let objects = builder.finish();
        let pool = Pool::new(&PoolConfig { buffers: 1024, jumbos: 8, pages }).expect("memory for buffers");
        let mut tx = Tx::new(&domain, 0);
        start(&chain, &mut tx, ports);
        let wire = Arc::new(Mutex::new(Wire::default()));
        let parts = Parts {
            id: 0,
            chain,
            pool,
            receive: Box::new(WireQueue(Arc::clone(&wire))),
            send: Box::new(WireQueue(Arc::clone(&wire))),
            tx,
            clock: Clock::Capture,
            timeline: Arc::new(Timeline::new(1)),
            ports,
            batch: 64,
            sets,
            pages,
        };
        let worker = Worker::new(parts).expect("memory for packet sets");
        Bench { worker, wire, objects, sequence: 0 }
    }

    /// Hands a frame in by `port` at `ms` milliseconds.
    pub fn send(&mut self, port: Port, ms: u64, frame: &[u8]) -> Outcome {
        self.send_at(port, ms * 1_000_000, frame)
    }

    /// The same, with the time in nanoseconds.
    pub fn send_at(&mut self, port: Port, timestamp_ns: u64, frame: &[u8]) -> Outcome {
        self.send_info(FrameInfo { port, timestamp_ns, wire_len: frame.len() as u32, ..FrameInfo::default() }, frame)
    }

    /// The same, with everything that a source says of a frame. The sequence number is counted here.
    pub fn send_info(&mut self, info: FrameInfo, frame: &[u8]) -> Outcome {
        let before = self.worker.counters().drops.clone();
        let sent = self.send_batch([(info, frame.to_vec())]);
        let more = |(stage, reason, count): &(&str, &'static str, u64)| {
            let earlier = before.iter().find(|(s, r, _)| s == stage && r == reason).map_or(0, |(_, _, count)| count);
            *count > earlier
        };
        let dropped = self.worker.counters().drops.iter().find(more).map(|(_, reason, _)| reason);
        Outcome { sent, dropped }
    }

    /// Hands several frames in as one batch, and returns what was sent.
    pub fn send_batch(&mut self, frames: impl IntoIterator<Item = (FrameInfo, Vec<u8>)>) -> Vec<(Port, Vec<u8>)> {
        for (info, frame) in frames {
            self.wire().waiting.push_back((FrameInfo { sequence: self.sequence, ..info }, frame));
            self.sequence += 1;
        }
        while !self.wire().waiting.is_empty() {
            self.worker.step();
        }
        std::mem::take(&mut self.wire().sent)
    }

    /// What the worker has counted.
    pub fn counters(&mut self) -> WorkerCounters {
        self.worker.counters().clone()
    }

    /// The content of a state object, named as in the plan (`function.object`).
    #[track_caller]
    pub fn object(&self, name: &str) -> Vec<u8> {
        match self.objects.iter().find(|object| object.name() == name) {
            Some(object) => object.snapshot(),
            None => panic!("no object `{name}`"),
        }
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }
}

/// Before the first packet, as a launch does it.
fn start(chain: &Chain, tx: &mut Tx, ports: u16) {
    let mut emitted = Emitted::default();
    for stage in chain.stages() {
        tx.set_now(0);
        stage.start(&mut Event { tx, emitted: &mut emitted, ports }).expect("nobody to conflict with");
        tx.commit().expect("nobody to conflict with");
    }
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().expect("the bench runs on one thread")
}

/// Either end of the worker.
struct WireQueue(Arc<Mutex<Wire>>);

impl RxQueue for WireQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let mut wire = lock(&self.0);
        let before = batch.len();
        while batch.len() - before < limit && batch.room() > 0 {
            let Some((info, bytes)) = wire.waiting.pop_front() else { break };
            assert!(batch.copy_in(buffers, &bytes, &info), "no buffer for a frame of {} bytes", bytes.len());
        }
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        0
    }

    fn counters(&self) -> RxCounters {
        RxCounters::default()
    }
}

impl TxQueue for WireQueue {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        let sent = out.iter().map(|(i, port)| (*port, batch.bytes(usize::from(*i)).to_vec()));
        lock(&self.0).sent.extend(sent);
    }

    fn progress(&mut self, _: u64) {}

    fn counters(&self) -> TxCounters {
        TxCounters::default()
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        Ok(TxCounters::default())
    }
}
