//! How an attempt fails: the conflict that it reports, and the deferred actions that are undone.

use std::panic::Location;

use crate::boosted::Boosted;
use crate::conflict::{Conflict, ConflictKind, ConflictReport, ObjectId, Op, Part, Position};
use crate::header::Header;
use crate::log::ReadEntry;
use crate::raw::object::ObjectRef;

use super::{Deferred, Tx, slow};

impl Tx {
    pub(crate) fn raise_read(&mut self, kind: ConflictKind, position: usize, header: Header) -> Conflict {
        let ReadEntry { object, seen: _, source, op } = self.reads[position];
        self.raise(kind, Some(object), header, op, source, Position::Read(position))
    }

    pub(crate) fn raise_write(&mut self, position: usize, header: Header) -> Conflict {
        let kind = if header.is_locked() { ConflictKind::Locked } else { ConflictKind::Changed };
        let entry = *self.writes.entry(position);
        self.raise(kind, Some(entry.object), header, entry.op(), entry.source, Position::Write(position))
    }

    /// Raises a conflict because a structure no longer permits a deferred action.
    #[cold]
    pub(crate) fn raise_refused(&mut self, object: ObjectId, source: &'static Location<'static>) -> Conflict {
        let conflict = self.raise(ConflictKind::Refused, None, Header(0), Op::new(0), source, Position::All);
        if let Some(report) = &mut self.report {
            report.object = Some(object);
        }
        conflict
    }

    /// Makes the commit of this attempt fail, whatever it has accessed; used to measure the cost of another attempt.
    #[cold]
    #[track_caller]
    pub fn refuse(&mut self) {
        let source = Location::caller();
        // The commit reports it.
        let _conflict = self.raise(ConflictKind::Refused, None, Header(0), Op::new(0), source, Position::All);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn raise(
        &mut self,
        kind: ConflictKind,
        object: Option<ObjectRef>,
        theirs: Header,
        mine: Op,
        location: &'static Location<'static>,
        position: Position,
    ) -> Conflict {
        self.slow |= slow::POISONED | slow::CAREFUL;
        self.stats.conflicts += 1;
        self.failures = self.failures.saturating_add(1);
        self.waits_for_turn |= kind == ConflictKind::Turn;
        let place = object.and_then(|object| self.domain.identify(object));
        self.report = Some(ConflictReport {
            kind,
            object: place.map(|(id, _, _)| id),
            part: place.map_or(Part::default(), |(_, part, _)| part),
            index: place.map_or(0, |(_, _, index)| index),
            mine,
            theirs: theirs.op(),
            other: theirs.owner() as usize,
            location,
            position,
        });
        Conflict::TOKEN
    }

    pub(super) fn undo(&mut self, keep: usize) {
        while self.deferred.len() > keep {
            match self.deferred.pop() {
                Some(Deferred { retracts: Some(position), .. }) => self.deferred[position].retracted = false,
                Some(note) => {
                    let worker = self.worker;
                    self.boosted(note.object).undo(worker, note.action, note.argument);
                }
                None => {}
            }
        }
    }

    /// Returns the structure that deferred an action. It is borrowed, because reference counting would cost two atomic
    /// operations per action.
    #[inline(always)]
    pub(crate) fn boosted(&mut self, object: ObjectId) -> &dyn Boosted {
        let at = object.0 as usize;
        if self.boosted.get(at).is_none_or(Option::is_none) {
            self.meet_boosted(object);
        }
        match &self.boosted[at] {
            Some(boosted) => &**boosted,
            None => unreachable!("deferred actions of object {at}, which has none attached"),
        }
    }

    /// Looks up a single structure, so that structures that are not used can still be dropped.
    #[cold]
    #[inline(never)]
    fn meet_boosted(&mut self, object: ObjectId) {
        let at = object.0 as usize;
        self.boosted.resize(self.boosted.len().max(at + 1), None);
        self.boosted[at] = self.domain.boosted(object);
    }
}
