//! Tests of a thread that reads a stream which may block.

use std::time::Instant;

use braid_packet::{Layout, Link, Pool, PoolConfig};

use super::*;
use crate::packed::FRAMES_MAX;
use crate::source::FirstQueue;

/// Announces before each frame that it may block, and blocks when its frames are used up, until `ends` is closed.
struct Hesitant {
    frames: u64,
    announced: bool,
    ends: Receiver<()>,
}

impl FrameStream for Hesitant {
    fn advance(&mut self) -> Next {
        self.announced = !self.announced;
        if self.announced {
            return Next::Wait(Duration::ZERO);
        }
        if self.frames == 100 {
            let _ = self.ends.recv();
            return Next::End;
        }
        self.frames += 1;
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        (&[7; 60], FrameInfo { sequence: self.frames - 1, ..FrameInfo::default() })
    }

    fn may_block(&self) -> bool {
        true
    }
}

#[test]
fn what_came_before_a_wait_is_delivered_however_slow_the_worker_was() {
    let (held, ends) = bounded(0);
    let stream = Hesitant { frames: 0, announced: false, ends };
    let mut queue = spread(stream, 1, Arc::new(FirstQueue)).expect("a thread").pop().expect("a queue");
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).expect("memory");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
    // Wait until more frames have arrived than loads may wait.
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    while queue.counters().packets < 100 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", queue.counters());
        queue.receive(&mut batch, &mut buffers, 16);
    }
    drop(held);
}

/// Frames of port 1 and then frames of port 0, each as many as given.
struct Bursts {
    frames: [u64; 2],
    read: u64,
}

impl FrameStream for Bursts {
    fn advance(&mut self) -> Next {
        self.read += 1;
        if self.read <= self.frames.iter().sum() { Next::Frame } else { Next::End }
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let port = Port::from(self.read <= self.frames[0]);
        (&[7; 60], FrameInfo { sequence: self.read - 1, port, ..FrameInfo::default() })
    }

    fn ports_max(&self) -> Port {
        2
    }
}

/// Each port has its queue.
struct ByPort;

impl QueueSelect for ByPort {
    fn queue(&self, _: &[u8], _: Link, port: Port) -> usize {
        port.into()
    }
}

#[test]
fn a_queue_gets_its_frames_while_another_one_is_full() {
    let full = (LOADS_WAITING * FRAMES_MAX) as u64;
    let stream = Bursts { frames: [full + 1, full + 2 * FRAMES_MAX as u64], read: 0 };
    let mut queues = spread(stream, 2, Arc::new(ByPort)).expect("a thread");
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).expect("memory");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
    // Wait until both queues are full, and the thread holds one frame more for the second one.
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    // The worker of the first queue waits for that frame and takes none of its own.
    while queues[1].counters().packets < full + 1 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", queues[1].counters());
        queues[1].receive(&mut batch, &mut buffers, 16);
        batch.release(&mut buffers);
    }
    assert_eq!(queues[0].counters().packets, 0);
}

#[test]
fn a_frame_for_a_quiet_queue_is_not_held_back_for_long() {
    let shared = Arc::new(Shared {
        horizons: (0..2).map(|_| AtomicU64::new(0)).collect(),
        damages: Mutex::new(Vec::new()),
        complete: AtomicBool::new(false),
    });
    // No queue is ever full.
    let (lanes, loads): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let ((full, loads), (_, empty)) = (bounded(64), bounded(1));
            (Lane { partial: Packed::new(), full, empty, open: true }, loads)
        })
        .unzip();
    let frames = [1, u64::from(LOADS_BETWEEN) * FRAMES_MAX as u64];
    let (stream, select) = (Bursts { frames, read: 0 }, Arc::new(ByPort));
    let mut reader = Reader { stream, select, lanes, shared: Arc::clone(&shared), sequence: 0, since_all: 0 };
    while reader.stream.advance() == Next::Frame {
        reader.place();
    }
    assert_eq!(loads[1].len(), 1, "the frame of the quiet queue has been handed over");
    assert_eq!(shared.horizons[1].load(Ordering::Relaxed), frames[0] + frames[1]);
}

#[test]
fn queues_that_are_full_and_emptied_all_the_time_get_every_frame() {
    let frames = 200_000;
    let stream = Bursts { frames: [0, frames], read: 0 };
    let mut queue = spread_by_thread(stream, 1, Arc::new(ByPort)).expect("a thread").pop().expect("a queue");
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).expect("memory");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
    while queue.receive(&mut batch, &mut buffers, 256) != Received::End {
        batch.release(&mut buffers);
    }
    assert_eq!((queue.counters().packets, queue.damages().len()), (frames, 0));
}

/// A capture that is read by its interfaces, of which there are three, for a run with two ports.
#[test]
fn what_came_in_by_an_interface_without_a_port_is_counted() {
    use crate::capture::{CaptureReader, CaptureSource, CaptureWriter, PortSplit, Precision, interface_names};

    let path = std::env::temp_dir().join(format!("braid-interfaces-{}.pcapng", std::process::id()));
    let names = vec!["eth0".to_owned(), String::new()];
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).expect("room").named(names);
    // An interface is described before its first packet, so the order of these is 0, 2, 1.
    for (sequence, port) in [0, 2, 1, 0, 2].into_iter().enumerate() {
        let info = FrameInfo { port, sequence: sequence as u64, wire_len: 60, ..FrameInfo::default() };
        writer.write(&[port as u8; 60], &info);
    }
    writer.finish().expect("room");
    assert_eq!(interface_names(&path), ["eth0"], "the others are described later");
    let mut reader = CaptureReader::open(&path).expect("a capture");
    while reader.advance().expect("whole") {}
    assert_eq!(reader.interface_names(), ["eth0", "port 2", "port 1"]);
    for workers in 1..3 {
        let source = CaptureSource::new(vec![path.clone()]).split(PortSplit::Interface(2));
        let stream = source.into_stream().expect("a capture");
        let mut queues = spread(stream, workers, Arc::new(FirstQueue)).expect("queues");
        let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).expect("memory");
        let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
        while queues[0].receive(&mut batch, &mut buffers, 16) != Received::End {}
        let ports: Vec<_> = batch.records().iter().map(|record| record.port).collect();
        assert_eq!((ports, queues[0].counters().no_port), (vec![0, 1, 0, 1], 1), "{workers} workers");
    }
    std::fs::remove_file(&path).expect("it is there");
}
