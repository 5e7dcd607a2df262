//! `braid model`: predicts what more workers would do.

use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::model::{Request, model};

use super::{Loaded, announce, loaded, print, print_json};
use crate::args::{ChainArgs, InputArgs};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::input::undamaged;

/// Numbers of workers that are modelled by default.
pub(super) const USUAL: [usize; 8] = [1, 2, 4, 8, 16, 23, 32, 64];

/// Maximum number of workers that can be modelled.
pub(crate) const WORKERS_MAX: usize = 256;

/// `braid model`: the chain's `--workers` are those that are modelled.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.help("Numbers of workers to model [default: 1 2 4 8 16 23 32 64]").value_name("N[,N…]")))]
pub struct ModelArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Numbers of real workers to measure for comparison
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_values_t = [1, 2], value_parser = between(1, WORKERS_MAX))]
    pub measured: Vec<usize>,
    /// Packets per run, modelled or real, divided among its workers
    #[arg(long, default_value_t = 400_000, value_name = "N", value_parser = between(1, u64::MAX))]
    pub packets: u64,
    /// Repetitions of calibrations and real runs; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = between(1, 1000_usize))]
    pub repeats: usize,
    /// Seed of the small offsets between virtual workers; the same seed and costs give the same figures
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = between(0, u64::MAX))]
    pub seed: u64,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &ModelArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let mut chain = args.chain.clone();
    let asked: Vec<usize> = chain.workers.drain(..).map(|workers| usize::try_from(workers).unwrap_or(0)).collect();
    let modelled = if asked.is_empty() { &USUAL[..] } else { &asked };
    let impossible = |workers: &&usize| !(1..=WORKERS_MAX).contains(*workers);
    if let Some(wrong) = modelled.iter().find(impossible) {
        return Err(Failure::usage(format!("{wrong} workers cannot be modelled"), "name numbers from 1 to 256"));
    }
    let Loaded { plan, frames, input, damages } = loaded(&chain, &args.input, None, catalog)?;
    let (packets, repeats, seed) = (args.packets, args.repeats, args.seed);
    let request = Request { frames: &frames, input: &input, packets, repeats, seed };
    announce(&plan, &request, "; fewer with --packets");
    let report = model(&plan, modelled, &args.measured, request)?;
    if args.json {
        print_json(&report)?
    } else {
        print(&report.to_string())?
    }
    undamaged(&damages).map(|()| ExitCode::SUCCESS)
}
