//! What a program knows of its functions and this crate does not: what is odd about a plan, and what a run keeps when another plan comes.
//!
//! Programs beside a run [configure](Current::configure) single facts, such as which backends of a load balancer are up. No plan file has them, so
//! another plan would undo them. They are kept by a comparison of three configurations: the one that the plan had given, the one that runs, and
//! the one that the other plan gives.

use std::collections::BTreeMap;

use toml::Table;

use super::apply::Current;
use crate::plan::Plan;
use crate::plan::file::{Config, PlanFile, Problem};

/// Answers of the program about its functions; by default it knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// Notes on a plan that is possible, but can hardly be meant.
    pub notes: fn(&Plan) -> Vec<String>,
    /// Lays over a function's configuration in another plan what a run was told beside its plan.
    pub keep: fn(&Told<'_>, &mut Table),
}

impl Default for Knowledge {
    fn default() -> Knowledge {
        Knowledge { notes: |_| Vec::new(), keep: |_, _| () }
    }
}

/// A function that was configured beside the plan.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Which function it is.
    pub function: &'a str,
    /// Its configuration as the plan had it.
    pub written: &'a Table,
    /// Its configuration now.
    pub running: &'a Table,
}

/// The configurations that a plan gave to the functions that have been configured since, by name.
pub type WrittenConfigs = BTreeMap<String, Table>;

impl Current {
    /// Completes another plan with what the run has and was told beside its plan; also returns what the plan itself says of functions
    /// that were told something.
    pub(super) fn planned(&self, mut file: PlanFile) -> Result<(PlanFile, Plan, WrittenConfigs), Problem> {
        file.inherit(&self.file, self.plan.ports);
        let plan = Plan::new(&file, &self.catalog)?;
        let written = self.keep_told(&mut file, &plan);
        let mut plan = if written.is_empty() { plan } else { Plan::new(&file, &self.catalog)? };
        plan.ask_interfaces();
        // One that has been renamed does not answer to its name.
        if plan.devices == self.plan.devices {
            plan.mtus.iter_mut().zip(&self.plan.mtus).for_each(|(now, before)| *now = now.or(*before));
        }
        Ok((file, plan, written))
    }

    /// Lays what the run was told beside its plan over another plan; returns what that other plan itself says of these functions.
    fn keep_told(&self, file: &mut PlanFile, plan: &Plan) -> WrittenConfigs {
        let mut written = WrittenConfigs::new();
        for (link, nf) in plan.chain.iter().zip(&mut file.nf) {
            let is_same = |was: &&crate::PlannedFunction| was.name == link.name && was.entry.name == link.entry.name;
            let known = self.plan.chain.iter().find(is_same).zip(self.written.get(&link.name));
            let Some((running, before)) = known.map(|(was, before)| (was.config.table(), before)) else { continue };
            let wanted = link.config.table();
            let mut kept = wanted.clone();
            (self.knowledge.keep)(&Told { function: &link.entry.name, written: before, running: &running }, &mut kept);
            if kept != wanted {
                nf.config = Config::from(kept);
                written.insert(link.name.clone(), wanted);
            }
        }
        written
    }

    /// Notes on a plan that is about to run or runs.
    pub(super) fn notes_on(&self, plan: &Plan) -> Vec<String> {
        (self.knowledge.notes)(plan)
    }
}
