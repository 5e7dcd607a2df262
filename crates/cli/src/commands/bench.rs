//! `braid bench`: chains in memory, warmed up, with the machine, the commit and what was lost beside every figure.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use braid_control::Catalog;
use braid_control::machine::Machine;
use braid_control::runtime::io::{NullSink, atomic_file};
use braid_control::runtime::{Control, Live, launch};
use serde::Serialize;

use super::{print, print_json};
use crate::args::BenchArgs;
use crate::bench::asked::{FLOWS_QUICK, at_most, chains, check, distributions, packets, sizes, time, trial};
use crate::bench::rows::{Row, Trial, ablation};
use crate::bench::soak::{self, Sample};
use crate::bench::stop::{Stop, unless};
use crate::bench::traffic::{CHAINS, SHARED, STATEFUL, Trace};
use crate::bench::{latency, output};
use crate::chain::Written;
use crate::failure::{Failure, Kind};
use crate::input::is_same_file;
use crate::run::watch;

/// Time of a load of the latency measurement, and of a soak.
const LOAD: Duration = Duration::from_secs(2);
const LOAD_QUICK: Duration = Duration::from_millis(200);
const SOAK: Duration = Duration::from_secs(30 * 60);
const SOAK_QUICK: Duration = Duration::from_secs(5);
/// Lines of a soak's table.
const SOAK_LOOKS: u32 = 20;
/// Memory may grow by this share in the second half of a soak: lists of counters, not packets.
const GROWTH_MAX: f64 = 0.01;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Packets a second, by chain, trace, flows and workers
    Rates,
    /// Latency at 10, 50, 80 and 95 % of what the chain can do
    Latency,
    /// What batches, shared records and huge pages are worth, one after another
    Ablation,
    /// A long run with flows that come and go: memory, packet sets, losses
    Soak,
    /// What this machine can do at all: a loop that only touches what a chain touches
    Bare,
}

/// All of them.
#[derive(Serialize)]
struct Bench {
    machine: Machine,
    loss_criterion: &'static str,
    rows: Vec<Row>,
    latency: Vec<latency::Row>,
    soak: Vec<Sample>,
}

/// A criterion, said before it is known whether the rows meet it.
const LOSS_CRITERION: &str = "lost = 0: whatever comes in goes out";

impl Bench {
    fn is_lossless(&self) -> bool {
        self.rows.iter().all(|row| row.lost == 0)
            && self.latency.iter().all(|row| row.lost() == 0)
            && self.soak.iter().all(|sample| sample.lost + sample.dropped == 0)
    }
}

/// Runs it.
pub fn run(args: &BenchArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    if args.list {
        print(&CHAINS.map(|chain| format!("{chain}\n")).concat())?;
        return Ok(ExitCode::SUCCESS);
    }
    check_outputs(args)?;
    check(args, catalog)?;
    let mut bench = Bench {
        machine: Machine::here(),
        loss_criterion: LOSS_CRITERION,
        rows: Vec::new(),
        latency: Vec::new(),
        soak: Vec::new(),
    };
    let stop = Stop::default();
    watch::stop_on_signal(&stop)?;
    let copied = "copied from a ring into buffers (receive copy)";
    say(
        args,
        &format!(
            "{}64-byte frames in memory, {copied}, flows known; criterion of loss: {LOSS_CRITERION}\n",
            bench.machine
        ),
    )?;
    // Whatever ends it early: what was measured before is not lost.
    let measured = args.what.iter().try_for_each(|what| measure(*what, args, catalog, &stop, &mut bench));
    if args.json {
        print_json(&bench)?;
    }
    write(args, &bench)?;
    measured?;
    let growth = soak::growth_of_all(&bench.soak);
    if growth > GROWTH_MAX {
        say(args, &format!("memory grew by {:.1} % in the second half\n", 100.0 * growth))?;
    }
    let is_well = bench.is_lossless() && growth <= GROWTH_MAX;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(Kind::Failed as u8) })
}

fn measure(what: What, args: &BenchArgs, catalog: &Catalog, stop: &Stop, bench: &mut Bench) -> Result<(), Failure> {
    match what {
        What::Rates => rates(args, catalog, stop, &mut bench.rows)?,
        What::Ablation => ablate(args, catalog, stop, &mut bench.rows)?,
        What::Latency => latencies(args, catalog, stop, &mut bench.latency)?,
        What::Soak => {
            for (name, written) in chains(args, catalog, &[STATEFUL])? {
                unless(stop)?;
                bench.soak.extend(soak(args, catalog, stop, (&name, &written))?);
            }
        }
        What::Bare => bare(args, stop, &mut bench.rows)?,
    }
    unless(stop)
}

/// To people; programs get one object at the end.
fn say(args: &BenchArgs, text: &str) -> Result<(), Failure> {
    if args.json { Ok(()) } else { print(text) }
}

/// A table as text, with its head above the first row; if there are no rows, only the error is printed.
struct Table<'a> {
    args: &'a BenchArgs,
    head: &'static str,
}

impl Table<'_> {
    fn say(&mut self, line: &str) -> Result<(), Failure> {
        say(self.args, std::mem::take(&mut self.head))?;
        say(self.args, line)
    }
}

/// Refuses outputs that could not be written, and those over something else.
fn check_outputs(args: &BenchArgs) -> Result<(), Failure> {
    let same = |one: Option<&PathBuf>, other: Option<&PathBuf>| {
        one.zip(other).is_some_and(|(one, other)| one == other || is_same_file(one, other))
    };
    let (plan, csv, plot) = (args.plan.as_ref(), args.csv.as_ref(), args.plot.as_ref());
    if same(csv, plot) || same(plan, csv) || same(plan, plot) {
        let what = "one file is to be read and written, or written twice";
        return Err(Failure::usage(what, "name files of their own for --csv and --plot: nothing was changed"));
    }
    let mut outputs = [csv, plot].into_iter().flatten();
    outputs.try_for_each(|path| atomic_file::check(path).map_err(|error| unwritten(path, &error)))
}

