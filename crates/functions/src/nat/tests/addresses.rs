//! External addresses that join and leave while mappings are kept.

use std::collections::BTreeMap;

use braid_nf::{Declare, NetworkFunction, Stage};

use super::*;

fn build(text: &str) -> impl FnOnce(&mut StateBuilder) -> Box<dyn Stage> {
    let config = parse(text.parse().unwrap()).unwrap();
    move |builder| {
        let nat = Nat::from_config(config, builder.scope("nat"), 2).expect("a configuration that works");
        Box::new(Instance::new("nat", nat))
    }
}

fn begin(text: &str) -> Bench {
    Bench::with_sets(2, 1024, build(text))
}

/// Few ports, so that one tick visits all mappings, and ten addresses from `.0` on: `o` is open, `d` drains.
fn few(states: &str) -> String {
    let list = |wanted: char| {
        let named = states.chars().enumerate().filter(|(_, state)| *state == wanted);
        named.map(|(n, _)| format!("'198.51.100.{n}'")).collect::<Vec<_>>().join(", ")
    };
    let small = "first_port = 1024\nlast_port = 1279\nmappings_max = 2000\nfragments_max = 8\nheld_max = 4";
    format!("{small}\nexternal = [{}]\ndraining = [{}]\n", list('o'), list('d'))
}

