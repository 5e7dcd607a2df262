//! Every capture through every function: nothing panics, no packet is lost from the count, and others can read what comes out.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_functions::catalog;
use braid_io::capture::{CaptureSink, CaptureSource};
use braid_io::{NullSink, OpenError};
use braid_runtime::{Distribution, Report, RunError};
use braid_testkit::skip::skip;
use pcap_file::pcapng::PcapNgReader;

use crate::run::{Case, split, undelivered};
use braid_testkit::captures::{Capture, captures};

/// Workers and distributions that every capture meets.
const RUNS: [(usize, Distribution); 4] = [
    (1, Distribution::Hardware),
    (2, Distribution::Hardware),
    (2, Distribution::Software),
    (4, Distribution::Hardware),
];

/// All functions, all numbers of workers; the packets of the first run with two workers are written and read again.
fn check(capture: &Capture, output: &Path) {
    for entry in catalog() {
        for (workers, distribution) in RUNS {
            let case = Case { distribution, ..Case::small(entry, workers) };
            let written = workers == 2 && distribution == Distribution::Hardware;
            let source = CaptureSource::new(vec![capture.path.clone()]).split(split(entry));
            let outcome = match written {
                true => case.run(source, CaptureSink::new(output.to_owned())),
                false => case.run(source, NullSink),
            };
            let context = format!("{} on {}, {workers} workers, {distribution:?}", entry.name, capture.name);
            let Some(report) = readable(capture, outcome, &context) else { return };
            assert_eq!(report.total.packets_in + undelivered(&report), capture.count("packets"), "{context}");
            // A few captures hold frames that are longer than their captures say they were on the wire.
            assert!(undelivered(&report) > 0 || report.total.bytes_in >= capture.count("bytes"), "{context}");
            if written {
                assert_eq!(read_by_others(output), report.total.packets_out, "{context}");
            }
        }
    }
}

/// The run's report, unless the capture is one that is rightly refused.
fn readable(capture: &Capture, outcome: Result<Report, RunError>, context: &str) -> Option<Report> {
    match outcome {
        Ok(report) => Some(report),
        Err(RunError::Open(OpenError::Compression { .. })) => None,
        Err(RunError::Open(OpenError::NotACapture { .. })) if capture.text("error") == "not a capture" => None,
        Err(error) => panic!("{context}: {error}"),
    }
}

/// Packets of a pcapng file as the crate `pcap-file` reads it.
fn read_by_others(path: &Path) -> u64 {
    let mut reader = PcapNgReader::new(File::open(path).expect("written")).expect("a pcapng file");
    let mut packets = 0;
    while let Some(block) = reader.next_block() {
        packets += u64::from(block.expect("a block that can be read").into_enhanced_packet().is_some());
    }
    packets
}

/// Packets of a capture as tshark reads it; none if there is no tshark.
fn read_by_tshark(path: &Path) -> Option<u64> {
    let arguments = ["-n", "-T", "fields", "-e", "frame.number", "-r"];
    let output = Command::new("tshark").args(arguments).arg(path).output().ok()?;
    assert!(output.status.success(), "tshark on {}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    Some(output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count() as u64)
}

fn output(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn captures_of_a_sample_come_through_every_function_with_every_packet_accounted_for() {
    let test = "captures_of_a_sample_come_through_every_function_with_every_packet_accounted_for";
    for capture in captures(test).iter().filter(|capture| capture.is_in_sample(120)) {
        check(capture, &output("sample.pcapng"));
    }
}

#[test]
#[ignore = "minutes: cargo xtask verify captures"]
fn every_capture_comes_through_every_function_with_every_packet_accounted_for() {
    let test = "every_capture_comes_through_every_function_with_every_packet_accounted_for";
    let captures = captures(test);
    for (done, capture) in captures.iter().enumerate() {
        if done % 100 == 0 {
            eprintln!("{done} of {} captures", captures.len());
        }
        check(capture, &output("every.pcapng"));
    }
}

#[test]
fn tshark_reads_what_comes_out() {
    let test = "tshark_reads_what_comes_out";
    let whole = |capture: &&Capture| capture.text("error").is_empty() && capture.count("packets") > 0;
    let sample: Vec<_> = captures(test).into_iter().filter(|capture| capture.is_in_sample(90)).collect();
    let output = output("tshark.pcapng");
    for (n, capture) in sample.iter().filter(whole).take(20).enumerate() {
        let entry = &catalog()[n % catalog().len()];
        let source = CaptureSource::new(vec![capture.path.clone()]).split(split(entry));
        let outcome = Case::small(entry, 2).run(source, CaptureSink::new(output.clone()));
        let Some(report) = readable(capture, outcome, &capture.name) else { continue };
        match read_by_tshark(&output) {
            Some(packets) => assert_eq!(packets, report.total.packets_out, "{} on {}", entry.name, capture.name),
            None => return skip(test, &"no program tshark"),
        }
    }
}
