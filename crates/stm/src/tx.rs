//! A worker's transaction: begin, read, write, go back, abort. Committing is in `commit.rs`.

use std::panic::Location;
use std::sync::Arc;

use crate::arena::Arena;
use crate::boosted::Boosted;
use crate::conflict::{Conflict, ConflictKind, ConflictReport, ObjectId, Op, Position};
use crate::domain::Domain;
use crate::header::Header;
use crate::hooks::{Hooks, YieldPoint};
use crate::log::{ReadEntry, Savepoint, WriteLog};
use crate::raw::object::ObjectRef;
use crate::sync::{Ordering, model_fence, pause};

mod accesses;
mod order;
mod raise;

pub use accesses::Access;

/// Aborts in a row after which a worker asks for its turn, unless [`Tx::set_patience`] says otherwise.
pub const PATIENCE: u32 = 8;

/// How often a locked object is looked at before giving up.
const SPINS: u32 = if cfg!(loom) { 2 } else { 64 };

/// Why an access must leave the fast path: bits of `Tx::slow`.
pub(crate) mod slow {
    /// No access yet since the last commit or abort.
    pub(crate) const IDLE: u8 = 1;
    /// A conflict was returned and not yet rolled back.
    pub(crate) const POISONED: u8 = 2;
    /// Recording, replaying or scheduled.
    pub(crate) const HOOKED: u8 = 4;
    /// Something went wrong or a turn is wanted: the next attempt begins slowly.
    pub(crate) const CAREFUL: u8 = 8;
}

/// Counters of one worker, in transactions unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits that changed something.
    pub updates: u64,
    /// Commits that only read.
    pub read_only: u64,
    /// Conflicts returned.
    pub conflicts: u64,
    /// Times the clock was moved and the read log validated again.
    pub extensions: u64,
    /// Turns taken.
    pub turns: u64,
}

pub(crate) struct Deferred {
    pub(crate) object: ObjectId,
    pub(crate) action: u32,
    pub(crate) argument: u64,
    pub(crate) source: &'static Location<'static>,
    /// Taken back by a later action of the same attempt.
    pub(crate) retracted: bool,
    /// The action that this one took back.
    retracts: Option<usize>,
}

/// One worker's transaction, used for all its attempts one after another.
///
/// It begins by itself with the first access; [`commit`](Tx::commit) or [`abort`](Tx::abort) end it. Made on one thread, it
/// may move to its worker's.
pub struct Tx {
    pub(crate) slow: u8,
    /// Every unlocked header below this is at most as new as the snapshot.
    limit: u64,
    pub(crate) owner: u64,
    domain_id: u64,
    pub(crate) reads: Vec<ReadEntry>,
    pub(crate) writes: WriteLog,
    pub(crate) deferred: Vec<Deferred>,
    scratch: Vec<u64>,
    now: u64,
    worker: usize,
    pub(crate) last_version: u64,
    pub(crate) domain: Arc<Domain>,
    pub(crate) hooks: Option<Box<Hooks>>,
    boosted: Vec<Option<Arc<dyn Boosted>>>,
    report: Option<ConflictReport>,
    pub(crate) failures: u32,
    patience: u32,
    wants_turn: bool,
    waits_for_turn: bool,
    ticket: Option<u64>,
    pub(crate) stats: Stats,
}

