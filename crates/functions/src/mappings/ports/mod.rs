//! Which external ports are taken, and by which mapping: an entry number for each port, by protocol and external address.
//!
//! A cache line holds fourteen ports, and a new mapping accesses no other as long as one of them is free. Two bits for
//! each line say whether its even and its odd ports are all taken. A search skips 224 full lines with one line of these
//! bits, so it is exact and short. Both change in one transaction with the mapping: a port is free, or has exactly one
//! owner.

pub(super) mod bitmap;
pub(super) mod claim;
pub(super) mod reserved;
pub(super) mod search_backoff;
pub(super) mod used_up_ranges;

use std::sync::Arc;

use braid_nf::state::{StateBuilder, StateError, StateObject, Tx, Vector, VectorConfig};
use braid_nf::{Conflict, Part};

use self::bitmap::{Bits, bits_of};
use self::reserved::Reserved;
use self::used_up_ranges::Spent;

/// Entry numbers per line; an even number, so that the first port of a line is even.
const OWNERS: u32 = 14;
/// The even and the odd bits of a word.
const EVEN: u64 = u64::MAX / 3;
const ODD: u64 = !EVEN;

/// Protocols that have ports of their own.
const PROTOCOLS: u32 = 3;

/// A line of entry numbers for ports of one protocol and address; 0: free.
type Line = [u32; OWNERS as usize];

/// All external ports.
pub(crate) struct Ports {
    owners: Vector<Line>,
    /// For each line, whether its even ports are all taken, and whether its odd ones are. Never set for a line with ports
    /// that cannot be given out.
    full: Bits,
    /// Ranges that are known to be used up.
    spent: Spent,
    /// Ports that are configured for a host.
    reserved: Reserved,
    /// The first port of the first line; an even number.
    base: u32,
    /// Lines per address.
    lines: u32,
}

impl Ports {
    /// Ports `first..=last` of each of `addresses` addresses, for three protocols, all free.
    pub(crate) fn new(builder: &mut StateBuilder, addresses: u32, first: u16, last: u16) -> Result<Ports, StateError> {
        let base = u32::from(first) & !1;
        let lines = (u32::from(last) - base + 1).div_ceil(OWNERS);
        let rows = addresses.saturating_mul(PROTOCOLS);
        let owners = VectorConfig { name: "ports".into(), len: lines.saturating_mul(rows) };
        Ok(Ports {
            owners: Vector::new(builder, &owners, Line::default())?,
            full: Bits::new(builder, "full_ports", rows, 2 * lines)?,
            spent: Spent::new(builder, rows)?,
            reserved: Reserved::default(),
            base,
            lines,
        })
    }

    /// Excludes configured ports from searches for free ones.
    pub(crate) fn reserving(self, reserved: Reserved) -> Ports {
        Ports { reserved, ..self }
    }

