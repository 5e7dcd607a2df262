//! Parts of rule files from other machines that do not apply here: what is reported about them, and where.

use braid_testkit::Frame;

use super::known::bench_of;
use super::rules::{PORTS, named, read_text};
use super::tables::{IN, OUT, TCP, check, policy};
use super::{check as check_frame, known};
use crate::firewall::config::Config;
use crate::firewall::rules::Action::{Allow, Deny};
use crate::firewall::{Hooks, When, explain};

fn table(rules: &str) -> String {
    format!("table inet t {{\nchain f {{\ntype filter hook forward priority 0; policy drop;\n{rules}\n}}\n}}\n")
}

/// Every form that is refused is refused at its place, with advice on what to write instead.
#[test]
fn whoever_writes_what_is_not_known_is_told_what_to_write() {
    for (rule, column, instead) in [
        ("ip saddr 10.0.0.1 masquerade", 19, "put nat behind the firewall"),
        ("tcp dport 80 dnat to 10.0.0.1", 14, "put nat behind the firewall"),
        ("queue num 0", 1, "no program is asked"),
        ("dup to 10.0.0.1", 1, "write accept"),
        ("synproxy mss 1460", 1, "anti_ddos"),
        ("numgen random mod 2 0 accept", 1, "write limit rate"),
        ("symhash mod 2 0 accept", 1, "load_balancer"),
        ("socket transparent 1 accept", 1, "write addresses"),
        ("xt match \"recent\" drop", 1, "iptables-translate"),
        ("vxlan vni 10 accept", 1, "udp dport 4789"),
        ("frag more-fragments 1 drop", 1, "datagrams are judged whole"),
        ("hbh hdrlength 0 drop", 1, "@nh,320,8"),
        ("rt seg-left 1 drop", 4, "@nh,344,8"),
        ("numgen inc mod 4 0 log", 1, "for samples in a log"),
        ("jhash ip saddr mod 2 0 accept", 1, "ip saddr & 0.0.0.1 == 0.0.0.0"),
        ("ip saddr >> 8 == 10 accept", 10, "ip saddr & 255.255.0.0"),
        ("tcp option timestamp tsval 1 accept", 22, "of maxseg size too"),
        ("ip option rr ptr 4 accept", 14, "write exists or missing"),
        ("exthdr dst typ accept", 12, "exthdr rt missing"),
        ("sctp chunk init exists drop", 6, "@th,96,8 1"),
        ("meta iifgroup 1 accept", 6, "write the interfaces"),
        ("meta random < 100 accept", 6, "write limit rate"),
        ("meta lenght 100 accept", 6, "did you mean `meta length`?"),
        ("ct zone set 1", 4, "a firewall of its own"),
        ("ct label 1 accept", 4, "write ct mark"),
        ("ct stat new accept", 4, "did you mean `ct state`?"),
        ("tcp dprot 22 accept", 5, "did you mean `tcp dport`?"),
        ("tcp colour 22 accept", 5, "write tcp and one of dport, sport, flags, sequence"),
        ("udp lenght 8 accept", 5, "did you mean `udp length`?"),
        ("icmp tpye 8 accept", 6, "did you mean `icmp type`?"),
        ("ip sadr 10.0.0.1 accept", 4, "did you mean `ip saddr`?"),
        ("ifname eth0 accept", 1, "did you mean `iifname`?"),
        ("droop", 1, "did you mean `drop`?"),
        ("pass in quick on em0 proto tcp to port 22", 1, "tcp dport 22 accept"),
        ("block in quick on em0", 1, "the first rule that fits decides"),
        ("rdr pass on em0 inet proto tcp", 1, "put nat behind the firewall"),
        ("iptables -A FORWARD -j ACCEPT", 1, "iptables-translate says how"),
        ("meta mark set ct mark << 8", 23, "as it is shifted"),
    ] {
        let error = read_text(&table(rule), &mut named(), PORTS).expect_err(rule);
        assert_eq!((error.line, error.column), (4, column), "{error}");
        assert!(error.instead.contains(instead), "{error}");
    }
}

/// What is written instead is taken, and means it.
#[test]
fn what_is_to_be_written_instead_is_taken() {
    for rule in [
        "ip saddr & 0.0.0.1 == 0.0.0.0 accept",
        "ip saddr & 255.255.0.0 == 10.1.0.0 accept",
        "meta l4proto sctp @th,96,8 1 accept",
        "ip6 nexthdr 0 @nh,328,8 0 drop",
        "ip6 nexthdr 43 @nh,344,8 0 drop",
        "tcp option timestamp exists @th,160,8 8 accept",
        "exthdr frag exists drop",
        "limit rate 10/second log",
    ] {
        if let Err(error) = read_text(&table(rule), &mut named(), PORTS) {
            panic!("{rule}: {error}");
        }
    }
}

