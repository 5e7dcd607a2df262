//! A sink that only counts.

use braid_packet::{Batch, Port};

use crate::sink::{Sink, SinkError, TxCounters, TxQueue};
use crate::source::OpenError;

/// Counts packets and bytes, with one counter per worker, and discards them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn name(&self) -> String {
        "null".into()
    }

    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError> {
        Ok((0..queues).map(|_| Box::new(NullQueue::default()) as Box<dyn TxQueue>).collect())
    }
}

#[derive(Default)]
struct NullQueue {
    counters: TxCounters,
}

impl TxQueue for NullQueue {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        self.counters.packets += out.len() as u64;
        self.counters.bytes += batch.total_len(out);
    }

    fn progress(&mut self, _: u64) {}

    fn counters(&self) -> TxCounters {
        self.counters
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        Ok(self.counters)
    }
}
