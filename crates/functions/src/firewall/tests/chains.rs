//! Chains, jumps and policies flattened into one list of rules, compared with a walk through them.

use proptest::prelude::*;

use super::rules::{PORTS, named, read_text};
use super::tables::{IN, OUT, TCP, UDP, check, decided, facts, policy};
use crate::firewall::conditions::facts::Facts;
use crate::firewall::connection::states::State;
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action::{Allow, Deny};

/// A packet that one chain accepts goes on to the next chain of the same hook; one that it drops does not.
#[test]
fn chains_of_one_hook_follow_each_other_by_priority() {
    let text = "table ip late { chain a { type filter hook forward priority filter + 10; policy accept; tcp dport 80 drop; } }
        table inet early { chain b { type filter hook forward priority -5; policy drop; tcp dport { 80, 443 } accept; } }";
    let policy = policy(text, Hooks::Forward);
    check(&policy, (IN, "10.0.0.1", "10.0.1.1", TCP, 443), Allow);
    check(&policy, (IN, "10.0.0.1", "10.0.1.1", TCP, 80), Deny);
    check(&policy, (IN, "10.0.0.1", "10.0.1.1", TCP, 22), Deny);
    check(&policy, (IN, "2001:db8::1", "2001:db8::2", TCP, 80), Allow);
}

/// Names that `define` introduces may stand for priorities and policies.
#[test]
fn priorities_and_policies_may_be_defined() {
    let text = "define late = \"filter + 10\"\ndefine early = -5\ndefine closed = drop
        table ip a { chain a { type filter hook forward priority $late; policy accept; tcp dport 80 drop; } }
        table inet b { chain b { type filter hook forward priority $early; policy $closed; tcp dport { 80, 443 } accept; } }";
    let policy = policy(text, Hooks::Forward);
    check(&policy, (IN, "10.0.0.1", "10.0.1.1", TCP, 443), Allow);
    check(&policy, (IN, "10.0.0.1", "10.0.1.1", TCP, 80), Deny);
    check(&policy, (IN, "10.0.0.1", "10.0.1.1", TCP, 22), Deny);
    let error = read_text(&text.replace("closed = drop", "closed = shut"), &mut named(), PORTS).unwrap_err();
    assert!(error.to_string().contains("`shut` is no policy"), "{error}");
}

/// Without a chain of hook forward, chains of other hooks drop what they drop, and the plan decides about the rest.
#[test]
fn where_no_chain_is_at_forward_the_plan_decides() {
    let text = "table inet raw { chain pre { type filter hook prerouting priority -150; policy accept;
        tcp dport 80 drop; ct state invalid accept; udp dport 53 accept; } }
        table netdev d { chain in { type filter hook ingress device lan0 priority 0; policy accept; ip saddr 10.0.0.9 drop; } }";
    let policy = policy(text, Hooks::Forward);
    for (packet, expected) in [
        ((IN, "10.0.0.1", "10.0.1.1", TCP, 80), Deny),
        ((IN, "10.0.0.1", "10.0.1.1", TCP, 443), Allow),
        ((IN, "10.0.0.9", "10.0.1.1", TCP, 443), Deny),
        ((OUT, "10.0.1.1", "10.0.0.1", TCP, 443), Deny),
        ((OUT, "10.0.1.1", "10.0.0.1", UDP, 53), Deny),
    ] {
        check(&policy, packet, expected);
    }
    let answer = Facts { state: State::Reply, ..facts(OUT, "10.0.1.1", "10.0.0.1", UDP, 1100) };
    assert_eq!(decided(&policy, &answer).0, Allow);
    let told: Vec<_> = policy.notes.iter().filter(|note| note.text.contains("no chain of hook forward")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
}

