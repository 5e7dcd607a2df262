//! Recipes that try themselves: each value that a function allows for a relaxation is tried in the model, and the mildest one
//! that gains nearly as much as the best is chosen.

use braid_profile::Setting;
use braid_runtime::nf::Relaxation;
use serde::Serialize;

use crate::model::{Calibration, ModelError, Request, abort_share, calibrate, measured, modelled, rate};
use crate::plan::Plan;
use crate::profile_run::{relaxations, with_setting};

/// A milder value that reaches this share of the best rate is preferred to it.
const ENOUGH: f64 = 0.9;
/// Less than this gain over the plan as it stands is none.
const GAIN: f64 = 1.05;

/// One value tried.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The value; none for the plan as it stands.
    pub value: Option<i64>,
    /// Packets per second, modelled.
    pub rate: f64,
    /// Share of attempts taken back, modelled.
    pub abort_share: f64,
}

/// What became of one relaxation.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The function.
    pub function: String,
    /// The key.
    pub key: &'static str,
    /// What users will notice.
    pub meaning: &'static str,
    /// The plan as it stands, then each value.
    pub trials: Vec<Trial>,
    /// The value to write, if any helps.
    pub chosen: Option<i64>,
}

/// What tuning found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan with the values set.
    pub plan: Plan,
    /// Every relaxation that was tried.
    pub tuned: Vec<Tuned>,
    /// Virtual workers it was tuned for.
    pub workers: usize,
    /// Real ones beside them.
    pub measured: Vec<Measured>,
    /// The packets.
    pub input: String,
}

/// The plan before and after on some real workers: packets per second of processor time, and the share of attempts taken back.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Workers.
    pub workers: usize,
    /// As it was.
    pub before: (f64, f64),
    /// With the values set.
    pub after: (f64, f64),
}

/// Real workers that a tuned plan is measured on.
const REAL: [usize; 2] = [1, 2];

/// What of a plan can be relaxed, with values to try: each function's name and the relaxation.
pub fn tried(plan: &Plan) -> Vec<(String, Relaxation)> {
    relaxations(plan).into_iter().filter(|(_, relaxation)| !relaxation.candidates.is_empty()).collect()
}

/// Tries every relaxation of the plan on so many virtual workers, each on top of those chosen before, and measures the plan as it
/// was and as it became on this machine.
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
