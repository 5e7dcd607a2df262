//! The requirements on transactions, and defects of the NFOS runtime that must not recur, one test each.
#![cfg(not(loom))]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_stm::{Arena, Boosted, ConflictKind, Domain, ObjectId, ObjectInfo, Op, PATIENCE, Part, Tx, Violation};
use common::{arena, retry};

const READ: Op = Op::new(1);
const WRITE: Op = Op::new(2);

fn pair(objects: u32) -> (Arc<Domain>, Arena, Tx, Tx) {
    let domain = Domain::new(2);
    let objects = arena(&domain, objects, 2);
    let (a, b) = (Tx::new(&domain, 0), Tx::new(&domain, 1));
    (domain, objects, a, b)
}

fn set(tx: &mut Tx, objects: &Arena, index: u32, value: u64) {
    tx.write(objects, index, &[value, 0], WRITE).expect("nobody else runs");
    tx.commit().expect("nobody else runs");
}

fn value(objects: &Arena, index: u32) -> u64 {
    let mut words = [0; 2];
    objects.snapshot(index, &mut words);
    words[0]
}

#[test]
fn a_handler_that_touches_nothing_commits_for_nothing() {
    let (_, _, mut tx, _) = pair(1);
    assert!(tx.is_untouched());
    tx.commit().unwrap();
    assert_eq!(tx.stats(), Default::default());
}

#[test]
fn a_read_only_transaction_validates_nothing_and_needs_no_abort_when_overtaken() {
    let (_, objects, mut a, mut b) = pair(2);
    assert_eq!(a.read::<1>(&objects, 0, READ), Ok([0]));
    set(&mut b, &objects, 0, 5);
    // Its position in the order is its snapshot, before the other's commit.
    a.commit().unwrap();
    assert_eq!(a.stats().read_only, 1);
}

#[test]
fn what_was_only_read_settles_at_once_and_what_was_written_does_not() {
    let (_, objects, mut a, mut b) = pair(2);
    assert!(a.settle());
    assert_eq!(a.read::<1>(&objects, 0, READ), Ok([0]));
    set(&mut b, &objects, 0, 5);
    assert!(a.settle() && a.is_untouched());
    assert_eq!(a.read::<1>(&objects, 0, READ), Ok([5]), "the next transaction sees what came after");
    a.write(&objects, 1, &[1, 0], WRITE).unwrap();
    assert!(!a.settle() && !a.is_untouched());
    a.commit().unwrap();
    assert_eq!(value(&objects, 1), 1);
}

#[test]
fn who_reads_alone_sees_what_stands_and_has_begun_nothing() {
    let (_, objects, mut a, mut b) = pair(2);
    let read = |tx: &Tx| {
        let mut words = [0; 2];
        tx.alone().map(|alone| alone.read(&objects, 0, &mut words)).map(|is_read| is_read.then_some(words[0]))
    };
    set(&mut b, &objects, 0, 5);
    assert_eq!((read(&a), a.is_untouched(), a.footprint()), (Some(Some(5)), true, (0, 0)));
    a.write(&objects, 1, &[1, 0], WRITE).unwrap();
    assert_eq!(read(&a), None, "an attempt has begun, and what it reads belongs together");
    a.abort();
    a.begin_now();
    assert_eq!(read(&a), None, "an attempt of several handlers has begun");
    a.abort();
    assert_eq!(read(&a), Some(Some(5)));
}

#[test]
fn nothing_is_seen_that_no_order_produces() {
    let (_, objects, mut a, mut b) = pair(2);
    assert_eq!(a.read::<1>(&objects, 0, READ), Ok([0]));
    b.write(&objects, 0, &[1, 0], WRITE).unwrap();
    b.write(&objects, 1, &[1, 0], WRITE).unwrap();
    b.commit().unwrap();
    // The old object 0 and the new object 1 never existed together.
    assert!(a.read::<1>(&objects, 1, READ).is_err());
}

#[test]
fn a_swallowed_conflict_cannot_commit() {
    let (_, objects, mut a, mut b) = pair(2);
    let _ = a.read::<1>(&objects, 0, READ);
    set(&mut b, &objects, 0, 1);
    set(&mut b, &objects, 1, 1);
    let _ignored = a.read::<1>(&objects, 1, READ);
    assert!(a.read::<1>(&objects, 0, READ).is_err() && a.write(&objects, 0, &[9, 9], WRITE).is_err());
    assert!(a.commit().is_err());
    a.abort();
    assert_eq!(value(&objects, 0), 1);
}

