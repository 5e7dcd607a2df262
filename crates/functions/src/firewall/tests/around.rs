//! What only the plan can tell about the surroundings: networks behind ports and forwarded addresses. Also chains before
//! connection tracking, and marks.

use super::rules::{PORTS, named, read_text};
use super::tables::{ICMP, IN, OUT, TCP, UDP, check, decided, facts};
use crate::config::parse;
use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::config::Config;
use crate::firewall::connection::states::State;
use crate::firewall::policy::Policy;
use crate::firewall::rules::Action::{self, Allow, Deny};

/// A chain with these rules and policy accept.
fn table(hook: &str, rules: &str) -> String {
    format!("table inet t {{ chain c {{ type filter hook {hook} priority 0; policy accept; {rules} }} }}\n")
}

/// A policy from a rule file and keys of a plan.
pub(super) fn policy(text: &str, plan: &str) -> Policy {
    let plan = format!("interfaces = ['lan0', 'wan0']\n{plan}");
    let mut config: Config = parse(plan.parse().expect("TOML")).expect("a configuration");
    let notes = read_text(text, &mut config, PORTS).unwrap_or_else(|error| panic!("{error}"));
    let mut policy = Policy::check(&mut config, PORTS).unwrap_or_else(|error| panic!("{error}"));
    policy.notes = notes.into_iter().chain(policy.notes.iter().cloned()).collect();
    policy
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = read_text(text, &mut named(), PORTS).expect_err(text);
    let said = format!("{}; {}", error.reason, error.instead);
    assert!(said.contains(expected), "{said}");
}

/// Rules name interfaces of the machine they were written on: nothing arrives or leaves by one that is not a port of the
/// plan.
#[test]
fn nothing_comes_by_interfaces_that_are_no_port() {
    let decides = |rules: &str, expected: [Action; 2]| {
        let policy = policy(&table("forward", rules), "");
        for (side, expected) in [OUT, IN].into_iter().zip(expected) {
            check(&policy, (side, SERVER, HOST, UDP, 53), expected);
        }
        policy.notes.iter().map(|note| note.text.to_string()).collect::<Vec<_>>().join("; ")
    };
    for (rules, expected) in [
        ("iifname docker0 drop", [Allow, Allow]),
        ("iifname != docker0 drop", [Deny, Deny]),
        ("iifname docker0 oifname != docker0 drop", [Allow, Allow]),
        ("iifname { docker0, lan0 } oifname != docker0 drop", [Allow, Deny]),
        ("iifname { lan0, ppp* } drop", [Allow, Deny]),
        ("iifname != { lan0, ppp* } drop", [Deny, Allow]),
        ("iifname vmap { docker0 : accept, lan0 : drop }", [Allow, Deny]),
        ("iifname . oifname { docker0 . wan0, lan0 . wan0 } drop", [Allow, Deny]),
        ("iif docker0 drop", [Allow, Allow]),
        ("iifname docker0 jump { drop; }", [Allow, Allow]),
    ] {
        let told = decides(rules, expected);
        let name = if rules.contains("ppp") { "ppp*" } else { "docker0" };
        assert!(
            told.contains(&format!("no port of the plan is named `{name}`: nothing comes or leaves by it")),
            "{told}"
        );
    }
    // Without names in the plan no interface is known.
    let text = table("forward", "iifname eth0 drop");
    let error = read_text(&text, &mut Config::default(), PORTS).expect_err("no names");
    assert_eq!(error.reason, "no port of the plan is named `eth0`");
    refused(&table("forward", "iifname lan0.7 drop"), "`lan0.7` is a VLAN of a port");
}

/// IPv4-mapped IPv6 addresses never occur in packets.
#[test]
fn mapped_addresses_fit_nothing() {
    let policy = policy(
        &table("forward", "ip6 saddr { ::ffff:0.0.0.0/96, 2001:db8::/32 } drop; ip6 daddr ::ffff:0:0/96 drop"),
        "",
    );
    check(&policy, (OUT, "2001:db8::1", "fd00::1", UDP, 53), Deny);
    check(&policy, (OUT, "2001:db9::1", "fd00::1", UDP, 53), Allow);
    check(&policy, (OUT, SERVER, HOST, UDP, 53), Allow);
}

const HOST: &str = "10.0.0.1";
const SERVER: &str = "203.0.113.9";

