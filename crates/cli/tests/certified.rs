//! Certificates of chains that were once found to have none.

mod support;

use support::Braid;

/// A NAT whose sets workers share, with a table that is nearly always full: who registers a set meets others who do.
#[test]
fn full_tables_of_sets_that_workers_share_are_certified() {
    let braid = Braid::new();
    let campus = "--in gen:campus?packets=3000&flows=2000 --workers 4 --runs 12";
    for behind in ["nat64", "router"] {
        braid.write("plan.toml", &format!("sets = 64\n[[nf]]\nfunction = \"nat\"\n[[nf]]\nfunction = \"{behind}\"\n"));
        let said = braid.ok(&format!("certify plan.toml {campus}"));
        assert!(said.starts_with("CERTIFIED"), "{said}");
    }
}

#[test]
fn one_worker_and_one_run_are_one() {
    let said = Braid::new().ok("certify --nf forward --in gen:campus?packets=1 --workers 1 --runs 1");
    assert!(said.contains("on 1 worker, ") && said.contains(": 1 packet\n") && said.contains("  1 run ("), "{said}");
    let noted = |workers: &str| {
        let output = Braid::new().run(&format!("certify --nf forward --in gen:campus?packets=9 --runs 1 {workers}"));
        String::from_utf8_lossy(&output.stderr).contains("one worker meets nobody")
    };
    assert!(noted("--workers 1") && !noted("--workers 2") && !noted(""));
}
