//! `braid profile`: why attempts are taken back, what to change, and where the time goes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::model::{Request, model, real};
use braid_control::profile::html;
use braid_control::profile_run::profile;

use super::{loaded, print, print_json};
use crate::args::{ChainArgs, InputArgs};
use crate::failure::Failure;

/// `braid profile`.
#[derive(Debug, clap::Args)]
pub struct ProfileArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Packets per worker, played from memory again and again
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    pub packets: u64,
    /// Write a page to look at, with the scaling curve from the model
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
pub fn run(args: &ProfileArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let (plan, frames, input) = loaded(&args.chain, &args.input, catalog)?;
    let request = Request { frames: &frames, input: &input, packets: 4000, real_packets: args.packets, seed: 0 };
    let report = real(&plan, plan.workers, request, true)?;
    let profile = profile(&plan, &input, &report, false);
    if let Some(path) = &args.html {
        let curve = model(&plan, &[1, 2, 4, 8, 16, 32], &[1, 2], request)?;
        write(path, &html::page(&profile, Some(&curve)))?;
    }
    if args.json {
        print_json(&profile)?
    } else {
        print(&profile.to_string())?
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a text file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::file(path, &error))
}
