//! Room for packet sets changed while packets go through: no set is lost, whatever else is asked meanwhile.

mod support;

use std::collections::BTreeSet;

use serde_json::Value;
use support::running::Running;
use support::{Braid, conserved};

const COUNTER: &str = "[[nf]]\nfunction = \"flow_counter\"\n";

/// A counter of flows with room for so many sets, which it keeps as `more` says.
fn plan(sets: u32, more: &str) -> String {
    format!("sets = {sets}\n{COUNTER}{more}")
}

fn traffic(flows: u32) -> String {
    format!("--in gen:uniform?packets=4000000000&flows={flows}&seed=5 --workers 2 --time live")
}

fn count(stats: &Value, figure: &str) -> u64 {
    stats["sets"][figure].as_u64().expect("a count")
}

fn sum(stats: &Value, figure: &str) -> u64 {
    let workers = stats["workers"].as_array().expect("workers");
    workers.iter().map(|worker| worker[figure].as_u64().expect("a count")).sum()
}

fn apply(braid: &Braid, text: &str) -> Value {
    braid.write("next.toml", text);
    braid.json("apply next.toml --control control.sock")
}

/// The keys of all sets.
fn listed(braid: &Braid) -> BTreeSet<String> {
    let listing = braid.json("sets --control control.sock --limit 100000");
    let sets = listing["sets"].as_array().expect("sets");
    sets.iter().map(|set| set["key"].as_str().expect("a key").to_owned()).collect()
}

fn all_have_moved(run: &mut Running<'_>) -> Value {
    run.until("all sets have moved", |stats| sum(stats, "sets_to_move") == 0)
}

