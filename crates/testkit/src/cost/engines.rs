//! Performs the same work on the same number of objects without any protection, and in transactions.

use std::hint::black_box;
use std::sync::Arc;

use braid_memory::{Bytes, HugePages, prefetch_write};
use braid_nf::state::{Conflict, Domain, StateBuilder, StateError, Tx, Vector, VectorConfig};
use zerocopy::FromBytes;

/// The value of each object: 16 bytes of a cache line of its own.
type Value = [u64; 2];
/// A cache line without a header.
type Line = [u64; 8];

#[inline(always)]
fn change(value: &mut Value) {
    value[1] = value[1].wrapping_add(value[0]);
    value[0] += 1;
}

/// How a worker accesses objects.
pub trait Engine {
    /// Prefetches an object that will be needed soon.
    fn prefetch(&self, object: u32);
    /// Processes one packet: reads each object, or modifies it.
    fn packet<const WRITES: bool, const OBJECTS: usize>(&mut self, objects: &[u32; OBJECTS]) -> Result<(), Conflict>;
    /// Ends a batch.
    fn commit(&mut self) -> Result<(), Conflict>;
    /// Rolls back after a conflict.
    fn abort(&mut self) {}
}

/// No synchronisation at all: the memory belongs to the worker.
pub struct Plain<'a>(pub &'a mut [Line]);

impl<'a> Plain<'a> {
    /// Divides the objects between two workers.
    pub fn halves(self) -> [Plain<'a>; 2] {
        let (first, second) = self.0.split_at_mut(self.0.len() / 2);
        [Plain(first), Plain(second)]
    }
}

impl Engine for Plain<'_> {
    #[inline(always)]
    fn prefetch(&self, object: u32) {
        prefetch_write(&self.0[object as usize]);
    }

    #[inline(always)]
    fn packet<const WRITES: bool, const OBJECTS: usize>(&mut self, objects: &[u32; OBJECTS]) -> Result<(), Conflict> {
        for object in objects {
            let [x, y, ..] = &mut self.0[*object as usize];
            let mut value = [*x, *y];
            if WRITES {
                change(&mut value);
                [*x, *y] = value;
            } else {
                black_box(value);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&mut self) -> Result<(), Conflict> {
        Ok(())
    }
}

/// The work of [`Plain`] inside a transaction that touches nothing shared, like a function without aggregate state.
pub struct Untouched<'a>(pub Plain<'a>, pub Tx);

impl Engine for Untouched<'_> {
    #[inline(always)]
    fn prefetch(&self, object: u32) {
        self.0.prefetch(object);
    }

    #[inline(always)]
    fn packet<const WRITES: bool, const OBJECTS: usize>(&mut self, objects: &[u32; OBJECTS]) -> Result<(), Conflict> {
        self.0.packet::<WRITES, OBJECTS>(objects)
    }

    #[inline(always)]
    fn commit(&mut self) -> Result<(), Conflict> {
        self.1.commit().map(drop)
    }
}

/// Elements of a `Vector`, with one transaction for each batch.
pub struct Shared {
    pub elements: Vector<Value>,
    pub first: u32,
    pub tx: Tx,
}

impl Engine for Shared {
    #[inline(always)]
    fn prefetch(&self, object: u32) {
        self.elements.prefetch(self.first + object);
    }

    #[inline(always)]
    fn packet<const WRITES: bool, const OBJECTS: usize>(&mut self, objects: &[u32; OBJECTS]) -> Result<(), Conflict> {
        for object in objects {
            if WRITES {
                self.elements.update(&mut self.tx, self.first + object, change)?;
            } else {
                black_box(self.elements.get(&mut self.tx, self.first + object)?);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&mut self) -> Result<(), Conflict> {
        self.tx.commit().map(drop)
    }

    fn abort(&mut self) {
        self.tx.abort();
    }
}

/// Elements of a `Vector`, each read in a transaction of its own without a log, like a function's `steady`.
pub struct Alone(pub Shared);

impl Engine for Alone {
    #[inline(always)]
    fn prefetch(&self, object: u32) {
        self.0.prefetch(object);
    }

    #[inline(always)]
    fn packet<const WRITES: bool, const OBJECTS: usize>(&mut self, objects: &[u32; OBJECTS]) -> Result<(), Conflict> {
        const { assert!(!WRITES && OBJECTS <= 1, "no more than one look") };
        for object in objects {
            let alone = self.0.tx.alone();
            match alone.and_then(|alone| self.0.elements.read_alone(alone, self.0.first + object)) {
                Some(value) => _ = black_box(value),
                None => self.0.packet::<false, 1>(&[*object])?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&mut self) -> Result<(), Conflict> {
        self.0.commit()
    }

    fn abort(&mut self) {
        self.0.abort();
    }
}

/// Objects of both kinds on the same kind of pages, for two workers.
pub struct Objects {
    lines: Bytes,
    elements: Vector<Value>,
    domain: Arc<Domain>,
    count: u32,
}

impl Objects {
    /// Allocates `count` objects of each kind.
    pub fn new(count: u32) -> Result<Objects, StateError> {
        let domain = Domain::new(2);
        let mut builder = StateBuilder::new(&domain, HugePages::Prefer);
        let config = VectorConfig { name: "objects".into(), len: count };
        let elements = Vector::new(&mut builder, &config, [1; 2])?;
        let lines = Bytes::new(count as usize * size_of::<Line>(), HugePages::Prefer);
        let lines = lines.map_err(|source| StateError::Memory { name: "lines".into(), source })?;
        let mut objects = Objects { lines, elements, domain, count };
        objects.plain().0.fill([1; 8]);
        Ok(objects)
    }

    /// Number of objects of each kind.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// All objects, unprotected.
    pub fn plain(&mut self) -> Plain<'_> {
        let Ok(lines) = <[Line]>::mut_from_bytes(&mut self.lines) else {
            unreachable!("a region of whole lines, aligned to a page")
        };
        Plain(lines)
    }

    /// All objects, unprotected, inside empty transactions.
    pub fn untouched(&mut self) -> Untouched<'_> {
        let tx = Tx::new(&self.domain, 0);
        Untouched(self.plain(), tx)
    }

    /// The objects from `first` on, in transactions of a worker.
    pub fn shared(&self, worker: usize, first: u32) -> Shared {
        Shared { elements: self.elements.clone(), first, tx: Tx::new(&self.domain, worker) }
    }
}
