//! Recipes that try themselves: each value that a function allows for a relaxation is tried in the model, and the mildest one
//! that gains nearly as much as the best is chosen.

use std::fmt::Write;

use braid_runtime::nf::Relaxation;
use serde::Serialize;

use crate::model::{Calibration, ModelError, Request, abort_share, calibrate, modelled};
use crate::plan::Plan;
use crate::profile_run::relaxations;

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

/// Tries every relaxation of the plan on so many virtual workers, each on top of those chosen before. Returns the plan with the
/// values set.
pub fn tune(plan: &Plan, workers: usize, request: Request<'_>) -> Result<(Plan, Vec<Tuned>), ModelError> {
    let Calibration { costs, .. } = calibrate(plan, request)?;
    let mut plan = plan.clone();
    let mut all = Vec::new();
    for (function, relaxation) in relaxations(&plan) {
        let trial = |value: Option<i64>| -> Result<Trial, ModelError> {
            let candidate = value.map_or_else(|| plan.clone(), |value| set(&plan, &function, &relaxation, value));
            let report = modelled(&candidate, workers, &costs, request)?;
            let rate = report.total.packets_in as f64 / report.elapsed.as_secs_f64().max(1e-9);
            Ok(Trial { value, rate, abort_share: abort_share(&report) })
        };
        let values = std::iter::once(None).chain(relaxation.candidates.iter().copied().map(Some));
        let trials = values.map(trial).collect::<Result<Vec<_>, _>>()?;
        let best = trials.iter().map(|trial| trial.rate).fold(0.0, f64::max);
        let good = |trial: &&Trial| trial.value.is_some() && trial.rate >= ENOUGH * best;
        let chosen = trials.iter().find(good).filter(|trial| trial.rate >= GAIN * trials[0].rate);
        let chosen = chosen.and_then(|trial| trial.value);
        if let Some(value) = chosen {
            plan = set(&plan, &function, &relaxation, value);
        }
        let Relaxation { key, meaning, .. } = relaxation;
        all.push(Tuned { function, key, meaning, trials, chosen });
    }
    Ok((plan, all))
}

fn set(plan: &Plan, function: &str, relaxation: &Relaxation, value: i64) -> Plan {
    let mut plan = plan.clone();
    for link in plan.chain.iter_mut().filter(|link| link.name == function) {
        link.config.set(relaxation.key, toml::Value::Integer(value));
    }
    plan
}

/// The functions of a plan file with the values chosen, the evidence as comments.
pub fn plan_text(plan: &Plan, tuned: &[Tuned], workers: usize) -> String {
    let mut out = format!("# Tuned for {workers} workers; the figures are modelled.\n");
    for link in &plan.chain {
        let _ = writeln!(out, "\n[[nf]]\nfunction = \"{}\"", link.entry.name);
        if link.name != link.entry.name {
            let _ = writeln!(out, "name = \"{}\"", link.name);
        }
        for tuned in tuned.iter().filter(|tuned| tuned.function == link.name) {
            let _ = writeln!(out, "# {}: {}", tuned.key, tuned.meaning);
            for Trial { value, rate, abort_share } in &tuned.trials {
                let value = value.map_or("as it was".to_owned(), |value| value.to_string());
                let (rate, aborts) = (rate / 1e6, 100.0 * abort_share);
                let _ = writeln!(
                    out,
                    "#   {value:>9}: {rate:>8.2} million packets a second, {aborts:>5.1} % of attempts taken back"
                );
            }
        }
        let table = link.config.table();
        if !table.is_empty() {
            let text = toml::to_string(&toml::Table::from_iter([("config".to_owned(), toml::Value::Table(table))]));
            let _ = writeln!(out, "{}", text.unwrap_or_default().replace("[config", "[nf.config").trim_end());
        }
    }
    out
}
