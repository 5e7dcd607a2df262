//! Rule files: whole tables of nftables, or one rule a line in the same words.
//!
//! ```text
//! define admins = { 192.0.2.0/28, 2001:db8::/48 }
//! table inet filter {
//!     chain services { tcp dport { http, https } accept; }
//!     chain forward {
//!         type filter hook forward priority filter; policy drop;
//!         ct state vmap { established : accept, related : accept, invalid : drop }
//!         iifname lan oifname wan accept
//!         ip daddr 10.0.0.0/24 jump services
//!         ip saddr $admins tcp dport ssh counter log prefix "admin: " accept
//!     }
//! }
//! ```
//!
//! A file is read into statements ([`file`]). The statements of chains that are evaluated are read as rules ([`statement`]),
//! and the chains are flattened into one list ([`flatten`]). Rules of tables apply to packets of all states; lines without a
//! table apply to packets that would open a connection. If anything in a file is not supported, the whole file is refused.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_nf::Port;
use braid_nf::state::Decided;
use serde::Deserialize;

use super::conditions::values::{Addresses, Forward};
use super::config::Config;
use super::rules::Action;
use crate::parts::{Side, Sides};

mod conditions;
mod file;
mod flatten;
mod reader;
mod statement;
mod unsupported;

use self::file::File;
use self::file::source::Source;
use self::file::tokens::Place;
use self::reader::{Scope, Sets, Words};

/// The error for a text that is not a valid rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}, column {column}: {reason}; {instead}")]
pub struct RuleError {
    /// The file with the error: the rule file, or one that it includes.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub instead: String,
}

/// A part of a file that has no effect, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) line: u32,
    /// `None` for the rule file itself.
    pub(super) file: Option<Arc<str>>,
    pub(super) text: String,
}

impl Note {
    /// Where that part is.
    pub(super) fn place(&self) -> String {
        let file = self.file.as_ref().map_or_else(String::new, |file| format!(" of {file}"));
        match self.line {
            0 => "rules".to_owned(),
            line => format!("line {line}{file}"),
        }
    }
}

/// The ports that interfaces stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) count: u16,
    pub(super) sides: Sides,
    /// Where it is decided by which of them a packet leaves: of packets from inside, and from outside.
    pub(super) decided: [Decided; 2],
    /// Whether they come with Ethernet headers that another function has written.
    pub(super) readdressed: [bool; 2],
}

impl Ports {
    /// The ports on a side.
    pub(super) fn on(&self, side: Side) -> Vec<Port> {
        (0..self.count).filter(|port| self.sides.of(*port) == Some(side)).collect()
    }

    /// Whether a packet's port says by which port it leaves: of two, by the other.
    pub(super) fn are_a_pair(&self) -> bool {
        self.count == 2 && self.decided == [Decided::Nowhere; 2]
    }
}

/// What the plan says about the firewall's surroundings.
#[derive(Debug)]
pub(super) struct Around {
    /// Names of the plan's ports.
    interfaces: Vec<String>,
    /// The networks behind each of them.
    networks: Vec<Vec<Addresses>>,
    /// What a translator forwards to, if the plan says so.
    forwards: Option<Vec<Forward>>,
}

impl Around {
    fn of(config: &Config) -> Around {
        let Config { interfaces, networks, forwards, .. } = config;
        Around { interfaces: interfaces.clone(), networks: networks.clone(), forwards: forwards.clone() }
    }
}

/// Which chains of a file are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hooks {
    /// Those of hook forward, as in a router.
    Forward,
    /// Those of hook input for packets from outside, and those of hook output for packets from inside: rules that were written
    /// for the hosts inside.
    Host,
    /// Those of hook forward in tables of family bridge: rules that were written for frames between ports of a bridge.
    Bridge,
}

type Parsed<T> = Result<T, Wrong>;

/// Why a text cannot be read, or cannot match anything.
#[derive(Clone, Debug)]
struct Wrong {
    reason: String,
    instead: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is not a condition, or one that cannot match anything by itself.
    Slip,
    /// No packet belongs to all the protocols or families that the conditions require. nftables refuses this too; an element of
    /// a set that says so matches nothing.
    Conflict,
    /// No value satisfies two conditions, so the rule has no effect.
    Excluded,
}

