//! What is written is read back unchanged: by Braid, by the pcap-file crate and by tshark, through one worker and through several.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use braid_io::capture::{CaptureReader, CaptureSink, CaptureSource, CaptureWriter, Precision, interface_names};
use braid_io::{FirstQueue, OpenError, QueueSelect, Received, RxQueue, Sink, SinkError, Source, TxCounters, TxQueue};
use braid_packet::{Batch, Buffers, FrameInfo, Layout, Link, Pool, PoolConfig, Port};
use braid_testkit::skip::skip;
use proptest::prelude::*;
use tempfile::TempDir;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    port: Port,
    link: Link,
    timestamp_ns: u64,
    wire_len: u32,
    bytes: Vec<u8>,
}

const LINKS: [Link; 6] = [Link::Ethernet, Link::RawIp, Link::Cooked1, Link::Cooked2, Link::Loopback, Link::Other];

/// Packets with arbitrary bytes, capture timestamps, several ports and link types.
fn packets(links: &'static [Link]) -> impl Strategy<Value = Vec<Packet>> {
    let packet = (
        0u16..3,
        proptest::sample::select(links),
        0u64..4_000_000_000_000_000_000,
        0u32..2000,
        proptest::collection::vec(any::<u8>(), 0..300),
    );
    let packet = packet.prop_map(|(port, link, timestamp_ns, cut, bytes)| Packet {
        port,
        link,
        timestamp_ns,
        wire_len: bytes.len() as u32 + cut,
        bytes,
    });
    proptest::collection::vec(packet, 0..40)
}

fn write(path: &Path, precision: Precision, packets: &[Packet]) {
    let mut writer = CaptureWriter::create(path, precision).expect("created");
    for packet in packets {
        let Packet { port, link, timestamp_ns, wire_len, ref bytes } = *packet;
        writer.write(bytes, &FrameInfo { port, link, timestamp_ns, wire_len, sequence: 0 });
    }
    writer.finish().expect("written");
}

fn read(path: &Path) -> Vec<Packet> {
    let mut reader = CaptureReader::open(path).expect("opens");
    let mut packets = Vec::new();
    while reader.advance().expect("whole") {
        let captured = reader.captured();
        packets.push(Packet {
            port: 0,
            link: captured.link(),
            timestamp_ns: captured.timestamp_ns.expect("stamped"),
            wire_len: captured.wire_len,
            bytes: captured.bytes.to_vec(),
        });
    }
    packets
}

