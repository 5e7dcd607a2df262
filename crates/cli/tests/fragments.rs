//! Fragments of UDP datagrams on two workers: they reach the worker of the first one, so none waits for it.

mod support;

use std::net::Ipv4Addr;

use braid_testkit::Frame;
use serde_json::Value;
use support::{Braid, conserved};

const DATAGRAMS: u16 = 300;

/// A pcap file with datagrams of many hosts and ports to one server, each in three fragments, in order.
fn capture() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    for number in 0..DATAGRAMS {
        let (host, port) = (Ipv4Addr::new(10, 0, 0, 1 + (number % 40) as u8), 2000 + number);
        let later = |offset, more| {
            Frame::ip(&host.to_string(), "192.0.2.9", 17).payload(&[7; 1480]).fragment(number, offset, more)
        };
        let first = Frame::udp(&format!("{host}:{port}"), "192.0.2.9:5300").payload(&[7; 1472]);
        for frame in [first.fragment(number, 0, true), later(185, true), later(370, false)] {
            let bytes = frame.bytes();
            for word in [1_700_000_000 + u32::from(number) / 100, 0, bytes.len() as u32, bytes.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(bytes);
        }
    }
    file
}

fn dropped(report: &Value, reason: &str) -> u64 {
    report["dropped"][reason].as_u64().unwrap_or(0)
}

#[test]
fn no_fragment_waits_for_its_first_one_on_another_worker() {
    let braid = Braid::new();
    std::fs::write(braid.path("in.pcap"), capture()).expect("room");
    for function in ["nat", "firewall"] {
        for distribution in ["hardware", "software"] {
            let run = format!("run --nf {function} --in in.pcap --workers 2 --distribution {distribution}");
            let report = braid.json(&run);
            conserved(&report);
            let through = u64::from(DATAGRAMS) * 3;
            let counts = (report["packets_out"].as_u64(), dropped(&report, "fragment_held"));
            assert_eq!(counts, (Some(through), 0), "{function}, {distribution}: {report}");
            let workers = report["workers"].as_array().expect("workers");
            assert!(workers.iter().all(|worker| worker["packets"].as_u64() > Some(100)), "{function}: {report}");
        }
    }
}
