//! Instructions per packet and stage, counted by callgrind, so that a regression shows even on a busy machine.
//!
//! Each chain runs twice with different numbers of packets; the difference is the cost of packets without start and end. A chain
//! whose functions have packet sets of their own is also counted on two workers, since with one worker nothing is shared. The
//! counts are compared with `benches/instructions.txt`. They depend on the compiler and the processor family: a new compiler may
//! need a new table, written by `cargo xtask instructions --write`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use crate::shell;

mod always;
mod own;

pub use always::run as profiling;
pub use own::run as own;

const TABLE: &str = "benches/instructions.txt";
/// Packets of the two runs, in millions.
const RUNS: [f64; 2] = [0.1, 0.3];
/// Nanoseconds that pass for functions with each batch, so that other load on the machine has no influence.
const STEP_NS: &str = "4000";
/// Maximum growth of a stage before the check fails: a factor, and a few instructions for rounding.
const GROWTH: f64 = 1.03;
const SLACK: f64 = 2.0;

/// Stages in the order in which a packet meets them, each with parts of the names of its functions. The
/// first stage that matches counts; functions that match none belong to the rest of the program. Keys that
/// are made during parsing include the parser's instructions.
const STAGES: [(&str, &[&str]); 7] = [
    ("receive", &["RxQueue>::receive"]),
    ("parse", &["Records::parse_all", "braid_packet::parse", "parse_less_plain"]),
    ("keys", &["braid_packet::key"]),
    ("look-up", &["pass::look_up", "flow_table"]),
    ("send", &["Worker>::send", "Worker::send", "TxQueue>::send"]),
    ("worker", &["braid_runtime"]),
    ("handlers", &["Stage>::execute", "braid_functions", "braid_nf", "braid_packet", "braid_state", "braid_stm"]),
];

/// Precedes the fields of a function's own packet set.
const OWN_SETS: char = ':';

type Counts = BTreeMap<String, f64>;

/// Counts and compares, or writes a new table.
pub fn run(write: bool) -> Result<(), String> {
    if !can_count()? {
        return Ok(());
    }
    shell::cargo(&["build", "--release", "--package", "braid-cli", "--bin", "braid"], &[])?;
    let mut lines = String::new();
    let known = std::fs::read_to_string(shell::root().join(TABLE)).unwrap_or_default();
    let mut grown = Vec::new();
    for (chain, workers) in chains()?.iter().flat_map(|chain| [1, 2].map(|workers| (chain, workers))) {
        if workers > 1 && !chain.contains(OWN_SETS) {
            continue;
        }
        let counts = per_packet("braid", chain, workers, by_stage)?;
        let chain = if workers > 1 { format!("{chain}@{workers}") } else { chain.clone() };
        for (stage, _) in STAGES {
            let count = counts.get(stage).copied().unwrap_or(0.0);
            let _ = writeln!(lines, "{chain} {stage} {count:.1}");
            match expected(&known, &chain, stage) {
                Some(before) if count > before * GROWTH + SLACK => {
                    grown.push(format!("{chain}: {stage} takes {count:.1} instructions a packet, before {before:.1}"));
                }
                None if !write => grown.push(format!("{chain}: no count of {stage} in {TABLE}")),
                _ => {}
            }
        }
        println!("{chain}: {:.0} instructions a packet", counts.values().sum::<f64>());
    }
    if write {
        let path = shell::root().join(TABLE);
        return std::fs::write(&path, lines).map_err(|error| format!("{}: {error}", path.display()));
    }
    if grown.is_empty() { Ok(()) } else { Err(grown.join("\n")) }
}

/// Whether the counting program is installed; an error where nothing may be skipped.
fn can_count() -> Result<bool, String> {
    if shell::has("valgrind") {
        return Ok(true);
    }
    let reason = "no instruction counts: program valgrind is missing";
    if std::env::var("BRAID_NO_SKIP").as_deref() == Ok("1") {
        return Err(reason.to_owned());
    }
    eprintln!("   skipped: {reason}");
    Ok(false)
}

/// The default chains of `braid bench`, as listed by the program.
fn chains() -> Result<Vec<String>, String> {
    let program = shell::built("braid");
    let output = Command::new(&program).args(["bench", "--list"]).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn expected(table: &str, chain: &str, stage: &str) -> Option<f64> {
    let mut rows = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    rows.find(|row| row.len() == 3 && row[0] == chain && row[1] == stage)?[2].parse().ok()
}

/// The cost of one additional packet in a chain of `program`; `sort` assigns instructions to stages.
fn per_packet(program: &str, chain: &str, workers: u32, sort: fn(&str) -> Counts) -> Result<Counts, String> {
    let [short, long] = RUNS;
    let count = |millions| count(program, chain, workers, millions).map(|profile| sort(&profile));
    let (before, mut after) = (count(short)?, count(long)?);
    let packets = (long - short) * 1e6 * f64::from(workers);
    for (stage, count) in &mut after {
        *count = (*count - before.get(stage).copied().unwrap_or(0.0)) / packets;
    }
    Ok(after)
}

/// The callgrind output of a complete run with this number of packets per worker.
fn count(program: &str, chain: &str, workers: u32, millions: f64) -> Result<String, String> {
    let file = std::env::temp_dir().join(format!("braid-callgrind-{}", std::process::id()));
    let program = shell::built(program);
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["bench", "--chain", chain, "--flows", "10000", "--step-ns", STEP_NS])
        .args(["--workers", &workers.to_string(), "--packets", &millions.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let outcome = shell::run(&mut command, &format!("callgrind: {chain}, {millions} million packets"));
    let profile = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    outcome?;
    profile.map_err(|error| format!("{}: {error}", file.display()))
}

/// Instructions by stage; those of other parts of the program are left out. `fn=` names the function of the following cost lines
/// (`line cost`). The line after `calls=` is the cost of a callee, which is also listed with the callee.
fn by_stage(profile: &str) -> Counts {
    let (mut counts, mut stage, mut of_callee) = (Counts::new(), None, false);
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            let fits = |(_, parts): &&(&str, &[&str])| parts.iter().any(|part| function.contains(part));
            stage = STAGES.iter().find(fits).map(|(stage, _)| *stage);
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) && !std::mem::take(&mut of_callee) {
            let cost: Option<f64> = line.split(' ').nth(1).and_then(|cost| cost.parse().ok());
            if let (Some(stage), Some(cost)) = (stage, cost) {
                *counts.entry(stage.to_owned()).or_default() += cost;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_go_to_the_stage_of_their_function_and_callees_count_once() {
        let profile = "fl=a\nfn=<X as braid_io::source::RxQueue>::receive\n10 5\n11 7\ncfn=other\ncalls=1 3\n11 100\n\
                       fn=other\n3 100\nfn=braid_packet::key::extract::extract_batch\n1 2\n";
        let counts = by_stage(profile);
        assert_eq!(counts["receive"], 12.0);
        assert_eq!(counts["keys"], 2.0);
        assert_eq!(counts.len(), 2, "what belongs to no stage is left out");
    }
}
