//! What the detectors find in labelled captures and in ordinary ones: the table of `docs/detectors.md`, printed and checked.

use std::path::Path;

use braid_functions::find;
use braid_io::NullSink;
use braid_io::capture::CaptureSource;
use braid_nf::Instance;
use braid_nf::prelude::*;
use braid_nf::state::{MapConfig, Visit};
use braid_testkit::captures::{Capture, captures, recorded};

use crate::detectors::{SCANNERS, findings};
use crate::run::{Case, split};

/// Captures of an attack that a detector is for, by the end of their names.
fn labelled(detector: &str) -> Vec<&'static str> {
    match detector {
        "port_scan" => {
            let missed = ["attacks__scanners__masscan__udp_0_1000_20190821.pcap", "ntop_nDPI/tcp_scan.pcapng"];
            SCANNERS.iter().map(|(name, _)| *name).chain(missed).collect()
        }
        "anti_ddos" => vec![
            "amp.TCP.reflection.SYNACK.pcap",
            "amp.TCP.syn.optionallyACK.optionallysamePort.pcapng",
            "pkt.TCP.synflood.spoofed.pcap",
            "ntop_nDPI/synscan.pcap",
        ],
        "connection_limiter" => vec![
            "pkt.TCP.synflood.spoofed.pcap",
            "ntop_nDPI/synscan.pcap",
            "attacks__scanners__masscan__tcp_0_1000_20190821.pcap",
        ],
        _ => Vec::new(),
    }
}

/// A detector, the configuration with which it is measured, and what of a capture it needs.
const DETECTORS: [(&str, &str, &str); 6] = [
    ("port_scan", "", "pct_tcp"),
    ("anti_ddos", "", "pct_tcp"),
    ("dns_tunnel", "", "pct_udp"),
    ("sidejacking", "", "pct_tcp"),
    ("heavy_hitters", "count = 'packets'\nthreshold = 1000", "packets"),
    ("connection_limiter", "connections_max = 200\nby = 'destination'", "packets"),
];

/// Whether a detector raises an alert about a capture; none if that cannot be read.
fn alerts(detector: &str, config: &'static str, path: &Path) -> Option<bool> {
    let entry = find(detector).expect("a function");
    let source = CaptureSource::new(vec![path.to_owned()]).split(split(entry));
    let report = Case { sets: 1 << 16, ..Case::of(entry, config, 2) }.run(source, NullSink).ok()?;
    let attacks = report.total.drops.iter().any(|(_, reason, _)| reason == "attack");
    Some(attacks || report.findings.iter().any(|(_, findings)| !findings.list().is_empty()))
}

/// Captures of ordinary traffic, or of tests of other programs; not those that were damaged on purpose.
fn is_ordinary(capture: &Capture) -> bool {
    ["dpi", "feature", "realistic", "mixed", "tcp-edge", "alg", "5g", "fragment"].contains(&capture.text("category"))
}

