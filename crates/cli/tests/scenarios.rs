//! Every file under `tests/scenarios/` happens as it is written, with one worker and with two.

mod support;

use std::path::Path;

use support::Braid;

const README: &str = include_str!("../../../tests/scenarios/README.md");

#[test]
fn all_scenarios_happen_as_they_are_written() {
    let braid = Braid::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let output = braid.run("scenario --quiet tests/scenarios");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The example of the page that explains them.
fn example() -> &'static str {
    README.split("```scenario\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example")
}

#[test]
fn the_example_happens_and_a_wrong_one_does_not() {
    let braid = Braid::new();
    braid.write("example.scenario", example());
    assert!(braid.ok("scenario example.scenario").contains("ok      example.scenario: RFC 4787 REQ-1"));
    braid.write("wrong.scenario", &example().replace("drop no_mapping", "out 0 same ttl 63"));
    let output = braid.run("scenario .");
    assert_eq!(output.status.code(), Some(1));
    let expected =
        "failed  ./wrong.scenario:16: workers: 1\n  expected  out 0 same ttl 63\n  got       drop no_mapping\n";
    assert!(text(&output.stdout).contains(expected), "{}", text(&output.stdout));
}

/// Where each worker has 64 sets, 32 connections wait while 400 others begin that nobody answers.
#[test]
fn a_flood_at_a_full_table_leaves_alone_what_is_established() {
    let braid = Braid::new();
    let mut scenario = "# A flood of SYNs lets idle connections be.\nsets = 64\n[[nf]]\nfunction = \"firewall\"\n\
         full = \"evict_oldest\"\n---\nat 0s\n"
        .to_owned();
    let out = |port: u16, fields: &str| format!("in 0 tcp 10.0.0.1:{port} > 192.0.2.1:80 {fields}\nout 1 same\n");
    let answer = |port: u16| format!("in 1 tcp 192.0.2.1:80 > 10.0.0.1:{port} SA seq 9 ack 2\n");
    for port in 1..=32 {
        scenario += &[out(port, "S"), answer(port), "out 0 same\n".to_owned(), out(port, "A seq 2 ack 10")].concat();
    }
    (100..500).for_each(|port| scenario += &format!("at {}ms\n{}", 1000 + port, out(port, "S")));
    scenario += "at 20s\n";
    (1..=32).for_each(|port| scenario += &out(port, "A seq 2 ack 10 len 5"));
    // Of the first ones of the flood nothing is left.
    (100..120).for_each(|port| scenario += &format!("{}drop\n", answer(port)));
    braid.write("flood.scenario", &scenario);
    assert!(braid.ok("scenario flood.scenario").contains("ok      flood.scenario"));
}

#[test]
fn files_that_cannot_be_read_are_refused_with_their_line() {
    let braid = Braid::new();
    braid.write("a.scenario", &example().replace("function = \"nat\"", "function = \"nta\""));
    assert!(braid.fails(2, "scenario a.scenario").contains("a.scenario:4:"));
    braid.write("b.scenario", &example().replace("in 0   udp", "in 0   upd"));
    let failure = braid.fails(2, "scenario b.scenario");
    assert!(failure.contains("b.scenario:9: `upd` is no kind of packet"), "{failure}");
    assert!(braid.fails(3, "scenario c.scenario").contains("nothing is there"));
}

#[test]
fn a_file_that_cannot_be_read_keeps_none_of_the_others_from_being_checked() {
    let braid = Braid::new();
    std::fs::create_dir(braid.path("all")).expect("a folder");
    braid.write("all/a.scenario", &example().replace("in 0   udp", "in 0   upd"));
    std::os::unix::fs::symlink("nothing", braid.path("all/b.scenario")).expect("a link");
    braid.write("all/c.scenario", example());
    let check = |code: i32, counts: &str| {
        let output = braid.run("scenario all");
        let (said, refused) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{said}{refused}");
        assert!(said.contains("ok      all/c.scenario") && said.ends_with(counts), "{said}");
        assert!(
            refused.contains("a.scenario:9: `upd`") && refused.contains("all/b.scenario: No such file"),
            "{refused}"
        );
    };
    check(2, "3 scenarios, 0 failed, 2 refused\n");
    braid.write("all/d.scenario", &example().replace("drop no_mapping", "out 0 same ttl 63"));
    check(1, "4 scenarios, 1 failed, 2 refused\n");
}
