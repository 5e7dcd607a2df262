//! `braid profile`: shows why attempts are rolled back, what to change, and where the time goes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use braid_control::model::{Request, calibrate, model, modelled, real};
use braid_control::profile::Profile;
use braid_control::profile::html;
use braid_control::profile_run::{profile, try_changes};
use braid_control::{Catalog, Plan};

use super::model::WORKERS_MAX;
use super::{Loaded, announce, loaded, print, print_json, write};
use crate::args::{ChainArgs, InputArgs};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::input::undamaged;

const NEXT: &str = "\nNext: `braid tune` with the same arguments tries every value that the functions allow, modelled on 23 workers, and \
writes a plan file.\n";

/// Maximum number of packets in each run of the scaling curve.
const CURVE_PACKETS: u64 = 200_000;

/// `braid profile`.
#[derive(Debug, clap::Args)]
pub struct ProfileArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Packets per run, divided among the workers; replayed from memory
    #[arg(long, default_value_t = 2_000_000, value_name = "N", value_parser = between(1, u64::MAX))]
    pub packets: u64,
    /// Profile N modelled workers instead of real ones
    #[arg(long = "virtual", value_name = "N", value_parser = between(1, WORKERS_MAX))]
    pub virtual_workers: Option<usize>,
    /// Write an HTML report, with the scaling curve from the model
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &ProfileArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let Loaded { plan, frames, input, damages } =
        loaded(&args.chain, &args.input, args.html.as_ref().map(|path| (path, "the page")), catalog)?;
    let request = Request { frames: &frames, input: &input, packets: args.packets, repeats: 3, seed: 0 };
    announce(&plan, &request, "; fewer with --packets");
    let mut profile = match args.virtual_workers {
        Some(workers) => modelled_profile(&plan, workers, request)?,
        None => {
            let mut profile = profile(&plan, &input, &real(&plan, plan.workers, request, true)?, false);
            try_changes(&plan, request, &mut profile)?;
            profile
        }
    };
    if let Some(path) = &args.chain.plan {
        name_lines(path, &plan, &mut profile)?;
    }
    if let Some(path) = &args.html {
        let request = Request { packets: args.packets.min(CURVE_PACKETS), ..request };
        let curve = model(&plan, &[1, 2, 4, 8, 16, 32], &[1, 2], request)?;
        write(path, &html::page(&profile, Some(&curve)))?;
    }
    if args.json {
        print_json(&profile)?
    } else {
        print(&profile.to_string())?;
        if profile.causes.iter().any(|cause| cause.setting.is_some()) {
            print(NEXT)?;
        }
    }
    undamaged(&damages).map(|()| ExitCode::SUCCESS)
}

/// The profile of modelled virtual workers.
fn modelled_profile(plan: &Plan, workers: usize, request: Request<'_>) -> Result<Profile, Failure> {
    let costs = calibrate(plan, request)?.costs;
    Ok(profile(plan, request.input, &modelled(plan, workers, &costs, request)?, true))
}

/// Adds to each change the line of the plan file where the setting is, or where it belongs.
fn name_lines(path: &Path, plan: &Plan, profile: &mut Profile) -> Result<(), Failure> {
    let text = Failure::or_text(path)?;
    let line = |at: usize| text.get(..at).map_or(0, |before| before.matches('\n').count() + 1);
    for cause in &mut profile.causes {
        let (Some(change), Some(setting)) = (&mut cause.change, &cause.setting) else { continue };
        let Some(link) = plan.chain.iter().find(|link| link.name == setting.function) else { continue };
        let place = match link.config.place(&setting.key) {
            Some(place) => format!("{}:{}", path.display(), line(place.start)),
            None => format!("{}, for the function of line {}", path.display(), line(link.at.start)),
        };
        *change = format!("{place}\n{change}");
    }
    Ok(())
}
