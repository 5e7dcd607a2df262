//! `braid health`: asks the backends of a load balancer whether they are up, and tells the run.
//!
//! ```text
//!  plan file ─▶ targets ─▶ one thread each: ask, wait ─▶ what changed ─▶ the plan with other `up` ─▶ control socket
//! ```
//!
//! It stands beside the run, not in it: what it finds goes the way of `braid apply`, so a question that hangs holds no packet up, and a run whose
//! checker has gone keeps the last answers. A backend changes its state after `rise` or `fall` answers in a row.
//!
//! The plan file is read again when it changes (`Known`), and while a backend is down the run is told so again and again: somebody may have
//! applied the file, which knows nothing of it.
//!
//! A run that ends is waited for: it may be upgraded, or started anew, and then believes what the file says.

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

/// After so long without a change the plan file is looked at, and a run is told again of backends that are down.
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

/// A backend that is asked.
#[derive(Clone, Debug)]
struct Target {
    place: Place,
    end: SocketAddr,
    check: Check,
    up: bool,
    /// What the plan file says of it.
    written: bool,
}

impl Target {
    /// Whether a run that takes the plan from its file, or from somebody who thinks all well, is wrong about it.
    fn may_be_mistaken(&self) -> bool {
        !self.up || !self.written
    }
}

/// What has changed, and why.
struct Change {
    place: Place,
    end: SocketAddr,
    up: Result<(), Bad>,
}

/// Runs it.
pub fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    let mut known = Known::read(&args.plan)?;
    // What the run has of another plan becomes what this one says, or it refuses before anybody is asked.
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

/// How many backends are asked.
fn asked_now(known: &Known) -> String {
    match known.targets().len() {
        1 => "1 backend is asked".to_owned(),
        many => format!("{many} backends are asked"),
    }
}

/// The run, which is told what was found.
struct Listener<'a> {
    args: &'a HealthArgs,
    /// Whether it answered when it was told something last.
    is_there: bool,
}

impl Listener<'_> {
    /// Tells it. One that does not answer is told later: that is said once.
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

    /// Whether it takes a plan that has changed.
    fn takes(&mut self, next: &Known) -> bool {
        let told = tell(self.args, next);
        match &told {
            // It is told when it is there again, for it may go on with another plan than that of its file.
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

/// Says what has changed; how many they are.
fn tell_changes(changes: &[Change]) -> Result<usize, Failure> {
    for Change { end, up, .. } in changes {
        print(&match up {
            Ok(()) => format!("up    {end}\n"),
            Err(bad) => format!("down  {end}: {bad}\n"),
        })?;
    }
    Ok(changes.len())
}

/// Backends that are being asked, each on a thread of its own, as long as this is there.
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

    /// Waits for a change, but not for longer than this; all that are there by then, the latest of each backend only.
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

/// Asks one backend again and again, and says when its state changes, as long as that goes on.
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
            // It may be as well as ever: its state stays.
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
