//! `braid scenario`: checks packets in and packets out as text files specify them, with one worker and with two.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use braid_control::plan::file::{PlanFile, unplaced};
use braid_control::profile::counted;
use braid_control::{Carry, Catalog, HugePages, Plan};
use braid_testkit::scenario::{self, Scenario};

use super::print;
use crate::args::ScenarioArgs;
use crate::failure::{Failure, Kind};
use crate::stderr::aside;

/// File extension of scenarios.
const ENDING: &str = "scenario";
/// Default number of packet sets; small, because every run makes new tables.
const SETS: i64 = 4096;

/// Runs the command.
pub fn run(args: &ScenarioArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        collect(path, &mut files)?;
    }
    if files.is_empty() {
        let what = format!("no file whose name ends in .{ENDING}");
        return Err(Failure::new(Kind::Io, what, "name files, or folders with such files"));
    }
    let (mut failed, mut refused) = (0, Vec::new());
    for file in &files {
        match check(file, catalog) {
            Ok(Ok(scenario)) if !args.quiet => print(&format!("ok      {}: {}\n", file.display(), scenario.title))?,
            Ok(Ok(_)) => {}
            Ok(Err(mismatch)) => {
                failed += 1;
                print(&format!("failed  {}:{}: {mismatch}\n", file.display(), mismatch.line))?;
            }
            // A refused file says nothing about the others.
            Err(failure) if files.len() > 1 => {
                print(&format!("refused {}\n", file.display()))?;
                aside!("{}", failure.render());
                refused.push(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    let and_refused = if refused.is_empty() { String::new() } else { format!(", {} refused", refused.len()) };
    print(&format!("{}, {failed} failed{and_refused}\n", counted(files.len() as u64, "scenario")))?;
    Ok(match refused.first() {
        _ if failed > 0 => ExitCode::from(Kind::Failed as u8),
        Some(failure) => failure.exit_code(),
        None => ExitCode::SUCCESS,
    })
}

/// Collects files, and those in a folder and its subfolders, in the order of their names.
fn collect(path: &Path, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        into.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut inside: Vec<PathBuf> =
        entries.map_err(|error| Failure::file(path, &error))?.iter().map(|e| e.path()).collect();
    inside.sort();
    for path in inside {
        if path.is_dir() || path.extension().is_some_and(|ending| ending == ENDING) {
            collect(&path, into)?;
        }
    }
    Ok(())
}

/// Runs a scenario with one worker and with two.
fn check(path: &Path, catalog: &Catalog) -> Result<Result<Scenario, scenario::Mismatch>, Failure> {
    let text = Failure::or_text(path)?;
    let scenario = Scenario::parse(&text)
        .map_err(|error| Failure::usage(format!("{}:{}: {}", path.display(), error.line, error.what), error.help))?;
    let in_file = |problem| Failure::of_plan(problem, Some((path, scenario.plan.as_str())));
    let written = PlanFile::parse(&scenario.plan).map_err(in_file)?;
    for workers in [1, 2] {
        let mut written = written.clone();
        written.workers = Some(unplaced(workers));
        written.sets.get_or_insert(unplaced(SETS));
        let plan = Plan { pages: HugePages::Never, ..Plan::new(&written, catalog).map_err(in_file)? };
        let compiled = plan.compile(Carry::Capture).map_err(in_file)?;
        let ran = scenario::run(&scenario, &compiled.run);
        if let Err(mismatch) = ran? {
            return Ok(Err(mismatch));
        }
    }
    Ok(Ok(scenario))
}
