//! `braid sets`: lists the live packet sets of a run, or those after a capture.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use braid_control::filter::Filter;
use braid_control::live::Request;
use braid_control::live::sets::{self, Listing};
use braid_control::profile::counted;
use braid_control::runtime::io::NullSink;
use braid_control::runtime::io::capture::Damage;
use braid_control::runtime::{AtEnd, Control, Worker, launch};
use braid_control::{Carry, Catalog};

use super::{print, print_json};
use crate::args::{ChainArgs, InputArgs};
use crate::chain::Written;
use crate::connect::{ControlArgs, connect, is_of_run};
use crate::failure::Failure;
use crate::input::undamaged;
use crate::numbers::between;

/// `braid sets`.
#[derive(Debug, clap::Args)]
pub struct SetsArgs {
    /// Which sets, as capture filters say it: 'host 10.0.0.1 and port 80'
    #[arg(long, short, default_value = "", value_name = "FILTER")]
    pub filter: String,
    /// End the sets instead of listing them, as if they had expired; needs a filter and a run
    #[arg(long, conflicts_with_all = ["plan", "nf"])]
    pub end: bool,
    /// Most sets that are listed
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = between(0, usize::MAX))]
    pub limit: usize,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// The chain; without one, a run is asked by its control socket
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &SetsArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let filter = Filter::parse(&args.filter).map_err(|error| Failure::usage(error.what, error.help))?;
    let is_of_run = is_of_run(&args.control, &args.chain, &args.input)?;
    if args.end && args.filter.trim().is_empty() {
        let help = "say which by --filter; `greater 0 or not greater 0` means all";
        return Err(Failure::usage("--end is for sets of a run that a filter names", help));
    }
    if args.end {
        let ended: u64 = connect(&args.control)?.ask(&Request::EndSets { filter: args.filter.clone() })?;
        print(&format!("{} ended\n", counted(ended, "packet set")))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (listing, damages) = if is_of_run {
        let request = Request::Sets { filter: args.filter.clone(), limit: args.limit };
        (connect(&args.control)?.ask(&request)?, Vec::new())
    } else {
        of_capture(args, filter, catalog)?
    };
    if args.json {
        print_json(&listing)?
    } else {
        print(&text(&listing))?
    }
    undamaged(&damages).map(|()| ExitCode::SUCCESS)
}

fn text(listing: &Listing) -> String {
    let mut text = String::new();
    for set in &listing.sets {
        let whose = set.worker.map_or("shared by workers".to_owned(), |worker| format!("worker {worker}"));
        text.push_str(&format!("{}  {whose}  idle {:.3} s\n", set.key, set.idle_seconds));
        for (function, state) in &set.functions {
            text.push_str(&format!("    {function:<16} {state}\n"));
        }
    }
    text.push_str(&format!("{} of {}\n", listing.sets.len(), counted(listing.live, "packet set")));
    text
}

/// The sets that are live after a capture has gone through the chain, and where the capture is damaged.
fn of_capture(args: &SetsArgs, filter: Filter, catalog: &Catalog) -> Result<(Listing, Vec<Damage>), Failure> {
    let written = Written::read(&args.chain, Some(&args.input), &[])?;
    let plan = written.plan(catalog)?;
    let compiled = written.compile(&plan, Carry::Nothing)?;
    let source = written.input(&plan)?.source()?;
    written.check_ports(source.ports(), &plan)?;
    let (listing, filter, limit) = (Arc::new(Mutex::new(Listing::default())), Arc::new(filter), args.limit);
    let (into, running) = (Arc::clone(&listing), AtomicUsize::new(compiled.run.workers));
    let list = move |worker: &mut Worker| {
        let mut found = sets::of_worker(worker, &filter, limit);
        // AcqRel: the last worker sees what all others wrote to shared sets.
        if running.fetch_sub(1, Ordering::AcqRel) == 1 {
            found.extend(sets::of_all_workers(worker, &filter, limit));
        }
        let mut listing = into.lock().unwrap_or_else(PoisonError::into_inner);
        // A shared set may end on another worker than the one on which it became live, so only the sum is meaningful.
        listing.live = listing.live.wrapping_add(worker.counters().sets_live);
        let room = limit.saturating_sub(listing.sets.len());
        listing.sets.extend(found.into_iter().take(room));
    };
    let control = Control { at_end: Some(AtEnd(Arc::new(list))), ..Control::default() };
    let report = launch(&compiled.run, source, Box::new(NullSink), &control)?;
    let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner).clone();
    listing.sets.sort_by(|a, b| a.key.cmp(&b.key));
    Ok((listing, report.damages))
}
