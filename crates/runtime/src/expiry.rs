//! The end of packet sets: an incremental scan of the tables, a few slots per batch.
//!
//! Every slot is visited about once per round of [`ROUND_NS`] or, if no set ends soon after its last packet, a small part of the
//! shortest timeout; a batch visits at most [`SLOTS_MAX`] slots, so no packet waits long. Where sets live hardly longer than a round lasts,
//! those whose time is over pile up in front of the scan: there the table is up to twice as full as behind it, and new sets would find no place though
//! there is room elsewhere. So rounds of nearly full tables are shorter, and so are those in which most ends ([`Pace`]), if sets may live for less than any round.
//! Those whose time is short when they begin need not wait for it ([`Soon`]).
//! A packet that comes to a set past its timeout before the scan does finds the set expired all the same (nf/pass).

use std::ops::{Range, RangeInclusive};

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, Event, Lives, SetSlot, SetTables, Stage};
use braid_state::{Conflict, ROW, Share, Tx};

use crate::attempt::{End, Witness, run_event, try_event};
use crate::chain::Chain;
use crate::counters::WorkerCounters;
use crate::watchdog::Pulse;
use crate::worker::Parts;

mod evict;
mod pace;
mod soon;

use self::pace::Pace;
use self::soon::Soon;
pub(crate) use evict::Eviction;
pub(crate) use soon::begun_max;

/// Time in which the scan comes round once, at least and at most.
const ROUND_NS: RangeInclusive<u64> = 1_000_000_000..=16_000_000_000;
/// Part of the shortest timeout that a round may last: by so much a set may outlive it.
const ROUND_PART: u64 = 64;
/// The same where a table is nearly full, if that is shorter: then no part of it is fuller than another by more than a fourth.
const CROWDED_PART: u64 = 4;
/// A round is no shorter than that, in nanoseconds.
const CROWDED_NS_MIN: u64 = 50_000_000;
/// Most slots in one go.
const SLOTS_MAX: usize = 4096;
/// Fewest slots worth a go.
const SLOTS_MIN: usize = 64;
/// Most sets that end in one transaction: their commit is a third of what one alone costs. If it fails each ends by itself.
const TOGETHER: usize = 16;
/// Most rows of shared sets in one go.
const ROWS_MAX: usize = SLOTS_MAX / ROW as usize;
const MS: u64 = 1_000_000;

/// Where the scan of one group's tables stands.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    cursor: usize,
    last_ns: u64,
    /// Times that slots were visited.
    visits: usize,
    pace: Pace,
    soon: Soon,
    found: Vec<(SetSlot, u32)>,
    expired: Vec<SetSlot>,
    shared_expired: Vec<SetKey>,
}

/// What the scan works on.
pub(crate) struct Expiring<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) group: usize,
    pub(crate) tables: &'a mut SetTables,
    pub(crate) tx: &'a mut Tx,
    pub(crate) emitted: &'a mut Emitted,
    pub(crate) ports: u16,
    pub(crate) counters: &'a mut WorkerCounters,
    /// Told where the worker is, if somebody watches.
    pub(crate) pulse: Option<&'a Pulse>,
}

