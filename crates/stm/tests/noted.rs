//! Changes by a worker's commits are noted while this is requested, and nothing else is.
#![cfg(not(loom))]

mod common;

use braid_stm::{Arena, Domain, Op, Tx};
use common::{arena, retry};

const WRITE: Op = Op::new(1);

fn add(tx: &mut Tx, objects: &Arena, index: u32) {
    retry(tx, |tx| tx.update_ref(objects, index, WRITE).map(|words| words[0] += 1));
}

fn noted(tx: &mut Tx) -> Vec<(usize, u32)> {
    let mut noted = Vec::new();
    tx.take_changes(&mut noted);
    noted
}

#[test]
fn commits_are_noted_however_they_write_and_attempts_are_not() {
    let domain = Domain::new(2);
    let [first, second, other] = [3, 9, 3].map(|words| arena(&domain, 4, words));
    let (mut tx, mut unwatched) = (Tx::new(&domain, 0), Tx::new(&domain, 1));
    add(&mut tx, &first, 0);
    tx.note_changes(vec![first.clone(), second.clone()]);
    assert_eq!(noted(&mut tx), []);
    add(&mut tx, &first, 1);
    add(&mut tx, &other, 2);
    add(&mut unwatched, &first, 3);
    assert_eq!(noted(&mut tx), [(0, 1)], "one object alone, of an arena that is watched, by this worker");
    retry(&mut tx, |tx| (0..4).try_for_each(|index| tx.write(&second, index, &[1], WRITE)));
    assert_eq!(noted(&mut tx), [(1, 0), (1, 1), (1, 2), (1, 3)], "several at once");
    let held = tx.begin_holding(&second, 2, WRITE);
    tx.commit_holding(held, 0, &[7]);
    assert_eq!(noted(&mut tx), [(1, 2)], "one that was held");
    tx.update_ref(&first, 0, WRITE).expect("nobody is in the way")[0] += 1;
    tx.abort();
    tx.read_ref(&first, 0, WRITE).expect("nobody is in the way");
    tx.commit().expect("nobody is in the way");
    assert_eq!(noted(&mut tx), [], "neither an attempt nor a look");
    tx.note_change(&first, 3);
    assert_eq!(noted(&mut tx), [(0, 3)], "what is kept beside it");
    tx.note_changes(Vec::new());
    add(&mut tx, &first, 1);
    tx.note_change(&first, 1);
    assert_eq!(noted(&mut tx), [], "nobody asks any more");
    assert!(tx.is_fresh() && tx.alone().is_some(), "and all fast paths are open");
}
