//! What nftables has and this firewall does not, each with what to write instead. There is one table for each place in which a
//! word may occur, so that a form gets the same answer wherever it occurs.

use braid_nf::suggest::nearest;

use super::{Parsed, wrong};

/// Words where a condition, a statement or a verdict may begin.
const WORDS: &[(&[&str], &str)] = &[
    (&["table", "chain", "type", "}"], "write table inet filter { chain forward { … } } around its rules"),
    (
        &["dnat", "snat", "masquerade", "redirect"],
        "put nat behind the firewall in the plan, and write accept here; a chain of type nat may stay as it is: it is not asked",
    ),
    (&["tproxy"], "write accept: who answers is decided behind the firewall"),
    (&["queue"], "write accept or drop, or log prefix \"…\": no program is asked about packets"),
    (&["dup", "fwd"], "write accept: a packet leaves once, by the port to which its plan sends it"),
    (
        &["synproxy"],
        "write half_open_max in the plan, or put anti_ddos with action = \"cookies\" before the firewall: it answers SYNs itself",
    ),
    (&["include"], "write include \"services.nft\", in a line of its own"),
    (
        &["add", "update", "insert", "delete"],
        "write add @set { ip saddr }, update @set { … } or delete @set { … }: rules do not change by packets",
    ),
    (&["set"], "write add @set { ip saddr timeout 5m } or update @set { … }, the element between braces"),
    (
        &["notrack"],
        "write it into a chain of priority raw: table inet raw { chain pre { type filter hook prerouting priority raw; … } }",
    ),
    (
        &["numgen", "jhash", "symhash"],
        "write limit rate 10/second, for samples in a log; ip saddr & 0.0.0.1 == 0.0.0.0 for every other client; connections are spread over \
         servers by load_balancer in the chain",
    ),
    (
        &["rt"],
        "write rt type 0, exthdr rt exists, or addresses: the routes of a packet are decided behind the firewall",
    ),
    (
        &["socket", "osf", "cgroup"],
        "leave it out, or write addresses and ports: nothing here belongs to a program of this machine",
    ),
    (
        &["ipsec"],
        "write meta ipsec exists or missing, or the addresses of the tunnel: nothing that comes was in one of this machine",
    ),
    (&["secmark"], "write meta mark set 1 and meta mark 1: labels are for programs of this machine"),
    (&["iifgroup", "oifgroup", "iiftype", "oiftype"], "write the interfaces: iifname { eth0, eth1 }"),
    (&["rename"], "write the chain under its new name"),
    (&["replace"], "write the rules in their order: none has a handle before it is loaded"),
    (
        &["allow", "pass"],
        "write accept, behind its conditions: pass in quick on em0 proto tcp from any to 10.0.0.1 port 22 is iifname em0 ip daddr 10.0.0.1 tcp \
         dport 22 accept; the first rule that fits decides, as quick ones of pf do",
    ),
    (
        &["deny", "block"],
        "write drop, behind its conditions: block in quick on em0 from 10.0.0.0/8 is iifname em0 ip saddr 10.0.0.0/8 drop; the first rule \
         that fits decides, as quick ones of pf do",
    ),
    (&["quick"], "leave it out: the first rule that fits decides"),
    (&["on"], "write iifname em0 or oifname em0"),
    (&["proto"], "write tcp dport 22, or meta l4proto tcp"),
    (&["from"], "write ip saddr 10.0.0.0/8, or ip6 saddr; leave out from any"),
    (&["to"], "write ip daddr 10.0.0.0/8, or ip6 daddr; leave out to any"),
    (&["port"], "write tcp dport 22 or udp sport 53"),
    (
        &["keep", "modulate"],
        "write ct state established,related accept as the first rule: connections are known without a word",
    ),
    (
        &["rdr", "binat"],
        "put nat behind the firewall in the plan, with `static` or `one_to_one`, and write accept here",
    ),
    (
        &["scrub", "antispoof"],
        "leave it out: write fib saddr . iif oif missing drop, or reverse_path of the router in the plan",
    ),
    (
        &["iptables", "ip6tables", "ebtables"],
        "write it in words of nftables: iptables-translate says how, iptables-restore-translate for a whole file",
    ),
    (
        &["frag"],
        "leave it out, or write exthdr frag exists: datagrams are judged whole, and a whole one has no such header",
    ),
    (
        &["hbh", "dst", "mh", "srh", "rt0", "rt2", "rt4"],
        "write exthdr hbh exists, exthdr rt missing or rt type 0; or bits by their place: the first header behind that of IPv6 begins at \
         @nh,320,8",
    ),
    (
        &["vxlan", "geneve", "gre", "gretap"],
        "write udp dport 4789 or meta l4proto gre: what a tunnel carries is looked at behind the end of the tunnel",
    ),
    (&["reset"], "leave it out, or write drop: options stay as they came"),
    (
        &["xt"],
        "write it in words of nftables: iptables-translate says how; nft shows so what iptables has put in and it cannot read",
    ),
    (&["<<", ">>"], "write the number as it is shifted: ct mark set meta mark & 0xff, or a map for each value"),
];

