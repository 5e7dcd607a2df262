//! The table compared with a `HashMap` that does the same.

use std::collections::HashMap;

use braid_memory::HugePages;

use super::*;

fn hash(key: &[u64; 2]) -> u64 {
    let product = (key[0] ^ 0x2d35_8dcc_aa6c_78a5) as u128 * (key[1] ^ 0x8bb8_4b93_962e_acc9) as u128;
    product as u64 ^ (product >> 64) as u64
}

/// A table placed after another one, and the records of both.
fn table(capacity: usize) -> (FlowTable<2>, Records) {
    let other = FlowTable::<5>::new(10, 16, 0).expect("a small table fits");
    let table = FlowTable::new(capacity, 16, other.end()).expect("a small table fits");
    let records = Records::new(table.end(), 16, 5, HugePages::Never).expect("a small table fits");
    (table, records)
}

#[test]
fn the_declared_capacity_is_reached_and_then_the_table_is_full() {
    for capacity in [1, 7, 8, 100, 4096, 50_000] {
        let (mut table, mut records) = table(capacity);
        for i in 0..capacity as u64 {
            let key = [i, i * 31];
            table.insert(&mut records, &key, hash(&key)).unwrap_or_else(|e| panic!("{e} at {i} of {capacity}"));
        }
        assert_eq!(table.insert(&mut records, &[u64::MAX, 1], 5), Err(TableFull { capacity }));
        assert_eq!(table.len(), capacity);
    }
}

#[test]
fn a_table_in_which_sets_come_and_go_stays_as_large_as_it_was_declared() {
    const CAPACITY: u64 = 100_000;
    let (mut table, mut records) = table(CAPACITY as usize);
    for i in 0..6 * CAPACITY {
        if let Some(oldest) = i.checked_sub(CAPACITY) {
            let key = [oldest, 3];
            let slot = table.find(&records, &key, hash(&key)).expect("it was put in");
            table.remove(&mut records, slot);
        }
        let key = [i, 3];
        table
            .insert(&mut records, &key, hash(&key))
            .unwrap_or_else(|e| panic!("{e} at the {i}th of {} live ones", table.len()));
    }
}

#[test]
fn keys_that_share_a_home_stray_and_their_home_forgets_them_when_they_end() {
    let (mut table, mut records) = table(1000);
    let hash_of = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let slots: Vec<Slot> = (0..1000)
        .map(|i| table.insert(&mut records, &[i, 0], hash_of(i)).unwrap_or_else(|e| panic!("{e} at {i}")))
        .collect();
    let unique: std::collections::HashSet<_> = slots.iter().collect();
    assert_eq!(unique.len(), 1000, "no two share a record");
    assert!((0..1000).all(|i| table.find(&records, &[i, 0], hash_of(i)) == Some(slots[i as usize])));
    assert_ne!((table.tags.strays(&records, 0), table.stashed), (0, 0), "the home has 31 places");
    slots.iter().step_by(2).for_each(|&slot| table.remove(&mut records, slot));
    for i in 0..1000 {
        let expected = (i % 2 == 1).then_some(slots[i as usize]);
        assert_eq!(table.find(&records, &[i, 0], hash_of(i)), expected, "{i}");
    }
    slots.iter().for_each(|&slot| table.remove(&mut records, slot));
    assert_eq!((table.tags.strays(&records, 0), table.stashed, table.len()), (0, 0, 0));
}

