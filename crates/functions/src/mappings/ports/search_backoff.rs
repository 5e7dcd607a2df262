//! A search that found nothing is not repeated for a moment, so that a flood of flows to be refused is cheap.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject, Vector, VectorConfig};
use braid_nf::{Conflict, Part};

/// How long a fruitless search is not repeated, in nanoseconds.
const PAUSE_NS: u64 = 2_000_000;

/// The end of the pause, by row.
pub(crate) struct Pause {
    until_ns: Vector<u64>,
}

impl Pause {
    pub(crate) fn new(builder: &mut StateBuilder, name: &str, rows: u32) -> Result<Pause, StateError> {
        let config = VectorConfig { name: name.into(), len: rows };
        Ok(Pause { until_ns: Vector::new(builder, &config, 0)? })
    }

    /// Whether a recent search found nothing.
    pub(crate) fn is_on(&self, cx: &mut Cx<'_>, row: u32) -> Result<bool, Conflict> {
        let left = self.until_ns.get(cx, row)?.unwrap_or_default().saturating_sub(cx.now());
        // A longer time means that the clock was set back.
        Ok((1..=PAUSE_NS).contains(&left))
    }

    /// Notes a search that found nothing.
    pub(crate) fn begin(&self, cx: &mut Cx<'_>, row: u32) -> Result<(), Conflict> {
        let until_ns = cx.now() + PAUSE_NS;
        self.until_ns.set(cx, row, until_ns)?;
        Ok(())
    }
}

impl Part for Pause {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.until_ns.objects(into);
    }
}