/// Keys of `meta`.
const META: &[(&[&str], &str)] = &[
    (
        &["iifgroup", "oifgroup", "iiftype", "oiftype", "iifkind", "oifkind", "sdif", "sdifname", "ibrname", "obrname"],
        "write the interfaces: iifname { eth0, eth1 }",
    ),
    (
        &["skuid", "skgid", "cgroup"],
        "leave it out, or write addresses: whose program has sent a packet is known to its host only",
    ),
    (&["cpu"], "leave it out: which worker has a packet says nothing about it"),
    (&["rtclassid"], "write addresses: routes are decided behind the firewall"),
    (&["secmark"], "write meta mark 1: labels are for programs of this machine"),
    (&["random"], "write limit rate 10/second, for samples in a log: nothing is left to chance"),
    (&["priority"], "leave it out: put shaper in the chain"),
];

/// Keys of `ct`.
const CT: &[(&[&str], &str)] = &[
    (
        &["count"],
        "write ct count over 20 as a rule of its own; or host_connections_max, or connection_limiter before the firewall",
    ),
    (&["label"], "write ct mark: connections have no labels, and 32 bits of mark"),
    (
        &["zone"],
        "leave it out: connections of all ports are known together. Where addresses overlap, each network needs a firewall of its own",
    ),
    (&["id", "event", "expectation", "secmark"], "write ct mark, or leave it out"),
    (
        &["expiration"],
        "leave it out: how long connections live is said by the plan, tcp_established_s, udp_s and others",
    ),
    (&["helper"], "write the ports: tcp dport 21. Nobody reads along"),
    (&["l3proto"], "write meta nfproto ipv4"),
    (&["protocol"], "write meta l4proto tcp"),
];

/// Words with which something supported may begin.
const KNOWN: &[&str] = &[
    "inbound", "outbound", "iif", "oif", "iifname", "oifname", "ip", "ip6", "ether", "arp", "vlan", "meta", "tcp",
    "udp", "sctp", "th", "icmp", "icmpv6", "igmp", "ah", "esp", "comp", "udplite", "dccp", "exthdr", "rt", "fib", "ct",
    "counter", "log", "limit", "quota", "meter", "notrack", "accept", "drop", "reject", "jump", "goto", "return",
    "continue", "comment", "policy",
];

/// What to write instead of a quota of an element.
pub(super) const NO_QUOTAS: &str = "write limit rate over 10 mbytes/second, which each element has of its own; or quota over 10 mbytes behind the \
     element's braces, for all of them together";

/// Objects of tables.
const OBJECTS: &[(&[&str], &str)] = &[
    (
        &["expectation"],
        "write the ports for which a connection opens others into a rule: nobody reads along, and none is expected",
    ),
    (&["tunnel"], "leave it out: what a tunnel carries is looked at behind the end of the tunnel"),
];

/// The error for an object of a table that is not supported: `synproxy`, `secmark`, `ct expectation`.
pub(super) fn no_object<T>(what: &str) -> Parsed<T> {
    let instead = found(OBJECTS, what).or_else(|| found(WORDS, what)).unwrap_or("leave it out");
    wrong(format!("`{what}` is no object of a table here"), format!("{instead}; and remove the rules that name it"))
}

/// Whether a condition may begin with a word, in nftables.
pub(super) fn begins(word: &str) -> bool {
    KNOWN.contains(&word) || found(WORDS, word).is_some()
}

fn found(table: &[(&[&str], &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead)
}

/// The error for a word that begins nothing supported.
pub(super) fn unknown<T>(word: &str) -> Parsed<T> {
    if let Some(instead) = found(WORDS, word) {
        return wrong(format!("`{word}` is no condition here"), instead);
    }
    let instead = match nearest(word, KNOWN.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if word.starts_with('@') => {
            "write @ll, @nh, @th or @ih; a set stands behind what it is asked for: ip saddr @admins".to_owned()
        }
        None => format!("write one of {}", KNOWN.join(", ")),
    };
    wrong(format!("`{word}` is no condition"), instead)
}

/// The error for an unknown key of `meta`.
pub(super) fn unknown_meta<T>(key: &str) -> Parsed<T> {
    const KEYS: &[&str] = &[
        "l4proto", "nfproto", "protocol", "length", "mark", "iif", "oif", "iifname", "oifname", "pkttype", "hour",
        "day", "time", "ipsec",
    ];
    unknown_key("meta", key, (META, KEYS))
}

/// The error for an unknown key of `ct`.
pub(super) fn unknown_ct<T>(key: &str) -> Parsed<T> {
    const KEYS: &[&str] =
        &["state", "direction", "status", "mark", "bytes", "packets", "avgpkt", "original", "reply", "count", "zone"];
    unknown_key("ct", key, (CT, KEYS))
}

fn unknown_key<T>(of: &str, key: &str, (table, keys): (&[(&[&str], &'static str)], &[&str])) -> Parsed<T> {
    match found(table, key) {
        Some(instead) => wrong(format!("nothing is known of `{of} {key}`"), instead),
        None if keys.contains(&key) => wrong(
            format!("`{of} {key}` is not one of several joined fields here"),
            format!("write {of} {key} before the others, without a `.`"),
        ),
        None => wrong(format!("nothing is known of `{of} {key}`"), one_of(of, key, keys)),
    }
}

/// What to write instead of an unknown name of `of`: the nearest known one, or all of them.
pub(super) fn one_of(of: &str, written: &str, known: &[&str]) -> String {
    match nearest(written, known.iter().copied()) {
        Some(near) => format!("did you mean `{of} {near}`?"),
        None => format!("write {of} and one of {}", known.join(", ")),
    }
}
