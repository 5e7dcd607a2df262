//! Counts what a full table could not keep; without the count it would look as if nothing had been lost.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, StateError, StateObject};
use braid_nf::{Findings, Part};

/// The count. Each worker keeps its own, so a flood of losses causes no conflicts.
pub struct Unkept {
    count: Distributed<u64>,
    /// The name of the count in reports.
    told: String,
}

impl Unkept {
    /// Starts a count at zero.
    pub fn new(builder: &mut StateBuilder, name: &str, told: impl Into<String>) -> Result<Unkept, StateError> {
        let config = DistributedConfig { name: name.to_owned(), staleness_ns: 0 };
        Ok(Unkept { count: Distributed::new(builder, &config, 0)?, told: told.into() })
    }

    /// Counts one more.
    #[cold]
    pub fn count(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.count.update(cx, |count| *count += 1)
    }

    /// Reports the count if it is not zero.
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
