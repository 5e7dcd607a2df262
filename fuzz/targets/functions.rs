//! Bytes as frames on the ports of a network function: the first byte chooses the function, the rest are frames, each behind its
//! port, the milliseconds that passed before it and its length. Nothing panics, packets add up, and a frame whose checksums were
//! right leaves with right ones.
#![no_main]

use braid_functions::{Entry, catalog};
use braid_testkit::{Bench, check_checksums};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, mut rest)) = bytes.split_first() else { return };
    let entry = &catalog()[usize::from(choice) % catalog().len()];
    let mut bench = Bench::with_sets(entry.ports, 64, |builder| {
        let config = small_tables(entry.name).parse().expect("a configuration of the tests");
        (entry.build)(entry.name, config, builder, entry.ports).expect("a function that can be built")
    });
    let mut now_ms = 0;
    while let Some((&[port, passed, high, low], frames)) = rest.split_first_chunk::<4>() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(frames.len());
        let (frame, left) = frames.split_at(len);
        (rest, now_ms) = (left, now_ms + u64::from(passed).pow(2));
        meet(&mut bench, entry, u16::from(port) % entry.ports, now_ms, frame);
    }
    let counters = bench.counters();
    assert_eq!(counters.panics, 0, "a handler panicked");
    let (came, went) = (counters.packets_in + counters.packets_copied, counters.packets_out + counters.drops.total());
    assert_eq!(came, went, "packets in + copies = packets out + drops: {counters:?}");
});

fn meet(bench: &mut Bench, entry: &Entry, port: u16, now_ms: u64, frame: &[u8]) {
    let was_right = check_checksums(frame).is_ok();
    for (_, sent) in bench.send(port, now_ms, frame).sent {
        if let (true, Err(wrong)) = (was_right, check_checksums(&sent)) {
            panic!("{}: {wrong}\nin  {frame:02x?}\nout {sent:02x?}", entry.name);
        }
    }
}

/// Tables that an input can fill; a run's own are made for millions.
fn small_tables(function: &str) -> &'static str {
    match function {
        "bridge" => "capacity = 64",
        "nat" | "nat64" => "mappings_max = 64\nfragments_max = 16\nfirst_port = 10000\nlast_port = 10063",
        _ => "",
    }
}
