//! Eviction: chooses which sets of a full table end so that new ones find room. Of every few candidates the one with the longest idle time
//! ends; sets that a function calls assured end only if there are no others.

mod shared;

use braid_packet::time::NS_PER_MS;
use std::ops::Range;

use braid_nf::packet::key::SetKey;
use braid_nf::{Candidate, Whereabouts};

use super::{Expiring, expire};
use crate::attempt::{End, Witness};

/// Number of candidates for each set to evict.
const SAMPLE: usize = 16;
/// Number of additional candidates to look for if too many of those found are assured: as long as one set in a hundred is not assured,
/// an assured one hardly ever ends.
const FURTHER: usize = 256;
/// Number of slots visited in one step.
const SLOTS: usize = 64;
/// Maximum number of slots searched for candidates at once. In the denser table of a full pair at least a third of the slots are taken, so there
/// this suffices for a whole batch of new sets.
const SLOTS_MAX: usize = 16 * 1024;

/// Finds and ends sets to evict.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    here: Cursor,
    to_come: Cursor,
    choice: Choice<Whereabouts>,
    shared: shared::Owed,
    shared_choice: Choice<SetKey>,
}

/// The candidates, and the selection among them.
#[derive(Debug)]
struct Choice<At> {
    /// How often sets have been selected.
    times: usize,
    /// Candidates; once assured sets have been set apart, only those that no function calls assured.
    candidates: Vec<Candidate<At>>,
    /// Candidates that a function calls assured.
    assured: Vec<Candidate<At>>,
}

impl<At> Default for Choice<At> {
    fn default() -> Choice<At> {
        Choice { times: 0, candidates: Vec::new(), assured: Vec::new() }
    }
}

/// How far a pair of tables has been searched: all slots and, where candidates are rare, those of the denser table.
#[derive(Debug, Default)]
struct Cursor {
    all: usize,
    dense: usize,
}

impl Eviction {
    /// Ends sets until no more than `keep` are left. If most of a small table goes at once, a selected set may already be gone; then the
    /// remaining surplus is selected again.
    pub(crate) fn run(&mut self, now_ns: u64, keep: usize, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        while let surplus @ 1.. = on.tables.len().saturating_sub(keep) {
            let evicted = on.counters.sets_evicted;
            self.find(surplus, (now_ns / NS_PER_MS) as u32, on);
            self.choice.choose(surplus);
            self.end_chosen(now_ns, on, witness);
            if on.counters.sets_evicted == evicted {
                break;
            }
        }
    }

    /// Ends the selected sets that still exist.
    fn end_chosen(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        for candidate in self.choice.candidates.drain(..) {
            let at = match candidate.at {
                Whereabouts::Here(at) => Some(at).filter(|at| on.tables.holds(*at)),
                Whereabouts::ToCome(at) => on.tables.bring_one(at),
            };
            let Some(at) = at else { continue };
            for &position in &on.chain.groups()[on.group].stages {
                if on.tables.meta_mut(at).live & on.chain.stages()[position].place().bit != 0 {
                    expire(position, (&[at], End::Chosen), now_ns, on, witness);
                }
            }
            on.tables.remove(at);
            on.counters.sets_evicted += 1;
        }
    }

    /// Finds candidates from which `surplus` sets can be selected.
    fn find(&mut self, surplus: usize, now_ms: u32, on: &mut Expiring<'_>) {
        self.choice.forget();
        self.look(surplus * SAMPLE, now_ms, on);
        if self.choice.wants_others(surplus) {
            self.look(FURTHER, now_ms, on);
        }
    }

    /// Searches for `more` candidates, and sets assured ones apart. While sets move over from former tables, nearly all that have been idle for
    /// long are still in those.
    fn look(&mut self, more: usize, now_ms: u32, on: &mut Expiring<'_>) {
        let (found, tables) = (&mut self.choice.candidates, &*on.tables);
        let (known, wanted) = (found.len(), found.len() + more);
        if tables.to_move() > 0 {
            self.to_come.look((wanted, found), tables.former_slots(), tables.denser_former_slots(), |from, found| {
                tables.scan_former(from, SLOTS, |at, meta| {
                    found.push(Candidate::new(Whereabouts::ToCome(at), meta.idle_ms(now_ms)));
                });
            });
        }
        self.here.look((wanted, found), tables.slots(), tables.denser_slots(), |from, found| {
            tables
                .scan(from, SLOTS, |at, meta| found.push(Candidate::new(Whereabouts::Here(at), meta.idle_ms(now_ms))));
        });
        for &position in &on.chain.groups()[on.group].stages {
            on.chain.stages()[position].find_assured(on.tables, &mut found[known..]);
        }
        self.choice.set_apart(known);
    }
}

impl<At> Choice<At> {
    fn forget(&mut self) {
        self.candidates.clear();
        self.assured.clear();
    }

    /// Whether to search further: some candidates are assured, and too few are not.
    fn wants_others(&self, count: usize) -> bool {
        self.candidates.len() < count && !self.assured.is_empty()
    }

    /// Sets apart the assured candidates from position `known` on.
    fn set_apart(&mut self, known: usize) {
        self.assured.extend(self.candidates.extract_if(known.., |candidate| candidate.is_assured));
    }

    /// Keeps `count` candidates, assured ones only if there are too few others.
    fn choose(&mut self, count: usize) {
        self.times = self.times.wrapping_add(1);
        let others = count.saturating_sub(self.candidates.len());
        keep_longest(&mut self.candidates, count, self.times);
        keep_longest(&mut self.assured, others, self.times);
        self.candidates.append(&mut self.assured);
    }
}

/// Keeps `count` candidates: the one with the longest idle time of every few neighbours. In a table that fills up within a millisecond all idle
/// times are equal; candidates from all over the table are kept even then, because new sets find no slot where none is freed.
fn keep_longest<At>(found: &mut Vec<Candidate<At>>, count: usize, choices: usize) {
    if count >= found.len() {
        return;
    }
    let few = found.len() / count.max(1);
    // Among equal idle times a different candidate is preferred each time.
    let turn = choices % few;
    for n in 0..count {
        let in_turn = (turn..few).chain(0..turn).map(|i| n * few + i);
        let longest = in_turn.max_by_key(|&i| found[i].idle_ms).unwrap_or(n);
        // Position `n` belongs to a group that has been dealt with, and so does the candidate swapped away from it.
        found.swap(n, longest);
    }
    found.truncate(count);
}

impl Cursor {
    /// Calls `look` on slots, on a few perhaps twice, until `wanted` candidates are found. It visits all slots in turn, so that all sets become
    /// candidates equally often and, since that may lead through a table with few sets, those in `denser` as well.
    fn look(
        &mut self,
        (wanted, found): (usize, &mut Vec<Candidate>),
        slots: usize,
        denser: Range<usize>,
        mut look: impl FnMut(usize, &mut Vec<Candidate>),
    ) {
        for (cursor, range) in [(&mut self.all, 0..slots), (&mut self.dense, denser)] {
            let mut looked_at = 0;
            while found.len() < wanted && looked_at < range.len().min(SLOTS_MAX) {
                if !range.contains(cursor) {
                    *cursor = range.start;
                }
                look(*cursor, found);
                *cursor += SLOTS;
                looked_at += SLOTS;
            }
        }
    }
}
