//! `braid health`: checks whether the backends of a load balancer are up, and tells the run.
//!
//! ```text
//!  plan file ─▶ targets ─▶ one thread each: ask, wait ─▶ what changed ─┐
//!  control socket ─▶ how load balancers are configured now ────────────┴─▶ the same with other `up` ─▶ control socket
//! ```
//!
//! It is a separate process, so a check that hangs delays no packet, and a run whose checker has ended keeps the last results. A backend
//! changes its state after `rise` or `fall` results in a row.
//!
//! In the running plan it changes the `up` of the backends that it checks, and nothing else. The plan file only says which these are; it is
//! read again when it changes (`Known`), and never applied. A run that does not have such a backend, because it runs another plan, is not
//! changed.
//!
//! The run is queried every second, because a plan without these results may have been applied, or the run restarted. If it ends, the
//! command waits for the next one.

mod known;
mod probe;

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use braid_control::live::{Applied, Client, Configured, Request};
use braid_functions::load_balancer::Check;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::known::Known;
pub(crate) use self::known::{BALANCER, keep};
use self::probe::{Bad, ask};
use super::print;
use crate::connect::{ControlArgs, connect};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::stderr::asideln;

/// Time without a change after which the plan file and the run are read again.
const AGAIN: Duration = Duration::from_secs(1);

/// `braid health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// The plan file of the run, with a `check` in its services
    pub plan: PathBuf,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Exit after reporting N changes
    #[arg(long, value_name = "N", value_parser = between(0, usize::MAX))]
    pub changes: Option<usize>,
}

/// A backend to check.
#[derive(Clone, Debug)]
struct Target {
    /// Its place among all.
    number: usize,
    /// What it is called in every plan that has it.
    name: String,
    end: SocketAddr,
    check: Check,
    up: bool,
}

/// What has changed, and why.
struct Change {
    target: usize,
    end: SocketAddr,
    up: Result<(), Bad>,
}

/// Runs it.
pub fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    raise_descriptors();
    let mut known = Known::read(&args.plan)?;
    // Without a run nothing is checked.
    known.believe(&configured(&mut connect(&args.control)?)?);
    print(&format!("{}\n", asked_now(&known)))?;
    let (mut asked, mut listener) = (Asked::begin(&known), Listener::new(args));
    let mut told = 0;
    loop {
        listener.tell(&known);
        let changes = asked.next(AGAIN);
        changes.iter().for_each(|change| known.set(change.target, change.up.is_ok()));
        if !changes.is_empty() {
            listener.tell(&known);
        }
        if let Some(next) = known.read_again(&args.plan) {
            (asked, known) = (Asked::begin(&next), next);
            print(&format!("{}, by the plan file as it is now\n", asked_now(&known)))?;
        }
        told += tell_changes(&changes)?;
        if args.changes.is_some_and(|changes| told >= changes) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Allows as many open descriptors as the system lets us have: each check takes one.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, backends for which no descriptor is left keep their state.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A note on how many backends are checked.
fn asked_now(known: &Known) -> String {
    match known.targets().len() {
        1 => "checking 1 backend".to_owned(),
        many => format!("checking {many} backends"),
    }
}

/// How the load balancers that run are configured now.
fn configured(run: &mut Client) -> Result<Vec<Configured>, Failure> {
    Ok(run.ask(&Request::Configuration { function: BALANCER.to_owned() })?)
}

/// The run, which is told what was found.
struct Listener<'a> {
    args: &'a HealthArgs,
    /// The last note, which is not repeated.
    said: Option<String>,
    is_there: bool,
}

impl<'a> Listener<'a> {
    fn new(args: &'a HealthArgs) -> Listener<'a> {
        Listener { args, said: None, is_there: true }
    }

    /// Reports the results to the run. If that fails it is retried later; the failure is logged once.
    fn tell(&mut self, known: &Known) {
        let told = self.set_right(known);
        let was_there = std::mem::replace(&mut self.is_there, !told.as_ref().is_err_and(Failure::is_of_io));
        if self.is_there && !was_there {
            asideln!("note: the run answers again");
        }
        let note = match told {
            Ok(missing) => missing,
            Err(failure) if !self.is_there => {
                Some(format!("{failure}; backends are still checked, and the run is told when it answers again"))
            }
            Err(refused) => Some(format!("{refused}; backends are still checked, and the run is told when it can be")),
        };
        if let Some(note) = note.as_ref().filter(|note| self.said.as_ref() != Some(note)) {
            asideln!("note: {note}");
        }
        self.said = note;
    }

    /// Updates backends whose state differs from the result; returns a note on backends that the run does not have.
    fn set_right(&self, known: &Known) -> Result<Option<String>, Failure> {
        let mut run = connect(&self.args.control)?;
        let mut missing: BTreeSet<&str> = known.targets().iter().map(|target| &*target.name).collect();
        for from in configured(&mut run)? {
            let to = known.laid_over(&from, &mut missing);
            if to != from.config {
                let _: Applied = run.ask(&Request::Configure { name: from.name, from: from.config, to })?;
            }
        }
        let Some(first) = missing.first() else { return Ok(None) };
        let more = match missing.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more that are checked"),
        };
        Ok(Some(format!("the running plan has no {first}{more}: not updated")))
    }
}

