//! Replay from memory, distribution to queues, faults and taps, as a worker uses them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_io::capture::{CaptureReader, CaptureSink, CaptureSource, CaptureWriter, Precision, Replay};
use braid_io::generate::{GenConfig, Generator, GeneratorSource, Profile};
use braid_io::wrap::{FaultSource, Faults, TapSink, TapSource};
use braid_io::{
    CollectedPacket, FirstQueue, MemorySink, NullSink, QueueSelect, Received, Renewal, Repeat, ReplaySource, RxQueue,
    Sink, Source,
};
use braid_packet::{Batch, Buffers, FrameInfo, Layout, Link, Pool, PoolConfig, Port};
use tempfile::TempDir;

/// Selects a queue by the sum of the bytes of addresses and ports.
struct BySum(usize);

impl QueueSelect for BySum {
    fn queue(&self, frame: &[u8], _: Link, _: Port) -> usize {
        frame[26..38].iter().map(|&byte| usize::from(byte)).sum::<usize>() % self.0
    }
}

fn pool() -> Arc<Pool> {
    Pool::new(&PoolConfig { buffers: 2048, jumbos: 16, ..PoolConfig::default() }).expect("a pool")
}

/// Runs all queues in turn and collects the output of a sink in input order.
fn run(source: Box<dyn Source>, queues: usize, limit: usize) -> (Vec<CollectedPacket>, Vec<Box<dyn RxQueue>>) {
    let (sink, collected) = MemorySink::new();
    let rx = run_into(source, Box::new(sink), queues, limit);
    (collected.packets(), rx)
}

fn run_into(source: Box<dyn Source>, sink: Box<dyn Sink>, queues: usize, limit: usize) -> Vec<Box<dyn RxQueue>> {
    let pool = pool();
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::capture())), Buffers::new(&pool));
    let mut rx = source.open(queues, Arc::new(BySum(queues))).expect("opens");
    let mut tx = sink.open(queues).expect("opens");
    let mut open: Vec<usize> = (0..queues).collect();
    while !open.is_empty() {
        open.retain(|&number| {
            let received = rx[number].receive(&mut batch, &mut buffers, limit);
            assert!(batch.len() <= limit);
            let all: Vec<(u16, Port)> = (0..batch.len()).map(|i| (i as u16, batch.records()[i].port)).collect();
            tx[number].send(&batch, &all);
            tx[number].progress(rx[number].horizon());
            batch.release(&mut buffers);
            received != Received::End
        });
    }
    for tx in &mut tx {
        tx.finish().expect("written");
    }
    drop((batch, buffers));
    assert_eq!(pool.shared_free(), 2048 + 16, "every buffer came back");
    rx
}

fn config() -> GenConfig {
    GenConfig { reverse: 0.3, ..Profile::Edge.config(5000) }
}

fn generated() -> Box<dyn Source> {
    Box::new(GeneratorSource::new("edge", config()).expect("valid"))
}

fn replay(repeat: Repeat) -> ReplaySource {
    ReplaySource::load("edge", &mut Generator::new(config()).expect("valid"), u64::MAX, repeat)
}

/// Asserts equality except for the queue.
#[track_caller]
fn assert_same(a: &[CollectedPacket], b: &[CollectedPacket]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a, &CollectedPacket { queue: a.queue, ..b.clone() });
    }
}

#[test]
fn generated_packets_are_the_same_for_any_number_of_queues_and_from_memory() {
    let (one, rx) = run(generated(), 1, 256);
    assert_eq!((one.len(), rx[0].counters().packets), (5000, 5000));
    for queues in [2, 3, 5] {
        assert_same(&one, &run(generated(), queues, 17).0);
        assert_same(&one, &run(Box::new(replay(Repeat::Passes(1))), queues, 100).0);
    }
    assert!(one.iter().any(|packet| packet.port == 1), "both directions");
}

#[test]
fn a_replay_goes_on_with_numbers_and_time_stamps_from_pass_to_pass() {
    let (packets, rx) = run(Box::new(replay(Repeat::Passes(3))), 2, 64);
    assert_eq!(packets.len(), 15_000);
    assert_eq!(rx.iter().map(|rx| rx.counters().packets).sum::<u64>(), 15_000);
    assert!(packets.iter().enumerate().all(|(i, packet)| packet.sequence == i as u64));
    assert!(packets.is_sorted_by_key(|packet| packet.timestamp_ns));
    assert_eq!(packets[0].bytes, packets[10_000].bytes);
    let (packets, _) = run(Box::new(replay(Repeat::PacketsPerQueue(7777))), 1, 64);
    assert_eq!(packets.len(), 7777);
}