    /// Finds a free port in the range `within` of an address: one with the parity of `from` if there is one, searching
    /// from there on.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        tx: &mut Tx,
        slot: u32,
        address: u32,
        within: std::ops::RangeInclusive<u16>,
        from: u16,
    ) -> Result<Option<u16>, Conflict> {
        let row = row(slot, address);
        match self.find_ownerless(tx, row, &within, from)? {
            Some(port) if self.reserved.has(row, port) => self.find_in_gaps(tx, row, &within, from),
            found => Ok(found),
        }
    }

    /// Searches between reserved ports, some of which have no owner yet.
    #[cold]
    fn find_in_gaps(
        &self,
        tx: &mut Tx,
        row: u32,
        within: &std::ops::RangeInclusive<u16>,
        from: u16,
    ) -> Result<Option<u16>, Conflict> {
        for gap in self.reserved.gaps(row, within, from) {
            let found = self.find_ownerless(tx, row, &gap, from)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    #[inline(always)]
    fn find_ownerless(
        &self,
        tx: &mut Tx,
        row: u32,
        within: &std::ops::RangeInclusive<u16>,
        from: u16,
    ) -> Result<Option<u16>, Conflict> {
        let range = u32::from(*within.start()) - self.base..u32::from(*within.end()) + 1 - self.base;
        let parity = if from.is_multiple_of(2) { EVEN } else { ODD };
        let from = u32::from(from).saturating_sub(self.base);
        let from = if range.contains(&from) { from } else { range.start };
        // Usually the first line has a free port.
        let near = from..range.end.min(from - from % OWNERS + OWNERS);
        if let Some(at) = self.find_on_line(tx, row, near.clone(), parity)? {
            return Ok(Some((self.base + at) as u16));
        }
        if self.spent.covers(tx, row, within)? {
            return Ok(None);
        }
        let found = self.find_far(tx, row, range, near, parity)?;
        if found.is_none() {
            self.spent.note(tx, row, within)?;
        }
        Ok(found.map(|at| (self.base + at) as u16))
    }

    /// The first free port of one of these parities, within a range on one line.
    #[inline(always)]
    fn find_on_line(
        &self,
        tx: &mut Tx,
        row: u32,
        range: std::ops::Range<u32>,
        parity: u64,
    ) -> Result<Option<u32>, Conflict> {
        let first = range.start - range.start % OWNERS;
        let free = self.owners.view(tx, self.line(row, first), free_of)?.unwrap_or_default();
        let free = free & parity & bits_of(0, range.start - first..range.end - first);
        Ok((free != 0).then(|| first + free.trailing_zeros()))
    }

    /// Finds a free port with this parity outside of `near`, where there is none; else one with any parity.
    #[cold]
    #[inline(never)]
    fn find_far(
        &self,
        tx: &mut Tx,
        row: u32,
        range: std::ops::Range<u32>,
        near: std::ops::Range<u32>,
        parity: u64,
    ) -> Result<Option<u32>, Conflict> {
        let from = near.start;
        if let Some(found) = self.find_behind(tx, row, range.clone(), from, parity)? {
            return Ok(Some(found));
        }
        match self.find_on_line(tx, row, near, u64::MAX)? {
            None => self.find_behind(tx, row, range, from, u64::MAX),
            found => Ok(found),
        }
    }

    /// The first free port of one of these parities after the line of `from`, and then from the start of the range on.
    fn find_behind(
        &self,
        tx: &mut Tx,
        row: u32,
        range: std::ops::Range<u32>,
        from: u32,
        parity: u64,
    ) -> Result<Option<u32>, Conflict> {
        let behind = from / OWNERS + 1;
        for (begin, end) in [(behind, range.end.div_ceil(OWNERS)), (range.start / OWNERS, behind)] {
            let mut next = begin;
            while let Some(bit) = self.full.find_zero(tx, row, 2 * next..2 * end, 2 * next, parity)? {
                let line = bit / 2;
                let ports = range.start.max(line * OWNERS)..range.end.min((line + 1) * OWNERS);
                let found = self.find_on_line(tx, row, ports, parity)?;
                if found.is_some() {
                    return Ok(found);
                }
                next = line + 1;
            }
        }
        Ok(None)
    }

    /// Whether a port may be given out: it has no owner and is not reserved.
    #[inline(always)]
    pub(crate) fn is_free(&self, tx: &mut Tx, slot: u32, address: u32, port: u16) -> Result<bool, Conflict> {
        Ok(self.owner(tx, slot, address, port)?.is_none() && !self.is_reserved(slot, address, port))
    }

    /// Whether a port is configured for a host.
    #[inline(always)]
    pub(crate) fn is_reserved(&self, slot: u32, address: u32, port: u16) -> bool {
        self.reserved.has(row(slot, address), port)
    }

    /// The entry that owns a port; `None` if the port is free.
    #[inline(always)]
    pub(crate) fn owner(&self, tx: &mut Tx, slot: u32, address: u32, port: u16) -> Result<Option<u32>, Conflict> {
        let (row, at) = self.place(slot, address, port);
        let owner = self.owners.view(tx, self.line(row, at), |line| line[(at % OWNERS) as usize])?;
        Ok(owner.unwrap_or_default().checked_sub(1))
    }

    /// The owner as a hint, read outside of the transaction.
    #[inline(always)]
    pub(crate) fn owner_hint(&self, slot: u32, address: u32, port: u16) -> Option<u32> {
        let (row, at) = self.place(slot, address, port);
        let place = at % OWNERS;
        let pair = self.owners.hint(self.line(row, at), (place / 2) as usize);
        ((pair >> (32 * (place % 2))) as u32).checked_sub(1)
    }

    /// Sets or removes the owner of a port.
    pub(crate) fn set_owner(
        &self,
        tx: &mut Tx,
        slot: u32,
        address: u32,
        port: u16,
        owner: Option<u32>,
    ) -> Result<(), Conflict> {
        let (row, at) = self.place(slot, address, port);
        let parity = if at.is_multiple_of(2) { EVEN } else { ODD };
        let change = |line: &mut Line| {
            line[(at % OWNERS) as usize] = owner.map_or(0, |index| index + 1);
            // True if this was the last free port of its parity, or is the first one that is free again.
            free_of(line) & parity & !(1 << (at % OWNERS)) == 0
        };
        if self.owners.update(tx, self.line(row, at), change)? == Some(true) {
            self.full.set(tx, row, 2 * (at / OWNERS) + at % 2, owner.is_some())?;
        }
        if owner.is_none() {
            self.spent.forget(tx, row, port)?;
        }
        Ok(())
    }

    /// Prefetches the line of a port, which will be changed soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32, address: u32, port: u16) {
        // The port may be any, even below the first.
        let at = u32::from(port).saturating_sub(self.base);
        self.owners.prefetch(self.line(row(slot, address), at));
    }

    /// The line of a position in a row.
    #[inline(always)]
    fn line(&self, row: u32, at: u32) -> u32 {
        row * self.lines + at / OWNERS
    }

    /// The row of a protocol and address, and the position of a port in it.
    #[inline(always)]
    fn place(&self, slot: u32, address: u32, port: u16) -> (u32, u32) {
        (row(slot, address), u32::from(port) - self.base)
    }
}

