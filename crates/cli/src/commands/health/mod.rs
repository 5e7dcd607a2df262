//! `braid health`: asks the backends of a load balancer whether they are up, and tells the run.
//!
//! ```text
//!  plan file ─▶ targets ─▶ one thread each: ask, wait ─▶ what changed ─▶ the plan with other `up` ─▶ control socket
//! ```
//!
//! It stands beside the run, not in it: what it finds goes the way of `braid apply`, so a question that hangs holds no packet up, and a run whose
//! checker has gone keeps the last answers. A backend changes its state after `rise` or `fall` answers in a row.

mod probe;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use braid_control::PlanFile;
use braid_control::live::{Applied, Request};
use braid_functions::load_balancer::{self, Backend, Check, Service};
use toml::{Table, Value};

use self::probe::{Bad, ask};
use super::print;
use crate::aside::asideln;
use crate::connect::{ControlArgs, connect};
use crate::failure::{Failure, Kind};

/// Most backends that are asked: each has a thread.
const TARGETS_MAX: usize = 4096;

/// `braid health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// The plan file of the run, with a `check` in its services
    pub plan: PathBuf,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// End after so many changes have been told
    #[arg(long, value_name = "N")]
    pub changes: Option<usize>,
}

/// Where a backend stands in a plan: numbers of its function, its service, and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    function: usize,
    service: usize,
    backend: usize,
}

/// A backend that is asked.
#[derive(Clone, Debug)]
struct Target {
    place: Place,
    end: std::net::SocketAddr,
    check: Check,
    up: bool,
}

/// What has changed, and why.
struct Change {
    place: Place,
    end: std::net::SocketAddr,
    up: Result<(), Bad>,
}

