//! `braid snapshot`: saves the state of a run while packets pass through.

use std::path::PathBuf;
use std::process::ExitCode;

use braid_control::live::Request;
use braid_control::live::snapshot::Taken;
use braid_control::profile::counted;
use braid_control::report::grouped_of;

use super::{print, print_json};
use crate::connect::{ControlArgs, connect};
use crate::failure::Failure;

/// `braid snapshot`.
#[derive(Debug, clap::Args)]
pub struct SnapshotArgs {
    /// File to write; written by the run, readable only by its owner
    pub file: PathBuf,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &SnapshotArgs) -> Result<ExitCode, Failure> {
    let path = std::path::absolute(&args.file).map_err(|error| Failure::file(&args.file, &error))?;
    let taken: Taken = connect(&args.control)?.ask(&Request::Snapshot { path })?;
    if args.json {
        print_json(&taken)?
    } else {
        print(&text(&taken))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a snapshot in one line.
pub fn text(taken: &Taken) -> String {
    let Taken { sets, objects, bytes, held_us } = taken;
    let (sets, objects) = (grouped_of(*sets as u64, "packet set"), counted(*objects as u64, "state object"));
    format!("{sets} and {objects} saved, {}; workers stood still for {held_us} µs\n", grouped_of(*bytes, "byte"))
}
