//! Maps: keys that are sets, verdict maps on more than fields, what stands behind a map, and elements for everything.

use super::rules::{PORTS, named, read_text};
use super::tables::{IN, OUT, TCP, UDP, check, decided, facts, policy};
use crate::firewall::conditions::values::Forward;
use crate::firewall::config::Config;
use crate::firewall::policy::Policy;
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action::{Allow, Deny};

const HOST: &str = "10.0.0.1";
const SERVER: &str = "192.0.2.9";

fn table(rules: &str) -> String {
    format!(
        "table inet t {{ chain side {{ udp dport 3 drop; }} chain f {{ type filter hook forward priority 0; policy accept; {rules} }} }}"
    )
}

/// The ports of UDP from 0 to 7 that are dropped.
#[track_caller]
fn dropped(rules: &str) -> Vec<u16> {
    let policy = policy(&table(rules), Hooks::Forward);
    (0..8).filter(|port| decided(&policy, &facts(IN, HOST, SERVER, UDP, *port)).0 == Deny).collect()
}

/// What `define` calls a set may be a key, of maps in rules and of named ones.
#[test]
fn a_key_may_be_a_set() {
    for rules in [
        "define low = { 1, 2 }; udp dport vmap { 5 : accept, $low : drop }",
        "define low = { 1, 2 }; udp dport vmap { $low : drop, 5 : accept }",
        "udp dport vmap { { 1, { 2 } } : drop comment \"}{\", * : accept }",
        "ip saddr . udp dport vmap { { 10.0.0.1 . 1, 10.0.0.1 . 2 } : drop, 10.0.0.1 . 4 : accept }",
    ] {
        assert_eq!(dropped(rules), [1, 2], "{rules}");
    }
    let named = "define low = { 1, 2 }
        table inet t {
            map m { type inet_service : verdict; elements = { $low : drop, 5 : accept }; }
            chain f { type filter hook forward priority 0; policy accept; udp dport vmap @m } }";
    let policy = policy(named, Hooks::Forward);
    for (port, expected) in [(1, Deny), (2, Deny), (3, Allow), (5, Allow)] {
        check(&policy, (IN, HOST, SERVER, UDP, port), expected);
    }
    assert_eq!(dropped("define low = { 1, 2 }; udp dport { $low, 4 } drop"), [1, 2, 4]);
}

/// As in the kernel, a rule goes on for elements with `continue`: neither for what the map does not hold, nor for what returns from a
/// chain to which it has jumped.
#[test]
fn a_rule_goes_on_behind_a_verdict_map_where_that_says_continue() {
    assert_eq!(dropped("udp dport vmap { 1 : accept, 2 : continue, 5 : continue } udp dport < 4 drop"), [2]);
    assert_eq!(dropped("udp dport vmap { 2 : continue, 3 : jump side, 4 : jump side } drop"), [2, 3]);
    assert_eq!(
        dropped("udp dport vmap { 1 : accept, * : continue } udp dport < 4 drop; udp dport 5 drop"),
        [0, 2, 3, 5]
    );
    let notes = |rules: &str| {
        let policy = policy(&table(rules), Hooks::Forward);
        let is_told = policy.notes.iter().any(|note| note.text.contains("no element of it says continue"));
        (policy.rules.iter().filter(|rule| rule.counter).count(), is_told)
    };
    assert_eq!(notes("udp dport vmap { 1 : accept, 2 : continue } counter comment \"others\""), (1, false));
    assert_eq!(notes("udp dport vmap { 1 : accept } counter"), (0, true));
    let text = table("udp dport vmap { 1 : continue, * : accept } drop");
    let error = read_text(&text, &mut named(), PORTS).expect_err("past the default").to_string();
    assert!(error.contains("what continues goes on behind the map here"), "{error}");
}

/// A jump has its chain once for all elements with it, however many they are.
#[test]
fn elements_with_one_verdict_come_together() {
    let elements = |count: u32, to: &str| {
        let one = |n: u32| format!("10.1.{}.{} : {to}", n / 256, n % 256);
        (0..count).map(one).collect::<Vec<_>>().join(", ")
    };
    let rules = |map: &str| policy(&table(&format!("ip saddr vmap {{ {map} }}")), Hooks::Forward).rules.len();
    assert_eq!(rules(&elements(3000, "jump side")), rules(&elements(1, "jump side")));
    let mixed = format!("{}, 10.0.0.1 : accept, * : drop", elements(3000, "goto side"));
    let once = format!("{}, 10.0.0.1 : accept, * : drop", elements(1, "goto side"));
    assert_eq!(rules(&mixed), rules(&once));
    // Keys of several fields come together where they differ in one.
    let joined = "ip saddr . udp dport vmap { 10.0.0.1 . 1 : jump side, 10.0.0.1 . 2 : drop, 10.0.0.1 . 3 : jump side, 10.0.0.1 . 5 : drop }";
    assert_eq!(dropped(joined), [2, 3, 5]);
    let several = "ip saddr . udp dport { 10.0.0.1 . 1, 10.0.0.1 . 3, 10.0.0.2 . 3, 10.0.0.2 . 4 } jump side";
    assert_eq!(dropped(several), [3]);
    assert_eq!(dropped("udp dport vmap { 1 : jump side, 3 : jump side, * : drop }"), [0, 2, 3, 4, 5, 6, 7]);
    assert_eq!(dropped("meta l4proto . th dport vmap { tcp . 1 : drop, udp . 1 : drop, udp . 4-5 : drop }"), [1, 4, 5]);
}

