//! Tests of the language: packets are built as written and read back as built, and differences are reported with their line.

use std::sync::Arc;

use braid_nf::packet::key::FieldId;
use braid_nf::{Cx, Declare, Handled, Instance, NetworkFunction, Packet, Reason, Verdict, network_function};
use braid_packet::fields::{StageUse, TIMESTAMP_NS};
use braid_runtime::Plan;
use braid_steer::{Fields, Key, Reta, Steering, Symmetry};

use super::compare::{Bound, differences};
use super::parse::Words;
use super::{Scenario, build, parse, read, run};
use crate::check_checksums;

/// Checks that a line, built and read back, yields the same text.
#[track_caller]
fn check(line: &str) {
    let said = parse::packet(&mut Words::of(line)).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let frame = build::frame(&said).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let seen = read::frame(&frame);
    check_checksums(&frame).unwrap();
    assert_eq!(differences(&said, &seen, &mut Bound::new()), Vec::<String>::new(), "{seen}");
    assert_eq!(said.to_string(), line.trim());
}

#[test]
fn what_is_written_is_built_and_read_back() {
    check("udp 10.0.0.1:1000 > 8.8.8.8:53");
    check("udp 10.0.0.1:1000 > 8.8.8.8:53 len 20");
    check("udp 10.0.0.1:1000 > 8.8.8.8:53 ttl 1 tos 184 ipid 77 checksum none");
    check("udp [2001:db8::1]:1000 > [2001:db8::2]:53 ttl 255 tos 3");
    check("tcp 10.0.0.1:1000 > 8.8.8.8:53 S seq 7 ack 8 win 100");
    check("tcp 10.0.0.1:1000 > 8.8.8.8:53 SA options 0x020405b4 len 3");
    check("tcp 10.0.0.1:1000 > 8.8.8.8:53 .");
    check("eth 02:00:00:00:00:05 > ff:ff:ff:ff:ff:ff vlan 10 udp 10.0.0.1:1 > 10.0.0.2:2");
    check("vlan 10.20 ip 10.0.0.1 > 10.0.0.2 proto 47 len 8");
    check("vlan 0/7 udp 10.0.0.1:1 > 10.0.0.2:2 ipoptions 0x8307040808080800 len 20");
    check("udp [2001:db8::1]:1 > [2001:db8::2]:2 ipoptions 0x050200000100 len 20");
    check("icmp echo 10.0.0.1 > 10.0.0.2 id 5 seq 6 len 40");
    check("icmp6 echo-reply 2001:db8::1 > 2001:db8::2 id 5 seq 6");
    check("icmp unreachable 10.0.0.9 > 10.0.0.1 code port quoting udp 10.0.0.1:1 > 10.0.0.2:2 ttl 3 len 9");
    check("icmp unreachable 10.0.0.9 > 10.0.0.1 code needs-frag mtu 1400 quoting tcp 10.0.0.1:1 > 10.0.0.2:2 S");
    check("icmp6 too-big 2001:db8::9 > 2001:db8::1 mtu 1280 quoting udp [2001:db8::1]:1 > [2001:db8::2]:2");
    check("icmp exceeded 10.0.0.9 > 10.0.0.1 quoting icmp echo 10.0.0.1 > 10.0.0.2 id 3");
    check("icmp exceeded 10.0.0.9 > 10.0.0.1 extension 0x2000dfff quoting udp 10.0.0.1:1 > 10.0.0.2:2");
    check(
        "icmp6 exceeded 2001:db8::9 > 2001:db8::1 extension 0x2000dfff quoting udp [2001:db8::1]:1 > [2001:db8::2]:2",
    );
    check("udp 10.0.0.1:1 > 10.0.0.2:2 df piece 0..16 more len 8");
    check("arp request 10.0.0.1 > 10.0.0.9");
    check("arp reply 10.0.0.9 > 10.0.0.1");
    check("type 0x88cc len 60");
}

