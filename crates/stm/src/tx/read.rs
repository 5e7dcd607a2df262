//! Reading objects as of the snapshot. Reads are logged; if an object is newer than the snapshot, the snapshot moves,
//! provided that nothing read so far has changed.

use std::marker::PhantomData;
use std::panic::Location;

use crate::arena::Arena;
use crate::conflict::{Conflict, ConflictKind, Op, Position};
use crate::header::Header;
use crate::log::ReadEntry;
use crate::raw::object::{ObjectRef, span};
use crate::sync::{Ordering, model_fence};

use super::{Tx, slow};

/// Number of looks at a locked object before giving up.
const SPINS: u32 = if cfg!(loom) { 2 } else { 64 };

/// The first `W` words of an object at a recent moment. It borrows the arena's handle, hence keeps its memory:
///
/// ```compile_fail,E0505
/// # use braid_stm::{Arena, Conflict, Op, Tx};
/// fn keep(tx: &mut Tx, arena: Arena) -> Result<bool, Conflict> {
///     let glance = tx.glance::<1>(&arena, 0, Op::new(1))?;
///     drop(arena);
///     Ok(tx.hold(&glance, Op::new(1)))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a, const W: usize> {
    words: [u64; W],
    arena: &'a Arena,
    object: ObjectRef,
    /// `NONE` if the words were buffered by this attempt itself.
    seen: Header,
}

impl<const W: usize> Glance<'_, W> {
    /// The words.
    #[inline(always)]
    pub fn words(&self) -> &[u64; W] {
        &self.words
    }
}

/// The right to read one object once, outside of any attempt. A single read of one object is a transaction of its own, with
/// nothing to log and nothing to roll back. Two copies of the right would permit reads at two instants that do not belong
/// together, so it cannot be copied:
///
/// ```compile_fail,E0382
/// # use braid_stm::{Arena, Tx};
/// fn both(tx: &Tx, arena: &Arena, out: &mut [[u64; 1]; 2]) -> Option<bool> {
///     let alone = tx.alone()?;
///     Some(alone.read(arena, 0, &mut out[0]) && alone.read(arena, 1, &mut out[1]))
/// }
/// ```
#[derive(Debug)]
pub struct Alone<'a> {
    domain: u64,
    tx: PhantomData<&'a Tx>,
}

/// Proof that no attempt begins and nothing observes while it exists: it yields any number of [`Alone`] rights, one after
/// another, after a single check of the transaction.
#[derive(Debug)]
pub struct Solitude<'a>(Alone<'a>);

impl<'a> Solitude<'a> {
    /// Returns the right to another transaction of one read.
    #[inline(always)]
    pub fn alone(&self) -> Alone<'a> {
        Alone { ..self.0 }
    }
}

impl Alone<'_> {
    /// Reads the first `out.len()` words of an object. Returns `false` if the object is being written; the contents of `out`
    /// are then meaningless.
    #[inline(always)]
    pub fn read(self, arena: &Arena, index: u32, out: &mut [u64]) -> bool {
        assert!(out.len() <= arena.payload_words());
        let object = arena.object(index, self.domain);
        let seen = object.load();
        !seen.is_locked() && object.copy_to(out, seen)
    }
}

impl Tx {
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
            out.copy_from_slice(&self.buffered(position)[..out.len()]);
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