#[test]
fn random_inserts_finds_and_removes_agree_with_a_hash_map() {
    let ((mut table, mut records), mut oracle) = (table(1000), HashMap::new());
    let mut random = 88_172_645_463_325_252u64;
    for step in 0..100_000u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = [random % 1500, 7];
        let found = table.find(&records, &key, hash(&key));
        assert_eq!(found.is_some(), oracle.contains_key(&key));
        match (found, random >> 62) {
            (None, _) if oracle.len() < 1000 => {
                let slot = table.insert(&mut records, &key, hash(&key)).expect("there is room");
                *records.state::<u64>(slot, 8) = step;
                oracle.insert(key, step);
            }
            (None, _) => assert!(table.insert(&mut records, &key, hash(&key)).is_err()),
            (Some(slot), 0) => {
                table.remove(&mut records, slot);
                oracle.remove(&key);
            }
            (Some(slot), _) => {
                assert_eq!((*records.state::<u64>(slot, 8), table.key(&records, slot)), (oracle[&key], key))
            }
        }
    }
    assert_eq!(table.len(), oracle.len());
}

#[test]
fn a_batch_look_up_finds_what_single_ones_find() {
    let (mut table, mut records) = table(3000);
    let keys: [[u64; 2]; 256] = std::array::from_fn(|i| [i as u64 * 7, i as u64]);
    let hashes = keys.map(|key| hash(&key));
    for i in (0..256).step_by(3) {
        table.insert(&mut records, &keys[i], hashes[i]).expect("there is room");
    }
    let wanted: Vec<u16> = (0..256).filter(|i| i % 5 != 0).collect();
    let mut found = vec![None; 256];
    table.look_up(&mut records, &wanted, (&keys, &hashes), |i, slot, _| found[i] = Some(slot));
    for i in 0..256usize {
        let expected = (i % 5 != 0).then(|| table.find(&records, &keys[i], hashes[i]).unwrap_or(NO_SLOT));
        assert_eq!(found[i], expected, "packet {i}");
    }
}

/// Erlang's loss formula says how often a home group is full: keys arrive at random homes and leave after arbitrary times.
#[test]
fn as_sets_come_and_go_the_stash_holds_those_who_find_both_groups_full() {
    let capacities = [1 << 20, 3 << 20, 4 << 20, (4 << 20) + 1, 6 << 20, 8 << 20, 12 << 20, 1 << 25, 1 << 27];
    for (capacity, room) in capacities.into_iter().flat_map(|capacity| [1, 2].map(|halves| (capacity, room_of(halves))))
    {
        let load = capacity as f64 / homes_for(capacity, room) as f64;
        let full = (1..=room).fold(1.0, |full, places| load * full / (places as f64 + load * full));
        let stashed = capacity as f64 * full * full;
        assert!(stashed < 0.7 * (STASH * room) as f64, "{capacity} sets, {room} in a group: {stashed} in the stash");
    }
}

#[test]
fn a_scan_meets_every_live_record_once() {
    let (mut table, mut records) = table(500);
    for i in 0..300u64 {
        table.insert(&mut records, &[i, 0], hash(&[i, 0])).expect("there is room");
    }
    for step in [1, 7, 31, 64, 65, 1000] {
        let (mut seen, mut from) = (Vec::new(), 0);
        while from < table.slots() {
            table.scan(&records, from, step, |slot| seen.push(table.key(&records, slot)[0]));
            from += step;
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>(), "{step} slots at a time");
    }
}

#[test]
fn a_new_life_begins_with_zeroed_state_and_the_next_generation() {
    let (mut table, mut records) = table(1);
    let slot = table.insert(&mut records, &[1, 1], 9).expect("empty");
    *records.state::<u64>(slot, 0) = 7;
    let first = records.meta(slot).generation;
    table.remove(&mut records, slot);
    let slot = table.insert(&mut records, &[1, 1], 9).expect("empty again");
    assert_eq!((*records.state::<u64>(slot, 0), records.meta(slot).generation), (0, first.wrapping_add(1)));
}

