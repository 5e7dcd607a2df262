//! How many of something a full table could not keep: what is forgotten without a word would look as if it had never come.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, StateError, StateObject};
use braid_nf::{Findings, Part};

/// Their number. Each worker counts its own, so a flood of them makes no conflicts.
pub struct Unkept {
    count: Distributed<u64>,
    /// What the report calls them.
    told: String,
}

impl Unkept {
    /// None so far.
    pub fn new(builder: &mut StateBuilder, name: &str, told: impl Into<String>) -> Result<Unkept, StateError> {
        let config = DistributedConfig { name: name.to_owned(), staleness_ns: 0 };
        Ok(Unkept { count: Distributed::new(builder, &config, 0)?, told: told.into() })
    }

    /// Another one.
    #[cold]
    pub fn count(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.count.update(cx, |count| *count += 1)
    }

    /// Tells how many there were, if any.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let count = self.count.read(cx, |sum, part| *sum += part)?;
        if count > 0 {
            into.add(self.told.clone(), count);
        }
        Ok(())
    }
}

impl Part for Unkept {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.count.objects(into);
    }
}

impl std::fmt::Debug for Unkept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unkept")
    }
}
