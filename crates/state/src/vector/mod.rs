//! A vector of fixed length with plain values, each on cache lines of its own.

use std::marker::PhantomData;
use std::sync::Arc;

use braid_stm::{Alone, Arena, Conflict, Part, Tx};

use crate::causes::VectorOp;
use crate::object::{Named, StateBuilder, StateError, StateObject};
use crate::plain::{self, Plain};

mod image;
mod succession;

/// The configuration of a vector.
#[derive(Clone, Debug)]
pub struct VectorConfig {
    /// Its name within the function.
    pub name: String,
    /// Number of elements.
    pub len: u32,
}

/// Maximum size in words of elements that are read directly into one or two registers.
const SMALL: usize = 2;

/// A transactional vector. Only accesses to the same element conflict. A clone refers to the same vector.
pub struct Vector<T> {
    shared: Arc<Shared>,
    values: PhantomData<fn() -> T>,
}

struct Shared {
    named: Named,
    elements: Arena,
    bytes: usize,
}

impl<T: Plain> Vector<T> {
    /// Creates a vector with all elements equal to `initial`.
    pub fn new(builder: &mut StateBuilder, config: &VectorConfig, initial: T) -> Result<Vector<T>, StateError> {
        let len = builder.check_capacity(&config.name, config.len.into(), u32::MAX.into())?;
        let is_like = |shared: &Shared| (shared.elements.objects(), shared.bytes) == (len, size_of::<T>());
        if let Some(shared) = builder.inherited(&config.name, is_like) {
            return Ok(Vector { shared, values: PhantomData });
        }
        let named = builder.register(&config.name, "Vector");
        let elements = builder.arena(Arena::new, &named, Part(0), len, plain::words::<T>())?;
        if initial.as_bytes().iter().any(|byte| *byte != 0) {
            let mut words = vec![0; plain::words::<T>()];
            plain::store(&mut words, &initial);
            (0..len).for_each(|index| elements.initialise(index, &words));
        }
        let shared = Arc::new(Shared { named, elements, bytes: size_of::<T>() });
        builder.list(Arc::clone(&shared) as Arc<dyn StateObject>);
        Ok(Vector { shared, values: PhantomData })
    }

    /// An element of the vector of this name that already exists, or existed in another process.
    pub fn left(builder: &StateBuilder, name: &str, index: u32) -> Option<T> {
        image::element(&builder.left_behind(name, "Vector")?, index)
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.shared.elements.objects()
    }

    /// Always false: a vector has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index`, or `None` beyond the end.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, tx: &mut Tx, index: u32) -> Result<Option<T>, Conflict> {
        if index >= self.len() {
            return Ok(None);
        }
        if plain::words::<T>() <= SMALL {
            let mut words = [0; SMALL];
            tx.read_into(&self.shared.elements, index, VectorOp::Get.op(), &mut words[..plain::words::<T>()])?;
            return Ok(Some(plain::load(&words)));
        }
        Ok(Some(plain::load(tx.read_ref(&self.shared.elements, index, VectorOp::Get.op())?)))
    }

    /// Like [`get`](Vector::get), [alone](Alone), for small elements; also `None` while another worker is writing the element.
    #[inline(always)]
    pub fn read_alone(&self, alone: Alone<'_>, index: u32) -> Option<T> {
        const { assert!(plain::words::<T>() <= SMALL, "an element of at most two words") };
        let mut words = [0; SMALL];
        let is_read = index < self.len() && alone.read(&self.shared.elements, index, &mut words[..plain::words::<T>()]);
        is_read.then(|| plain::load(&words))
    }

    /// The result of `look` on element `index` in place, or `None` beyond the end. For reading a small part of a large element.
    #[inline(always)]
    #[track_caller]
    pub fn view<R>(&self, tx: &mut Tx, index: u32, look: impl FnOnce(&T) -> R) -> Result<Option<R>, Conflict> {
        if index >= self.len() {
            return Ok(None);
        }
        Ok(Some(plain::view(tx.read_ref(&self.shared.elements, index, VectorOp::Get.op())?, look)))
    }

    /// Replaces element `index`; returns false beyond the end.
    #[inline]
    #[track_caller]
    pub fn set(&self, tx: &mut Tx, index: u32, value: T) -> Result<bool, Conflict> {
        if index >= self.len() {
            return Ok(false);
        }
        plain::store(tx.write_ref(&self.shared.elements, index, VectorOp::Set.op())?, &value);
        Ok(true)
    }

    /// Changes element `index` in place and returns the result of `change`; `None` beyond the end.
    #[inline]
    #[track_caller]
    pub fn update<R>(&self, tx: &mut Tx, index: u32, change: impl FnOnce(&mut T) -> R) -> Result<Option<R>, Conflict> {
        if index >= self.len() {
            return Ok(None);
        }
        let words = tx.update_words(&self.shared.elements, index, plain::words::<T>(), VectorOp::Update.op())?;
        Ok(Some(plain::change(words, change)))
    }

    /// Word `k` of element `index` at this moment, outside any transaction: a hint, for prefetching.
    #[inline(always)]
    pub fn hint(&self, index: u32, k: usize) -> u64 {
        self.shared.elements.hint(index, k)
    }

    /// Prefetches an element that will be used soon.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        self.shared.elements.prefetch_write(index);
    }

    /// The structure as seen from outside.
    pub fn object(&self) -> Arc<dyn StateObject> {
        Arc::clone(&self.shared) as Arc<dyn StateObject>
    }
}

impl<T> Clone for Vector<T> {
    fn clone(&self) -> Self {
        Vector { shared: Arc::clone(&self.shared), values: PhantomData }
    }
}

impl<T> std::fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vector({})", self.shared.named.name)
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
        let mut words = vec![0; self.elements.payload_words()];
        let mut bytes = Vec::with_capacity(self.capacity() * self.bytes);
        for index in 0..self.elements.objects() {
            self.elements.snapshot(index, &mut words);
            bytes.extend_from_slice(&zerocopy::IntoBytes::as_bytes(&words[..])[..self.bytes]);
        }
        bytes
    }
}
