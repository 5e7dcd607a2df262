//! The protocol under every interleaving and every reordering that loom models, for two or three threads and two objects.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p braid-stm --release --test loom`
#![cfg(loom)]

mod common;

use braid_stm::{Arena, Conflict, Domain, Op, Tx};
use common::arena;
use loom::sync::Arc;
use loom::thread;

const X: u32 = 0;
const Y: u32 = 1;
const Z: u32 = 2;
const READ: Op = Op::new(1);
const WRITE: Op = Op::new(2);

/// Explores with at most this many forced switches; voluntary switches (a thread that waits or ends) do not count.
fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

struct World {
    domain: std::sync::Arc<Domain>,
    objects: Arena,
}

fn world(workers: usize) -> Arc<World> {
    let domain = Domain::new(workers);
    let objects = arena(&domain, 3, 1);
    Arc::new(World { domain, objects })
}

impl World {
    fn read(&self, tx: &mut Tx, index: u32) -> Result<u64, Conflict> {
        Ok(tx.read::<1>(&self.objects, index, READ)?[0])
    }

    fn write(&self, tx: &mut Tx, index: u32, value: u64) -> Result<(), Conflict> {
        tx.write(&self.objects, index, &[value], WRITE)
    }

    fn increment(&self, tx: &mut Tx, index: u32) -> Result<(), Conflict> {
        tx.update_ref(&self.objects, index, WRITE)?[0] += 1;
        Ok(())
    }

    fn value(&self, index: u32) -> u64 {
        let mut value = [0];
        self.objects.snapshot(index, &mut value);
        value[0]
    }
}

/// Makes a single attempt: an exploration of retries would not end.
fn once(tx: &mut Tx, body: impl FnOnce(&mut Tx) -> Result<(), Conflict>) -> bool {
    let done = body(tx).and_then(|()| tx.commit().map(drop)).is_ok();
    if !done {
        tx.abort();
    }
    done
}

#[test]
fn a_reader_sees_both_writes_or_none() {
    explore(3, || {
        let world = world(2);
        let writer = Arc::clone(&world);
        let writer = thread::spawn(move || {
            let mut tx = Tx::new(&writer.domain, 0);
            for value in 1..=2 {
                assert!(once(&mut tx, |tx| {
                    writer.write(tx, X, value)?;
                    writer.write(tx, Y, value)
                }));
            }
        });
        let mut tx = Tx::new(&world.domain, 1);
        let _ = once(&mut tx, |tx| {
            let (x, y) = (world.read(tx, X)?, world.read(tx, Y)?);
            // Even in an attempt that aborts later.
            assert_eq!(x, y);
            Ok(())
        });
        drop(tx);
        writer.join().expect("the writer ends");
        assert_eq!((world.value(X), world.value(Y)), (2, 2));
    });
}

#[test]
fn increments_are_not_lost() {
    explore(3, || {
        let world = world(2);
        let increment = |world: Arc<World>, worker: usize| {
            let mut tx = Tx::new(&world.domain, worker);
            u64::from(once(&mut tx, |tx| {
                let x = world.read(tx, X)?;
                world.write(tx, X, x + 1)
            }))
        };
        let other = Arc::clone(&world);
        let other = thread::spawn(move || increment(other, 0));
        let done = increment(Arc::clone(&world), 1) + other.join().expect("the other ends");
        assert_eq!(world.value(X), done);
    });
}

/// Counts for how many of the objects a single attempt to increment them succeeds.
fn increment_all(world: &World, worker: usize, objects: &[u32]) -> u64 {
    let mut tx = Tx::new(&world.domain, worker);
    u64::from(once(&mut tx, |tx| objects.iter().try_for_each(|index| world.increment(tx, *index))))
}

/// Initially worker 0 owns every object: it locks one by compare-and-swap, two by stores. The other worker takes them over.
fn taken_over(own: &'static [u32], others: &'static [u32]) {
    explore(3, move || {
        let world = world(2);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || increment_all(&other, 1, others));
        let here = increment_all(&world, 0, own);
        let there = other.join().expect("the other ends");
        for index in [X, Y] {
            let of = |objects: &[u32], done| if objects.contains(&index) { done } else { 0 };
            assert_eq!(world.value(index), of(own, here) + of(others, there), "object {index}");
        }
    });
}

#[test]
fn an_object_is_taken_over_from_an_owner_that_writes_it_alone() {
    taken_over(&[X], &[X]);
}

#[test]
fn an_object_is_taken_over_from_an_owner_that_locks_by_stores() {
    taken_over(&[X, Y], &[Y]);
}

#[test]
fn an_owner_that_locks_by_stores_and_one_that_takes_over_as_many_do_not_both_have_them() {
    taken_over(&[X, Y], &[Y, X]);
}

/// Increments an object in a transaction that locks it first.
fn increment_held(world: &World, worker: usize, index: u32) {
    let mut tx = Tx::new(&world.domain, worker);
    let held = tx.begin_holding(&world.objects, index, WRITE);
    let mut value = [0];
    held.copy_to(0, &mut value);
    tx.commit_holding(held, 0, &[value[0] + 1]);
}

#[test]
fn two_that_hold_an_object_one_after_another_lose_no_increment() {
    explore(3, || {
        let world = world(2);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || increment_held(&other, 1, X));
        increment_held(&world, 0, X);
        other.join().expect("the other ends");
        assert_eq!(world.value(X), 2);
    });
}

/// Worker 1 locks X while worker 0, which owns all objects, commits changes of some: nothing is lost, and X is always acquired.
fn held_beside(own: &'static [u32]) {
    explore(3, move || {
        let world = world(2);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || increment_held(&other, 1, X));
        let here = increment_all(&world, 0, own);
        other.join().expect("the other ends");
        assert_eq!(world.value(X), 1 + here);
    });
}

