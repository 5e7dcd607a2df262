//! A sink that keeps everything, for tests.

use std::sync::{Arc, Mutex, PoisonError};

use braid_packet::{Batch, Link, Port};

use crate::sink::{Sink, SinkError, TxCounters, TxQueue};
use crate::source::OpenError;

/// A packet that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedPacket {
    /// Sequence number of the packet in its source (0 if the layout carries none).
    pub sequence: u64,
    /// The worker that sent it.
    pub queue: usize,
    /// The port through which it left.
    pub port: Port,
    /// Link type of its bytes.
    pub link: Link,
    /// Timestamp of its input packet.
    pub timestamp_ns: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A shared view of what a [`MemorySink`] has accepted.
#[derive(Clone, Debug, Default)]
pub struct Collected(Arc<Mutex<Vec<CollectedPacket>>>);

impl Collected {
    /// All packets so far, in input order; packets from the same input packet are in sending order.
    pub fn packets(&self) -> Vec<CollectedPacket> {
        let mut packets = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        packets.sort_by_key(|packet| packet.sequence);
        packets
    }
}

/// A sink that keeps everything: for tests, and for runs that are compared.
#[derive(Debug, Default)]
pub struct MemorySink {
    collected: Collected,
}

impl MemorySink {
    /// Makes a sink and a view of what it accepts.
    pub fn new() -> (MemorySink, Collected) {
        let sink = MemorySink::default();
        let collected = sink.collected.clone();
        (sink, collected)
    }
}

impl Sink for MemorySink {
    fn name(&self) -> String {
        "memory".into()
    }

    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError> {
        let queue = |number| MemoryQueue { number, collected: self.collected.clone(), counters: TxCounters::default() };
        Ok((0..queues).map(|number| Box::new(queue(number)) as Box<dyn TxQueue>).collect())
    }
}

struct MemoryQueue {
    number: usize,
    collected: Collected,
    counters: TxCounters,
}

impl TxQueue for MemoryQueue {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        let mut packets = self.collected.0.lock().unwrap_or_else(PoisonError::into_inner);
        for &(i, port) in out {
            let i = usize::from(i);
            let bytes = batch.bytes(i).to_vec();
            self.counters.packets += 1;
            self.counters.bytes += bytes.len() as u64;
            packets.push(CollectedPacket {
                sequence: batch.sequence(i),
                queue: self.number,
                port,
                link: batch.records()[i].flags.link(),
                timestamp_ns: batch.timestamp_ns(i),
                bytes,
            });
        }
    }

    fn progress(&mut self, _: u64) {}

    fn counters(&self) -> TxCounters {
        self.counters
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        Ok(self.counters)
    }
}