#[test]
fn reverse_paths_go_by_the_networks_of_the_plan() {
    let networks = "networks = [['10.0.0.0/8', 'fd00::/8'], ['10.9.0.0/16', '0.0.0.0/0', '::/0']]";
    for rules in ["fib saddr . iif oif missing drop", "fib saddr . mark . iif oif exists accept; drop"] {
        let policy = policy(
            &table("prerouting", rules).replace("chain c", &format!("chain f {{ {FORWARD} }} chain c")),
            networks,
        );
        for (side, source, expected) in [
            (IN, HOST, Allow),
            (OUT, HOST, Deny),
            (OUT, "10.9.0.1", Allow),
            (IN, "10.9.0.1", Deny),
            (OUT, SERVER, Allow),
            (IN, SERVER, Deny),
            (IN, "224.0.0.5", Deny),
        ] {
            check(&policy, (side, source, SERVER, UDP, 53), expected);
        }
        for (side, source, expected) in [
            (IN, "fd00::1", Allow),
            (OUT, "fd00::1", Deny),
            (OUT, "2001:db8::1", Allow),
            (IN, "2001:db8::1", Deny),
            (IN, "fe80::1", Allow),
        ] {
            check(&policy, (side, source, "2001:db8::9", UDP, 53), expected);
        }
        // A host without an address sends to the broadcast address.
        check(&policy, (IN, "0.0.0.0", "255.255.255.255", UDP, 67), Allow);
        check(&policy, (IN, "0.0.0.0", SERVER, UDP, 67), Deny);
    }
    let loose = policy(&table("forward", "fib saddr oif missing drop"), "networks = [['10.0.0.0/8']]");
    check(&loose, (OUT, HOST, SERVER, UDP, 53), Allow);
    check(&loose, (OUT, SERVER, HOST, UDP, 53), Deny);
    refused(&table("forward", "fib saddr . iif oif missing drop"), "says nothing about routes; write networks = [[");
    for rules in ["fib saddr oif gt 0 accept; drop", "fib saddr oif != 0 accept; drop"] {
        let loose = policy(&table("forward", rules), "networks = [['10.0.0.0/8']]");
        check(&loose, (OUT, HOST, SERVER, UDP, 53), Allow);
        check(&loose, (OUT, SERVER, HOST, UDP, 53), Deny);
    }
    refused(&table("forward", "fib saddr oif gt exists drop"), "only whether there is a route is known");
    refused(&table("forward", "fib daddr oifname lan0 drop"), "is decided by routes behind the firewall");
}

const FORWARD: &str = "type filter hook forward priority 0; policy accept;";

#[test]
fn addresses_are_of_machines_groups_or_everybody() {
    let fits = |hook: &str, rules: &str, destination: &str| {
        let plan = if hook == "forward" { "" } else { "rules_hook = 'host'" };
        let side = if hook == "output" { IN } else { OUT };
        let policy = policy(&table(hook, &format!("{rules} drop")), plan);
        decided(&policy, &facts(side, SERVER, destination, UDP, 53)).0 == Deny
    };
    for (hook, kinds, expected) in [
        // Destinations: a host, a group, the broadcast address.
        ("forward", "local", [false, false, false]),
        ("forward", "unicast", [true, false, false]),
        ("forward", "{ broadcast, multicast }", [false, true, true]),
        ("forward", "!= local", [true, true, true]),
        ("forward", "{ local, blackhole, unreachable, prohibit }", [false, false, false]),
        ("forward", "!= prohibit", [true, true, true]),
        ("input", "local", [true, false, false]),
        ("input", "!= { local, broadcast }", [false, true, false]),
        ("output", "local", [false, false, false]),
        ("output", "unicast", [true, false, false]),
        // As `nft -n` prints them.
        ("forward", "{ 3, 5 }", [false, true, true]),
        ("forward", "!= 1", [false, true, true]),
        ("input", "2", [true, false, false]),
        ("forward", "{ 4, 6, 7, 8 }", [false, false, false]),
    ] {
        let rules = format!("fib daddr type {kinds}");
        let told = [HOST, "224.0.0.5", "255.255.255.255"].map(|destination| fits(hook, &rules, destination));
        assert_eq!(told, expected, "{hook} {rules}");
    }
    assert!(fits("output", "fib saddr type local", HOST) && !fits("input", "fib saddr type local", HOST));
    let never = policy(&table("forward", "fib daddr type local ip daddr 10.0.0.1 drop"), "");
    check(&never, (OUT, SERVER, HOST, TCP, 22), Allow);
    refused(&table("forward", "fib daddr type xresolve drop"), "which addresses are `xresolve` is not known");
    refused(&table("forward", "fib daddr type 11 drop"), "which addresses are `11` is not known");
    // To nftables this is the first interface, although `nft -n` prints `exists` so.
    refused(&table("forward", "fib saddr . iif oif 1 drop"), "only whether there is a route is known");
}