/// The error for too many rules is at the statement from which they come.
#[test]
fn chains_that_multiply_are_told_where_they_are_called() {
    let rules: String = (0..600).map(|port| format!("udp dport {port} accept\n")).collect();
    let chains: String = (0..500).map(|n| format!("chain c{n} {{ udp sport {n} accept; jump common; }}\n")).collect();
    let map: Vec<_> = (0..500).map(|n| format!("10.0.{}.{} : jump c{n}", n / 256, n % 256)).collect();
    let text = format!(
        "table inet t {{ chain f {{ type filter hook forward priority 0;\n ip saddr vmap {{ {} }} }}\n chain common {{ {rules} }}\n {chains} }}",
        map.join(", ")
    );
    let error = read_text(&text, &mut named(), PORTS).expect_err("300,000 rules");
    assert!(error.line == 2 && error.reason.contains("jumps make more than"), "{error}");
}

/// As `nft` takes them: a masked address is looked up in maps, and joined with other fields.
#[test]
fn masked_addresses_are_keys() {
    for (rules, expected) in [
        ("ip saddr & 255.255.255.0 vmap { 10.0.0.0 : jump side, 10.0.1.0 : drop }", vec![3]),
        ("ip saddr & 255.255.255.0 . udp dport { 10.0.0.0 . 1, 10.0.0.0 . 2, 10.0.1.0 . 3 } drop", vec![1, 2]),
        (
            "udp dport . ip saddr & 0.0.0.255 vmap { 1 . 0.0.0.1 : drop, 1-2 . 0.0.0.2 : drop, 5 . 0.0.0.1 : drop }",
            vec![1, 5],
        ),
        ("ip daddr & 0.0.0.255 vmap { 0.0.0.9 : jump side, 0.0.0.8 : drop }", vec![3]),
        ("ip6 saddr & ffff:: vmap { fd00:: : drop }", vec![]),
        ("ip saddr & 255.255.255.0 . udp dport != { 10.0.0.0 . 0-5 } drop", vec![6, 7]),
        // A network as a value has all masked addresses that are in it.
        ("ip saddr & 255.255.255.0 10.0.0.0/16 udp dport 1 drop", vec![1]),
        ("ip saddr & 255.255.255.0 10.0.0.1-10.0.1.0 udp dport 1 drop", vec![]),
        ("ip dscp set ip saddr & 255.255.255.0 map { 10.0.0.0 : ef } udp dport 4 drop", vec![4]),
    ] {
        assert_eq!(dropped(rules), expected, "{rules}");
    }
    let named_map = "map m { type ipv4_addr : verdict; elements = { 10.0.0.0 : drop }; }
        chain f { type filter hook forward priority 0; policy accept; ip saddr & 255.255.255.0 vmap @m }";
    check(&policy(&format!("table ip t {{ {named_map} }}"), Hooks::Forward), (IN, HOST, SERVER, UDP, 1), Deny);
    let text = table("ip daddr & 0.0.0.255 vmap { 0.0.0.9 : accept, 0.0.0.8-0.0.0.10 : drop }");
    let error = read_text(&text, &mut named(), PORTS).expect_err("two verdicts").to_string();
    assert!(error.contains("contradicts"), "{error}");
}

#[test]
fn verdict_maps_go_by_types_of_addresses_and_by_status() {
    let by_type = policy(
        &table(
            "fib daddr type vmap { local : drop, broadcast : accept, multicast : drop, blackhole : drop }; udp dport 1 drop",
        ),
        Hooks::Forward,
    );
    // As in nft(8), whose routes depend on the port of arrival: those of a plan do not.
    for route in ["fib daddr . iif type", "fib daddr . iif . mark type", "fib daddr . mark type"] {
        let text = table(&format!(
            "{route} vmap {{ blackhole : drop, prohibit : jump side, unreachable : drop, multicast : drop }}; accept"
        ));
        let policy = policy(&text, Hooks::Forward);
        check(&policy, (OUT, HOST, "224.0.0.5", UDP, 2), Deny);
        check(&policy, (OUT, HOST, SERVER, UDP, 2), Allow);
    }
    for (destination, port, expected) in
        [("224.0.0.5", 2, Deny), ("255.255.255.255", 1, Allow), (SERVER, 2, Allow), (SERVER, 1, Deny)]
    {
        check(&by_type, (IN, HOST, destination, UDP, port), expected);
    }
    let forwards = vec![Forward::try_from("10.0.0.5:443".to_owned()).expect("an endpoint")];
    let mut config = Config { forwards: Some(forwards), ..named() };
    read_text(&table("ct status vmap { dnat : accept }; drop"), &mut config, PORTS).expect("a map");
    let by_status = Policy::check(&mut config, PORTS).expect("rules that were checked");
    check(&by_status, (OUT, SERVER, "10.0.0.5", TCP, 443), Allow);
    check(&by_status, (OUT, SERVER, "10.0.0.5", TCP, 80), Deny);
}

