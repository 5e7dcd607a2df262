//! What waits leaves when it is due, whatever the number of workers: of a capture, time goes on for all of them together.

use std::collections::HashMap;
use std::path::PathBuf;

use braid_functions::find;
use braid_io::capture::CaptureSource;
use braid_io::memory::{CollectedPacket, MemorySink};
use braid_runtime::{Control, Distribution, Plan, launch};

use crate::run::{Case, check_sums};

const RATE: u64 = 20_000;
const BURST: u64 = 4_000;
const CONFIG: &str = "bytes_per_s = 20000\nburst_bytes = 4000\nqueue_bytes = 100000";

/// A network of a home: seconds in which nothing comes between moments with much.
fn home() -> CaptureSource {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/traffic/home.pcapng.gz");
    CaptureSource::new(vec![path])
}

/// What comes out, in the order of the input, and how many were made.
fn outcome(plan: &Plan) -> (Vec<CollectedPacket>, u64) {
    let (sink, collected) = MemorySink::new();
    let report = launch(plan, Box::new(home()), Box::new(sink), &Control::default()).expect("it runs");
    check_sums(&report);
    (collected.packets(), report.total.packets_copied)
}

fn destination(frame: &[u8]) -> Option<&[u8]> {
    match frame.get(12..14)? {
        [8, 0] => frame.get(30..34),
        [0x86, 0xdd] => frame.get(38..54),
        _ => None,
    }
}

/// No stretch of the output has more for an address than burst + rate × (time + 2 ms).
#[track_caller]
fn check_bound(packets: &[CollectedPacket], context: &str) {
    // Of each address: bytes times a billion in a bucket that leaks at the rate, and since when.
    let mut buckets: HashMap<&[u8], (u128, u64)> = HashMap::new();
    let most = u128::from(BURST * 1_000_000_000 + RATE * 2_000_000);
    for packet in packets {
        let Some(address) = destination(&packet.bytes) else { continue };
        let (level, since_ns) = buckets.entry(address).or_insert((0, packet.timestamp_ns));
        let leaked = u128::from(RATE * packet.timestamp_ns.saturating_sub(*since_ns));
        *level = level.saturating_sub(leaked) + packet.bytes.len() as u128 * 1_000_000_000;
        *since_ns = packet.timestamp_ns;
        assert!(
            *level <= most,
            "{context}: {} bytes too many at {}",
            (*level - most) / 1_000_000_000,
            packet.timestamp_ns
        );
    }
}

/// What comes out and when: what is due in one millisecond may leave in any order.
fn times(packets: Vec<CollectedPacket>) -> Vec<(u64, Vec<u8>)> {
    let mut times: Vec<_> = packets.into_iter().map(|packet| (packet.timestamp_ns, packet.bytes)).collect();
    times.sort();
    times
}

#[test]
fn what_waits_leaves_as_with_one_worker() {
    let entry = find("shaper").expect("a function of the catalogue");
    let (alone, waited) = outcome(&Case::of(entry, CONFIG, 1).plan());
    assert!(waited > 100, "{waited} waited");
    check_bound(&alone, "one worker");
    let alone = times(alone);
    for workers in [1, 2, 4] {
        for (in_order, distribution) in
            [(false, Distribution::Hardware), (true, Distribution::Hardware), (false, Distribution::Software)]
        {
            let case = Case { distribution, ..Case::of(entry, CONFIG, workers) };
            let (packets, _) = outcome(&Plan { in_order, ..case.plan() });
            let context = format!("{workers} workers, in order: {in_order}, {distribution:?}");
            let goes_back = packets.windows(2).find(|two| two[1].timestamp_ns < two[0].timestamp_ns);
            assert!(goes_back.is_none(), "{context}: before and behind {goes_back:?}");
            check_bound(&packets, &context);
            assert!(times(packets) == alone, "{context}: what leaves, or when, is not that of one worker");
        }
    }
}
