//! The scaling model: calibrates on one real worker, then runs any number of virtual workers.
//!
//! Every run, modelled or real, processes the same number of packets, divided among its workers: how much a run still has to learn
//! (sessions, stations) depends on how far it gets. Real runs are repeated and their medians compared. The report states how much
//! of the time the real workers had a processor, because workers that take turns on one processor do not conflict.

use braid_profile::model::MODELLED;
use braid_profile::{Measured, ModelReport, ModelRow};
use braid_runtime::io::NullSink;
use braid_runtime::launch::Model;
use braid_runtime::model::virtual_time::Costs;
use braid_runtime::{Control, Distribution, HugePages, Report, RunError, Time, WorkerCounters, launch};

use crate::compile::Carry;
use crate::frames::Frames;
use crate::plan::Plan;
use crate::plan::file::Problem;
use crate::profile_run::profile;

mod calibrate;

pub use calibrate::{Calibration, calibrate};

/// Why a model could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The plan does not compile for this number of workers.
    #[error(transparent)]
    Plan(#[from] Problem),
    /// The plan does not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// What to model.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The packets, replayed as often as needed.
    pub frames: &'a Frames,
    /// Name of the input.
    pub input: &'a str,
    /// Number of packets in each run, modelled or real, over all workers.
    pub packets: u64,
    /// Number of calibrations, and of real runs for each number of workers.
    pub repeats: usize,
    /// Seed that slightly varies the start times of virtual workers and the costs of their packets.
    pub seed: u64,
}

impl Request<'_> {
    fn packets_of_each(&self, workers: usize) -> u64 {
        (self.packets / workers as u64).max(1)
    }
}

/// The plan for this number of workers, at full speed; if its ports are interfaces, the frames replace them.
fn with_workers(plan: &Plan, workers: usize) -> Plan {
    let distribution = if plan.devices.is_empty() { plan.distribution } else { Distribution::Hardware };
    Plan { workers, distribution, time: Time::Live, ..plan.clone() }
}

/// Runs the plan on real workers, in memory.
pub fn real(plan: &Plan, workers: usize, request: Request<'_>, profile: bool) -> Result<Report, ModelError> {
    real_with(plan, workers, request, &Control { profile, ..Control::default() })
}

fn real_with(plan: &Plan, workers: usize, request: Request<'_>, control: &Control) -> Result<Report, ModelError> {
    let mut compiled = with_workers(plan, workers).compile(Carry::Nothing)?;
    if compiled.run.pages == HugePages::Prefer {
        // The time to zero memory depends on the sizes of the tables, not on packets, and must not be measured.
        compiled.run.pages = HugePages::Touched;
    }
    let source = request.frames.repeated(request.input, request.packets_of_each(workers));
    Ok(launch(&compiled.run, Box::new(source), Box::new(NullSink), control)?)
}

/// Runs the plan on virtual workers.
pub fn modelled(plan: &Plan, workers: usize, costs: &Costs, request: Request<'_>) -> Result<Report, ModelError> {
    let mut compiled = with_workers(plan, workers).compile(Carry::Nothing)?;
    compiled.run.pages = HugePages::Never;
    let source = request.frames.repeated(request.input, request.packets_of_each(workers));
    let control = Control { model: Some(Model { costs: costs.clone(), seed: request.seed }), ..Control::default() };
    Ok(launch(&compiled.run, Box::new(source), Box::new(NullSink), &control)?)
}

/// Measures one run on real workers.
fn measure(plan: &Plan, workers: usize, request: Request<'_>) -> Result<Measured, ModelError> {
    let report = real(plan, workers, request, false)?;
    // Relative to each worker's own time, from its first step to its last: starting the threads does not count as absence.
    let present = |worker: &WorkerCounters| worker.cpu_ns as f64 / (worker.wall_ns as f64).max(1.0);
    let presence = report.workers.iter().map(present).fold(1.0, f64::min);
    Ok(Measured { rate: rate(&report), abort_share: abort_share(&report), presence })
}

/// Measures several runs on real workers; returns medians.
pub fn measured(plan: &Plan, workers: usize, request: Request<'_>) -> Result<Measured, ModelError> {
    let runs = (0..request.repeats.max(1)).map(|_| measure(plan, workers, request));
    Ok(medians(&runs.collect::<Result<Vec<_>, _>>()?))
}

fn medians(runs: &[Measured]) -> Measured {
    let median = |of: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Measured { rate: median(|m| m.rate), abort_share: median(|m| m.abort_share), presence: median(|m| m.presence) }
}

/// Calibrates, models each number of workers, and measures real runs of `real_workers` for comparison. Calibrations and real runs
/// alternate, so that other load on the machine affects both.
pub fn model(
    plan: &Plan,
    workers: &[usize],
    real_workers: &[usize],
    request: Request<'_>,
) -> Result<ModelReport, ModelError> {
    let mut calibrations = Vec::new();
    let mut runs: Vec<(usize, Vec<Measured>)> = Vec::new();
    runs.extend(workers.iter().filter(|count| real_workers.contains(count)).map(|count| (*count, Vec::new())));
    for _ in 0..request.repeats.max(1) {
        calibrations.push(calibrate::once(plan, request)?);
        for (count, measured) in &mut runs {
            measured.push(measure(plan, *count, request)?);
        }
    }
    let calibration = calibrate::middle(calibrations);
    let mut rows = Vec::new();
    for &count in workers {
        let report = modelled(plan, count, &calibration.costs, request)?;
        let mut row = row(plan, count, &report, request);
        row.measured = runs.iter().find(|(real, _)| *real == count).map(|(_, runs)| medians(runs));
        rows.push(row);
    }
    Ok(ModelReport {
        label: MODELLED,
        chain: plan.chain.iter().map(|link| link.name.clone()).collect(),
        input: request.input.to_owned(),
        packets: request.packets,
        repeats: request.repeats,
        calibration: calibration.words(plan),
        rows,
    })
}

fn row(plan: &Plan, workers: usize, report: &Report, request: Request<'_>) -> ModelRow {
    let profile = profile(plan, request.input, report, true);
    let top = profile.causes.iter().find(|cause| !cause.object.is_empty());
    ModelRow {
        workers,
        rate: rate(report),
        abort_share: abort_share(report),
        transfers: report.transfers as f64 / profile.packets.max(1) as f64,
        cause: top.map(|top| format!("{}: {} met {} over {}", top.object, top.mine, top.theirs, top.why)),
        recipe: top.map(|top| top.change.clone().unwrap_or_else(|| top.recipe.clone())),
        memory_bytes: report.memory_bytes,
        measured: None,
    }
}

/// Share of attempts that were rolled back.
pub fn abort_share(report: &Report) -> f64 {
    report.total.aborts as f64 / ((report.total.aborts + report.total.commits) as f64).max(1.0)
}

/// Packets per second of processor time (of virtual time in a model), summed over all workers: the rate if
/// each worker had its own processor.
pub fn rate(report: &Report) -> f64 {
    report.workers.iter().map(|w| w.packets_in as f64 * 1e9 / (w.cpu_ns as f64).max(1.0)).sum()
}
