//! Memory is freed once it is unreachable, and not before.
#![cfg(not(loom))]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_stm::{Arena, ArenaInit, Boosted, Domain, HugePages, ObjectInfo, Op, Part, Tx};
use common::{arena, retry};

const READ: Op = Op::new(1);
const WRITE: Op = Op::new(2);

/// Size of an arena of 64 objects of one line each.
const BYTES: usize = 64 * 64;

fn small(domain: &Arc<Domain>) -> Arena {
    arena(domain, 64, 7)
}

/// Does what a run does after it has given up structures.
fn reclaim(domain: &Domain, transactions: &mut [&mut Tx]) {
    for _ in 0..5 {
        transactions.iter_mut().for_each(|tx| tx.let_go());
        if !domain.reclaim() {
            break;
        }
    }
}

#[test]
fn memory_without_a_handle_goes_when_every_transaction_has_let_go() {
    let domain = Domain::new(3);
    let (objects, mut a, mut b) = (small(&domain), Tx::new(&domain, 0), Tx::new(&domain, 1));
    let same = objects.clone();
    drop(objects);
    reclaim(&domain, &mut [&mut a, &mut b]);
    assert_eq!(domain.mapped_bytes(), BYTES, "there is another handle");
    drop(same);
    reclaim(&domain, &mut [&mut a]);
    assert_eq!(domain.mapped_bytes(), BYTES, "one has not let go");
    reclaim(&domain, &mut [&mut b]);
    assert_eq!(domain.mapped_bytes(), 0, "the other had already");
}

#[test]
fn what_a_transaction_has_touched_stays_until_its_end() {
    let domain = Domain::new(2);
    let (mut a, mut b) = (Tx::new(&domain, 0), Tx::new(&domain, 1));
    let (kept, objects) = (small(&domain), small(&domain));
    retry(&mut b, |tx| tx.write(&objects, 3, &[1], WRITE));
    a.read::<1>(&objects, 3, READ).unwrap();
    a.update_ref(&objects, 4, WRITE).unwrap()[0] = 5;
    drop(objects);
    reclaim(&domain, &mut [&mut a, &mut b]);
    assert_eq!(domain.mapped_bytes(), 2 * BYTES);
    // A version newer than its snapshot: the attempt validates everything that it has read, and locks what it has written.
    retry(&mut b, |tx| tx.write(&kept, 0, &[1], WRITE));
    a.read::<1>(&kept, 0, READ).unwrap();
    a.commit().unwrap();
    reclaim(&domain, &mut [&mut a, &mut b]);
    assert_eq!(domain.mapped_bytes(), BYTES);
}

#[test]
fn a_conflict_over_memory_that_is_to_go_still_says_where_it_was() {
    let domain = Domain::new(2);
    let (mut a, mut b, objects) = (Tx::new(&domain, 0), Tx::new(&domain, 1), small(&domain));
    a.update_ref(&objects, 9, WRITE).unwrap()[0] = 5;
    retry(&mut b, |tx| tx.write(&objects, 9, &[1], WRITE));
    drop(objects);
    reclaim(&domain, &mut [&mut b]);
    assert!(a.commit().is_err());
    let report = *a.last_conflict().expect("it has just failed");
    assert_eq!((report.object.map(|object| domain.info(object).name), report.index), (Some("test".into()), 9));
}

#[test]
fn nobody_waits_for_transactions_that_ended_or_began_later() {
    let domain = Domain::new(3);
    let (objects, ended) = (small(&domain), Tx::new(&domain, 0));
    drop(objects);
    domain.reclaim();
    assert_eq!(domain.mapped_bytes(), BYTES);
    let _later = Tx::new(&domain, 1);
    drop(ended);
    domain.reclaim();
    assert_eq!(domain.mapped_bytes(), 0);
}

/// A structure whose deferred actions access memory of its own.
struct Counted {
    objects: Arena,
    applied: Arc<Mutex<u64>>,
}

impl Boosted for Counted {
    fn apply(&self, _worker: usize, _action: u32, argument: u64, _sequence: u64) {
        *self.applied.lock().unwrap() += argument + self.objects.hint(0, 0);
    }

    fn undo(&self, _worker: usize, _action: u32, _argument: u64) {}
}

#[test]
fn a_structure_stays_for_its_deferred_actions_and_then_goes_with_its_memory() {
    let domain = Domain::new(1);
    let (mut tx, applied) = (Tx::new(&domain, 0), Arc::default());
    let id = domain.register(ObjectInfo { name: "counted".into(), kind: "Test" });
    let init = ArenaInit { object: id, part: Part(0), objects: 64, payload_words: 7, pages: HugePages::Never };
    let objects = Arena::new(&domain, init).expect("a small arena fits");
    objects.initialise(0, &[40]);
    domain.attach(id, Arc::new(Counted { objects, applied: Arc::clone(&applied) }));
    tx.defer(id, 0, 2);
    reclaim(&domain, &mut [&mut tx]);
    tx.commit().unwrap();
    assert_eq!((*applied.lock().unwrap(), domain.mapped_bytes()), (42, BYTES));
    reclaim(&domain, &mut [&mut tx]);
    assert_eq!((Arc::strong_count(&applied), domain.mapped_bytes()), (1, 0));
}

#[test]
fn the_number_of_a_structure_that_is_gone_is_that_of_the_next_one_of_its_name() {
    let domain = Domain::new(1);
    let register = |name: &str, kind| domain.register(ObjectInfo { name: name.into(), kind });
    let (first, other) = (small(&domain), register("other", "Test"));
    let second = register("test", "Test");
    assert_ne!(second.0, 0, "the first is there");
    drop(first);
    reclaim(&domain, &mut []);
    assert_ne!(register("test", "Map").0, 0, "another kind");
    assert_eq!(register("test", "Test").0, 0);
    assert_eq!((other.0, domain.objects().len()), (1, 4));
}

#[test]
fn workers_go_on_while_what_they_used_is_replaced_and_unmapped() {
    const WORKERS: usize = 3;
    let domain = Domain::new(WORKERS);
    let (current, rounds, done) = (Mutex::new(small(&domain)), AtomicU64::new(0), AtomicBool::new(false));
    let work = |mut tx: Tx| {
        while !done.load(Ordering::Relaxed) {
            let objects = current.lock().unwrap().clone();
            let mut add = |index| tx.update_ref(&objects, index, WRITE).map(|words| words[6] += 1);
            let touched = (0..64).try_for_each(&mut add);
            // An attempt that commits or is given up now may refer to objects without a handle, if they have been replaced.
            drop(objects);
            std::thread::yield_now();
            if touched.and_then(|()| tx.commit().map(drop)).is_err() {
                tx.abort();
            }
            tx.let_go();
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..WORKERS).map(|worker| Tx::new(&domain, worker)).for_each(|tx| drop(scope.spawn(|| work(tx))));
        for replaced in 1..100 {
            *current.lock().unwrap() = small(&domain);
            domain.reclaim();
            while rounds.load(Ordering::Relaxed) < 4 * replaced || domain.mapped_bytes() > 8 * BYTES {
                std::thread::yield_now();
                domain.reclaim();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    domain.reclaim();
    assert_eq!((domain.mapped_bytes(), domain.objects().len() <= 9), (BYTES, true));
}
