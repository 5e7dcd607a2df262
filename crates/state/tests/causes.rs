//! Each remaining conflict, provoked once; each conflict that has been removed, shown to be gone.

mod common;

use std::sync::Arc;

use braid_state::causes::{self, CAUSES};
use braid_state::{
    Allocator, AllocatorConfig, Conflict, Distributed, DistributedConfig, Domain, Inserted, Map, MapConfig,
    StateBuilder, Tx, Vector, VectorConfig, Visit,
};
use common::{builder, commit};

/// Two workers: `mine` runs, then `theirs` commits, then `mine` tries to commit.
fn conflict(
    domain: &Arc<Domain>,
    mine: &dyn Fn(&mut Tx) -> Result<(), Conflict>,
    theirs: &dyn Fn(&mut Tx) -> Result<(), Conflict>,
) -> Option<&'static causes::Cause> {
    let (mut a, mut b) = (Tx::new(domain, 0), Tx::new(domain, 1));
    // A recorded reader validates at its commit, so reads show their conflicts too.
    a.record();
    let done = mine(&mut a);
    theirs(&mut b).expect("the other one is first");
    b.commit().expect("the other one is first");
    if done.and_then(|()| a.commit().map(drop)).is_ok() {
        return None;
    }
    let report = *a.last_conflict().expect("a conflict has a report");
    assert!(report.location.file().ends_with("causes.rs"), "{}: not the author's line", report.location);
    let kind = domain.info(report.object?).kind;
    let cause = causes::cause(kind, &report);
    assert!(cause.is_some(), "no row for {kind}: {report:?}");
    cause
}

fn check(
    domain: &Arc<Domain>,
    mine: &dyn Fn(&mut Tx) -> Result<(), Conflict>,
    theirs: &dyn Fn(&mut Tx) -> Result<(), Conflict>,
    expected: Option<(&str, &str)>,
) {
    let cause = conflict(domain, mine, theirs);
    assert_eq!(cause.map(|cause| (cause.mine, cause.theirs)), expected);
}

fn map(builder: &mut StateBuilder, capacity: u32) -> Map<u64, u64> {
    Map::new(builder, &MapConfig { name: "map".into(), capacity, ..MapConfig::default() }).unwrap()
}

#[test]
fn map_conflicts_are_about_the_same_key_or_a_coming_or_going_one() {
    let (domain, mut b) = builder(2);
    let map = map(&mut b, 4096);
    let mut setup = Tx::new(&domain, 0);
    for key in 0..100 {
        assert_eq!(map.insert(&mut setup, &key, &key), Ok(Inserted::New));
    }
    commit(&mut setup);
    let handle = map.find(&mut setup, &5).unwrap().unwrap();
    commit(&mut setup);
    drop(setup);
    let get = |key: u64| {
        let map = map.clone();
        move |tx: &mut Tx| map.get(tx, &key).map(drop)
    };
    let update = |key: u64| {
        let map = map.clone();
        move |tx: &mut Tx| map.update(tx, &key, |v| *v += 1).map(drop)
    };
    let insert = |key: u64| {
        let map = map.clone();
        move |tx: &mut Tx| map.insert(tx, &key, &0).map(drop)
    };
    let remove = |key: u64| {
        let map = map.clone();
        move |tx: &mut Tx| map.remove(tx, &key).map(drop)
    };
    let at = |tx: &mut Tx| map.update_at(tx, handle, |v| *v += 1).map(drop);
    let value_at = |tx: &mut Tx| map.value_at(tx, handle).map(drop);
    let scan = |tx: &mut Tx| map.for_each(tx, 0, 4096, |_, _, v| Ok(Visit::Replace(v + 1))).map(drop);
    let d = &domain;
    check(d, &get(1), &update(1), Some(("get", "update")));
    check(d, &update(1), &update(1), Some(("update", "update")));
    check(d, &get(5), &at, Some(("get", "update_at")));
    check(d, &value_at, &update(5), Some(("value_at", "update")));
    check(d, &at, &at, Some(("update_at", "update_at")));
    check(d, &update(7), &scan, Some(("update", "scan")));
    check(d, &scan, &update(7), Some(("scan", "update")));
    check(d, &get(200), &insert(200), Some(("get", "insert")));
    check(d, &get(9), &remove(9), Some(("get", "remove")));
    check(d, &insert(300), &insert(300), Some(("insert", "insert")));
    check(d, &remove(10), &remove(10), Some(("remove", "remove")));
    // Gone: different keys, and changes of values alongside insertions.
    check(d, &get(1), &update(2), None);
    check(d, &update(1), &update(2), None);
    check(d, &insert(400), &insert(500), None);
    check(d, &get(1), &insert(600), None);
    check(d, &update(1), &remove(11), None);
    // Two readers.
    check(d, &get(1), &get(1), None);
}

#[test]
fn vector_conflicts_are_about_the_same_element() {
    let (domain, mut b) = builder(2);
    let vector = Vector::<u64>::new(&mut b, &VectorConfig { name: "v".into(), len: 8 }, 0).unwrap();
    let get = |tx: &mut Tx| vector.get(tx, 3).map(drop);
    let set = |tx: &mut Tx| vector.set(tx, 3, 1).map(drop);
    let update = |tx: &mut Tx| vector.update(tx, 3, |v| *v += 1).map(drop);
    let neighbour = |tx: &mut Tx| vector.update(tx, 4, |v| *v += 1).map(drop);
    check(&domain, &get, &set, Some(("get", "set")));
    check(&domain, &get, &update, Some(("get", "update")));
    check(&domain, &update, &set, Some(("update", "set")));
    check(&domain, &update, &update, Some(("update", "update")));
    // Gone: the last writer wins if it has not read; neighbours are on other lines.
    check(&domain, &set, &set, None);
    check(&domain, &update, &neighbour, None);
}

