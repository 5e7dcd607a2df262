//! An object that takes the place of another one of its kind, of another size: what that one holds comes over element by element,
//! while transactions change it.
//!
//! As a virtual machine is migrated while it runs, only that whoever changes an element brings it over again, before its next batch:
//! so at the end, when everybody stands still, nothing is left to be copied.
//!
//! 1. Every worker notes which elements it changes ([`Bringing::begin`]). When all of them do, the [`Succession`] opens.
//! 2. Between two batches a worker brings over what it has changed, and a few of those elements more that nobody has brought over yet
//!    ([`Bringing::bring`]), until all were brought once.
//! 3. The workers stand still, and each brings over what it has changed last ([`Bringing::end`]).
//!
//! Then both objects are equal. For an element is brought over as it is at that moment, by one thread at a time: what is
//! brought later is at least as new. And the last who changed an element has brought it over after that; an element that nobody
//! has changed since the succession opened was brought over once since.
//!
//! Elements keep their numbers and generations, so whatever a function remembers of them stays right. An object can be smaller if
//! nothing that is in use has a number beyond its end.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use braid_stm::{Arena, Tx};

use crate::image::ImageError;
use crate::object::StateObject;

/// Most elements that [`Bringing::bring`] brings over besides those that its worker has changed.
pub const BROUGHT_MAX: usize = 32;
/// Most elements that it looks at for that: most may never have been used.
const LOOKED_AT_MAX: usize = 512;

/// What became of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// It was there already as it is.
    Nothing,
    /// It is there now.
    Whole,
    /// It is in use, and its number lies beyond the end.
    Beyond,
}

/// A structure that can take the place of another one of its kind.
pub trait Succeed {
    /// The arena whose objects are its elements. All of it that is to be kept follows from them, or is [noted](Tx::note_change) with them.
    fn elements(&self) -> &Arena;
    /// Whether elements of `former` can be its own; an error says what differs.
    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError>;
    /// Touches the memory that is needed for the elements of `former`.
    fn touch(&self, former: &dyn StateObject) {
        self.elements().touch(former.elements().objects());
    }
    /// Has element `index` as `former`, which was checked, has it at this moment: as it is, if nothing else has to follow; one beyond the end
    /// is left behind. By one thread at a time, before any transaction uses this object.
    fn bring(&self, former: &dyn StateObject, index: u32) -> Brought {
        let (former, own) = (former.elements(), self.elements());
        if index >= own.objects() {
            return Brought::Nothing;
        }
        let (mut words, mut before) = (vec![0; former.payload_words()], vec![0; own.payload_words()]);
        former.snapshot(index, &mut words);
        own.snapshot(index, &mut before);
        if words == before {
            return Brought::Nothing;
        }
        own.initialise(index, &words);
        Brought::Whole
    }
}

/// The former object as what it is.
pub(crate) fn former<S: StateObject>(object: &dyn StateObject) -> Option<&S> {
    let object: &dyn Any = object;
    object.downcast_ref()
}

/// The former object of a structure that has [checked](Succeed::check) it.
pub(crate) fn checked<S: StateObject>(object: &dyn StateObject) -> &S {
    former(object).unwrap_or_else(|| unreachable!("{} was checked", object.name()))
}

/// Whether an object is an `S` for which `has_same_elements` holds.
pub(crate) fn check<S: StateObject>(
    own: &S,
    object: &dyn StateObject,
    has_same_elements: impl FnOnce(&S) -> bool,
) -> Result<(), ImageError> {
    if former(object).is_some_and(has_same_elements) {
        return Ok(());
    }
    Err(ImageError {
        object: own.name().to_owned(),
        what: "its elements are others than those that it would get".into(),
    })
}

/// A former object, and the one that takes its place.
pub type Pair = (Arc<dyn StateObject>, Arc<dyn StateObject>);

/// An object that would have too few elements: those in use keep their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Which one.
    pub object: String,
    /// Elements that it would have.
    pub most: usize,
    /// Elements that it needs.
    pub needed: usize,
}

/// Objects on their way to others.
pub struct Succession {
    pairs: Vec<Pair>,
    /// Every worker notes what it changes.
    is_open: AtomicBool,
    /// All elements were brought over once.
    is_complete: AtomicBool,
    /// Workers who wait to bring over what they have changed: they come before what is only still to do.
    waiting: AtomicUsize,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The first element that nobody has brought over yet: of which pair, and its number.
    next: (usize, u32),
    /// Elements in use beyond the end.
    beyond: BTreeSet<(usize, u32)>,
    brought: usize,
}