fn wrong<T>(reason: impl Into<String>, instead: impl Into<String>) -> Parsed<T> {
    Err(Wrong { reason: reason.into(), instead: instead.into(), kind: Kind::Slip })
}

/// The error for a condition that cannot hold together with earlier ones.
fn fits_nothing<T>(what: &str, kind: Kind) -> Parsed<T> {
    let reason = format!("no {what} fits all that the rule says");
    Err(Wrong { reason, instead: "write two rules, or what can hold together".to_owned(), kind })
}

/// Reads a rule file into a configuration: appends its rules to those already there, and replaces the policies that it gives.
pub(super) fn read(path: &Path, text: &str, config: &mut Config, ports: Ports) -> Result<Vec<Note>, RuleError> {
    let (source, whole) = Source::read(path, text);
    let (files, sets) = (source.names(), Sets::new());
    let at = Cell::new(whole.as_ref().map_or(source.at(), |()| Place { file: 0, line: 1, column: 1 }));
    let around = Around::of(config);
    let (told, places) = (RefCell::default(), RefCell::default());
    let scope = Scope {
        ports,
        around: &around,
        sets: &sets,
        table: "",
        dynamic: &[],
        pools: &[],
        counters: &[],
        in_table: false,
        is_early: false,
        has_all_hops: false,
        translates: false,
        arp: false,
        direction: None,
        at: &at,
        notes: &told,
        places: &places,
        files: &files,
    };
    let notes = whole.and_then(|()| read_all(&source, config, &scope)).map_err(|Wrong { reason, instead, .. }| {
        let Place { file, line, column } = at.get();
        let file = files.get(usize::from(file)).map_or_else(String::new, |name| name.to_string());
        RuleError { file, line, column, reason, instead }
    });
    notes.map(|notes| notes.into_iter().chain(told.into_inner()).collect())
}

/// The files that a rule file includes, as well as those that cannot be read; reading the rule file reports what is wrong with
/// them.
pub(super) fn included(path: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Source::read(path, &text).0.files.split_off(1)
}

fn read_all(source: &Source, config: &mut Config, scope: &Scope<'_>) -> Parsed<Vec<Note>> {
    let mut file = File::read(&source.tokens, scope)?;
    let (base, hooks) = (config.rules.len(), config.rules_hook);
    let (mut rules, mut notes) = if file.tables.is_empty() {
        let mut rules = Vec::new();
        for line in std::mem::take(&mut file.lines) {
            if line.first().is_some_and(|first| &*first.text == "policy") {
                policy(Words { words: &line, scope }, config)?;
            } else {
                rules.push(line);
            }
        }
        (flatten::lines(rules, &file.sets.elements, scope, base)?, Vec::new())
    } else if let Some(first) = file.lines.first().and_then(|line| line.first()) {
        scope.at.set(first.at);
        return match &*first.text {
            "include" => unsupported::unknown("include"),
            other => wrong(
                format!("`{other}` stands outside of the tables"),
                "write it into a chain; or all rules without tables, one a line",
            ),
        };
    } else {
        flatten::flatten(&file, hooks, &Scope { in_table: true, ..*scope }, base)?
    };
    statement::edits::check(&rules, scope)?;
    notes.extend(statement::marks::unless_asked(&mut rules));
    config.rules.extend(rules);
    Ok(notes)
}

/// Reads `policy inbound drop`: what happens to packets that match no line.
fn policy(mut rest: Words<'_>, config: &mut Config) -> Parsed<()> {
    rest.word();
    let direction = rest.word();
    let action = match rest.word().as_str() {
        "accept" => Action::Allow,
        "drop" => Action::Deny,
        "reject" => Action::Reject,
        _ => return wrong("no such policy", "write policy inbound drop, reject or accept"),
    };
    match direction.as_str() {
        "outbound" => config.outbound = action,
        "inbound" => config.inbound = action,
        other => return wrong(format!("`{other}` is no direction"), "write outbound or inbound"),
    }
    rest.end()
}
