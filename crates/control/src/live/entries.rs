//! Entries of functions' tables that stand for somebody's traffic, such as a NAT's mappings: found by a filter, listed.
//!
//! The first worker looks at a bounded number of entries between two batches, so a table of millions delays no packet by more than some
//! tens of microseconds. What begins or ends meanwhile may be missed, or listed.

use std::sync::Arc;

use braid_runtime::nf::TableEntry;
use braid_runtime::nf::packet::protocol;
use braid_runtime::{Chain, ListedEntries, Live, Worker};
use serde::{Deserialize, Serialize};

use super::protocol::Refused;
use super::sets::unanswered;
use crate::facts::Facts;
use crate::filter::Filter;

/// Some of the entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entries {
    /// The entries found, at most as many as asked for.
    pub entries: Vec<EntryReport>,
    /// There are more, or there may be: as many as asked for were found before the end.
    pub is_cut: bool,
    /// The functions that have such tables.
    pub functions: Vec<String>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryReport {
    /// The function's name in the plan.
    pub function: String,
    /// What it is, in a word.
    pub kind: String,
    /// Protocol, by name or number.
    pub protocol: String,
    /// One end: of a mapping the inside address, of a query who asks.
    pub from: String,
    /// Its port; of ICMP queries the identifier.
    pub from_port: u16,
    /// The other end: of a mapping the external address, of a query who is asked.
    pub to: String,
    /// Its port, or the identifier.
    pub to_port: u16,
    /// What else there is to say; may be empty.
    pub detail: String,
    /// Seconds until it ends if nothing more comes; none: never.
    pub left_seconds: Option<f64>,
    /// Both ends, as people read them.
    pub ends: [String; 2],
}

impl EntryReport {
    fn new(function: &str, entry: &TableEntry) -> EntryReport {
        let [from, to] = entry.ends;
        EntryReport {
            function: function.to_owned(),
            kind: entry.kind.to_owned(),
            protocol: protocol::name(entry.protocol).map_or(entry.protocol.to_string(), str::to_owned),
            from: from.0.to_string(),
            from_port: from.1,
            to: to.0.to_string(),
            to_port: to.1,
            detail: entry.detail.clone(),
            left_seconds: entry.left_ns.map(|left_ns| left_ns as f64 / 1e9),
            ends: entry.ends_in_words(),
        }
    }
}

/// Names of the functions of a chain that list entries.
pub fn functions(chain: &Chain) -> Vec<String> {
    listing(chain).map(|(_, name)| name.to_owned()).collect()
}

fn listing(chain: &Chain) -> impl Iterator<Item = (usize, &str)> {
    let stages = chain.stages().iter().enumerate().filter(|(_, stage)| stage.lists_entries());
    stages.map(|(position, stage)| (position, stage.name()))
}

/// Lists entries of a run.
pub fn list(live: &Live, filter: &Arc<Filter>, limit: usize) -> Result<Entries, Refused> {
    let Some(running) = live.running() else { return Err(Refused::new("the run has not begun", "ask again")) };
    collect(&running.chain, limit, |at, left| {
        let (chain, filter) = (Arc::clone(&running.chain), Arc::clone(filter));
        let portion = live.ask(0, move |worker| worker.list_entries(&chain, at, left, wanted(&filter)));
        let changed = || Refused::new("the chain has changed meanwhile", "ask again");
        portion.map_err(unanswered)?.ok_or_else(changed)
    })
}

/// The same of workers that do not run any more, read by one of them.
pub fn of_all_workers(worker: &mut Worker, filter: &Filter, limit: usize) -> Entries {
    let chain = Arc::clone(worker.chain());
    let portion = |at, left| Ok(worker.list_entries(&chain, at, left, wanted(filter)).unwrap_or_default());
    collect(&chain, limit, portion).unwrap_or_default()
}

fn wanted(filter: &Filter) -> impl Fn(&TableEntry) -> bool + '_ {
    move |entry| filter.matches(&Facts::of_entry(entry))
}

/// Asks for one portion after another: of the function at a position (first), from a cursor (second) on, and how many at most.
fn collect(
    chain: &Chain,
    limit: usize,
    mut ask: impl FnMut((usize, u32), usize) -> Result<ListedEntries, Refused>,
) -> Result<Entries, Refused> {
    let mut all = Entries { functions: functions(chain), ..Entries::default() };
    for (position, name) in listing(chain) {
        let (mut found, mut cursor) = (Vec::new(), Some(0));
        while let Some(at) = cursor {
            let left = limit - all.entries.len().min(limit);
            if found.len() >= left {
                all.is_cut = true;
                break;
            }
            let portion = ask((position, at), left - found.len())?;
            found.extend(portion.entries);
            all.is_cut |= found.len() > left;
            found.truncate(left);
            cursor = portion.next;
        }
        found.sort_by_key(|entry| (entry.protocol, entry.ends));
        all.entries.extend(found.iter().map(|entry| EntryReport::new(name, entry)));
    }
    Ok(all)
}
