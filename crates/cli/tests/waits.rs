//! What waits in functions in a capture: it is sent or given up in time between packets, and at the end nothing is left that counts as sent later.

mod support;

use std::path::Path;

use braid_cli::control::runtime::io::capture::CaptureReader;
use braid_testkit::Frame;
use support::{Braid, conserved};

const SECOND: u64 = 1_000_000_000;

/// A pcap file of frames at times in milliseconds.
fn capture(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    for (ms, bytes) in frames {
        let (seconds, len) = (1_700_000_000 + ms / 1000, bytes.len() as u32);
        [seconds, ms % 1000 * 1000, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(bytes);
    }
    file
}

/// Which packets a capture has: tenths of seconds since its beginning, and `asks`, `told` or `other`.
fn events(path: &Path) -> Vec<(u64, &'static str)> {
    let mut reader = CaptureReader::open(path).expect("a capture");
    let mut events = Vec::new();
    while reader.advance().expect("whole") {
        let captured = reader.captured();
        let since_ns = captured.timestamp_ns.expect("stamped") - 1_700_000_000 * SECOND;
        let byte = |at: usize| captured.bytes.get(at).copied().unwrap_or(0);
        let event = match (byte(12), byte(13)) {
            (8, 6) => "asks",
            (8, 0) if byte(23) == 1 => "told",
            (0x86, 0xdd) if byte(20) == 58 && byte(54) == 135 => "asks",
            (0x86, 0xdd) if byte(20) == 58 && byte(54) == 1 => "told",
            _ => "other",
        };
        events.push((since_ns / (SECOND / 10), event));
    }
    events
}

const ROUTER: &str = r#"
[[nf]]
function = "router"
config.promiscuous = true
[[nf.config.interface]]
port = 0
addresses = ["10.0.0.1/24", "2001:db8:1::1/64"]
[[nf.config.interface]]
port = 1
addresses = ["192.0.2.1/24", "2001:db8:2::1/64"]
"#;

#[test]
fn a_neighbour_is_asked_three_times_and_the_sender_told_though_nothing_comes_meanwhile() {
    let braid = Braid::new();
    braid.write("plan.toml", ROUTER);
    for (from, to) in [("10.0.0.7:1", "192.0.2.44:2"), ("[2001:db8:1::7]:1", "[2001:db8:2::44]:2")] {
        let frame = Frame::udp(from, to).bytes();
        std::fs::write(braid.path("in.pcap"), capture(&[(0, frame.clone()), (30_000, frame)])).expect("room");
        for workers in [1, 2] {
            let run = format!("run plan.toml --in in.pcap --split single --workers {workers} --out out.pcapng");
            let report = braid.json(&run);
            conserved(&report);
            let dropped = &report["dropped"];
            assert_eq!(
                (&dropped["waits_for_neighbour"], &dropped["waited_in_vain"]),
                (&2.into(), &2.into()),
                "{report}"
            );
            let once = |at: u64| [(at, "asks"), (at + 10, "asks"), (at + 20, "asks"), (at + 30, "told")];
            assert_eq!(events(&braid.path("out.pcapng")), [once(0), once(300)].concat(), "{workers} workers");
        }
    }
    let certified = braid.ok("certify plan.toml --in in.pcap --split single --workers 2 --runs 2");
    assert!(certified.starts_with("CERTIFIED"), "{certified}");
}

#[test]
fn pieces_that_are_still_held_at_the_end_have_been_held_in_vain() {
    let braid = Braid::new();
    let piece = Frame::ip("10.0.0.5", "192.0.2.9", 17).payload(&[7; 400]).fragment(9, 185, false).bytes();
    std::fs::write(braid.path("in.pcap"), capture(&[(0, piece)])).expect("room");
    let balancer = "[[nf]]\nfunction = \"load_balancer\"\n[[nf.config.service]]\naddress = \"192.0.2.9\"\nport = 53\nprotocol = \"udp\"\nbackends = [{ address = \"10.9.0.1\" }]\n";
    braid.write("balancer.toml", balancer);
    for what in ["--nf nat", "--nf firewall", "balancer.toml"] {
        for workers in [1, 2] {
            let report = braid.json(&format!("run {what} --in in.pcap --split single --workers {workers}"));
            conserved(&report);
            let dropped = &report["dropped"];
            let counts = (&dropped["fragment_held"], &dropped["fragment_held_in_vain"]);
            assert_eq!(counts, (&1.into(), &1.into()), "{what}: {report}");
        }
    }
    // What goes on elsewhere may still be sent.
    let kept = braid.json("run --nf nat --in in.pcap --split single --workers 1 --snapshot kept.state");
    assert_eq!(kept["dropped"]["fragment_held_in_vain"], serde_json::Value::Null, "{kept}");
}
