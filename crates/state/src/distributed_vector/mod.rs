//! A vector with a part per worker: for sketches and other tables of sums that all workers change with every packet and that are read rarely.
//!
//! An update changes an element of the worker's own part and never conflicts with updates by other workers. A visit reads the current value of
//! the element in all parts, and so conflicts only with updates of that element. Both are rows for `Distributed` in
//! [`causes`](crate::causes).

use std::marker::PhantomData;
use std::sync::Arc;

use braid_stm::{Arena, Conflict, Part, Tx};

use crate::causes::DistributedOp;
use crate::object::{Named, StateBuilder, StateError, StateObject};
use crate::plain::{self, Plain};

mod image;
mod succession;

/// The configuration of a distributed vector.
#[derive(Clone, Debug)]
pub struct DistributedVectorConfig {
    /// Its name within the function.
    pub name: String,
    /// Number of elements.
    pub len: u32,
}

/// A distributed vector with values of type `T`. A clone refers to the same vector.
pub struct DistributedVector<T> {
    shared: Arc<Shared>,
    values: PhantomData<fn() -> T>,
}

struct Shared {
    named: Named,
    /// The parts one after another, `len` elements each.
    elements: Arena,
    len: u32,
    bytes: usize,
    /// Adds the element in the second words to that in the first.
    merge: Box<Merge>,
}

type Merge = dyn Fn(&mut [u64], &[u64]) + Send + Sync;

impl<T: Plain> DistributedVector<T> {
    /// Creates a vector with all elements zero, which must be the neutral element of `merge`. Parts are merged when they are restored on fewer
    /// workers than they were saved from.
    pub fn new(
        builder: &mut StateBuilder,
        config: &DistributedVectorConfig,
        merge: fn(&mut T, &T),
    ) -> Result<DistributedVector<T>, StateError> {
        let (name, workers) = (&config.name, builder.domain().workers() as u32);
        let len = builder.check_capacity(name, config.len.into(), u64::from(u32::MAX / workers))?;
        let is_like = |shared: &Shared| (shared.len, shared.bytes) == (len, size_of::<T>());
        if let Some(shared) = builder.inherited(name, is_like) {
            return Ok(DistributedVector { shared, values: PhantomData });
        }
        let named = builder.register(name, "Distributed");
        let shared = Arc::new(Shared {
            elements: builder.arena(Arena::new, &named, Part(0), len * workers, plain::words::<T>())?,
            named,
            len,
            bytes: size_of::<T>(),
            merge: Box::new(move |sum, part| {
                let mut value = plain::load::<T>(sum);
                merge(&mut value, &plain::load(part));
                plain::store(sum, &value);
            }),
        });
        builder.list(Arc::clone(&shared) as Arc<dyn StateObject>);
        Ok(DistributedVector { shared, values: PhantomData })
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.shared.len
    }

    /// Always false: a vector has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes element `index` of the worker's own part and returns the result of `change`; `None` beyond the end.
    #[inline]
    #[track_caller]
    pub fn update<R>(&self, tx: &mut Tx, index: u32, change: impl FnOnce(&mut T) -> R) -> Result<Option<R>, Conflict> {
        if index >= self.shared.len {
            return Ok(None);
        }
        let own = tx.worker() as u32 * self.shared.len + index;
        let words = tx.update_words(&self.shared.elements, own, plain::words::<T>(), DistributedOp::Update.op())?;
        let mut value = plain::load(words);
        let result = change(&mut value);
        plain::store(words, &value);
        Ok(Some(result))
    }

    /// Calls `see` with element `index` of every part, in the order of workers; does nothing beyond the end.
    #[inline]
    #[track_caller]
    pub fn visit(&self, tx: &mut Tx, index: u32, mut see: impl FnMut(&T)) -> Result<(), Conflict> {
        if index >= self.shared.len {
            return Ok(());
        }
        for at in (index..self.shared.elements.objects()).step_by(self.shared.len as usize) {
            see(&plain::load(tx.read_ref(&self.shared.elements, at, DistributedOp::Read.op())?));
        }
        Ok(())
    }

    /// The structure as seen from outside.
    pub fn object(&self) -> Arc<dyn StateObject> {
        Arc::clone(&self.shared) as Arc<dyn StateObject>
    }
}

impl<T> Clone for DistributedVector<T> {
    fn clone(&self) -> Self {
        DistributedVector { shared: Arc::clone(&self.shared), values: PhantomData }
    }
}

impl<T> std::fmt::Debug for DistributedVector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DistributedVector({}, {})", self.shared.named.name, self.shared.len)
    }
}

impl Shared {
    fn value(&self, at: u32) -> Vec<u64> {
        let mut words = vec![0; self.elements.payload_words()];
        self.elements.snapshot(at, &mut words);
        words
    }

    fn workers(&self) -> u32 {
        self.elements.objects() / self.len
    }
}

impl StateObject for Shared {
    fn named(&self) -> &Named {
        &self.named
    }

    fn capacity(&self) -> usize {
        self.elements.objects() as usize
    }

    fn len(&self) -> usize {
        self.capacity()
    }

    fn memory_bytes(&self) -> usize {
        self.elements.bytes()
    }

    fn snapshot(&self) -> Vec<u8> {
        let value = |at| zerocopy::IntoBytes::as_bytes(&self.value(at)[..])[..self.bytes].to_vec();
        (0..self.elements.objects()).flat_map(value).collect()
    }
}