#[test]
fn what_comes_after_a_swallowed_conflict_does_not_heal_it() {
    let (_, objects, mut a, mut b) = pair(2);
    let before = a.savepoint();
    let _ = a.read::<1>(&objects, 0, READ);
    set(&mut b, &objects, 0, 1);
    set(&mut b, &objects, 1, 1);
    // The last operation of a packet; its handler ignores the conflict, and the next packet begins.
    let _ignored = a.read::<1>(&objects, 1, READ);
    let after = a.savepoint();
    assert!(a.read::<1>(&objects, 0, READ).is_err());
    assert_eq!((a.survives(&before), a.survives(&after)), (true, false));
    a.rollback(&after);
    assert!(a.commit().is_err(), "the packet before it has met the conflict");
    a.rollback(&before);
    a.write(&objects, 0, &[9, 9], WRITE).unwrap();
    a.commit().unwrap();
    assert_eq!(value(&objects, 0), 9);
}

#[test]
fn on_a_conflict_the_packets_before_it_commit_and_only_the_rest_is_done_again() {
    let (_, objects, mut a, mut b) = pair(4);
    let mut savepoints = Vec::new();
    for packet in 0..3 {
        savepoints.push(a.savepoint());
        let words = a.update_ref(&objects, packet, WRITE).unwrap();
        words[0] += 10;
    }
    set(&mut b, &objects, 1, 5);
    assert!(a.commit().is_err());
    assert_eq!(savepoints.iter().map(|s| a.survives(s)).collect::<Vec<_>>(), [true, true, false]);
    a.rollback(&savepoints[1]);
    a.commit().unwrap();
    assert_eq!([value(&objects, 0), value(&objects, 1), value(&objects, 2)], [10, 5, 0]);
}

#[test]
fn going_back_restores_values_longer_than_a_line_too() {
    let domain = Domain::new(2);
    let objects = arena(&domain, 300, 10);
    let mut a = Tx::new(&domain, 0);
    for index in 0..300 {
        a.write(&objects, index, &[u64::from(index); 10], WRITE).unwrap();
    }
    let savepoint = a.savepoint();
    a.update_ref(&objects, 7, WRITE).unwrap().fill(1);
    a.update_ref(&objects, 7, WRITE).unwrap()[9] = 2;
    assert_eq!(a.read::<10>(&objects, 7, READ).unwrap()[8..], [1, 2]);
    a.rollback(&savepoint);
    a.update_ref(&objects, 8, WRITE).unwrap()[9] = 3;
    a.commit().unwrap();
    assert_eq!(a.read::<10>(&objects, 7, READ), Ok([7; 10]));
    assert_eq!(a.read::<10>(&objects, 8, READ).unwrap()[8..], [8, 3]);
    assert_eq!(a.read::<10>(&objects, 299, READ), Ok([299; 10]));
}

#[test]
fn going_back_restores_values_that_were_written_twice() {
    let (_, objects, mut a, _) = pair(2);
    a.write(&objects, 0, &[1, 1], WRITE).unwrap();
    let savepoint = a.savepoint();
    a.write(&objects, 0, &[2, 2], WRITE).unwrap();
    a.write(&objects, 1, &[3, 3], WRITE).unwrap();
    a.write(&objects, 0, &[4, 4], WRITE).unwrap();
    a.rollback(&savepoint);
    assert_eq!(a.read::<2>(&objects, 0, READ), Ok([1, 1]));
    a.commit().unwrap();
    assert_eq!((value(&objects, 0), value(&objects, 1)), (1, 0));
}

#[test]
fn the_write_for_which_the_log_grows_is_found_again() {
    let (_, objects, mut a, _) = pair(2000);
    for index in 0..2000 {
        a.write(&objects, index, &[1, 1], WRITE).unwrap();
        assert_eq!(a.read::<2>(&objects, index, READ), Ok([1, 1]), "its own write of object {index}");
        a.write(&objects, index, &[2, 2], WRITE).unwrap();
    }
    a.commit().unwrap();
    assert!((0..2000).all(|index| value(&objects, index) == 2));
}

