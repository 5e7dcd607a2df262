//! Writing: new values of objects, and actions of boosted structures, are buffered until the commit.

use std::panic::Location;

use crate::arena::Arena;
use crate::conflict::{Conflict, ObjectId, Op};
use crate::header::Header;
use crate::log::Author;

use super::{Deferred, Tx};

impl Tx {
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

    /// The same for a caller that knows how many words the arena's objects have (panics if they have others): if that is a
    /// constant, no loop is left of copying and checking them.
    #[inline(always)]
    #[track_caller]
    pub fn update_words(&mut self, arena: &Arena, index: u32, words: usize, op: Op) -> Result<&mut [u64], Conflict> {
        // Without the number in its message: whose address is taken is no constant any more.
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

    /// How many actions this attempt has noted.
    #[inline(always)]
    pub fn deferrals(&self) -> usize {
        self.deferred.len()
    }

    /// Whether this attempt has noted an action for an object since it had noted so many.
    #[inline(always)]
    pub fn has_deferred_since(&self, deferrals: usize, object: ObjectId) -> bool {
        self.deferred.iter().skip(deferrals).any(|note| note.object == object)
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
}
