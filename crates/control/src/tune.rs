//! Tunes a plan: models each value that a function allows for a relaxation, and chooses the mildest value
//! that gains nearly as much as the best.

use braid_profile::Setting;
use braid_runtime::nf::Relaxation;
use serde::Serialize;

use crate::model::{Calibration, ModelError, Request, abort_share, calibrate, measured, modelled, rate};
use crate::plan::Plan;
use crate::profile_run::{relaxations, with_setting};

/// A milder value is preferred if it reaches this share of the best rate.
const ENOUGH: f64 = 0.9;
/// Minimum gain over the unchanged plan; a smaller one counts as none.
const GAIN: f64 = 1.05;

/// One tried value.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The value; `None` for the unchanged plan.
    pub value: Option<i64>,
    /// Packets per second, modelled.
    pub rate: f64,
    /// Share of attempts rolled back, modelled.
    pub abort_share: f64,
}

/// The result for one relaxation.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The function.
    pub function: String,
    /// The configuration key.
    pub key: &'static str,
    /// What users would notice of the relaxation.
    pub meaning: &'static str,
    /// The unchanged plan, followed by each value.
    pub trials: Vec<Trial>,
    /// The value to set, if any helps.
    pub chosen: Option<i64>,
}

/// The result of tuning.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan with the chosen values set.
    pub plan: Plan,
    /// Every relaxation that was tried.
    pub tuned: Vec<Tuned>,
    /// Number of virtual workers for which the plan was tuned.
    pub workers: usize,
    /// Measurements on real workers, for comparison.
    pub measured: Vec<Measured>,
    /// Name of the input.
    pub input: String,
}

/// Measurements of the plan before and after tuning on some number of real workers: packets per second of
/// processor time, and the share of attempts rolled back.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Number of workers.
    pub workers: usize,
    /// Before tuning.
    pub before: (f64, f64),
    /// With the chosen values set.
    pub after: (f64, f64),
}

/// Numbers of real workers on which a tuned plan is measured.
const REAL: [usize; 2] = [1, 2];

/// The relaxations of a plan that have candidate values, each with its function's name.
pub fn tried(plan: &Plan) -> Vec<(String, Relaxation)> {
    relaxations(plan).into_iter().filter(|(_, relaxation)| !relaxation.candidates.is_empty()).collect()
}

/// Tunes every relaxation of the plan for this number of virtual workers, each on top of the values chosen before, and measures the
/// plan before and after on real workers of this machine.
pub fn tune(before: &Plan, workers: usize, request: Request<'_>) -> Result<Outcome, ModelError> {
    let mut plan = before.clone();
    let mut all = Vec::new();
    let relaxations = tried(&plan);
    if relaxations.is_empty() {
        return Ok(Outcome { plan, tuned: all, workers, measured: Vec::new(), input: request.input.to_owned() });
    }
    let Calibration { costs, .. } = calibrate(before, request)?;
    for (function, relaxation) in relaxations {
        let setting = |value| Setting { function: function.clone(), key: relaxation.key.to_owned(), value };
        let trial = |value: Option<i64>| -> Result<Trial, ModelError> {
            let candidate = value.map_or_else(|| plan.clone(), |value| with_setting(&plan, &setting(value)));
            let report = modelled(&candidate, workers, &costs, request)?;
            Ok(Trial { value, rate: rate(&report), abort_share: abort_share(&report) })
        };
        let values = std::iter::once(None).chain(relaxation.candidates.iter().copied().map(Some));
        let trials = values.map(trial).collect::<Result<Vec<_>, _>>()?;
        let best = trials.iter().map(|trial| trial.rate).fold(0.0, f64::max);
        let good = |trial: &&Trial| trial.value.is_some() && trial.rate >= ENOUGH * best;
        let chosen = trials.iter().find(good).filter(|trial| trial.rate >= GAIN * trials[0].rate);
        let chosen = chosen.and_then(|trial| trial.value);
        if let Some(value) = chosen {
            plan = with_setting(&plan, &setting(value));
        }
        let Relaxation { key, meaning, .. } = relaxation;
        all.push(Tuned { function, key, meaning, trials, chosen });
    }
    let changed = all.iter().any(|tuned| tuned.chosen.is_some());
    let real_pair = |plan: &Plan, workers| -> Result<(f64, f64), ModelError> {
        let measured = measured(plan, workers, request)?;
        Ok((measured.rate, measured.abort_share))
    };
    let measure = |workers| {
        let first = real_pair(before, workers)?;
        Ok(Measured { workers, before: first, after: if changed { real_pair(&plan, workers)? } else { first } })
    };
    let measured = REAL.into_iter().map(measure).collect::<Result<Vec<_>, ModelError>>()?;
    Ok(Outcome { plan, tuned: all, workers, measured, input: request.input.to_owned() })
}