/// Runs it.
pub fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    let text = Failure::or_text(&args.plan)?;
    PlanFile::parse(&text).map_err(|problem| Failure::of_plan(problem, Some((&args.plan, &text))))?;
    let mut plan: Table = text.parse().map_err(|error: toml::de::Error| Failure::usage(error.to_string(), ""))?;
    let targets = targets(&plan)?;
    // What the run has of another plan becomes what this one says, or it refuses before anybody is asked.
    tell(args, &plan)?;
    print(&format!("{} backends are asked\n", targets.len()))?;
    let (say, hear) = channel();
    for target in targets {
        let say = say.clone();
        std::thread::spawn(move || watch(target, &say));
    }
    drop(say);
    let mut told = 0;
    while let Some(changes) = next(&hear) {
        for change in &changes {
            set(&mut plan, change);
        }
        tell(args, &plan)?;
        for Change { end, up, .. } in &changes {
            print(&match up {
                Ok(()) => format!("up    {end}\n"),
                Err(bad) => format!("down  {end}: {bad}\n"),
            })?;
        }
        told += changes.len();
        if args.changes.is_some_and(|changes| told >= changes) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All backends of services with a check.
fn targets(plan: &Table) -> Result<Vec<Target>, Failure> {
    let functions = plan.get("nf").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let balancers = functions.iter().enumerate().filter(|(_, nf)| {
        nf.get("function").and_then(Value::as_str).is_some_and(|name| name.replace('-', "_") == "load_balancer")
    });
    let mut targets = Vec::new();
    for (function, nf) in balancers {
        let config = nf.get("config").and_then(Value::as_table).cloned().unwrap_or_default();
        let config: load_balancer::Config =
            braid_functions::parse(config).map_err(|error| Failure::usage(error.to_string(), ""))?;
        for (number, service) in config.services.iter().enumerate() {
            let Some(check) = &service.check else { continue };
            for (backend, server) in service.backends.iter().enumerate() {
                let place = Place { function, service: number, backend };
                targets.push(target(place, service, server, check)?);
            }
        }
    }
    match targets.len() {
        0 => {
            let help =
                "write check = { kind = \"http\", path = \"/health\" } in a [[nf.config.service]] of a load_balancer";
            Err(Failure::usage("no service of this plan says how its backends are asked", help))
        }
        n if n > TARGETS_MAX => {
            let help = "let monitors of your own tell the load balancer (heartbeat_port, monitors)";
            Err(Failure::usage(format!("{n} backends are too many: {TARGETS_MAX} are asked at most"), help))
        }
        _ => Ok(targets),
    }
}

fn target(place: Place, service: &Service, backend: &Backend, check: &Check) -> Result<Target, Failure> {
    let port = check.port.or(backend.port).or(service.port).ok_or_else(|| {
        Failure::usage(format!("{} is asked at no port", backend.address), "write a `port` into its check")
    })?;
    Ok(Target { place, end: (backend.address, port).into(), check: check.clone(), up: backend.up })
}

/// Asks one backend again and again, and says when its state changes. Ends when nobody listens.
fn watch(target: Target, say: &Sender<Change>) {
    let Target { place, end, check, up } = target;
    let (every, timeout) = (Duration::from_millis(check.every_ms), Duration::from_millis(check.timeout_ms()));
    let mut state = State { up, against: 0 };
    let mut could_ask = true;
    loop {
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

/// Waits for a change; all that are there by then, the latest of each backend only.
fn next(hear: &Receiver<Change>) -> Option<Vec<Change>> {
    let mut changes: Vec<Change> = std::iter::once(hear.recv().ok()?).chain(hear.try_iter()).collect();
    let mut seen = HashSet::new();
    changes.reverse();
    changes.retain(|change| seen.insert(change.place));
    changes.reverse();
    Some(changes)
}

/// Writes a backend's state into the plan.
fn set(plan: &mut Table, change: &Change) {
    let Place { function, service, backend } = change.place;
    let config = plan.get_mut("nf").and_then(|nf| nf.get_mut(function)).and_then(|nf| nf.get_mut("config"));
    let services = config.and_then(|config| config.get_mut("service")).and_then(|services| services.get_mut(service));
    let backend = services.and_then(|service| service.get_mut("backends")).and_then(|list| list.get_mut(backend));
    if let Some(backend) = backend.and_then(Value::as_table_mut) {
        backend.insert("up".to_owned(), Value::Boolean(change.up.is_ok()));
    }
}

fn tell(args: &HealthArgs, plan: &Table) -> Result<(), Failure> {
    let plan = toml::to_string(plan).map_err(|error| Failure::new(Kind::Failed, error.to_string(), ""))?;
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

    #[test]
    fn backends_are_asked_where_the_check_the_backend_or_the_service_says() {
        let plan = r#"
            [[nf]]
            function = "firewall"
            [[nf]]
            function = "load_balancer"
            [[nf.config.service]]
            address = "203.0.113.10"
            port = 80
            check = { kind = "http", path = "/health" }
            backends = [{ address = "10.0.0.1", port = 8080 }, { address = "10.0.0.2", up = false }]
            [[nf.config.service]]
            address = "203.0.113.11"
            check = { port = 22 }
            backends = [{ address = "10.0.0.3" }]
            [[nf.config.service]]
            address = "203.0.113.12"
            backends = [{ address = "10.0.0.4" }]
        "#;
        let mut plan: Table = plan.parse().unwrap();
        let found = targets(&plan).unwrap();
        let ends: Vec<_> = found.iter().map(|target| format!("{} {}", target.end, target.up)).collect();
        assert_eq!(ends, ["10.0.0.1:8080 true", "10.0.0.2:80 false", "10.0.0.3:22 true"]);
        for (target, up) in found.iter().zip([Err(Bad::Status(503)), Ok(()), Ok(())]) {
            set(&mut plan, &Change { place: target.place, end: target.end, up });
        }
        let ups: Vec<_> = targets(&plan).unwrap().iter().map(|target| target.up).collect();
        assert_eq!(ups, [false, true, true]);
        assert!(targets(&Table::new()).is_err(), "nobody to ask");
    }
}
