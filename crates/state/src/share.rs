//! Shares of a table whose processing is divided among workers.

use std::ops::Range;

/// Length of a row of adjacent entries; pools deal entries to workers in rows, in turn.
pub const ROW: u32 = 64;

/// One of several shares of a table: every `of`-th row. A worker's share consists of the rows that pools deal to it, so in a map it holds mostly
/// entries that this worker inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    part: u32,
    of: u32,
}

impl Share {
    /// The whole table.
    pub const ALL: Share = Share { part: 0, of: 1 };

    /// Share number `part` out of `of` shares; `of` is at least one.
    pub fn new(part: usize, of: usize) -> Share {
        let of = of.max(1);
        Share { part: (part % of) as u32, of: of as u32 }
    }

    /// Whether it is the first share.
    pub fn is_first(self) -> bool {
        self.part == 0
    }

    /// How many rows of a table with `entries` entries belong to the share.
    pub fn rows(self, entries: u32) -> u32 {
        entries.div_ceil(ROW).saturating_sub(self.part).div_ceil(self.of)
    }

    /// The entries of the share's row with this number.
    pub fn row(self, number: u32, entries: u32) -> Range<u32> {
        let first = (number.saturating_mul(self.of).saturating_add(self.part)).saturating_mul(ROW);
        first.min(entries)..first.saturating_add(ROW).min(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_belongs_to_one_share() {
        for (entries, of) in [(0, 1), (1, 1), (63, 2), (64, 2), (65, 2), (1000, 1), (1000, 3), (1000, 16), (100, 64)] {
            let mut all: Vec<u32> = Vec::new();
            for share in (0..of).map(|part| Share::new(part, of)) {
                let rows = share.rows(entries);
                assert!(share.row(rows, entries).is_empty(), "no row behind the last");
                for row in 0..rows {
                    assert!(!share.row(row, entries).is_empty());
                    all.extend(share.row(row, entries));
                }
            }
            all.sort_unstable();
            assert_eq!(all, (0..entries).collect::<Vec<_>>(), "{entries} entries in {of} shares");
        }
        assert_eq!(Share::new(0, 0), Share::ALL);
        assert_eq!(
            (0..Share::ALL.rows(u32::MAX)).next_back().map(|row| Share::ALL.row(row, u32::MAX).end),
            Some(u32::MAX)
        );
    }
}
