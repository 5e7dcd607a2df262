//! Capture files as a sink: one thread writes the workers' packets in input order.
//!
//! Workers hand over loads of packets through one bounded channel, and each marks its progress in an atomic; the thread merges them
//! ([`Merge`]) and writes. There is no deadlock: the thread always accepts what is handed over, whatever it waits for. If a worker
//! neither sends nor marks for so long that [`HELD_BYTES_MAX`] are held, the thread continues without it; packets of that worker
//! that then arrive late are counted as [`TxCounters::disordered`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use braid_packet::{Batch, FrameInfo, Port};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::encode::{CaptureWriter, Precision, SNAP_LEN};
use crate::merge::Merge;
use crate::packed::Packed;
use crate::sink::{Sink, SinkError, TxCounters, TxQueue};
use crate::source::OpenError;

/// Bytes of packets that may wait for a slower worker before order is given up.
const HELD_BYTES_MAX: usize = 256 << 20;
/// Maximum number of pending loads per worker.
const LOADS_WAITING: usize = 8;
/// Number of marks without a full load after which a partial load is handed over.
const PATIENCE: u32 = 64;
/// Maximum time between two checks of the marks.
const TICK: Duration = Duration::from_millis(2);

/// Capture files (pcap, pcapng, gzip: by name) as a sink. The packets keep the timestamps of their input.
///
/// The input order is restored if the batches' layout carries sequence numbers; otherwise packets are in
/// the order in which workers hand them over.
#[derive(Clone, Debug)]
pub struct CaptureSink {
    paths: Vec<PathBuf>,
    precision: Precision,
    names: Vec<String>,
    ports: Port,
}

impl CaptureSink {
    /// Writes all ports to one file; in pcapng each port is an interface. `-` is standard output, in pcapng.
    pub fn new(path: PathBuf) -> CaptureSink {
        CaptureSink::per_port(vec![path])
    }

    /// Writes each port to its own file.
    pub fn per_port(paths: Vec<PathBuf>) -> CaptureSink {
        CaptureSink { paths, precision: Precision::default(), names: Vec::new(), ports: 0 }
    }

    /// Sets the resolution of the timestamps.
    pub fn precision(mut self, precision: Precision) -> CaptureSink {
        self.precision = precision;
        self
    }

    /// Tells how many ports there are: in a pcapng file for all of them, interfaces have the numbers of the ports.
    pub fn of_ports(mut self, ports: Port) -> CaptureSink {
        self.ports = ports;
        self
    }

    /// Names the ports, for the interfaces of pcapng files.
    pub fn named(mut self, names: Vec<String>) -> CaptureSink {
        self.names = names;
        self
    }
}

impl Sink for CaptureSink {
    fn name(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }

    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError> {
        if self.paths.is_empty() || queues == 0 {
            return Err(OpenError::Nothing { what: "a sink needs a file and a queue" });
        }
        let ports = if self.paths.len() > 1 { 0 } else { self.ports };
        let create =
            |path: &PathBuf| Ok(CaptureWriter::create(path, self.precision)?.named(self.names.clone()).of_ports(ports));
        let files: Result<Vec<_>, OpenError> = self.paths.iter().map(create).collect();
        let (sender, loads) = bounded(LOADS_WAITING * queues);
        let (empties, empty) = bounded(2 * LOADS_WAITING * queues);
        let shared = Arc::new(Shared {
            marks: (0..queues).map(|_| AtomicU64::new(0)).collect(),
            open: AtomicUsize::new(queues),
            thread: Mutex::new(None),
        });
        let writer = Writer {
            files: files?,
            loads,
            empties,
            shared: Arc::clone(&shared),
            merge: Merge::new(queues),
            last: 0,
            disordered: 0,
        };
        let thread = thread::Builder::new().name("braid-sink".into()).spawn(move || writer.run());
        let thread = thread.map_err(|source| OpenError::Io { path: "thread".into(), source })?;
        *shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        let ports = (self.paths.len() > 1).then_some(self.paths.len());
        let queue = |number| -> Box<dyn TxQueue> {
            Box::new(CaptureQueue {
                number,
                ports,
                sender: Some(sender.clone()),
                empty: empty.clone(),
                load: Packed::new(),
                promised: 0,
                waited: 0,
                counters: TxCounters::default(),
                gone: false,
                shared: Arc::clone(&shared),
            })
        };
        Ok((0..queues).map(queue).collect())
    }
}

struct Shared {
    /// For each worker, a lower bound for the numbers of frames handed over later. The worker stores it with Release after a
    /// hand-over; the writer loads it with Acquire before it empties the channel, so it then holds every packet below the mark.
    marks: Vec<AtomicU64>,
    /// Number of queues that are not finished.
    open: AtomicUsize,
    thread: Mutex<Option<JoinHandle<Report>>>,
}

/// The writer's report at its end.
struct Report {
    result: Result<(), SinkError>,
    disordered: u64,
}

