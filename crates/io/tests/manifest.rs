//! Every shared capture is read to the packet and to the byte, whole or up to its damage, with one queue and with three.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_io::capture::{CaptureReader, CaptureSource};
use braid_io::{OpenError, QueueSelect, Received, Source};
use braid_packet::{Batch, Buffers, Layout, Link, Pool, PoolConfig, Port};

/// The directory of captures, or none with the reason said.
fn captures() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let directory = std::env::var_os("BRAID_CAPTURES").map_or(beside, PathBuf::from);
    if directory.join("MANIFEST.csv").is_file() {
        return Some(directory);
    }
    eprintln!("skipped: no MANIFEST.csv in {}; set BRAID_CAPTURES", directory.display());
    None
}

/// The rows of a CSV file by column name; fields may be quoted.
fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let mut lines = text.lines().map(fields);
    let names = lines.next().expect("a header");
    lines.map(|fields| names.iter().cloned().zip(fields).collect()).collect()
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("one field").push(character),
        }
    }
    fields
}

/// What reading gives: packets, bytes on the wire, and whether the end is damaged.
fn read(path: &Path) -> Result<(u64, u64, bool), OpenError> {
    let mut reader = CaptureReader::open(path)?;
    let (mut packets, mut bytes) = (0, 0);
    loop {
        match reader.advance() {
            Ok(true) => {
                packets += 1;
                bytes += u64::from(reader.captured().wire_len);
            }
            Ok(false) => return Ok((packets, bytes, false)),
            Err(damage) => {
                assert!(damage.to_string().contains("damaged at byte"), "{damage}");
                assert!(matches!(reader.advance(), Ok(false)), "nothing follows a damage");
                return Ok((packets, bytes, true));
            }
        }
    }
}

#[test]
fn every_capture_has_the_packets_and_bytes_of_the_manifest() {
    let Some(directory) = captures() else { return };
    let manifest = std::fs::read_to_string(directory.join("MANIFEST.csv")).expect("readable");
    let (mut compared, mut refused, mut damaged, mut wrong) = (0, 0, 0, Vec::new());
    for row in rows(&manifest) {
        let path = directory.join(&row["file"]);
        match read(&path) {
            Ok((packets, bytes, damage)) => {
                compared += 1;
                damaged += usize::from(damage);
                let told = (row["packets"].parse().unwrap_or(0), row["bytes"].parse().unwrap_or(0));
                if told != (packets, bytes) {
                    wrong.push(format!("{}: {told:?} in the manifest, {packets} {bytes} read", row["file"]));
                }
            }
            Err(OpenError::Compression { .. }) => refused += 1,
            Err(OpenError::NotACapture { .. }) if row["error"] == "not a capture" => refused += 1,
            Err(error) => wrong.push(error.to_string()),
        }
    }
    println!("{compared} captures equal, {damaged} of them damaged at the end, {refused} refused by name");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 2000, "only {compared} captures were there");
}

/// Spreads by the last byte.
struct ByLastByte;

impl QueueSelect for ByLastByte {
    fn queue(&self, frame: &[u8], _: Link, _: Port) -> usize {
        usize::from(frame.last().copied().unwrap_or(0)) % 3
    }
}

/// Reads through queues as a worker does: packets, bytes, and all sequence numbers once and in order per queue.
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
    let Some(directory) = captures() else { return };
    let manifest = std::fs::read_to_string(directory.join("MANIFEST.csv")).expect("readable");
    for row in rows(&manifest).iter().filter(|row| row["error"].is_empty()).step_by(23) {
        let path = directory.join(&row["file"]);
        if CaptureReader::open(&path).is_err() {
            continue;
        }
        let (one, three) = (receive(&path, 1), receive(&path, 3));
        assert_eq!(one, three, "{}", row["file"]);
        assert_eq!(one.0.to_string(), row["packets"], "{}", row["file"]);
    }
}
