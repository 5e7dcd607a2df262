//! Expiry of packet sets: an incremental scan of the tables, a few slots per batch.
//!
//! A round of the scan visits every slot about once. It takes a 64th of the shortest timeout, within the bounds of [`ROUND_NS`]. A batch
//! visits at most [`SLOTS_MAX`] slots, so no packet waits long. Where sets hardly live longer than a round, expired sets pile up in
//! front of the scan: the table is up to twice as full there as behind it, and new sets would find no slot although there is room elsewhere.
//! Therefore rounds are shorter in nearly full tables and, if timeouts may be shorter than any round, while most sets end ([`Pace`]).
//! Sets that begin with a short timeout need not wait for the scan ([`Soon`]).
//! A packet that reaches an expired set before the scan does still finds the set expired (nf/pass).

use braid_packet::time::NS_PER_MS;
use std::ops::{Range, RangeInclusive};

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, Event, Lives, SetSlot, SetTables, Stage};
use braid_state::{Conflict, ROW, Share, Tx};

use crate::attempt::{End, Witness, run_event, try_event};
use crate::chain::{Chain, Group};
use crate::observe::counters::WorkerCounters;
use crate::observe::watchdog::Pulse;
use crate::worker::Parts;

mod evict;
mod pace;
mod soon;

use self::pace::Pace;
use self::soon::Soon;
pub(crate) use evict::Eviction;
pub(crate) use soon::begun_max;

/// Minimum and maximum duration of a round of the scan, in nanoseconds.
const ROUND_NS: RangeInclusive<u64> = 1_000_000_000..=16_000_000_000;
/// A round may last this fraction of the shortest timeout, which is how long a set may outlive its timeout.
const ROUND_PART: u64 = 64;
/// The fraction for a nearly full table, if that is shorter: then no part of the table is fuller than another by more than a fourth.
const CROWDED_PART: u64 = 4;
/// Minimum duration of a shortened round, in nanoseconds.
const CROWDED_NS_MIN: u64 = 50_000_000;
/// Maximum number of slots per visit.
const SLOTS_MAX: usize = 4096;
/// Minimum number of slots that make a visit worthwhile.
const SLOTS_MIN: usize = 64;
/// Maximum number of sets that end in one transaction: per set this costs a third of a commit of its own. If the commit fails, each set ends alone.
const TOGETHER: usize = 16;
/// Maximum number of rows of shared sets per visit.
const ROWS_MAX: usize = SLOTS_MAX / ROW as usize;

/// The state of the scan of one group's tables.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    cursor: usize,
    last_ns: u64,
    /// Number of visits so far.
    visits: usize,
    pace: Pace,
    soon: Soon,
    found: Vec<(SetSlot, u32)>,
    expired: Vec<SetSlot>,
    shared_expired: Vec<SetKey>,
}

/// The context for ending packet sets of a group.
pub(crate) struct Expiring<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) group: usize,
    pub(crate) tables: &'a mut SetTables,
    pub(crate) tx: &'a mut Tx,
    pub(crate) emitted: &'a mut Emitted,
    pub(crate) ports: u16,
    pub(crate) counters: &'a mut WorkerCounters,
    /// Where the worker publishes its position, if it is watched.
    pub(crate) pulse: Option<&'a Pulse>,
}

impl<'a> Expiring<'a> {
    /// Creates the context for a group, from a worker's parts, emitted packets, counters and pulse.
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

    /// Runs the handler of the function at `position` for a set that ends, until it commits; returns the place in the commit order.
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

    /// Runs the handlers once for sets that end together; returns `None` if the sets have to end one by one.
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

    /// Publishes the function's position while `run` is executing.
    fn watched<R>(&mut self, position: usize, run: impl FnOnce(&mut Self) -> R) -> R {
        if let Some(pulse) = self.pulse {
            pulse.enter(position);
        }
        self.emitted.begin(position, braid_nf::Round::Onward);
        let result = run(self);
        if let Some(pulse) = self.pulse {
            pulse.leave();
        }
        result
    }
}

impl Scan {
    /// Visits as many slots as are due since the last visit. If more than `SLOTS_MAX` are due, the scan is behind and continues with the next
    /// batch.
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