#[test]
fn with_each_pass_a_share_of_the_frames_is_written_anew_and_the_others_stay() {
    let rewrite = |line: &mut [u8; 64], round: u64| line[0] = round as u8;
    let renewal = Renewal { every: 4, together: 2, rewrite };
    let (original, _) = run(Box::new(replay(Repeat::Passes(1))), 1, 256);
    for queues in [1, 2] {
        let (packets, _) = run(Box::new(replay(Repeat::Passes(7)).renewed(renewal)), queues, 64);
        for (i, packet) in packets.iter().enumerate() {
            let (pass, position) = (i / 5000, i % 5000);
            // The last pass that renewed it, if any did: passes of its class, from the second pass on.
            let renewed = (1..=pass).rev().find(|pass| pass % 4 == position / 2 % 4);
            let first = renewed.map_or(original[position].bytes[0], |pass| (pass / 4 + 1) as u8);
            assert_eq!(packet.bytes[0], first, "packet {position} of pass {pass}, {queues} queues");
            assert_eq!(packet.bytes[1..], original[position].bytes[1..]);
        }
    }
}

#[test]
fn an_empty_replay_ends_at_once() {
    let mut nothing = Generator::new(Profile::Edge.config(0)).expect("valid");
    let source = ReplaySource::load("nothing", &mut nothing, 10, Repeat::Forever);
    assert!(run(Box::new(source), 2, 64).0.is_empty());
}

#[test]
fn progress_counts_to_its_total() {
    for source in [generated(), Box::new(replay(Repeat::Passes(2)))] {
        let progress = source.progress();
        run(source, 2, 256);
        assert_eq!(Some(progress.done()), progress.total());
    }
}

#[test]
fn dropped_queues_end_the_reading_thread_and_others_go_on() {
    let source = Box::new(GeneratorSource::new("endless", Profile::Edge.config(u64::MAX >> 30)).expect("valid"));
    let mut rx = source.open(3, Arc::new(BySum(3))).expect("opens");
    rx.truncate(1);
    let pool = pool();
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
    let mut packets = 0;
    while packets < 20_000 {
        assert_ne!(rx[0].receive(&mut batch, &mut buffers, 256), Received::End);
        packets += batch.len();
        batch.release(&mut buffers);
    }
}

#[test]
fn an_exhausted_pool_loses_nothing() {
    let pool = Pool::new(&PoolConfig { buffers: 100, jumbos: 0, ..PoolConfig::default() }).expect("a pool");
    for source in [generated(), Box::new(replay(Repeat::Passes(1)))] {
        let mut rx = source.open(1, Arc::new(FirstQueue)).expect("opens");
        let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
        let mut packets = 0;
        while rx[0].receive(&mut batch, &mut buffers, 256) != Received::End {
            packets += batch.len();
            batch.release(&mut buffers);
        }
        assert_eq!(packets, 5000);
    }
}

#[test]
fn frames_beyond_the_longest_buffer_are_counted() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("long.pcap");
    let mut writer = CaptureWriter::create(&path, Precision::default()).expect("created");
    writer.finish().expect("an empty capture");
    // Write the records by hand, because our writer writes none that is so long.
    let mut bytes = std::fs::read(&path).expect("read");
    for len in [60u32, 400_000, 70_000] {
        bytes.extend([0, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(bytes.len() + len as usize, 1);
    }
    std::fs::write(&path, bytes).expect("written");
    for queues in [1, 2] {
        let (packets, rx) = run(Box::new(CaptureSource::new(vec![path.clone()])), queues, 256);
        assert_eq!(packets.iter().map(|packet| packet.bytes.len()).collect::<Vec<_>>(), [60, 70_000]);
        assert_eq!(rx.iter().map(|rx| rx.counters().too_long).sum::<u64>(), 1);
    }
}

#[test]
fn a_capture_plays_again_and_at_its_own_pace() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("in.pcap");
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).expect("created");
    for i in 0..10u64 {
        let info = FrameInfo { timestamp_ns: i * 20_000_000, wire_len: 60, ..FrameInfo::default() };
        writer.write(&[i as u8; 60], &info);
    }
    writer.finish().expect("written");
    for queues in [1, 2] {
        let source = CaptureSource::new(vec![path.clone()]).replay(Replay { passes: 3, speed: Some(10.0) });
        let start = Instant::now();
        let (packets, _) = run(Box::new(source), queues, 256);
        // Three times 180 ms, ten times as fast.
        assert!(start.elapsed() >= Duration::from_millis(53), "{:?}", start.elapsed());
        assert_eq!(packets.len(), 30);
        assert!(packets.is_sorted_by_key(|packet| packet.timestamp_ns));
    }
    let wrong = CaptureSource::new(vec![path]).replay(Replay { passes: 1, speed: Some(0.0) });
    assert!(wrong.into_stream().is_err());
}