/// `*` in a set stands for everything, of packets that have the field.
#[test]
fn a_set_may_hold_everything() {
    let set = |rule: &str| {
        let text = format!(
            "table inet t {{ set s {{ type ipv4_addr; flags interval; elements = {{ 10.0.0.0/8, * }}; }}
                chain f {{ type filter hook forward priority 0; policy accept; {rule} }} }}"
        );
        policy(&text, Hooks::Forward)
    };
    let all = set("ip saddr @s drop");
    check(&all, (IN, HOST, SERVER, UDP, 1), Deny);
    check(&all, (OUT, SERVER, HOST, UDP, 1), Deny);
    check(&all, (OUT, "2001:db8::1", "2001:db8::2", UDP, 1), Allow);
    check(&set("ip saddr != @s drop"), (OUT, SERVER, HOST, UDP, 1), Allow);
}

/// As in nftables; otherwise the order of the text would decide.
#[test]
fn a_map_gives_no_packet_two_values() {
    let read = |rules: &str| read_text(&table(rules), &mut named(), PORTS);
    for rules in [
        "udp dport vmap { 22 : drop, 22 : accept }",
        "udp dport vmap { 1-5 : accept, 3 : drop, * : drop }",
        "ip saddr vmap { 10.6.6.0/24 : drop, 10.9.0.0/16 : drop, 10.0.0.0/8 : accept }",
        "ip saddr . udp dport vmap { 10.0.0.1 . 1-5 : drop, 10.0.0.0/8 . 6 : accept, 10.0.0.0/8 . 5 : accept }",
        "ct state vmap { new : accept, invalid : drop, new : jump side }",
        "tcp flags vmap { syn : accept, syn : drop }",
        "meta mark vmap { 1-5 : accept, 3 : drop }",
        "meta mark set ip dscp map { ef : 1, cs1 : 2, ef : 3 }",
    ] {
        let error = read(rules).expect_err(rules);
        assert!(error.reason.contains("contradicts") || error.reason.contains("another verdict before"), "{error}");
    }
    let error = read("ip saddr vmap { 10.0.0.0/8 : accept, 10.6.6.0/24 : drop }").expect_err("two verdicts");
    assert_eq!(error.reason, "`10.6.6.0/24 : drop` contradicts `10.0.0.0/8 : accept` before it: packets match both");
    for rules in [
        "udp dport vmap { 22 : drop, 22 : drop comment \"twice\", * : accept }",
        "ip saddr . udp dport vmap { 10.0.0.0/8 . 1 : drop, 10.0.0.1 . 2 : accept }",
        "tcp flags & (fin | syn | rst) vmap { syn : accept, fin | syn : drop }",
        "ip saddr vmap { 10.0.0.0/8 : accept, 11.0.0.0/8 : drop, 10.1.0.0/16 : accept }",
    ] {
        read(rules).unwrap_or_else(|error| panic!("{rules}: {error}"));
    }
}

/// As printed by nft, and as written by hand: `add` may be left out, and what only prints does nothing.
#[test]
fn commands_of_scripts_mean_what_they_mean_to_nft() {
    let text = "table inet t\nchain inet t f { type filter hook forward priority 0; policy accept; }
        add set inet t s { type inet_service; }\nelement inet t s { 2 }
        rule inet t f udp dport @s drop\nlist ruleset\nreset counters\n";
    let policy = policy(text, Hooks::Forward);
    assert_eq!(
        (0..4).filter(|port| decided(&policy, &facts(IN, HOST, SERVER, UDP, *port)).0 == Deny).collect::<Vec<_>>(),
        [2]
    );
    let told = policy.notes.iter().filter(|note| note.text.contains("nothing is listed or reset here")).count();
    assert_eq!(told, 2, "{:?}", policy.notes);
}

#[test]
fn what_is_named_has_to_be_there() {
    for (rules, expected) in [
        ("counter name nosuch drop", "the table has no counter `nosuch`; write counter nosuch { }"),
        ("counter name udp dport map { 1 : \"nosuch\" } drop", "the table has no counter `nosuch`"),
        ("ct state . ct status { new . dnat } drop", "`ct status` is not one of several joined fields here"),
    ] {
        let error = read_text(&table(rules), &mut named(), PORTS).expect_err(rules);
        let said = format!("{}; {}", error.reason, error.instead);
        assert!(said.contains(expected), "{said}");
    }
}

/// As nft reads them, and prints them with `-S`.
#[test]
fn services_and_code_points_have_the_names_of_nft() {
    for rules in ["udp dport git drop", "tcp dport { whois, syslog-tls, x11-6 } drop", "ip dscp { df, be, lephb } drop"]
    {
        read_text(&table(rules), &mut named(), PORTS).unwrap_or_else(|error| panic!("{rules}: {error}"));
    }
    assert_eq!(dropped("ip dscp be udp dport 1 drop"), [1]);
}