impl<'a> Expiring<'a> {
    /// The sets of a group, ended with what a worker has: its parts, what its functions make, its counters and who watches it.
    pub(crate) fn new(
        (group, tables): (usize, &'a mut SetTables),
        parts: &'a mut Parts,
        emitted: &'a mut Emitted,
        counters: &'a mut WorkerCounters,
        pulse: Option<&'a Pulse>,
    ) -> Self {
        let Parts { chain, tx, ports, .. } = parts;
        Self { chain, group, tables, tx, emitted, ports: *ports, counters, pulse }
    }

    /// Runs the handler of the function at a position for a set that ends.
    pub(crate) fn run_event(
        &mut self,
        position: usize,
        now_ns: u64,
        mut end: impl FnMut(&mut Event<'_>, &mut SetTables) -> Result<(), Conflict>,
    ) -> u64 {
        self.watched(position, |on| {
            let event = |event: &mut Event<'_>| end(event, on.tables);
            run_event(on.tx, on.emitted, on.ports, now_ns, on.counters, event)
        })
    }

    /// The same once, for sets that end together; none if each has to end by itself.
    fn try_event(
        &mut self,
        position: usize,
        now_ns: u64,
        end: impl FnOnce(&mut Event<'_>, &mut SetTables) -> Result<(), Conflict>,
    ) -> Option<u64> {
        self.watched(position, |on| {
            let event = |event: &mut Event<'_>| end(event, on.tables);
            try_event(on.tx, on.emitted, on.ports, now_ns, on.counters, event).ok()
        })
    }

    /// Whoever watches hears at which function the worker is.
    fn watched<R>(&mut self, position: usize, run: impl FnOnce(&mut Self) -> R) -> R {
        if let Some(pulse) = self.pulse {
            pulse.enter(position);
        }
        self.emitted.begin(position);
        let result = run(self);
        if let Some(pulse) = self.pulse {
            pulse.leave();
        }
        result
    }
}

impl Scan {
    /// Visits as many slots as the time since the last visit is worth. A scan that has all of `SLOTS_MAX` to do is behind and
    /// goes on with the next batch.
    pub(crate) fn run(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        let slots = on.tables.slots();
        let timeout_ns = on.chain.groups()[on.group].shortest_timeout_ns;
        self.end_soon(now_ns, timeout_ns, on, witness);
        let is_crowded = is_crowded(on.tables.len(), on.tables.capacity());
        let due = self.due(now_ns, self.round_ns(timeout_ns, is_crowded), slots);
        if due < SLOTS_MIN.min(slots) {
            return;
        }
        self.last_ns = now_ns;
        self.visit(now_ns, due.min(SLOTS_MAX), on, witness);
    }

    /// The same for sets in shared state, of which each worker looks at its share.
    pub(crate) fn run_shared(
        &mut self,
        now_ns: u64,
        share: Share,
        on: &mut Expiring<'_>,
        lives: &mut Lives,
        witness: &mut dyn Witness,
    ) {
        let group = &on.chain.groups()[on.group];
        let (room, live) = group.stages.first().map_or((0, 0), |&first| on.chain.stages()[first].shared_room());
        let (rows, room) = (share.rows(room as u32), room as u32);
        let round_ns = self.round_ns(group.shortest_timeout_ns, is_crowded(live, room as usize));
        let due = self.due(now_ns, round_ns, rows as usize);
        if due == 0 {
            return;
        }
        self.last_ns = now_ns;
        let first = self.cursor as u32 % rows;
        let next = first + due.min(ROWS_MAX) as u32;
        self.cursor = next as usize;
        let ended = lives.ended;
        self.visit_shared(now_ns, (first..next).map(|number| share.row(number % rows, room)), on, lives, witness);
        self.pace.note((lives.ended - ended) as usize);
        if next >= rows {
            // Of what lives, about this worker's share.
            let entries = (rows * ROW).min(room) as usize;
            self.pace.come_round((live as u128 * entries as u128 / u128::from(room)) as usize, entries);
        }
    }

    /// How long this round takes where no set's timeout is shorter than this one.
    fn round_ns(&self, timeout_ns: u64, is_crowded: bool) -> u64 {
        let round_ns = round_ns(timeout_ns, is_crowded);
        match (1..*ROUND_NS.start()).contains(&timeout_ns) {
            true => self.pace.round_ns(round_ns),
            false => round_ns,
        }
    }

    /// Ends what is over among the entries of some rows of a shared table.
    fn visit_shared(
        &mut self,
        now_ns: u64,
        rows: impl Iterator<Item = Range<u32>> + Clone,
        on: &mut Expiring<'_>,
        lives: &mut Lives,
        witness: &mut dyn Witness,
    ) {
        for &position in &on.chain.groups()[on.group].stages {
            self.shared_expired.clear();
            let stage = &*on.chain.stages()[position];
            on.tx.set_now(now_ns);
            for row in rows.clone() {
                // Whatever it has found before a conflict counts; the rest is looked at the next time round.
                let _ = stage.find_expired_shared(on.tx, row, &mut self.shared_expired);
                on.tx.abort();
            }
            for some in self.shared_expired.chunks(TOGETHER) {
                lives.ended += expire_shared(position, (some, End::Timeout), now_ns, on, witness);
            }
        }
    }

    /// Visits all slots, whenever it was here last.
    pub(crate) fn finish(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        self.cursor = 0;
        loop {
            self.visit(now_ns, SLOTS_MAX, on, witness);
            if self.cursor == 0 {
                return;
            }
        }
    }

    /// The same for sets in shared state.
    pub(crate) fn finish_shared(
        &mut self,
        now_ns: u64,
        on: &mut Expiring<'_>,
        lives: &mut Lives,
        witness: &mut dyn Witness,
    ) {
        let group = &on.chain.groups()[on.group];
        let (room, live) = group.stages.first().map_or((0, 0), |&first| on.chain.stages()[first].shared_room());
        if live > 0 {
            let rows = 0..Share::ALL.rows(room as u32);
            let rows = rows.map(|number| Share::ALL.row(number, room as u32));
            self.visit_shared(now_ns, rows, on, lives, witness);
        }
    }

    /// Of what is visited once in a round, as much as the time since the last visit is worth.
    fn due(&self, now_ns: u64, round_ns: u64, all: usize) -> usize {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        (all as u128 * u128::from(elapsed_ns) / u128::from(round_ns)).min(all as u128) as usize
    }

    fn visit(&mut self, now_ns: u64, count: usize, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        self.visits = self.visits.wrapping_add(1);
        on.tables.bring_home(self.visits);
        let (now_ms, found) = ((now_ns / MS) as u32, &mut self.found);
        let shortest_ms = on.chain.groups()[on.group].shortest_timeout_ns / MS;
        found.clear();
        on.tables.scan(self.cursor, count, |at, meta| {
            let idle_ms = meta.idle_ms(now_ms);
            // No function has a shorter timeout, so of nearly all none need be asked.
            if u64::from(idle_ms) > shortest_ms || meta.live == 0 {
                found.push((at, idle_ms));
            }
        });
        self.cursor += count;
        let comes_round = self.cursor >= on.tables.slots();
        if comes_round {
            self.cursor = 0;
        }
        let live = on.tables.len();
        if !self.found.is_empty() {
            self.end_found(now_ns, on, witness);
        }
        self.pace.note(live.saturating_sub(on.tables.len()));
        if comes_round {
            self.pace.come_round(on.tables.len(), on.tables.slots());
        }
    }

    /// Ends what is over among the sets that were found.
    fn end_found(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        for &position in &on.chain.groups()[on.group].stages {
            let stage = &*on.chain.stages()[position];
            self.expired.clear();
            stage.find_expired(on.tables, &self.found, &mut self.expired);
            let mut next = self.expired.chunks(TOGETHER);
            let mut some: &[SetSlot] = &[];
            loop {
                // While some end, what the next will touch is on its way.
                let later = next.next();
                later.into_iter().flatten().for_each(|&at| stage.prefetch_expired(on.tables, at));
                expire(position, (some, End::Timeout), now_ns, on, witness);
                match later {
                    Some(later) => some = later,
                    None => break,
                }
            }
        }
        for &(at, _) in &self.found {
            // Not live for anybody: expired now, or on a packet's arrival without becoming live again.
            if on.tables.meta_mut(at).live == 0 {
                on.tables.remove(at);
            }
        }
    }
}

/// Whether so many sets are nearly all that there is room for: more than three quarters.
fn is_crowded(live: usize, room: usize) -> bool {
    live > room / 4 * 3
}

/// How long a round of the scan takes where no set's timeout is shorter than this one; 0: nobody says.
fn round_ns(timeout_ns: u64, is_crowded: bool) -> u64 {
    let round_ns = (timeout_ns / ROUND_PART).clamp(*ROUND_NS.start(), *ROUND_NS.end());
    match is_crowded && timeout_ns > 0 {
        true => round_ns.min(timeout_ns / CROWDED_PART).max(CROWDED_NS_MIN),
        false => round_ns,
    }
}

/// Ends those of some shared sets that are there and, if that is why, still past their timeout; in one transaction if nothing comes
/// between. How many.
pub(crate) fn expire_shared(
    position: usize,
    (some, why): (&[SetKey], End),
    now_ns: u64,
    on: &mut Expiring<'_>,
    witness: &mut dyn Witness,
) -> u64 {
    let (mut ended, made_before) = (0, on.emitted.len());
    let stage = &*on.chain.stages()[position];
    let mut end = |event: &mut Event<'_>| {
        ended = 0;
        some.iter()
            .try_for_each(|key| end_shared(stage, event, key, why).map(|has_ended| ended += u64::from(has_ended)))
    };
    let sequence = match some.len() {
        1 => Some(on.run_event(position, now_ns, |event, _| end(event))),
        _ => on.try_event(position, now_ns, |event, _| end(event)),
    };
    let Some(sequence) = sequence else {
        return some.chunks(1).map(|one| expire_shared(position, (one, why), now_ns, on, witness)).sum();
    };
    witness.expired(on.tx, position, &mut some.iter().copied(), why, now_ns, sequence);
    witness.made(on.emitted, made_before);
    ended
}

/// Ends a shared set if it is to end; says whether it did.
pub(crate) fn end_shared(stage: &dyn Stage, event: &mut Event<'_>, key: &SetKey, why: End) -> Result<bool, Conflict> {
    match why {
        End::Timeout => stage.expire_shared(event, key),
        End::Chosen => stage.end_shared(event, key),
    }
}

/// Ends sets for one function, in one transaction if nothing comes between: their handlers run, then they are not live any more.
pub(crate) fn expire(
    position: usize,
    (some, why): (&[SetSlot], End),
    now_ns: u64,
    on: &mut Expiring<'_>,
    witness: &mut dyn Witness,
) {
    let (stage, made_before) = (&*on.chain.stages()[position], on.emitted.len());
    let sequence = match some {
        [] => return,
        [at] => Some(on.run_event(position, now_ns, |event, tables| stage.expire(event, tables, *at))),
        _ => on.try_event(position, now_ns, |event, tables| {
            some.iter().try_for_each(|at| stage.expire(event, tables, *at))
        }),
    };
    let Some(sequence) = sequence else {
        return some.chunks(1).for_each(|one| expire(position, (one, why), now_ns, on, witness));
    };
    let tables = &*on.tables;
    witness.expired(on.tx, position, &mut some.iter().map(|at| tables.key(*at)), why, now_ns, sequence);
    witness.made(on.emitted, made_before);
    for &at in some {
        let live = on.tables.meta_mut(at).live;
        on.tables.set_live(at, live & !stage.place().bit);
    }
}