#[test]
fn a_capture_from_the_first_time_stamp_to_the_last_plays_again() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("in.pcapng");
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).expect("created");
    for timestamp_ns in [0, u64::MAX] {
        writer.write(&[0; 60], &FrameInfo { timestamp_ns, wire_len: 60, ..FrameInfo::default() });
    }
    writer.finish().expect("written");
    let source = CaptureSource::new(vec![path]).replay(Replay { passes: 2, speed: None });
    let (packets, _) = run(Box::new(source), 1, 256);
    let times: Vec<u64> = packets.iter().map(|packet| packet.timestamp_ns).collect();
    assert_eq!(times, [0, u64::MAX, u64::MAX, u64::MAX]);
}

fn faulty(
    faults: Faults,
    queues: usize,
) -> (Vec<CollectedPacket>, braid_io::wrap::FaultCounters, Vec<Box<dyn RxQueue>>) {
    let (source, report) = FaultSource::new(generated(), faults).expect("valid");
    let (packets, rx) = run(Box::new(source), queues, 64);
    (packets, report.counters(), rx)
}

#[test]
fn every_fault_is_counted_and_nothing_else_happens() {
    let (clean, _) = run(generated(), 1, 64);
    let (packets, none, _) = faulty(Faults::default(), 2);
    assert_same(&clean, &packets);
    assert_eq!(none, Default::default());

    let (packets, counters, rx) = faulty(Faults { drop: 0.1, ..Faults::default() }, 3);
    assert_eq!(packets.len() as u64, 5000 - counters.dropped);
    assert!((350..650).contains(&counters.dropped), "{counters:?}");
    assert_eq!(rx.iter().map(|rx| rx.counters().injected_loss).sum::<u64>(), counters.dropped);
    assert_eq!(rx.iter().map(|rx| rx.counters().packets).sum::<u64>(), packets.len() as u64);

    let (packets, counters, _) = faulty(Faults { duplicate: 0.1, ..Faults::default() }, 1);
    assert_eq!(packets.len() as u64, 5000 + counters.duplicated);
    assert!(counters.duplicated > 100, "{counters:?}");

    let (packets, counters, _) = faulty(Faults { corrupt: 0.1, ..Faults::default() }, 1);
    let changed =
        |a: &CollectedPacket, b: &CollectedPacket| a.bytes.iter().zip(&b.bytes).filter(|(a, b)| a != b).count();
    assert_eq!(clean.iter().zip(&packets).map(|(a, b)| changed(a, b) as u64).sum::<u64>(), counters.corrupted);

    let (packets, counters, _) = faulty(Faults { truncate: 0.1, ..Faults::default() }, 1);
    let cut =
        clean.iter().zip(&packets).filter(|(a, b)| b.bytes.len() < a.bytes.len() && a.bytes.starts_with(&b.bytes));
    assert_eq!(cut.count() as u64, counters.truncated);
    assert!((350..650).contains(&counters.truncated), "{counters:?}");

    // In input order again there is no difference.
    let (packets, counters, _) = faulty(Faults { reorder: 0.1, ..Faults::default() }, 1);
    assert_same(&clean, &packets);
    assert!((300..650).contains(&counters.reordered), "{counters:?}");
}

#[test]
fn the_same_seed_gives_the_same_faults_and_impossible_ones_are_refused() {
    let all = Faults { seed: 7, drop: 0.1, duplicate: 0.1, corrupt: 0.1, truncate: 0.1, reorder: 0.1 };
    let (first, second) = (faulty(all, 1), faulty(all, 1));
    assert_eq!((first.0, first.1), (second.0, second.1));
    assert!(FaultSource::new(generated(), Faults { drop: -0.1, ..all }).is_err());
}

#[test]
fn taps_write_what_enters_and_what_leaves() {
    let directory = TempDir::new().expect("a directory");
    let (before, after) = (directory.path().join("in.pcapng"), directory.path().join("out.pcapng"));
    let (source, report) = TapSource::new(generated(), CaptureSink::new(before.clone()));
    let sink = TapSink::new(Box::new(NullSink), CaptureSink::new(after.clone()));
    drop(run_into(Box::new(source), Box::new(sink), 3, 64));
    assert!(report.error().is_none());
    let (clean, _) = run(generated(), 1, 64);
    for path in [before, after] {
        let mut reader = CaptureReader::open(&path).expect("opens");
        for packet in &clean {
            assert_eq!(reader.advance(), Ok(true));
            assert_eq!(reader.captured().bytes, packet.bytes);
        }
        assert_eq!(reader.advance(), Ok(false));
    }
}