#[test]
fn what_a_translator_forwards_to_is_said_by_the_plan() {
    let rules = table("forward", "ct state related accept; ct status dnat accept; drop");
    for rules in [rules.clone(), rules.replace("status dnat", "status & dnat == dnat")] {
        let policy = policy(&rules, "forwards = ['10.0.0.5:443', '10.0.0.6', '10.0.0.6:22', '[fd00::5]:22']");
        check(&policy, (OUT, SERVER, "10.0.0.5", TCP, 443), Allow);
        check(&policy, (OUT, SERVER, "10.0.0.5", UDP, 443), Allow);
        check(&policy, (OUT, SERVER, "10.0.0.5", TCP, 80), Deny);
        check(&policy, (OUT, SERVER, "10.0.0.6", TCP, 80), Allow);
        check(&policy, (OUT, "2001:db8::1", "fd00::5", TCP, 22), Allow);
        check(&policy, (OUT, "2001:db8::1", "fd00::5", TCP, 23), Deny);
        // A connection from inside to such an address is not translated; replies of one from outside are.
        check(&policy, (IN, HOST, "10.0.0.6", TCP, 80), Deny);
        let answer = |state| Facts { state, source_port: 443, ..facts(IN, "10.0.0.5", SERVER, TCP, 1100) };
        assert_eq!([State::Reply, State::Original].map(|state| decided(&policy, &answer(state)).0), [Allow, Deny]);
    }
    // ICMP errors about translated connections, from any router.
    let errors = policy(&table("forward", "ct status dnat accept; drop"), "forwards = ['10.0.0.6', '10.0.0.5:443']");
    let about = |side, state, opening: [&str; 2]| {
        let address = |text: &str| text.parse::<Addresses>().expect("an address").first;
        let ends = [("10.0.0.77", HOST), ("203.0.113.77", SERVER)][side as usize];
        let error = facts(side, ends.0, ends.1, ICMP, 0);
        decided(&errors, &Facts { state, opening: opening.map(address), ..error }).0
    };
    assert_eq!(about(IN, State::RelatedReply, [SERVER, "10.0.0.6"]), Allow);
    assert_eq!(about(OUT, State::RelatedOriginal, [SERVER, "10.0.0.6"]), Allow);
    assert_eq!(about(IN, State::RelatedReply, [SERVER, "10.0.0.7"]), Deny);
    assert_eq!(about(OUT, State::RelatedReply, [HOST, "10.0.0.6"]), Deny);
    assert_eq!(about(IN, State::RelatedReply, [SERVER, "10.0.0.5"]), Deny, "of port 443 only");
    check(&policy(&rules, "forwards = []"), (OUT, SERVER, "10.0.0.5", TCP, 443), Deny);
    refused(&rules, "which connections are translated is not known here; write forwards = [");
    refused(&rules.replace("dnat", "snat"), "before they are translated; write ip saddr");
    refused(&rules.replace("dnat", "assured"), "write ct state established");
    let mistaken = parse::<Config>("forwards = ['10.0.0.5:0']".parse().expect("TOML")).expect_err("no port");
    assert!(mistaken.to_string().contains("`10.0.0.5:0` is nothing to forward to"), "{mistaken}");
}

/// Before connection tracking the destination is not translated yet, but the source is final.
#[test]
fn chains_before_connection_tracking_are_asked_as_far_as_it_is_known_there() {
    let raw = |hook: &str, priority: &str, rules: &str| {
        let chain = format!("chain raw {{ type filter hook {hook} priority {priority}; policy accept; {rules} }}");
        format!("table ip t {{ {chain} }}\n{}", table("forward", "tcp dport 22 accept"))
    };
    let nat = "table ip nat { chain pre { type nat hook prerouting priority dstnat; tcp dport 80 dnat to 10.0.0.5; } }";
    for rules in ["ip daddr 10.0.0.1 drop", "tcp dport 22 drop", "ct state new drop", "jump side"] {
        let text = raw("prerouting", "raw", rules).replacen("chain", "chain side { udp dport 53 drop; } chain", 1);
        let early = "before connections are told and packets translated; write its rules into a chain of";
        refused(&format!("{text}\n{nat}"), early);
        // Without translation the destination is final.
        if rules.starts_with("ct") {
            refused(&text, early);
        } else {
            policy(&text, "");
        }
    }
    let bogons =
        raw("prerouting", "-300", "iifname wan0 ip saddr { 10.0.0.0/8, 192.0.2.66 } drop; tcp sport 0 drop; accept");
    let policy_of_bogons = policy(&bogons, "");
    check(&policy_of_bogons, (OUT, "192.0.2.66", HOST, TCP, 22), Deny);
    check(&policy_of_bogons, (OUT, SERVER, HOST, TCP, 22), Allow);
    check(&policy_of_bogons, (IN, "192.0.2.66", SERVER, TCP, 22), Allow);
    check(&policy(&raw("prerouting", "raw", ""), ""), (OUT, SERVER, HOST, TCP, 22), Allow);
    // After the routing decision everything is known.
    check(&policy(&raw("postrouting", "-300", "ct state new drop"), ""), (OUT, SERVER, HOST, TCP, 22), Deny);
}

#[test]
fn marks_are_not_set_and_nothing_asks_for_them() {
    let rules = "ct mark set meta mark; meta mark set (meta mark & 0xffff0000) | 0x10 tcp dport 22 drop; meta mark set mark or 0x4000";
    let policy = policy(&table("forward", rules), "");
    check(&policy, (OUT, SERVER, HOST, TCP, 22), Deny);
    check(&policy, (OUT, SERVER, HOST, TCP, 23), Allow);
    assert_eq!(policy.notes.iter().filter(|note| note.text.starts_with("marks are not set")).count(), 1);
    refused(&table("forward", "meta mark set jhash ip saddr mod 2"), "`jhash` is no mark; write a number, meta mark");
}
