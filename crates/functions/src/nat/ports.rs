//! Which external ports are taken, and by whom: a bit and an entry number for each, per protocol and external address.
//!
//! Bits make the search for a free port exact and short: 448 ports lie on one cache line, all of an address on 147. They and
//! the entry numbers change in one transaction with the mapping, so a port is free or has exactly one owner.

use std::sync::Arc;

use braid_nf::state::{StateBuilder, StateError, StateObject, Tx, Vector, VectorConfig};
use braid_nf::{Conflict, Part};

/// Bits of a line.
const BITS: u32 = 7 * 64;
/// Entry numbers of a line.
const OWNERS: u32 = 14;
/// Even and odd bits of a word.
pub(super) const EVEN: u64 = u64::MAX / 3;
pub(super) const ODD: u64 = !EVEN;

/// Rows of bits, each row on lines of its own.
pub(super) struct Bits {
    lines: Vector<[u64; 7]>,
    /// Lines of a row.
    per_row: u32,
}

impl Bits {
    /// `rows` rows of `len` bits, all zero.
    pub(super) fn new(builder: &mut StateBuilder, name: &str, rows: u32, len: u32) -> Result<Bits, StateError> {
        let per_row = len.div_ceil(BITS);
        let config = VectorConfig { name: name.into(), len: rows.saturating_mul(per_row) };
        Ok(Bits { lines: Vector::new(builder, &config, [0; 7])?, per_row })
    }

    pub(super) fn is_set(&self, tx: &mut Tx, row: u32, at: u32) -> Result<bool, Conflict> {
        let word = self.lines.view(tx, row * self.per_row + at / BITS, |line| line[(at % BITS / 64) as usize])?;
        Ok(word.unwrap_or_default() >> (at % 64) & 1 == 1)
    }

    pub(super) fn set(&self, tx: &mut Tx, row: u32, at: u32, value: bool) -> Result<(), Conflict> {
        self.lines.update(tx, row * self.per_row + at / BITS, |line| {
            let word = &mut line[(at % BITS / 64) as usize];
            *word = *word & !(1 << (at % 64)) | u64::from(value) << (at % 64);
        })?;
        Ok(())
    }

    /// A zero bit in `within` whose place in its word `mask` names: the first from `from` on, round the end to the beginning.
    pub(super) fn find_zero(
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
        // The word of `from` comes first and, for what stands before it, once more in the end.
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

/// Those bits of a word that lie in a range of places.
fn bits_of(word: u32, range: std::ops::Range<u32>) -> u64 {
    let low = range.start.saturating_sub(word * 64).min(64);
    let high = range.end.saturating_sub(word * 64).min(64);
    let below = |bit: u32| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
    below(high) & !below(low)
}

/// All external ports.
pub(super) struct Ports {
    taken: Bits,
    owners: Vector<[u32; OWNERS as usize]>,
    addresses: u32,
    /// The port of bit 0, a multiple of 64.
    base: u32,
    /// Lines of entry numbers of an address.
    owner_lines: u32,
}

impl Ports {
    /// Ports `first..=last` of each of `addresses` addresses, for three protocols, all free.
    pub(super) fn new(builder: &mut StateBuilder, addresses: u32, first: u16, last: u16) -> Result<Ports, StateError> {
        let base = u32::from(first) / 64 * 64;
        let len = u32::from(last) - base + 1;
        let owner_lines = len.div_ceil(OWNERS);
        let owners =
            VectorConfig { name: "owners".into(), len: owner_lines.saturating_mul(addresses).saturating_mul(3) };
        Ok(Ports {
            taken: Bits::new(builder, "ports", addresses.saturating_mul(3), len)?,
            owners: Vector::new(builder, &owners, [0; OWNERS as usize])?,
            addresses,
            base,
            owner_lines,
        })
    }

    /// Whether a port of an address is nobody's.
    pub(super) fn is_free(&self, tx: &mut Tx, slot: u32, address: u32, port: u16) -> Result<bool, Conflict> {
        Ok(!self.taken.is_set(tx, slot * self.addresses + address, u32::from(port) - self.base)?)
    }

    /// A free port of `within` of an address: one of the parity of `from`, else any, from there on.
    pub(super) fn find(
        &self,
        tx: &mut Tx,
        slot: u32,
        address: u32,
        within: std::ops::RangeInclusive<u16>,
        from: u16,
    ) -> Result<Option<u16>, Conflict> {
        let row = slot * self.addresses + address;
        let range = u32::from(*within.start()) - self.base..u32::from(*within.end()) + 1 - self.base;
        let parity = if from.is_multiple_of(2) { EVEN } else { ODD };
        let from = u32::from(from).saturating_sub(self.base);
        for mask in [parity, u64::MAX] {
            if let Some(free) = self.taken.find_zero(tx, row, range.clone(), from, mask)? {
                return Ok(Some((self.base + free) as u16));
            }
        }
        Ok(None)
    }

    /// The entry to which a port belongs.
    pub(super) fn owner(&self, tx: &mut Tx, slot: u32, address: u32, port: u16) -> Result<Option<u32>, Conflict> {
        let (line, at) = self.owner_at(slot, address, port);
        let owner = self.owners.view(tx, line, |line| line[at])?;
        Ok(owner.unwrap_or_default().checked_sub(1))
    }

    /// Gives a port to an entry, or takes it away.
    pub(super) fn set_owner(
        &self,
        tx: &mut Tx,
        slot: u32,
        address: u32,
        port: u16,
        owner: Option<u32>,
    ) -> Result<(), Conflict> {
        let row = slot * self.addresses + address;
        self.taken.set(tx, row, u32::from(port) - self.base, owner.is_some())?;
        let (line, at) = self.owner_at(slot, address, port);
        self.owners.update(tx, line, |line| line[at] = owner.map_or(0, |index| index + 1))?;
        Ok(())
    }

    fn owner_at(&self, slot: u32, address: u32, port: u16) -> (u32, usize) {
        let at = u32::from(port) - self.base;
        ((slot * self.addresses + address) * self.owner_lines + at / OWNERS, (at % OWNERS) as usize)
    }
}

impl Part for Bits {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.lines.objects(into);
    }
}

impl Part for Ports {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.taken.objects(into);
        self.owners.objects(into);
    }
}
