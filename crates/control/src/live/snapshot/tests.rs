//! What is written can be read back, and anything else is rejected.

use braid_runtime::nf::packet::key::{KeyExtractor, SetDef};

use super::*;

fn snapshot() -> Snapshot {
    let shape = KeyExtractor::compile(&SetDef::five_tuple()).expect("a key").shape();
    let function =
        |name: &str| SavedFunction { name: name.into(), kind: "nat".into(), set_bytes: 3, shape, shared: false };
    let key = SetKey::narrow(shape, [7, 9]);
    let set = SavedSet { key, last_seen_ms: 12, states: vec![(0, vec![1, 2, 3]), (1, vec![4, 5, 6])] };
    let saved = Saved {
        now_ns: 99,
        order: Some((Order::Mirrored { outside: PortSet::of([1, 200]) }, 201)),
        functions: vec![function("a"), function("b")],
        sets: vec![set],
        objects: vec![("a.x".into(), "Map".into(), vec![1; 40])],
    };
    let configs = vec![String::new(), "x = 1\n".to_owned()];
    Snapshot { program: "0.1.0".into(), taken_ns: 5, live_time: true, configs, saved }
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(Snapshot::decode(&snapshot().encode()), Ok(snapshot()));
    let mut other = snapshot();
    other.saved.order = Some((Order::Same, 2));
    assert_eq!(Snapshot::decode(&other.encode()), Ok(other));
}

#[test]
fn what_the_first_version_wrote_is_read_without_order_and_fields() {
    let mut bytes = snapshot().encode();
    bytes.truncate(bytes.len() - 4);
    bytes[8] = 1;
    // Behind magic, version, the program's version and three numbers: ports, order, and two outside ports.
    let mut at = 12 + (8 + "0.1.0".len()) + 3 * 8;
    bytes.drain(at..at + 2 * 8 + (8 + 2 * 2));
    at += 8;
    for config in &snapshot().configs {
        at += (8 + "a".len()) + (8 + "nat".len()) + 8;
        bytes.drain(at..at + size_of::<KeyShape>());
        at += 8 + (8 + config.len());
    }
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let mut wanted = snapshot();
    wanted.saved.order = None;
    wanted.saved.functions.iter_mut().for_each(|function| function.shape = KeyShape::default());
    assert_eq!(Snapshot::decode(&bytes), Ok(wanted));
}

#[test]
fn live_time_has_passed_while_nothing_ran_and_that_of_captures_has_not() {
    assert_eq!(snapshot().at(1005).now_ns, 1099);
    assert_eq!(snapshot().at(4).now_ns, 99, "the machine's time was set back");
    assert_eq!(Snapshot { live_time: false, ..snapshot() }.at(1005).now_ns, 99);
}

#[test]
fn other_files_later_versions_and_damage_are_refused() {
    let bytes = snapshot().encode();
    let check = |bytes: &[u8], part: &str| {
        let error = Snapshot::decode(bytes).expect_err(part);
        assert!(error.contains(part), "{error}");
    };
    check(b"", "too short");
    check(b"something else altogether", "not a snapshot");
    check(&bytes[..bytes.len() - 1], "checksum");
    let mut later = bytes.clone();
    later[8] = 3;
    check(&later, "version 3");
    let mut damaged = bytes;
    damaged[40] ^= 1;
    check(&damaged, "checksum");
}

proptest::proptest! {
    #[test]
    fn no_bytes_harm_the_reader(at in 0usize..1000, value: u8, cut in 0usize..50) {
        let mut bytes = snapshot().encode();
        let at = 12 + at % (bytes.len() - 16);
        bytes[at] = value;
        bytes.truncate(bytes.len() - 4 - cut.min(bytes.len() - 20));
        // A correct checksum, so that the code behind the checksum test is reached.
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        let _ = Snapshot::decode(&bytes);
    }
}
