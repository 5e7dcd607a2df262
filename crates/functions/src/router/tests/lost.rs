//! Tests of ports without a link: who is absent, and when it is asked for again.

use braid_testkit::{Bench, Frame};

use super::{HOST, OURS, bench};

const TWO_LINKS: &str =
    "[[interface]]\nport = 0\nmac = '02:00:00:00:0f:00'\naddresses = ['10.0.0.1/24', '2001:db8:1::1/64']
    [[interface]]\nport = 1\nmac = '02:00:00:00:0f:01'\naddresses = ['192.0.2.1/24', '2001:db8:2::1/64']\n";

fn to_neighbour(n: u8) -> Vec<u8> {
    Frame::udp("10.0.0.7:1", &format!("192.0.2.{n}:2")).mac(HOST, OURS[0]).bytes()
}

/// What becomes of a packet: why it is dropped, and the Ethernet types and ports of what is sent.
fn outcome(bench: &mut Bench, ms: u64, frame: &[u8]) -> (Option<&'static str>, Vec<(u16, u16)>) {
    let outcome = bench.send(0, ms, frame);
    let kind = |frame: &[u8]| u16::from_be_bytes([frame[12], frame[13]]);
    (outcome.dropped, outcome.sent.iter().map(|(port, frame)| (*port, kind(frame))).collect())
}

const ARP: u16 = 0x0806;
const IP: u16 = 0x0800;

/// As after a flap of half a second: nobody is refused once the link is back.
#[test]
fn who_was_absent_for_its_link_is_asked_for_at_once_when_that_is_back() {
    for (down_ms, up_ms) in [(9_010, 9_710), (9_010, 30_000), (12_000, 14_700)] {
        let mut bench = bench(10, TWO_LINKS);
        bench.send(1, 9_000, &Frame::arp("192.0.2.9", "192.0.2.1").mac(HOST, [0xff; 6]).bytes());
        assert_eq!(outcome(&mut bench, 9_001, &to_neighbour(9)), (None, vec![(1, IP)]));
        bench.send(0, down_ms, &Frame::arp("10.0.0.7", "10.0.0.1").mac(HOST, [0xff; 6]).bytes());
        bench.link_down(1);
        let (dropped, sent) = outcome(&mut bench, down_ms + 1, &to_neighbour(9));
        assert_eq!((dropped, sent), (Some("neighbour_absent"), vec![(0, IP)]), "its sender is told");
        for ms in (down_ms + 1_000..up_ms).step_by(1_000) {
            outcome(&mut bench, ms, &to_neighbour(9));
        }
        bench.send(0, up_ms, &Frame::arp("10.0.0.7", "10.0.0.1").mac(HOST, [0xff; 6]).bytes());
        bench.link_up(1);
        let asked = outcome(&mut bench, up_ms + 1, &to_neighbour(9));
        assert_eq!(asked, (Some("waits_for_neighbour"), vec![(1, ARP)]), "{up_ms}");
        let mut answer = Frame::arp("192.0.2.9", "192.0.2.1").mac(HOST, OURS[1]).bytes();
        answer[21] = 2;
        assert_eq!(bench.send(1, up_ms + 2, &answer).sent.last().map(|(port, frame)| (*port, frame[13])), Some((1, 0)));
        assert_eq!(outcome(&mut bench, up_ms + 3, &to_neighbour(9)), (None, vec![(1, IP)]));
    }
}

