//! The scaling model: calibrates on one real worker, then runs as many virtual ones as asked for.
//!
//! Calibration is a profile of the same chain on the same packets, one worker, and two figures of the machine: what an access
//! to an object in the cache costs, and what it costs to fetch a line that another core has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid_profile::model::MODELLED;
use braid_profile::{ModelReport, ModelRow};
use braid_runtime::io::NullSink;
use braid_runtime::launch::Model;
use braid_runtime::nf::state::{Domain, StateBuilder, Tx, Vector, VectorConfig};
use braid_runtime::probe::Lap;
use braid_runtime::virtual_time::{Costs, StageCosts};
use braid_runtime::{Control, HugePages, Report, RunError, Time, launch};

use crate::compile::Carry;
use crate::frames::Frames;
use crate::plan::Plan;
use crate::plan_file::Problem;
use crate::profile_run::profile;

/// What a line transfer costs, in nanoseconds, where it cannot be measured: one processor, or two that are never free at once.
const TRANSFER_NS: f64 = 50.0;
/// A longer transfer was interrupted: no machine's is.
const TRANSFER_MAX_NS: f64 = 2000.0;
/// What validating a read or publishing a write adds to a commit, in nanoseconds.
const COMMIT_ACCESS_NS: f64 = 1.0;
/// First look at a lock that is taken, in nanoseconds.
const WAIT_NS: f64 = 20.0;

/// A model that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The plan does not compile for so many workers.
    #[error(transparent)]
    Plan(#[from] Problem),
    /// It does not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// What to model.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The packets; played again and again.
    pub frames: &'a Frames,
    /// Their name.
    pub input: &'a str,
    /// Packets per worker, virtual ones.
    pub packets: u64,
    /// Packets of the calibration and of each real run.
    pub real_packets: u64,
    /// Moves virtual workers a little apart.
    pub seed: u64,
}

/// What calibration found.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// What things cost here.
    pub costs: Costs,
    /// The same in words.
    pub words: Vec<String>,
}

/// The plan for so many workers, as fast as it goes.
fn with_workers(plan: &Plan, workers: usize) -> Plan {
    Plan { workers, time: Time::Live, ..plan.clone() }
}

/// Real workers, in memory.
pub fn real(plan: &Plan, workers: usize, request: Request<'_>, profile: bool) -> Result<Report, ModelError> {
    let compiled = with_workers(plan, workers).compile(Carry::Nothing)?;
    let source = request.frames.repeated(request.input, request.real_packets);
    let control = Control { profile, ..Control::default() };
    Ok(launch(&compiled.run, Box::new(source), Box::new(NullSink), &control)?)
}

/// Virtual workers.
pub fn modelled(plan: &Plan, workers: usize, costs: &Costs, request: Request<'_>) -> Result<Report, ModelError> {
    let mut compiled = with_workers(plan, workers).compile(Carry::Nothing)?;
    compiled.run.pages = HugePages::Never;
    let source = request.frames.repeated(request.input, request.packets);
    let control = Control { model: Some(Model { costs: costs.clone(), seed: request.seed }), ..Control::default() };
    Ok(launch(&compiled.run, Box::new(source), Box::new(NullSink), &control)?)
}

/// Measures what things cost.
pub fn calibrate(plan: &Plan, request: Request<'_>) -> Result<Calibration, ModelError> {
    let report = real(plan, 1, request, true)?;
    let split = &report.splits[0];
    let ns = |cycles: f64| cycles / split.cycles_per_ns.max(1e-9);
    let per_packet = |lap: &Lap| ns(lap.cycles as f64) / (lap.packets as f64).max(1.0);
    let (access, transfer) = (access_ns(), transfer_ns());
    let chain = plan.probe(Carry::Nothing)?;
    let stage = |(at, time): (usize, &braid_runtime::probe::StageTime)| {
        let has_objects = chain.stages()[at].has_objects();
        let touched = (time.reads + time.writes) as f64;
        let times = (time.commit.times as f64).max(1.0);
        let handlers = ns(time.handlers.cycles as f64) - touched * access;
        StageCosts {
            look_up: per_packet(&time.look_up),
            packet: handlers.max(0.0) / (time.handlers.packets as f64).max(1.0),
            // Attempts that touch nothing commit for nothing; the rest carry it all.
            commit: (ns(time.commit.cycles as f64) / times - COMMIT_ACCESS_NS * touched / times).max(0.0),
            commit_access: COMMIT_ACCESS_NS,
            has_objects,
        }
    };
    let costs = Costs {
        receive: per_packet(&split.receive),
        parse: per_packet(&split.parse),
        send: per_packet(&split.send),
        expire: per_packet(&split.expire),
        batch: 0.0,
        stages: split.stages.iter().enumerate().map(stage).collect(),
        access,
        transfer,
        wait: WAIT_NS,
    };
    let words = vec![
        format!(
            "one worker here, per packet: receive {:.1} ns, parse {:.1} ns, send {:.1} ns, expiry {:.1} ns",
            costs.receive, costs.parse, costs.send, costs.expire
        ),
        plan.chain
            .iter()
            .zip(&costs.stages)
            .map(|(link, s)| {
                format!(
                    "{}: look-up {:.1} ns, handlers {:.1} ns; a commit {:.0} ns",
                    link.name, s.look_up, s.packet, s.commit
                )
            })
            .collect::<Vec<_>>()
            .join("; "),
        format!("an access in the cache {access:.1} ns, a line from another core {transfer:.0} ns"),
    ];
    Ok(Calibration { costs, words })
}

