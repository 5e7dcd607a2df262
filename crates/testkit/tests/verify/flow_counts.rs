//! `flow_counter` against what others have counted: the manifest's columns for every capture, tshark's conversations for some.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use braid_functions::find;
use braid_functions::flow_counter::Count;
use braid_io::NullSink;
use braid_io::capture::CaptureSource;
use braid_runtime::{Control, RunError};
use braid_testkit::skip::skip;
use zerocopy::FromBytes;

use crate::run::Case;
use braid_testkit::captures::{Capture, captures, recorded};

const ONE_WAY: &str = "";
const BOTH_WAYS: &str = "symmetric = true";

/// Captures of which the manifest says otherwise, and why it is the manifest that errs: tshark reads them as we do.
const MANIFEST_ERRS: [(&str, &str); 2] = [
    ("feature/zeek_zeek/snap-tcp.pcap", "IPv4 in LLC/SNAP is IPv4"),
    (
        "malformed/the-tcpdump-group_tcpdump/bootp_asan.pcap",
        "a link type of Ethernet with a frame check sequence is Ethernet",
    ),
];

/// Every flow of a capture and its count.
fn count(path: &Path, config: &'static str) -> Result<Vec<(String, Count)>, RunError> {
    let entry = find("flow_counter").expect("it is in the catalogue");
    let case = Case { sets: 1 << 16, ..Case::of(entry, config, 2) };
    let control = Control { record: true, ..Control::default() };
    let report = case.run_with(CaptureSource::new(vec![path.to_owned()]), NullSink, &control)?;
    let record = report.record.expect("it was recorded");
    assert!(record.twice.is_empty(), "flows on two workers: {:?}", record.twice);
    let read = |state: &[u8]| Count::read_from_prefix(state).expect("a count").0;
    let sets = record.sets.iter().flatten();
    let counts: Vec<_> = sets.map(|(key, (_, state))| (key.to_string(), read(state))).collect();
    assert_eq!(counts.len() as u64, report.total.sets_created, "flows never end");
    Ok(counts)
}

/// What a capture's manifest says otherwise than `flow_counter`.
fn differences(capture: &Capture) -> Vec<String> {
    let mut found = Vec::new();
    for (config, flows, most) in [(ONE_WAY, "flows", "ppf_max"), (BOTH_WAYS, "biflows", "ppbf_max")] {
        let Ok(counts) = count(&capture.path, config) else { return found };
        let mut compare = |column: &str, counted: u64| {
            let told = capture.count(column);
            if told != counted {
                found.push(format!("{}: {column} {told}, counted {counted}", capture.name));
            }
        };
        compare(flows, counts.len() as u64);
        compare(most, counts.iter().map(|(_, count)| count.packets).max().unwrap_or(0));
    }
    found
}

#[test]
fn flows_are_those_of_the_manifest() {
    let captures = captures("flows_are_those_of_the_manifest");
    let whole = |capture: &&Capture| capture.number("pct_frag") == 0.0 && capture.text("error") != "not a capture";
    let right = |capture: &&Capture| !MANIFEST_ERRS.iter().any(|(name, _)| capture.name == *name);
    let wrong: Vec<String> = captures.iter().filter(whole).filter(right).flat_map(differences).collect();
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

/// TCP and UDP conversations as tshark tells them apart: (packets, bytes) of each, sorted; none if there is no tshark.
fn conversations(path: &Path) -> Option<Vec<(u64, u64)>> {
    let fields = ["-T", "fields", "-e", "tcp.stream", "-e", "udp.stream", "-e", "frame.len"];
    // An ICMP error would count for the conversation that it quotes.
    let filter = ["-n", "-Y", "(tcp or udp) and not icmp and not icmpv6"];
    let output = Command::new("tshark").args(filter).args(fields).arg("-r").arg(path).output().ok()?;
    assert!(output.status.success(), "tshark on {}", path.display());
    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let (stream, bytes) = line.rsplit_once('\t').expect("three columns");
        let (packets, sum) = found.entry(stream.to_owned()).or_default();
        *packets += 1;
        *sum += bytes.parse::<u64>().expect("a length");
    }
    let mut counts: Vec<_> = found.into_values().collect();
    counts.sort_unstable();
    Some(counts)
}

#[test]
fn conversations_are_those_of_tshark() {
    for name in ["dns.pcap.gz", "lan.pcapng", "lan-vlan.pcap"] {
        check_conversations(&recorded(name));
    }
    let shared = captures("conversations_are_those_of_tshark");
    for capture in shared.iter().filter(|capture| capture.name == MANIFEST_ERRS[0].0) {
        check_conversations(&capture.path);
    }
    let plain = |capture: &Capture| capture.number("pct_frag") == 0.0 && capture.text("error").is_empty();
    let rich =
        |capture: &Capture| (40..400).contains(&capture.count("flows")) && capture.text("category") == "realistic";
    for capture in shared.iter().filter(|capture| plain(capture) && rich(capture)).take(5) {
        check_conversations(&capture.path);
    }
}

#[track_caller]
fn check_conversations(path: &Path) {
    let Some(expected) = conversations(path) else {
        return skip("conversations_are_those_of_tshark", &"no program tshark");
    };
    let counts = count(path, BOTH_WAYS).expect("a capture that can be read");
    let with_ports = counts.iter().filter(|(key, _)| key.ends_with("tcp") || key.ends_with("udp"));
    let mut counts: Vec<_> = with_ports.map(|(_, count)| (count.packets, count.bytes)).collect();
    counts.sort_unstable();
    assert_eq!(counts, expected, "{}", path.display());
}
