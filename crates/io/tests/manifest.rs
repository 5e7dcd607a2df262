//! Every shared capture is read to the exact packet and byte, completely or up to its damage, with one queue and with three.

use std::path::Path;
use std::sync::Arc;

use braid_io::capture::{CaptureReader, CaptureSource};
use braid_io::{OpenError, QueueSelect, Received, Source};
use braid_packet::{Batch, Buffers, Layout, Link, Pool, PoolConfig, Port};
use braid_testkit::captures::captures;

/// Reads a capture to the end or to the first damage; returns packets, and bytes on the wire.
fn read(path: &Path) -> Result<(u64, u64), OpenError> {
    let mut reader = CaptureReader::open(path)?;
    let (mut packets, mut bytes) = (0, 0);
    loop {
        match reader.advance() {
            Ok(true) => {
                packets += 1;
                bytes += u64::from(reader.captured().wire_len);
            }
            Ok(false) => return Ok((packets, bytes)),
            Err(damage) => {
                assert!(damage.to_string().contains("damaged at byte"), "{damage}");
                assert!(matches!(reader.advance(), Ok(false)), "nothing follows a damage");
                return Ok((packets, bytes));
            }
        }
    }
}

#[test]
fn every_capture_has_the_packets_and_bytes_of_the_manifest() {
    let captures = captures("every_capture_has_the_packets_and_bytes_of_the_manifest");
    let (mut compared, mut refused, mut wrong) = (0, 0, Vec::new());
    for capture in &captures {
        match read(&capture.path) {
            Ok(read) => {
                compared += 1;
                let told = (capture.count("packets"), capture.count("bytes"));
                if told != read {
                    wrong.push(format!("{}: {told:?} in the manifest, {read:?} read", capture.name));
                }
            }
            Err(OpenError::Compression { .. }) => refused += 1,
            Err(OpenError::NotACapture { .. }) if capture.text("error") == "not a capture" => refused += 1,
            Err(error) => wrong.push(error.to_string()),
        }
    }
    println!("{compared} captures equal, {refused} refused by name");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Selects a queue by the last byte.
struct ByLastByte;

impl QueueSelect for ByLastByte {
    fn queue(&self, frame: &[u8], _: Link, _: Port) -> usize {
        usize::from(frame.last().copied().unwrap_or(0)) % 3
    }
}

/// Reads through queues, as a worker does; returns packets and bytes. Checks that every sequence number
/// occurs once, and in order per queue.
fn receive(path: &Path, queues: usize) -> (u64, u64) {
    let pool = Pool::new(&PoolConfig { buffers: 2048, jumbos: 64, ..PoolConfig::default() }).expect("a pool");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::capture())), Buffers::new(&pool));
    let source = Box::new(CaptureSource::new(vec![path.to_owned()]));
    let mut queues = source.open(queues, Arc::new(ByLastByte)).expect("opens");
    let mut seen = Vec::new();
    let mut last = vec![None; queues.len()];
    let mut open: Vec<usize> = (0..queues.len()).collect();
    while !open.is_empty() {
        open.retain(|&number| {
            let queue = &mut queues[number];
            let received = queue.receive(&mut batch, &mut buffers, 64);
            assert_eq!(received == Received::Packets, !batch.is_empty());
            for i in 0..batch.len() {
                assert!(last[number] < Some(batch.sequence(i)), "order within a queue");
                last[number] = Some(batch.sequence(i));
                seen.push(batch.sequence(i));
            }
            assert!(last[number].is_none_or(|last| queue.horizon() > last));
            batch.release(&mut buffers);
            received != Received::End
        });
    }
    seen.sort_unstable();
    let lost: u64 = queues.iter().map(|queue| queue.counters().too_long).sum();
    assert!(lost > 0 || seen.iter().copied().eq(0..seen.len() as u64), "every packet once");
    let total = |of: fn(&braid_io::RxCounters) -> u64| queues.iter().map(|queue| of(&queue.counters())).sum();
    (total(|counters| counters.packets + counters.too_long), total(|counters| counters.bytes))
}

#[test]
fn one_queue_and_three_queues_deliver_the_same() {
    let whole = captures("one_queue_and_three_queues_deliver_the_same").into_iter();
    for capture in whole.filter(|capture| capture.text("error").is_empty()).step_by(23) {
        if CaptureReader::open(&capture.path).is_err() {
            continue;
        }
        let (one, three) = (receive(&capture.path, 1), receive(&capture.path, 3));
        assert_eq!(one, three, "{}", capture.name);
        assert_eq!(one.0, capture.count("packets"), "{}", capture.name);
    }
}
