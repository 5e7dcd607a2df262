//! Maglev hashing (Eisenbud et al., NSDI 2016, section 3.4): a table that gives each backend its share of the places, and
//! in which few places change when a backend joins or leaves.
//!
//! The table covers all configured backends and depends only on their names, not on their order, so every instance builds
//! the same table. Health does not change it: if the backend at a place is down, the caller hashes again, so flows of
//! live backends stay put.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use braid_nf::state::hash;

/// A backend, as the table sees it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Its identity: address and port.
    pub(super) name: String,
    /// Its share relative to the others; 0: none.
    pub(super) weight: u32,
}

/// The table: a candidate number for each place.
#[derive(Clone, Debug)]
pub(super) struct Maglev {
    places: Arc<[u16]>,
}

/// The tables that are in use, by what they are made of. A table takes milliseconds to fill and is the same as before wherever neither a backend nor
/// a weight of its service has changed, as when a check finds a backend of another service down.
static IN_USE: LazyLock<Mutex<HashMap<String, Weak<[u16]>>>> = LazyLock::new(Mutex::default);

/// The paper's small table size: shares are within 1 % of even for up to about 600 backends.
pub(super) const SIZE_DEFAULT: u32 = 65_537;
const SEEDS: [u64; 2] = [0x6d61_676c_6576_0001, 0x6d61_676c_6576_0002];
const NOBODY: u16 = u16::MAX;

impl Maglev {
    /// A table of `size` places, a prime number: one that is in use, or a new one. At least one candidate must have a weight.
    pub(super) fn new(size: u32, candidates: &[Candidate]) -> Maglev {
        let mut made_of = size.to_string();
        for Candidate { name, weight } in candidates {
            let _ = write!(made_of, "; {name} {weight}");
        }
        let lock = || IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&made_of).and_then(Weak::upgrade);
        let places = known.unwrap_or_else(|| {
            let places: Arc<[u16]> = fill(size, candidates).into();
            let mut tables = lock();
            tables.retain(|_, table| table.strong_count() > 0);
            tables.insert(made_of, Arc::downgrade(&places));
            places
        });
        Maglev { places }
    }

    /// The candidate at the place that a hash selects.
    #[inline]
    pub(super) fn at(&self, hash: u64) -> u16 {
        let place = ((hash >> 32) * self.places.len() as u64) >> 32;
        self.places[place as usize]
    }

    /// All places of the table.
    #[cfg(test)]
    pub(super) fn places(&self) -> &[u16] {
        &self.places
    }
}

/// Gives each place of a table to a candidate.
fn fill(size: u32, candidates: &[Candidate]) -> Box<[u16]> {
    let size = size as usize;
    let most = candidates.iter().map(|candidate| u64::from(candidate.weight)).max().unwrap_or(0);
    let mut turns: Vec<Turns> =
        candidates.iter().enumerate().map(|(number, candidate)| Turns::new(number, candidate, size)).collect();
    turns.sort_by(|a, b| a.name.cmp(b.name));
    let mut places = vec![NOBODY; size].into_boxed_slice();
    let mut left = if most == 0 { 0 } else { size };
    while left > 0 {
        for turn in &mut turns {
            // The greatest weight gets a turn in every round, half that weight in every other round.
            turn.credit += turn.weight;
            if turn.credit < most || left == 0 {
                continue;
            }
            turn.credit -= most;
            while places[turn.next] != NOBODY {
                turn.advance(size);
            }
            places[turn.next] = turn.number;
            left -= 1;
        }
    }
    places
}

/// A candidate's permutation of the places: an offset and a step that is coprime to the table size.
struct Turns<'a> {
    name: &'a str,
    number: u16,
    weight: u64,
    credit: u64,
    next: usize,
    step: usize,
}

impl Turns<'_> {
    fn new<'a>(number: usize, candidate: &'a Candidate, size: usize) -> Turns<'a> {
        let [offset, step] = SEEDS.map(|seed| hash::mixed(candidate.name.as_bytes(), seed));
        Turns {
            name: &candidate.name,
            number: number as u16,
            weight: candidate.weight.into(),
            credit: 0,
            next: (offset % size as u64) as usize,
            step: (step % (size as u64 - 1)) as usize + 1,
        }
    }

    fn advance(&mut self, size: usize) {
        self.next += self.step;
        if self.next >= size {
            self.next -= size;
        }
    }
}

/// Whether a number is prime, as a table size must be.
pub(super) fn is_prime(number: u32) -> bool {
    number >= 2
        && (2..).take_while(|divisor| divisor * divisor <= u64::from(number)).all(|d| u64::from(number) % d != 0)
}