    /// Like [`run`](Self::run), for sets in shared state, of which each worker visits its share.
    pub(crate) fn run_shared(
        &mut self,
        now_ns: u64,
        share: Share,
        on: &mut Expiring<'_>,
        lives: &mut Lives,
        witness: &mut dyn Witness,
    ) {
        let (room, live, rows, round_ns) = self.shared_round(share, on.chain, &on.chain.groups()[on.group]);
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
            // Of the live sets, roughly this worker's share.
            let entries = (rows * ROW).min(room) as usize;
            self.pace.come_round((live as u128 * entries as u128 / u128::from(room)) as usize, entries);
        }
    }

    /// The room and the live sets of a group whose sets are shared, the rows of a worker's share, and the duration of a round over them.
    fn shared_round(&self, share: Share, chain: &Chain, group: &Group) -> (u32, usize, u32, u64) {
        let (room, live) = group.stages.first().map_or((0, 0), |&first| chain.stages()[first].shared_room());
        let round_ns = self.round_ns(group.shortest_timeout_ns, is_crowded(live, room));
        (room as u32, live, share.rows(room as u32), round_ns)
    }

    /// How long an idle worker may leave its tables unvisited, in nanoseconds: until half of what one visit takes is due, so that the scan never
    /// falls behind.
    pub(crate) fn pause_ns(&self, now_ns: u64, group: &Group, tables: &SetTables) -> u64 {
        if tables.is_empty() {
            return u64::MAX;
        }
        if self.soon.is_behind(now_ns / NS_PER_MS) {
            return 0;
        }
        let is_crowded = is_crowded(tables.len(), tables.capacity());
        self.pause(now_ns, self.round_ns(group.shortest_timeout_ns, is_crowded), (SLOTS_MAX, tables.slots()))
    }

    /// Like [`pause_ns`](Self::pause_ns), for sets in shared state.
    pub(crate) fn pause_shared_ns(&self, now_ns: u64, share: Share, chain: &Chain, group: &Group) -> u64 {
        let (_, live, rows, round_ns) = self.shared_round(share, chain, group);
        if live == 0 { u64::MAX } else { self.pause(now_ns, round_ns, (ROWS_MAX, rows as usize)) }
    }

    fn pause(&self, now_ns: u64, round_ns: u64, (most, all): (usize, usize)) -> u64 {
        let until = u128::from(round_ns) * (most as u128 / 2) / (all.max(1) as u128);
        (until as u64).saturating_sub(now_ns.saturating_sub(self.last_ns))
    }

    /// The duration of a round in nanoseconds if no set has a shorter timeout than `timeout_ns`.
    fn round_ns(&self, timeout_ns: u64, is_crowded: bool) -> u64 {
        let round_ns = round_ns(timeout_ns, is_crowded);
        match (1..*ROUND_NS.start()).contains(&timeout_ns) {
            true => self.pace.round_ns(round_ns),
            false => round_ns,
        }
    }

    /// Ends expired sets among the entries of some rows of a shared table.
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
                // What it found before a conflict counts; the rest is visited in the next round.
                let _ = stage.find_expired_shared(on.tx, row, &mut self.shared_expired);
                on.tx.abandon();
            }
            for some in self.shared_expired.chunks(TOGETHER) {
                lives.ended += expire_shared(position, (some, End::Timeout), now_ns, on, witness);
            }
        }
    }

    /// Visits all slots, regardless of when they were last visited.
    pub(crate) fn finish(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        self.cursor = 0;
        loop {
            self.visit(now_ns, SLOTS_MAX, on, witness);
            if self.cursor == 0 {
                return;
            }
        }
    }

    /// Like [`finish`](Self::finish), for sets in shared state.
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

    /// The part of `all` that is due since the last visit, if `all` is visited once per round.
    fn due(&self, now_ns: u64, round_ns: u64, all: usize) -> usize {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        (all as u128 * u128::from(elapsed_ns) / u128::from(round_ns)).min(all as u128) as usize
    }

    fn visit(&mut self, now_ns: u64, count: usize, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        self.visits = self.visits.wrapping_add(1);
        on.tables.bring_home(self.visits);
        let (now_ms, found) = ((now_ns / NS_PER_MS) as u32, &mut self.found);
        let shortest_ms = on.chain.groups()[on.group].shortest_timeout_ns / NS_PER_MS;
        found.clear();
        on.tables.scan(self.cursor, count, |at, meta| {
            let idle_ms = meta.idle_ms(now_ms);
            // No function has a shorter timeout, so for nearly all sets no function need be asked.
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

    /// Ends the expired sets among those found.
    fn end_found(&mut self, now_ns: u64, on: &mut Expiring<'_>, witness: &mut dyn Witness) {
        for &position in &on.chain.groups()[on.group].stages {
            let stage = &*on.chain.stages()[position];
            self.expired.clear();
            stage.find_expired(on.tables, &self.found, &mut self.expired);
            let mut next = self.expired.chunks(TOGETHER);
            let mut some: &[SetSlot] = &[];
            loop {
                // While some sets end, prefetch the data of the next ones.
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
            // Live for no function: expired just now, or when a packet arrived after which it did not become live again.
            if on.tables.meta_mut(at).live == 0 {
                on.tables.remove(at);
            }
        }
    }
}

/// Whether more than three quarters of the room is taken.
fn is_crowded(live: usize, room: usize) -> bool {
    live > room / 4 * 3
}

/// The duration of a round in nanoseconds if no set has a shorter timeout than `timeout_ns`; a timeout of 0 means unknown.
fn round_ns(timeout_ns: u64, is_crowded: bool) -> u64 {
    let round_ns = (timeout_ns / ROUND_PART).clamp(*ROUND_NS.start(), *ROUND_NS.end());
    match is_crowded && timeout_ns > 0 {
        true => round_ns.min(timeout_ns / CROWDED_PART).max(CROWDED_NS_MIN),
        false => round_ns,
    }
}

/// Ends shared sets that exist and, for [`End::Timeout`], are still past their timeout; in one transaction if it succeeds, otherwise one by
/// one. Returns how many ended.
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

/// Ends a shared set if it is to end; returns whether it did.
pub(crate) fn end_shared(stage: &dyn Stage, event: &mut Event<'_>, key: &SetKey, why: End) -> Result<bool, Conflict> {
    match why {
        End::Timeout => stage.expire_shared(event, key),
        End::Chosen => stage.end_shared(event, key),
    }
}

/// Ends sets for one function, in one transaction if it succeeds, otherwise one by one: runs their handlers and clears their live bits.
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
