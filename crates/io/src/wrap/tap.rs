//! Records what passes in a capture file: what enters the workers, or what leaves them. The file is in input order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_packet::{Batch, Buffers, Pool, PoolConfig, Port};

use crate::bell::Bell;
use crate::capture::{CaptureSink, Damage};
use crate::progress::Progress;
use crate::sink::{Sink, SinkError, TxCounters, TxQueue};
use crate::source::{Ahead, OpenError, QueueSelect, Received, RxCounters, RxQueue, Source, Waited};

/// A shared report of what a tap could not write.
#[derive(Clone, Debug, Default)]
pub struct TapReport(Arc<Mutex<Option<SinkError>>>);

impl TapReport {
    /// The error, if any, once all queues have ended.
    pub fn error(&self) -> Option<SinkError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, result: Result<TxCounters, SinkError>) {
        if let Err(error) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

/// A source whose packets are also written to a file as the workers receive them.
pub struct TapSource {
    inner: Box<dyn Source>,
    file: CaptureSink,
    report: TapReport,
}

impl TapSource {
    /// Taps a source; also returns the report of errors.
    pub fn new(inner: Box<dyn Source>, file: CaptureSink) -> (TapSource, TapReport) {
        let report = TapReport::default();
        (TapSource { inner, file, report: report.clone() }, report)
    }
}

impl Source for TapSource {
    fn name(&self) -> String {
        format!("{}, tapped to {}", self.inner.name(), self.file.name())
    }

    fn ports(&self) -> usize {
        self.inner.ports()
    }

    fn progress(&self) -> Arc<Progress> {
        self.inner.progress()
    }

    fn buffers(&self) -> usize {
        self.inner.buffers()
    }

    fn pool(&mut self, config: &PoolConfig) -> Result<Arc<Pool>, braid_memory::Error> {
        self.inner.pool(config)
    }

    fn prepare(&mut self, pool: &Arc<Pool>, senders: usize) -> Result<(), OpenError> {
        self.inner.prepare(pool, senders)
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        let TapSource { inner, file, report } = *self;
        let inner = inner.open(queues, select)?;
        let files = Box::new(file).open(queues)?;
        let tap = |(inner, file)| -> Box<dyn RxQueue> {
            Box::new(TapRx { inner, file, passing: Vec::new(), report: report.clone() })
        };
        Ok(inner.into_iter().zip(files).map(tap).collect())
    }
}

struct TapRx {
    inner: Box<dyn RxQueue>,
    file: Box<dyn TxQueue>,
    passing: Vec<(u16, Port)>,
    report: TapReport,
}

impl RxQueue for TapRx {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let first = batch.len();
        let received = self.inner.receive(batch, buffers, limit);
        self.passing.clear();
        self.passing.extend((first..batch.len()).map(|i| (i as u16, batch.records()[i].port)));
        self.file.send(batch, &self.passing);
        self.file.progress(self.inner.horizon());
        if received == Received::End {
            self.report.note(self.file.finish());
        }
        received
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn ahead(&mut self) -> Ahead {
        self.inner.ahead()
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }

    fn close(&mut self) -> bool {
        self.inner.close()
    }

    fn wait(&mut self, at_most: Duration) -> Waited {
        self.inner.wait(at_most)
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        self.inner.bell()
    }

    fn damages(&self) -> Vec<Damage> {
        self.inner.damages()
    }
}

impl Drop for TapRx {
    fn drop(&mut self) {
        self.report.note(self.file.finish());
    }
}

/// A sink whose packets are also written to a file.
pub struct TapSink {
    inner: Box<dyn Sink>,
    file: CaptureSink,
}

impl TapSink {
    /// Taps a sink; errors of the file are errors of the sink.
    pub fn new(inner: Box<dyn Sink>, file: CaptureSink) -> TapSink {
        TapSink { inner, file }
    }
}

impl Sink for TapSink {
    fn name(&self) -> String {
        format!("{}, tapped to {}", self.inner.name(), self.file.name())
    }

    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError> {
        let TapSink { inner, file } = *self;
        let inner = inner.open(queues)?;
        let files = Box::new(file).open(queues)?;
        Ok(inner
            .into_iter()
            .zip(files)
            .map(|(inner, file)| Box::new(TapTx { inner, file }) as Box<dyn TxQueue>)
            .collect())
    }
}

struct TapTx {
    inner: Box<dyn TxQueue>,
    file: Box<dyn TxQueue>,
}

impl TxQueue for TapTx {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        self.file.send(batch, out);
        self.inner.send(batch, out);
    }

    fn send_owned(&mut self, batch: &mut Batch, buffers: &mut Buffers, out: &[(u16, Port)]) {
        self.file.send(batch, out);
        self.inner.send_owned(batch, buffers, out);
    }

    fn progress(&mut self, sequence: u64) {
        self.file.progress(sequence);
        self.inner.progress(sequence);
    }

    fn counters(&self) -> TxCounters {
        self.inner.counters()
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        let file = self.file.finish();
        let inner = self.inner.finish()?;
        file.map(|_| inner)
    }
}