impl Succession {
    /// Of pairs of objects; their memory is touched.
    pub fn new(pairs: Vec<Pair>) -> Result<Arc<Succession>, ImageError> {
        for (former, new) in &pairs {
            new.check(&**former)?;
            new.touch(&**former);
        }
        let (is_open, is_complete) = (AtomicBool::new(false), AtomicBool::new(pairs.is_empty()));
        let (waiting, progress) = (AtomicUsize::new(0), Mutex::default());
        Ok(Arc::new(Succession { pairs, is_open, is_complete, waiting, progress }))
    }

    /// All workers note what they change from now on.
    pub fn open(&self) {
        // Release: whoever brings the first elements over comes after all who have begun to note.
        self.is_open.store(true, Ordering::Release);
    }

    /// Whether nothing is left but what workers change.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// To be asked when all workers stand still and have ended their part: elements brought over; an error if some have no place.
    pub fn finish(&self) -> Result<usize, ImageError> {
        assert!(self.is_complete(), "elements that nobody has brought over");
        let Some(Beyond { object, most, needed }) = self.beyond() else { return Ok(self.lock().brought) };
        let what = format!(
            "what is in use keeps its number, and there are numbers in use beyond the {most} that would be left, up to {needed}"
        );
        Err(ImageError { object, what })
    }

    /// The first object of which elements are in use that would have no place, as far as all have been looked at.
    pub fn beyond(&self) -> Option<Beyond> {
        let progress = self.lock();
        let (pair, _) = progress.beyond.first()?;
        let (_, highest) = progress.beyond.range(..=(*pair, u32::MAX)).next_back()?;
        let new = &self.pairs[*pair].1;
        Some(Beyond { object: new.name().to_owned(), most: new.capacity(), needed: *highest as usize + 1 })
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Plain numbers; an element whose bringing has panicked is brought again or not at all.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings these elements over; says how many.
    fn bring_all(&self, elements: &[(usize, u32)]) -> usize {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut progress = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        elements.iter().filter(|element| self.bring_one(&mut progress, **element) != Brought::Nothing).count()
    }

    /// Brings some elements over for the first time, unless somebody else wants to bring or just does.
    fn bring_some(&self) {
        // Relaxed: a hint.
        if self.is_complete() || !self.is_open.load(Ordering::Acquire) || self.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut progress = match self.progress.try_lock() {
            Ok(progress) => progress,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let (mut brought, mut looked_at) = (0, 0);
        while brought < BROUGHT_MAX && looked_at < LOOKED_AT_MAX {
            let (pair, index) = progress.next;
            let Some((former, _)) = self.pairs.get(pair) else {
                self.is_complete.store(true, Ordering::Release);
                return;
            };
            let is_last = index + 1 >= former.elements().objects();
            brought += usize::from(self.bring_one(&mut progress, (pair, index)) != Brought::Nothing);
            looked_at += 1;
            progress.next = if is_last { (pair + 1, 0) } else { (pair, index + 1) };
        }
    }

    fn bring_one(&self, progress: &mut Progress, (pair, index): (usize, u32)) -> Brought {
        let (former, new) = &self.pairs[pair];
        let brought = new.bring(&**former, index);
        if brought == Brought::Beyond {
            progress.beyond.insert((pair, index));
        } else if !progress.beyond.is_empty() {
            progress.beyond.remove(&(pair, index));
        }
        progress.brought += usize::from(brought == Brought::Whole);
        brought
    }
}

impl std::fmt::Debug for Succession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.pairs.iter().map(|(_, new)| new.name()).collect();
        f.debug_struct("Succession").field("objects", &names).finish_non_exhaustive()
    }
}

/// A worker's part in it.
#[derive(Debug)]
pub struct Bringing {
    succession: Arc<Succession>,
    /// What it has changed: which pair, and which element.
    changed: Vec<(usize, u32)>,
}

impl Bringing {
    /// The worker of this transaction notes what it changes from now on.
    pub fn begin(succession: Arc<Succession>, tx: &mut Tx) -> Bringing {
        tx.note_changes(succession.pairs.iter().map(|(former, _)| former.elements().clone()).collect());
        Bringing { succession, changed: Vec::new() }
    }

    /// Between two batches: brings over what the worker has changed since the last time, and at most [`BROUGHT_MAX`] elements more.
    pub fn bring(&mut self, tx: &mut Tx) {
        self.bring_changed(tx);
        self.succession.bring_some();
    }

    /// Brings over what the worker has changed last, and notes no more; says how many elements that were.
    pub fn end(mut self, tx: &mut Tx) -> usize {
        let brought = self.bring_changed(tx);
        tx.note_changes(Vec::new());
        brought
    }

    fn bring_changed(&mut self, tx: &mut Tx) -> usize {
        tx.take_changes(&mut self.changed);
        if self.changed.is_empty() {
            return 0;
        }
        self.changed.sort_unstable();
        self.changed.dedup();
        let brought = self.succession.bring_all(&self.changed);
        self.changed.clear();
        brought
    }
}