/// As Docker writes it: behind a translator nobody can tell what came for the inside address itself.
#[test]
fn who_drops_what_is_untranslated_is_told_that_a_translator_does() {
    let early = |rule: &str| {
        format!(
            "table ip docker-bridges {{\nchain raw-PREROUTING {{\ntype filter hook prerouting priority raw; policy accept;\n{rule}\n}}\n\
             chain n {{\ntype nat hook prerouting priority dstnat;\ntcp dport 8080 dnat to 172.17.0.2:80\n}}\n}}\n"
        )
    };
    for (rule, instead) in [
        ("ip daddr 172.17.0.2 iifname != \"lan\" counter drop", "allow-direct-routing"),
        ("ct state new drop", "or of hook forward"),
    ] {
        let error = read_text(&early(rule), &mut named(), PORTS).expect_err(rule);
        assert!(error.instead.contains(instead), "{error}");
    }
}

/// Tables of the same host that are for other frames say so, and the others count.
#[test]
fn tables_for_other_frames_are_left_out_and_the_report_says_so() {
    let text = table("ct state established,related accept; tcp dport 22 accept")
        + "table arp filter { chain input { type filter hook input priority 0; arp operation request drop; } }
        table bridge guests {
            chain from { ether saddr != 52:54:00:12:34:56 drop; }
            chain forward { type filter hook forward priority filter; policy accept; iifname \"vnet0\" jump from; }
        }
        table netdev mirror { chain in { type filter hook ingress device \"docker0\" priority 0; policy drop; } }";
    let filter = policy(&text, Hooks::Forward);
    check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
    check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 23), Deny);
    let notes: Vec<_> =
        filter.notes.iter().map(|note| (note.line, note.text.split(':').next().unwrap_or_default())).collect();
    assert_eq!(
        notes,
        [
            (7, "chain input is not asked"),
            (10, "chain forward is not asked"),
            (12, "the policy of chain in is for IP packets"),
            (12, "no port of the plan is named `docker0`"),
        ]
    );
}

/// Packets that arrive on a device meet its ingress chain first, whose policy applies to that device only.
#[test]
fn chains_of_a_device_are_asked_about_what_comes_by_it() {
    for chain in [
        "table netdev edge { chain in { type filter hook ingress device wan0 priority -500; policy accept; tcp dport 23 drop; ip saddr 203.0.113.66 drop; } }",
        "define world = wan0
        table inet edge { chain in { type filter hook ingress devices = { $world } priority filter; policy drop; tcp dport != 23 ip saddr != 203.0.113.66 accept; } }",
    ] {
        let filter = policy(&format!("{chain}\n{}", table("tcp dport 22-23 accept; ip saddr 203.0.113.66 accept")), Hooks::Forward);
        check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
        check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 23), Deny);
        check(&filter, (OUT, "203.0.113.66", "10.0.0.1", TCP, 22), Deny);
        check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 80), Deny);
        check(&filter, (IN, "10.0.0.1", "203.0.113.9", TCP, 23), Allow);
        check(&filter, (IN, "203.0.113.66", "203.0.113.9", TCP, 80), Allow);
    }
    let egress = "table netdev edge { chain out { type filter hook egress device wan0 priority 0; policy accept; tcp dport 25 drop; } }\n";
    let filter = policy(&(egress.to_owned() + &table("tcp dport 25 accept")), Hooks::Forward);
    check(&filter, (IN, "10.0.0.1", "203.0.113.9", TCP, 25), Deny);
    check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 25), Allow);
    let early =
        "table netdev edge { chain in { type filter hook ingress device wan0 priority 0; ct state new drop; } }\n";
    let error = read_text(&(early.to_owned() + &table("accept")), &mut named(), PORTS).expect_err("connections");
    assert!(error.reason.contains("`ct` in the chain `in`, before connections are told"), "{error}");
}

/// The first fragment decides for all fragments of a datagram, as everywhere here; the report says that a rule for
/// fragments has no effect.
#[test]
fn who_asks_for_pieces_before_they_are_put_together_is_told() {
    let early = "table netdev edge { chain in { type filter hook ingress device wan0 priority 0; ip frag-off & 0x1fff != 0 drop; } }\n";
    let filter = policy(&(early.to_owned() + &table("accept")), Hooks::Forward);
    assert!(
        filter.notes.iter().any(|note| note.line == 1 && note.text.contains("no packet is a piece")),
        "{:?}",
        filter.notes
    );
}

