//! `braid upgrade`: continues a run in another process, with its packet sets and state objects: in another
//! program, with another plan, or both. The command returns when that program answers, or has failed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use super::print;
use crate::aside::asideln;
use crate::connect::{ControlArgs, connect, place};
use crate::failure::{Failure, Kind};
use crate::handover;
use braid_control::live::{Client, Continued, Request, Stats, Successor};
use braid_control::runtime::io::device::Ports;

/// `braid upgrade`.
#[derive(Debug, clap::Args)]
pub struct UpgradeArgs {
    /// A plan file to go on with: other workers or ports as well, unlike `braid apply`; what it leaves open stays as it is
    pub plan: Option<PathBuf>,
    /// The program that continues the run [default: the file of the one that runs, as it is now]
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
    // Whoever answers now is the next program: with the former one its connections have ended.
    drop(client);
    while begun.elapsed() < SUCCESSION_MAX {
        let stats = Client::connect(path).and_then(|mut client| client.ask::<Stats>(&Request::Stats { timing: false }));
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

/// Executes the other program, with the arguments of this one, the initial state (which that program must remove unless it was to
/// be saved anyway), the plan, and whatever `ports` leave open. Returns only on failure.
pub(super) fn become_successor(
    successor: &Successor,
    (state, is_to_stay): (&Path, bool),
    applied: Option<&Path>,
    ports: Option<&Ports>,
) -> Failure {
    let program = &successor.program;
    let mut arguments = with(std::env::args_os().skip(1), "--restore", state);
    if let Some(applied) = applied {
        arguments = with(arguments.into_iter(), "--applied", applied);
    }
    let left = ports.map_or(Ok(None), |ports| ports.leave_open(|variable| successor.knows_of(variable)).map(Some));
    let error = match left {
        Ok(left) => {
            let mut next = Command::new(program);
            handover::tell_of(Some(state).filter(|_| !is_to_stay), &mut next);
            next.args(arguments).envs(left.into_iter().flatten()).exec()
        }
        Err(error) => error,
    };
    let help = match handover::is_memory(state) {
        true => "the state was in memory, and has ended with the run".to_owned(),
        false => format!("the state is in {}: continue with `braid run --restore`", state.display()),
    };
    Failure::new(Kind::Failed, format!("{}: {error}", program.display()), help)
}

/// The arguments with this option set to this file, replacing earlier occurrences of the option.
fn with(arguments: impl Iterator<Item = OsString>, option: &str, file: &Path) -> Vec<OsString> {
    let (mut kept, mut skip) = (Vec::new(), false);
    for argument in arguments {
        let is_option = argument == option;
        let joined =
            argument.to_str().and_then(|text| text.strip_prefix(option)).is_some_and(|end| end.starts_with('='));
        if !std::mem::replace(&mut skip, is_option) && !is_option && !joined {
            kept.push(argument);
        }
    }
    kept.extend([OsString::from(option), file.into()]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_state_gives_way() {
        let check = |given: &[&str], wanted: &[&str]| {
            let kept = with(given.iter().map(OsString::from), "--restore", Path::new("new"));
            assert_eq!(kept, wanted.iter().map(OsString::from).collect::<Vec<_>>());
        };
        check(&["run", "plan"], &["run", "plan", "--restore", "new"]);
        check(&["run", "--restore", "old", "plan"], &["run", "plan", "--restore", "new"]);
        check(&["run", "--restore=old", "plan"], &["run", "plan", "--restore", "new"]);
    }
}
