//! `braid model`: what more workers would do.

use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::model::{Request, model};

use super::{loaded, print, print_json};
use crate::args::{ChainArgs, InputArgs};
use crate::failure::Failure;

/// `braid model`.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Numbers of virtual workers
    #[arg(long = "virtual", value_name = "N[,N…]", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 23, 32, 64])]
    pub virtual_workers: Vec<usize>,
    /// Numbers of real workers to measure beside them
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_values_t = [1, 2])]
    pub measured: Vec<usize>,
    /// Packets of each run, modelled or real, shared among its workers
    #[arg(long, default_value_t = 400_000, value_name = "N")]
    pub packets: u64,
    /// Calibrations, and real runs of each number of workers, of which the medians count
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub repeats: usize,
    /// Moves the virtual workers a little apart; the same seed and costs give the same figures
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
pub fn run(args: &ModelArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let possible = |workers: &&usize| !(1..=256).contains(*workers);
    if let Some(wrong) = args.virtual_workers.iter().chain(&args.measured).find(possible) {
        return Err(Failure::usage(format!("{wrong} workers cannot be modelled"), "name numbers from 1 to 256"));
    }
    let (plan, frames, input) = loaded(&args.chain, &args.input, catalog)?;
    let (packets, repeats, seed) = (args.packets, args.repeats, args.seed);
    let request = Request { frames: &frames, input: &input, packets, repeats, seed };
    let report = model(&plan, &args.virtual_workers, &args.measured, request)?;
    if args.json {
        print_json(&report)?
    } else {
        print(&report.to_string())?
    }
    Ok(ExitCode::SUCCESS)
}
