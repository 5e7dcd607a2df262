//! Declarations of sets and maps: which words they may have, and what a second declaration of a name means.

use braid_testkit::{Bench, Frame};

use super::check;
use super::known::bench_of;
use super::rules::{PORTS, named, read_text};

fn table(sets: &str, rules: &str) -> String {
    format!(
        "table inet t {{\n{sets}\nchain f {{\ntype filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n"
    )
}

fn asks(host: u8, port: u16) -> Frame {
    Frame::udp(&format!("192.0.2.{host}:{port}"), "10.0.0.1:53")
}

#[track_caller]
fn blocked(text: &str, hosts: [bool; 3]) {
    let mut fw: Bench = bench_of(text);
    for (host, is_blocked) in (1..).zip(hosts) {
        check(&mut fw, 1, 0, asks(host, 1), if is_blocked { "denied" } else { "pass" });
    }
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = read_text(text, &mut named(), PORTS).expect_err(text);
    let said = format!("line {}: {}; {}", error.line, error.reason, error.instead);
    assert!(said.contains(expected), "{said}");
}

const ONE: &str = "set s { type ipv4_addr; elements = { 192.0.2.1 } }";
const TWO: &str = "set s { type ipv4_addr; elements = { 192.0.2.2 } }";
const DROP: &str = "ip saddr @s drop";

#[test]
fn a_set_that_is_declared_again_keeps_its_elements() {
    let (one, two) = (table(ONE, DROP), format!("table inet t {{ {TWO} }}\n"));
    blocked(&(one.clone() + &two), [true, true, false]);
    blocked(&(two + &one), [true, true, false]);
    blocked(&table(&format!("{ONE}\n{TWO}"), DROP), [true, true, false]);
    let scripted = "add set inet t s { type ipv4_addr; }\nadd element inet t s { 192.0.2.3 }\n";
    blocked(&(one.clone() + scripted), [true, false, true]);
    blocked(&(scripted.to_owned() + &one), [true, false, true]);
    blocked(&(one.clone() + "flush set inet t s\n" + scripted), [false, false, true]);
    blocked(&(one + "delete set inet t s\n" + scripted), [false, false, true]);
    let map = |host: u8| format!("map m {{ type ipv4_addr : verdict; elements = {{ 192.0.2.{host} : drop }} }}\n");
    blocked(&(table(&map(1), "ip saddr vmap @m") + "table inet t {\n" + &map(2) + "}\n"), [true, true, false]);
    let expiring = "set s { type ipv4_addr; flags timeout; elements = { 192.0.2.1 timeout 1h } }";
    blocked(&(table(expiring, DROP) + "add element inet t s { 192.0.2.2 timeout 1h }\n"), [true, true, false]);
}

#[test]
fn a_set_that_is_declared_otherwise_is_refused() {
    let one = table(ONE, DROP);
    refused(
        &(one.clone() + "create set inet t s { type ipv4_addr; }"),
        "line 8: the set `s` is there already, since line 2",
    );
    refused(&(one.clone() + "add set inet t s { type ipv6_addr; }"), "declared again with other types than in line 2");
    refused(&(one + "add set inet t s { type ipv4_addr; flags interval; }"), "with other flags than in line 2");
}

#[test]
fn what_is_misspelt_in_a_declaration_is_refused() {
    let body = |lines: &str| table(&format!("set s {{ {lines} }}"), DROP);
    refused(
        &body("type ipv4_addr; elemnts = { 192.0.2.1 }"),
        "`elemnts` is no line of a set's declaration; did you mean `elements`?",
    );
    refused(&body("type ipv4_addr; banana"), "`banana` is no line of a set's declaration; write one of type");
    refused(&body("type ipv4_adr"), "`ipv4_adr` is no type; did you mean `ipv4_addr`?");
    refused(&body("type ipv4_addr; flags intervl"), "did you mean `interval`?");
    refused(&body("type ipv4_addr; tiemout 1h"), "did you mean `timeout`?");
    refused(&body("elements = { 192.0.2.1 }"), "the set `s` has no type");
    refused(&body("type ipv4_addr : verdict"), "a set gives nothing; write map");
    refused(&table("counter c { banana }", "accept"), "`banana` is not said of `c`");
    refused(
        &table("synproxy s { mss 1460 }", "accept"),
        "`synproxy` is no object of a table here; write half_open_max",
    );
    blocked(
        &table(
            "set s { typeof ip saddr; policy memory; auto-merge; gc-interval 1m; comment \"x\"; size 9; counter; flags constant, interval\n elements = { 192.0.2.2 counter packets 1 bytes 2 } }",
            DROP,
        ),
        [false, true, false],
    );
}

/// As `nft list ruleset` prints it: without the limit in the rule.
#[test]
fn the_limit_in_a_declaration_is_that_of_each_rule() {
    for limit in ["limit rate over 1/hour burst 2 packets", "ct count over 2"] {
        let sets = format!("set s {{ type ipv4_addr; flags dynamic; {limit}; }}");
        let mut fw = bench_of(&table(&sets, "ct state new add @s { ip saddr } drop"));
        (1..3).for_each(|port| check(&mut fw, 1, 0, asks(9, port), "pass"));
        check(&mut fw, 1, 0, asks(9, 3), "denied");
        check(&mut fw, 1, 0, asks(8, 3), "pass");
    }
    let limited = "set s { type ipv4_addr; limit rate 1/hour; elements = { 192.0.2.1 } }";
    refused(&table(limited, DROP), "line 2: no rule adds to `s`");
    let own = "set s { type ipv4_addr; elements = { 192.0.2.1 limit rate 1/hour } }";
    refused(&table(own, DROP), "no rule adds `192.0.2.1`, and only what rules add has limits");
    let dynamic = |said: &str| format!("set s {{ type ipv4_addr; flags dynamic; {said} }}");
    refused(
        &table(&dynamic("quota over 60 bytes"), "add @s { ip saddr } drop"),
        "elements have no quotas of their own",
    );
    let both = "add @s { ip saddr ct count over 9 limit rate over 1/hour } drop";
    refused(&table(&dynamic(""), both), "two limits or counts of one element; write two rules");
    refused(&table(&dynamic("limit rate 1/hour; ct count 9"), DROP), "two limits or counts in one set");
    refused(
        &table(&dynamic("limit rate 1/hour"), "add @s { ip saddr ct count 9 } drop"),
        "something else than the rule",
    );
    refused(&table(&dynamic(""), "update @s { ip saddr : 1 }"), "packets put nothing into maps");
}

#[test]
fn a_name_is_defined_once() {
    refused("define a = 1\ndefine a = 2\naccept", "line 2: `a` has its value from line 1; write redefine a");
    assert!(read_text("define a = 1\nredefine a = 2\nundefine a\ndefine a = 3\naccept", &mut named(), PORTS).is_ok());
    let limits =
        |second: &str| table(&format!("limit l {{ rate 1/hour }}\nlimit l {{ rate {second} }}"), "limit name l accept");
    refused(&limits("9/second"), "line 3: the limit `l` has another rate already");
    assert!(read_text(&limits("1/hour"), &mut named(), PORTS).is_ok());
}