struct CaptureQueue {
    number: usize,
    /// Number of ports, if each has its own file.
    ports: Option<usize>,
    /// `None` once finished.
    sender: Option<Sender<(usize, Packed)>>,
    empty: Receiver<Packed>,
    load: Packed,
    promised: u64,
    waited: u32,
    counters: TxCounters,
    gone: bool,
    shared: Arc<Shared>,
}

impl CaptureQueue {
    fn hand_over(&mut self) {
        self.waited = 0;
        if let (Some(sender), false) = (&self.sender, self.load.is_empty()) {
            let fresh = self.empty.try_recv().unwrap_or_else(|_| Packed::new());
            let load = std::mem::replace(&mut self.load, fresh);
            self.gone |= sender.send((self.number, load)).is_err();
        }
        self.shared.marks[self.number].store(self.promised, Ordering::Release);
    }
}

impl TxQueue for CaptureQueue {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        for &(i, port) in out {
            if self.ports.is_some_and(|ports| usize::from(port) >= ports) {
                self.counters.no_such_port += 1;
                continue;
            }
            let i = usize::from(i);
            let bytes = batch.bytes(i);
            if bytes.len() > SNAP_LEN as usize {
                // It is not truncated, because nothing is written that differs from what was sent.
                self.counters.too_long += 1;
                continue;
            }
            let info = FrameInfo {
                port,
                link: batch.records()[i].flags.link(),
                timestamp_ns: batch.timestamp_ns(i),
                wire_len: batch.wire_len(i),
                sequence: batch.sequence(i),
            };
            self.load.push(bytes, info);
            self.counters.packets += 1;
            self.counters.bytes += bytes.len() as u64;
            if self.load.is_full() {
                self.hand_over();
            }
        }
    }

    fn progress(&mut self, sequence: u64) {
        self.promised = self.promised.max(sequence);
        self.waited += 1;
        // The final mark is not followed by another one, so hand over now.
        if self.load.is_empty() || self.waited >= PATIENCE || sequence == u64::MAX {
            self.hand_over();
        }
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        if self.sender.is_none() {
            return Ok(self.counters);
        }
        self.promised = u64::MAX;
        self.hand_over();
        self.sender = None;
        // AcqRel: the last queue joins the thread only after all other queues have finished with it.
        if self.shared.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            match thread.map(JoinHandle::join) {
                Some(Ok(report)) => {
                    self.counters.disordered = report.disordered;
                    report.result?;
                }
                _ => return Err(SinkError::WriterGone),
            }
        }
        if self.gone { Err(SinkError::WriterGone) } else { Ok(self.counters) }
    }
}

impl Drop for CaptureQueue {
    fn drop(&mut self) {
        // Completes the files; only callers of `finish` get the report.
        let _ = self.finish();
    }
}

struct Writer {
    files: Vec<CaptureWriter>,
    loads: Receiver<(usize, Packed)>,
    empties: Sender<Packed>,
    shared: Arc<Shared>,
    merge: Merge,
    /// Largest sequence number written.
    last: u64,
    disordered: u64,
}

impl Writer {
    fn run(mut self) -> Report {
        loop {
            match self.loads.recv_timeout(TICK) {
                Ok((lane, load)) => self.merge.push(lane, load),
                Err(RecvTimeoutError::Timeout) => self.files.iter_mut().for_each(CaptureWriter::flush),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.take_marks();
            while let Some(lane) = self.merge.next() {
                self.write(lane);
            }
            while self.merge.held_bytes() > HELD_BYTES_MAX {
                let Some(lane) = self.merge.next_at_any_price() else { break };
                self.write(lane);
            }
        }
        while let Some(lane) = self.merge.next_at_any_price() {
            self.write(lane);
        }
        let failures = self.files.iter_mut().filter_map(|file| file.finish().err()).collect();
        Report { result: SinkError::all(failures), disordered: self.disordered }
    }

    /// Reads the marks, then takes everything handed over before them, which is in the channel now.
    fn take_marks(&mut self) {
        let marks: Vec<u64> = self.shared.marks.iter().map(|mark| mark.load(Ordering::Acquire)).collect();
        for _ in 0..self.loads.len() {
            let Ok((lane, load)) = self.loads.try_recv() else { break };
            self.merge.push(lane, load);
        }
        for (lane, mark) in marks.into_iter().enumerate() {
            self.merge.mark(lane, mark);
        }
    }

    fn write(&mut self, lane: usize) {
        let Writer { files, merge, last, disordered, .. } = self;
        let several = files.len() > 1;
        let used = merge.take(lane, |bytes, info| {
            *disordered += u64::from(info.sequence < *last);
            *last = info.sequence.max(*last);
            // The queues accept only ports that have a file.
            if let Some(file) = files.get_mut(if several { usize::from(info.port) } else { 0 }) {
                file.write(bytes, info);
            }
        });
        if let Some(mut load) = used {
            load.clear();
            // If the return channel is full, a worker just allocates a new load.
            let _ = self.empties.try_send(load);
        }
    }
}