/// The packets as a file of this precision stores them; ports are not read back.
fn as_read(packets: &[Packet], precision: Precision) -> Vec<Packet> {
    let unit = if precision == Precision::Microseconds { 1000 } else { 1 };
    let one = |packet: &Packet| Packet { port: 0, timestamp_ns: packet.timestamp_ns / unit * unit, ..packet.clone() };
    packets.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pcapng_keeps_everything(packets in packets(&LINKS), gzip: bool, nano: bool) {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join(if gzip { "out.pcapng.gz" } else { "out.pcapng" });
        let precision = if nano { Precision::Nanoseconds } else { Precision::Microseconds };
        write(&path, precision, &packets);
        prop_assert_eq!(read(&path), as_read(&packets, precision));
    }

    #[test]
    fn pcap_keeps_packets_of_one_link_type(packets in packets(&[Link::Cooked2]), gzip: bool, nano: bool) {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join(if gzip { "out.pcap.gz" } else { "out.pcap" });
        let precision = if nano { Precision::Nanoseconds } else { Precision::Microseconds };
        write(&path, precision, &packets);
        prop_assert_eq!(read(&path), as_read(&packets, precision));
    }

    #[test]
    fn an_independent_reader_agrees(packets in packets(&[Link::Ethernet])) {
        let directory = TempDir::new().expect("a directory");
        let (pcap, ng) = (directory.path().join("out.pcap"), directory.path().join("out.pcapng"));
        write(&pcap, Precision::Nanoseconds, &packets);
        write(&ng, Precision::Nanoseconds, &packets);

        let mut reader = pcap_file::pcap::PcapReader::new(File::open(pcap).expect("opens")).expect("a pcap");
        for packet in &packets {
            let theirs = reader.next_packet().expect("one more").expect("valid");
            prop_assert_eq!(theirs.timestamp.as_nanos(), u128::from(packet.timestamp_ns));
            prop_assert_eq!(theirs.orig_len, packet.wire_len);
            prop_assert_eq!(&theirs.data[..], &packet.bytes[..]);
        }
        prop_assert!(reader.next_packet().is_none());

        let mut reader = pcap_file::pcapng::PcapNgReader::new(File::open(ng).expect("opens")).expect("a pcapng");
        let mut left = packets.iter();
        while let Some(block) = reader.next_block() {
            if let pcap_file::pcapng::Block::EnhancedPacket(theirs) = block.expect("valid") {
                let packet = left.next().expect("no more than written");
                prop_assert_eq!(theirs.original_len, packet.wire_len);
                prop_assert_eq!(&theirs.data[..], &packet.bytes[..]);
            }
        }
        prop_assert!(left.next().is_none());
    }

    #[test]
    fn a_file_cut_anywhere_gives_its_whole_packets_and_never_panics(
        packets in packets(&[Link::Ethernet]), cut in 0.0f64..1.0, flips in proptest::collection::vec((0.0f64..1.0, any::<u8>()), 0..4), ng: bool,
    ) {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join(if ng { "out.pcapng" } else { "out.pcap" });
        write(&path, Precision::Nanoseconds, &packets);
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes.truncate((bytes.len() as f64 * cut) as usize);
        let whole = CaptureReader::new(&path, std::io::Cursor::new(bytes.clone()));
        if let Ok(mut reader) = whole {
            let mut at = 0;
            while let Ok(true) = reader.advance() {
                let present = reader.captured().bytes;
                prop_assert!(packets[at].bytes.starts_with(present));
                at += 1;
            }
        }
        for (place, value) in flips {
            let place = (bytes.len() as f64 * place) as usize;
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        if let Ok(mut reader) = CaptureReader::new(&path, std::io::Cursor::new(bytes)) {
            while let Ok(true) = reader.advance() {}
            prop_assert_eq!(reader.advance(), Ok(false));
        }
    }
}

#[test]
fn interfaces_have_the_numbers_of_their_ports_whatever_leaves_first() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("out.pcapng");
    let writer = CaptureWriter::create(&path, Precision::Nanoseconds).expect("room");
    let mut writer = writer.named(vec!["lan".to_owned()]).of_ports(2);
    writer.write(&[0; 60], &FrameInfo { port: 1, wire_len: 60, ..FrameInfo::default() });
    writer.finish().expect("whole");
    assert_eq!(interface_names(&path), ["lan", "port 1"]);
    let mut reader = CaptureReader::open(&path).expect("a capture");
    assert!(reader.advance().expect("whole"));
    assert_eq!(reader.captured().interface, 1);
}

#[test]
fn a_damage_names_the_file_the_offset_and_what_is_missing() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("out.pcap");
    let packet = Packet { port: 0, link: Link::Ethernet, timestamp_ns: 1, wire_len: 60, bytes: vec![7; 60] };
    write(&path, Precision::Microseconds, &[packet.clone(), packet]);
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes.truncate(bytes.len() - 10);
    std::fs::write(&path, bytes).expect("written");
    let mut reader = CaptureReader::open(&path).expect("opens");
    assert_eq!(reader.advance(), Ok(true));
    assert_eq!(reader.advance(), Ok(true));
    assert_eq!(reader.captured().bytes.len(), 50, "what there is of the last packet is delivered");
    let damage = reader.advance().expect_err("damaged").to_string();
    assert!(
        damage.ends_with("out.pcap: damaged at byte 100: the file ends 10 bytes before the record does"),
        "{damage}"
    );
}

#[test]
fn a_packet_that_is_longer_than_its_block_is_damage() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("out.pcapng");
    let packet = Packet { port: 0, link: Link::Ethernet, timestamp_ns: 1, wire_len: 60, bytes: vec![7; 60] };
    write(&path, Precision::Microseconds, &[packet.clone(), packet]);
    let mut bytes = std::fs::read(&path).expect("readable");
    // The captured length of the last packet is 8 bytes before its 60 bytes and the end of the file.
    let frame = bytes.windows(60).rposition(|window| window == [7; 60]).expect("the last packet");
    bytes[frame - 8..frame - 4].copy_from_slice(&5000u32.to_le_bytes());
    let mut reader = CaptureReader::new(&path, std::io::Cursor::new(bytes)).expect("opens");
    assert_eq!(reader.advance(), Ok(true));
    let damage = reader.advance().expect_err("damaged").to_string();
    assert!(damage.contains("a packet of 5000 bytes does not fit into its block"), "{damage}");
}

