//! `braid tune`: tries the relaxations that the functions allow, and writes a plan with those that help.

use std::path::PathBuf;
use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::model::Request;
use braid_control::plan::text::plan_text;
use braid_control::tune::{Tuned, tried, tune};

use super::model::WORKERS_MAX;
use super::{Loaded, announce, loaded, print, write};
use crate::args::{ChainArgs, InputArgs};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::input::undamaged;
use crate::stderr::asideln;

/// `braid tune`.
#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Virtual workers to tune for
    #[arg(long = "virtual", value_name = "N", default_value_t = 23, value_parser = between(1, WORKERS_MAX))]
    pub virtual_workers: usize,
    /// Plan file to write [default: standard output]
    #[arg(long = "out", value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &TuneArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let Loaded { plan, frames, input, damages } =
        loaded(&args.chain, &args.input, args.to.as_ref().map(|path| (path, "the tuned plan")), catalog)?;
    let request = Request { frames: &frames, input: &input, packets: 200_000, repeats: 3, seed: 0 };
    if !tried(&plan).is_empty() {
        announce(&plan, &request, "");
    }
    let outcome = tune(&plan, args.virtual_workers, request)?;
    if outcome.tuned.is_empty() {
        asideln!("{}: the chain allows nothing to be relaxed", plan.chain_name());
    }
    let text = plan_text(&outcome);
    match &args.to {
        Some(path) => {
            write(path, &text)?;
            print(&format!(
                "{}{}: a plan with this and what it was found by\n",
                found(&outcome.tuned),
                path.display()
            ))?;
        }
        None => print(&text)?,
    }
    undamaged(&damages).map(|()| ExitCode::SUCCESS)
}

/// The result for each key.
fn found(tuned: &[Tuned]) -> String {
    let line = |Tuned { function, key, chosen, .. }: &Tuned| match chosen {
        Some(value) => format!("{function}: {key} = {value}\n"),
        None => format!("{function}: {key} stays as it was, nothing gained\n"),
    };
    tuned.iter().map(line).collect()
}
