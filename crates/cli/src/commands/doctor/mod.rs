//! `braid doctor`: reports what this machine lacks for each back end, with the command that provides it.
//!
//! `facts` queries the machine, by reading files and by opening things that are closed again; `judge` interprets the results.
//! Nothing is changed, and the exit code is 0 whatever is lacking, because the command only asks.

mod facts;
mod judge;

use std::process::ExitCode;

use serde::Serialize;

use self::facts::Facts;
use super::{print, print_json};
use crate::failure::Failure;

/// `braid doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Print one JSON array on standard output
    #[arg(long)]
    pub json: bool,
}

/// The state of one checked property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Everything is as it should be.
    Good,
    /// It works, but more slowly or less reliably than it could.
    Advice,
    /// It does not work.
    Lacking,
}

/// One checked property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: String,
    state: State,
    /// What was found.
    found: String,
    /// The command that corrects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

/// A back end, an interface, or the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Section {
    name: String,
    /// Whether nothing is lacking.
    usable: bool,
    checks: Vec<Check>,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let sections = judge::all(&Facts::gather());
    if args.json {
        print_json(&sections)?
    } else {
        print(&text(&sections))?
    }
    Ok(ExitCode::SUCCESS)
}

fn text(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { name, usable, checks } in sections {
        text += &format!("{name}{}\n", if *usable { "" } else { ": not usable" });
        for Check { name, state, found, mend } in checks {
            let mark = match state {
                State::Good => "ok",
                State::Advice => "better",
                State::Lacking => "LACKS",
            };
            text += &format!("  {mark:<7} {name:<18} {found}\n");
            if let Some(mend) = mend {
                text += &format!("          → {mend}\n");
            }
        }
    }
    text
}