const BRIDGE: &str = "table bridge filter {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        ether type arp accept
        iifname lan0 ether saddr 00:53:00:00:00:01 drop
        iifname lan0 accept
        ip daddr 10.0.0.1 tcp dport 22 accept
    }
    chain input { type filter hook input priority 0; policy drop; tcp dport 22 accept; }
}
table inet filter { chain forward { type filter hook forward priority 0; policy drop; } }
";

#[test]
fn a_firewall_between_the_ports_of_a_bridge_asks_its_tables() {
    let filter = policy(BRIDGE, Hooks::Bridge);
    check(&filter, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
    check(&filter, (OUT, "203.0.113.9", "10.0.0.2", TCP, 22), Deny);
    check(&filter, (IN, "10.0.0.1", "203.0.113.9", TCP, 80), Allow);
    let notes: Vec<_> = filter.notes.iter().map(|note| note.line).collect();
    assert_eq!(notes, [10, 12]);
    let mut config = Config { rules_hook: Hooks::Bridge, ..named() };
    let error = read_text(&table("accept"), &mut config, PORTS).expect_err("no bridge");
    assert!(error.reason.contains("no table bridge"), "{error}");
    let bridge = BRIDGE.split("table inet").next().unwrap_or_default();
    let error = read_text(bridge, &mut named(), PORTS).expect_err("a bridge alone");
    assert!(error.instead.contains("write rules_hook = \"bridge\""), "{error}");
}

/// kube-proxy writes the reason into the elements of its maps.
#[test]
fn elements_of_maps_have_comments() {
    let text = "table ip kube-proxy {
        map no-endpoint-services {
            type ipv4_addr . inet_proto . inet_service : verdict
            elements = { 10.43.21.102 . tcp . 4317 comment \"a/b:otlp\" : goto reject-chain,
                         10.43.21.102 . udp . 53 counter packets 7 bytes 9 : drop comment \"c\" }
        }
        chain reject-chain { reject; }
        chain filter-forward {
            type filter hook forward priority -110; policy accept;
            ct state new ip daddr . meta l4proto . th dport vmap @no-endpoint-services
        }
    }";
    let mut fw = bench_of(text);
    check_frame(&mut fw, 0, 0, Frame::udp("10.0.0.1:7", "10.43.21.102:53"), "denied");
    check_frame(&mut fw, 0, 0, Frame::udp("10.0.0.1:7", "10.43.21.102:54"), "pass");
    let syn = Frame::tcp("10.0.0.1:7", "10.43.21.102:4317").flags("S").numbers(1, 0);
    assert_eq!(fw.send(0, 0, &syn.bytes()).dropped, Some("rejected"));
}

/// As operators write them, and as `nft list ruleset` prints them.
#[test]
fn elements_of_concatenations_have_comments_and_counters() {
    let text = "table inet t {
        set s { type ipv4_addr . inet_service; elements = { 10.0.0.1 . 22 comment \"x\", 10.0.0.2 . 80 }; }
        set n { type ipv4_addr . inet_service; counter; elements = { 10.0.0.3 . 22 counter packets 0 bytes 0 }; }
        chain c {
            type filter hook forward priority 0; policy accept;
            ip daddr . tcp dport @s drop
            ip daddr . tcp dport @n drop
            ip daddr . tcp dport { 10.0.0.4 . 22 comment \"anonymous\" } drop
            ip daddr . tcp dport != { 10.0.0.5 . 22 comment \"negated\", 10.0.0.5 . 23 } drop
        }
    }";
    let mut fw = bench_of(text);
    for (to, passes) in [
        ("10.0.0.1:22", false),
        ("10.0.0.2:80", false),
        ("10.0.0.3:22", false),
        ("10.0.0.4:22", false),
        ("10.0.0.5:22", true),
        ("10.0.0.5:23", true),
        ("10.0.0.5:24", false),
    ] {
        let frame = Frame::tcp("10.0.9.1:7", to).flags("S");
        check_frame(&mut fw, 0, 0, frame, if passes { "pass" } else { "denied" });
    }
}

/// A base rule set declares its lists, and scripts fill them; `nft -t list ruleset` prints all sets so. Nothing is in them.
#[test]
fn sets_of_concatenations_and_of_marks_may_be_empty() {
    let text = "table inet t {
        set s { type ipv4_addr . inet_service; }
        set i { type ipv4_addr . inet_service; flags interval; }
        set e { type ether_addr . ipv4_addr; }
        set m { type mark; }
        chain c {
            type filter hook forward priority 0; policy accept;
            ip saddr . tcp dport @s drop
            counter ip saddr . tcp dport @i drop
            ether saddr . ip saddr @e drop
            meta mark @m drop
            meta mark set 7 ct mark @m drop
            tcp dport 23 meta mark != @m drop
            udp dport 54 ip saddr . udp dport != @s drop
        }
    }";
    let mut fw = bench_of(text);
    for (port, expected) in [(22, "pass"), (23, "denied")] {
        check_frame(&mut fw, 0, 0, Frame::tcp("10.0.9.1:7", &format!("10.0.0.1:{port}")).flags("S"), expected);
    }
    for (port, expected) in [(22, "pass"), (53, "pass"), (54, "denied")] {
        check_frame(&mut fw, 0, 0, Frame::udp("10.0.9.1:7", &format!("10.0.0.1:{port}")), expected);
    }
    let braces = text.replace("@s", "{ }");
    let error = read_text(&braces, &mut named(), PORTS).expect_err("a set in braces").to_string();
    assert!(error.contains("a set with nothing in it"), "{error}");
}

/// Who describes a packet without its Ethernet addresses is told with which ones it was judged.
#[test]
fn explanations_say_the_ethernet_addresses_that_rules_ask_for() {
    let page = |rules: &str| {
        let mut config = named();
        read_text(&table(rules), &mut config, PORTS).expect("rules");
        explain(config, 2, (1, &Frame::udp("10.0.9.1:7", "10.0.0.1:53").bytes()), When::Utc(0)).expect("a packet")
    };
    let told = "it goes from 02:00:00:00:00:01 to 02:00:00:00:00:02. Others stand before the packet, as eth";
    for rules in ["ether saddr != 02:00:00:00:00:09 drop", "ether daddr . udp dport { 02:00:00:00:00:02 . 53 } accept"]
    {
        let page = page(rules);
        assert!(page.contains(told), "{page}");
    }
    let page = page("udp dport 53 accept");
    assert!(!page.contains("Ethernet"), "{page}");
}

/// A policy has no line of its own, so it is named by its chain.
#[test]
fn the_policy_of_a_chain_is_explained_by_its_name() {
    let mut config = named();
    read_text(&table("tcp dport 22 accept comment \"administrators\""), &mut config, PORTS).expect("rules");
    let page = |port: u16| {
        let frame = Frame::tcp("192.0.2.9:7", &format!("10.0.0.5:{port}")).flags("S").bytes();
        explain(config.clone(), 2, (1, &frame), When::Utc(0)).expect("a whole packet")
    };
    assert!(page(23).contains("line 2 of the rule file decides: everything: drop (policy of chain f)"), "{}", page(23));
    assert!(page(22).contains("destination ports 22: accept (administrators)"), "{}", page(22));
}

/// Behind a map of values, too.
#[test]
fn a_rule_has_its_comment_wherever_that_stands() {
    for rule in [
        "counter meta mark set ip saddr map { 10.0.0.0/24 : 1 } comment \"r20\"",
        "counter name udp dport map { 80 : \"web\" } comment \"r20\"",
        "log prefix \"x\" meta mark set udp dport map { 80 : 1, 90 : 2 } comment \"r20\"",
        "counter comment \"r20\"",
    ] {
        let mut config = named();
        let text = table(rule).replacen("chain", "counter web { }\nchain", 1);
        read_text(&text, &mut config, PORTS).unwrap_or_else(|error| panic!("{rule}: {error}"));
        let with_effects: Vec<_> = config.rules.iter().filter(|rule| rule.has_effects()).collect();
        assert!(!with_effects.is_empty() && with_effects.iter().all(|it| it.comment == "r20"), "{rule}");
    }
}

/// Conditions that have the same result for every forwarded packet.
#[test]
fn what_is_always_so_or_never_is_taken() {
    let asks = |port: u16| Frame::udp("10.0.0.1:7", &format!("192.0.2.9:{port}"));
    let rules = "ct zone 1 drop; ct zone != 0 drop; meta ipsec exists drop; meta skuid 0 drop; meta skgid > 5 drop
        meta cgroup { 1, 2 } drop; udp dport 53 ct zone 0 meta ipsec missing accept";
    let mut fw = known::bench_of(&table(rules));
    check_frame(&mut fw, 0, 0, asks(53), "pass");
    check_frame(&mut fw, 0, 0, asks(54), "denied");
}
