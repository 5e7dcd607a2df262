//! What a capture comes to does not depend on the size of batches: within one, packets of a connection keep their order.

mod support;

use braid_cli::control::runtime::io::capture::{CaptureWriter, Precision};
use braid_cli::control::runtime::nf::packet::FrameInfo;
use braid_testkit::Frame;
use support::Braid;

/// Writes a capture for each of two ports: the frames with their ports, this many nanoseconds apart.
fn write(braid: &Braid, apart_ns: u64, frames: Vec<(usize, Frame)>) {
    let create = |name| CaptureWriter::create(&braid.path(name), Precision::Nanoseconds).expect("a capture");
    let mut writers = ["inside.pcapng", "outside.pcapng"].map(create);
    for (sequence, (port, frame)) in (0..).zip(frames) {
        let bytes = frame.bytes();
        let wire_len = bytes.len() as u32;
        let info = FrameInfo { wire_len, sequence, timestamp_ns: sequence * apart_ns, ..FrameInfo::default() };
        writers[port].write(&bytes, &info);
    }
    writers.iter_mut().for_each(|writer| writer.finish().expect("written"));
}

/// Runs the plan in order with batches of one packet and of many, on one worker and on two: all packets come out each time.
#[track_caller]
fn all_pass(braid: &Braid, packets: u64) {
    for (batch, workers) in [(1, 1), (128, 1), (128, 2)] {
        let line = format!(
            "run plan.toml --in 0=inside.pcapng --in 1=outside.pcapng --in-order --json --batch {batch} --workers {workers}"
        );
        let report: serde_json::Value = serde_json::from_str(&braid.ok(&line)).expect("a report");
        assert_eq!(report["packets_out"], packets, "batch {batch}, workers {workers}: {report}");
    }
}

#[test]
fn answers_do_not_overtake_requests_where_two_translators_follow_one_another() {
    let braid = Braid::new();
    let nat64 = "[[nf]]\nfunction = \"nat64\"\n[nf.config]\nexternal = [\"198.51.100.9\"]\n";
    let nat = "[[nf]]\nfunction = \"nat\"\n";
    braid.write("plan.toml", &format!("ports = 2\n{nat64}{nat}"));
    let exchange = |n: u16| {
        let request = Frame::udp(&format!("[2001:db8::5]:{}", 2000 + n), &format!("[64:ff9b::192.0.2.{n}]:53"));
        let answer = Frame::udp(&format!("192.0.2.{n}:53"), &format!("198.51.100.9:{}", 2000 + n));
        [(0, request), (1, answer)]
    };
    write(&braid, 1_000_000, (1..101).flat_map(exchange).collect());
    all_pass(&braid, 200);
}

#[test]
fn answers_do_not_overtake_hairpins() {
    let braid = Braid::new();
    braid.write(
        "plan.toml",
        "ports = 2
[[nf]]
function = \"firewall\"
[nf.config]
rules = [ { action = \"allow\", direction = \"inbound\", destination_ports = 80, protocol = \"tcp\" } ]
[[nf]]
function = \"nat\"
[nf.config]
external = [\"198.51.100.1\"]
static = [ { protocol = \"tcp\", external = \"198.51.100.1:8080\", inside = \"10.0.0.11:80\" } ]
",
    );
    let (client, server) = ("10.0.0.10:41001", "10.0.0.11:80");
    let handshake = vec![
        (0, Frame::tcp(client, "198.51.100.1:8080").flags("S").numbers(100, 0)),
        (0, Frame::tcp(server, "198.51.100.1:41001").flags("SA").numbers(500, 101)),
        (0, Frame::tcp(client, "198.51.100.1:8080").flags("A").numbers(101, 501)),
    ];
    write(&braid, 50_000, handshake);
    all_pass(&braid, 3);
}

/// What a shaper releases in one tick is many batches for the functions behind it: each makes room for the next.
#[test]
fn full_tables_evict_between_the_batches_of_one_tick() {
    let braid = Braid::new();
    let plan = |sets: u32| {
        format!(
            "ports = 2\nsets = {sets}\n[[nf]]\nfunction = \"shaper\"\n[nf.config]\nbytes_per_s = 20000\nburst_bytes = 2000\n\
             [[nf]]\nfunction = \"policer\"\nfull = \"evict_oldest\"\n\
             packet_set = {{ fields = [\"ip.src\", \"ip.dst\", \"port.src\", \"port.dst\", \"ip.proto\"] }}\n"
        )
    };
    // Two flows to each of 2,000 addresses; the packets of the second ones are due in the same millisecond.
    let to = |n: u16| format!("192.0.{}.{}:53", 2 + n / 250, 1 + n % 250);
    let frame = |n: u16| Frame::udp(&format!("10.0.1.1:{}", 1000 + n / 2000), &to(n % 2000)).payload(&[0; 1458]);
    write(&braid, 25, (0..4000).map(|n| (0, frame(n))).collect());
    for workers in [1, 2] {
        braid.write("plan.toml", &plan(2100));
        let report = braid.json(&format!("run plan.toml --in 0=inside.pcapng --workers {workers}"));
        assert_eq!((&report["packets_out"], &report["sets"]["refused"]), (&4000.into(), &0.into()), "{report}");
        let evicted = report["sets"]["evicted"].as_u64().expect("a number");
        assert!(evicted >= 1_000, "{report}");
    }
}