/// A packet beyond a limit continues after the statement, including the chains that the statement jumps to.
#[test]
fn what_a_limit_holds_back_goes_on_behind_it() {
    let text = "table inet filter {
        chain web { tcp dport 80 accept; }
        chain forward { type filter hook forward priority 0; policy drop;
            limit rate 1/second burst 1 packets counter jump web
            counter log prefix \"missed: \" tcp dport 443 accept
        } }";
    let policy = policy(text, Hooks::Forward);
    let web = facts(IN, "10.0.0.1", "10.0.1.1", TCP, 80);
    assert_eq!(decided(&policy, &web), (Allow, Some(2)));
    let mut met = Vec::new();
    let missed = policy.decide(&web, |number| {
        met.push(policy.rules[number].line);
        Ok::<_, std::convert::Infallible>(policy.rules[number].limit.is_none())
    });
    assert_eq!((missed, met), (Ok((Some(policy.rules.len() - 1), Deny)), vec![4, 5]));
}

#[test]
fn chains_that_multiply_have_a_bound() {
    let mut text =
        String::from("table inet t {\n chain c0 { tcp dport { 1, 2 } tcp sport 1 accept; ip saddr 10.0.0.1 drop; }\n");
    for n in 1..15 {
        let jumps = format!("jump c{}; ", n - 1).repeat(4);
        text += &format!(" chain c{n} {{ {jumps} }}\n");
    }
    text += " chain f { type filter hook forward priority 0; jump c14; }\n}";
    let error = read_text(&text, &mut named(), PORTS).unwrap_err();
    assert!(error.reason.contains("more than 262144 rules"), "{error}");
}

/// A verdict of the reference model.
#[derive(Clone, Debug)]
enum Verdict {
    Accept,
    Drop,
    Return,
    Continue,
    Jump(usize),
    Goto(usize),
}

/// Rules for ranges of ports.
type Rules = Vec<(u16, u16, Verdict)>;

fn some_chains() -> impl Strategy<Value = Vec<Rules>> {
    let chain = |number: usize| {
        // Only to later chains, so that the walk ends.
        let behind = number + 1..5.max(number + 2);
        let verdict = prop_oneof![
            2 => Just(Verdict::Accept),
            2 => Just(Verdict::Drop),
            1 => Just(Verdict::Return),
            1 => Just(Verdict::Continue),
            2 => behind.clone().prop_map(Verdict::Jump),
            1 => behind.prop_map(Verdict::Goto),
        ];
        prop::collection::vec((0u16..8, 0u16..8, verdict), 0..5)
            .prop_map(|rules| rules.into_iter().map(|(a, b, verdict)| (a.min(b), a.max(b), verdict)).collect())
    };
    (chain(0), chain(1), chain(2), chain(3), chain(4), Just(Rules::new()))
        .prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f])
}

/// Walks through chains as nftables does; `None` if the end of the chain is reached.
fn walk(chains: &[Rules], chain: usize, port: u16) -> Option<bool> {
    for (from, to, verdict) in &chains[chain] {
        if !(from..=to).contains(&&port) {
            continue;
        }
        match verdict {
            Verdict::Accept => return Some(true),
            Verdict::Drop => return Some(false),
            Verdict::Return => return None,
            Verdict::Continue => {}
            Verdict::Jump(to) => {
                if let Some(decided) = walk(chains, *to, port) {
                    return Some(decided);
                }
            }
            Verdict::Goto(to) => return walk(chains, *to, port),
        }
    }
    None
}

fn written(chains: &[Rules]) -> String {
    let mut text = String::from("table inet filter {\n");
    for (number, rules) in chains.iter().enumerate() {
        text += &format!("chain c{number} {{\n");
        if number == 0 {
            text += "type filter hook forward priority 0; policy drop;\n";
        }
        for (from, to, verdict) in rules {
            let verdict = match verdict {
                Verdict::Jump(to) => format!("jump c{to}"),
                Verdict::Goto(to) => format!("goto c{to}"),
                other => format!("{other:?}").to_lowercase(),
            };
            text += &format!("udp dport {from}-{to} {verdict}\n");
        }
        text += "}\n";
    }
    text + "}\n"
}

