//! Applies another plan to a run while it continues: finds the difference, validates it, and applies it or refuses with a reason.
//!
//! Settings that the new plan omits stay as they are. Only the chain and the number of packet sets may change. In the chain,
//! functions may be added, removed and reordered, and a function's configuration may change as far as the function declares that
//! its state survives. Any other change needs another process that takes over the state; whether it could is checked before
//! anything ends (`Current::check_successor`).

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_runtime::live::exchange::{Difference, ExchangeError, Exchanged, exchange};
use braid_runtime::live::saved::fits;
use braid_runtime::nf::state::Beyond;
use braid_runtime::{Course, Live};
use serde::{Deserialize, Serialize};

use super::interfaces::Interfaces;
use super::knowledge::{Knowledge, WrittenConfigs};
use super::protocol::Refused;
use super::snapshot::Snapshot;
use crate::catalog::Catalog;
use crate::compile::{Carry, Compiled};
use crate::plan::Plan;
use crate::plan::command_line::CommandLine;
use crate::plan::file::{PlanFile, Problem};
use crate::plan::text;

/// What runs now, as its plan describes it.
#[derive(Debug)]
pub struct Current {
    /// The functions that a plan may name.
    pub catalog: Catalog,
    /// The plan file as written, with command-line options applied.
    pub file: PlanFile,
    /// These options.
    pub command_line: CommandLine,
    /// The validated plan.
    pub plan: Plan,
    /// The compiled plan.
    pub compiled: Arc<Compiled>,
    /// Which metadata of each packet the sink needs.
    pub carry: Carry,
    /// What the program knows of its functions.
    pub knowledge: Knowledge,
    /// What the plan said of functions that were [configured](Current::configure) since.
    pub written: WrittenConfigs,
    /// The plan for the next process, as a complete plan file, if there is to be a next process.
    pub successor: Option<String>,
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Functions whose configuration changed.
    pub changed: Vec<String>,
    /// Functions that were added.
    pub added: Vec<String>,
    /// Functions that were removed, with their state.
    pub removed: Vec<String>,
    /// Packets that waited in these, and that went on at once.
    #[serde(default)]
    pub released: usize,
    /// Functions that kept their state.
    pub kept: Vec<String>,
    /// State objects that were copied because their size changed.
    pub copied: Vec<String>,
    /// Elements of these objects that were copied while packets passed through.
    #[serde(default)]
    pub elements: usize,
    /// Elements that were copied while the workers were stopped.
    #[serde(default)]
    pub elements_held: usize,
    /// The number of packet sets before and after, if it changed.
    #[serde(default)]
    pub sets: Option<(usize, usize)>,
    /// Packet sets that are moved to other tables from now on, while packets pass through.
    #[serde(default)]
    pub moving: usize,
    /// Packet sets that were evicted because there is less room for them.
    #[serde(default)]
    pub evicted: usize,
    /// How long the workers were stopped, in microseconds.
    pub held_us: u64,
    /// Where the run and the plan differ now, and why.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Applied {
    /// All of it in a line; `None` if nothing differs.
    pub fn in_a_line(&self) -> Option<String> {
        let lists = [("changed", &self.changed), ("added", &self.added), ("removed", &self.removed)];
        let lists = lists.iter().filter(|(_, list)| !list.is_empty());
        let lists = lists.map(|(what, list)| format!("{what} {}", list.join(", ")));
        let sets = self.sets.map(|(before, now)| format!("sets {before} → {now}"));
        // An exchange that no function notices: another order, say.
        let other = (self.held_us > 0).then(|| "another chain".to_owned());
        let all: Vec<String> = lists.chain(sets).collect();
        if all.is_empty() { other } else { Some(all.join("; ")) }
    }
}

impl Current {
    /// Applies the plan in the text of a plan file to a run. If it is refused, nothing has changed.
    pub fn apply(&mut self, live: &Live, text: &str) -> Result<Applied, Refused> {
        let mut file = PlanFile::parse(text).map_err(|problem| wrong(&problem, text))?;
        let mut notes = self.command_line.keep(&mut file, &self.file);
        notes.append(&mut self.command_line.overruled_by(&file));
        let mut applied = self.go_on_with(live, file, text)?;
        applied.notes.splice(..0, notes);
        Ok(applied)
    }