#[test]
fn more_room_is_there_at_once_and_less_if_the_sets_fit() {
    let braid = Braid::new();
    braid.write("plan.toml", &plan(1000, ""));
    let mut run = Running::start(&braid, &format!("plan.toml {}", traffic(5000)));
    run.until("the tables are full", |stats| count(stats, "refused") > 1000);
    let before = listed(&braid);
    let applied = apply(&braid, &plan(20_000, ""));
    assert_eq!((applied["sets"][0].as_u64(), applied["sets"][1].as_u64()), (Some(1000), Some(20_000)));
    assert!(applied["moving"].as_u64() >= Some(900), "{applied}");
    assert!(listed(&braid).is_superset(&before), "a listing in the middle");
    let stats = run.until("every flow has its set", |stats| count(stats, "live") == 5000);
    let refused = count(&stats, "refused");
    assert!(sum(&stats, "sets_room") >= 20_000);

    braid.write("small.toml", &plan(4000, ""));
    let said = braid.fails(1, "apply small.toml --control control.sock");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["packet sets of `flow_counter`, and its tables would have room for", "full = \"evict_oldest\"", "--end"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (_, needed) = said.split_once("write `sets = ").expect("a number to write");
    let needed: u32 = needed.split('`').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!((4001..=6000).contains(&needed), "{said}");
    assert!(sum(&run.until("packets", |_| true), "sets_room") >= 20_000, "nothing has changed");

    apply(&braid, &plan(needed, ""));
    apply(&braid, &plan(7000, ""));
    assert_eq!(listed(&braid).len(), 5000);
    let stats = all_have_moved(&mut run);
    assert!(sum(&stats, "sets_room") < 10_000);
    assert_eq!((count(&stats, "live"), count(&stats, "expired")), (5000, 0));
    assert_eq!(count(&stats, "refused"), refused, "what was counted stays, and no set was refused any more");
    assert!(braid.ok("apply next.toml --control control.sock").contains("nothing differs"));
    conserved(&run.stop());
}

#[test]
fn saved_ended_and_balanced_in_the_middle() {
    let braid = Braid::new();
    let balanced =
        |sets| format!("distribution = \"software\"\nbalance = true\nbalance_every = 2000\n{}", plan(sets, ""));
    braid.write("plan.toml", &balanced(60_000));
    let mut run = Running::start(&braid, &format!("plan.toml {}", traffic(20_000)));
    run.until("every flow has its set", |stats| count(stats, "live") == 20_000);
    for (round, sets) in [100_000, 50_000, 80_000, 45_000].into_iter().enumerate() {
        apply(&braid, &balanced(sets));
        let file = braid.path(&format!("state-{round}"));
        let taken = braid.json(&format!("snapshot {} --control control.sock", file.display()));
        assert_eq!(taken["sets"], 20_000, "{taken}");
    }
    let stats = all_have_moved(&mut run);
    assert_eq!((count(&stats, "live"), count(&stats, "expired")), (20_000, 0));
    apply(&braid, &balanced(90_000));
    braid.ok("sets --control control.sock --filter ip --end");
    let stats = run.until("sets have ended", |stats| count(stats, "expired") >= 20_000);
    assert_eq!(stats["missing"], 0);
    conserved(&run.stop());
}

#[test]
fn tables_that_evict_go_on_evicting() {
    let braid = Braid::new();
    let evicting = |sets| plan(sets, "full = \"evict_oldest\"\n");
    braid.write("plan.toml", &evicting(2000));
    let mut run = Running::start(&braid, &format!("plan.toml {}", traffic(9000)));
    for sets in [2000, 3000, 6000] {
        if sets != 2000 {
            assert!(apply(&braid, &evicting(sets))["moving"].as_u64() > Some(1000));
        }
        let before = run.until("packets", |_| true);
        let full = run.until("full", |stats| {
            count(stats, "evicted") > count(&before, "evicted") && count(stats, "live") > u64::from(sets) * 9 / 10
        });
        assert!(sum(&full, "sets_live") <= sum(&full, "sets_room"), "{full}");
        assert_eq!((full["missing"].as_i64(), count(&full, "refused")), (Some(0), 0));
    }
    conserved(&run.stop());
}

#[test]
fn tables_that_evict_let_sets_go_where_there_is_to_be_less_room() {
    let braid = Braid::new();
    let evicting = |sets| plan(sets, "full = \"evict_oldest\"\n");
    braid.write("plan.toml", &evicting(20_000));
    let mut run = Running::start(&braid, &format!("plan.toml {}", traffic(9000)));
    run.until("every flow has its set", |stats| count(stats, "live") == 9000);
    for sets in [6000, 2000] {
        let before = run.until("packets", |_| true);
        let applied = apply(&braid, &evicting(sets));
        assert!(applied["evicted"].as_u64() > Some(1000), "{applied}");
        let stats = run.until("as many as there is room for", |stats| {
            sum(stats, "sets_live") <= sum(stats, "sets_room") && count(stats, "evicted") > count(&before, "evicted")
        });
        assert!(sum(&stats, "sets_room") < u64::from(sets) * 3 / 2, "{stats}");
        assert_eq!((stats["missing"].as_i64(), count(&stats, "refused")), (Some(0), 0));
    }
    // Another policy from now on: it keeps what is there, so it wants room for that.
    let said = braid.fails(1, {
        braid.write("refusing.toml", &plan(1000, ""));
        "apply refusing.toml --control control.sock"
    });
    assert!(said.contains("would have room for"), "{said}");
    conserved(&run.stop());
}

#[test]
fn sets_that_workers_share_and_functions_that_come_with_the_change() {
    let braid = Braid::new();
    let policers = |sets: u32, more: &str| {
        let by =
            |by: &str| format!("[[nf]]\nfunction = \"policer\"\nname = \"by_{by}\"\nconfig = {{ by = \"{by}\" }}\n");
        format!("sets = {sets}\n{}{}{more}", by("source"), by("destination"))
    };
    braid.write("plan.toml", &policers(5000, ""));
    let mut run = Running::start(&braid, &format!("plan.toml {}", traffic(3000)));
    run.until("sets", |stats| count(stats, "live") > 1000);
    let applied = apply(&braid, &policers(50_000, ""));
    assert_eq!(applied["copied"].as_array().map(Vec::len), Some(1), "{applied}");
    assert!(applied["elements"].as_u64() > Some(500) && applied["elements_held"] == 0, "{applied}");
    let applied = apply(&braid, &policers(60_000, COUNTER));
    assert_eq!(applied["added"][0], "flow_counter", "{applied}");
    let stats = all_have_moved(&mut run);
    assert_eq!((stats["missing"].as_i64(), count(&stats, "expired")), (Some(0), 0));
    let evicting = |sets| policers(sets, COUNTER).replace("[[nf]]\n", "[[nf]]\nfull = \"evict_oldest\"\n");
    apply(&braid, &evicting(60_000));
    braid.write("fewer.toml", &evicting(500));
    let said = braid.fails(1, "apply fewer.toml --control control.sock");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("numbers are in use up to") && said.contains("write a size of at least"), "{said}");
    let stats = run.until("packets", |_| true);
    assert_eq!((count(&stats, "expired"), count(&stats, "evicted")), (0, 0), "nothing has changed");
    conserved(&run.stop());
}
