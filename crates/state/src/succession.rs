//! Replaces an object by one of the same kind and another size: its content is copied element by element while transactions change it.
//!
//! This resembles the live migration of a virtual machine, except that a worker that changes an element copies it again itself, before its next
//! batch. So little is left to copy when the workers finally stop.
//!
//! 1. Every worker starts to note which elements it changes ([`Bringing::begin`]). When all of them do, the [`Succession`] opens.
//! 2. Between two batches a worker copies the elements it has changed, and a few of those that no worker has copied yet
//!    ([`Bringing::bring`]), until all have been copied once.
//! 3. The workers stop, and each copies the elements it has changed last ([`Bringing::end`]).
//!
//! Then both objects are equal, for two reasons. An element is copied as it is at that moment, by one thread at a time, so a later copy is at
//! least as new. And the last worker to change an element has copied it afterwards, while an element that no worker has changed
//! since the succession opened has been copied once since then.
//!
//! Elements keep their numbers and generations, so references to them stay valid. The new object can be smaller if no element in use has a
//! number beyond its end.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use braid_stm::{Arena, Tx};

use crate::image::ImageError;
use crate::object::StateObject;

/// Maximum number of elements that [`Bringing::bring`] copies in addition to those that its worker has changed.
pub const BROUGHT_MAX: usize = 32;
/// Maximum number of elements that it checks for that; most may never have been used.
const LOOKED_AT_MAX: usize = 512;

/// The result of copying an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// The new object already had it.
    Nothing,
    /// It was copied.
    Whole,
    /// It is in use, and its number is beyond the end of the new object.
    Beyond,
}

/// A structure that can replace another one of its kind.
pub trait Succeed {
    /// The arena that holds its elements. All of its content can be derived from them or is [noted](Tx::note_change) together with them.
    fn elements(&self) -> &Arena;
    /// Whether elements of `former` fit; an error says what differs.
    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError>;
    /// Touches the memory that is needed for the elements of `former`.
    fn touch(&self, former: &dyn StateObject) {
        self.elements().touch(former.elements().objects());
    }
    /// Copies element `index` as it is in `former`, which has been checked, at this moment. This default copies the words of the element and skips
    /// one beyond the end. Called by one thread at a time, before any transaction uses this object.
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

/// Downcasts the former object; `None` if it is not an `S`.
pub(crate) fn former<S: StateObject>(object: &dyn StateObject) -> Option<&S> {
    let object: &dyn Any = object;
    object.downcast_ref()
}

/// Downcasts the former object of a structure that has [checked](Succeed::check) it.
pub(crate) fn checked<S: StateObject>(object: &dyn StateObject) -> &S {
    former(object).unwrap_or_else(|| unreachable!("{} was checked", object.name()))
}

/// Checks that an object is an `S` for which `has_same_elements` is true.
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

/// A former object and the one that replaces it.
pub type Pair = (Arc<dyn StateObject>, Arc<dyn StateObject>);

/// An object that would have too few elements; elements in use keep their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The name of the object.
    pub object: String,
    /// The number of elements that it would have.
    pub most: usize,
    /// The number of elements that it needs.
    pub needed: usize,
}

/// A set of objects and their replacements, while content is being copied.
pub struct Succession {
    pairs: Vec<Pair>,
    /// Every worker notes what it changes.
    is_open: AtomicBool,
    /// All elements have been copied once.
    is_complete: AtomicBool,
    /// Workers that wait to copy elements they have changed; these take precedence over first copies.
    waiting: AtomicUsize,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The first element that no worker has copied yet: its pair and its number.
    next: (usize, u32),
    /// Elements in use beyond the end.
    beyond: BTreeSet<(usize, u32)>,
    brought: usize,
}

impl Succession {
    /// Creates a succession of pairs of objects, and touches the memory of the new ones.
    pub fn new(pairs: Vec<Pair>) -> Result<Arc<Succession>, ImageError> {
        for (former, new) in &pairs {
            new.check(&**former)?;
            new.touch(&**former);
        }
        let (is_open, is_complete) = (AtomicBool::new(false), AtomicBool::new(pairs.is_empty()));
        let (waiting, progress) = (AtomicUsize::new(0), Mutex::default());
        Ok(Arc::new(Succession { pairs, is_open, is_complete, waiting, progress }))
    }

    /// Opens the succession, once all workers note what they change.
    pub fn open(&self) {
        // Release, pairs with the Acquire in `bring_some`: first copies happen after all workers have begun to note changes.
        self.is_open.store(true, Ordering::Release);
    }

    /// Whether only changes by workers remain to be copied.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Returns the number of elements copied, once all workers have stopped and ended their part; an error if some do not fit.
    pub fn finish(&self) -> Result<usize, ImageError> {
        assert!(self.is_complete(), "elements that nobody has brought over");
        let Some(Beyond { object, most, needed }) = self.beyond() else { return Ok(self.lock().brought) };
        let what = format!(
            "what is in use keeps its number, and there are numbers in use beyond the {most} that would be left, up to {needed}"
        );
        Err(ImageError { object, what })
    }

    /// The first object with elements in use that do not fit, among the elements checked so far.
    pub fn beyond(&self) -> Option<Beyond> {
        let progress = self.lock();
        let (pair, _) = progress.beyond.first()?;
        let (_, highest) = progress.beyond.range(..=(*pair, u32::MAX)).next_back()?;
        let new = &self.pairs[*pair].1;
        Some(Beyond { object: new.name().to_owned(), most: new.capacity(), needed: *highest as usize + 1 })
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // The lock protects plain numbers; an element whose copying panicked is copied again or not at all.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies these elements; returns how many of them were not up to date.
    fn bring_all(&self, elements: &[(usize, u32)]) -> usize {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut progress = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        elements.iter().filter(|element| self.bring_one(&mut progress, **element) != Brought::Nothing).count()
    }

    /// Copies some elements for the first time, unless another worker is copying or waits to copy its changes.
    fn bring_some(&self) {
        // Relaxed load of `waiting`: a hint.
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

/// A worker's part in a succession.
#[derive(Debug)]
pub struct Bringing {
    succession: Arc<Succession>,
    /// The elements it has changed: pair and number.
    changed: Vec<(usize, u32)>,
}

impl Bringing {
    /// Makes the worker of this transaction note what it changes from now on.
    pub fn begin(succession: Arc<Succession>, tx: &mut Tx) -> Bringing {
        tx.note_changes(succession.pairs.iter().map(|(former, _)| former.elements().clone()).collect());
        Bringing { succession, changed: Vec::new() }
    }

    /// Copies what the worker has changed since the last call, and at most [`BROUGHT_MAX`] more elements; called between two batches.
    pub fn bring(&mut self, tx: &mut Tx) {
        self.bring_changed(tx);
        self.succession.bring_some();
    }

    /// Copies what the worker has changed last and stops noting changes; returns how many elements were not up to date.
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
