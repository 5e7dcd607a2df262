//! `braid bench`: chains in memory, warmed up, with the machine, the commit and what was lost beside every figure.

use std::path::Path;
use std::process::ExitCode;
use std::sync::PoisonError;

use braid_control::plan_file::{PlanFile, unplaced};
use braid_control::report::grouped;
use braid_control::runtime::io::NullSink;
use braid_control::runtime::{Control, launch};
use braid_control::{Carry, Catalog, Plan, RunReport};
use serde::Serialize;

use super::{print, print_json};
use crate::args::BenchArgs;
use crate::bench::machine::Machine;
use crate::bench::meter::{Metered, Reading};
use crate::bench::output;
use crate::bench::traffic::{CHAINS, Trace, configure, replay};
use crate::chain::Written;
use crate::failure::{Failure, Kind};

/// Packets per worker that are measured if nothing is said.
const PACKETS: f64 = 20e6;
const PACKETS_QUICK: f64 = 1e6;
/// Most flows with `--quick`.
const FLOWS_QUICK: u64 = 100_000;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) chain: String,
    pub(crate) trace: &'static str,
    pub(crate) flows: u64,
    pub(crate) workers: usize,
    pub(crate) distribution: &'static str,
    /// Each frame is copied from the ring into a buffer, as a card's transfer would; there is no other way yet.
    pub(crate) receive_copy: bool,
    /// Million packets a second of all workers together: by processor time with hardware distribution, else by the wall.
    pub(crate) mpps: f64,
    /// Time of one worker for one packet, on the same clock.
    pub(crate) ns_per_packet: f64,
    /// The same rate by the wall, whatever else the machine did meanwhile.
    pub(crate) mpps_wall: f64,
    pub(crate) packets: u64,
    /// Packet sets that were live at the end, of all groups: what the tables held.
    pub(crate) sets: u64,
    /// Packet sets that became live, and that expired.
    pub(crate) created: u64,
    pub(crate) expired: u64,
    pub(crate) lost: u64,
    pub(crate) pages: String,
}

/// All of them.
#[derive(Serialize)]
struct Bench {
    machine: Machine,
    loss_criterion: &'static str,
    rows: Vec<Row>,
}

const LOSS_CRITERION: &str = "no packet lost: whatever came in went out";

/// Runs it.
pub fn run(args: &BenchArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let distributions: &[&str] = match args.distribution.as_str() {
        "both" => &["hardware", "software"],
        "software" => &["software"],
        _ => &["hardware"],
    };
    let mut bench = Bench { machine: Machine::here(), loss_criterion: LOSS_CRITERION, rows: Vec::new() };
    if !args.json {
        let copied = "copied from a ring into buffers (receive copy)";
        print(&format!("{}64-byte frames in memory, {copied}, flows known; {LOSS_CRITERION}\n", bench.machine))?;
        print(HEAD)?;
    }
    for (name, file) in chains(args, catalog)? {
        for &flows in &args.flows {
            let flows = if args.quick { flows.min(FLOWS_QUICK) } else { flows };
            for &workers in &args.workers {
                for (&distribution, &trace) in distributions.iter().flat_map(|d| args.trace.iter().map(move |t| (d, t)))
                {
                    let row = measure(args, catalog, (&name, &file), trace, flows, workers, distribution)?;
                    if !args.json {
                        print(&line(&row))?;
                    }
                    bench.rows.push(row);
                }
            }
        }
    }
    if args.json {
        print_json(&bench)?;
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, output::csv(&bench.rows)).map_err(|error| unwritten(path, &error))?;
    }
    if let Some(path) = &args.plot {
        output::plot(&bench.rows, path).map_err(|error| unwritten(path, &*error))?;
    }
    let lossless = bench.rows.iter().all(|row| row.lost == 0);
    Ok(if lossless { ExitCode::SUCCESS } else { ExitCode::from(Kind::Failed as u8) })
}

fn unwritten(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(Kind::Failed, format!("{}: {error}", path.display()), "name a file in a folder that exists")
}