/// Lets the ticks of some time pass.
fn settle(bench: &mut Bench, from_ms: u64) {
    for n in 1..=250 {
        bench.send(0, from_ms + 10 * n, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
}

/// The last byte of the external address and the port with which a host's packet leaves.
#[track_caller]
fn external(bench: &mut Bench, ms: u64, (host, port): (u8, u16)) -> (u8, u16) {
    let outcome = bench.send(0, ms, &Frame::udp(&format!("10.0.0.{host}:{port}"), SERVER).bytes());
    let bytes = outcome.only().1;
    (bytes[29], u16::from_be_bytes([bytes[34], bytes[35]]))
}

/// What becomes of a reply to an external endpoint.
fn answer(bench: &mut Bench, ms: u64, (address, port): (u8, u16)) -> String {
    show::outcome(&bench.send(1, ms, &Frame::udp(SERVER, &format!("198.51.100.{address}:{port}")).bytes()))
}

#[test]
fn an_address_that_joins_is_for_new_hosts_and_others_keep_theirs() {
    let mut nat = begin("external = ['198.51.100.1']");
    let before: Vec<_> = (1..=40).map(|host| external(&mut nat, 0, (host, 2000))).collect();
    let text = "external = ['198.51.100.0/30']";
    let mut nat = nat.succeeded(build(text));
    let is_kept = |nat: &mut Bench, ms: u64, port: u16| {
        for host in 1..=40 {
            assert_eq!(external(nat, ms, (host, 2000)), before[usize::from(host) - 1]);
            assert_eq!(external(nat, ms, (host, port)).0, 1, "pooling is paired");
            let expected = format!("0: udp {SERVER} > 10.0.0.{host}:2000 ttl 63");
            assert_eq!(answer(nat, ms, before[usize::from(host) - 1]), expected);
        }
    };
    is_kept(&mut nat, 0, 3000);
    settle(&mut nat, 0);
    is_kept(&mut nat, 2600, 4000);
    let used: HashSet<u8> = (41..=90).map(|host| external(&mut nat, 2600, (host, 2000)).0).collect();
    assert_eq!(used, HashSet::from([0, 1, 2, 3]));
    let mut nat = nat.restored(build(text));
    is_kept(&mut nat, 2700, 5000);
}

#[test]
fn the_mappings_of_an_address_that_leaves_end_and_others_stay() {
    let mut nat = begin(&few("ooo"));
    let before: Vec<_> = (1..=40).map(|host| external(&mut nat, 0, (host, 1100))).collect();
    let mut nat = nat.succeeded(build(&few("o.o")));
    let gone = before.iter().find(|(address, _)| *address == 1).copied().expect("some were there");
    assert_eq!(answer(&mut nat, 0, gone), "drop address_left");
    for (host, before) in (1..=40).zip(&before) {
        let now = external(&mut nat, 0, (host, 1100));
        assert!(if before.0 == 1 { now.0 != 1 } else { now == *before }, "{before:?} {now:?}");
        assert_eq!(external(&mut nat, 0, (host, 1101)).0, now.0, "pooling is paired");
    }
    settle(&mut nat, 0);
    let routed = format!("0: udp {SERVER} > 198.51.100.1:{} ttl 63", gone.1);
    assert_eq!(answer(&mut nat, 2600, gone), routed, "like any other address outside");
    // A mapping on a number is forgotten when another address gets that number.
    let mut nat = nat.succeeded(build(&few("o.o......o")));
    assert!((50..=99).any(|host| external(&mut nat, 2600, (host, 1100)).0 == 9));
}

#[test]
fn an_address_that_drains_keeps_its_mappings_and_gets_no_new_ones() {
    let mut nat = begin(&few("oo"));
    let before: Vec<_> = (1..=40).map(|host| external(&mut nat, 0, (host, 1100))).collect();
    let mut nat = nat.succeeded(build(&few("do")));
    for (host, before) in (1..=40).zip(&before) {
        assert_eq!(external(&mut nat, 0, (host, 1100)), *before);
        assert_eq!(answer(&mut nat, 0, *before), format!("0: udp {SERVER} > 10.0.0.{host}:1100 ttl 63"));
        assert_eq!(external(&mut nat, 0, (host, 1101)).0, 1);
    }
    let unknown = before.iter().find(|(address, _)| *address == 0).map(|(address, port)| (*address, port + 99));
    assert_eq!(answer(&mut nat, 0, unknown.expect("some were there")), "drop no_mapping");
    // Five minutes later they have timed out, and hosts that return get the other address.
    settle(&mut nat, 500_000);
    assert!((1..=40).all(|host| external(&mut nat, 503_000, (host, 1100)).0 == 1));
}

#[test]
fn a_host_with_mappings_on_an_address_that_drains_keeps_the_one_that_it_has_besides() {
    let mut nat = begin(&few("o"));
    (1..=40).for_each(|host| assert_eq!(external(&mut nat, 0, (host, 1100)).0, 0));
    let mut nat = nat.succeeded(build(&few("doo")));
    settle(&mut nat, 0);
    let homes: Vec<u8> = (1..=40).map(|host| external(&mut nat, 2600, (host, 1101)).0).collect();
    assert!(homes.contains(&1) && homes.contains(&2), "{homes:?}");
    let mut nat = nat.succeeded(build(&few("dooo")));
    // Before all mappings have been visited, and after.
    for (ms, port) in [(2600, 1102), (5200, 1103)] {
        let now: Vec<u8> = (1..=40).map(|host| external(&mut nat, ms, (host, port)).0).collect();
        assert_eq!(now, homes, "pooling is paired");
        settle(&mut nat, 2600);
    }
}

#[test]
fn blocks_on_an_address_that_leaves_are_given_back_and_the_log_says_where_they_were() {
    let text = |states: &str| few(states) + "allocation = 'blocks'\nblock_size = 64\nblocks_per_host = 2";
    let mut nat = begin(&text(".o"));
    external(&mut nat, 0, (1, 2000));
    let mut nat = nat.succeeded(build(&text("od")));
    assert_eq!(external(&mut nat, 1000, (1, 3000)).0, 0, "a block of the address that joined");
    assert_eq!(external(&mut nat, 1000, (1, 2000)).0, 1, "what drains is used on");
    settle(&mut nat, 1000);
    let mut nat = nat.succeeded(build(&text("o.")));
    settle(&mut nat, 4000);
    let findings = nat.findings();
    let blocks = findings.list().iter().filter(|found| found.kind == "port_block");
    let mut blocks: Vec<String> = blocks.map(|found| format!("{} {}", found.subject, found.detail)).collect();
    blocks.sort();
    let said = |address: &str, what: &str| {
        let of =
            |line: &&String| line.starts_with(&format!("10.0.0.1 198.51.100.{address} ports")) && line.contains(what);
        assert_eq!(blocks.iter().filter(of).count(), 1, "{address} {what}: {blocks:?}");
    };
    said("1", "assigned");
    said("1", "released");
    said("0", "assigned");
    assert_eq!(blocks.len(), 3, "{blocks:?}");
}

#[test]
fn a_quota_counts_the_mappings_of_all_addresses() {
    let text = |states: &str| few(states) + "ports_per_host = 3";
    let mut nat = begin(&text("o"));
    external(&mut nat, 0, (1, 2000));
    external(&mut nat, 0, (1, 2001));
    let mut nat = nat.succeeded(build(&text("do")));
    assert_eq!(external(&mut nat, 0, (1, 2002)).0, 1);
    check(
        &mut nat,
        0,
        0,
        Frame::udp("10.0.0.1:2003", SERVER),
        "0: unreachable 192.0.0.8 > 10.0.0.1 [udp 10.0.0.1:2003 > 192.0.2.9:80] ttl 64, drop port_quota",
    );
    settle(&mut nat, 0);
    let mut nat = nat.succeeded(build(&text(".o")));
    settle(&mut nat, 3000);
    external(&mut nat, 6000, (1, 2003));
    external(&mut nat, 6000, (1, 2004));
    assert_eq!(nat.send(0, 6000, &Frame::udp("10.0.0.1:2005", SERVER).bytes()).dropped, Some("port_quota"));
}

#[test]
fn a_quota_that_is_new_counts_what_was_there() {
    let mut nat = begin(&few("oo"));
    external(&mut nat, 0, (1, 2000));
    external(&mut nat, 0, (1, 2001));
    let mut nat = nat.succeeded(build(&(few("oo") + "ports_per_host = 2")));
    settle(&mut nat, 0);
    assert_eq!(nat.send(0, 4000, &Frame::udp("10.0.0.1:2005", SERVER).bytes()).dropped, Some("port_quota"));
}

#[test]
fn static_mappings_stay_and_leave_with_their_address() {
    let fixed = |n: u8| format!("{{ protocol = 'udp', external = '198.51.100.{n}:1030', inside = '10.0.0.5:80' }}");
    let other = "{ protocol = 'udp', external = '198.51.100.2:1030', inside = '10.0.0.6:80' }";
    let mut nat = begin(&(few(".oo") + &format!("static = [{}, {other}]", fixed(1))));
    let mut nat = {
        nat.send(0, 0, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
        nat.succeeded(build(&(few("oo") + &format!("static = [{}]", fixed(1)))))
    };
    settle(&mut nat, 0);
    assert_eq!(answer(&mut nat, 2600, (1, 1030)), format!("0: udp {SERVER} > 10.0.0.5:80 ttl 63"));
    assert_eq!(answer(&mut nat, 2600, (2, 1030)), format!("0: udp {SERVER} > 198.51.100.2:1030 ttl 63"));
    assert_ne!(external(&mut nat, 2600, (6, 80)).0, 2);
}

#[test]
fn static_mappings_come_and_go() {
    let fixed = |host: u8, port: u16| {
        format!("{{ protocol = 'udp', external = '198.51.100.1:{port}', inside = '10.0.0.{host}:80' }}")
    };
    let with = |fixed: &[String]| format!("external = ['198.51.100.1']\nstatic = [{}]", fixed.join(", "));
    let mut nat = begin(&with(&[fixed(5, 1030), fixed(6, 1031), fixed(7, 1032)]));
    assert_eq!(answer(&mut nat, 0, (1, 1030)), format!("0: udp {SERVER} > 10.0.0.5:80 ttl 63"));
    // One host has the port that another is to get, and one is to get another port than it has.
    assert_eq!(external(&mut nat, 0, (1, 2000)), (1, 2000));
    let before = external(&mut nat, 0, (8, 80)).1;
    let after = [fixed(6, 1031), fixed(7, 1030), fixed(9, 2000), fixed(8, 3000)];
    let mut nat = nat.succeeded(build(&with(&after)));
    settle(&mut nat, 0);
    let to = |host: u8| format!("0: udp {SERVER} > 10.0.0.{host}:80 ttl 63");
    for (port, expected) in [(1030, to(7)), (1031, to(6)), (2000, to(9)), (3000, to(8))] {
        assert_eq!(answer(&mut nat, 2600, (1, port)), expected);
    }
    for gone in [1032, before] {
        assert_eq!(answer(&mut nat, 2600, (1, gone)), "drop no_mapping");
    }
    assert_eq!((external(&mut nat, 2600, (7, 80)), external(&mut nat, 2600, (8, 80))), ((1, 1030), (1, 3000)));
    let (host_1, host_5) = (external(&mut nat, 2600, (1, 2000)), external(&mut nat, 2600, (5, 80)));
    assert!(host_1.1 != 2000 && host_5.1 != 1030, "{host_1:?} {host_5:?}: those are others' now");
}

/// Static mappings of 3000 consecutive ports of one host, in a table with little room to spare.
fn forwarded(host: u8) -> String {
    let ports = "protocol = 'udp', external = '198.51.100.1:2000-4999'";
    format!("external = ['198.51.100.1']\nstatic = [{{ {ports}, inside = '10.0.0.{host}:2000-4999' }}]")
}

#[test]
fn ranges_of_static_mappings_come_in_portions_and_packets_in_between_meet_all_of_them() {
    let mut nat = begin("external = ['198.51.100.1']");
    assert_eq!(external(&mut nat, 0, (1, 2100)), (1, 2100), "before it is another one's");
    let mark = |nat: &Bench| u64::from_le_bytes(nat.object("nat.static_carried_out")[..8].try_into().unwrap());
    let mut nat = nat.succeeded(build(&forwarded(5)));
    let before = mark(&nat);
    // How many are done; `None` if all are.
    let progress = |nat: &Bench| match mark(nat) {
        bits if bits == before => Some(0),
        bits => (bits & 1 == 0).then_some(bits >> 3),
    };
    let to = |port: u16| format!("0: udp {SERVER} > 10.0.0.5:{port} ttl 63");
    // No port of the range is given to another host, whether it is the host's own port number or next to it.
    for (host, port) in (10..60).flat_map(|host| [(host, 4900), (host, 2000 + u16::from(host))]) {
        let (_, given) = external(&mut nat, 1, (host, port));
        assert!(!(2000..5000).contains(&given), "{host}: {given}");
    }
    // A mapping that is needed is made at once, from either side.
    assert_eq!(answer(&mut nat, 2, (1, 4800)), to(4800));
    assert_eq!(external(&mut nat, 2, (5, 4700)), (1, 4700));
    assert_eq!(external(&mut nat, 2, (1, 2101)).1 % 2, 1, "parity is kept around them");
    let mut seen = progress(&nat).expect("it has just begun");
    for n in 1..40 {
        nat.send(0, 10 * n + 2, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
        let Some(now) = progress(&nat) else { break };
        assert!(now - seen <= 512, "from {seen} to {now}");
        seen = now;
    }
    assert!(seen > 2000 && progress(&nat).is_none(), "{seen}, portion by portion to the end");
    for port in [2000, 2100, 3333, 4999] {
        assert_eq!(answer(&mut nat, 500, (1, port)), to(port));
    }
    assert_ne!(external(&mut nat, 500, (1, 2100)), (1, 2100));
    // Mappings that are removed go in portions too, and their ports are free afterwards.
    let mut nat = nat.succeeded(build("external = ['198.51.100.1']"));
    settle(&mut nat, 500);
    assert_eq!(answer(&mut nat, 3100, (1, 3333)), "drop no_mapping");
    assert_eq!(external(&mut nat, 3100, (9, 3333)), (1, 3333));
}

#[test]
fn static_mappings_that_were_to_go_do_so_where_another_function_takes_over_meanwhile() {
    let few = |statics: &str| format!("{statics}\nmappings_max = 4000");
    let mut nat = begin(&few(&forwarded(5)));
    assert_eq!(answer(&mut nat, 0, (1, 4999)), format!("0: udp {SERVER} > 10.0.0.5:4999 ttl 63"));
    let kept = "external = ['198.51.100.1']\nstatic = [{ protocol = 'udp', external = '198.51.100.1:3000', inside = '10.0.0.5:3000' }]";
    let mut nat = nat.succeeded(build(&few(kept)));
    nat.send(0, 10, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    // Some of them are gone. The next function knows only its own list, and so does one with restored state.
    let mut nat = nat.succeeded(build(&(few(kept) + "\nudp_s = 200")));
    nat.send(0, 20, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let mut nat = nat.restored(build(&few(kept)));
    settle(&mut nat, 20);
    for port in [2000, 2600, 4000, 4999] {
        assert_eq!(answer(&mut nat, 2700, (1, port)), "drop no_mapping", "{port}");
    }
    assert_eq!(answer(&mut nat, 2700, (1, 3000)), format!("0: udp {SERVER} > 10.0.0.5:3000 ttl 63"));
}

#[test]
fn blocks_of_ports_that_are_all_configured_are_nobodys() {
    let blocks = "first_port = 1024\nlast_port = 5119\nallocation = 'blocks'\nblock_size = 256\n";
    let mut nat = begin(&(blocks.to_owned() + &forwarded(5)));
    // Five of sixteen blocks have other ports than those.
    for host in 10..15 {
        let (_, port) = external(&mut nat, 0, (host, 1000));
        assert!(!(2000..5000).contains(&port), "{host}: {port}");
    }
}

#[test]
fn a_second_change_of_static_mappings_waits_for_the_first() {
    let fixed = |host: u8| {
        format!(
            "external = ['198.51.100.1']\nstatic = [{{ protocol = 'udp', external = '198.51.100.1:1030', inside = '10.0.0.{host}:80' }}]"
        )
    };
    let domain = Domain::new(1);
    let built = |host: u8, former: Option<&Nat>| {
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        builder.inherit(former.map_or_else(Vec::new, Declare::objects));
        Nat::from_config(parse(fixed(host).parse().unwrap()).unwrap(), &mut builder, 2)
    };
    // No tick has passed since it was built.
    let first = built(5, None).expect("a configuration that works");
    assert!(built(5, Some(&first)).is_ok());
    let refusal = built(6, Some(&first)).err().expect("it is refused").to_string();
    assert!(refusal.starts_with("`static`: they have changed a moment ago"), "{refusal}");
}

#[test]
fn hosts_that_are_inside_no_more_lose_their_mappings_and_others_keep_theirs() {
    let inside = |ranges: &str| few("o") + &format!("inside = [{ranges}]");
    let (both, one) = (inside("'10.0.0.1', '10.0.0.2'"), inside("'10.0.0.2'"));
    let mut nat = begin(&both);
    let sends = |nat: &mut Bench, ms: u64| [1, 2].map(|host| external(nat, ms, (host, 2000)));
    let before = sends(&mut nat, 0);
    assert_eq!(sends(&mut nat, 1), before, "flows that go on");
    let mut nat = nat.succeeded(build(&one));
    settle(&mut nat, 0);
    let is_out = |nat: &mut Bench, ms: u64| {
        let outcome = nat.send(0, ms, &Frame::udp("10.0.0.1:2000", SERVER).bytes());
        assert_eq!(show::outcome(&outcome), format!("1: udp 10.0.0.1:2000 > {SERVER} ttl 63"));
        assert_eq!(answer(nat, ms, before[0]), "drop no_mapping");
        assert_eq!(external(nat, ms, (2, 2000)), before[1]);
        assert_eq!(answer(nat, ms, before[1]), format!("0: udp {SERVER} > 10.0.0.2:2000 ttl 63"));
    };
    is_out(&mut nat, 2600);
    let mut nat = nat.restored(build(&one));
    settle(&mut nat, 2600);
    is_out(&mut nat, 5200);
    // Its port has rested in the meantime, so a host that returns can have it.
    let mut nat = nat.succeeded(build(&both));
    assert_eq!(sends(&mut nat, 5300), before);
    assert_eq!(nat.findings().sums().get("mappings_ended_by_changes"), Some(&1));
}

#[test]
fn who_is_inside_may_change_again_before_all_mappings_were_looked_at() {
    let inside = |ranges: &str| few("o") + &format!("inside = [{ranges}]");
    let mut nat = begin(&inside("'10.0.0.0/24'"));
    let before: Vec<_> = (1..=9).map(|host| external(&mut nat, 0, (host, 2000))).collect();
    let mut nat = nat.succeeded(build(&inside("'10.0.0.1', '10.0.0.2'"))).succeeded(build(&inside("'10.0.0.2/31'")));
    settle(&mut nat, 0);
    for (host, before) in (1..=9).zip(before) {
        let expected = match host {
            2 | 3 => format!("0: udp {SERVER} > 10.0.0.{host}:2000 ttl 63"),
            _ => "drop no_mapping".to_owned(),
        };
        assert_eq!(answer(&mut nat, 2600, before), expected);
    }
}

#[test]
fn a_second_change_waits_until_all_mappings_were_looked_at() {
    let mut nat = begin("external = ['198.51.100.1']");
    external(&mut nat, 0, (1, 2000));
    let nat = nat.succeeded(build("external = ['198.51.100.1', '198.51.100.2']"));
    let mut refusal = None;
    let _ = nat.succeeded(|builder| {
        let config = parse("external = ['198.51.100.2']".parse().unwrap()).unwrap();
        refusal = Nat::from_config(config, builder.scope("nat"), 2).err();
        build("external = ['198.51.100.1', '198.51.100.2']")(builder)
    });
    let refusal = refusal.expect("it is refused").to_string();
    assert!(
        refusal.starts_with("`external`: the addresses, or whether there is a quota, have changed a moment ago"),
        "{refusal}"
    );
}

/// Why a configuration cannot take over the state of another one.
fn refusal(before: &str, after: &str) -> Option<String> {
    let nat = |text: &str| {
        let domain = Domain::new(1);
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        Nat::from_config(parse(text.parse().unwrap()).unwrap(), &mut builder, 2).unwrap()
    };
    nat(after).inherits(&nat(before)).err()
}

#[test]
fn blocks_that_follow_from_addresses_keep_the_order_of_those_that_have_any() {
    let text = |external: &str| {
        format!("inside = ['10.0.0.0/28']\nallocation = 'deterministic'\nblock_size = 8064\nexternal = [{external}]")
    };
    // There are eight blocks per address, so two addresses are in use.
    let before = text("'198.51.100.4', '198.51.100.5', '198.51.100.6'");
    assert_eq!(refusal(&before, &text("'198.51.100.4', '198.51.100.5', '198.51.100.9'")), None);
    assert_eq!(refusal(&before, &text("'198.51.100.4', '198.51.100.5'")), None);
    for wrong in ["'198.51.100.3-198.51.100.6'", "'198.51.100.5', '198.51.100.6'"] {
        let refusal = refusal(&before, &text(wrong)).expect("it is refused");
        assert!(refusal.contains("leave the first 2 as they were"), "{refusal}");
    }
    let refusal = refusal(&before, &before.replace("/28'", "/28', '10.0.0.16/29'")).expect("it is refused");
    assert!(refusal.contains("`inside` (where ports follow from it)"), "{refusal}");
}

#[test]
fn how_many_blocks_a_host_may_have_changes_and_those_that_it_has_stay() {
    let blocks = |most: u8| few("o") + &format!("allocation = 'blocks'\nblock_size = 16\nblocks_per_host = {most}");
    let mut nat = begin(&blocks(1));
    let first: Vec<_> = (2000..2016).map(|port| external(&mut nat, 0, (1, port))).collect();
    let refused = |nat: &mut Bench, port: u16| {
        nat.send(0, 0, &Frame::udp(&format!("10.0.0.1:{port}"), SERVER).bytes()).dropped == Some("no_free_port")
    };
    assert!(refused(&mut nat, 2016), "its block is used up");
    let mut nat = nat.succeeded(build(&blocks(2)));
    let second = external(&mut nat, 0, (1, 2016));
    let mut nat = nat.succeeded(build(&blocks(1)));
    assert_eq!(external(&mut nat, 0, (1, 2016)), second);
    let rest: Vec<_> = (2017..2032).map(|port| external(&mut nat, 0, (1, port))).collect();
    let block = |(_, port): (u8, u16)| (port - 1024) / 16;
    assert!(first.iter().all(|end| block(*end) == block(first[0])) && block(second) != block(first[0]));
    assert!(rest.iter().all(|end| block(*end) == block(second)), "it has two, and gets no third");
    assert!(refused(&mut nat, 2032));
    let other = refusal(&blocks(1), &blocks(1).replace("= 16", "= 32")).expect("it is refused");
    assert!(other.contains("how ports are allocated"), "{other}");
}

/// A host whose blocks are all on an address that drains gets others on another address, so many as it may have there.
#[test]
fn blocks_on_an_address_that_drains_leave_room_for_others() {
    for most in [1_u16, 3, 4] {
        let text =
            |states: &str| few(states) + &format!("allocation = 'blocks'\nblock_size = 16\nblocks_per_host = {most}");
        let mut nat = begin(&text(".o"));
        let blocks = most.min(3);
        (0..16 * blocks).for_each(|n| assert_eq!(external(&mut nat, 0, (1, 2000 + n)).0, 1));
        let mut nat = nat.succeeded(build(&text("od")));
        // It has four blocks at most on all of its addresses.
        let others = most.min(4 - blocks);
        (0..16 * others).for_each(|n| assert_eq!(external(&mut nat, 1000, (1, 3000 + n)).0, 0, "{most} blocks"));
        let one_more = Frame::udp(&format!("10.0.0.1:{}", 3000 + 16 * others), SERVER).bytes();
        assert_eq!(nat.send(0, 1000, &one_more).dropped, Some("no_free_port"), "{most} blocks");
        assert_eq!(external(&mut nat, 1000, (1, 2000)).0, 1, "what drains is used on");
    }
}

#[test]
fn addresses_that_drain_are_checked_like_others() {
    check_error("draining = ['198.51.100.1']", "`draining`: 198.51.100.1 stands in `external` too");
    check_error("draining = ['10.0.0.1']", "`draining`: 10.0.0.1 lies in the inside range 10.0.0.0/8");
    check_error("draining = ['198.18.0.0/20']", "`draining`: with `external` they are more than 4096 addresses");
    check_error(
        "draining = ['198.51.100.2']\ninside = ['10.0.0.0/28']\nallocation = 'deterministic'",
        "`draining`: blocks follow from hosts' addresses",
    );
    check_error(
        "draining = ['198.51.100.2']\n\
         static = [{ protocol = 'udp', external = '198.51.100.2:1030', inside = '10.0.0.5:80' }]",
        "`static[0]`: 198.51.100.2 drains",
    );
}

/// One step: a host's endpoint sends, or addresses become open (`o`), drain (`d`) or leave (`.`).
#[derive(Clone, Debug)]
enum Step {
    Send(u8, u16),
    Change(String),
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let states = prop::collection::vec(prop::sample::select(vec!['o', 'o', 'd', '.']), 0..6);
    let step = prop_oneof![
        8 => (1u8..8, 2000u16..2004).prop_map(|(host, port)| Step::Send(host, port)),
        1 => (0usize..6, states).prop_map(|(open, mut states)| {
            states.insert(open.min(states.len()), 'o');
            Step::Change(states.into_iter().collect())
        }),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However addresses come and go: mappings on those that stay are kept, no two share an endpoint, and new ones are on
    /// open addresses only; if their host has another mapping on an open address, on that one.
    #[test]
    fn mappings_outlive_every_change_of_other_addresses(
        steps in steps(),
        more in prop::sample::select(vec!["", "ports_per_host = 99", "allocation = 'blocks'\nblock_size = 16\nblocks_per_host = 4"]),
    ) {
        let mut states = "oo".to_owned();
        let (mut nat, mut ms) = (begin(&(few(&states) + more)), 0);
        let mut known = BTreeMap::<(u8, u16), (u8, u16)>::new();
        let is = |states: &str, address: u8, wanted: &str| {
            wanted.contains(states.chars().nth(address.into()).unwrap_or('.'))
        };
        for step in steps {
            match step {
                Step::Change(to) => {
                    ms += 50;
                    nat.send(0, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
                    ms += 50;
                    nat.send(0, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
                    states = to;
                    nat = nat.succeeded(build(&(few(&states) + more)));
                    known.retain(|_, (address, _)| is(&states, *address, "od"));
                }
                Step::Restore => nat = nat.restored(build(&(few(&states) + more))),
                Step::Send(host, port) => {
                    let (before, used) = (known.get(&(host, port)).copied(), external(&mut nat, ms, (host, port)));
                    let mine = known.iter().filter(|((of, _), (at, _))| *of == host && is(&states, *at, "o"));
                    let mine: Vec<u8> = mine.map(|(_, (address, _))| *address).collect();
                    match before {
                        Some(before) => prop_assert_eq!(used, before),
                        None => {
                            prop_assert!(is(&states, used.0, "o"), "{} on {}", used.0, states);
                            prop_assert!(mine.is_empty() || mine.contains(&used.0), "{:?} beside {:?}", used, mine);
                            prop_assert!(known.values().all(|other| *other != used));
                        }
                    }
                    known.insert((host, port), used);
                    for ((host, port), external) in &known {
                        let expected = format!("0: udp {SERVER} > 10.0.0.{host}:{port} ttl 63");
                        prop_assert_eq!(answer(&mut nat, ms, *external), expected);
                    }
                }
            }
        }
    }
}