#[test]
fn allocating_freeing_and_refreshing_do_not_conflict() {
    let (domain, mut b) = builder(2);
    let config = AllocatorConfig { name: "ports".into(), resources: 64, validity_ns: Some(1000), precision_ns: 1 };
    let ports = Allocator::new(&mut b, &config).unwrap();
    let mut setup = Tx::new(&domain, 0);
    let [first, second, third] = [0, 10, 20].map(|n| ports.allocate_preferring(&mut setup, n).unwrap().unwrap());
    commit(&mut setup);
    drop(setup);
    let allocate = |tx: &mut Tx| ports.allocate(tx).map(drop);
    let refresh = |tx: &mut Tx| {
        tx.set_now(500);
        ports.refresh(tx, first).map(drop)
    };
    let free_second = |tx: &mut Tx| ports.free(tx, second).map(drop);
    check(&domain, &allocate, &allocate, None);
    check(&domain, &refresh, &refresh, None);
    check(&domain, &allocate, &free_second, None);
    check(&domain, &refresh, &allocate, None);
    // Remaining: one lease, used here and revoked there, in both orders.
    let free_third = |tx: &mut Tx| ports.free(tx, third).map(drop);
    let is_live = |tx: &mut Tx| ports.is_live(tx, third).map(drop);
    check(&domain, &is_live, &free_third, Some(("is_live", "free")));
    let refresh_late = |tx: &mut Tx| {
        tx.set_now(1300);
        ports.refresh(tx, first).map(drop)
    };
    let never = |tx: &mut Tx| ports.expire(tx, 1200, 64, |_, _| Ok(())).map(drop);
    check(&domain, &never, &refresh_late, None);
    let far = |tx: &mut Tx| ports.expire(tx, 2400, 64, |_, _| Ok(())).map(drop);
    let refresh_later = |tx: &mut Tx| {
        tx.set_now(2350);
        ports.refresh(tx, first).map(drop)
    };
    let mut tx = Tx::new(&domain, 0);
    let mut other = Tx::new(&domain, 1);
    // The stamp moves while the lease is being revoked, so it is not revoked.
    far(&mut tx).unwrap();
    refresh_later(&mut other).unwrap();
    commit(&mut other);
    assert!(tx.commit().is_err());
    let cause = causes::cause("Allocator", tx.last_conflict().unwrap()).unwrap();
    assert_eq!((cause.mine, cause.theirs), ("expire", "refresh"));
    drop((tx, other));
    check(
        &domain,
        &refresh,
        &|tx: &mut Tx| ports.expire(tx, 9999, 64, |_, _| Ok(())).map(drop),
        Some(("refresh", "expire")),
    );
}

#[test]
fn an_exhausted_pool_is_watched_and_a_release_conflicts_with_those_who_were_told_none() {
    let (domain, mut b) = builder(2);
    let config = AllocatorConfig { name: "ports".into(), resources: 2, ..AllocatorConfig::default() };
    let ports = Allocator::new(&mut b, &config).unwrap();
    let mut tx = Tx::new(&domain, 0);
    let lease = ports.allocate(&mut tx).unwrap().unwrap();
    ports.allocate(&mut tx).unwrap().unwrap();
    commit(&mut tx);
    tx.serialise();
    assert_eq!(ports.allocate(&mut tx), Ok(None));
    commit(&mut tx);
    drop(tx);
    let none = |tx: &mut Tx| {
        assert_eq!(ports.allocate(tx)?, None);
        Ok(())
    };
    let free = |tx: &mut Tx| ports.free(tx, lease).map(drop);
    check(&domain, &none, &none, None);
    check(&domain, &none, &free, Some(("allocate", "free")));
}

#[test]
fn distributed_conflicts_vanish_with_a_staleness() {
    let (domain, mut b) = builder(2);
    for (staleness_ns, expected) in [(0, Some(("read", "update"))), (100, None)] {
        let config = DistributedConfig { name: "sum".into(), staleness_ns };
        let sum = Distributed::<u64>::new(&mut b, &config, 0).unwrap();
        let read = |tx: &mut Tx| sum.read(tx, |a, b| *a += b).map(drop);
        let update = |tx: &mut Tx| sum.update(tx, |part| *part += 1);
        check(&domain, &read, &update, expected);
        check(&domain, &update, &update, None);
    }
}

#[test]
fn every_row_names_operations_that_exist_and_none_twice() {
    for (n, row) in CAUSES.iter().enumerate() {
        let known = |name| (0..16).any(|op| causes::operation(row.kind, braid_stm::Op::new(op)) == Some(name));
        assert!(known(row.mine) && known(row.theirs), "{row:?}");
        let same = |other: &&causes::Cause| {
            (other.kind, other.part, other.mine, other.theirs) == (row.kind, row.part, row.mine, row.theirs)
        };
        assert!(!CAUSES[..n].iter().any(|other| same(&other)), "twice: {row:?}");
    }
    assert!(causes::table("Map").contains("| get | update | the same key |"));
}

#[test]
fn the_page_shows_the_tables_as_they_are() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conflicts.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for kind in ["Map", "Vector", "Allocator", "Distributed"] {
        let table = format!("## {kind}\n\n{}", causes::table(kind));
        assert!(page.contains(&table), "docs/conflicts.md should show:\n{table}");
    }
}
