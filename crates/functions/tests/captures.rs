//! Real traffic through every function: nothing panics, nothing is lost without a reason, and flows are counted as the
//! manifest of the captures counts them.

mod common;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use braid_functions::{Entry, catalog, find};
use braid_io::NullSink;
use braid_io::capture::CaptureSource;
use braid_runtime::{Control, Report, launch};

use common::{conserved, plan, split};

/// The captures, or none with the reason said.
fn captures() -> Option<(PathBuf, Vec<HashMap<String, String>>)> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let directory = std::env::var_os("BRAID_CAPTURES").map_or(beside, PathBuf::from);
    match std::fs::read_to_string(directory.join("MANIFEST.csv")) {
        Ok(manifest) => Some((directory, rows(&manifest))),
        Err(error) => {
            eprintln!("skipped: {}/MANIFEST.csv: {error}; set BRAID_CAPTURES", directory.display());
            None
        }
    }
}

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

fn run(entry: &'static Entry, config: &str, path: &Path, workers: usize) -> Option<Report> {
    let source = CaptureSource::new(vec![path.to_owned()]).split(split(entry));
    launch(&plan(entry, config, workers), Box::new(source), Box::new(NullSink), &Control::default()).ok()
}

/// Where the manifest is not followed, and why.
const EXPLAINED: [(&str, &str); 7] = [
    ("snap-tcp.pcap", "IP in SNAP: the manifest does not look into it, tshark does"),
    ("bootp_asan.pcap", "a link type with its upper bits set: the manifest does not take it for Ethernet"),
    ("aoe-oobr-1.pcap", LONGER),
    ("icmp-icmp_print-oobr-2.pcap", LONGER),
    ("pim_header_asan-2.pcap", LONGER),
    ("slip-compressed_sl_print-oobr.pcap", LONGER),
    ("slip-sliplink_print-oobr.pcap", LONGER),
];
const LONGER: &str = "more bytes captured than were on the wire, says the file: those captured are counted";

#[test]
fn flow_counter_counts_the_flows_and_bytes_of_the_manifest() {
    let Some((directory, rows)) = captures() else { return };
    let counter = find("flow_counter").expect("a function");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (n, row) in rows.iter().enumerate() {
        let number = |column: &str| row[column].parse::<f64>().ok();
        let (Some(flows), Some(biflows), Some(bytes)) = (number("flows"), number("biflows"), number("bytes")) else {
            continue;
        };
        let explained = EXPLAINED.iter().any(|(name, _)| row["file"].ends_with(&format!("/{name}")));
        if explained || !row["error"].is_empty() || number("pct_frag") != Some(0.0) {
            continue;
        }
        let path = directory.join(&row["file"]);
        for (config, expected) in [("", flows), ("symmetric = true", biflows)] {
            let Some(report) = run(counter, config, &path, 1 + n % 3) else { continue };
            conserved(&report, &row["file"]);
            compared += 1;
            let found = (report.total.sets_created as f64, report.total.bytes_in as f64);
            if found != (expected, bytes) {
                wrong.push(format!(
                    "{} {{{config}}}: {found:?}, not {:?}, {}",
                    row["file"],
                    (expected, bytes),
                    row["link"]
                ));
            }
        }
    }
    eprintln!("{compared} runs compared");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_function_takes_every_kind_of_capture() {
    let Some((directory, rows)) = captures() else { return };
    // BRAID_CAPTURES_STEP=1 takes all of them.
    let step = std::env::var("BRAID_CAPTURES_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(25);
    for (n, row) in rows.iter().enumerate().step_by(step) {
        for entry in catalog() {
            let workers = [1, 2, 4][n % 3];
            if let Some(report) = run(entry, "", &directory.join(&row["file"]), workers) {
                conserved(&report, &format!("{} on {}", entry.name, row["file"]));
            }
        }
    }
}
