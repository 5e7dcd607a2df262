//! Plan files: what the user wrote, as inert data that records the position of each value.
//!
//! Only the structure is checked here; [`Plan::new`](crate::Plan::new) interprets the values. Unknown keys
//! are errors, so a misspelt key does not silently leave its default in force. An error rejects the whole
//! file and states the position, what is wrong and what to write instead.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::written::Written;

mod inherited;
mod wording;

use self::wording::{above_its_function, help_for, in_words, without_value};

/// An error in a plan, with a suggested correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Problem {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub help: String,
    /// Byte range in the plan file; `None` if the value came from the command line or has no position.
    pub at: Option<Range<usize>>,
}

impl Problem {
    /// Makes a problem without a position.
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem { what: what.into(), help: help.into(), at: None }
    }

    /// Sets the position; an empty range (a value from the command line) counts as none.
    pub fn at(mut self, place: Range<usize>) -> Problem {
        self.at = Some(place).filter(|place| !place.is_empty());
        self
    }

    /// Line and column of its position, counted from 1.
    pub fn line_and_column(&self, text: &str) -> Option<(usize, usize)> {
        let before = text.get(..self.at.as_ref()?.start)?;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
    }
}

/// A plan file as written; whatever is missing takes its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanFile {
    /// Worker threads.
    pub workers: Option<Spanned<i64>>,
    /// Maximum number of packets in a batch.
    pub batch: Option<Spanned<i64>>,
    /// Number of ports.
    pub ports: Option<Spanned<i64>>,
    /// Capacity for the packet sets of each group of functions, over all workers.
    pub sets: Option<Spanned<i64>>,
    /// `capture` or `live`.
    pub time: Option<Spanned<String>>,
    /// `hardware` or `software`.
    pub distribution: Option<Spanned<String>>,
    /// Whether the workers together process packets strictly in input order.
    pub in_order: Option<Spanned<bool>>,
    /// Maximum time in microseconds for which a worker gathers packets into a batch.
    pub gather_us: Option<Spanned<i64>>,
    /// Whether load is rebalanced between workers.
    pub balance: Option<Spanned<bool>>,
    /// Number of packets between two checks of the load.
    pub balance_every: Option<Spanned<i64>>,
    /// Whether the ports of UDP packets are hashed for steering, where ports are.
    pub steer_udp_ports: Option<Spanned<bool>>,
    /// `prefer`, `transparent` or `never`.
    pub pages: Option<Spanned<String>>,
    /// A NIC whose hashing capabilities are checked.
    pub nic: Option<Spanned<String>>,
    /// The user that the process switches to once its interfaces are open.
    pub user: Option<Spanned<String>>,
    /// Interfaces, in the order of the ports; if there are any, the run is live.
    pub port: Vec<PortFile>,
    /// Where packets come from.
    pub input: InputFile,
    /// Where packets go.
    pub output: OutputFile,
    /// How packets traverse the functions.
    pub chain: ChainFile,
    /// The functions, in order.
    pub nf: Vec<NfFile>,
}

impl PlanFile {
    /// Replaces the ports of the file by these interfaces, and with them all that it says of captures: its input and output, the order of
    /// packets and their time.
    pub fn lay_ports(&mut self, ports: Vec<PortFile>) {
        self.port = ports;
        (self.input.from, self.output.to) = (Vec::new(), Vec::new());
        let PlanFile { input, time, in_order, .. } = self;
        input.split.take_if(|split| is_in_file(split));
        input.inside.take_if(|inside| is_in_file(inside));
        in_order.take_if(|in_order| is_in_file(in_order));
        time.take_if(|time| is_in_file(time) && time.get_ref() == "capture");
    }

    /// Takes packets from this input. If the file names interfaces, it takes their place, with as many ports: so the plan of a gateway can be
    /// tried on a capture.
    pub fn lay_input(&mut self, from: Vec<Spanned<String>>) {
        self.input.from = from;
        if !self.port.is_empty() {
            self.ports.get_or_insert(unplaced(self.port.len() as i64));
            self.port.clear();
            self.user.take_if(|user| is_in_file(user));
        }
    }
}

/// Whether a value is from the plan file, not from the command line, where it contradicts interfaces.
fn is_in_file<T>(value: &Spanned<T>) -> bool {
    !value.span().is_empty()
}

/// `[[port]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortFile {
    /// An interface, in the syntax of `--port`.
    pub device: Spanned<String>,
}

/// `[chain]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChainFile {
    /// `same` or `mirrored`.
    pub order: Option<Spanned<String>>,
    /// Ports on the outside.
    pub outside: Option<Spanned<Vec<Spanned<i64>>>>,
    /// `function` or `chain`: how much of a packet's processing forms one transaction.
    pub atomic: Option<Spanned<String>>,
    /// `indexed` or `looked_up`: how a worker finds a packet set that workers share.
    pub shared_sets: Option<Spanned<String>>,
}

/// `[input]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputFile {
    /// Files or a generator, in the syntax of `--in`.
    pub from: Vec<Spanned<String>>,
    /// `single`, `inside`, `mac_hash` or `interface`.
    pub split: Option<Spanned<String>>,
    /// Prefixes whose packets arrive on port 0.
    pub inside: Option<Spanned<Vec<Spanned<String>>>>,
}

/// `[output]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputFile {
    /// Files, in the syntax of `--out`.
    pub to: Vec<Spanned<String>>,
}

