//! A run whose plan is changed again and again, for years of an operator's life: what a change replaces is given back.

mod support;

use std::collections::BTreeSet;

use braid_cli::catalog::catalog;
use support::within::Run;

fn nf(function: &str, config: &str) -> String {
    format!("[[nf]]\nfunction = \"{function}\"\n[nf.config]\n{config}\n")
}

fn nat(mappings: u32) -> String {
    nf("nat", &format!("mappings_max = {mappings}"))
}

#[test]
fn hundreds_of_changes_of_large_objects_leave_as_much_memory_as_there_was() {
    let firewall = |connections: u32| nf("firewall", &format!("connections_max = {connections}"));
    let plans = [
        firewall(20_000) + &nat(20_000),
        nf("dns_tunnel", "") + &firewall(10_000) + &nat(40_000),
        firewall(30_000) + &nat(20_000),
    ];
    let run = Run::start(2, &plans[0]);
    let (mut seen, mut numbers) = ([(); 3].map(|()| BTreeSet::new()), 0);
    for round in 0..100 {
        for at in [1, 2, 0] {
            run.apply(&plans[at]).expect("its state survives that");
            seen[at].insert(run.mapped());
            if round % 10 == 0 {
                run.handle_more();
            }
        }
        // What comes has a number before what goes has given its own back: twice round there are enough.
        match round {
            0 | 1 => numbers = run.numbers(),
            _ => assert_eq!(run.numbers(), numbers),
        }
    }
    // The same plan takes the same memory, whatever came before it.
    assert_eq!(seen.map(|sizes| sizes.len()), [1, 1, 1]);
    run.stop();
}

#[test]
fn a_refused_change_leaves_nothing_behind() {
    let run = Run::start(2, &nat(20_000));
    let before = run.mapped();
    for _ in 0..20 {
        // Known only when the new chain, with its state, has been built.
        let other = nat(20_000) + &nf("firewall", "connections_max = 50000");
        run.apply(&other).expect_err("packets from outside would meet the functions in another order");
        assert_eq!(run.mapped(), before);
    }
    run.stop();
}

#[test]
fn every_function_that_comes_and_goes_takes_its_memory_with_it() {
    let catalog = catalog(Vec::new());
    let mut came = Vec::new();
    // Those behind which packets come back the other way stand beside another one.
    for (mirrors, stays) in [(false, nf("flow_counter", "")), (true, nat(1000))] {
        // With several workers packets would often have to be steered otherwise.
        let run = Run::start(1, &stays);
        let before = run.mapped();
        for entry in catalog.entries().iter().filter(|entry| entry.mirrors == mirrors) {
            for _ in 0..2 {
                let plan = format!("{stays}[[nf]]\nname = \"guest\"\nfunction = \"{}\"\n", entry.name);
                // Some need to be told more.
                let Ok(()) = run.apply(&plan) else { continue };
                run.handle_more();
                run.apply(&stays).expect("the guest goes");
                assert_eq!(run.mapped(), before, "{}", entry.name);
                came.push(&entry.name);
            }
        }
        run.stop();
    }
    came.dedup();
    assert!(came.len() >= 12, "only {came:?}");
}
