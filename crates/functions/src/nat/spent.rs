//! Ranges of ports that are used up, by protocol and external address, so that a flood of flows that have to be refused is cheap: exact, for
//! whoever takes a port back forgets the ranges that it lies in.

use std::ops::RangeInclusive;
use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject, Tx, Vector, VectorConfig};
use braid_nf::{Conflict, Part};

/// Ranges that are kept of a row; with port blocks there are more, and the oldest gives way.
const RANGES: usize = 8;

/// Of one protocol and address.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Row {
    /// How many ranges have been noted: the next one's place.
    noted: u32,
    zero: u32,
    /// First and last port of ranges without a free one; 0: none.
    ranges: [[u16; 2]; RANGES],
}

/// By row.
pub(super) struct Spent {
    rows: Vector<Row>,
}

impl Spent {
    pub(super) fn new(builder: &mut StateBuilder, rows: u32) -> Result<Spent, StateError> {
        let config = VectorConfig { name: "spent_ports".into(), len: rows };
        Ok(Spent { rows: Vector::new(builder, &config, Row::default())? })
    }

    /// Whether no port of a range is known to be free.
    pub(super) fn covers(&self, tx: &mut Tx, row: u32, within: &RangeInclusive<u16>) -> Result<bool, Conflict> {
        let covers = |[first, last]: &[u16; 2]| *first != 0 && first <= within.start() && within.end() <= last;
        Ok(self.rows.view(tx, row, |row| row.ranges.iter().any(covers))?.unwrap_or(false))
    }

    /// No port of a range is free.
    pub(super) fn note(&self, tx: &mut Tx, row: u32, within: &RangeInclusive<u16>) -> Result<(), Conflict> {
        self.rows.update(tx, row, |row| {
            row.ranges[row.noted as usize % RANGES] = [*within.start(), *within.end()];
            row.noted = row.noted.wrapping_add(1);
        })?;
        Ok(())
    }

    /// A port is free again.
    pub(super) fn forget(&self, tx: &mut Tx, row: u32, port: u16) -> Result<(), Conflict> {
        let has = |[first, last]: &[u16; 2]| (*first..=*last).contains(&port);
        // Mostly nothing is used up, and nothing is written.
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