#[test]
fn an_object_is_held_beside_an_owner_that_writes_it_alone() {
    held_beside(&[X]);
}

#[test]
fn an_object_is_held_beside_an_owner_that_locks_by_stores() {
    held_beside(&[X, Y]);
}

#[test]
fn whoever_reads_two_objects_that_were_held_in_turn_sees_an_order() {
    explore(3, || {
        let world = world(2);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || {
            increment_held(&other, 1, X);
            increment_held(&other, 1, Y);
        });
        let mut tx = Tx::new(&world.domain, 0);
        let _ = once(&mut tx, |tx| {
            let (x, y) = (world.read(tx, X)?, world.read(tx, Y)?);
            assert!(x >= y, "the second without the first");
            Ok(())
        });
        drop(tx);
        other.join().expect("the other ends");
    });
}

#[test]
fn who_reads_one_and_holds_another_and_who_does_the_opposite_see_an_order() {
    explore(3, || {
        let world = world(2);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || {
            let mut tx = Tx::new(&other.domain, 1);
            let mut seen = 9;
            let done = once(&mut tx, |tx| {
                seen = other.read(tx, X)?;
                other.increment(tx, Y)
            });
            (done, seen)
        });
        // First X, then a read of Y: two transactions, in this order.
        let mut tx = Tx::new(&world.domain, 0);
        let held = tx.begin_holding(&world.objects, X, WRITE);
        tx.commit_holding(held, 0, &[1]);
        let held = tx.begin_holding(&world.objects, Y, WRITE);
        let mut y = [9];
        held.copy_to(0, &mut y);
        drop(held);
        drop(tx);
        let there = other.join().expect("the other ends");
        assert!(!(y == [0] && there == (true, 0)), "neither saw the other");
    });
}

#[test]
fn locks_by_stores_stop_whoever_has_read_what_they_change() {
    explore(3, || {
        let world = world(2);
        // So that no worker has to take over an object, which alone would impose an order.
        assert_eq!(increment_all(&world, 1, &[X]), 1);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || {
            let mut tx = Tx::new(&other.domain, 1);
            let mut seen = 9;
            let done = once(&mut tx, |tx| {
                seen = other.read(tx, Y)?;
                other.increment(tx, X)
            });
            (done, seen)
        });
        let mut tx = Tx::new(&world.domain, 0);
        let mut seen = 9;
        let done = once(&mut tx, |tx| {
            seen = world.read(tx, X)?;
            world.increment(tx, Y)?;
            world.increment(tx, Z)
        });
        drop(tx);
        let there = other.join().expect("the other ends");
        // Write skew: in either order the second would have seen the other's increment.
        assert!(!(done && seen == 1 && there == (true, 0)));
    });
}

#[test]
fn two_transactions_that_read_what_the_other_writes_do_not_both_commit() {
    explore(3, || {
        let world = world(2);
        let cross = |world: Arc<World>, worker: usize, from: u32, to: u32| {
            let mut tx = Tx::new(&world.domain, worker);
            let mut seen = 9;
            let done = once(&mut tx, |tx| {
                seen = world.read(tx, from)?;
                world.write(tx, to, seen + 1)
            });
            (done, seen)
        };
        let other = Arc::clone(&world);
        let other = thread::spawn(move || cross(other, 0, X, Y));
        let (here, there) = (cross(Arc::clone(&world), 1, Y, X), other.join().expect("the other ends"));
        // Write skew: in either order the second would have seen 1.
        assert!(!(here == (true, 0) && there == (true, 0)));
    });
}

#[test]
fn a_reader_that_saw_the_second_of_two_writers_sees_the_first() {
    // The flaw of validating before drawing the version: T1 reads y and writes x, T2 writes y. If T1 came before T2 (T1 read
    // the old y and committed), no reader may see T2's y but not T1's x.
    explore(2, || {
        let world = world(3);
        let (first, second) = (Arc::clone(&world), Arc::clone(&world));
        let first = thread::spawn(move || {
            let mut tx = Tx::new(&first.domain, 0);
            let mut y = 9;
            let done = once(&mut tx, |tx| {
                y = first.read(tx, Y)?;
                first.write(tx, X, 1)
            });
            done && y == 0
        });
        let second = thread::spawn(move || {
            let mut tx = Tx::new(&second.domain, 1);
            once(&mut tx, |tx| second.write(tx, Y, 1))
        });
        let mut tx = Tx::new(&world.domain, 2);
        let (mut x, mut y) = (9, 9);
        let read = once(&mut tx, |tx| {
            y = world.read(tx, Y)?;
            x = world.read(tx, X)?;
            Ok(())
        });
        drop(tx);
        let first_was_first = first.join().expect("the first ends");
        second.join().expect("the second ends");
        assert!(!(first_was_first && read && y == 1 && x == 0), "T2 without T1");
    });
}

#[test]
fn a_worker_in_its_turn_is_not_disturbed() {
    explore(2, || {
        let world = world(2);
        let other = Arc::clone(&world);
        let other = thread::spawn(move || {
            let mut tx = Tx::new(&other.domain, 0);
            for _ in 0..2 {
                let _ = once(&mut tx, |tx| {
                    let x = other.read(tx, X)?;
                    other.write(tx, X, x + 1)
                });
            }
        });
        let mut tx = Tx::new(&world.domain, 1);
        tx.serialise();
        let attempt = |tx: &mut Tx| {
            once(tx, |tx| {
                let x = world.read(tx, X)?;
                world.write(tx, X, x + 10)
            })
        };
        // One commit of the other worker may already have passed the check.
        assert!(attempt(&mut tx) || attempt(&mut tx), "two attempts are enough beside one other worker");
        drop(tx);
        other.join().expect("the other ends");
    });
}
