//! `braid upgrade`: continues a run in another process, with its packet sets and state objects: in another
//! program, with another plan, or both. The command returns when that program answers, or has failed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use super::print;
use crate::connect::{ControlArgs, connect, place};
use crate::failure::{Failure, Kind};
use crate::run::successor;
use crate::run::watch::Asked;
use crate::stderr::asideln;
use braid_control::live::{Client, Continued, Request, Stats, Successor};
use braid_control::runtime::io::device::Ports;

/// `braid upgrade`.
#[derive(Debug, clap::Args)]
pub struct UpgradeArgs {
    /// Plan file to continue with; may change workers and ports, unlike `braid apply`. Keys that it omits keep their values
    pub plan: Option<PathBuf>,
    /// The program that continues the run [default: the file of the running program, as it is now]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
}

/// Runs the command.
pub fn run(args: &UpgradeArgs) -> Result<ExitCode, Failure> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|error| Failure::file(path, &error));
    let program = args.program.as_ref().map(absolute).transpose()?;
    let plan = args.plan.as_ref().map(|path| Failure::or_text(path)).transpose()?;
    let mut client = connect(&args.control)?;
    let answer = client.ask(&Request::Upgrade { program, plan });
    let in_file = |failure: Failure| args.plan.iter().fold(failure, |failure, plan| failure.in_file(plan));
    let answer: Option<Continued> = answer.map_err(|error| in_file(error.into()))?;
    let notes = answer.iter().flat_map(|continued| &continued.notes);
    notes.for_each(|note| asideln!("note: {note}"));
    let path = place(&args.control);
    let stats = succeeds(&path, client, answer).map_err(|what| {
        let help = "what the run has printed says why; if its state was saved, `braid run --restore` goes on with it";
        Failure::new(Kind::Failed, format!("{}: {what}", path.display()), help)
    })?;
    print(&format!("continued by braid {}, which answers at {}\n", stats.version, path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Longest time until the run has ended and saved its state, and until the next program answers: both read and write all packet sets.
const SUCCESSION_MAX: Duration = Duration::from_secs(120);
/// Pause between two attempts to reach the next program.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until the program that continues the run answers at `path`; the error says what happened instead.
fn succeeds(path: &Path, mut client: Client, continued: Option<Continued>) -> Result<Stats, String> {
    let begun = Instant::now();
    // What continues the run is the same process. One that cannot be seen from here, as in a container, is waited for without that knowledge.
    let place = continued.map(|Continued { process, .. }| PathBuf::from(format!("/proc/{process}")));
    let seen = place.filter(|place| place.exists());
    if !client.is_closed_within(SUCCESSION_MAX) {
        return Err(format!("the run has not ended within {SUCCESSION_MAX:?}"));
    }
    // The connections of the previous program have ended with it, so an answer comes from the next one.
    drop(client);
    while begun.elapsed() < SUCCESSION_MAX {
        // As `braid top` asks: without what functions found, which takes the longer the larger their tables are.
        let stats = Client::connect(path).and_then(|mut client| client.ask::<Stats>(&Request::Stats { timing: true }));
        match stats {
            // Its workers have begun.
            Ok(stats) if !stats.workers.is_empty() => return Ok(stats),
            _ if seen.as_ref().is_some_and(|place| has_ended(place)) => {
                return Err("the run has ended, but no other program continues it".to_owned());
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
    Err(format!("the next program has not answered within {SUCCESSION_MAX:?}; it may still do so"))
}

/// Whether the process of this folder in `/proc` is gone, or only its exit code is left (proc(5): the state follows the name in parentheses).
fn has_ended(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// What the other program is to go on with, in place of what the command line of this one says.
pub(super) struct GoesOn<'a> {
    /// The initial state.
    pub(super) state: &'a Path,
    /// Whether the state was to be saved anyway; otherwise that program must remove it.
    pub(super) is_to_stay: bool,
    /// The plan, if it is another one.
    pub(super) applied: Option<&'a Path>,
    /// What is left of the time after which the run is to end.
    pub(super) left: Option<Duration>,
}

impl GoesOn<'_> {
    /// The arguments of the other program.
    fn arguments(&self, own: impl Iterator<Item = OsString>) -> Vec<OsString> {
        let mut arguments = with(own, "--restore", self.state);
        if let Some(applied) = self.applied {
            arguments = with(arguments.into_iter(), "--applied", applied);
        }
        if let Some(left) = self.left {
            arguments = with(arguments.into_iter(), "--duration", format!("{}ms", left.as_millis()));
        }
        arguments
    }
}

/// Executes the other program, with the arguments of this one except for what it goes on with, and with whatever `ports` leave open.
/// A signal that has asked this one to end meanwhile ends that one, which then saves the state. Returns only on failure.
pub(super) fn become_successor(
    successor: &Successor,
    on: &GoesOn<'_>,
    ports: Option<&Ports>,
    asked: &Asked,
) -> Failure {
    let (program, state) = (&successor.program, on.state);
    let arguments = on.arguments(std::env::args_os().skip(1));
    let left = ports.map_or(Ok(None), |ports| ports.leave_open(|variable| successor.knows_of(variable)).map(Some));
    let error = match left {
        Ok(left) => {
            let mut next = Command::new(program);
            successor::tell_of(Some(state).filter(|_| !on.is_to_stay), &mut next);
            successor::hold_signals(successor, &mut next, asked);
            next.args(arguments).envs(left.into_iter().flatten()).exec()
        }
        Err(error) => error,
    };
    let help = match successor::is_memory(state) {
        true => "the state was in memory, and has ended with the run".to_owned(),
        false => format!("the state is in {}: continue with `braid run --restore`", state.display()),
    };
    Failure::new(Kind::Failed, format!("{}: {error}", program.display()), help)
}

/// The arguments with this option set to this value, replacing earlier occurrences of the option. It stands directly behind the
/// command's name, because whatever follows `--` is no option.
fn with(mut arguments: impl Iterator<Item = OsString>, option: &str, value: impl Into<OsString>) -> Vec<OsString> {
    let mut kept: Vec<OsString> = arguments.next().into_iter().collect();
    kept.extend([OsString::from(option), value.into()]);
    let mut skip = false;
    while let Some(argument) = arguments.next() {
        if argument == "--" && !skip {
            kept.push(argument);
            kept.extend(arguments);
            break;
        }
        let is_option = argument == option;
        let joined =
            argument.to_str().and_then(|text| text.strip_prefix(option)).is_some_and(|end| end.starts_with('='));
        if !std::mem::replace(&mut skip, is_option) && !is_option && !joined {
            kept.push(argument);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_state_gives_way() {
        let check = |given: &[&str], wanted: &[&str]| {
            let kept = with(given.iter().map(OsString::from), "--restore", "new");
            assert_eq!(kept, wanted.iter().map(OsString::from).collect::<Vec<_>>());
        };
        check(&["run", "plan"], &["run", "--restore", "new", "plan"]);
        check(&["run", "--restore", "old", "plan"], &["run", "--restore", "new", "plan"]);
        check(&["run", "plan", "--restore=old"], &["run", "--restore", "new", "plan"]);
    }

    #[test]
    fn what_follows_two_dashes_is_no_option() {
        let check = |given: &[&str], wanted: &[&str]| {
            let kept = with(given.iter().map(OsString::from), "--restore", "new");
            assert_eq!(kept, wanted.iter().map(OsString::from).collect::<Vec<_>>());
        };
        check(&["run", "-w", "1", "--", "plan"], &["run", "--restore", "new", "-w", "1", "--", "plan"]);
        check(&["run", "--restore", "old", "--", "--restore"], &["run", "--restore", "new", "--", "--restore"]);
        check(&["run", "--restore", "--", "plan"], &["run", "--restore", "new", "plan"]);
    }

    #[test]
    fn a_run_with_an_end_goes_on_for_what_is_left() {
        let (state, left) = (Path::new("state"), Some(Duration::from_millis(1500)));
        let on = GoesOn { state, is_to_stay: false, applied: None, left };
        let typed = ["run", "plan", "--duration", "5s", "--port=eth0"].map(OsString::from);
        let wanted = ["run", "--duration", "1500ms", "--restore", "state", "plan", "--port=eth0"];
        assert_eq!(on.arguments(typed.into_iter()), wanted.map(OsString::from));
    }
}