/// RFC 5227 section 2.3, RFC 4861 section 7.2.6, RFC 3810 section 6.1.
#[test]
fn addresses_that_are_added_to_a_live_router_are_announced_where_its_links_are_up() {
    let added = TWO_LINKS.replace("'192.0.2.1/24'", "'192.0.2.1/24', '192.0.2.77/24'");
    let changed = |bench: Bench, config: &str| {
        let build = crate::find("router").unwrap().build;
        let mut bench = bench.succeeded(|builder| build("r", config.parse().unwrap(), builder, 2).unwrap());
        let stray = Frame::ethernet(0x88b5).mac(HOST, HOST).bytes();
        let said = bench.send(0, 1_000, &stray).sent;
        let again = bench.send(0, 2_000, &stray).sent;
        assert!(again.is_empty(), "once: {again:?}");
        (said, bench)
    };
    let (said, bench) = changed(bench(10, TWO_LINKS), &added);
    assert!(said.is_empty(), "no link has come up: {said:?}");
    let mut bench = changed(bench, TWO_LINKS).1;
    for port in [0, 1] {
        let _ = bench.link_up(port);
    }
    let (said, mut bench) = changed(bench, &added);
    assert!(said.iter().all(|(port, _)| *port == 1), "nothing is new at the other: {said:?}");
    let arp: Vec<_> = said.iter().filter(|(_, frame)| frame[12..14] == [8, 6]).map(|(_, frame)| frame[31]).collect();
    assert_eq!((arp, said.len()), (vec![1, 77], 4), "with the neighbour advertisement and the groups");
    bench.link_down(1);
    let (said, mut bench) = changed(bench, TWO_LINKS);
    assert!(said.is_empty(), "nobody would hear it: {said:?}");
    assert_eq!(bench.link_up(1).len(), 3);
}

#[test]
fn a_static_neighbour_is_absent_while_its_port_has_no_link() {
    let gateway = "[[neighbour]]\naddress = '192.0.2.9'\nmac = '02:00:00:00:00:09'\nport = 1\n";
    let mut bench = bench(10, &format!("{TWO_LINKS}{gateway}"));
    assert_eq!(outcome(&mut bench, 1, &to_neighbour(9)), (None, vec![(1, IP)]));
    bench.link_down(0);
    assert_eq!(outcome(&mut bench, 2, &to_neighbour(9)), (None, vec![(1, IP)]), "it is at another port");
    bench.link_up(0);
    bench.link_down(1);
    bench.send(0, 3, &Frame::arp("10.0.0.7", "10.0.0.1").mac(HOST, [0xff; 6]).bytes());
    let absent = (Some("neighbour_absent"), vec![(0, IP)]);
    assert_eq!(outcome(&mut bench, 4, &to_neighbour(9)), absent);
    assert_eq!(outcome(&mut bench, 9_000, &to_neighbour(9)), absent, "and is not asked");
    bench.link_up(1);
    assert_eq!(outcome(&mut bench, 9_001, &to_neighbour(9)), (None, vec![(1, IP)]));
}

#[test]
fn a_static_next_hop_without_a_link_is_passed_over() {
    let hops = "[[route]]\nto = '0.0.0.0/0'\nhops = [{ via = '10.0.0.9' }, { via = '192.0.2.9' }]
        [[neighbour]]\naddress = '10.0.0.9'\nmac = '02:00:00:00:00:08'\nport = 0
        [[neighbour]]\naddress = '192.0.2.9'\nmac = '02:00:00:00:00:09'\nport = 1\n";
    let mut bench = bench(100, &format!("{TWO_LINKS}{hops}"));
    let by_second = |bench: &mut Bench, ms: u64| {
        let of = |host: u8| Frame::udp(&format!("10.0.0.{host}:1"), "198.51.100.9:2").mac(HOST, OURS[0]).bytes();
        let sent = (20..60).map(|host| outcome(bench, ms, &of(host)));
        sent.filter(|(dropped, sent)| dropped.is_none() && sent.contains(&(1, IP))).count()
    };
    assert!((5..35).contains(&by_second(&mut bench, 1)), "both are used");
    bench.link_down(1);
    assert_eq!(by_second(&mut bench, 2), 0);
    bench.link_up(1);
    assert!((5..35).contains(&by_second(&mut bench, 3)), "both are used");
    bench.link_down(0);
    assert_eq!(by_second(&mut bench, 4), 40);
}