#[test]
fn an_abort_names_both_operations_object_worker_and_line() {
    let (domain, objects, mut a, mut b) = pair(3);
    let object = domain.objects()[0].0;
    let line = line!() + 1;
    let _ = a.read::<1>(&objects, 2, READ).unwrap();
    a.write(&objects, 0, &[1, 1], WRITE).unwrap();
    set(&mut b, &objects, 2, 7);
    assert!(a.commit().is_err());
    let report = a.last_conflict().unwrap();
    assert_eq!(
        (report.kind, report.object, report.part, report.index),
        (ConflictKind::Changed, Some(object), Part(0), 2)
    );
    assert_eq!((report.mine, report.theirs, report.other), (READ, WRITE, 1));
    assert_eq!((report.location.file(), report.location.line()), (file!(), line));
}

#[test]
fn a_worker_never_conflicts_with_itself() {
    // NFOS: 3.9 aborts per commit when one thread repeatedly writes one object.
    let (_, objects, mut a, mut b) = pair(2);
    for n in 1..10_000 {
        let words = a.update_ref(&objects, 0, WRITE).unwrap();
        words[0] += 1;
        a.commit().unwrap();
        assert_eq!(a.read::<1>(&objects, 0, READ), Ok([n]));
        a.commit().unwrap();
    }
    assert_eq!((a.stats().conflicts, a.stats().extensions), (0, 0));
    set(&mut b, &objects, 0, 0);
}

#[test]
fn a_transaction_may_read_and_write_as_many_objects_as_there_are() {
    // NFOS overwrites memory at the 1025th read.
    let (_, objects, mut a, _) = pair(10_000);
    for index in 0..10_000 {
        a.read::<1>(&objects, index, READ).unwrap();
    }
    for index in 0..10_000 {
        a.update_ref(&objects, index, WRITE).unwrap()[0] = u64::from(index);
    }
    a.commit().unwrap();
    assert!((0..10_000).all(|index| value(&objects, index) == u64::from(index)));
}

#[test]
fn a_worker_that_keeps_aborting_gets_its_turn_and_others_wait() {
    let (_, objects, mut a, mut b) = pair(2);
    for n in 0..u64::from(PATIENCE) {
        let _ = a.update_ref(&objects, 0, WRITE).unwrap();
        set(&mut b, &objects, 0, n);
        assert!(a.commit().is_err());
        a.abort();
    }
    // Now no other worker can commit an update.
    let words = a.update_ref(&objects, 0, WRITE).unwrap();
    words[0] = 99;
    assert!(a.has_turn());
    b.write(&objects, 1, &[1, 1], WRITE).unwrap();
    assert!(b.commit().is_err());
    assert_eq!(b.last_conflict().unwrap().kind, ConflictKind::Turn);
    b.abort();
    a.commit().unwrap();
    assert!(!a.has_turn());
    assert_eq!(retry(&mut b, |tx| tx.write(&objects, 1, &[1, 1], WRITE)), 1);
    assert_eq!((value(&objects, 0), value(&objects, 1)), (99, 1));
}

/// `a` has failed so often that its next attempt holds the turn; `b` can commit nothing then.
fn until_the_turn(a: &mut Tx, b: &mut Tx, objects: &Arena) {
    for n in 0..u64::from(PATIENCE) {
        let _ = a.update_ref(objects, 0, WRITE).unwrap();
        set(b, objects, 0, n);
        assert!(a.commit().is_err());
        a.abort();
    }
    a.read::<1>(objects, 0, READ).unwrap();
    assert!(a.has_turn());
}

#[test]
fn a_turn_ends_with_work_that_is_given_up() {
    let (_, objects, mut a, mut b) = pair(2);
    until_the_turn(&mut a, &mut b, &objects);
    a.abandon();
    assert!(!a.has_turn());
    set(&mut b, &objects, 0, 7);
    // Failures before do not count for what comes next.
    a.read::<1>(&objects, 0, READ).unwrap();
    assert!(!a.has_turn());
}

#[test]
fn a_turn_ends_with_a_commit_of_nothing() {
    let (_, objects, mut a, mut b) = pair(2);
    until_the_turn(&mut a, &mut b, &objects);
    a.abort();
    assert!(a.has_turn(), "it is kept for the next attempt");
    a.commit().unwrap();
    assert!(!a.has_turn());
    set(&mut b, &objects, 0, 7);
}

