//! What Braid's control is told about functions, because it knows none of them.

use braid_control::Plan;
use braid_control::live::{Knowledge, Told};
use toml::Table;

use crate::commands::health;
use crate::{interface_lints, plan_lints};

/// All of it, for a run.
pub const KNOWLEDGE: Knowledge = Knowledge { notes, keep };

/// What is to be said of a plan before it runs: of its functions and of its interfaces.
pub fn notes(plan: &Plan) -> Vec<String> {
    [plan_lints::notes(plan), interface_lints::notes(plan)].concat()
}

fn keep(told: &Told<'_>, wanted: &mut Table) {
    if told.function == health::BALANCER {
        health::keep(told, wanted);
    }
}