/// Checks that a line with false claims, built and read back, yields the same text.
#[track_caller]
fn claims(line: &str) {
    let said = parse::packet(&mut Words::of(line)).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let seen = read::frame(&build::frame(&said).unwrap_or_else(|wrong| panic!("{wrong:?}")));
    assert_eq!(differences(&said, &seen, &mut Bound::new()), Vec::<String>::new(), "{seen}");
    assert_eq!(said.to_string(), line.trim());
}

#[test]
fn packets_may_claim_what_is_not_so() {
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 checksum wrong len 20");
    claims("udp [2001:db8::1]:1 > [2001:db8::2]:2 checksum wrong len 20");
    claims("tcp 10.0.0.1:1 > 10.0.0.2:2 S checksum wrong");
    claims("icmp echo 10.0.0.1 > 10.0.0.2 checksum wrong");
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 checksum right ipchecksum wrong");
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 iplen 2000");
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 ipchecksum right iplen 28 len 0");
    claims("udp [2001:db8::1]:1 > [2001:db8::2]:2 iplen 2000");
    claims("vlan 5 ip 10.0.0.1 > 10.0.0.2 proto 47 ihl 3");
    claims("tcp 10.0.0.1:1 > 10.0.0.2:2 S doff 4");
    claims("tcp 10.0.0.1:1 > 10.0.0.2:2 S doff 15");
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 udplen 4 len 20");
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 udplen 400 len 20");
    claims("udp 10.0.0.1:1 > 10.0.0.2:2 frame 60");
    claims("type 0x0800 frame 20 len 6");
    let cut = "udp 10.0.0.1:1 > 10.0.0.2:2 frame 30 len 20";
    let cut = build::frame(&parse::packet(&mut Words::of(cut)).unwrap()).unwrap();
    assert_eq!(cut.len(), 30);
}