#[test]
fn a_section_of_another_major_version_is_damage() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("out.pcapng");
    let packet = Packet { port: 0, link: Link::Ethernet, timestamp_ns: 1, wire_len: 60, bytes: vec![7; 60] };
    write(&path, Precision::Microseconds, &[packet]);
    let mut bytes = std::fs::read(&path).expect("readable");
    // The versions stand behind the byte-order magic. A later minor version is read.
    for (version, is_read) in [([1u16, 0], true), ([1, 2], true), ([2, 0], false), ([0, 1], false)] {
        bytes[12..14].copy_from_slice(&version[0].to_le_bytes());
        bytes[14..16].copy_from_slice(&version[1].to_le_bytes());
        let mut reader = CaptureReader::new(&path, std::io::Cursor::new(bytes.clone())).expect("opens");
        let read = reader.advance();
        assert_eq!(read.is_ok(), is_read, "{version:?}: {read:?}");
        if let Err(damage) = read {
            assert!(damage.to_string().ends_with("of pcapng, of which only 1 is known"), "{damage}");
        }
    }
}

#[test]
fn a_block_with_two_lengths_is_damage() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("out.pcapng");
    let packet = Packet { port: 0, link: Link::Ethernet, timestamp_ns: 1, wire_len: 60, bytes: vec![7; 60] };
    write(&path, Precision::Microseconds, &[packet.clone(), packet]);
    let bytes = std::fs::read(&path).expect("readable");
    // The first packet's block ends where the second packet's block begins, 28 bytes before its frame.
    let second = bytes.windows(60).rposition(|window| window == [7; 60]).expect("the last packet") - 28;
    for repeated in [0, 88, 96] {
        let mut bytes = bytes.clone();
        bytes[second - 4..second].copy_from_slice(&u32::to_le_bytes(repeated));
        let mut reader = CaptureReader::new(&path, std::io::Cursor::new(bytes)).expect("opens");
        let damage = reader.advance().expect_err("damaged").to_string();
        let expected = format!(
            "out.pcapng: damaged at byte {}: a block of 92 bytes ends with a length of {repeated}",
            second - 92
        );
        assert!(damage.ends_with(&expected), "{damage}");
    }
}

#[test]
fn what_cannot_be_read_says_what_it_is() {
    let open = |bytes: &'static [u8]| match CaptureReader::new(Path::new("in"), bytes) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    };
    assert!(open(b"\xfd7zXZ\0 and more").contains("compressed with xz"));
    assert!(open(b"BZh91AY&SY").contains("compressed with bzip2"));
    assert!(open(b"\x28\xb5\x2f\xfd     ").contains("compressed with zstd"));
    assert!(open(b"\x04\x22\x4d\x18     ").contains("compressed with lz4"));
    assert!(open(b"\x4d\x3c\xb2\xa1\x02\0\x04\0").contains("it ends within its header"));
    assert!(open(b"\xa1\xb2\xc3\xd4").contains("it ends within its header"));
    assert!(open(b"GET / HTTP/1.1").contains("not a capture"));
    assert!(open(b"").contains("not a capture"));
    let missing = CaptureReader::open(Path::new("/nowhere/in.pcap")).err().expect("missing").to_string();
    assert!(missing.starts_with("/nowhere/in.pcap: "), "{missing}");
    let unnamed = CaptureWriter::create(Path::new("out.txt"), Precision::default()).err().expect("refused");
    assert!(matches!(unnamed, OpenError::Config(text) if text.contains("end it with .pcap or .pcapng")));
}

/// Delivers bytes one by one, as a slow pipe may.
struct OneByOne(std::io::Cursor<Vec<u8>>);

impl std::io::Read for OneByOne {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let first = buffer.len().min(1);
        self.0.read(&mut buffer[..first])
    }
}

