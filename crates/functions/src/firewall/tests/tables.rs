//! Whole nftables tables: rule sets from practice, and which parts of them are refused.

use super::rules::{PORTS, named, read_text};
use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::fields::Values;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::config::Config;
use crate::firewall::connection::states::State;
use crate::firewall::policy::Policy;
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action;
use crate::parts::Side;

/// The policy of a rule file.
pub(super) fn policy(text: &str, hooks: Hooks) -> Policy {
    let mut config = Config { rules_hook: hooks, ..named() };
    let notes = read_text(text, &mut config, PORTS).unwrap_or_else(|error| panic!("{error}"));
    let mut policy = Policy::check(&mut config, PORTS).expect("rules that were checked");
    policy.notes = notes.into_iter().chain(policy.notes.iter().cloned()).collect();
    policy
}

pub(super) fn facts(side: Side, source: &str, destination: &str, protocol: u8, port: u16) -> Facts<'static> {
    let address = |text: &str| text.parse::<Addresses>().expect("an address").first;
    Facts {
        source: address(source),
        destination: address(destination),
        source_port: 1100,
        destination_port: port,
        protocol,
        flags: 2,
        port: side as u16,
        side,
        state: State::New,
        opening: [0; 2],
        fields: &Values::NONE,
    }
}

/// The action for a packet, and the line that decides; no limit is reached.
pub(super) fn decided(policy: &Policy, facts: &Facts) -> (Action, Option<u32>) {
    let Ok((number, action)) = policy.decide(facts, |_| Ok::<_, std::convert::Infallible>(true));
    (action, number.map(|number| policy.rules[number].line))
}

pub(super) const IN: Side = Side::Inside;
pub(super) const OUT: Side = Side::Outside;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Checks the decision by side, source, destination, protocol, and port or type and code.
#[track_caller]
pub(super) fn check(policy: &Policy, packet: (Side, &str, &str, u8, u16), expected: Action) {
    let (side, source, destination, protocol, port) = packet;
    let (action, line) = decided(policy, &facts(side, source, destination, protocol, port));
    assert_eq!(action, expected, "{packet:?} by line {line:?}");
}

use Action::{Allow, Deny, Reject};

const GATEWAY: &str = include_str!("gateway.nft");
const WORKSTATION: &str = include_str!("workstation.nft");
const SCRIPT: &str = include_str!("script.nft");

/// A router between a network and the Internet, as in the wikis of nftables, Arch and Debian.
#[test]
fn a_gateways_table_decides_as_written() {
    let policy = policy(GATEWAY, Hooks::Forward);
    check(&policy, (IN, "192.168.1.7", "203.0.113.9", TCP, 443), Allow);
    check(&policy, (IN, "192.168.1.7", "203.0.113.9", TCP, 25), Reject);
    check(&policy, (IN, "192.168.1.66", "203.0.113.9", TCP, 443), Deny);
    check(&policy, (IN, "10.9.9.9", "203.0.113.9", TCP, 443), Deny);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.10", TCP, 443), Allow);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.10", TCP, 23), Reject);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.10", UDP, 51820), Allow);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.20", TCP, 22), Deny);
    check(&policy, (OUT, "198.51.100.7", "192.168.1.20", TCP, 22), Allow);
    check(&policy, (OUT, "198.51.100.7", "192.168.1.21", TCP, 22), Deny);
    check(&policy, (OUT, "10.0.0.1", "192.168.1.10", TCP, 443), Deny);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.10", ICMP, 8 << 8), Allow);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.10", ICMP, 13 << 8), Deny);
    check(&policy, (OUT, "2001:db8:9::9", "2001:db8:1::10", ICMPV6, 128 << 8), Allow);
    let notes: Vec<_> = policy.notes.iter().map(|note| note.text.split(':').next().unwrap_or_default()).collect();
    assert_eq!(notes, ["chain input is not asked"]);
    let asked_often = |rules: &str| {
        self::policy(&table(rules), Hooks::Forward).notes.iter().map(|note| note.line).collect::<Vec<_>>()
    };
    assert_eq!(asked_often("ip saddr 10.0.0.66 drop; ct state established,related accept"), [1]);
    assert_eq!(asked_often("ct state established,related accept; ip saddr 10.0.0.66 drop"), []);
    assert_eq!(asked_often("ct state new ip saddr 10.0.0.66 drop; ct state established,related accept"), []);
}