/// Counts what happens to its noted actions.
#[derive(Default)]
struct Notes {
    applied: AtomicU64,
    undone: AtomicU64,
    last_undone: AtomicU64,
}

impl Boosted for Notes {
    fn check(&self, action: u32, _argument: u64) -> bool {
        action != 7
    }

    fn apply(&self, _worker: usize, _action: u32, argument: u64, _sequence: u64) {
        self.applied.fetch_add(argument, Ordering::Relaxed);
    }

    fn undo(&self, _worker: usize, _action: u32, argument: u64) {
        self.undone.fetch_add(argument, Ordering::Relaxed);
        self.last_undone.store(argument, Ordering::Relaxed);
    }
}

fn notes(domain: &Arc<Domain>) -> (ObjectId, Arc<Notes>) {
    let object = domain.register(ObjectInfo { name: "notes".into(), kind: "Notes" });
    let notes = Arc::new(Notes::default());
    domain.attach(object, Arc::clone(&notes) as Arc<dyn Boosted>);
    (object, notes)
}

#[test]
fn deferred_actions_happen_once_at_commit_or_are_undone_in_reverse() {
    let (domain, _, mut a, _) = pair(1);
    let (object, notes) = notes(&domain);
    a.defer(object, 0, 1);
    let savepoint = a.savepoint();
    a.defer(object, 0, 10);
    a.defer(object, 0, 100);
    a.rollback(&savepoint);
    assert_eq!((notes.undone.load(Ordering::Relaxed), notes.last_undone.load(Ordering::Relaxed)), (110, 10));
    a.commit().unwrap();
    assert_eq!(notes.applied.load(Ordering::Relaxed), 1);
    a.defer(object, 0, 1000);
    drop(a);
    assert_eq!((notes.applied.load(Ordering::Relaxed), notes.undone.load(Ordering::Relaxed)), (1, 1110));
}

#[test]
fn a_structure_can_refuse_at_commit_and_take_back_what_it_noted() {
    let (domain, _, mut a, _) = pair(1);
    let (object, notes) = notes(&domain);
    a.defer(object, 7, 1);
    assert!(a.commit().is_err());
    assert_eq!(a.last_conflict().unwrap().kind, ConflictKind::Refused);
    a.abort();
    a.defer(object, 1, 5);
    let savepoint = a.savepoint();
    assert_eq!(a.retract(object, |action, _| action == 1, 2), Some(5));
    assert!(a.has_deferred(object, |action, _| action == 2) && !a.has_deferred(object, |action, _| action == 1));
    a.rollback(&savepoint);
    assert!(a.has_deferred(object, |action, _| action == 1));
    a.commit().unwrap();
    assert_eq!(notes.applied.load(Ordering::Relaxed), 5);
}

#[test]
fn recorded_places_are_an_order_and_choices_come_back() {
    let (_, objects, mut a, mut b) = pair(2);
    a.record();
    b.record();
    a.read::<1>(&objects, 0, READ).unwrap();
    set(&mut b, &objects, 0, 1);
    // While recording, a reader's position is that of its commit, not of its snapshot: this one would be out of order.
    assert!(a.commit().is_err());
    a.abort();
    a.read::<1>(&objects, 0, READ).unwrap();
    assert_eq!((a.choice(|| 42), a.choice(|| 43)), (42, 43));
    assert!(a.commit().unwrap().sequence > 1);
    assert_eq!(a.recorded_choices(), [42, 43]);
    let untouched = a.commit().unwrap();
    assert!(untouched.sequence > 2 && a.recorded_choices().is_empty());

    a.replay(9, vec![7, 8]);
    assert_eq!((a.choice(|| 0), a.commit().unwrap().sequence), (7, 9));
    assert_eq!(a.violations(), [Violation::Diverged { recorded: 2, asked: 1 }]);
}

#[test]
#[should_panic(expected = "another domain")]
fn an_arena_of_another_domain_is_refused() {
    let (_, _, mut a, _) = pair(1);
    let (_, other, _, _) = pair(1);
    let _ = a.read::<1>(&other, 0, READ);
}

#[test]
#[should_panic(expected = "has a transaction already")]
fn a_worker_has_one_transaction_at_a_time() {
    let domain = Domain::new(1);
    let _first = Tx::new(&domain, 0);
    let _second = Tx::new(&domain, 0);
}
