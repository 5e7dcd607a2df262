//! One value with a part per worker: each worker changes its own part, and a read merges all parts.
//!
//! With staleness 0 a read is transactional over all parts and conflicts with every update by another worker. With a staleness above zero a
//! read merges the worker's own part with copies of the others' parts that are no older than that, and nothing conflicts. Updates of an
//! attempt that aborts are never visible; a worker's own updates are visible to it at once.
//!
//! A recorded run notes which version of each part a stale read saw. A replay checks that this version was current at some moment between
//! the filling of the copy and the read, and that the copy was no older than the staleness allows.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_stm::{Arena, Boosted, Conflict, Part, Tx};
use crossbeam_utils::CachePadded;

use crate::causes::DistributedOp;
use crate::object::{Named, StateBuilder, StateError, StateObject};
use crate::plain::{self, Plain};

mod image;
mod succession;

/// Deferred action while replaying: a part was changed. Argument: the worker.
const CHANGED: u32 = 0;

/// The configuration of a distributed object.
#[derive(Clone, Debug)]
pub struct DistributedConfig {
    /// Its name within the function.
    pub name: String,
    /// How old the other workers' parts may be in a read, in nanoseconds of the reader's time; 0: always current.
    pub staleness_ns: u64,
}

/// A distributed object with values of type `T`. A clone refers to the same object.
pub struct Distributed<T> {
    shared: Arc<Shared>,
    values: PhantomData<fn() -> T>,
}

struct Shared {
    named: Named,
    /// Per worker: the number of committed updates, then the value.
    parts: Arena,
    value_words: usize,
    value_bytes: usize,
    staleness_ns: u64,
    /// Per worker: its copies of all parts.
    copies: Box<[CachePadded<Mutex<Copies>>]>,
    /// While replaying: the versions of each part so far.
    history: Mutex<Vec<Vec<Version>>>,
}

#[derive(Default)]
struct Copies {
    filled: bool,
    filled_ns: u64,
    /// Everything that had committed up to this place in the serial order is included in the copies.
    sequence: u64,
    /// All parts, one after another.
    words: Vec<u64>,
}

struct Version {
    sequence: u64,
    words: Vec<u64>,
}

impl<T: Plain> Distributed<T> {
    /// Creates an object with all parts equal to `initial`, which must be the neutral element of the merge.
    pub fn new(
        builder: &mut StateBuilder,
        config: &DistributedConfig,
        initial: T,
    ) -> Result<Distributed<T>, StateError> {
        let workers = builder.domain().workers();
        let is_like =
            |shared: &Shared| shared.value_bytes == size_of::<T>() && shared.staleness_ns == config.staleness_ns;
        if let Some(shared) = builder.inherited(&config.name, is_like) {
            return Ok(Distributed { shared, values: PhantomData });
        }
        let named = builder.register(&config.name, "Distributed");
        let value_words = plain::words::<T>();
        let parts = builder.arena(Arena::new, &named, Part(0), workers as u32, 1 + value_words)?;
        let mut words = vec![0; 1 + value_words];
        plain::store(&mut words[1..], &initial);
        (0..workers as u32).for_each(|worker| parts.initialise(worker, &words));
        let first = || vec![Version { sequence: 0, words: words.clone() }];
        let shared = Arc::new(Shared {
            named,
            parts,
            value_words,
            value_bytes: size_of::<T>(),
            staleness_ns: config.staleness_ns,
            copies: (0..workers).map(|_| CachePadded::default()).collect(),
            history: Mutex::new((0..workers).map(|_| first()).collect()),
        });
        builder.attach(shared.named.id, Arc::clone(&shared) as Arc<dyn Boosted>);
        builder.list(Arc::clone(&shared) as Arc<dyn StateObject>);
        Ok(Distributed { shared, values: PhantomData })
    }

    /// Changes the worker's own part and returns the result of `change`. Never conflicts with updates by other workers.
    #[inline]
    #[track_caller]
    pub fn update<R>(&self, tx: &mut Tx, change: impl FnOnce(&mut T) -> R) -> Result<R, Conflict> {
        let worker = tx.worker();
        let words =
            tx.update_words(&self.shared.parts, worker as u32, 1 + plain::words::<T>(), DistributedOp::Update.op())?;
        let mut value = plain::load(&words[1..]);
        let result = change(&mut value);
        words[0] += 1;
        plain::store(&mut words[1..], &value);
        if tx.is_replaying() {
            tx.defer(self.shared.named.id, CHANGED, worker as u64);
        }
        Ok(result)
    }

    /// Merges the worker's own part with all others: `merge(sum, part)` adds a part to the sum. The order of parts is unspecified.
    #[inline]
    #[track_caller]
    pub fn read(&self, tx: &mut Tx, mut merge: impl FnMut(&mut T, &T)) -> Result<T, Conflict> {
        let own = tx.worker();
        let op = DistributedOp::Read.op();
        let mut sum = plain::load(&tx.read_ref(&self.shared.parts, own as u32, op)?[1..]);
        let workers = self.shared.copies.len();
        if workers == 1 {
            return Ok(sum);
        }
        if self.shared.staleness_ns == 0 {
            for worker in (0..workers).filter(|worker| *worker != own) {
                merge(&mut sum, &plain::load(&tx.read_ref(&self.shared.parts, worker as u32, op)?[1..]));
            }
            return Ok(sum);
        }
        let stride = 1 + self.shared.value_words;
        let mut merge_part = |words: &[u64]| merge(&mut sum, &plain::load(&words[1..]));
        if tx.is_replaying() {
            for words in self.shared.recorded_copies(tx) {
                merge_part(&words);
            }
            return Ok(sum);
        }
        let copies = self.shared.copies(tx)?;
        let others = copies.words.chunks_exact(stride).enumerate().filter(|(worker, _)| *worker != own);
        for (_, words) in others {
            merge_part(words);
        }
        Ok(sum)
    }