/// Prints the changes; returns their number.
fn tell_changes(changes: &[Change]) -> Result<usize, Failure> {
    for Change { end, up, .. } in changes {
        print(&match up {
            Ok(()) => format!("up    {end}\n"),
            Err(bad) => format!("down  {end}: {bad}\n"),
        })?;
    }
    Ok(changes.len())
}

/// The checks, one thread for each backend; they end when this is dropped.
struct Asked {
    hear: Receiver<Change>,
    _goes_on: Arc<()>,
}

impl Asked {
    fn begin(known: &Known) -> Asked {
        let ((say, hear), goes_on) = (channel(), Arc::new(()));
        let targets = known.targets().to_vec();
        for (asked, target) in targets.iter().cloned().enumerate() {
            let (say, goes_on) = (say.clone(), Arc::downgrade(&goes_on));
            if let Err(error) = Builder::new().spawn(move || watch(target, &say, &goes_on)) {
                let left = targets.len() - asked;
                asideln!(
                    "note: {left} of {} backends are not checked and keep their state: no thread for them ({error})",
                    targets.len()
                );
                break;
            }
        }
        Asked { hear, _goes_on: goes_on }
    }

    /// Waits at most this long for a change; returns all that have arrived by then, only the latest of each backend.
    fn next(&self, longest: Duration) -> Vec<Change> {
        let first = self.hear.recv_timeout(longest).ok();
        let mut changes: Vec<Change> = first.into_iter().chain(self.hear.try_iter()).collect();
        let mut seen = HashSet::new();
        changes.reverse();
        changes.retain(|change| seen.insert(change.target));
        changes.reverse();
        changes
    }
}

/// Checks one backend periodically and reports changes of its state, until `goes_on` is dropped.
fn watch(target: Target, say: &Sender<Change>, goes_on: &Weak<()>) {
    let Target { number, end, check, up, .. } = target;
    let (every, timeout) = (Duration::from_millis(check.every_ms), Duration::from_millis(check.timeout_ms()));
    let mut state = State { up, against: 0 };
    let mut could_ask = true;
    while goes_on.strong_count() > 0 {
        let begun = Instant::now();
        let answer = ask(end, &check, timeout);
        let could = std::mem::replace(&mut could_ask, !matches!(answer, Err(Bad::Unasked(_))));
        match answer {
            // It may be as well as ever: its state stays.
            Err(why @ Bad::Unasked(_)) => {
                if could {
                    asideln!("note: {end} cannot be checked and keeps its state: {why}");
                }
            }
            answer => {
                if state.hear(answer.is_ok(), &check) && say.send(Change { target: number, end, up: answer }).is_err() {
                    return;
                }
            }
        }
        std::thread::sleep(every.saturating_sub(begun.elapsed()));
    }
}

/// What is believed of a backend, and how many answers in a row say otherwise.
struct State {
    up: bool,
    against: u32,
}

impl State {
    /// Whether the state changes by an answer.
    fn hear(&mut self, good: bool, check: &Check) -> bool {
        self.against = if good == self.up { 0 } else { self.against + 1 };
        let changes = self.against >= if good { check.rise } else { check.fall };
        if good != self.up && changes {
            (self.up, self.against) = (good, 0);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answers: &str, expected: &str) {
        let check = Check { rise: 2, fall: 3, ..Check::default() };
        let mut state = State { up: true, against: 0 };
        let mut states = String::new();
        for answer in answers.chars() {
            state.hear(answer == '+', &check);
            states.push(if state.up { 'U' } else { 'd' });
        }
        assert_eq!(states, expected, "{answers}");
    }

    #[test]
    fn a_state_changes_after_answers_in_a_row() {
        check("+++++", "UUUUU");
        check("-+--+", "UUUUU");
        check("---++", "UUddU");
        check("---+-+-++", "UUddddddU");
    }
}