    /// Like [`apply`](Self::apply), for the text of the run's own plan file, which the command line of the run overrides.
    pub fn reload(&mut self, live: &Live, text: &str) -> Result<Applied, Refused> {
        let wrong = |problem: Problem| wrong(&problem, text);
        let mut file = PlanFile::parse(text).map_err(wrong)?;
        self.command_line.lay_over(&mut file).map_err(wrong)?;
        // A run that was continued by another process may have other workers or ports than the command line says.
        self.command_line.keep(&mut file, &self.file);
        self.go_on_with(live, file, text)
    }

    fn go_on_with(&mut self, live: &Live, file: PlanFile, text: &str) -> Result<Applied, Refused> {
        let (file, plan, written) = self.planned(file).map_err(|problem| wrong(&problem, text))?;
        self.check_frame(&plan)?;
        let (changed, mut notes) = (self.changed(&plan), self.notes_on(&plan));
        let applied = self.exchange(live, (file, plan), changed, text)?;
        self.written = written;
        notes.splice(..0, self.compiled.note.clone());
        Ok(Applied { notes, ..applied })
    }

    /// Exchanges the chain for that of a plan that was checked; `text` is its source.
    pub(super) fn exchange(
        &mut self,
        live: &Live,
        (file, plan): (PlanFile, Plan),
        changed: Changed,
        text: &str,
    ) -> Result<Applied, Refused> {
        let sets = (self.plan.sets != plan.sets).then_some((self.plan.sets, plan.sets));
        if !changed.any && sets.is_none() {
            return Ok(Applied {
                kept: plan.chain.iter().map(|link| link.name.clone()).collect(),
                ..Applied::default()
            });
        }
        let compiled = plan.compile_beside(self.carry, &self.compiled).map_err(|problem| wrong(&problem, text))?;
        let difference = if changed.any { Difference::Chain(&changed.names) } else { Difference::Sets };
        let exchanged = exchange(live, &self.compiled.run, &compiled.run, difference);
        let exchanged = exchanged.map_err(|error| not_exchanged(&error, (&self.plan, &plan), text))?;
        (self.file, self.plan, self.compiled) = (file, plan, Arc::new(compiled));
        let Exchanged { kept, added, removed, released, copied, elements, elements_held, moving, evicted, held } =
            exchanged;
        let (changed, held_us) = (changed.names, held.as_micros() as u64);
        let notes = Vec::new();
        Ok(Applied {
            changed,
            added,
            removed,
            released,
            kept,
            copied,
            elements,
            elements_held,
            sets,
            moving,
            evicted,
            held_us,
            notes,
        })
    }

    /// Whether another process can take over the state under the plan in `text`, whose ports, workers and sizes may differ from the
    /// current plan. The check uses a copy of the state, so nothing has ended if it fails. Returns the complete plan, and notes.
    pub(super) fn check_successor(
        &self,
        live: &Live,
        interfaces: &Interfaces,
        text: &str,
    ) -> Result<(String, Vec<String>), Refused> {
        let wrong = |problem: Problem| wrong(&problem, text);
        let file = PlanFile::parse(text).map_err(wrong)?;
        let keeps_ports = file.port.is_empty();
        let (file, mut plan, _) = self.planned(file).map_err(wrong)?;
        let mut notes = if keeps_ports { interfaces.rename(&mut plan.devices) } else { Vec::new() };
        interfaces.check(&plan.devices)?;
        let compiled = plan.compile(self.carry).map_err(wrong)?;
        let (snapshot, _) = Snapshot::take(live, &self.plan)?;
        let saved = snapshot.for_plan(&plan).map_err(|problem| refused(&problem, text))?;
        let help = "nothing has changed; the state would not survive this plan";
        fits(&compiled.run, &saved).map_err(|error| Refused::new(error.to_string(), help))?;
        notes.extend(self.command_line.overruled_by(&file).into_iter().chain(self.notes_on(&plan)));
        Ok((text::text(&plan), notes))
    }

