//! `braid bench`: chains in memory, warmed up, with the machine, the commit and what was lost beside every figure.

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
use crate::bench::traffic::{CHAINS, TRACE, configure, replay};
use crate::chain::Written;
use crate::failure::{Failure, Kind};

/// Packets per worker that are measured if nothing is said.
const PACKETS: f64 = 20e6;
const PACKETS_QUICK: f64 = 1e6;
/// Most flows with `--quick`.
const FLOWS_QUICK: u64 = 100_000;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    chain: String,
    trace: &'static str,
    flows: u64,
    workers: usize,
    distribution: &'static str,
    /// Million packets a second of all workers together: by processor time with hardware distribution, else by the wall.
    mpps: f64,
    /// Time of one worker for one packet, on the same clock.
    ns_per_packet: f64,
    /// The same rate by the wall, whatever else the machine did meanwhile.
    mpps_wall: f64,
    packets: u64,
    /// Packet sets that were live at the end, of all groups: what the tables held.
    sets: u64,
    lost: u64,
    pages: String,
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
        print(&format!("{}{TRACE} traffic in memory, 64-byte frames, flows known; {LOSS_CRITERION}\n", bench.machine))?;
        print(HEAD)?;
    }
    for (name, file) in chains(args, catalog)? {
        for &flows in &args.flows {
            let flows = if args.quick { flows.min(FLOWS_QUICK) } else { flows };
            for &workers in &args.workers {
                for &distribution in distributions {
                    let row = measure(args, catalog, &name, &file, flows, workers, distribution)?;
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
    let lossless = bench.rows.iter().all(|row| row.lost == 0);
    Ok(if lossless { ExitCode::SUCCESS } else { ExitCode::from(Kind::Failed as u8) })
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
    chain: &str,
    file: &PlanFile,
    flows: u64,
    workers: i64,
    distribution: &'static str,
) -> Result<Row, Failure> {
    let mut file = file.clone();
    if args.plan.is_none() {
        configure(&mut file, flows);
    }
    file.workers = Some(unplaced(workers));
    file.distribution = Some(unplaced(distribution.to_owned()));
    file.time = Some(unplaced("live".to_owned()));
    file.batch = args.batch.map(unplaced).or(file.batch);
    file.sets.get_or_insert(unplaced(flows as i64 * 3 / 2));
    let failure = |problem| Failure::of_plan(problem, None);
    let plan = Plan::new(&file, catalog).map_err(failure)?;
    let compiled = plan.compile(Carry::Nothing).map_err(failure)?;
    let packets = args.packets.map_or(if args.quick { PACKETS_QUICK } else { PACKETS }, |millions| millions * 1e6);
    let (source, readings) = Metered::new(replay(chain, flows)?, packets as u64);
    let report = launch(&compiled.run, Box::new(source), Box::new(NullSink), &Control::default())?;
    let report = RunReport::new(Vec::new(), &report);
    let readings = readings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(row(chain, flows, compiled.run.workers, distribution, &readings, &report))
}

fn row(
    chain: &str,
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
    let (pages, sets) = (report.pages.clone(), report.sets.live);
    Row {
        chain,
        trace: TRACE,
        flows,
        workers,
        distribution,
        mpps,
        ns_per_packet,
        mpps_wall,
        packets,
        sets,
        lost,
        pages,
    }
}

const HEAD: &str = "chain                                       flows  workers  distribution    Mpps  ns/packet  Mpps by the wall       sets  lost\n";

fn line(row: &Row) -> String {
    let Row { chain, flows, workers, distribution, mpps, ns_per_packet, mpps_wall, sets, lost, .. } = row;
    let (flows, sets) = (grouped(*flows), grouped(*sets));
    format!(
        "{chain:<40} {flows:>9} {workers:>8}  {distribution:<12} {mpps:>7.2} {ns_per_packet:>10.1} {mpps_wall:>17.2} {sets:>10} {lost:>5}\n"
    )
}
