//! What goes in and what comes out, packet by packet, on one worker.

use braid_functions::{FromConfig, parse};
use braid_nf::Instance;
use braid_testkit::{Bench, Frame};
use {name}::{Type};

fn bench(config: &str) -> Bench {
    bench_with_room(config, 1_000)
}

/// With room for so many flows.
fn bench_with_room(config: &str, flows: usize) -> Bench {
    Bench::with_sets(2, flows, |builder| {
        let config = parse(config.parse().unwrap()).unwrap();
        Box::new(Instance::new("{name}", {Type}::from_config(config, builder, 2).unwrap()))
    })
}

fn packet(source: &str) -> Vec<u8> {
    Frame::udp(source, "192.0.2.1:53").bytes()
}

#[test]
fn a_source_has_so_many_flows_and_no_more() {
    let mut bench = bench("flows_max = 2");
    assert_eq!(bench.send(0, 0, &packet("10.0.0.1:1000")).ports(), [1]);
    assert_eq!(bench.send(0, 1, &packet("10.0.0.1:1001")).ports(), [1]);
    assert_eq!(bench.send(0, 2, &packet("10.0.0.1:1002")).dropped, Some("too_many_flows"));
    // Flows that live go on, and other sources have their own.
    assert_eq!(bench.send(0, 3, &packet("10.0.0.1:1000")).ports(), [1]);
    assert_eq!(bench.send(0, 4, &packet("10.0.0.2:1002")).ports(), [1]);
}

#[test]
fn packets_without_a_flow_pass() {
    let arp = Frame::arp("10.0.0.1", "10.0.0.2").bytes();
    assert_eq!(bench("").send(0, 0, &arp).ports(), [1]);
}

#[test]
fn flows_without_room_do_not_count() {
    let mut bench = bench_with_room("flows_max = 2", 1);
    assert_eq!(bench.send(0, 0, &packet("10.0.0.1:1000")).ports(), [1]);
    assert_eq!(bench.send(0, 1, &packet("10.0.0.1:1001")).dropped, Some("set_table_full"));
    assert_eq!(bench.send(0, 2, &packet("10.0.0.1:1001")).dropped, Some("set_table_full"));
}