/// The row of a detector: labelled captures found, alerts on ordinary ones, and in which.
fn row((detector, config, needs): (&str, &'static str, &str), captures: &[Capture]) -> (String, Vec<String>) {
    let labels = labelled(detector);
    let is_labelled = |capture: &Capture| labels.iter().any(|name| capture.name.ends_with(name));
    let (mut found, mut there, mut read, mut wrong) = (0, 0, 0, Vec::new());
    for capture in captures.iter().filter(|capture| capture.number(needs) > 0.0) {
        if !is_labelled(capture) && !is_ordinary(capture) {
            continue;
        }
        let Some(alert) = alerts(detector, config, &capture.path) else { continue };
        if is_labelled(capture) {
            (there, found) = (there + 1, found + usize::from(alert));
        } else {
            read += 1;
            wrong.extend(alert.then(|| capture.name.clone()));
        }
    }
    let share = 100.0 * wrong.len() as f64 / f64::from(read.max(1));
    (format!("| {detector} | {found} of {there} | {} of {read} ({share:.1} %) |", wrong.len()), wrong)
}

#[test]
#[ignore = "minutes: cargo xtask verify figures"]
fn detectors_find_and_leave_alone_what_the_page_says() {
    let captures = captures("detectors_find_and_leave_alone_what_the_page_says");
    if captures.is_empty() {
        return;
    }
    let page = include_str!("../../../../docs/detectors.md");
    let mut differs = Vec::new();
    for detector in DETECTORS {
        let (row, wrong) = row(detector, &captures);
        eprintln!("{row}\n    alerts: {}", wrong.join(" "));
        if !page.contains(&row) {
            differs.push(row);
        }
    }
    assert!(differs.is_empty(), "docs/detectors.md says otherwise: {differs:#?}");
}

network_function! {
    /// Counts packets of every source in every second, exactly.
    struct Exact {
        counts: Map<[u64; 3], u64>,
    }
}

/// Packets of one source in a second that make it heavy.
const HEAVY: u64 = 30;

impl NetworkFunction for Exact {
    type Set = ();
    const NAME: &'static str = "exact";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if packet.is_ip() {
            let source = u128::from_be_bytes(packet.src_ip().octets());
            // The same intervals as those of the function: a product of 2^-64.
            let interval = (u128::from(cx.now()) * u128::from(u64::MAX / 1_000_000_000 + 1)) >> 64;
            let key = [(source >> 64) as u64, source as u64, interval as u64];
            let count = self.counts.get(cx, &key)?.unwrap_or(0);
            self.counts.insert(cx, &key, &(count + 1))?;
        }
        Ok(cx.pass())
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.counts.for_each(cx, 0, u32::MAX, |_, [high, low, _], count| {
            let source = u128::from(*high) << 64 | u128::from(*low);
            let source = std::net::Ipv6Addr::from(source);
            let source = source.to_ipv4_mapped().map_or_else(|| source.to_string(), |v4| v4.to_string());
            if *count >= HEAVY {
                into.find("heavy_hitter", source, "");
            }
            Ok(Visit::Keep)
        })?;
        Ok(())
    }
}

/// Sources that are heavy by exact count, and those that the sketch finds on so many workers.
#[track_caller]
fn check_hitters(path: &Path, name: &str) -> usize {
    let case = Case::new(2, 1, |builder| {
        let config = MapConfig { name: "counts".into(), capacity: 1 << 17, ..MapConfig::default() };
        vec![Box::new(Instance::new("exact", Exact { counts: Map::new(builder, &config).expect("memory") }))]
    });
    let source = || CaptureSource::new(vec![path.to_owned()]);
    let subjects = |findings: Option<Findings>| -> Vec<String> {
        let findings = findings.unwrap_or_default();
        findings.list().iter().map(|finding| finding.subject.clone()).collect()
    };
    let Ok(report) = case.run(source(), NullSink) else { return 0 };
    let mut exact = subjects(report.findings.into_iter().next().map(|(_, findings)| findings));
    exact.dedup();
    for workers in [1, 3] {
        let config = "count = 'packets'\nthreshold = 30";
        let report = Case::of(find("heavy_hitters").expect("it is there"), config, workers).run(source(), NullSink);
        let found = subjects(report.expect("as before").findings.into_iter().next().map(|(_, findings)| findings));
        assert_eq!(found, exact, "{name} with {workers} workers");
    }
    exact.len()
}

#[test]
fn hitters_by_exact_count_are_found_and_no_other() {
    let mut heavy = 0;
    for name in ["office.pcapng", "gateway.pcapng", "lan.pcapng", "lan-vlan.pcap", "scan.pcap"] {
        heavy += check_hitters(&recorded(name), name);
    }
    assert!(heavy > 3, "{heavy} heavy sources in the recorded captures");
    for capture in captures("hitters_by_exact_count_are_found_and_no_other") {
        // Where time goes back, each worker's clock stands still on its own, and intervals are not those of one worker.
        if capture.is_in_sample(30) && is_ordinary(&capture) && capture.count("ts_backwards") == 0 {
            check_hitters(&capture.path, &capture.name);
        }
    }
    let office = findings("heavy_hitters", &recorded("office.pcapng"), 2).expect("a capture");
    assert!(office.list().is_empty(), "nobody in an office reaches the default of 100 Mbit/s");
}
