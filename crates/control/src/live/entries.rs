//! Entries of functions' tables that an operator may look for, such as a NAT's mappings and a bridge's stations: found by a filter, listed.
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
        found.sort_by(|a, b| (a.kind, &a.about).cmp(&(b.kind, &b.about)));
        all.entries.extend(found.iter().map(|entry| EntryReport::new(name, entry)));
    }
    Ok(all)
}