/// The row of a protocol and address; rows of further addresses follow those of existing ones.
#[inline(always)]
pub(crate) fn row(slot: u32, address: u32) -> u32 {
    address * PROTOCOLS + slot
}

/// A bit for each free port of a line.
#[inline(always)]
fn free_of(line: &Line) -> u64 {
    line.iter().enumerate().fold(0, |free, (at, owner)| free | u64::from(*owner == 0) << at)
}

impl Part for Ports {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.owners.objects(into);
        self.full.objects(into);
        self.spent.objects(into);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use braid_nf::state::{Domain, HugePages};
    use proptest::prelude::*;

    use super::*;

    /// The result of a search, defined by a linear scan for each parity.
    fn first_free(owners: &BTreeMap<u16, u32>, within: std::ops::RangeInclusive<u16>, from: u16) -> Option<u16> {
        let begin = if within.contains(&from) { from } else { *within.start() };
        let order: Vec<u16> = (begin..=*within.end()).chain(*within.start()..begin).collect();
        let free = |port: &&u16| !owners.contains_key(*port);
        let of_parity = order.iter().filter(free).find(|port| **port & 1 == from & 1);
        of_parity.or_else(|| order.iter().find(free)).copied()
    }

    #[test]
    fn a_port_of_the_other_parity_is_the_next_one_too() {
        let domain = Domain::new(1);
        let ports = Ports::new(&mut StateBuilder::new(&domain, HugePages::Never), 1, 1000, 1013).unwrap();
        let mut tx = Tx::new(&domain, 0);
        for even in (1000..=1012).step_by(2) {
            ports.set_owner(&mut tx, 0, 0, even, Some(7)).unwrap();
        }
        assert_eq!(ports.find(&mut tx, 0, 0, 1000..=1013, 1006).unwrap(), Some(1007), "1001 and others are behind it");
    }