#[test]
fn a_capture_that_comes_byte_by_byte_is_recognised_compressed_or_not() {
    let directory = TempDir::new().expect("a directory");
    let packet = Packet { port: 0, link: Link::Ethernet, timestamp_ns: 1, wire_len: 60, bytes: vec![7; 60] };
    for name in ["slow.pcap", "slow.pcap.gz", "slow.pcapng", "slow.pcapng.gz"] {
        let path = directory.path().join(name);
        write(&path, Precision::Microseconds, &[packet.clone(), packet.clone()]);
        let bytes = OneByOne(std::io::Cursor::new(std::fs::read(&path).expect("readable")));
        let mut reader = CaptureReader::new(&path, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let packets = std::iter::from_fn(|| reader.advance().expect("undamaged").then_some(())).count();
        assert_eq!(packets, 2, "{name}");
    }
}

/// Selects a queue for packets of the property tests by their length, which is uneven.
struct ByLength(usize);

impl QueueSelect for ByLength {
    fn queue(&self, frame: &[u8], _: Link, _: Port) -> usize {
        frame.len() % 7 % self.0
    }
}

/// Runs workers, each in its own thread, that forward every packet `copies` times to its own port.
fn forward(rx: Vec<Box<dyn RxQueue>>, tx: Vec<Box<dyn TxQueue>>, copies: usize) -> Vec<Result<TxCounters, SinkError>> {
    let pool = Pool::new(&PoolConfig { buffers: 4096, jumbos: 16, ..PoolConfig::default() }).expect("a pool");
    std::thread::scope(|scope| {
        let workers = rx.into_iter().zip(tx).map(|(rx, tx)| {
            let pool = &pool;
            scope.spawn(move || worker(rx, tx, pool, copies))
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    })
}

fn worker(
    mut rx: Box<dyn RxQueue>,
    mut tx: Box<dyn TxQueue>,
    pool: &Arc<Pool>,
    copies: usize,
) -> Result<TxCounters, SinkError> {
    let (mut batch, mut buffers) = (Batch::new(pool, &Arc::new(Layout::capture())), Buffers::new(pool));
    loop {
        let received = rx.receive(&mut batch, &mut buffers, 32);
        let all = (0..batch.len()).flat_map(|i| std::iter::repeat_n((i as u16, batch.records()[i].port), copies));
        tx.send(&batch, &all.collect::<Vec<_>>());
        tx.progress(rx.horizon());
        batch.release(&mut buffers);
        match received {
            Received::Packets => {}
            Received::Idle => std::thread::yield_now(),
            Received::End => return tx.finish(),
        }
    }
}

fn many(count: usize) -> Vec<Packet> {
    let packet = |i: usize| {
        let len = 14 + i * 7919 % 200;
        let bytes = (0..len).map(|at| (at * 31 + i) as u8).collect();
        Packet {
            port: (i % 3) as Port,
            link: Link::Ethernet,
            timestamp_ns: i as u64 * 1000,
            wire_len: len as u32,
            bytes,
        }
    };
    (0..count).map(packet).collect()
}

fn input(directory: &TempDir, packets: &[Packet]) -> PathBuf {
    let path = directory.path().join("in.pcapng");
    write(&path, Precision::Nanoseconds, packets);
    path
}

#[test]
fn four_workers_write_the_file_that_one_would_have_written() {
    let directory = TempDir::new().expect("a directory");
    let packets = many(20_000);
    let source = Box::new(CaptureSource::new(vec![input(&directory, &packets)]));
    let rx = source.open(4, Arc::new(ByLength(4))).expect("opens");
    let path = directory.path().join("out.pcap");
    let sink = CaptureSink::new(path.clone()).precision(Precision::Nanoseconds);
    let results = forward(rx, Box::new(sink).open(4).expect("opens"), 2);
    let sent: u64 = results.iter().map(|result| result.as_ref().expect("written").packets).sum();
    assert_eq!(sent, 40_000);
    let disordered: u64 = results.iter().map(|result| result.as_ref().expect("written").disordered).sum();
    assert_eq!(disordered, 0);
    let twice: Vec<Packet> = packets.iter().flat_map(|packet| [packet.clone(), packet.clone()]).collect();
    assert!(read(&path) == as_read(&twice, Precision::Nanoseconds), "order or bytes differ");
}

#[test]
fn each_port_can_have_its_file_and_other_ports_are_counted() {
    let directory = TempDir::new().expect("a directory");
    let packets = many(999);
    let inputs: Vec<PathBuf> = (0..3).map(|port| directory.path().join(format!("in-{port}.pcap"))).collect();
    for (port, path) in inputs.iter().enumerate() {
        let mine: Vec<Packet> = packets.iter().filter(|packet| usize::from(packet.port) == port).cloned().collect();
        write(path, Precision::Nanoseconds, &mine);
    }
    let source = Box::new(CaptureSource::new(inputs));
    assert_eq!(source.ports(), 3);
    let rx = source.open(1, Arc::new(FirstQueue)).expect("opens");
    let outputs: Vec<PathBuf> = (0..2).map(|port| directory.path().join(format!("out-{port}.pcap.gz"))).collect();
    let sink = CaptureSink::per_port(outputs.clone()).precision(Precision::Nanoseconds);
    let results = forward(rx, Box::new(sink).open(1).expect("opens"), 1);
    let counters = results[0].as_ref().expect("written");
    assert_eq!((counters.packets, counters.no_such_port), (666, 333));
    for (port, path) in outputs.iter().enumerate() {
        let mine: Vec<Packet> = packets.iter().filter(|packet| usize::from(packet.port) == port).cloned().collect();
        assert!(read(path) == as_read(&mine, Precision::Nanoseconds));
    }
}

#[test]
fn a_run_that_stops_early_leaves_a_valid_file() {
    let directory = TempDir::new().expect("a directory");
    let source = Box::new(CaptureSource::new(vec![input(&directory, &many(5000))]));
    let mut rx = source.open(2, Arc::new(ByLength(2))).expect("opens");
    let path = directory.path().join("out.pcapng.gz");
    let mut tx = Box::new(CaptureSink::new(path.clone())).open(2).expect("opens");
    let pool = Pool::new(&PoolConfig::default()).expect("a pool");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::capture())), Buffers::new(&pool));
    while rx[0].receive(&mut batch, &mut buffers, 64) != Received::Packets {}
    let all: Vec<(u16, Port)> = (0..batch.len()).map(|i| (i as u16, 0)).collect();
    tx[0].send(&batch, &all);
    drop(rx);
    drop(tx);
    assert_eq!(read(&path).len(), all.len());
}

