//! The functions that can be named in a plan. Control knows none of them: whoever makes the binary passes the list in.

use std::path::PathBuf;
use std::sync::Arc;

use braid_runtime::nf::Stage;
use braid_runtime::nf::state::StateBuilder;

/// How the packets of one capture are split by port if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultSplit {
    /// All by port 0.
    Single,
    /// By port 0 from private addresses, by port 1 from the others.
    Inside,
    /// By a hash of the Ethernet source over the function's ports.
    MacHash,
}

/// A configuration that makes no function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The key, with a dot between nested ones.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
    /// What to write instead.
    pub instead: String,
}

/// Builds a function: its name in the plan, its configuration, where its state objects go, the ports of the plan.
pub type BuildFunction =
    dyn Fn(&str, toml::Table, &mut StateBuilder, u16) -> Result<Box<dyn Stage>, Refusal> + Send + Sync;

/// One function that can be named in a plan.
#[derive(Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it does, in a sentence.
    pub summary: String,
    /// How many ports it has when nothing is said about them.
    pub ports: u16,
    /// How a single capture is split for it.
    pub split: DefaultSplit,
    /// Whether a chain with it has its functions in reverse order for packets from outside, if nothing is said.
    pub mirrors: bool,
    /// Its page, in Markdown; empty if it has none.
    pub page: String,
    /// Builds it.
    pub build: Arc<BuildFunction>,
    /// Files that those which a configuration names name in turn.
    pub files: fn(toml::Table) -> Vec<PathBuf>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// All functions that can be named; shared, for a plan builds its chain anew for each run.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Arc<[Entry]>);

impl Catalog {
    /// A catalog of these entries; of two with one name the first counts.
    pub fn new(entries: Vec<Entry>) -> Catalog {
        Catalog(entries.into())
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The entry of that name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.name == name)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.name.as_str())
    }
}
