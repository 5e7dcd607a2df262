//! Writing: new values of objects and actions of boosted structures are buffered until the commit.

use std::panic::Location;

use crate::arena::Arena;
use crate::conflict::{Conflict, ObjectId, Op};
use crate::header::Header;
use crate::log::Author;

use super::{Deferred, Tx};

impl Tx {
    /// Buffers new values for the first `W` words of an object. Any other words keep their buffered values, or become zero if
    /// none were buffered.
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

    /// Returns the words to be written to an object: those that this attempt has already buffered, otherwise zeroes.
    #[inline(always)]
    #[track_caller]
    pub fn write_ref(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&mut [u64], Conflict> {
        let object = self.enter(arena, index)?;
        let author = self.author(op, Location::caller());
        let words = arena.payload_words();
        let vacant = match self.writes.probe(object) {
            Ok(position) => return Ok(self.writes.put_again(position, words, author)),
            Err(vacant) => vacant,
        };
        self.writes.room(words).fill(0);
        Ok(self.writes.push::<true>(object, vacant, words, Header::NONE, author))
    }

    /// Reads all words of an object and returns them as the words to be written to it.
    #[inline(always)]
    #[track_caller]
    pub fn update_ref(&mut self, arena: &Arena, index: u32, op: Op) -> Result<&mut [u64], Conflict> {
        self.update_words(arena, index, arena.payload_words(), op)
    }

    /// Like [`update_ref`](Self::update_ref), for a caller that knows the number of words of the arena's objects; panics if
    /// it differs. If it is a constant, copying and checking need no loop.
    #[inline(always)]
    #[track_caller]
    pub fn update_words(&mut self, arena: &Arena, index: u32, words: usize, op: Op) -> Result<&mut [u64], Conflict> {
        // The message omits the number, because taking its address would keep it from being a constant.
        assert!(arena.payload_words() == words, "objects of another number of words");
        let object = self.enter(arena, index)?;
        let author = self.author(op, Location::caller());
        let vacant = match self.writes.probe(object) {
            Ok(position) => return Ok(self.writes.put_again(position, words, author)),
            Err(vacant) => vacant,
        };
        let mut seen = object.load();
        if !(seen.is_readable(self.limit, self.owner) && object.copy_to(self.writes.room(words), seen)) {
            seen = self.read_slowly(object, words, op, Location::caller())?;
            self.writes.room(words)[..words].copy_from_slice(&self.scratch[..words]);
        }
        Ok(self.writes.push::<false>(object, vacant, words, seen, author))
    }

    #[inline(always)]
    fn author(&self, op: Op, source: &'static Location<'static>) -> Author {
        Author { signature: Header::signature(op, self.owner), source }
    }

    /// Notes an action of a boosted structure, to be applied at commit, or undone if this attempt does not commit.
    #[track_caller]
    pub fn defer(&mut self, object: ObjectId, action: u32, argument: u64) {
        self.slow_begin_if_idle();
        let source = Location::caller();
        self.deferred.push(Deferred { object, action, argument, source, retracted: false, retracts: None });
    }

    /// Returns whether this attempt has noted an action that satisfies `which(action, argument)`.
    pub fn has_deferred(&self, object: ObjectId, which: impl Fn(u32, u64) -> bool) -> bool {
        self.deferred.iter().any(|note| note.object == object && !note.retracted && which(note.action, note.argument))
    }

    /// Returns the number of actions that this attempt has noted.
    #[inline(always)]
    pub fn deferrals(&self) -> usize {
        self.deferred.len()
    }

    /// Returns whether this attempt has noted an action of a structure after the first `deferrals` ones.
    #[inline(always)]
    pub fn has_deferred_since(&self, deferrals: usize, object: ObjectId) -> bool {
        self.deferred.iter().skip(deferrals).any(|note| note.object == object)
    }

    /// Retracts the latest noted action that satisfies `which`: it will still be checked but not applied. Notes `instead`
    /// with the same argument, and returns the argument.
    pub fn retract(&mut self, object: ObjectId, which: impl Fn(u32, u64) -> bool, instead: u32) -> Option<u64> {
        let is_it = |note: &Deferred| note.object == object && !note.retracted && which(note.action, note.argument);
        let position = self.deferred.iter().rposition(is_it)?;
        self.deferred[position].retracted = true;
        let Deferred { argument, source, .. } = self.deferred[position];
        let retracts = Some(position);
        self.deferred.push(Deferred { object, action: instead, argument, source, retracted: false, retracts });
        Some(argument)
    }
}