#[track_caller]
fn check_that_tables_share_records(state_bytes: usize, bytes: [usize; 2]) {
    let mut short = FlowTable::<2>::new(300, state_bytes, 0).expect("a small table fits");
    let mut long = FlowTable::<5>::new(300, state_bytes, short.end()).expect("a small table fits");
    let mut records = Records::new(long.end(), state_bytes, 5, HugePages::Never).expect("a small table fits");
    assert_eq!([FlowTable::<2>::record_bytes_of(state_bytes), FlowTable::<5>::record_bytes_of(state_bytes)], bytes);
    let (key_of, hash_of) = (|i: u64| ([i, 1], [i, 2, 3, 4, 5]), |i: u64| hash(&[i, 9]));
    let placed: Vec<_> = (0..300)
        .map(|i| {
            let (a, b) = key_of(i);
            let slots = [
                short.insert(&mut records, &a, hash_of(i)).expect("there is room"),
                long.insert(&mut records, &b, hash_of(i)).expect("there is room"),
            ];
            slots.iter().for_each(|&slot| records.state_bytes_mut(slot).fill(i as u8));
            slots
        })
        .collect();
    for (i, slots) in (0..).zip(placed) {
        let (a, b) = key_of(i);
        assert_eq!((short.key(&records, slots[0]), long.key(&records, slots[1])), (a, b));
        assert!(slots.iter().all(|&slot| records.state_bytes_mut(slot).iter().all(|&byte| byte == i as u8)));
    }
}

#[test]
fn tables_with_keys_of_different_lengths_share_records_without_touching_each_others() {
    check_that_tables_share_records(40, [64, 96]);
    check_that_tables_share_records(8, [32, 64]);
}

#[test]
fn more_records_than_half_lines_can_be_numbered_are_refused() {
    let refused = FlowTable::<2>::new(1 << 32, 16, 0);
    assert!(refused.is_err());
}

#[test]
#[should_panic(expected = "halves <= self.longest")]
fn a_table_with_longer_keys_than_its_records_have_room_for_reaches_none() {
    let mut table = FlowTable::<9>::new(1, 16, 0).expect("a small table fits");
    let mut records = Records::new(table.end(), 16, 2, HugePages::Never).expect("a small table fits");
    let _ = table.insert(&mut records, &[1; 9], 1);
}

#[test]
#[should_panic(expected = "end <= self.state_bytes")]
fn a_state_before_the_records_is_out_of_reach() {
    let (mut table, mut records) = table(1);
    let slot = table.insert(&mut records, &[1, 2], 3).expect("there is room");
    // Its end wraps round to 16.
    let _ = records.state::<[u64; 4]>(slot, usize::MAX - 15);
}

#[test]
fn what_waits_in_the_stash_leaves_it_when_there_is_room_elsewhere() {
    let (mut table, mut records) = table(1000);
    // All have the same home group, and all stray to the same other group: 62 places, and the stash.
    let hash_of = |_: &[u64; 2]| 0;
    let keys: Vec<[u64; 2]> = (0..100).map(|i| [i, 7 * i]).collect();
    for key in &keys {
        let slot = table.insert(&mut records, key, hash_of(key)).expect("room in the stash");
        *records.state::<u64>(slot, 8) = key[0] + 1;
        records.meta_mut(slot).live = 2;
    }
    let home_all = |table: &mut FlowTable<2>, records: &mut Records| {
        (0..STASH).for_each(|turn| table.bring_home(records, turn, hash_of));
    };
    assert_eq!(table.stashed, 38);
    home_all(&mut table, &mut records);
    assert_eq!(table.stashed, 38, "there is no room elsewhere");
    for key in &keys[..40] {
        let slot = table.find(&records, key, hash_of(key)).expect("it was put in");
        table.remove(&mut records, slot);
    }
    home_all(&mut table, &mut records);
    assert_eq!((table.stashed, table.len()), (0, 60));
    for key in &keys[40..] {
        let slot = table.find(&records, key, hash_of(key)).expect("wherever it is");
        assert_eq!((*records.state::<u64>(slot, 8), records.meta(slot).live), (key[0] + 1, 2));
        table.remove(&mut records, slot);
    }
    assert_eq!((table.len(), table.tags.strays(&records, 0)), (0, 0));
}