#[test]
fn a_full_disk_is_reported_with_what_is_missing() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("out.pcap");
    if !Path::new("/dev/full").exists() || std::os::unix::fs::symlink("/dev/full", &path).is_err() {
        return skip("a_full_disk_is_reported_with_what_is_missing", &"no /dev/full");
    }
    let source = Box::new(CaptureSource::new(vec![input(&directory, &many(20_000))]));
    let rx = source.open(2, Arc::new(ByLength(2))).expect("opens");
    let results = forward(rx, Box::new(CaptureSink::new(path)).open(2).expect("opens"), 1);
    let errors: Vec<String> =
        results.iter().filter_map(|result| result.as_ref().err()).map(SinkError::to_string).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("No space left") && errors[0].contains(" 20000 packets not written"), "{errors:?}");
}

#[test]
fn every_file_on_a_full_disk_is_reported() {
    let directory = TempDir::new().expect("a directory");
    let paths: Vec<PathBuf> = (0..3).map(|port| directory.path().join(format!("out-{port}.pcap"))).collect();
    let is_full = |path| std::os::unix::fs::symlink("/dev/full", path).is_ok();
    if !Path::new("/dev/full").exists() || !paths.iter().take(2).all(is_full) {
        return skip("every_file_on_a_full_disk_is_reported", &"no /dev/full");
    }
    let inputs: Vec<PathBuf> = (0..3).map(|port| directory.path().join(format!("in-{port}.pcap"))).collect();
    inputs.iter().for_each(|path| write(path, Precision::default(), &many(3_000)));
    let rx = Box::new(CaptureSource::new(inputs)).open(1, Arc::new(FirstQueue)).expect("opens");
    let results = forward(rx, Box::new(CaptureSink::per_port(paths.clone())).open(1).expect("opens"), 1);
    let error = results[0].as_ref().expect_err("two files are not whole");
    assert_eq!(error.lost(), 6_000, "{error}");
    assert!(error.to_string().contains("out-0.pcap") && error.to_string().contains("out-1.pcap"), "{error}");
    assert_eq!(read(&paths[2]).len(), 3_000);
}

#[test]
fn packets_of_another_link_type_do_not_vanish_from_a_pcap_unsaid() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("out.pcap");
    let mut writer = CaptureWriter::create(&path, Precision::default()).expect("created");
    for link in [Link::Ethernet, Link::RawIp, Link::Ethernet, Link::RawIp] {
        writer.write(&[0; 20], &FrameInfo { link, wire_len: 20, ..FrameInfo::default() });
    }
    let error = writer.finish().expect_err("two are missing").to_string();
    assert!(error.contains("2 packets of another link type"), "{error}");
    assert_eq!(read(&path).len(), 2);
}

#[test]
fn tshark_reads_what_is_written() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return skip("tshark_reads_what_is_written", &"no tshark");
    }
    let directory = TempDir::new().expect("a directory");
    for name in ["out.pcap", "out.pcap.gz", "out.pcapng", "out.pcapng.gz"] {
        let path = directory.path().join(name);
        write(&path, Precision::Nanoseconds, &many(100));
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-T", "fields", "-e", "frame.len", "-e", "frame.time_epoch", "-r"]).arg(&path);
        let output = tshark.output().expect("runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        assert_eq!((lines.len(), lines[99].as_str()), (100, "195\t0.000099000"), "{name}");
    }
}
