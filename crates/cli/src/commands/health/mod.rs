//! `braid health`: checks whether the backends of a load balancer are up, and tells the run.
//!
//! ```text
//!  plan file ─▶ targets ─▶ one thread each: ask, wait ─▶ what changed ─▶ the plan with other `up` ─▶ control socket
//! ```
//!
//! It runs beside the run, not inside it: its findings take the same path as `braid apply`, so a check that
//! hangs delays no packet, and a run whose checker has gone keeps the last results. A backend changes its
//! state after `rise` good or `fall` bad answers in a row.
//!
//! The plan file is reread when it changes (`Known`). While a backend is down, the run is told so repeatedly, because somebody may
//! have applied the file, which does not know about it.
//!
//! If the run ends, the command waits for it: the run may be upgraded or restarted, and then believes what the file says.

mod known;
mod probe;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use braid_control::live::{Applied, Request};
use braid_functions::load_balancer::Check;

use self::known::{Known, Place};
use self::probe::{Bad, ask};
use super::print;
use crate::aside::asideln;
use crate::connect::{ControlArgs, connect};
use crate::failure::Failure;
use crate::numbers::between;

/// Interval without changes after which the plan file is checked, and the run is told again about backends that are down.
const AGAIN: Duration = Duration::from_secs(1);

/// `braid health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// The plan file of the run, with a `check` in its services
    pub plan: PathBuf,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// End after so many changes have been told
    #[arg(long, value_name = "N", value_parser = between(0, usize::MAX))]
    pub changes: Option<usize>,
}

/// A backend that is checked.
#[derive(Clone, Debug)]
struct Target {
    place: Place,
    end: SocketAddr,
    check: Check,
    up: bool,
    /// Its state according to the plan file.
    written: bool,
}

impl Target {
    /// Whether a run that uses the plan from its file, or from somebody who assumes that all is well, may be wrong about this backend.
    fn may_be_mistaken(&self) -> bool {
        !self.up || !self.written
    }
}

/// A change of a backend's state, with the reason.
struct Change {
    place: Place,
    end: SocketAddr,
    up: Result<(), Bad>,
}

/// Runs the command.
pub fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    let mut known = Known::read(&args.plan)?;
    // Applies this plan to the run first; if the run refuses it, no backend is checked.
    tell(args, &known)?;
    print(&format!("{}\n", asked_now(&known)))?;
    let (mut asked, mut listener) = (Asked::begin(&known), Listener { args, is_there: true });
    let mut told = 0;
    loop {
        let changes = asked.next(AGAIN);
        changes.iter().for_each(|change| known.set(change.place, change.up.is_ok()));
        let next = known.read_again(&args.plan);
        if let Some(next) = next.filter(|next| listener.takes(next)) {
            (asked, known) = (Asked::begin(&next), next);
            print(&format!("{}, by the plan as it is now\n", asked_now(&known)))?;
        } else if !changes.is_empty() || !listener.is_there || known.targets().iter().any(Target::may_be_mistaken) {
            listener.tell(&known)?;
        }
        told += tell_changes(&changes)?;
        if args.changes.is_some_and(|changes| told >= changes) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Describes how many backends are checked.
fn asked_now(known: &Known) -> String {
    match known.targets().len() {
        1 => "1 backend is asked".to_owned(),
        many => format!("{many} backends are asked"),
    }
}

/// The run, which is told the findings.
struct Listener<'a> {
    args: &'a HealthArgs,
    /// Whether the run answered the last message.
    is_there: bool,
}

impl Listener<'_> {
    /// Tells the run. If it does not answer, it is told later; a message says so once.
    fn tell(&mut self, known: &Known) -> Result<(), Failure> {
        let told = tell(self.args, known);
        let was_there = std::mem::replace(&mut self.is_there, !told.as_ref().is_err_and(Failure::is_of_io));
        match told {
            Err(failure) if !self.is_there => {
                if was_there {
                    asideln!("note: {failure}; backends are still checked, and the run is told when it answers again");
                }
                Ok(())
            }
            told => {
                if !was_there {
                    asideln!("note: the run answers again");
                }
                told
            }
        }
    }

    /// Whether the run accepts a plan that has changed.
    fn takes(&mut self, next: &Known) -> bool {
        let told = tell(self.args, next);
        match &told {
            // It will be told when it is back, because it may then use another plan than that of its file.
            Err(failure) if failure.is_of_io() => {
                self.is_there = false;
                return true;
            }
            Err(refused) => asideln!("note: the plan has changed, and the run goes on with the former one: {refused}"),
            Ok(()) => {}
        }
        told.is_ok()
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

/// Backends that are being checked, each on its own thread, until this value is dropped.
struct Asked {
    hear: Receiver<Change>,
    _goes_on: Arc<()>,
}

impl Asked {
    fn begin(known: &Known) -> Asked {
        let ((say, hear), goes_on) = (channel(), Arc::new(()));
        for target in known.targets().to_vec() {
            let (say, goes_on) = (say.clone(), Arc::downgrade(&goes_on));
            std::thread::spawn(move || watch(target, &say, &goes_on));
        }
        Asked { hear, _goes_on: goes_on }
    }

    /// Waits for a change, at most for this time. Returns all changes that are available by then, only the latest of each backend.
    fn next(&self, longest: Duration) -> Vec<Change> {
        let first = self.hear.recv_timeout(longest).ok();
        let mut changes: Vec<Change> = first.into_iter().chain(self.hear.try_iter()).collect();
        let mut seen = HashSet::new();
        changes.reverse();
        changes.retain(|change| seen.insert(change.place));
        changes.reverse();
        changes
    }
}

/// Checks one backend repeatedly and sends changes of its state, until `goes_on` is dropped.
fn watch(target: Target, say: &Sender<Change>, goes_on: &Weak<()>) {
    let Target { place, end, check, up, .. } = target;
    let (every, timeout) = (Duration::from_millis(check.every_ms), Duration::from_millis(check.timeout_ms()));
    let mut state = State { up, against: 0 };
    let mut could_ask = true;
    while goes_on.strong_count() > 0 {
        let begun = Instant::now();
        let answer = ask(end, &check, timeout);
        let could = std::mem::replace(&mut could_ask, !matches!(answer, Err(Bad::Unasked(_))));
        match answer {
            // The backend may be as healthy as ever, so its state stays.
            Err(why @ Bad::Unasked(_)) => {
                if could {
                    asideln!("note: {end} stays as it is: {why}");
                }
            }
            answer => {
                if state.hear(answer.is_ok(), &check) && say.send(Change { place, end, up: answer }).is_err() {
                    return;
                }
            }
        }
        std::thread::sleep(every.saturating_sub(begun.elapsed()));
    }
}

/// The assumed state of a backend, and the number of consecutive answers that contradict it.
struct State {
    up: bool,
    against: u32,
}

impl State {
    /// Records an answer; returns whether the state changes.
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

fn tell(args: &HealthArgs, known: &Known) -> Result<(), Failure> {
    let plan = known.text()?;
    let _: Applied = connect(&args.control)?.ask(&Request::Apply { plan })?;
    Ok(())
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
