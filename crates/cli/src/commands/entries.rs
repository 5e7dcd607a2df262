//! `braid entries`: what functions keep besides packet sets, a NAT's mappings, a bridge's stations, a router's neighbours, of a run that goes on or of a capture that has come
//! to its end.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use braid_control::Catalog;
use braid_control::filter::Filter;
use braid_control::live::Request;
use braid_control::live::entries::{self, EndedEntries, Entries, EntryReport};
use braid_control::runtime::io::capture::Damage;

use super::{at_end, names_what_ends, print, print_json};
use crate::args::{ChainArgs, InputArgs};
use crate::connect::{ControlArgs, connect, is_of_run};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::input::undamaged;

/// `braid entries`.
#[derive(Debug, clap::Args)]
pub struct EntriesArgs {
    /// Which entries, as capture filters say it: 'dst host 198.51.100.1 and dst port 42156'; the inside end of a mapping is its source, the external one its destination; 'ether host 02:00:00:00:00:07', 'vlan 10'
    #[arg(long, short, default_value = "", value_name = "FILTER")]
    pub filter: String,
    /// End the entries instead of listing them, as if their lifetime were over: a NAT frees the port, a bridge forgets the station; needs a filter and a run
    #[arg(long, conflicts_with_all = ["plan", "nf"])]
    pub end: bool,
    /// Most entries that are listed
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

/// Runs it.
pub fn run(args: &EntriesArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let filter = Filter::parse(&args.filter).map_err(|error| Failure::usage(error.what, error.help))?;
    let is_of_run = is_of_run(&args.control, &args.chain, &args.input)?;
    if args.end {
        names_what_ends(&args.filter, "entries")?;
        let ended: EndedEntries = connect(&args.control)?.ask(&Request::EndEntries { filter: args.filter.clone() })?;
        if args.json {
            print_json(&ended)?
        } else {
            print(&ended_in_words(&ended))?
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (entries, damages) = if is_of_run {
        let request = Request::Entries { filter: args.filter.clone(), limit: args.limit };
        (connect(&args.control)?.ask(&request)?, Vec::new())
    } else {
        of_capture(args, filter, catalog)?
    };
    if args.json {
        print_json(&entries)?
    } else {
        print(&text(&entries))?
    }
    undamaged(&damages).map(|()| ExitCode::SUCCESS)
}

const NO_ENTRIES: &str = "no function of this chain keeps entries besides its packet sets; `braid sets` lists those\n";

fn ended_in_words(ended: &EndedEntries) -> String {
    if ended.functions.is_empty() {
        return NO_ENTRIES.to_owned();
    }
    let configured = match ended.configured {
        0 => String::new(),
        1 => "; 1 entry of the configuration stays: another plan ends it".to_owned(),
        count => format!("; {} of the configuration stay: another plan ends those", number_of(count)),
    };
    format!("{} ended{configured}\n", number_of(ended.ended))
}

fn number_of(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn text(entries: &Entries) -> String {
    if entries.functions.is_empty() {
        return NO_ENTRIES.to_owned();
    }
    let mut text: String = entries.entries.iter().map(line).collect();
    text.push_str(&number_of(entries.entries.len() as u64));
    text.push_str(if entries.is_cut { ", and perhaps more: --limit\n" } else { "\n" });
    text
}

fn line(entry: &EntryReport) -> String {
    let EntryReport { function, kind, protocol, ends: [from, to], detail, .. } = entry;
    let left = entry.left_seconds.map(|left| format!("{left:.1} s left"));
    let details: Vec<String> = (!detail.is_empty()).then(|| detail.clone()).into_iter().chain(left).collect();
    let protocol = protocol.as_deref().map_or_else(String::new, |name| format!("{name:<6} "));
    format!("{function:<12} {kind:<9} {protocol}{from} → {to}  {}\n", details.join(", "))
}

/// The entries that there are when a capture has gone through the chain, and where it is damaged.
fn of_capture(args: &EntriesArgs, filter: Filter, catalog: &Catalog) -> Result<(Entries, Vec<Damage>), Failure> {
    let (found, filter, limit) = (Arc::new(Mutex::new(Entries::default())), Arc::new(filter), args.limit);
    let into = Arc::clone(&found);
    let damages = at_end(&args.chain, &args.input, catalog, move |worker, to_come| {
        if to_come == 0 {
            let listed = entries::of_all_workers(worker, &filter, limit);
            *into.lock().unwrap_or_else(PoisonError::into_inner) = listed;
        }
    })?;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((found, damages))
}