#[test]
fn what_a_kind_has_not_it_cannot_claim() {
    for (line, what) in [
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 S udplen 9", "a packet of kind tcp has no `udplen`"),
        ("udp [2001:db8::1]:1 > [2001:db8::2]:2 ihl 6", "a packet of kind udp has no `ihl`"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 ihl 16", "ihl 16 is too large"),
        ("arp request 10.0.0.1 > 10.0.0.2 iplen 9", "only IP packets have lengths"),
        ("type 0x88cc len 60 frame 3", "a frame of 3 bytes cannot be"),
        ("ip 2001:db8::1 > 2001:db8::2 proto 0", "proto 0 of IPv6 is hop-by-hop options"),
        ("udp 1.1.1.1:1 > 2.2.2.2:2 len 65600", "65600 bytes are too many"),
        ("tcp 1.1.1.1:1 > 2.2.2.2:2 S seq 4294967301", "seq 4294967301 is too large"),
        ("icmp unreachable 1.1.1.1 > 2.2.2.2 mtu 4294967296", "mtu 4294967296 is too large"),
        ("arp request 2001:db8::1 > 2001:db8::2", "ARP asks for IPv4 addresses"),
        (
            "icmp exceeded 1.1.1.1 > 2.2.2.2 extension 0x20 quoting udp 1.1.1.1:1 > 2.2.2.2:2 len 1400",
            "are too many before an extension",
        ),
    ] {
        let wrong = build::frame(&parse::packet(&mut Words::of(line)).unwrap()).unwrap_err();
        assert!(wrong.what.contains(what), "{}", wrong.what);
    }
}

#[test]
fn pieces_are_cut_from_the_whole_datagram() {
    let seen = |line: &str| {
        let said = parse::packet(&mut Words::of(line)).unwrap();
        read::frame(&build::frame(&said).unwrap()).in_short().to_string()
    };
    let first = "udp 10.0.0.1:1 > 10.0.0.2:2 ipid 9 len 100";
    assert_eq!(seen(&format!("{first} piece 0..48")), "udp 10.0.0.1:1 > 10.0.0.2:2 ttl 64 piece 0..48 len 40");
    assert_eq!(seen(&format!("{first} piece 48..")), "ip 10.0.0.1 > 10.0.0.2 proto 17 ttl 64 piece 48..108 len 60");
    let first = "udp [2001:db8::1]:1 > [2001:db8::2]:2 ipid 9 len 100";
    let expected = "ip 2001:db8::1 > 2001:db8::2 proto 17 ttl 64 piece 48..108 len 60";
    assert_eq!(seen(&format!("{first} piece 48..")), expected);
}

#[track_caller]
fn refused(steps: &str, line: usize, what: &str, help: &str) {
    let error = Scenario::parse(&format!("# Title\n---\n{steps}")).unwrap_err();
    assert_eq!(error.line, line + 2, "{error}");
    assert!(error.what.contains(what) && error.help.contains(help), "{error}");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_line_and_what_to_write() {
    refused("\ninn 0 udp 1.1.1.1:1 > 2.2.2.2:2", 2, "`inn` begins no line", "in, out, drop");
    refused("in 0 udb 1.1.1.1:1 > 2.2.2.2:2", 1, "`udb` is no kind", "udp, tcp");
    refused("in 0 udp 1.1.1.1 > 2.2.2.2:2", 1, "`1.1.1.1` has no port", "ADDRESS:PORT");
    refused("in 0 udp 1.1.1:1 > 2.2.2.2:2", 1, "`1.1.1` is no address", "10.0.0.1");
    refused("in 0 udp 1.1.1.1:1 2.2.2.2:2", 1, "`2.2.2.2:2` stands where >", "spaces around");
    refused("in 0 udp 1.1.1.1:1 > 2.2.2.2:2 tll 3", 1, "`tll` is not known", "ttl");
    refused("in 0 icmp ecko 1.1.1.1 > 2.2.2.2", 1, "`icmp ecko` is not known", "echo");
    refused("in 0 udp 1.1.1.1:1 > 2.2.2.2:2\n", 1, "nothing says what becomes of it", "drop REASON");
    refused("out 0 udp 1.1.1.1:1 > 2.2.2.2:2", 1, "nothing came in", "in PORT");
    refused("in 0 udp 1.1.1.1:1 > 2.2.2.2:2 checksum bad", 1, "a checksum is not `bad`", "wrong, right");
    refused("at 2s\nat 1s", 2, "time goes back", "order");
    refused("at 2", 1, "`2` is no time", "0.5s");
    refused("at 99999999999999h", 1, "`99999999999999h` is too long", "a hundred years");
    refused("in 0 tcp 1.1.1.1:1 > 2.2.2.2:2 flags RST", 1, "`RST` are no TCP flags", "SA for SYN and ACK");
    refused("in 0 tcp 1.1.1.1:1 > 2.2.2.2:2 flags $f", 1, "`$f` are no TCP flags", "SA for SYN and ACK");
    refused("in 0 udp 1.1.1.1:1 > 2.2.2.2:2 ttl 5 ttl 6", 1, "ttl is given twice", "leave one out");
    refused("in 0 udp 1.1.1.1:1 > 2.2.2.2:2 ttl *", 1, "ttl of a packet that comes in is not said", "in place of *");
    refused("", 0, "no packet comes in", "what becomes of it");
    refused("at 2s", 0, "no packet comes in", "what becomes of it");
    assert_eq!(Scenario::parse("---\n").unwrap_err().what, "nothing says what it shows");
    assert_eq!(Scenario::parse("# x\n").unwrap_err().what, "there is no line ---");
}

network_function! {
    /// Sends packets across and drops those to port 9.
    struct Across {}
}

impl NetworkFunction for Across {
    type Set = ();
    const NAME: &'static str = "across";

    fn orphan(&self, _: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let discard = packet.udp().is_some_and(|udp| udp.destination_port() == 9);
        Ok(if discard { Verdict::Drop(Reason("discard")) } else { Verdict::Onward })
    }
}

fn plan() -> Plan {
    let fields: Fields = [FieldId::IpSrc].into_iter().collect();
    let steering = Steering::new(fields, Symmetry::OneWay, &Key::microsoft(), Reta::new(128, 2).unwrap()).unwrap();
    Plan {
        batch: 64,
        steering: Arc::new(steering),
        own_fields: vec![StageUse::new("clock").reads(TIMESTAMP_NS, 8)],
        ..Plan::for_tests(2, Arc::new(|_| Ok(vec![Box::new(Instance::new("across", Across {}))])))
    }
}

/// Runs some steps; returns what goes wrong, or an empty text.
fn ran(steps: &str) -> String {
    assert!(Across {}.objects().is_empty());
    let scenario = Scenario::parse(&format!("# Title\n---\n{steps}")).unwrap();
    let mismatch = run(&scenario, &plan()).unwrap().err();
    mismatch.map_or(String::new(), |mismatch| format!("{}: {mismatch}", mismatch.line - 2))
}

const IN: &str = "in 0 udp 1.1.1.1:1 > 2.2.2.2:2 len 4\n";

#[test]
fn what_happens_as_it_is_said_is_right() {
    assert_eq!(ran(&format!("{IN}out 1 same")), "");
    assert_eq!(ran(&format!("{IN}out 1 udp 1.1.1.1:* > *")), "");
    assert_eq!(ran(&format!("{IN}out 1 udp $a:$p > *:$q\nexpect $p + 1 == $q\nexpect $a == 1.1.1.1")), "");
    assert_eq!(ran("in 1 udp 1.1.1.1:1 > 2.2.2.2:9\ndrop discard"), "");
    assert_eq!(ran("in 1 udp 1.1.1.1:1 > 2.2.2.2:9\ndrop"), "");
    assert_eq!(ran("in 1 udp 1.1.1.1:1 > 2.2.2.2:9\nanything"), "");
    assert_eq!(ran("in 1 udp 1.1.1.1:1 > 2.2.2.2:2 checksum wrong iplen 24\nout 0 same"), "");
}

#[test]
fn what_happens_otherwise_is_told_beside_what_was_said() {
    let expected = "2: workers: 2\n  expected  out 1 udp 1.1.1.1:1 > 2.2.2.2:3 ttl 63\n  \
                    got       out 1 udp 1.1.1.1:1 > 2.2.2.2:2 ttl 64\n            \
                    destination port 2, not 3\n            ttl 64, not 63";
    assert_eq!(ran(&format!("{IN}out 1 udp 1.1.1.1:1 > 2.2.2.2:3 ttl 63")), expected);
    let expected = "2: workers: 2\n  expected  drop discard\n  got       out 1 udp 1.1.1.1:1 > 2.2.2.2:2 ttl 64 len 4";
    assert_eq!(ran(&format!("{IN}drop discard")), expected);
    assert!(ran(&format!("{IN}out 0 same")).contains("by port 1, not 0"));
    assert!(ran("in 0 udp 1.1.1.1:1 > 2.2.2.2:9\nout 1 same").contains("got       drop discard"));
    assert!(
        ran(&format!("{IN}out 1 same\n{IN}out 1 udp $p:1 > *\nexpect $p == 2.2.2.2")).contains("1.1.1.1 and 2.2.2.2")
    );
    assert!(ran("in 0 udp 1.1.1.1:$p > 2.2.2.2:9\ndrop").contains("$p stands for nothing yet"));
    assert!(ran("in 7 udp 1.1.1.1:1 > 2.2.2.2:9\ndrop").contains("the plan has the ports 0 to 1"));
    for compared in ["$a < $p", "$p < $a", "$a <= 0", "$a != $p"] {
        let said = ran(&format!("{IN}out 1 udp $a:$p > *\nexpect {compared}"));
        assert!(said.contains("cannot be compared"), "{compared}: {said}");
    }
}

#[test]
fn a_header_that_claims_more_than_an_odd_frame_holds_is_sent() {
    let said = parse::packet(&mut Words::of("udp 10.0.0.1:1 > 10.0.0.2:2 ihl 15 len 1")).unwrap();
    assert_eq!(build::frame(&said).unwrap()[14], 0x4f);
}