/// The ports, from 0 on, that a rule file accepts for UDP from 10.0.0.1 to 10.0.1.1.
fn lets_through(text: &str) -> Vec<u16> {
    let policy = policy(text, Hooks::Forward);
    let passes = |port: &u16| decided(&policy, &facts(IN, "10.0.0.1", "10.0.1.1", UDP, *port)).0 == Allow;
    (0..8).filter(passes).collect()
}

const BASE: &str = "type filter hook forward priority 0; policy drop;";

#[test]
fn chains_may_stand_where_one_jumps_to_them() {
    let text = format!(
        "define two = 2\ntable inet t {{\nchain f {{\n{BASE}\nudp dport 1-3 jump {{\nudp dport $two drop; udp dport 1 return\n\
         ip saddr 10.0.0.1 jump {{ udp dport 3 accept; }}\n}} comment \"some\"\nudp dport 1 accept\n\
         udp dport 4-6 goto {{ udp dport 5 accept; }}\nudp dport 6-7 accept\n}}\n}}\n"
    );
    assert_eq!(lets_through(&text), [1, 3, 5, 7]);
    let wrong = format!("table inet t {{ chain f {{ {BASE} udp dport 1 jump {{ accept\n");
    let error = read_text(&wrong, &mut named(), PORTS).expect_err("no end").to_string();
    assert!(error.contains("the chain `in line 1, column 93` has no end"), "{error}");
}

#[test]
fn sets_may_stand_before_a_chain_without_a_name() {
    let table = |rule: &str| format!("table inet t {{\nchain f {{\n{BASE}\n{rule}\n}}\n}}\n");
    assert_eq!(lets_through(&table("udp dport { 2, 4-5,\n6 } jump { udp dport 4 return; accept; }")), [2, 5, 6]);
    assert_eq!(lets_through(&table("udp dport { 2, 3 } ip saddr { 10.0.0.1 } goto { udp dport 3 accept }")), [3]);
    assert_eq!(lets_through(&table("udp dport 1 accept comment \"jump {\"; udp dport 2 accept")), [1, 2]);
    // Elements of maps can only jump to named chains, as in nftables.
    let text = table("udp dport vmap { 1 : jump { accept } }");
    assert!(read_text(&text, &mut named(), PORTS).is_err());
}

/// Nesting is limited: a recursive parser must not exhaust its stack.
#[test]
fn chains_without_names_and_parentheses_are_so_deep_and_no_deeper() {
    let chains = |depth: usize| {
        let (open, close) = ("udp dport 1-5 jump { ".repeat(depth), " }".repeat(depth));
        format!("table inet t {{ chain f {{ {BASE} {open} accept {close}\n }} }}")
    };
    assert_eq!(lets_through(&chains(15)), [1, 2, 3, 4, 5]);
    let parentheses = |depth: usize| {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        format!("table inet t {{ chain f {{ {BASE} udp dport 4 | {open}1{close} accept; }} }}")
    };
    assert_eq!(lets_through(&parentheses(64)), [5]);
    for (text, reason) in [
        (chains(16), "more than 16 jumps deep"),
        (chains(17), "chains stand more than 16 deep in one another"),
        (chains(50_000), "chains stand more than 16 deep in one another"),
        (parentheses(65), "parentheses stand more than 64 deep in one another"),
        (parentheses(50_000), "parentheses stand more than 64 deep in one another"),
    ] {
        let error = read_text(&text, &mut named(), PORTS).expect_err(reason).to_string();
        assert!(error.contains(reason) && error.contains("line 1"), "{error}");
    }
}

