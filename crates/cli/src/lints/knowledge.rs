//! What Braid's control is told about functions, because it knows none of them.

use braid_control::Plan;
use braid_control::live::{Knowledge, Told};
use toml::Table;

use super::{interfaces, plan};
use crate::commands::health;

/// All of it, for a run.
pub const KNOWLEDGE: Knowledge = Knowledge { notes, keep };

/// What is to be said of a plan before it runs: of its functions and of its interfaces.
pub fn notes(plan: &Plan) -> Vec<String> {
    [plan::notes(plan), interfaces::notes(plan)].concat()
}

fn keep(told: &Told<'_>, wanted: &mut Table) {
    if told.function == health::BALANCER {
        health::keep(told, wanted);
    }
}
