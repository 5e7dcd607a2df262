//! Our algorithm, through the public interface.

use std::hint::black_box;
use std::sync::Arc;

use braid_stm::{Arena, ArenaInit, Conflict, Domain, HugePages, ObjectInfo, Op, Part, Tx};

use super::{Engine, Work};

pub struct Lazy {
    arena: Arena,
    domain: Arc<Domain>,
}

/// A thread's transaction.
pub struct Worker(Tx);

impl Lazy {
    pub fn new(objects: u32, threads: usize) -> Lazy {
        let domain = Domain::new(threads);
        let object = domain.register(ObjectInfo { name: "bench".into(), kind: "Bench" });
        let init = ArenaInit { object, part: Part(0), objects, payload_words: 2, pages: HugePages::Prefer };
        let arena = Arena::new(&domain, init).expect("memory for the bench");
        Lazy { arena, domain }
    }

    #[inline(always)]
    fn attempt(&self, tx: &mut Tx, indices: &[u32], work: Work) -> Result<(), Conflict> {
        for index in indices {
            if work == Work::Read {
                black_box(tx.read::<2>(&self.arena, *index, Op::new(1))?);
            } else {
                let words = tx.update_words(&self.arena, *index, 2, Op::new(2))?;
                let (x, y) = (words[0], words[1]);
                (words[0], words[1]) = (x + 1, y + x);
            }
        }
        tx.commit().map(drop)
    }
}

impl Engine for Lazy {
    const NAME: &'static str = "lazy clock (ours)";
    type Worker = Worker;

    fn objects(&self) -> u32 {
        self.arena.objects()
    }

    fn worker(&self, thread: usize) -> Worker {
        Worker(Tx::new(&self.domain, thread))
    }

    #[inline(always)]
    fn prefetch(&self, index: u32) {
        self.arena.prefetch_write(index);
    }

    #[inline(never)]
    fn batch(&self, Worker(tx): &mut Worker, indices: &[u32], work: Work) {
        while self.attempt(tx, indices, work).is_err() {
            tx.abort();
        }
    }
}
