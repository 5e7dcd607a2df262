//! `braid sets`: lists the live packet sets of a run, or those after a capture.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use braid_control::Catalog;
use braid_control::filter::Filter;
use braid_control::live::Request;
use braid_control::live::entries;
use braid_control::live::sets::{self, Listing, SetReport};
use braid_control::profile::counted;
use braid_control::runtime::io::capture::Damage;

use super::{at_end, names_what_ends, print, print_json};
use crate::args::{ChainArgs, InputArgs};
use crate::connect::{ControlArgs, connect, is_of_run};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::input::undamaged;

/// `braid sets`.
#[derive(Debug, clap::Args)]
pub struct SetsArgs {
    /// Which sets, as capture filters say it: 'host 10.0.0.1 and port 80'
    #[arg(long, short, default_value = "", value_name = "FILTER")]
    pub filter: String,
    /// End the sets instead of listing them, as if they had expired; needs a filter and a run
    #[arg(long, conflicts_with_all = ["plan", "nf"])]
    pub end: bool,
    /// Maximum number of sets to list
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
    if args.end {
        names_what_ends(&args.filter, "sets")?;
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
        for at in 0..set.functions.len() {
            text.push_str(&format!("    {}\n", meaning(set, at)));
        }
    }
    if listing.sets.is_empty() && !listing.with_entries.is_empty() {
        let functions = listing.with_entries.join(", ");
        text.push_str(&format!(
            "mappings and ICMP queries are no packet sets: `braid entries` lists those of {functions}\n"
        ));
    }
    text.push_str(&format!("{} of {}\n", listing.sets.len(), counted(listing.live, "packet set")));
    text
}

/// What a function says of a set, or else its state in hexadecimal, and how long it lives without a packet.
fn meaning(set: &SetReport, at: usize) -> String {
    let (function, state) = &set.functions[at];
    let said = set.meanings.get(at);
    let text = said.and_then(|said| said.text.as_ref()).unwrap_or(state);
    let left = said.and_then(|said| said.left_seconds).map_or_else(String::new, |left| format!("  {left:.1} s left"));
    format!("{function:<16} {text}{left}")
}

/// The sets that are live when a capture has gone through the chain, and where it is damaged.
fn of_capture(args: &SetsArgs, filter: Filter, catalog: &Catalog) -> Result<(Listing, Vec<Damage>), Failure> {
    let (listing, filter, limit) = (Arc::new(Mutex::new(Listing::default())), Arc::new(filter), args.limit);
    let into = Arc::clone(&listing);
    let damages = at_end(&args.chain, &args.input, catalog, move |worker, to_come| {
        let mut found = sets::of_worker(worker, &filter, limit);
        let mut listing = into.lock().unwrap_or_else(PoisonError::into_inner);
        if to_come == 0 {
            found.extend(sets::of_all_workers(worker, &filter, limit));
            listing.with_entries = entries::functions(worker.chain());
        }
        // A shared set may end on another worker than the one on which it became live: the sum counts.
        listing.live = listing.live.wrapping_add(worker.counters().sets_live);
        let room = limit.saturating_sub(listing.sets.len());
        listing.sets.extend(found.into_iter().take(room));
    })?;
    let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner).clone();
    listing.sets.sort_by(|a, b| a.key.cmp(&b.key));
    Ok((listing, damages))
}
