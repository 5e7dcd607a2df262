//! In a domain of one worker a packet that has changed something may be final at once; in a domain of several it may not.
#![cfg(not(loom))]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_stm::{Arena, Boosted, Domain, ObjectId, ObjectInfo, Op, Tx};
use common::arena;

const READ: Op = Op::new(1);
const WRITE: Op = Op::new(2);

/// Actions with this number are refused.
const REFUSED: u32 = 7;

#[derive(Default)]
struct Notes {
    applied: AtomicU64,
}

impl Boosted for Notes {
    fn check(&self, action: u32, _argument: u64) -> bool {
        action != REFUSED
    }

    fn apply(&self, _worker: usize, _action: u32, argument: u64, _sequence: u64) {
        self.applied.fetch_add(argument, Ordering::Relaxed);
    }

    fn undo(&self, _worker: usize, _action: u32, _argument: u64) {}
}

struct Scene {
    objects: Arena,
    other: ObjectId,
    notes: Arc<Notes>,
    tx: Tx,
}

impl Scene {
    fn of(workers: usize) -> Scene {
        let domain = Domain::new(workers);
        let (objects, notes) = (arena(&domain, 4, 2), Arc::new(Notes::default()));
        let other = domain.register(ObjectInfo { name: "notes".into(), kind: "Notes" });
        domain.attach(other, Arc::clone(&notes) as Arc<dyn Boosted>);
        Scene { objects, other, notes, tx: Tx::new(&domain, 0) }
    }

    /// Does what a packet does that changes a number of objects and defers an action.
    fn change(&mut self, objects: u32, action: Option<u32>, value: u64) {
        for index in 0..objects {
            self.tx.write(&self.objects, index, &[value, 0], WRITE).expect("nobody else runs");
        }
        if let Some(action) = action {
            self.tx.defer(self.other, action, value);
        }
    }

    /// Returns the committed values of all objects, and of the notes.
    fn standing(&self) -> ([u64; 4], u64) {
        let value = |index| {
            let mut words = [0; 2];
            self.objects.snapshot(index, &mut words);
            words[0]
        };
        ([0, 1, 2, 3].map(value), self.notes.applied.load(Ordering::Relaxed))
    }

    fn read(&mut self, index: u32) -> u64 {
        self.tx.read::<1>(&self.objects, index, READ).expect("nobody else runs")[0]
    }
}

#[test]
fn what_one_worker_has_changed_stands_at_once_and_the_next_packet_begins_afresh() {
    for (objects, action, expected) in [(1, None, ([5, 0, 0, 0], 0)), (3, Some(1), ([5, 5, 5, 0], 5))] {
        let mut scene = Scene::of(1);
        assert_eq!(scene.read(3), 0);
        scene.change(objects, action, 5);
        assert!(!scene.tx.settle() && scene.tx.settle_alone() && scene.tx.is_untouched());
        assert_eq!(scene.standing(), expected);
        assert_eq!((scene.tx.stats().updates, scene.tx.footprint()), (1, (0, 0)));
        scene.tx.abort();
        assert_eq!(scene.standing(), expected, "it is no attempt any more");
        scene.change(1, None, 6);
        assert!(scene.tx.settle_alone() && scene.read(0) == 6, "nor is what it locked locked");
    }
}

#[test]
fn of_several_workers_none_is_alone() {
    let mut scene = Scene::of(2);
    for (objects, action) in [(1, None), (3, Some(1))] {
        scene.change(objects, action, 5);
        assert!(!scene.tx.settle_alone() && !scene.tx.is_untouched());
        assert_eq!(scene.standing(), ([0; 4], 0), "nothing has happened");
        scene.tx.abort();
    }
    scene.change(3, Some(1), 5);
    assert!(!scene.tx.settle_alone());
    scene.tx.commit().expect("it goes on as if nobody had asked");
    assert_eq!(scene.standing(), ([5, 5, 5, 0], 5));
}

#[test]
fn what_is_pending_is_read_by_its_own_attempt_and_by_nobody_who_reads_beside_it() {
    let mut scene = Scene::of(1);
    scene.change(2, None, 5);
    assert_eq!((scene.read(0), scene.read(1), scene.standing()), (5, 5, ([0; 4], 0)));
    assert!(scene.tx.alone().is_none(), "an attempt has begun");
    assert!(scene.tx.settle_alone());
    let mut words = [0; 2];
    let alone = scene.tx.alone().expect("it has ended");
    assert!(alone.read(&scene.objects, 1, &mut words) && words == [5, 0]);
    scene.change(1, None, 6);
    scene.tx.abort();
    assert_eq!((scene.read(0), scene.standing()), (5, ([5, 5, 0, 0], 0)), "what did not stand is gone");
}

#[test]
fn what_may_not_be_done_any_more_or_is_watched_does_not_stand_at_once() {
    let mut scene = Scene::of(1);
    assert!(!scene.tx.settle_alone(), "there is nothing to stand");
    scene.change(2, Some(REFUSED), 5);
    assert!(!scene.tx.settle_alone() && scene.tx.commit().is_err());
    assert_eq!(scene.standing(), ([0; 4], 0));
    scene.tx.abort();
    scene.tx.record();
    scene.change(2, Some(1), 5);
    assert!(!scene.tx.settle_alone(), "a recorded one needs its place in the order");
    assert!(scene.tx.commit().expect("nobody is in the way").sequence > 0);
    assert_eq!(scene.standing(), ([5, 5, 0, 0], 5));
}