    #[test]
    fn ports_that_are_used_up_are_looked_for_once() {
        let domain = Domain::new(1);
        let ports = Ports::new(&mut StateBuilder::new(&domain, HugePages::Never), 2, 1024, 65_535).unwrap();
        let mut tx = Tx::new(&domain, 0);
        for port in 1024..=65_535 {
            ports.set_owner(&mut tx, 0, 1, port, Some(7)).unwrap();
        }
        tx.commit().unwrap();
        let search = |tx: &mut Tx, expected| {
            assert_eq!(ports.find(tx, 0, 1, 1024..=65_535, 4000).unwrap(), expected);
            let footprint = tx.footprint();
            tx.commit().unwrap();
            footprint
        };
        assert!(search(&mut tx, None).0 > 40, "all lines of bits, for each parity");
        assert_eq!(search(&mut tx, None), (2, 0), "the line where it begins, and what is known");
        ports.set_owner(&mut tx, 0, 1, 9001, None).unwrap();
        tx.commit().unwrap();
        search(&mut tx, Some(9001));
        ports.set_owner(&mut tx, 0, 1, 9001, Some(8)).unwrap();
        tx.commit().unwrap();
        search(&mut tx, None);
        assert_eq!(search(&mut tx, None), (2, 0));
        // Each address and protocol has its own ranges.
        assert_eq!(ports.find(&mut tx, 0, 0, 1024..=65_535, 4000).unwrap(), Some(4000));
        assert_eq!(ports.find(&mut tx, 1, 1, 1024..=65_535, 4000).unwrap(), Some(4000));
    }

    proptest! {
        #[test]
        fn what_is_known_of_used_up_ports_is_forgotten_in_time(
            steps in prop::collection::vec((0u16..30, prop::option::of(0u16..30), 0u32..2), 0..300),
        ) {
            let domain = Domain::new(1);
            let ports = Ports::new(&mut StateBuilder::new(&domain, HugePages::Never), 1, 1000, 1029).unwrap();
            let (mut tx, mut owners) = (Tx::new(&domain, 0), BTreeMap::new());
            for port in 1000..1030 {
                ports.set_owner(&mut tx, 0, 0, port, Some(1)).unwrap();
                owners.insert(port, 1);
            }
            for (a, b, owner) in steps {
                // Either a search, or a port that is given out or returned.
                let Some(b) = b else {
                    ports.set_owner(&mut tx, 0, 0, 1000 + a, owner.checked_sub(1)).unwrap();
                    if owner == 0 { owners.remove(&(1000 + a)) } else { owners.insert(1000 + a, 0) };
                    tx.commit().unwrap();
                    continue;
                };
                let within = 1000 + a.min(b)..=1000 + a.max(b);
                let found = ports.find(&mut tx, 0, 0, within.clone(), 1000 + a).unwrap();
                prop_assert_eq!(found, first_free(&owners, within, 1000 + a));
                tx.commit().unwrap();
            }
        }

        #[test]
        fn a_search_finds_what_looking_at_all_ports_finds(
            first in 1u16..200,
            len in 1u16..90,
            changes in prop::collection::vec((any::<u16>(), 0u32..4), 0..300),
            searches in prop::collection::vec((any::<u16>(), any::<u16>(), any::<u16>()), 1..20),
        ) {
            let domain = Domain::new(1);
            let mut builder = StateBuilder::new(&domain, HugePages::Never);
            let ports = Ports::new(&mut builder, 2, first, first + (len - 1)).unwrap();
            let (mut tx, mut owners) = (Tx::new(&domain, 0), BTreeMap::new());
            for (port, owner) in changes {
                let (port, owner) = (first + port % len, owner.checked_sub(1));
                ports.set_owner(&mut tx, 1, 1, port, owner).unwrap();
                match owner {
                    Some(owner) => owners.insert(port, owner),
                    None => owners.remove(&port),
                };
            }
            tx.commit().unwrap();
            for (a, b, from) in searches {
                let (a, b, from) = (first + a % len, first + b % len, first - 1 + from % (len + 1));
                let within = a.min(b)..=a.max(b);
                prop_assert_eq!(ports.owner(&mut tx, 1, 1, a).unwrap(), owners.get(&a).copied());
                let found = ports.find(&mut tx, 1, 1, within.clone(), from).unwrap();
                prop_assert_eq!(found, first_free(&owners, within, from));
            }
        }
    }
}
