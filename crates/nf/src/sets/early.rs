//! Records asked for while the keys of a batch are made, so that they come while the processor has something else to do.
//!
//! It has room for some twenty lines that are under way, and drops what is asked for beyond (AMD, Zen 4: of 128 lines asked for in a row two thirds
//! never come). So a few are asked for at a time, and behind each a few keys are made.

use braid_packet::key::Keys;
use braid_state::{NO_SLOT, Slot};

use super::SetTables;

/// So many tags and so many records are asked for at once.
const STEP: usize = 8;

/// Fewer sets lie in the processor's caches: there one step after another is faster. Tests take both ways with few sets.
const FROM: usize = if cfg!(debug_assertions) { 32 } else { 32 << 10 };

/// A record that has lain so long without a packet, in milliseconds, has left the caches nearest to the processor.
const COLD_MS: u32 = 2;

/// How far the records of a batch's sets have been asked for.
#[derive(Debug)]
pub struct Early {
    /// By packet: where its record may be.
    pub(super) candidates: [Slot; 256],
    /// Packets whose records have been asked for, and whose tags have.
    records: usize,
    tags: usize,
    is_whole: bool,
    /// Most records of the last batch were cold.
    is_cold: bool,
}

impl Default for Early {
    fn default() -> Early {
        Early { candidates: [NO_SLOT; 256], records: 0, tags: 0, is_whole: false, is_cold: false }
    }
}

impl Early {
    /// Another batch has come. Whether it is worth asking for its records early.
    pub fn begin(&mut self, tables: &SetTables) -> bool {
        (self.records, self.tags, self.is_whole) = (0, 0, false);
        self.is_cold && tables.len() > FROM && !tables.is_moving()
    }

    /// The records of a batch have been found, after so long without a packet. Where few of many sets have most of the packets those records lie near
    /// already, and asking early would only cost.
    pub(crate) fn learn(&mut self, tables: &SetTables, idle_ms: &[u32]) {
        if tables.len() > FROM {
            self.is_cold = 2 * idle_ms.iter().filter(|&&idle| idle >= COLD_MS).count() >= idle_ms.len();
        }
    }

    /// The keys up to that of packet `i` have been made.
    #[inline(always)]
    pub fn made(&mut self, tables: &SetTables, keys: &Keys, i: usize) {
        if i % STEP == STEP - 1 {
            self.ask(tables, keys, i + 1);
        }
    }

    /// The keys of all packets have been made.
    pub fn finish(&mut self, tables: &SetTables, keys: &Keys, packets: usize) {
        self.ask(tables, keys, packets);
        self.ask(tables, keys, packets);
        self.is_whole = true;
    }

    /// Whether all candidates are known.
    #[inline(always)]
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Asks for the records of those whose tags were asked for last time, and for the tags of all others whose keys have been made.
    #[inline(never)]
    fn ask(&mut self, tables: &SetTables, keys: &Keys, made: usize) {
        tables.pair.ask(keys, (self.records..self.tags, self.tags..made), &mut self.candidates);
        (self.records, self.tags) = (self.tags, made);
    }
}

#[cfg(test)]
mod tests;