/// Writes CSV and SVG files; latencies go to separate files.
fn write(args: &BenchArgs, bench: &Bench) -> Result<(), Failure> {
    let to =
        |path: &Path, text: String| atomic_file::write(path, text.as_bytes()).map_err(|error| unwritten(path, &error));
    if let Some(path) = args.csv.as_ref().filter(|_| !bench.rows.is_empty()) {
        to(path, output::csv(&bench.rows))?;
    }
    if let Some(path) = args.csv.as_ref().filter(|_| !bench.latency.is_empty()) {
        to(&beside(path, "latency"), latency::csv(&bench.latency))?;
    }
    if let Some(path) = args.plot.as_ref().filter(|_| bench.rows.iter().any(|row| row.variant.is_empty())) {
        output::plot(&bench.rows, path).map_err(|error| unwritten(path, &*error))?;
    }
    if let Some(path) = args.plot.as_ref().filter(|_| !bench.latency.is_empty()) {
        to(&beside(path, "latency"), latency::plot(&bench.latency))?;
    }
    Ok(())
}

/// `bench.csv` → `bench-latency.csv`.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_stem().map_or_else(Default::default, |stem| stem.to_string_lossy());
    let end = path.extension().map_or_else(String::new, |end| format!(".{}", end.to_string_lossy()));
    path.with_file_name(format!("{name}-{what}{end}"))
}

fn unwritten(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(
        Kind::Io,
        format!("{}: {error}", path.display()),
        "name a file in a folder that can be written to and has room",
    )
}

/// Every combination of a chain with flows and workers.
fn each(
    args: &BenchArgs,
    stop: &Stop,
    chain: (&str, &Written),
    mut measure: impl FnMut(Trial<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for size in sizes(args) {
        unless(stop)?;
        measure(trial(args, stop, chain, size))?;
    }
    Ok(())
}

fn rates(args: &BenchArgs, catalog: &Catalog, stop: &Stop, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let mut table = Table { args, head: Row::HEAD };
    for (name, written) in chains(args, catalog, &CHAINS)? {
        each(args, stop, (&name, &written), |trial| {
            let orders =
                distributions(args, &written).iter().flat_map(|d| args.trace.iter().map(move |trace| (*d, *trace)));
            for (distribution, trace) in orders {
                unless(stop)?;
                let row = Trial { distribution, trace, ..trial }.measure(catalog, packets(args))?;
                table.say(&row.line())?;
                rows.push(row);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn bare(args: &BenchArgs, stop: &Stop, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let mut table = Table { args, head: Row::HEAD };
    for (flows, workers) in sizes(args) {
        unless(stop)?;
        let row = Row::bare(flows, workers.max(1) as usize, packets(args))?;
        table.say(&row.line())?;
        rows.push(row);
    }
    Ok(())
}

fn ablate(args: &BenchArgs, catalog: &Catalog, stop: &Stop, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let mut table = Table { args, head: Row::HEAD };
    for (name, written) in chains(args, catalog, &[STATEFUL, SHARED])? {
        for (variant, file) in ablation(&written.file, catalog)? {
            each(args, stop, (&name, &written), |trial| {
                let row = Trial { variant, file: &file, ..trial }.measure(catalog, packets(args))?;
                table.say(&row.line())?;
                rows.push(row);
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn latencies(args: &BenchArgs, catalog: &Catalog, stop: &Stop, rows: &mut Vec<latency::Row>) -> Result<(), Failure> {
    let time = time(args, LOAD, LOAD_QUICK)?;
    let mut table = Table { args, head: latency::Row::HEAD };
    for (name, written) in chains(args, catalog, &["forward", STATEFUL])? {
        each(args, stop, (&name, &written), |trial| {
            rows.extend(latency::measure(&trial, catalog, time, &mut |row| table.say(&row.line()))?);
            Ok(())
        })?;
    }
    Ok(())
}

/// One run of a chain with the most flows and workers that are named.
fn soak(
    args: &BenchArgs,
    catalog: &Catalog,
    stop: &Stop,
    (name, written): (&str, &Written),
) -> Result<Vec<Sample>, Failure> {
    let time = time(args, SOAK, SOAK_QUICK)?;
    let flows = at_most(args, args.flows.iter().copied().max().unwrap_or(FLOWS_QUICK));
    let workers = args.workers.iter().copied().max().unwrap_or(1);
    let trial = Trial { trace: Trace::Churn10, step_ns: None, ..trial(args, stop, (name, written), (flows, workers)) };
    let (traffic, compiled) = trial.prepare(catalog, flows)?;
    say(args, &format!("{name}, {flows} flows, a tenth of the packets begins a flow, for {time:?}\n{}", Sample::HEAD))?;
    let live = Live::new(compiled.run.workers);
    let control =
        Control { live: Some(live.clone()), duration: Some(time), stop: Arc::clone(stop), ..Control::default() };
    let source = Box::new(traffic.source);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| launch(&compiled.run, source, Box::new(NullSink), &control));
        let mut samples = soak::watch((&live, stop), name, (time, SOAK_LOOKS), |sample| {
            // A terminal that is gone ends the run at its end.
            let _ = say(args, &sample.to_string());
        });
        let report = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let last = soak::sample(name, &report.total, report.elapsed.as_secs_f64(), samples.last());
        say(args, &last.to_string())?;
        samples.push(last);
        Ok(samples)
    })
}
