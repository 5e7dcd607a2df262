//! Entries of functions' tables that an operator may look for, such as a NAT's mappings and a bridge's stations: found by a filter, listed
//! and ended.
//!
//! The first worker looks at a bounded number of entries between two batches, so a table of millions delays no packet by more than some
//! tens of microseconds. What begins or ends meanwhile may be missed, or listed.

use std::sync::Arc;

use braid_runtime::nf::packet::protocol;
use braid_runtime::nf::{About, TableEntry};
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

/// What has become of entries that were to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEntries {
    /// How many have ended.
    pub ended: u64,
    /// How many match, but are part of the configuration: only another plan ends them.
    pub configured: u64,
    /// The functions that have such tables.
    pub functions: Vec<String>,
}

/// An entry. What does not concern its kind is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntryReport {
    /// The function's name in the plan.
    pub function: String,
    /// What it is, in a word.
    pub kind: String,
    /// Protocol, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// One end: of a mapping the inside address, of a query who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its port; of ICMP queries the identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_port: Option<u16>,
    /// The other end: of a mapping the external address, of a query who is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Its port, or the identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_port: Option<u16>,
    /// IP address of a neighbour or a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Ethernet address of a station or a neighbour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The ports where it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// What else there is to say; may be empty.
    pub detail: String,
    /// Seconds until it ends if nothing more comes; none: never.
    pub left_seconds: Option<f64>,
    /// Both ends, or what it is and where, as people read them.
    pub ends: [String; 2],
}

impl EntryReport {
    fn new(function: &str, entry: &TableEntry) -> EntryReport {
        let report = EntryReport {
            function: function.to_owned(),
            kind: entry.kind.to_owned(),
            detail: entry.detail.clone(),
            left_seconds: entry.left_ns.map(|left_ns| left_ns as f64 / 1e9),
            ends: entry.about.in_words(),
            ..EntryReport::default()
        };
        match &entry.about {
            About::Traffic { protocol: number, ends: [from, to] } => EntryReport {
                protocol: Some(protocol::name(*number).map_or(number.to_string(), str::to_owned)),
                from: Some(from.0.to_string()),
                from_port: Some(from.1),
                to: Some(to.0.to_string()),
                to_port: Some(to.1),
                ..report
            },
            About::OnLink { address, mac, vlan, ports } => EntryReport {
                address: address.map(|address| address.to_string()),
                mac: mac.map(|mac| mac.to_string()),
                vlan: *vlan,
                ports: ports.clone(),
                ..report
            },
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
    let chain = running(live)?;
    collect(&chain, limit, |position, left, take| {
        let portions = live.ask_in_portions(0, portions(&chain, position, left, filter)).map_err(unanswered)?;
        for portion in portions {
            take(portion.map_err(unanswered)?.ok_or_else(changed)?);
        }
        Ok(())
    })
}

/// Ends entries of a run, with everything that would happen at the end of their lifetime.
pub fn end(live: &Live, filter: &Arc<Filter>) -> Result<EndedEntries, Refused> {
    let chain = running(live)?;
    let mut all = EndedEntries { functions: functions(&chain), ..EndedEntries::default() };
    for (position, _) in listing(&chain) {
        let (of, filter, mut cursor) = (Arc::clone(&chain), Arc::clone(filter), Some(0));
        let portions = live.ask_in_portions(0, move |worker| {
            let portion = worker.end_entries(&of, (position, cursor?), wanted(&filter));
            cursor = portion.and_then(|portion| portion.next);
            Some(portion)
        });
        for portion in portions.map_err(unanswered)? {
            let portion = portion.map_err(unanswered)?.ok_or_else(changed)?;
            all.ended += portion.ended;
            all.configured += portion.configured;
        }
    }
    Ok(all)
}

fn running(live: &Live) -> Result<Arc<Chain>, Refused> {
    let running = live.running().ok_or_else(|| Refused::new("the run has not begun", "ask again"))?;
    Ok(Arc::clone(&running.chain))
}

fn changed() -> Refused {
    Refused::new("the chain has changed meanwhile", "ask again")
}

/// The same of workers that do not run any more, read by one of them.
pub fn of_all_workers(worker: &mut Worker, filter: &Arc<Filter>, limit: usize) -> Entries {
    let chain = Arc::clone(worker.chain());
    let collected = collect(&chain, limit, |position, left, take| {
        let mut next = portions(&chain, position, left, filter);
        std::iter::from_fn(|| next(worker)).flatten().for_each(take);
        Ok(())
    });
    collected.unwrap_or_default()
}

/// Asks a worker for one portion after another of a function's entries, about `left` in all: none within if the chain is another one by now.
fn portions(
    chain: &Arc<Chain>,
    position: usize,
    mut left: usize,
    filter: &Arc<Filter>,
) -> impl FnMut(&mut Worker) -> Option<Option<ListedEntries>> + Send + 'static {
    let (chain, filter, mut cursor) = (Arc::clone(chain), Arc::clone(filter), Some(0));
    move |worker| {
        let portion = worker.list_entries(&chain, (position, cursor?), left, wanted(&filter));
        left -= portion.as_ref().map_or(left, |portion| portion.entries.len().min(left));
        cursor = portion.as_ref().and_then(|portion| portion.next).filter(|_| left > 0);
        Some(portion)
    }
}

fn wanted(filter: &Filter) -> impl Fn(&TableEntry) -> bool + '_ {
    move |entry| filter.matches(&Facts::of_entry(entry))
}

/// Collects entries of one function after another: `each` hands on the portions of the function at a position (first), and need hand on no more
/// than some (second).
fn collect(
    chain: &Chain,
    limit: usize,
    mut each: impl FnMut(usize, usize, &mut dyn FnMut(ListedEntries)) -> Result<(), Refused>,
) -> Result<Entries, Refused> {
    let mut all = Entries { functions: functions(chain), ..Entries::default() };
    for (position, name) in listing(chain) {
        let left = limit - all.entries.len();
        let (mut found, mut has_more) = (Vec::new(), left == 0);
        if left > 0 {
            each(position, left, &mut |portion| {
                found.extend(portion.entries);
                has_more = portion.next.is_some();
            })?;
        }
        all.is_cut |= has_more || found.len() > left;
        found.truncate(left);
        found.sort_by(|a: &TableEntry, b| (a.kind, &a.about).cmp(&(b.kind, &b.about)));
        all.entries.extend(found.iter().map(|entry| EntryReport::new(name, entry)));
    }
    Ok(all)
}