/// Calibrates and models each number of workers, beside real runs of `measured` workers.
pub fn model(
    plan: &Plan,
    workers: &[usize],
    measured: &[usize],
    request: Request<'_>,
) -> Result<ModelReport, ModelError> {
    let Calibration { costs, words } = calibrate(plan, request)?;
    let mut rows = Vec::new();
    for &count in workers {
        let report = modelled(plan, count, &costs, request)?;
        let mut row = row(plan, count, &report, request);
        if measured.contains(&count) {
            let report = real(plan, count, request, false)?;
            row.measured_rate = Some(real_rate(&report));
            row.measured_abort_share = Some(abort_share(&report));
        }
        rows.push(row);
    }
    let chain = plan.chain.iter().map(|link| link.name.clone()).collect();
    Ok(ModelReport { label: MODELLED, chain, input: request.input.to_owned(), calibration: words, rows })
}

fn row(plan: &Plan, workers: usize, report: &Report, request: Request<'_>) -> ModelRow {
    let profile = profile(plan, request.input, report, true);
    let top = profile.causes.iter().find(|cause| !cause.object.is_empty());
    ModelRow {
        workers,
        rate: profile.rate(),
        abort_share: profile.abort_share(),
        transfers: report.transfers as f64 / profile.packets.max(1) as f64,
        cause: top.map(|top| format!("{}: {} met {} over {}", top.object, top.mine, top.theirs, top.why)),
        recipe: top.map(|top| top.change.clone().unwrap_or_else(|| top.recipe.clone())),
        memory_bytes: report.memory_bytes,
        ..ModelRow::default()
    }
}

/// Share of attempts that were taken back.
pub fn abort_share(report: &Report) -> f64 {
    report.total.aborts as f64 / ((report.total.aborts + report.total.commits) as f64).max(1.0)
}

/// Packets per second of processor time, over all workers: what they would do with processors of their own.
pub fn real_rate(report: &Report) -> f64 {
    report.workers.iter().map(|w| w.packets_in as f64 * 1e9 / (w.cpu_ns as f64).max(1.0)).sum()
}

/// What reading an object in the first-level cache costs within a transaction.
fn access_ns() -> f64 {
    let domain = Domain::new(1);
    let mut builder = StateBuilder::new(&domain, HugePages::Never);
    let config = VectorConfig { name: "calibration".into(), len: 64 };
    let Ok(vector) = Vector::new(&mut builder, &config, 0u64) else { return crate::profile_run::ACCESS_NS };
    let mut tx = Tx::new(&domain, 0);
    let mut round = || {
        let begun = Instant::now();
        for _ in 0..200 {
            for index in 0..64 {
                let _ = std::hint::black_box(vector.get(&mut tx, index));
            }
            let _ = tx.commit();
        }
        begun.elapsed().as_nanos() as f64 / (200.0 * 64.0)
    };
    (0..8).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Half a round trip of a line between two threads: the best of many short rallies, for the machine may have other work and
/// both threads must have a processor at once.
fn transfer_ns() -> f64 {
    const RALLIES: u64 = 500;
    const TRIPS: u64 = 32;
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        return TRANSFER_NS;
    }
    let ball = AtomicU64::new(0);
    let best = std::thread::scope(|scope| {
        scope.spawn(|| (0..RALLIES * TRIPS).for_each(|trip| answer(&ball, 2 * trip + 1)));
        let rally = |rally: u64| {
            let begun = Instant::now();
            for trip in rally * TRIPS..(rally + 1) * TRIPS {
                answer(&ball, 2 * trip);
            }
            begun.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64
        };
        (0..RALLIES).map(rally).fold(f64::INFINITY, f64::min)
    });
    if best < TRANSFER_MAX_NS { best } else { TRANSFER_NS }
}

/// Waits until the ball is here, and sends it back.
fn answer(ball: &AtomicU64, here: u64) {
    let mut spins = 0u32;
    // Acquire and release: each side sees the other's latest.
    while ball.load(Ordering::Acquire) != here {
        spins += 1;
        // The other thread may not have a processor just now.
        if spins > 10_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    ball.store(here + 1, Ordering::Release);
}