#[test]
fn rules_for_the_hosts_inside_are_asked_by_direction() {
    let policy = policy(WORKSTATION, Hooks::Host);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 80), Deny);
    check(&policy, (OUT, "2001:db8::9", "2001:db8::1", ICMPV6, 2 << 8), Allow);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", ICMP, 8 << 8), Allow);
    check(&policy, (OUT, "203.0.113.9", "224.0.0.5", UDP, 22), Deny);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", UDP, 22), Reject);
    check(&policy, (IN, "10.0.0.1", "203.0.113.9", TCP, 80), Allow);
}

#[test]
fn scripts_of_commands_make_the_same_tables() {
    let policy = policy(SCRIPT, Hooks::Forward);
    check(&policy, (IN, "10.0.0.1", "203.0.113.9", TCP, 80), Allow);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 443), Allow);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Deny);
}

fn table(rules: &str) -> String {
    format!("table inet filter {{ chain forward {{ type filter hook forward priority 0; policy drop; {rules} }} }}")
}

/// The action for packets of each state, from inside.
fn by_state(rules: &str, chains: &str) -> String {
    let text = table(rules).replace("table inet filter {", &format!("table inet filter {{ {chains}"));
    let policy = policy(&text, Hooks::Forward);
    let decides = |state| {
        let (action, _) = decided(&policy, &Facts { state, ..facts(IN, "10.0.0.1", "10.0.1.1", TCP, 22) });
        if action == Allow { '+' } else { '-' }
    };
    [State::New, State::Original, State::Reply, State::RelatedReply, State::Invalid].into_iter().map(decides).collect()
}

/// New, established in both directions, related, invalid.
#[test]
fn states_of_connections_are_decided_about_as_written() {
    let (guard, chain) =
        ("ct state established,related accept;", |name: &str, rules: &str| format!("chain {name} {{ {rules} }} "));
    let global = chain(
        "global",
        "ct state vmap { established : accept, related : accept, invalid : drop }; ct state != new drop",
    );
    let cases = [
        (format!("{guard} ct state ! new drop; accept"), String::new(), "++++-"),
        (format!("{guard} ct state invalid drop; ct state invalid accept"), String::new(), "-+++-"),
        (format!("{guard} ct state established drop; ct direction reply drop; accept"), String::new(), "+++++"),
        (
            format!("{guard} tcp dport 22 jump last"),
            chain("last", "ct state { established, invalid } drop; accept"),
            "++++-",
        ),
        ("jump global; ct state ! new drop; accept".into(), global.clone(), "++++-"),
        ("ct state established accept; ct state ! new drop".into(), String::new(), "-++--"),
        (
            "tcp dport 23 ct state established,related accept; ct state ! new drop; accept".into(),
            String::new(),
            "+----",
        ),
        (
            "ct state related accept; ct direction reply accept; ct state established drop".into(),
            String::new(),
            "--++-",
        ),
        ("ip saddr 10.1.0.0/16 jump global; ct state ! new drop".into(), global, "-----"),
        ("jump some; ct state ! new drop".into(), chain("some", &format!("tcp dport 22 return; {guard}")), "-----"),
        (
            "jump some; ct state ! new drop".into(),
            chain("some", &format!("tcp dport 22 goto none; {guard}")) + &chain("none", ""),
            "-----",
        ),
        (
            "ct state established jump some; ct state established drop; accept".into(),
            chain("some", "tcp dport 22 accept"),
            "+++++",
        ),
    ];
    for (rules, chains, expected) in cases {
        assert_eq!(by_state(&rules, &chains), expected, "{rules} {chains}");
    }
}