    /// Returns the right to a transaction of one read, if no attempt has begun and nothing observes.
    #[inline(always)]
    pub fn alone(&self) -> Option<Alone<'_>> {
        (self.slow == slow::IDLE).then_some(Alone { domain: self.domain_id, tx: PhantomData })
    }

    /// Returns the right to any number of such transactions, until the next access.
    #[inline(always)]
    pub fn solitude(&self) -> Option<Solitude<'_>> {
        self.alone().map(Solitude)
    }

    /// Reads all words of an object into the transaction's own memory.
    #[inline(always)]
    #[track_caller]
    pub fn read_ref(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        self.read_own::<true>(arena, index, op)
    }

    /// Reads an object of the snapshot without logging it. The value is consistent with everything read so far, but a later
    /// change does not prevent the commit. For hints that a logged read confirms.
    #[inline(always)]
    #[track_caller]
    pub fn read_unlogged(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        self.read_own::<false>(arena, index, op)
    }

    /// Reads the newest committed value of an object (or the one buffered here), regardless of the snapshot and without
    /// logging. Weaker than [`read_unlogged`](Tx::read_unlogged), but it never moves the snapshot.
    #[inline(always)]
    #[track_caller]
    pub fn peek(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        let object = match self.seek(arena, index)? {
            Ok(object) => object,
            Err(position) => return Ok(self.buffered(position)),
        };
        let words = arena.payload_words();
        self.widen_scratch(words);
        let mut spins = 0;
        loop {
            let header = object.load();
            if !header.is_locked() && object.copy_to(&mut self.scratch[..span(words)], header) {
                return Ok(&self.scratch[..words]);
            }
            self.wait_for_lock(object, header, &mut spins, op, Location::caller())?;
        }
    }

    /// Like [`peek`](Tx::peek), but the result can be turned into a logged read later by [`hold`](Tx::hold).
    #[inline(always)]
    #[track_caller]
    pub fn glance<'a, const W: usize>(
        &mut self,
        arena: &'a Arena,
        index: u32,
        op: Op,
    ) -> Result<Glance<'a, W>, Conflict> {
        assert!(W <= arena.payload_words());
        let object = self.enter(arena, index)?;
        let mut words = [0; W];
        if let Some(position) = self.writes.find(object) {
            words.copy_from_slice(&self.buffered(position)[..W]);
            return Ok(Glance { words, arena, object, seen: Header::NONE });
        }
        let mut spins = 0;
        loop {
            let seen = object.load();
            if !seen.is_locked() && object.copy_to(&mut words, seen) {
                return Ok(Glance { words, arena, object, seen });
            }
            self.wait_for_lock(object, seen, &mut spins, op, Location::caller())?;
        }
    }

    /// Logs an earlier glance of this attempt as a read. Returns `false`, without logging, if the object has changed since or
    /// is newer than the snapshot; it must then be read.
    #[inline(always)]
    #[track_caller]
    pub fn hold<const W: usize>(&mut self, glance: &Glance<'_, W>, op: Op) -> bool {
        let Glance { arena, object, seen, .. } = *glance;
        arena.check(self.domain_id);
        if seen == Header::NONE {
            // Buffered by this attempt itself.
            return true;
        }
        // Header words never recur, so what was copied under this header is what a read would return now.
        if object.load() != seen || !seen.is_readable(self.limit, self.owner) {
            return false;
        }
        self.reads.push(ReadEntry { object, seen, source: Location::caller(), op });
        true
    }

    /// Checks that an object that this attempt has read is still unchanged.
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

    /// Starts an access: returns the object, or the position of the value that this attempt has buffered for it.
    #[inline(always)]
    fn seek(&mut self, arena: &Arena, index: u32) -> Result<Result<ObjectRef, usize>, Conflict> {
        let object = self.enter(arena, index)?;
        Ok(self.writes.find(object).map_or(Ok(object), Err))
    }

    #[inline(always)]
    fn buffered(&self, position: usize) -> &[u64] {
        self.writes.value(self.writes.entry(position))
    }

    /// Reads an object of the snapshot, or the value buffered for it, into the transaction's own memory.
    #[inline(always)]
    #[track_caller]
    fn read_own<const LOGGED: bool>(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&[u64], Conflict> {
        let object = match self.seek(arena, index)? {
            Ok(object) => object,
            Err(position) => return Ok(self.buffered(position)),
        };
        let words = arena.payload_words();
        let seen = self.read_to_scratch(object, words, op)?;
        if LOGGED {
            self.reads.push(ReadEntry { object, seen, source: Location::caller(), op });
        }
        Ok(&self.scratch[..words])
    }

    #[inline(always)]
    fn widen_scratch(&mut self, words: usize) {
        if self.scratch.len() < span(words) {
            self.scratch.resize(span(words), 0);
        }
    }

    /// Copies an object as of the snapshot, moving the snapshot if the object is newer.
    #[inline(always)]
    #[track_caller]
    fn read_to_scratch(&mut self, object: ObjectRef, words: usize, op: Op) -> Result<Header, Conflict> {
        self.widen_scratch(words);
        let header = object.load();
        if header.is_readable(self.limit, self.owner) && object.copy_to(&mut self.scratch[..span(words)], header) {
            return Ok(header);
        }
        self.read_slowly(object, words, op, Location::caller())
    }

    #[inline(never)]
    pub(super) fn read_slowly(
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
            // Own versions come from earlier transactions of this worker and are therefore older than this snapshot, whatever
            // their number.
            if !header.is_readable(self.limit, self.owner) {
                self.extend(header.version())?;
                continue;
            }
            if object.copy_to(&mut self.scratch[..span(words)], header) {
                return Ok(header);
            }
        }
    }

    /// Moves the snapshot to the present, if everything read so far is unchanged.
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
        // The worker that holds the turn may wait: a lock holder never waits for anything.
        if *spins >= SPINS && self.ticket.is_none() {
            return Err(self.raise(ConflictKind::Locked, Some(object), header, op, source, Position::End));
        }
        self.wait(spins);
        Ok(())
    }
}
