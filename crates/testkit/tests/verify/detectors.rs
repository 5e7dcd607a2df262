//! Detectors on labelled traffic: what they find, and what they leave alone.
//!
//! The captures of the project are always there; those beside it are used where they lie, or skipped with the reason said.

use std::collections::BTreeMap;
use std::path::Path;

use braid_functions::find;
use braid_functions::parts::headers::protocols::Protocol;
use braid_io::NullSink;
use braid_io::capture::CaptureSource;
use braid_nf::Findings;
use braid_testkit::captures::{captures, recorded};

use crate::run::{Case, split};

/// What a function with its defaults has to tell of a capture; none if the capture cannot be read.
pub fn findings(function: &str, path: &Path, workers: usize) -> Option<Findings> {
    let entry = find(function).expect("a function");
    let source = CaptureSource::new(vec![path.to_owned()]).split(split(entry));
    let report = Case { sets: 1 << 16, ..Case::of(entry, "", workers) }.run(source, NullSink).ok()?;
    Some(report.findings.into_iter().next().map(|(_, findings)| findings).unwrap_or_default())
}

/// Whom a function's findings of a kind are about.
fn subjects(findings: &Findings, kind: &str) -> Vec<String> {
    findings.list().iter().filter(|finding| finding.kind == kind).map(|finding| finding.subject.clone()).collect()
}

/// Alerts on a capture of the project, on one worker and on three.
#[track_caller]
fn check(function: &str, capture: &str, expected: &[&str]) {
    for workers in [1, 3] {
        let findings = findings(function, &recorded(capture), workers).expect("a capture");
        let found: Vec<_> = findings.list().iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(found, expected, "{function} on {capture} with {workers} workers: {findings:#?}");
    }
}

#[test]
fn the_hosts_that_scan_are_found_and_the_office_is_not() {
    check("port_scan", "scan.pcap", &["10.1.0.14", "fd00:1::14"]);
    for capture in ["office.pcapng", "gateway.pcapng", "lan.pcapng", "dns.pcap.gz"] {
        check("port_scan", capture, &[]);
    }
}

#[test]
fn honest_traffic_raises_no_alert() {
    for function in ["dns_tunnel", "sidejacking", "abacus", "heavy_hitters"] {
        for capture in ["office.pcapng", "gateway.pcapng", "lan.pcapng", "lan-vlan.pcap", "dns.pcap.gz", "scan.pcap"] {
            check(function, capture, &[]);
        }
    }
}

#[test]
fn who_scans_has_too_many_connections_and_nobody_else() {
    check("connection_limiter", "scan.pcap", &["10.1.0.14"]);
    for capture in ["office.pcapng", "gateway.pcapng", "lan.pcapng", "lan-vlan.pcap", "dns.pcap.gz"] {
        check("connection_limiter", capture, &[]);
    }
}

#[test]
fn the_offices_hosts_and_protocols_are_those_that_its_page_names() {
    let assets = findings("asset_monitor", &recorded("office.pcapng"), 2).expect("a capture");
    let hosts = subjects(&assets, "host");
    for host in ["10.1.0.1", "10.1.0.9", "10.1.0.11", "10.1.0.14", "10.1.0.22", "fd00:1::11"] {
        assert!(hosts.iter().any(|known| known == host), "{host} is not among {hosts:?}");
    }
    let protocols = findings("protocol_classifier", &recorded("office.pcapng"), 2).expect("a capture");
    for protocol in ["http", "tls", "dns", "ssh"] {
        assert!(protocols.sums().contains_key(&format!("{protocol} sessions")), "no {protocol}: {protocols:#?}");
    }
}

/// Scanners of the shared captures, as their labels name them.
pub const SCANNERS: &[(&str, &str)] = &[
    ("attacks__scanners__masscan__tcp_0_1000_20190821.pcap", "172.31.15.102"),
    ("testing__pcaps__445_scan.pcap", "176.192.150.3"),
    ("testing__pcaps__multiport_scan.pcap", "125.27.226.209"),
    ("testing__pcaps__port_scan.pcap", "192.168.2.154"),
    ("testing__pcaps__scan_with_zero_windows.pcap", "10.0.0.1"),
    ("ntop_nDPI/synscan.pcap", "172.16.0.8"),
    ("nmap-vsn.pcap", "192.168.1.71"),
];

