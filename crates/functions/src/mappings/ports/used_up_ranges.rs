//! Ranges of ports that are used up, by protocol and external address, so that a flood of flows to be refused is cheap.
//! They are exact: whoever returns a port forgets the ranges that contain it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject, Tx, Vector, VectorConfig};
use braid_nf::{Conflict, Part};

/// The number of ranges kept per row; with port blocks there may be more, and the oldest is replaced.
const RANGES: usize = 8;

/// The ranges of one protocol and address.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Row {
    /// How many ranges have been noted, which gives the place of the next one.
    noted: u32,
    zero: u32,
    /// First and last port of ranges without a free port; 0: none.
    ranges: [[u16; 2]; RANGES],
}

/// The ranges by row.
pub(crate) struct Spent {
    rows: Vector<Row>,
}

impl Spent {
    pub(crate) fn new(builder: &mut StateBuilder, rows: u32) -> Result<Spent, StateError> {
        let config = VectorConfig { name: "spent_ports".into(), len: rows };
        Ok(Spent { rows: Vector::new(builder, &config, Row::default())? })
    }

    /// Whether a range is known to have no free port.
    pub(crate) fn covers(&self, tx: &mut Tx, row: u32, within: &RangeInclusive<u16>) -> Result<bool, Conflict> {
        let covers = |[first, last]: &[u16; 2]| *first != 0 && first <= within.start() && within.end() <= last;
        Ok(self.rows.view(tx, row, |row| row.ranges.iter().any(covers))?.unwrap_or(false))
    }

    /// Notes that a range has no free port.
    pub(crate) fn note(&self, tx: &mut Tx, row: u32, within: &RangeInclusive<u16>) -> Result<(), Conflict> {
        self.rows.update(tx, row, |row| {
            row.ranges[row.noted as usize % RANGES] = [*within.start(), *within.end()];
            row.noted = row.noted.wrapping_add(1);
        })?;
        Ok(())
    }

    /// Notes that a port is free again.
    pub(crate) fn forget(&self, tx: &mut Tx, row: u32, port: u16) -> Result<(), Conflict> {
        let has = |[first, last]: &[u16; 2]| (*first..=*last).contains(&port);
        // Usually nothing is used up, so nothing is written.
        if self.rows.view(tx, row, |row| row.ranges.iter().any(has))? == Some(true) {
            self.rows.update(tx, row, |row| {
                row.ranges.iter_mut().filter(|range| has(range)).for_each(|range| *range = [0; 2]);
            })?;
        }
        Ok(())
    }
}

impl Part for Spent {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.rows.objects(into);
    }
}
