//! Rows of bits that change within transactions, and a search for a bit that is zero.

use std::sync::Arc;

use braid_nf::state::{StateBuilder, StateError, StateObject, Tx, Vector, VectorConfig};
use braid_nf::{Conflict, Part};

/// Bits per line.
const BITS: u32 = 7 * 64;
/// Rows of bits, each row on lines of its own.
pub(crate) struct Bits {
    lines: Vector<[u64; 7]>,
    /// Lines per row.
    per_row: u32,
}

impl Bits {
    /// `rows` rows of `len` bits, all zero.
    pub(crate) fn new(builder: &mut StateBuilder, name: &str, rows: u32, len: u32) -> Result<Bits, StateError> {
        let per_row = len.div_ceil(BITS);
        let config = VectorConfig { name: name.into(), len: rows.saturating_mul(per_row) };
        Ok(Bits { lines: Vector::new(builder, &config, [0; 7])?, per_row })
    }

    pub(crate) fn set(&self, tx: &mut Tx, row: u32, at: u32, value: bool) -> Result<(), Conflict> {
        self.lines.update(tx, row * self.per_row + at / BITS, |line| {
            let word = &mut line[(at % BITS / 64) as usize];
            *word = *word & !(1 << (at % 64)) | u64::from(value) << (at % 64);
        })?;
        Ok(())
    }

    /// Finds a zero bit within `within` whose position in its word is set in `mask`: the first one from `from` on,
    /// wrapping around.
    pub(crate) fn find_zero(
        &self,
        tx: &mut Tx,
        row: u32,
        within: std::ops::Range<u32>,
        from: u32,
        mask: u64,
    ) -> Result<Option<u32>, Conflict> {
        if within.is_empty() {
            return Ok(None);
        }
        let from = if within.contains(&from) { from } else { within.start };
        let (first, words) = (within.start / 64, (within.end - 1) / 64 - within.start / 64 + 1);
        let (mut known, mut line) = (u32::MAX, [0; 7]);
        // The word of `from` comes first, and once more at the end for the bits below `from`.
        for n in 0..=words {
            let word = first + (from / 64 - first + n) % words;
            if known != word / 7 {
                known = word / 7;
                line = self.lines.get(tx, row * self.per_row + known)?.unwrap_or([u64::MAX; 7]);
            }
            let begin = if n == 0 { from } else { within.start };
            let free = !line[(word % 7) as usize] & mask & bits_of(word, begin..within.end);
            if free != 0 {
                return Ok(Some(word * 64 + free.trailing_zeros()));
            }
        }
        Ok(None)
    }
}

/// The bits of a word that are in a range of positions.
pub(crate) fn bits_of(word: u32, range: std::ops::Range<u32>) -> u64 {
    let low = range.start.saturating_sub(word * 64).min(64);
    let high = range.end.saturating_sub(word * 64).min(64);
    let below = |bit: u32| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
    below(high) & !below(low)
}

impl Part for Bits {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.lines.objects(into);
    }
}