impl Tx {
    /// The transaction of a worker. One can exist per worker and domain at a time (panics otherwise: two would take each
    /// other's locks for their own).
    pub fn new(domain: &Arc<Domain>, worker: usize) -> Tx {
        domain.claim(worker);
        Tx {
            slow: slow::IDLE,
            limit: 0,
            owner: worker as u64,
            domain_id: domain.id(),
            reads: Vec::with_capacity(4096),
            writes: WriteLog::new(),
            deferred: Vec::with_capacity(64),
            scratch: Vec::with_capacity(64),
            now: 0,
            worker,
            last_version: 0,
            domain: Arc::clone(domain),
            hooks: None,
            boosted: Vec::new(),
            report: None,
            failures: 0,
            patience: PATIENCE,
            wants_turn: false,
            waits_for_turn: false,
            ticket: None,
            stats: Stats::default(),
        }
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The time that handlers see, in nanoseconds; fixed while a packet is processed.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sets the time, in nanoseconds.
    #[inline(always)]
    pub fn set_now(&mut self, ns: u64) {
        self.now = ns;
    }

    /// The worker whose parts and pools the structures use.
    #[inline(always)]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Acts as another worker: a replay runs all workers' transactions, one after another.
    pub fn set_worker(&mut self, worker: usize) {
        assert!(worker < self.domain.workers(), "worker {worker} of {}", self.domain.workers());
        self.worker = worker;
    }

    /// Counters since the beginning.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Aborts in a row after which the worker asks for its turn.
    pub fn set_patience(&mut self, aborts: u32) {
        self.patience = aborts.max(1);
    }

    /// No access of shared state since the last commit, abort or roll back to the beginning: committing is free.
    #[inline(always)]
    pub fn is_untouched(&self) -> bool {
        self.slow & slow::IDLE != 0
    }

    /// [Untouched](Tx::is_untouched), with nobody watching and no turn wanted: the way back is to the beginning, which is
    /// where `Savepoint::default()` goes.
    #[inline(always)]
    pub fn is_fresh(&mut self) -> bool {
        self.slow == slow::IDLE || self.is_fresh_in_a_model()
    }

    /// Reads logged and writes buffered by the attempt so far.
    #[inline]
    pub fn footprint(&self) -> (usize, usize) {
        (self.reads.len(), self.writes.len())
    }

    /// The latest conflict of this worker; kept until the next one.
    pub fn last_conflict(&self) -> Option<&ConflictReport> {
        self.report.as_ref()
    }

    /// Reads the first `W` words of an object.
    #[inline(always)]
    #[track_caller]
    pub fn read<const W: usize>(&mut self, arena: &Arena, index: u32, op: Op) -> Result<[u64; W], Conflict> {
        let mut out = [0; W];
        self.read_into(arena, index, op, &mut out)?;
        Ok(out)
    }

    /// Reads the first `out.len()` words of an object.
    #[inline(always)]
    #[track_caller]
    pub fn read_into(&mut self, arena: &Arena, index: u32, op: Op, out: &mut [u64]) -> Result<(), Conflict> {
        assert!(out.len() <= arena.payload_words());
        let object = self.enter(arena, index)?;
        if let Some(position) = self.writes.find(object) {
            out.copy_from_slice(&self.writes.value(self.writes.entry(position))[..out.len()]);
            return Ok(());
        }
        let mut seen = object.load();
        if !(seen.is_readable(self.limit, self.owner) && object.copy_to(out, seen)) {
            seen = self.read_slowly(object, arena.payload_words(), op, Location::caller())?;
            out.copy_from_slice(&self.scratch[..out.len()]);
        }
        self.reads.push(ReadEntry { object, seen, source: Location::caller(), op });
        Ok(())
    }

    /// Reads all words of an object into the transaction's own memory.
    #[inline(always)]
    #[track_caller]
    pub fn read_ref(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        let object = self.enter(arena, index)?;
        if let Some(position) = self.writes.find(object) {
            return Ok(self.writes.value(self.writes.entry(position)));
        }
        let words = arena.payload_words();
        let seen = self.read_to_scratch(object, words, op)?;
        self.reads.push(ReadEntry { object, seen, source: Location::caller(), op });
        Ok(&self.scratch[..words])
    }

    /// Reads an object of the snapshot without logging it: true together with everything read so far, but a later change
    /// does not stop the commit. For hints that a logged read confirms.
    #[inline(always)]
    #[track_caller]
    pub fn read_unlogged(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        let object = self.enter(arena, index)?;
        if let Some(position) = self.writes.find(object) {
            return Ok(self.writes.value(self.writes.entry(position)));
        }
        let words = arena.payload_words();
        self.read_to_scratch(object, words, op)?;
        Ok(&self.scratch[..words])
    }

    /// The newest committed value of an object (or the one buffered here), whatever the snapshot is, and not logged. Even
    /// weaker than [`read_unlogged`](Tx::read_unlogged), but it never moves the snapshot.
    #[inline(always)]
    #[track_caller]
    pub fn peek(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        let object = self.enter(arena, index)?;
        if let Some(position) = self.writes.find(object) {
            return Ok(self.writes.value(self.writes.entry(position)));
        }
        let words = arena.payload_words();
        self.widen_scratch(words);
        let mut spins = 0;
        loop {
            let header = object.load();
            if !header.is_locked() && object.copy_to(&mut self.scratch[..words], header) {
                return Ok(&self.scratch[..words]);
            }
            self.wait_for_lock(object, header, &mut spins, op, Location::caller())?;
        }
    }

    /// Whether an object that this attempt has read is still as it was read.
    #[inline(always)]
    #[track_caller]
    pub fn confirm(&mut self, arena: &Arena, index: u32, op: Op) -> Result<(), Conflict> {
        let object = self.enter(arena, index)?;
        let now = object.load();
        let logged = self.reads.iter().rposition(|entry| entry.object == object);
        let (seen, position) = match (logged, self.writes.find(object)) {
            (Some(position), _) => (self.reads[position].seen, Position::Read(position)),
            (None, Some(position)) => (self.writes.entry(position).seen, Position::Write(position)),
            (None, None) => return Ok(()),
        };
        if now == seen || seen == Header::NONE {
            return Ok(());
        }
        Err(self.raise(ConflictKind::Changed, Some(object), now, op, Location::caller(), position))
    }

    /// Buffers new values for the first `W` words of an object; the others keep theirs only if `W` is the arena's width or
    /// they were buffered already, else they become zero.
    #[inline(always)]
    #[track_caller]
    pub fn write<const W: usize>(
        &mut self,
        arena: &Arena,
        index: u32,
        value: &[u64; W],
        op: Op,
    ) -> Result<(), Conflict> {
        self.write_ref(arena, index, op)?[..W].copy_from_slice(value);
        Ok(())
    }

    /// The words to be written to an object: what this attempt has buffered for it already, else zeroes.
    #[inline(always)]
    #[track_caller]
    pub fn write_ref(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&mut [u64], Conflict> {
        let object = self.enter(arena, index)?;
        let vacant = match self.writes.probe(object) {
            Ok(position) => return Ok(self.writes.put_again(position, op, Location::caller())),
            Err(vacant) => vacant,
        };
        let words = arena.payload_words();
        self.writes.room(words).fill(0);
        Ok(self.writes.push_new(object, vacant, words, Header::NONE, op, Location::caller()))
    }

    /// Reads all words of an object and returns them as the words to be written to it.
    #[inline(always)]
    #[track_caller]
    pub fn update_ref(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&mut [u64], Conflict> {
        let object = self.enter(arena, index)?;
        let vacant = match self.writes.probe(object) {
            Ok(position) => return Ok(self.writes.put_again(position, op, Location::caller())),
            Err(vacant) => vacant,
        };
        let words = arena.payload_words();
        let mut seen = object.load();
        if !(seen.is_readable(self.limit, self.owner) && object.copy_to(self.writes.room(words), seen)) {
            seen = self.read_slowly(object, words, op, Location::caller())?;
            self.writes.room(words).copy_from_slice(&self.scratch[..words]);
        }
        Ok(self.writes.push_new(object, vacant, words, seen, op, Location::caller()))
    }

    /// Notes an action of a boosted structure: done at commit, undone if this attempt does not commit.
    #[track_caller]
    pub fn defer(&mut self, object: ObjectId, action: u32, argument: u64) {
        self.slow_begin_if_idle();
        let source = Location::caller();
        self.deferred.push(Deferred { object, action, argument, source, retracted: false, retracts: None });
    }

    /// Whether this attempt has noted an action for which `which(action, argument)` holds.
    pub fn has_deferred(&self, object: ObjectId, which: impl Fn(u32, u64) -> bool) -> bool {
        self.deferred.iter().any(|note| note.object == object && !note.retracted && which(note.action, note.argument))
    }

    /// Takes back the latest noted action for which `which` holds: it will not be applied, but still checked. Notes `instead`
    /// with the same argument, which is returned.
    pub fn retract(&mut self, object: ObjectId, which: impl Fn(u32, u64) -> bool, instead: u32) -> Option<u64> {
        let is_it = |note: &Deferred| note.object == object && !note.retracted && which(note.action, note.argument);
        let position = self.deferred.iter().rposition(is_it)?;
        self.deferred[position].retracted = true;
        let Deferred { argument, source, .. } = self.deferred[position];
        let retracts = Some(position);
        self.deferred.push(Deferred { object, action: instead, argument, source, retracted: false, retracts });
        Some(argument)
    }

    /// The place to go back to, between two packets of a batch.
    pub fn savepoint(&mut self) -> Savepoint {
        let logged = self.reads.len() + self.writes.len();
        self.yield_at(YieldPoint::Packet { logged });
        let (writes, values, replaced) = self.writes.mark();
        Savepoint {
            active: !self.is_untouched(),
            reads: self.reads.len(),
            writes,
            values,
            replaced,
            deferred: self.deferred.len(),
            choices: self.hooks.as_ref().map_or(0, |hooks| if hooks.done { 0 } else { hooks.made }),
        }
    }

    /// Forgets everything since a savepoint of this attempt, a conflict included. Savepoints taken later are void.
    pub fn rollback(&mut self, to: &Savepoint) {
        self.undo(to.deferred);
        self.reads.truncate(to.reads);
        self.writes.truncate(to);
        if let Some(hooks) = &mut self.hooks {
            hooks.made = to.choices;
        }
        self.slow &= !slow::POISONED;
        if !to.active {
            self.slow |= slow::IDLE;
        }
    }

    /// Whether the latest conflict lies behind a savepoint of this attempt: what came before may still commit.
    pub fn survives(&self, savepoint: &Savepoint) -> bool {
        match self.report.as_ref().map(|report| report.position) {
            Some(Position::Read(position)) => position >= savepoint.reads,
            Some(Position::Write(position)) => position >= savepoint.writes,
            Some(Position::End) | None => true,
            Some(Position::All) => false,
        }
    }

    /// Ends the attempt as if it had never been. A turn is kept for the next attempt.
    pub fn abort(&mut self) {
        self.undo(0);
        if let Some(hooks) = &mut self.hooks {
            hooks.made = 0;
        }
        self.clear();
    }

    #[inline(always)]
    fn widen_scratch(&mut self, words: usize) {
        if self.scratch.len() < words {
            self.scratch.resize(words, 0);
        }
    }

    #[inline(always)]
    fn enter(&mut self, arena: &Arena, index: u32) -> Result<ObjectRef, Conflict> {
        if self.slow == slow::IDLE {
            self.begin();
        } else if self.slow != 0 {
            self.enter_slowly(arena, index)?;
        }
        Ok(arena.object(index, self.domain_id))
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&mut self, arena: &Arena, index: u32) -> Result<(), Conflict> {
        if self.slow & slow::POISONED != 0 {
            return Err(Conflict::TOKEN);
        }
        self.slow_begin_if_idle();
        if self.slow & slow::HOOKED != 0 {
            self.yield_at(YieldPoint::Read);
            self.yield_at(YieldPoint::Touch { line: arena.object(index, self.domain_id).address(), write: false });
        }
        Ok(())
    }

    fn slow_begin_if_idle(&mut self) {
        if self.slow & slow::IDLE == 0 {
            return;
        }
        if let Some(hooks) = &mut self.hooks {
            hooks.renew();
        }
        if self.ticket.is_none() && (self.wants_turn || self.failures >= self.patience) {
            self.enter_turn();
        } else if self.waits_for_turn {
            let mut round = 0;
            while self.domain.turn.is_other(self.owner).is_some() {
                self.wait(&mut round);
            }
        }
        self.waits_for_turn = false;
        self.slow &= !slow::CAREFUL;
        self.yield_at(YieldPoint::Begin);
        self.begin();
    }

    #[inline(always)]
    fn begin(&mut self) {
        self.slow &= !slow::IDLE;
        // SeqCst: if this sees a commit's version or a later one, that commit had locked its objects before (it read the
        // clock afterwards), so the header loads below see its locks or its new headers. Partner: `lock` in raw/object.rs.
        let now = self.domain.clock.load(Ordering::SeqCst);
        model_fence();
        self.limit = Header::above(now);
    }

    fn enter_turn(&mut self) {
        let ticket = self.domain.turn.ask();
        let mut round = 0;
        while !self.domain.turn.try_enter(ticket, self.owner) {
            self.wait(&mut round);
        }
        self.ticket = Some(ticket);
        self.wants_turn = false;
        self.stats.turns += 1;
    }

    pub(crate) fn wait(&mut self, round: &mut u32) {
        match &mut self.hooks {
            Some(hooks) if hooks.yielding.is_some() => hooks.at(YieldPoint::Wait),
            _ => pause(*round),
        }
        *round = round.saturating_add(1);
    }

    #[inline(always)]
    pub(crate) fn yield_at(&mut self, point: YieldPoint) {
        if let Some(hooks) = &mut self.hooks {
            hooks.at(point);
        }
    }

    /// Copies an object as of the snapshot, moving the snapshot if the object is newer.
    #[inline(always)]
    #[track_caller]
    fn read_to_scratch(&mut self, object: ObjectRef, words: usize, op: Op) -> Result<Header, Conflict> {
        self.widen_scratch(words);
        let header = object.load();
        if header.is_readable(self.limit, self.owner) && object.copy_to(&mut self.scratch[..words], header) {
            return Ok(header);
        }
        self.read_slowly(object, words, op, Location::caller())
    }

    #[inline(never)]
    fn read_slowly(
        &mut self,
        object: ObjectRef,
        words: usize,
        op: Op,
        source: &'static Location<'static>,
    ) -> Result<Header, Conflict> {
        self.widen_scratch(words);
        let mut spins = 0;
        loop {
            let header = object.load();
            if header.is_locked() {
                self.wait_for_lock(object, header, &mut spins, op, source)?;
                continue;
            }
            // Own versions are from earlier transactions of this worker, hence older than this snapshot whatever they say.
            if !header.is_readable(self.limit, self.owner) {
                self.extend(header.version())?;
                continue;
            }
            if object.copy_to(&mut self.scratch[..words], header) {
                return Ok(header);
            }
        }
    }

    /// Moves the snapshot to now, if everything read so far still holds.
    #[cold]
    fn extend(&mut self, version: u64) -> Result<(), Conflict> {
        self.stats.extensions += 1;
        self.domain.clock.fetch_max(version, Ordering::SeqCst);
        let now = self.domain.clock.load(Ordering::SeqCst);
        model_fence();
        for position in 0..self.reads.len() {
            let entry = self.reads[position];
            let header = entry.object.load();
            if header != entry.seen {
                let kind = if header.is_locked() { ConflictKind::Locked } else { ConflictKind::Changed };
                return Err(self.raise_read(kind, position, header));
            }
        }
        for position in 0..self.writes.len() {
            let entry = *self.writes.entry(position);
            let header = entry.object.load();
            if entry.seen != Header::NONE && header != entry.seen {
                return Err(self.raise_write(position, header));
            }
        }
        self.limit = Header::above(now);
        Ok(())
    }

    #[cold]
    fn wait_for_lock(
        &mut self,
        object: ObjectRef,
        header: Header,
        spins: &mut u32,
        op: Op,
        source: &'static Location<'static>,
    ) -> Result<(), Conflict> {
        // Whoever has the turn may wait: a lock holder never waits for anything.
        if *spins >= SPINS && self.ticket.is_none() {
            return Err(self.raise(ConflictKind::Locked, Some(object), header, op, source, Position::End));
        }
        self.wait(spins);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.slow = (self.slow | slow::IDLE) & !slow::POISONED;
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.abort();
        self.leave_turn();
        self.domain.release(self.owner as usize, self.last_version);
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("worker", &self.worker).field("stats", &self.stats).finish_non_exhaustive()
    }
}
