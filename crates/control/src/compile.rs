//! From a validated plan to a runnable one: builds the chain once to learn its packet sets, chooses the steering that keeps
//! them local, and refuses a plan for which there is none.

use std::sync::Arc;

use braid_runtime::nf::Stage;
use braid_runtime::nf::packet::fields::{SEQUENCE, StageUse, TIMESTAMP_NS, WIRE_LEN};
use braid_runtime::nf::state::{Domain, StateBuilder};
use braid_runtime::steer::planner::{self, HashPlan, Locality, Member};
use braid_runtime::steer::{Key, Pattern, Reta, Steering};
use braid_runtime::{BuildError, Chain, ChainError, Plan as RunPlan, Time};

use crate::HugePages;
use crate::catalog::Refusal;
use crate::overridden::Overridden;
use crate::plan::{Link, Plan};
use crate::plan_file::Problem;

/// What the sink wants to know of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Time stamps, lengths and order, as a capture file holds them.
    Capture,
    /// Nothing: packets are counted and forgotten.
    Nothing,
}

/// A plan that can run, and why it runs so.
#[derive(Debug)]
pub struct Compiled {
    /// For [`launch`](braid_runtime::launch).
    pub run: RunPlan,
    /// The fields that steer, and what it means for each function.
    pub hash: HashPlan,
    /// Why it runs on fewer workers than the machine has processors, though nobody asked for that.
    pub note: Option<String>,
}

impl Plan {
    /// Makes it runnable.
    pub fn compile(&self, carry: Carry) -> Result<Compiled, Problem> {
        let chain = self.probe(carry)?;
        let members = members(&chain);
        let hash = planner::plan(&members);
        let torn = if self.workers > 1 { torn_sets(self, &hash) } else { None };
        let (workers, note) = match torn {
            None => (self.workers, None),
            Some(problem) if self.workers_asked => return Err(problem),
            Some(problem) => (1, Some(problem.what)),
        };
        let steering = self.steering(&hash, workers)?;
        let (links, ports): (Arc<[Link]>, u16) = (self.chain.clone().into(), self.ports);
        let build = move |builder: &mut StateBuilder| {
            build_all(&links, ports, builder).map_err(|(refusal, at)| {
                let Refusal { key, reason, instead } = refusal;
                BuildError { function: links[at].name.clone(), reason: format!("`{key}`: {reason}; {instead}") }
            })
        };
        let run = RunPlan {
            build: Arc::new(build),
            ports: self.ports,
            workers,
            batch: self.batch,
            sets: self.sets,
            buffers: 0,
            pages: self.pages,
            time: self.time,
            distribution: self.distribution,
            steering: Arc::new(steering),
            own_fields: self.own_fields(carry),
        };
        Ok(Compiled { run, hash, note })
    }

    /// The chain with state of its own, only to be looked at.
    pub fn probe(&self, carry: Carry) -> Result<Chain, Problem> {
        let domain = Domain::new(self.workers);
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        let stages = build_all(&self.chain, self.ports, &mut builder);
        let stages = stages.map_err(|(refusal, at)| self.build_problem(&refusal, at))?;
        Chain::new(stages, &self.own_fields(carry)).map_err(|error| self.chain_problem(&error))
    }

    fn build_problem(&self, refusal: &Refusal, at: usize) -> Problem {
        let (link, Refusal { key, reason, instead }) = (&self.chain[at], refusal);
        let what = format!("{}: `{key}`: {reason}", link.name);
        let help = format!("{instead}; `braid nf show {}` lists its keys", link.entry.name);
        Problem::new(what, help).at(link.config.place(key).unwrap_or(link.at.clone()))
    }

    fn chain_problem(&self, error: &ChainError) -> Problem {
        Problem::new(error.to_string(), "`braid plan` on a part of the chain shows which function declares what")
    }

    fn own_fields(&self, carry: Carry) -> Vec<StageUse> {
        let mut own = Vec::new();
        if self.time == Time::Capture {
            own.push(StageUse::new("clock").reads(TIMESTAMP_NS, 8));
        }
        own.push(match carry {
            Carry::Capture => StageUse::new("sink").reads(TIMESTAMP_NS, 8).reads(SEQUENCE, 8).reads(WIRE_LEN, 4),
            Carry::Nothing => StageUse::new("sink"),
        });
        own
    }

    fn steering(&self, hash: &HashPlan, workers: usize) -> Result<Steering, Problem> {
        let entries = self.nic.map_or(0, |nic| nic.reta_entries);
        let entries = entries.max(128).max((4 * workers).next_power_of_two());
        let reta =
            Reta::new(entries, workers).map_err(|error| Problem::new(error.to_string(), "ask for fewer workers"))?;
        Steering::of_plan(&hash.chosen, &Key::microsoft(), reta).map_err(|error| {
            Problem::new(error.to_string(), "give the packet sets of the chain both directions, or none")
        })
    }
}

/// Builds the functions in order; a refusal comes with the position of its function.
fn build_all(links: &[Link], ports: u16, builder: &mut StateBuilder) -> Result<Vec<Box<dyn Stage>>, (Refusal, usize)> {
    let build = |(at, link): (usize, &Link)| -> Result<Box<dyn Stage>, (Refusal, usize)> {
        builder.scope(&link.name);
        let stage = (link.entry.build)(&link.name, link.config.table(), builder, ports);
        let stage = stage.map_err(|refusal| (refusal, at))?;
        Ok(match &link.packet_set {
            Some(set) => Box::new(Overridden::new(stage, set.clone())),
            None => stage,
        })
    };
    links.iter().enumerate().map(build).collect()
}

/// The packet sets of a chain, as steering sees them.
pub fn members(chain: &Chain) -> Vec<Member> {
    let member = |stage: &dyn Stage| Member {
        name: stage.name().to_owned(),
        pattern: stage.packet_set().as_ref().map_or(Pattern::NONE, Pattern::from),
    };
    chain.stages().iter().map(|stage| member(&**stage)).collect()
}

/// Why several workers would each see a part of some function's packet set, if they would.
fn torn_sets(plan: &Plan, hash: &HashPlan) -> Option<Problem> {
    let outcomes = &hash.chosen.outcomes;
    let at = outcomes.iter().position(|outcome| matches!(outcome.locality, Locality::NotLocal { .. }))?;
    let torn = &outcomes[at];
    let kept = outcomes.iter().find(|outcome| outcome.locality == Locality::Local);
    let who = match kept {
        Some(kept) => format!("both `{}` and `{}` on one worker each", kept.name, torn.name),
        None => format!("`{}` on one worker each", torn.name),
    };
    let what = format!("no steering keeps the packet sets of {who}: {}", torn.explanation);
    let help = format!(
        "write workers = 1, or give `{}` a packet set that has a field in common with the others ([nf.packet_set])",
        torn.name
    );
    Some(Problem::new(what, help).at(plan.chain[at].at.clone()))
}