/// Names and plan files of the chains to measure.
fn chains(args: &BenchArgs, catalog: &Catalog) -> Result<Vec<(String, PlanFile)>, Failure> {
    if let Some(path) = &args.plan {
        return Ok(vec![(path.display().to_string(), Written::of_file(path)?.file)]);
    }
    let of = |name: &str| (name.to_owned(), PlanFile::of_functions(name.split('+')));
    if !args.chain.is_empty() {
        return Ok(args.chain.iter().map(|name| of(name)).collect());
    }
    let known = |name: &&&str| name.split('+').all(|function| catalog.find(function).is_some());
    Ok(CHAINS.iter().filter(known).map(|name| of(name)).collect())
}

fn measure(
    args: &BenchArgs,
    catalog: &Catalog,
    (chain, file): (&str, &PlanFile),
    trace: Trace,
    flows: u64,
    workers: i64,
    distribution: &'static str,
) -> Result<Row, Failure> {
    let packets = args.packets.map_or(if args.quick { PACKETS_QUICK } else { PACKETS }, |millions| millions * 1e6);
    let traffic = replay(chain, flows, trace, packets as u64 * workers.max(1) as u64)?;
    let mut file = file.clone();
    if args.plan.is_none() {
        configure(&mut file, traffic.flows);
    }
    file.workers = Some(unplaced(workers));
    file.distribution = Some(unplaced(distribution.to_owned()));
    file.time = Some(unplaced("live".to_owned()));
    file.batch = args.batch.map(unplaced).or(file.batch);
    file.sets.get_or_insert(unplaced(traffic.flows as i64 * 3 / 2));
    let failure = |problem| Failure::of_plan(problem, None);
    let plan = Plan::new(&file, catalog).map_err(failure)?;
    let compiled = plan.compile(Carry::Nothing).map_err(failure)?;
    let (source, readings) = Metered::new(traffic.source, traffic.warm, packets as u64);
    let report = launch(&compiled.run, Box::new(source), Box::new(NullSink), &Control::default())?;
    let report = RunReport::new(Vec::new(), &report);
    let readings = readings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(row((chain, trace), flows, compiled.run.workers, distribution, &readings, &report))
}

fn row(
    (chain, trace): (&str, Trace),
    flows: u64,
    workers: usize,
    distribution: &'static str,
    readings: &[Reading],
    report: &RunReport,
) -> Row {
    let packets: u64 = readings.iter().map(|reading| reading.packets).sum();
    let rate = |packets: u64, time: std::time::Duration| packets as f64 / time.as_secs_f64().max(1e-9) / 1e6;
    let mpps_wall = readings.iter().map(|reading| rate(reading.packets, reading.wall)).sum();
    let by_cpu: f64 = readings.iter().map(|reading| rate(reading.packets, reading.cpu)).sum();
    let cpu: f64 = readings.iter().map(|reading| reading.cpu.as_secs_f64()).sum();
    let (mpps, ns_per_packet) = match distribution {
        "hardware" => (by_cpu, cpu * 1e9 / packets.max(1) as f64),
        _ => (mpps_wall, 1e3 / mpps_wall),
    };
    // Copies by flooding are no gain: what came in has to come out.
    let lost = report.packets_in.saturating_sub(report.packets_out - report.packets_copied.min(report.packets_out));
    let chain = chain.to_owned();
    let pages = report.pages.clone();
    Row {
        chain,
        trace: trace.name(),
        flows,
        workers,
        distribution,
        receive_copy: true,
        mpps,
        ns_per_packet,
        mpps_wall,
        packets,
        sets: report.sets.live,
        created: report.sets.created,
        expired: report.sets.expired,
        lost,
        pages,
    }
}

const HEAD: &str = "chain                                    trace       flows  workers  distribution    Mpps  ns/packet  Mpps by the wall       sets   expired  lost\n";

fn line(row: &Row) -> String {
    let Row { chain, trace, flows, workers, distribution, mpps, ns_per_packet, mpps_wall, sets, expired, lost, .. } =
        row;
    let (flows, sets, expired) = (grouped(*flows), grouped(*sets), grouped(*expired));
    format!(
        "{chain:<40} {trace:<7} {flows:>9} {workers:>8}  {distribution:<12} {mpps:>7.2} {ns_per_packet:>10.1} {mpps_wall:>17.2} {sets:>10} {expired:>9} {lost:>5}\n"
    )
}
