//! Sets named by numbers, for tests of their tables.

use braid_packet::key::{KeyClass, KeyShape};
use braid_state::HugePages;

use super::*;

/// Sets are named by numbers: odd ones have long keys.
pub(super) fn key(id: u16) -> SetKey {
    let id = u64::from(id);
    match id % 2 {
        0 => SetKey::narrow(KeyShape::default(), [id, !id]),
        _ => SetKey::wide(KeyShape::default(), [id, 1, 2, 3, !id]),
    }
}

/// The keys of a batch of one packet of each of these sets.
pub(super) fn keys_of(ids: &[u16]) -> Box<Keys> {
    let mut keys = Keys::boxed();
    keys.all_narrow = ids.iter().all(|id| id % 2 == 0);
    for (i, key) in ids.iter().map(|&id| key(id)).enumerate() {
        (keys.class[i], keys.hash[i]) = (key.class(), hash_of(&key));
        match key.class() {
            KeyClass::Narrow => keys.narrow[i] = key.narrow_words(),
            _ => keys.wide[i] = key.wide_words(),
        }
    }
    keys
}

pub(super) fn tables(capacity: usize) -> SetTables {
    SetTables::new(capacity, 16, KeyShape::default(), HugePages::Never).expect("small tables fit")
}