    /// Whether another process can continue with the current plan, since files that it names may have changed, and interfaces may be gone or
    /// renamed. Returns the complete plan, and notes.
    pub(super) fn check_again(&self, interfaces: &Interfaces) -> Result<(String, Vec<String>), Refused> {
        let mut plan = self.plan.clone();
        let notes = interfaces.rename(&mut plan.devices);
        interfaces.check(&plan.devices)?;
        let text = text::text(&plan);
        let refused = |problem: Problem| Refused::new(format!("the plan that runs: {}", problem.what), problem.help);
        let file = PlanFile::parse(&text).map_err(refused)?;
        let mut plan = Plan::new(&file, &self.catalog).map_err(refused)?;
        plan.ask_interfaces();
        plan.compile(self.carry).map_err(refused)?;
        Ok((text, notes))
    }

    /// Rejects changes that are impossible while packets pass through.
    fn check_frame(&self, new: &Plan) -> Result<(), Refused> {
        let old = &self.plan;
        let differs = [
            ("workers", old.workers != new.workers),
            ("batch", old.batch != new.batch),
            ("ports", old.ports != new.ports),
            ("time", old.time != new.time),
            ("distribution", old.distribution != new.distribution),
            ("in_order", old.in_order != new.in_order),
            ("gather_us", old.gather != new.gather),
            ("balance", old.balance != new.balance),
            ("steer_udp_ports", old.udp_ports() != new.udp_ports()),
            ("pages", old.pages != new.pages),
            ("share", shares(old) != shares(new)),
            ("port", old.devices != new.devices),
            ("user", old.user != new.user),
            ("input.from", old.from != new.from),
            ("output.to", old.to != new.to),
        ];
        match differs.iter().find(|(_, differs)| *differs) {
            Some((key, _)) => Err(Refused::new(format!("`{key}` cannot change while packets go through"), RESTART)),
            None => Ok(()),
        }
    }

    fn changed(&self, new: &Plan) -> Changed {
        let (old, before, after) = (&self.plan.chain, &self.plan.course, &new.course);
        let differs = |(at, link): &(usize, &crate::PlannedFunction)| {
            let is_own = |(_, old): &(usize, &crate::PlannedFunction)| old.name == link.name;
            old.iter().enumerate().find(is_own).is_some_and(|(was_at, old)| {
                (old.config.table(), old.files) != (link.config.table(), link.files)
                    // A router, which takes the MTUs of its interfaces.
                    || (link.entry.routes && link.entry.readdresses && self.plan.mtus != new.mtus)
                    || (before.when(was_at), before.full(was_at)) != (after.when(*at), after.full(*at))
            })
        };
        let names: Vec<String> =
            new.chain.iter().enumerate().filter(differs).map(|(_, link)| link.name.clone()).collect();
        let of_all = |course: &Course| (course.order, course.atomic, course.unindexed);
        let same = |(old, new): (&crate::PlannedFunction, &crate::PlannedFunction)| {
            (&old.name, &old.entry.name, &old.packet_set) == (&new.name, &new.entry.name, &new.packet_set)
        };
        let same_chain = old.len() == new.chain.len() && old.iter().zip(&new.chain).all(same);
        Changed { any: !names.is_empty() || !same_chain || of_all(before) != of_all(after), names }
    }
}

/// Which objects the functions of a plan share: function, its own name for the object, common name.
fn shares(plan: &Plan) -> Vec<(&str, &str, &str)> {
    let all = plan.chain.iter().flat_map(|link| link.share.iter().map(move |share| (link, share)));
    all.map(|(link, share)| (&*link.name, &*share.own, &*share.name)).collect()
}

const RESTART: &str = "nothing has changed; `braid upgrade PLAN` with this file can continue with it and all state, in another process; if \
    that is impossible, it ends nothing";

const ORDER: &str = "nothing has changed; write `order` and `outside` under [chain] as they are in the plan that runs (`braid plan` says how they \
    are if they are left open), or begin another run without its state";

const ANEW: &str = "nothing has changed; under another name it would begin without its state";

/// What differs between two chains.
pub(super) struct Changed {
    pub(super) any: bool,
    /// Functions in both chains that differ in configuration, in a file it names, in `when` or in `full`.
    pub(super) names: Vec<String>,
}

