//! `braid stats`: the figures of a run as one JSON object.

use std::process::ExitCode;

use braid_control::live::{Request, Stats};

use super::print_json;
use crate::connect::{ControlArgs, connect};
use crate::failure::Failure;

/// `braid stats`.
#[derive(Debug, clap::Args)]
pub struct StatsArgs {
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Time every stage; the figures come with the next call
    #[arg(long)]
    pub timing: bool,
    /// For symmetry with other commands: JSON is what is printed anyway
    #[arg(long, hide = true)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &StatsArgs) -> Result<ExitCode, Failure> {
    let stats: Stats = connect(&args.control)?.ask(&Request::Stats { timing: args.timing })?;
    print_json(&stats)?;
    Ok(ExitCode::SUCCESS)
}