#[test]
fn a_table_for_each_family_says_nothing_about_the_other() {
    let table = |family: &str, port: u16| {
        format!(
            "table {family} filter {{ chain f {{ type filter hook forward priority 0; policy drop; tcp dport {port} accept; }} }}\n"
        )
    };
    for text in [table("ip", 4) + &table("ip6", 6), table("ip6", 6) + &table("ip", 4)] {
        let policy = policy(&text, Hooks::Forward);
        check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 4), Allow);
        check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 6), Deny);
        check(&policy, (OUT, "2001:db8::9", "2001:db8::1", TCP, 6), Allow);
        check(&policy, (OUT, "2001:db8::9", "2001:db8::1", TCP, 4), Deny);
    }
}

/// An IPv4 table does not apply to IPv6: `inbound` and `outbound` of the plan do.
#[test]
fn what_no_chain_is_asked_about_is_for_the_plan() {
    let text = "table ip filter { chain a { type filter hook forward priority 0; policy accept; } }";
    let policy = policy(text, Hooks::Forward);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
    check(&policy, (OUT, "2001:db8::9", "2001:db8::1", TCP, 22), Deny);
}

#[test]
fn fields_may_be_joined_in_sets_and_maps() {
    let policy = policy(
        &table(
            "ip daddr . tcp dport { 10.0.0.1 . 22, 10.0.0.2 . 80-90 } accept; ip saddr . udp dport vmap { 10.0.0.9 . 53 : accept, 10.0.0.9 . 123 : drop }",
        ),
        Hooks::Forward,
    );
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 80), Deny);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.2", TCP, 85), Allow);
    check(&policy, (OUT, "10.0.0.9", "10.0.0.1", UDP, 53), Allow);
    check(&policy, (OUT, "10.0.0.8", "10.0.0.1", UDP, 53), Deny);
}

/// Checks the position of an error, its reason and its advice.
#[track_caller]
fn check_error(text: &str, (line, column): (u32, u32), expected: &str) {
    let error = read_text(text, &mut named(), PORTS).unwrap_err();
    let said = format!("{}; {}", error.reason, error.instead);
    assert!(said.contains(expected), "{said}");
    assert_eq!((error.line, error.column), (line, column), "{said}");
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let one = |rule: &str| {
        format!("table inet filter {{\n chain forward {{\n  type filter hook forward priority 0;\n  {rule}\n }}\n}}\n")
    };
    check_error(
        &one("tcp dport 22 jump ssh"),
        (4, 3),
        "there is no chain `ssh`; write chain ssh { … } in the same table",
    );
    check_error(&one("masquerade"), (4, 3), "put nat behind the firewall");
    check_error(&one("ip saddr @bad drop"), (4, 12), "there is no set `bad`");
    check_error(&one("ip saddr 10.0.0.0/33 drop"), (4, 12), "no address range");
    check_error(&one("add @bad { ip saddr }"), (4, 7), "`@bad` is no set that packets change");
    check_error(&one("fib saddr . iif oif missing drop"), (4, 23), "write networks = [[");
    let unclosed = "the quote before `ssh accept` has no end; write \" behind the text, on its line";
    check_error(&one("log prefix \"ssh accept"), (4, 14), unclosed);
    check_error(&one("ip saddr 10.0.0.1 drop comment \""), (4, 34), "the quote has no end");
    check_error(&one("iif 7 accept"), (4, 7), "interfaces = [\"7\", …]");
    check_error(&one("tcp dport vmap { 22 accept }"), (4, 20), "without its value");
    check_error(&one("limit rate 1 gbytes/second accept"), (4, 16), "10 mbytes/second");
    check_error(&one("jump forward"), (4, 3), "jumps in a circle");
    check_error(&one("ip saddr . tcp dport { , } accept"), (4, 28), "a set with nothing in it");
    check_error(
        "table ip nat { chain post { type nat hook postrouting priority 100;\n masquerade } }",
        (1, 22),
        "no chain of the file has the hook forward",
    );
    check_error("table inet filter { chain forward { accept }", (1, 45), "a table without its end");
    check_error(
        "table inet filter { chain input { type filter hook input priority 0; drop; } }",
        (1, 27),
        "rules_hook = \"host\"",
    );
    check_error("include services.nft", (1, 1), "write include \"services.nft\"");
    check_error(&format!("{}\ntcp dport 22 accept", one("accept")), (8, 1), "outside of the tables");
}