#[test]
fn labelled_scanners_are_found() {
    let captures = captures("labelled_scanners_are_found");
    for (name, scanner) in SCANNERS {
        let Some(capture) = captures.iter().find(|capture| capture.name.ends_with(name)) else { continue };
        let findings = findings("port_scan", &capture.path, 2).expect("a capture");
        assert_eq!(subjects(&findings, "scanner"), [*scanner], "{name}");
    }
}

/// Alerts that are no errors: one browser's session number in requests with two user agents.
const EXPECTED: &[(&str, &str)] = &[("sidejacking", "4KHttpRequests.pcap")];

#[test]
fn ordinary_captures_raise_no_alert_of_tunnels_and_thefts() {
    quiet("ordinary_captures_raise_no_alert_of_tunnels_and_thefts", 5);
}

#[test]
#[ignore = "a minute: cargo xtask verify"]
fn no_ordinary_capture_raises_an_alert_of_tunnels_and_thefts() {
    quiet("no_ordinary_capture_raises_an_alert_of_tunnels_and_thefts", 1);
}

/// No alerts but the expected ones in a sample of one in `size`.
fn quiet(test: &str, size: u64) {
    let ordinary = |kind: &str| ["dpi", "feature", "realistic", "mixed", "tcp-edge"].contains(&kind);
    let mut alerts = Vec::new();
    let captures = captures(test);
    for capture in captures.iter().filter(|c| ordinary(c.text("category")) && c.is_in_sample(size)) {
        for function in ["dns_tunnel", "sidejacking", "abacus"] {
            let Some(findings) = findings(function, &capture.path, 2) else { continue };
            let expected = EXPECTED.iter().any(|(known, file)| *known == function && capture.name.ends_with(file));
            if !findings.list().is_empty() && !expected {
                alerts.push((function, capture.name.clone(), findings.list().to_vec()));
            }
        }
    }
    assert!(alerts.is_empty(), "{alerts:#?}");
}

/// What nDPI calls the protocols that `protocol_classifier` knows, where the names differ by more than upper case.
#[rustfmt::skip]
const NDPI_NAMES: &[(&str, &str)] = &[
    ("ftp_control", "ftp"), ("smbv1", "smb"), ("smbv23", "smb"), ("pop", "pop3"), ("pops", "pop3"), ("imaps", "imap"),
    ("smtps", "smtp"), ("isakmp", "ike"), ("ipsec", "ike"), ("iec60870", "iec104"), ("jabber", "xmpp"), ("usenet", "nntp"),
    ("http_proxy", "http"), ("http_connect", "http"),
];

/// Sessions by protocol, from nDPI's list of flows: `[proto: 91.119/TLS.Facebook]`.
fn of_ndpi(text: &str) -> BTreeMap<String, u64> {
    let mut sessions = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("\tTCP ") || line.contains("\tUDP ")) {
        let name = line.split_once("[proto: ").and_then(|(_, rest)| rest.split_once('/')).map(|(_, name)| name);
        let Some(name) = name.and_then(|name| name.split(['.', ']']).next()) else { continue };
        let name = name.to_ascii_lowercase();
        let ours = NDPI_NAMES.iter().find(|(theirs, _)| *theirs == name).map_or(name.as_str(), |(_, ours)| ours);
        *sessions.entry(ours.to_owned()).or_default() += 1;
    }
    sessions
}

#[test]
fn sessions_are_classified_as_ndpi_does() {
    let captures = captures("sessions_are_classified_as_ndpi_does");
    let (mut wanted, mut agreed) = (0, 0);
    for capture in captures.iter().filter(|capture| capture.text("category") == "dpi") {
        // Beside the folder of captures: its name is relative to that.
        let directory = capture.path.ancestors().nth(capture.name.split('/').count());
        let Some(Ok(oracle)) = directory.map(|d| std::fs::read_to_string(d.join(capture.text("oracle")))) else {
            continue;
        };
        let Some(found) = findings("protocol_classifier", &capture.path, 2) else { continue };
        for (protocol, sessions) in of_ndpi(&oracle) {
            let is_known = Protocol::ALL.iter().any(|p| p.name() == protocol);
            if is_known && protocol != "unknown" {
                wanted += sessions;
                agreed += sessions.min(found.sums().get(&format!("{protocol} sessions")).copied().unwrap_or(0));
            }
        }
    }
    eprintln!("{agreed} of {wanted} sessions are what nDPI says");
    assert!(agreed * 100 >= wanted * 95, "{agreed} of {wanted}");
}
