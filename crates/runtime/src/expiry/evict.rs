//! Which sets go from a full table so that new ones find room: of each few that it comes upon, the one that has waited longest; those
//! of which a function is assured only where there are no others.

mod shared;

use std::ops::Range;

use braid_nf::packet::key::SetKey;
use braid_nf::{Candidate, Whereabouts};

use super::{Expiring, MS, expire};
use crate::attempt::{End, Witness};

/// Sets among which the one to evict is chosen.
const SAMPLE: usize = 16;
/// Sets more among which others are looked for where too few are left that nobody is assured of: as long as one in a hundred is
/// such a one, hardly ever another goes.
const FURTHER: usize = 256;
/// Slots that are looked at in one go.
const SLOTS: usize = 64;
/// Most slots in which candidates are looked for at once. In the denser table of a full pair, a third of whose slots are taken at least, as many as a
/// whole batch of new sets needs.
const SLOTS_MAX: usize = 16 * 1024;

/// Looks for sets to evict.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    here: Cursor,
    to_come: Cursor,
    choice: Choice<Whereabouts>,
    shared: shared::Owed,
    shared_choice: Choice<SetKey>,
}

/// Who may go, and who goes.
#[derive(Debug)]
struct Choice<At> {
    /// Times that sets were chosen.
    times: usize,
    /// Who may go; once it is known, of whom nobody is assured.
    candidates: Vec<Candidate<At>>,
    /// The others.
    assured: Vec<Candidate<At>>,
}

impl<At> Default for Choice<At> {
    fn default() -> Choice<At> {
        Choice { times: 0, candidates: Vec::new(), assured: Vec::new() }
    }
}

/// How far a pair of tables was looked through: all of it, and, where candidates are few, the denser table.
#[derive(Debug, Default)]
struct Cursor {
    all: usize,
    dense: usize,
}

impl Eviction {
    /// Ends sets until no more than `keep` are left. Where most of a small table goes at once, a set may be chosen that is gone already:
    /// what is then left is chosen anew.
    pub(crate) fn run(&mut self, now_ns: u64, keep: usize, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        while let surplus @ 1.. = on.tables.len().saturating_sub(keep) {
            let evicted = on.counters.sets_evicted;
            self.find(surplus, (now_ns / MS) as u32, on);
            self.choice.choose(surplus);
            self.end_chosen(now_ns, on, witness);
            if on.counters.sets_evicted == evicted {
                break;
            }
        }
    }

    /// Ends the sets that are chosen and still there.
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

    /// Finds candidates so that `surplus` of them can go.
    fn find(&mut self, surplus: usize, now_ms: u32, on: &mut Expiring<'_>) {
        self.choice.forget();
        self.look(surplus * SAMPLE, now_ms, on);
        if self.choice.wants_others(surplus) {
            self.look(FURTHER, now_ms, on);
        }
    }

    /// Looks for so many more, and sets apart those of whom a function is assured. While sets come over from former tables, nearly all
    /// that have waited long are still there.
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

    /// Whether others are to be looked for: too few of those found are such that nobody is assured of them.
    fn wants_others(&self, count: usize) -> bool {
        self.candidates.len() < count && !self.assured.is_empty()
    }

    /// Sets apart those from place `known` on of whom a function is assured.
    fn set_apart(&mut self, known: usize) {
        self.assured.extend(self.candidates.extract_if(known.., |candidate| candidate.is_assured));
    }

    /// Keeps `count` candidates, assured ones only where there are too few others.
    fn choose(&mut self, count: usize) {
        self.times = self.times.wrapping_add(1);
        let others = count.saturating_sub(self.candidates.len());
        keep_longest(&mut self.candidates, count, self.times);
        keep_longest(&mut self.assured, others, self.times);
        self.candidates.append(&mut self.assured);
    }
}

/// Keeps `count` candidates: of each few that lie side by side the one that has waited longest. In a table that fills up within a
/// millisecond all have waited alike; they come from everywhere all the same, for where none goes no new set would find a place.
fn keep_longest<At>(found: &mut Vec<Candidate<At>>, count: usize, choices: usize) {
    if count >= found.len() {
        return;
    }
    let few = found.len() / count.max(1);
    // Of those that have waited alike another one each time.
    let turn = choices % few;
    for n in 0..count {
        let in_turn = (turn..few).chain(0..turn).map(|i| n * few + i);
        let longest = in_turn.max_by_key(|&i| found[i].idle_ms).unwrap_or(n);
        // What is put in its place lies among fewer, which are done with.
        found.swap(n, longest);
    }
    found.truncate(count);
}

impl Cursor {
    /// Has `look` look at slots, at few perhaps twice, until `wanted` candidates are found: at all in turn, so that all are candidates equally often, and where that
    /// leads through a table with few sets, at the `denser` one too.
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
