//! `braid upgrade`: continues a run in another process, with its packet sets and state objects: in another
//! program, with another plan, or both.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use braid_control::live::{Request, Successor};
use braid_control::runtime::io::device::Ports;
use serde_json::Value;

use super::print;
use crate::aside::asideln;
use crate::connect::{ControlArgs, connect};
use crate::failure::{Failure, Kind};
use crate::handover;

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
    let answer = connect(&args.control)?.ask(&Request::Upgrade { program, plan });
    let in_file = |failure: Failure| args.plan.iter().fold(failure, |failure, plan| failure.in_file(plan));
    let told: Value = answer.map_err(|error| in_file(error.into()))?;
    // A program of an earlier version tells nothing.
    let notes = told.as_array().into_iter().flatten().filter_map(Value::as_str);
    notes.for_each(|note| asideln!("note: {note}"));
    print("the run ends and is continued; it answers again when the new program has begun\n")?;
    Ok(ExitCode::SUCCESS)
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
