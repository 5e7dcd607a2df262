//! Transactions that lock their single object, concurrent with ordinary ones: nothing is lost, no worker waits for ever, and
//! nothing uncommitted takes effect.
#![cfg(not(loom))]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use braid_stm::{Arena, Domain, Op, Tx};
use common::{Random, arena, retry};

const WRITE: Op = Op::new(1);
const OBJECTS: u32 = 8;
const ROUNDS: u64 = 20_000;

fn world(workers: usize) -> (Arc<Domain>, Arena) {
    let domain = Domain::new(workers);
    let objects = arena(&domain, OBJECTS, 9);
    (domain, objects)
}

/// Adds one to the last word of an object, on its second cache line.
fn add_held(tx: &mut Tx, objects: &Arena, index: u32) {
    let held = tx.begin_holding(objects, index, WRITE);
    let mut words = [0; 9];
    held.copy_to(0, &mut words);
    tx.commit_holding(held, 8, &[words[8] + 1]);
}

fn add(tx: &mut Tx, objects: &Arena, indices: &[u32]) {
    retry(tx, |tx| {
        indices.iter().try_for_each(|index| tx.update_ref(objects, *index, WRITE).map(|words| words[8] += 1))
    });
}

fn value(objects: &Arena, index: u32) -> u64 {
    let mut words = [0; 9];
    objects.snapshot(index, &mut words);
    words[8]
}

#[test]
fn increments_of_those_that_hold_and_of_commits_of_every_size_are_all_there() {
    let (domain, objects) = world(3);
    let added: u64 = std::thread::scope(|scope| {
        let worker = |id: usize| {
            let (mut tx, mut random, objects) = (Tx::new(&domain, id), Random::new(id as u64), &objects);
            move || {
                let mut added = 0;
                for _ in 0..ROUNDS {
                    // Four or more objects are locked in a different way than fewer.
                    let count = random.below(7).saturating_sub(1);
                    let first = random.below(u64::from(OBJECTS)) as u32;
                    let indices: Vec<u32> = (0..count as u32).map(|i| (first + i) % OBJECTS).collect();
                    if indices.is_empty() {
                        add_held(&mut tx, objects, first)
                    } else {
                        add(&mut tx, objects, &indices)
                    }
                    added += count.max(1);
                }
                added
            }
        };
        let workers = [0, 1, 2].map(|id| scope.spawn(worker(id)));
        workers.into_iter().map(|worker| worker.join().expect("no worker fails")).sum()
    });
    assert_eq!((0..OBJECTS).map(|index| value(&objects, index)).sum::<u64>(), added);
}

#[test]
fn an_object_that_is_let_go_is_as_it_was_and_free() {
    let (domain, objects) = world(2);
    let mut tx = Tx::new(&domain, 0);
    add_held(&mut tx, &objects, 0);
    drop(tx.begin_holding(&objects, 0, WRITE));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _held = tx.begin_holding(&objects, 0, WRITE);
        panic!("a handler");
    }));
    assert!(panicked.is_err());
    assert_eq!(value(&objects, 0), 1);
    add(&mut Tx::new(&domain, 1), &objects, &[0]);
    assert_eq!(value(&objects, 0), 2);
}

#[test]
fn an_object_is_got_though_others_never_stop_writing_it() {
    let (domain, objects) = world(3);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for id in [1, 2] {
            let (mut tx, objects, done) = (Tx::new(&domain, id), &objects, &done);
            scope.spawn(move || {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    add(&mut tx, objects, &[0, 1, 2, 3]);
                }
            });
        }
        let mut tx = Tx::new(&domain, 0);
        (0..ROUNDS).for_each(|_| add_held(&mut tx, &objects, 0));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(value(&objects, 0) >= ROUNDS);
}

#[test]
fn a_turn_that_was_taken_to_hold_an_object_is_given_back() {
    let (domain, objects) = world(2);
    let mut tx = Tx::new(&domain, 0);
    tx.serialise();
    add_held(&mut tx, &objects, 0);
    assert!(!tx.has_turn());
    add(&mut Tx::new(&domain, 1), &objects, &[0]);
    assert_eq!(value(&objects, 0), 2);
}

#[test]
fn a_turn_is_given_back_by_the_next_commit_if_the_object_stays_as_it_was() {
    let (domain, objects) = world(2);
    let mut tx = Tx::new(&domain, 0);
    tx.serialise();
    drop(tx.begin_holding(&objects, 0, WRITE));
    assert!(tx.has_turn());
    tx.commit().expect("nothing was accessed");
    assert!(!tx.has_turn());
    add(&mut Tx::new(&domain, 1), &objects, &[0]);
    assert_eq!(value(&objects, 0), 1);
}

#[test]
fn what_is_written_while_an_object_is_held_is_not_thrown_away_silently() {
    let (domain, objects) = world(2);
    let mut tx = Tx::new(&domain, 0);
    let holding = tx.begin_holding(&objects, 0, WRITE);
    tx.write(&objects, 1, &[7; 9], WRITE).expect("nobody else writes");
    assert!(catch_unwind(AssertUnwindSafe(|| tx.commit_holding(holding, 8, &[1]))).is_err());
    tx.abort();
    assert_eq!((value(&objects, 0), value(&objects, 1)), (0, 0));
    add(&mut Tx::new(&domain, 1), &objects, &[0, 1]);
}

#[test]
#[should_panic = "inside of a transaction"]
fn who_has_touched_something_holds_nothing() {
    let (domain, objects) = world(1);
    let mut tx = Tx::new(&domain, 0);
    let _ = tx.read::<1>(&objects, 1, WRITE);
    drop(tx.begin_holding(&objects, 0, WRITE));
}