/// Why a run keeps its chain, with a position in the plan file: that of the first key that the reason names, else that of the function.
fn not_exchanged(error: &ExchangeError, (old, plan): (&Plan, &Plan), text: &str) -> Refused {
    let (function, reason, help) = match error {
        ExchangeError::Sets { needed, .. } => {
            let oldest = "or apply `full = \"evict_oldest\"` there first, with which the oldest sets go";
            let help = format!(
                "nothing has changed; write `sets = {needed}` or more, {oldest}, or end some: `braid sets --filter FILTER --end`"
            );
            return Refused::new(error.to_string(), help);
        }
        ExchangeError::Beyond(beyond) => return too_small(error, beyond, (old, plan), text),
        ExchangeError::Function { function, reason } => (function, reason, ANEW),
        ExchangeError::Build(build) => (&build.function, &build.reason, "nothing has changed"),
        ExchangeError::NotRunning => {
            return Refused { is_without_run: true, ..Refused::new(error.to_string(), RESTART) };
        }
        ExchangeError::Order(_) => return Refused::new(error.to_string(), ORDER),
        _ => return Refused::new(error.to_string(), RESTART),
    };
    let Some(link) = plan.chain.iter().find(|link| link.name == *function) else {
        return Refused::new(error.to_string(), help);
    };
    let written = reason.split('`').skip(1).step_by(2).find_map(|key| link.config.place(key));
    refused(&Problem::new(error.to_string(), help).at(written.unwrap_or(link.at.clone())), text)
}

/// Why a state object cannot be as small as the plan requires. Names the configuration keys that may have
/// reduced it, and points to the first of them.
fn too_small(error: &ExchangeError, beyond: &Beyond, (old, new): (&Plan, &Plan), text: &str) -> Refused {
    let Beyond { object, needed, .. } = beyond;
    let is_owner = |name: &str| object.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let [old, new] = [old, new].map(|plan| plan.chain.iter().find(|link| is_owner(&link.name)));
    let both = old.zip(new);
    let keys = both.map_or_else(Vec::new, |(old, new)| reduced(&old.config.table(), &new.config.table()));
    let more = match keys.as_slice() {
        [] => format!("write a size of at least {needed} (of packet sets that workers share: `sets`)"),
        keys => {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            format!("write a larger {}, so that there is room for {needed}", keys.join(" or "))
        }
    };
    let fewer = "let some go (`braid sets --filter FILTER --end`) and then `braid upgrade PLAN`";
    let problem = Problem::new(error.to_string(), format!("nothing has changed; {more}, or {fewer}"));
    let place = both.map(|(_, new)| keys.iter().find_map(|key| new.config.place(key)).unwrap_or(new.at.clone()));
    let problem = match place {
        Some(place) => problem.at(place),
        None => problem,
    };
    refused(&problem, text)
}

/// Integer keys whose value is smaller in the second table, or may be smaller because one of the tables omits them.
fn reduced(old: &toml::Table, new: &toml::Table) -> Vec<String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let of_key = |key: &String| match (old.get(key), new.get(key)) {
        (Some(toml::Value::Table(old)), Some(toml::Value::Table(new))) => {
            reduced(old, new).into_iter().map(|inner| format!("{key}.{inner}")).collect()
        }
        (Some(toml::Value::Integer(old)), Some(toml::Value::Integer(new))) if new >= old => Vec::new(),
        (Some(toml::Value::Integer(_)), _) | (None, Some(toml::Value::Integer(_))) => vec![key.clone()],
        _ => Vec::new(),
    };
    keys.into_iter().flat_map(of_key).collect()
}

/// Makes a refusal from a problem, with its position in the text.
fn refused(problem: &Problem, text: &str) -> Refused {
    // A change that comes from no text has no position.
    let place = problem
        .line_and_column(text)
        .filter(|_| !text.is_empty())
        .map_or(String::new(), |(line, column)| format!("line {line}:{column}: "));
    Refused::new(format!("{place}{}", problem.what), problem.help.clone())
}

/// Makes a refusal of a plan that is invalid for any run.
fn wrong(problem: &Problem, text: &str) -> Refused {
    Refused { is_wrong: true, ..refused(problem, text) }
}
