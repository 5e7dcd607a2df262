//! What is asked for early against what a look-up finds on its own.

use proptest::prelude::*;

use super::*;
use crate::SetSlot;
use crate::sets::testing::{key, keys_of, tables};

/// What a look-up tells of each packet: its record, and when that was last seen.
type Told = Vec<(usize, SetSlot, Option<u32>)>;

fn look_up(tables: &mut SetTables, keys: &Keys, todo: &[u16], early: &Early) -> Told {
    let mut told = Vec::new();
    tables.look_up(keys, todo, early, |i, slot, meta| told.push((i, slot, meta.map(|meta| meta.last_seen_ms))));
    told
}

/// After a batch whose sets had long been without a packet.
fn cold(tables: &SetTables) -> Early {
    let mut early = Early::default();
    early.learn(tables, &[COLD_MS; 3]);
    early
}

/// Keys of a batch come one after another, as an extractor makes them.
fn asked(tables: &SetTables, keys: &Keys, packets: usize) -> Early {
    let mut early = cold(tables);
    assert!(early.begin(tables), "{} sets are enough", tables.len());
    (0..packets).for_each(|i| early.made(tables, keys, i));
    early.finish(tables, keys, packets);
    early
}

/// Tables with one function's sets, each last seen at a time of its own; full if there are more than fit.
fn with_sets(capacity: usize, ids: impl Iterator<Item = u16>) -> SetTables {
    let mut tables = tables(capacity);
    for id in ids {
        let meta = braid_state::SetMeta { live: 1, last_seen_ms: id.into(), ..Default::default() };
        if tables.put(&key(id), meta).is_none() {
            break;
        }
    }
    tables
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn records_asked_for_early_are_those_that_a_look_up_finds(
        capacity in 100..3000_usize,
        ids in prop::collection::vec(0..3000_u16, 1..=256),
        narrow_only: bool,
        every in 1..4_usize,
    ) {
        let step = if narrow_only { 2 } else { 1 };
        let mut tables = with_sets(capacity, (0..3000).step_by(step));
        let ids: Vec<u16> = ids.into_iter().map(|id| if narrow_only { id & !1 } else { id }).collect();
        let keys = keys_of(&ids);
        let todo: Vec<u16> = (0..ids.len() as u16).step_by(every).collect();
        let early = asked(&tables, &keys, ids.len());
        let expected = look_up(&mut tables, &keys, &todo, &Early::default());
        prop_assert_eq!(look_up(&mut tables, &keys, &todo, &early), expected);
    }
}

#[test]
fn packets_without_a_key_are_not_told() {
    let mut tables = with_sets(1000, 0..500);
    let mut keys = keys_of(&[3, 4, 5, 6]);
    keys.all_narrow = false;
    keys.class[1] = braid_packet::key::KeyClass::None;
    let early = asked(&tables, &keys, 4);
    let mut told: Vec<usize> = look_up(&mut tables, &keys, &[0, 1, 2, 3], &early).iter().map(|told| told.0).collect();
    told.sort_unstable();
    assert_eq!(told, [0, 2, 3]);
}

#[test]
fn few_sets_and_those_on_their_way_are_looked_up_step_by_step() {
    let (few, many) = (with_sets(100, 0..FROM as u16), with_sets(100, 0..=FROM as u16));
    let mut early = cold(&many);
    assert!(!early.begin(&few) && early.begin(&many));
    let (mut new, former) = (tables(200), with_sets(200, 0..150));
    new.succeed(former, crate::Carry::of([]));
    assert!(!early.begin(&new) && !early.is_whole());
}

#[test]
fn records_that_lie_near_are_looked_up_step_by_step() {
    let many = with_sets(100, 0..100);
    let mut early = Early::default();
    assert!(!early.begin(&many), "nothing is known yet");
    for (idle_ms, is_cold) in [([9, 9, 0, 0], true), ([9, COLD_MS - 1, 0, 0], false), ([u32::MAX, COLD_MS, 7, 0], true)]
    {
        early.learn(&many, &idle_ms);
        assert_eq!(early.begin(&many), is_cold, "{idle_ms:?}");
    }
}