#[test]
fn scripts_put_rules_before_others() {
    let script = format!(
        "add table inet t\nadd chain inet t f {{ {BASE} }}\nadd rule inet t f udp dport 1-5 accept\n\
         insert rule inet t f udp dport 2 drop\nadd rule inet t f index 0 udp dport 3 drop\n\
         insert rule inet t f index 2 udp dport 4 drop\nadd rule inet t f index 3 udp dport 6 accept\n"
    );
    assert_eq!(lets_through(&script), [1, 5, 6]);
    for (line, reason) in [
        ("insert rule inet t f handle 5 accept", "rules have no handles before they are loaded"),
        ("add rule inet t f position 5 accept", "rules have no handles before they are loaded"),
        ("insert rule inet t f index 5 accept", "the chain has no rule of that number"),
        ("add rule inet t f index 5 accept", "the chain has no rule of that number"),
        ("add rule inet t f index 18446744073709551615 accept", "the chain has no rule of that number"),
        ("insert rule inet t f index 18446744073709551616 accept", "no number of a rule stands behind `index`"),
        ("insert rule inet t f index x accept", "no number of a rule stands behind `index`"),
        ("insert rule inet t f index $first accept", "no number of a rule stands behind `index`"),
        ("add rule inet t f index", "no number of a rule stands behind `index`"),
        ("replace rule inet t f handle 5 accept", "`replace` stands outside of the tables"),
    ] {
        let error = read_text(&format!("{script}{line}\n"), &mut named(), PORTS).expect_err(line).to_string();
        assert!(error.contains(reason) && error.contains("line 8"), "{error}");
    }
}

#[test]
fn a_verdict_map_may_say_what_becomes_of_the_rest() {
    let table = |rule: &str| format!("table inet t {{ chain f {{ {BASE} {rule}; accept; }} }}");
    assert_eq!(lets_through(&table("udp dport vmap { * : drop, 2-3 : accept, 5 : continue }")), [2, 3, 5]);
    assert_eq!(
        lets_through(&table("ip saddr . udp dport vmap { 10.0.0.1 . 4 : drop, * : accept }")),
        [0, 1, 2, 3, 5, 6, 7]
    );
    assert_eq!(lets_through(&table("tcp dport vmap { 1 : drop, * : drop }")), [0, 1, 2, 3, 4, 5, 6, 7]);
    let side = table("udp dport vmap { 2-4 : jump side, * : drop }")
        .replace("chain f", "chain side { udp dport 3 drop; } chain f");
    assert_eq!(lets_through(&side), [2, 4]);
    let error = read_text(&table("meta mark set ip dscp . udp dport map { ef . 1 : 1, * : 2 }"), &mut named(), PORTS);
    assert!(error.expect_err("no value").to_string().contains("what a map does not hold has no value here"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn chains_in_one_list_decide_as_a_walk_through_them(chains in some_chains()) {
        let policy = policy(&written(&chains), Hooks::Forward);
        for port in 0..8 {
            let accepts = walk(&chains, 0, port).unwrap_or(false);
            let (action, _) = decided(&policy, &facts(IN, "10.0.0.1", "10.0.1.1", UDP, port));
            prop_assert_eq!(action == Allow, accepts, "port {}", port);
        }
    }

    /// Any text is either read or refused.
    #[test]
    fn no_text_makes_the_reader_panic(words in prop::collection::vec(prop::sample::select(WORDS), 0..40)) {
        let _ = read_text(&words.join(" "), &mut named(), PORTS);
    }
}

/// Words and signs of rule files.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "table", "inet", "ip", "filter", "{", "}", "chain", "forward", "type", "hook", "priority", "0", ";", "\n", "policy",
    "drop", "accept", "tcp", "dport", "22", "-", ":", ".", ",", "vmap", "@s", "set", "elements", "=", "!=", "jump",
    "goto", "return", "ct", "state", "new", "established", "limit", "rate", "5/second", "burst", "log", "prefix",
    "\"x\"", "counter", "reject", "with", "icmp", "icmpx", "flags", "syn", "&", "(", "|", ")", "/", "define", "$a", "a",
    "flush", "ruleset", "add", "rule", "element", "delete", "\\", "comment", "meta", "iifname", "lan0", "pkttype",
    "host", "include", "^", ">>", "insert", "index", "*", "length", "ttl", "dscp", "<", "vlan", "id", "fib", "10-20",
    "saddr", "daddr", "iif", "oif", "missing", "local", "mark", "map", "status", "dnat", "prerouting", "raw",
];