/// `[[nf]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfFile {
    /// Name of the function in the catalog.
    pub function: Spanned<String>,
    /// Its name in this plan; defaults to the function's name.
    #[serde(default)]
    pub name: Option<Spanned<String>>,
    /// Its configuration.
    #[serde(default)]
    pub config: Config,
    /// A packet set that replaces the function's own.
    #[serde(default)]
    pub packet_set: Option<SetFile>,
    /// State objects shared with other functions: the function's own name for each object, and the common name.
    #[serde(default)]
    pub share: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Which packets reach the function.
    #[serde(default)]
    pub when: Option<WhenFile>,
    /// `refuse` or `evict_oldest`: what happens to a new packet set when the table is full.
    #[serde(default)]
    pub full: Option<Spanned<String>>,
}

/// `when = { … }`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WhenFile {
    /// Ports on which packets arrived.
    #[serde(rename = "in")]
    pub came_by: Option<Spanned<Vec<Spanned<i64>>>>,
    /// Ports through which packets will leave, as far as this is known.
    pub out: Option<Spanned<Vec<Spanned<i64>>>>,
    /// Ports on which packets arrived or through which they will leave.
    pub either: Option<Spanned<Vec<Spanned<i64>>>>,
    /// Whether packets are flooded.
    pub flooded: Option<bool>,
}

/// `[nf.packet_set]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetFile {
    /// Header fields.
    pub fields: Spanned<Vec<Spanned<String>>>,
    /// Whether both directions belong to one set.
    #[serde(default)]
    pub symmetric: bool,
    /// IP protocols that belong to the set; all by default.
    #[serde(default)]
    pub protocols: Option<Vec<Spanned<i64>>>,
}

/// The keys of one function's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Config(BTreeMap<Spanned<String>, Spanned<Written>>);

impl Config {
    /// The configuration as a table, which the function reads.
    pub fn table(&self) -> toml::Table {
        self.0.iter().map(|(key, value)| (key.get_ref().clone(), value.get_ref().value())).collect()
    }

    /// Sets a key; dots separate the keys of nested tables.
    pub fn set(&mut self, path: &str, value: toml::Value) {
        let (key, rest) = path.split_once('.').unwrap_or((path, ""));
        let known = self.0.remove(key).map(|known| known.get_ref().value());
        let value = if rest.is_empty() { value } else { set_within(known, rest, value) };
        self.0.insert(unplaced(key.to_owned()), unplaced(value.into()));
    }

    /// The byte range of a key and its value, as far as a path such as `route.via` or `service[1].backends`
    /// can be followed; `None` if the value comes from no file.
    pub fn place(&self, path: &str) -> Option<Range<usize>> {
        let (first, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        let (key, value) = self.0.iter().find(|(key, _)| key.get_ref() == first)?;
        let whole = key.span().start..value.span().end.max(key.span().end);
        Some(value.get_ref().place(rest).unwrap_or(whole)).filter(|place| !place.is_empty())
    }
}

/// A configuration that is in no file.
impl From<toml::Table> for Config {
    fn from(table: toml::Table) -> Config {
        Config(table.into_iter().map(|(key, value)| (unplaced(key), unplaced(value.into()))).collect())
    }
}

/// Place of a list, from its first value to its last; empty if it has none or is in no file.
pub fn place_of<T>(list: &[Spanned<T>]) -> Range<usize> {
    let (first, last) = (list.first().map_or(0..0, Spanned::span), list.last().map_or(0..0, Spanned::span));
    first.start..last.end
}

/// Wraps a value that has no position in a file.
pub fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn set_within(table: Option<toml::Value>, path: &str, value: toml::Value) -> toml::Value {
    let mut table = match table {
        Some(toml::Value::Table(table)) => table,
        _ => toml::Table::new(),
    };
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let known = table.remove(key);
    let value = if rest.is_empty() { value } else { set_within(known, rest, value) };
    table.insert(key.to_owned(), value);
    toml::Value::Table(table)
}

impl PlanFile {
    /// Parses a plan file.
    pub fn parse(text: &str) -> Result<PlanFile, Problem> {
        toml::from_str(text).map_err(|error| {
            if let Some(problem) = error.span().and_then(|span| without_value(text, span.start)) {
                return problem;
            }
            let written = error.span().and_then(|span| text.get(span)).unwrap_or_default();
            let what = in_words(error.message().trim_end_matches('.'), written);
            let help = error
                .span()
                .and_then(|span| above_its_function(text, span))
                .unwrap_or_else(|| help_for(&what, written));
            Problem { what, help, at: error.span().filter(|span| !span.is_empty()).or(error.span()) }
        })
    }

    /// A plan that consists of these functions with default settings, as `--nf` requests it.
    pub fn of_functions<'a>(functions: impl IntoIterator<Item = &'a str>) -> PlanFile {
        let mut nf: Vec<NfFile> = Vec::new();
        for function in functions {
            let same = nf.iter().filter(|other| other.function.get_ref() == function).count();
            // A second instance of the same function needs its own name.
            let name = (same > 0).then(|| unplaced(format!("{function}_{}", same + 1)));
            nf.push(NfFile {
                function: unplaced(function.to_owned()),
                name,
                config: Config::default(),
                packet_set: None,
                share: BTreeMap::new(),
                when: None,
                full: None,
            });
        }
        PlanFile { nf, ..PlanFile::default() }
    }
}

#[cfg(test)]
mod tests;
