//! The catalog of functions that a plan may name. Control knows none of them itself: the binary passes the list in.

use std::path::PathBuf;
use std::sync::Arc;

use braid_runtime::nf::Stage;
use braid_runtime::nf::state::StateBuilder;

/// How the packets of a single capture are assigned to ports by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultSplit {
    /// All packets arrive on port 0.
    Single,
    /// Packets from private addresses arrive on port 0, all others on port 1.
    Inside,
    /// A hash of the Ethernet source address selects one of the function's ports.
    MacHash,
    /// The interface by which a packet was captured is its port; no function asks for that by itself.
    Interface,
}

/// Why a configuration is not valid for its function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The offending key; nested keys are separated by dots.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
    /// What to write instead.
    pub instead: String,
}

/// Builds a function from its name in the plan, its configuration, the builder of its state objects, and the plan's number of ports.
pub type BuildFunction =
    dyn Fn(&str, toml::Table, &mut StateBuilder, u16) -> Result<Box<dyn Stage>, Refusal> + Send + Sync;

/// One function that a plan may name.
#[derive(Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it does, in one sentence.
    pub summary: String,
    /// Default number of ports.
    pub ports: u16,
    /// How a single capture is split by port by default.
    pub split: DefaultSplit,
    /// Whether a chain that contains it is mirrored by default: packets from outside traverse the functions in reverse order.
    pub mirrors: bool,
    /// Whether its configuration names the ports of both sides, `inside_ports` and `outside_ports`, and takes the chain's if it does not.
    pub sides: bool,
    /// Whether it decides by which port packets leave, of all ports.
    pub routes: bool,
    /// Whether it writes the Ethernet addresses and VLAN tags of what it sends on.
    pub readdresses: bool,
    /// Its documentation page, in Markdown; empty if it has none.
    pub page: String,
    /// Its constructor.
    pub build: Arc<BuildFunction>,
    /// Given a configuration, lists further files that are named inside the files which the configuration names.
    pub files: fn(toml::Table) -> Vec<PathBuf>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// All functions that a plan may name. Shared, because a plan builds its chain anew for each run.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Arc<[Entry]>);

impl Catalog {
    /// Makes a catalog of these entries; if two have the same name, the first one counts.
    pub fn new(entries: Vec<Entry>) -> Catalog {
        Catalog(entries.into())
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The entry with this name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.name == name)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.name.as_str())
    }
}