/// Whether or not its next hop is known, and until the link is back.
#[test]
fn a_route_stands_by_for_one_whose_link_is_lost() {
    let routes = "[[route]]\nto = '198.51.100.0/24'\nvia = '192.0.2.9'
        [[route]]\nto = '198.51.100.0/24'\nvia = '10.0.0.9'\nmetric = 1
        [[neighbour]]\naddress = '10.0.0.9'\nmac = '02:00:00:00:00:99'\nport = 0\n";
    let mut bench = bench(10, &format!("redirects = false\n{TWO_LINKS}{routes}"));
    let beyond = Frame::udp("10.0.0.7:1", "198.51.100.7:2").mac(HOST, OURS[0]).bytes();
    bench.link_down(1);
    assert_eq!(outcome(&mut bench, 1, &beyond), (None, vec![(0, IP)]), "nobody was asked before");
    bench.link_up(1);
    assert_eq!(outcome(&mut bench, 2, &beyond), (Some("waits_for_neighbour"), vec![(1, ARP)]));
    let mut answer = Frame::arp("192.0.2.9", "192.0.2.1").mac(HOST, OURS[1]).bytes();
    answer[21] = 2;
    bench.send(1, 3, &answer);
    assert_eq!(outcome(&mut bench, 4, &beyond), (None, vec![(1, IP)]));
    bench.link_down(1);
    assert_eq!(outcome(&mut bench, 5, &beyond), (None, vec![(0, IP)]));
}

/// Reports count packets that wait as consumed; one that is not sent after all is a copy that is dropped, so it is lost once.
#[test]
fn who_waits_in_vain_is_lost_once() {
    let mut bench = bench(10, TWO_LINKS);
    for ms in 0..18 {
        bench.send(0, ms, &to_neighbour(9));
    }
    let v6 = Frame::udp("[2001:db8:1::7]:1", "[2001:db8:2::9]:2").mac(HOST, OURS[0]).bytes();
    bench.send(0, 18, &v6);
    for ms in (1_000..9_000).step_by(100) {
        bench.send(0, ms, &Frame::arp("10.0.0.7", "10.0.0.1").mac(HOST, [0xff; 6]).bytes());
    }
    let counters = bench.counters();
    let of = |reason: &str| -> u64 {
        counters.drops.iter().filter(|(_, dropped, _)| *dropped == reason).map(|(.., count)| count).sum()
    };
    assert_eq!((of("waits_for_neighbour"), of("replaced_while_waiting"), of("waited_in_vain")), (19, 2, 17));
    assert_eq!(counters.missing(), 0);
}

/// The sources of one network of IPv6 share what they may have this router ask for, those of IPv4 have so much each.
#[test]
fn one_source_has_so_many_asked_for() {
    let mut bench = bench(10, &format!("asked_per_source = 3\n{TWO_LINKS}"));
    let mut to = |ms: u64, from: &str, to: String| {
        let frame = Frame::udp(from, &to).mac(HOST, OURS[0]).bytes();
        outcome(&mut bench, ms, &frame).0.unwrap_or("sent")
    };
    let many: Vec<_> = (10..15).map(|n| to(0, "10.0.0.7:1", format!("192.0.2.{n}:2"))).collect();
    assert_eq!(many[..3], ["waits_for_neighbour"; 3]);
    assert_eq!(many[3..], ["asked_for_too_many"; 2]);
    assert_eq!(to(1, "10.0.0.8:1", "192.0.2.14:2".into()), "waits_for_neighbour", "another source");
    assert_eq!(to(2, "10.0.0.7:1", "192.0.2.14:2".into()), "waits_for_neighbour", "who is asked for already");
    assert_eq!(to(1_001, "10.0.0.7:1", "192.0.2.13:2".into()), "waits_for_neighbour", "a second later");
    let v6: Vec<_> =
        (10..15).map(|n| to(1_002, &format!("[2001:db8:1::{n}]:1"), format!("[2001:db8:2::{n}]:2"))).collect();
    assert_eq!(v6[..3], ["waits_for_neighbour"; 3]);
    assert_eq!(v6[3..], ["asked_for_too_many"; 2]);
}