    /// The sum of all committed updates; exact while no transaction runs.
    pub fn total(&self, mut merge: impl FnMut(&mut T, &T)) -> T {
        let part = |worker| {
            let mut words = vec![0; 1 + self.shared.value_words];
            self.shared.parts.snapshot(worker, &mut words);
            plain::load(&words[1..])
        };
        let mut sum = part(0);
        for worker in 1..self.shared.parts.objects() {
            merge(&mut sum, &part(worker));
        }
        sum
    }

    /// The structure as seen from outside.
    pub fn object(&self) -> Arc<dyn StateObject> {
        Arc::clone(&self.shared) as Arc<dyn StateObject>
    }
}

impl Shared {
    /// The worker's copies, refilled if they are too old.
    #[track_caller]
    fn copies(&self, tx: &mut Tx) -> Result<MutexGuard<'_, Copies>, Conflict> {
        let own = tx.worker();
        let now = tx.now();
        // Only this worker takes this lock, so it never waits.
        let mut copies = lock(&self.copies[own]);
        let age = now.checked_sub(copies.filled_ns);
        if !copies.filled || age.is_none_or(|age| age >= self.staleness_ns) {
            self.fill(tx, &mut copies)?;
        }
        if tx.is_recording() {
            let stride = 1 + self.value_words;
            tx.choice(|| copies.filled_ns);
            tx.choice(|| copies.sequence);
            for (worker, words) in copies.words.chunks_exact(stride).enumerate() {
                if worker != own {
                    tx.choice(|| words[0]);
                }
            }
        }
        Ok(copies)
    }

    #[cold]
    #[track_caller]
    fn fill(&self, tx: &mut Tx, copies: &mut Copies) -> Result<(), Conflict> {
        copies.filled = false;
        let stride = 1 + self.value_words;
        copies.words.resize(stride * self.copies.len(), 0);
        // Read before the parts: transactions numbered up to here either hold their locks or have published.
        copies.sequence = if tx.is_recording() { tx.domain().sequence() } else { 0 };
        for (worker, words) in copies.words.chunks_exact_mut(stride).enumerate() {
            words.copy_from_slice(tx.peek(&self.parts, worker as u32, DistributedOp::Read.op())?);
        }
        (copies.filled, copies.filled_ns) = (true, tx.now());
        Ok(())
    }

    /// The versions that the recorded read saw, after checking that they are legal.
    fn recorded_copies(&self, tx: &mut Tx) -> Vec<Vec<u64>> {
        let now = tx.now();
        let filled_ns = tx.choice(|| now);
        let sequence = tx.choice(|| u64::MAX);
        if now.checked_sub(filled_ns).is_none_or(|age| age >= self.staleness_ns) {
            let most = self.staleness_ns;
            tx.violate(
                self.named.id,
                format!("a read at {now} ns used copies of {filled_ns} ns; {most} ns are allowed"),
            );
        }
        let mut seen = Vec::new();
        let own = tx.worker();
        for worker in (0..self.copies.len()).filter(|worker| *worker != own) {
            let version = {
                let history = lock(&self.history);
                let latest = history[worker].len() as u64 - 1;
                // The version that was current when the copies were filled.
                let oldest = history[worker].partition_point(|version| version.sequence <= sequence) as u64 - 1;
                let count = tx.choice(|| latest);
                let at = count.min(latest) as usize;
                seen.push(history[worker][at].words.clone());
                (count, oldest, latest)
            };
            let (count, oldest, latest) = version;
            if !(oldest..=latest).contains(&count) {
                let what = format!("part {worker}: version {count} was read, {oldest} to {latest} are legal");
                tx.violate(self.named.id, what);
            }
        }
        seen
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    // The lock protects plain words; copies left behind by a panic are replaced by the next fill.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Boosted for Shared {
    fn apply(&self, _worker: usize, _action: u32, argument: u64, sequence: u64) {
        let mut words = vec![0; 1 + self.value_words];
        self.parts.snapshot(argument as u32, &mut words);
        let versions = &mut lock(&self.history)[argument as usize];
        // For several updates in one transaction: others can see only the last; the earlier ones share its place in the order.
        while versions.len() as u64 <= words[0] {
            versions.push(Version { sequence, words: words.clone() });
        }
    }

    fn undo(&self, _worker: usize, _action: u32, _argument: u64) {}
}

impl StateObject for Shared {
    fn named(&self) -> &Named {
        &self.named
    }

    fn capacity(&self) -> usize {
        self.copies.len()
    }

    fn len(&self) -> usize {
        self.copies.len()
    }

    fn memory_bytes(&self) -> usize {
        self.parts.bytes() + self.copies.len() * self.copies.len() * (1 + self.value_words) * 8
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut words = vec![0; 1 + self.value_words];
        let mut bytes = Vec::new();
        for worker in 0..self.parts.objects() {
            self.parts.snapshot(worker, &mut words);
            bytes.extend_from_slice(&zerocopy::IntoBytes::as_bytes(&words[1..])[..self.value_bytes]);
        }
        bytes
    }
}

impl<T> Clone for Distributed<T> {
    fn clone(&self) -> Self {
        Distributed { shared: Arc::clone(&self.shared), values: PhantomData }
    }
}

impl<T> std::fmt::Debug for Distributed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Distributed({})", self.shared.named.name)
    }
}
