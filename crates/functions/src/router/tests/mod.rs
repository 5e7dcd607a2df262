//! Tests of neighbour discovery, fragments, damaged packets and other stations; what the text scenarios cover is not repeated.

mod lost;
mod pieces;
mod refusals;
mod spread;
mod vlans;

use braid_testkit::{Bench, Frame, assert_checksums};
use proptest::prelude::*;

use braid_nf::packet::IpAddress;
use braid_nf::state::Surroundings;

use crate::find;

const CONFIG: &str =
    "[[interface]]\nport = 0\nmac = '02:00:00:00:0f:00'\naddresses = ['10.0.0.1/24', '2001:db8:1::1/64']
    [[interface]]\nport = 1\nmac = '02:00:00:00:0f:01'\naddresses = ['192.0.2.1/24', '2001:db8:2::1/64']\nmtu = 1300
    [[route]]\nto = '0.0.0.0/0'\nvia = '192.0.2.254'
    [[neighbour]]\naddress = '192.0.2.254'\nmac = '02:00:00:00:00:fe'\nport = 1\n";
const OURS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0x0f, 0], [2, 0, 0, 0, 0x0f, 1]];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn bench(sets: usize, config: &str) -> Bench {
    let build = find("router").unwrap().build;
    Bench::with_sets(2, sets, |builder| build("r", config.parse().unwrap(), builder, 2).unwrap())
}

fn to_far() -> Frame {
    Frame::udp("10.0.0.7:1", "198.51.100.9:2").mac(HOST, OURS[0])
}

#[test]
fn only_what_is_for_its_ethernet_address_is_taken() {
    let mut bench = bench(10, CONFIG);
    assert_eq!(bench.send(0, 0, &to_far().bytes()).ports(), [1]);
    assert_eq!(bench.send(0, 0, &to_far().mac(HOST, HOST).bytes()).dropped, Some("other_station"));
    assert_eq!(bench.send(0, 0, &to_far().mac(HOST, [0xff; 6]).bytes()).dropped, Some("other_station"));
    assert_eq!(bench.send(0, 0, &to_far().bytes()).ports(), [1], "a set that was known");
    assert_eq!(bench.send(0, 0, &to_far().mac(OURS[0], HOST).bytes()).ports(), [1], "turned by a function before it");
}

#[test]
fn a_link_takes_what_its_interface_takes_unless_the_plan_says_more_or_less() {
    let build = find("router").unwrap().build;
    let is_whole = |written: &str, device: Option<u16>, len: usize| {
        let config = CONFIG.replacen("\nmtu = 1300", written, 1);
        let mut bench = Bench::with_sets(2, 10, |builder| {
            builder.place(Surroundings { mtus: vec![Some(9000), device], ..Surroundings::default() });
            build("r", config.parse().unwrap(), builder, 2).unwrap()
        });
        // Headers of IPv4 and UDP.
        bench.send(0, 0, &to_far().payload(&vec![0; len - 28]).bytes()).ports() == [1]
    };
    let longest = |written: &str, device: Option<u16>, expected: usize| {
        assert!(is_whole(written, device, expected), "{written} {device:?}");
        assert!(!is_whole(written, device, expected + 1), "{written} {device:?}");
    };
    longest("", None, 1500);
    longest("", Some(1400), 1400);
    longest("", Some(1600), 1600);
    longest("\nmtu = 1300", Some(1400), 1300);
    longest("\nmtu = 1450", Some(1400), 1450);
    // Over IPv6 every link takes as much (RFC 8200 section 5).
    longest("", Some(600), 1280);
}

#[test]
fn no_link_takes_all_neighbours_from_the_others() {
    let mut bench = bench(100, &format!("neighbours_max = 16\n{CONFIG}"));
    // Hosts that are known and used fill the table.
    for host in 2..40 {
        let address = format!("10.0.0.{host}");
        bench.send(0, host, &Frame::arp(&address, "10.0.0.1").mac([2, 0, 0, 0, 1, host as u8], [0xff; 6]).bytes());
        let answer = Frame::udp("198.51.100.9:2", &format!("{address}:1"));
        bench.send(1, host, &answer.mac([2, 0, 0, 0, 0, 0xfe], OURS[1]).bytes());
    }
    let at = |bench: &mut Bench, port: &str| bench.entries().iter().filter(|entry| entry.contains(port)).count();
    let before = at(&mut bench, "port 0");
    assert!(before >= 15, "{before}");
    let asks = |bench: &mut Bench, to: &str| {
        bench
            .send(0, 100, &Frame::udp("10.0.0.2:1", &format!("{to}:2")).mac([2, 0, 0, 0, 1, 2], OURS[0]).bytes())
            .dropped
    };
    assert_eq!(asks(&mut bench, "192.0.2.9"), Some("waits_for_neighbour"), "the other link has room");
    assert_eq!(at(&mut bench, "port 0"), before - 1);
    assert_ne!(asks(&mut bench, "10.0.0.200"), Some("waits_for_neighbour"), "its own has none");
}

#[test]
fn neighbours_and_next_hops_are_listed() {
    let mut bench = bench(10, CONFIG);
    bench.send(0, 0, &to_far().bytes());
    assert_eq!(bench.described(), ["10.0.0.7 > 198.51.100.9: to 02:00:00:00:00:fe by port 1"]);
    bench.send(0, 0, &Frame::arp("10.0.0.7", "10.0.0.1").mac(HOST, [0xff; 6]).bytes());
    bench.send(0, 0, &Frame::udp("10.0.0.7:1", "192.0.2.9:2").mac(HOST, OURS[0]).bytes());
    let mut listed = bench.entries();
    listed.sort();
    let expected = [
        "neighbour 10.0.0.7 02:00:00:00:00:01 → port 0",
        "neighbour 192.0.2.254 02:00:00:00:00:fe → port 1, static",
        "neighbour 192.0.2.9 → port 1, asked 1 of 3 times",
    ];
    assert_eq!(listed, expected);
    bench.send(0, 61_000, &to_far().bytes());
    assert!(bench.entries().iter().any(|entry| entry.ends_with("port 0, to be asked again")), "{:?}", bench.entries());
}

#[test]
fn addresses_are_announced_where_a_link_comes_up() {
    let mut bench = bench(10, CONFIG);
    let said = bench.link_up(1);
    assert!(said.iter().all(|(port, frame)| *port == 1 && frame[6..12] == OURS[1]), "{said:?}");
    let [(_, arp), (_, advertisement), (_, report)] = &said[..] else { panic!("{said:?}") };
    // RFC 5227 section 2.3: a request with its own address as sender and as target.
    let own = [192, 0, 2, 1];
    assert_eq!((&arp[..6], &arp[28..32], &arp[38..42]), (&[0xff; 6][..], &own[..], &own[..]));
    assert_eq!(arp[20..22], [0, 1], "a request");
    // RFC 4861 section 7.2.6: to all nodes, unsolicited, overriding.
    assert_eq!((&advertisement[..6], advertisement[54]), (&[0x33, 0x33, 0, 0, 0, 1][..], 136));
    assert_eq!(advertisement[58], 0xa0, "from a router, to override");
    assert_checksums(advertisement);
    // RFC 3810 section 5.2: to ff02::16, from no address as there is none of the link, with hop limit 1; three groups, all routers' of link and site and the
    // solicited-node one.
    assert_eq!((&report[..6], report[21], &report[22..38]), (&[0x33, 0x33, 0, 0, 0, 0x16][..], 1, &[0; 16][..]));
    assert_eq!((report[54], report[62], report[69]), (58, 143, 3), "a router alert before ICMPv6");
    let groups = [74, 94, 114].map(|at| IpAddress::from_v6(*report[at..].first_chunk().unwrap()).to_string());
    assert_eq!((groups, report[70]), (["ff02::2", "ff02::1:ff00:1", "ff05::2"].map(str::to_owned), 4));
    assert_checksums(report);
    assert_eq!(bench.link_up(0).len(), 3);
}

#[test]
fn an_advertisement_says_what_is_configured_and_comes_no_more_often_than_it_may() {
    let config = CONFIG.replacen(
        "'2001:db8:1::1/64']",
        "'2001:db8:1::1/64', 'fe80::1/64']\nadvertise = { lifetime_s = 900 }",
        1,
    );
    let mut bench = bench(10, &config);
    let stray = Frame::ethernet(0x88b5).mac(HOST, HOST).bytes();
    let mut heard = |ms| -> Vec<Vec<u8>> {
        let sent = bench.send(1, ms, &stray).sent;
        sent.into_iter().map(|(_, frame)| frame).filter(|frame| frame.get(54) == Some(&134)).collect()
    };
    let first = heard(1_000);
    let [advertisement] = &first[..] else { panic!("{first:?}") };
    assert_checksums(advertisement);
    // RFC 4861 section 4.2: 64 hops, neither managed nor other configuration, 900 s.
    assert_eq!((advertisement[21], &advertisement[58..62]), (255, &[64, 0, 3, 132][..]));
    // The first three come 16 s apart.
    assert_eq!([heard(16_000), heard(17_200)].map(|heard| heard.len()), [0, 1]);
    assert_eq!([heard(33_000), heard(34_000), heard(200_000)].map(|heard| heard.len()), [0, 1, 0]);
    assert_eq!(heard(640_000).len(), 1, "within 600 s");
}

#[test]
fn damage_is_dropped_in_known_sets_too() {
    let mut bench = bench(10, CONFIG);
    let mut wrong = to_far().bytes();
    assert_eq!(bench.send(0, 0, &wrong).ports(), [1]);
    wrong[24] ^= 1;
    assert_eq!(bench.send(0, 0, &wrong).dropped, Some("bad_checksum"));
    for cut in 15..34 {
        assert_eq!(bench.send(0, 0, &to_far().bytes()[..cut]).dropped, Some("malformed"), "{cut} bytes");
    }
    let right = to_far().bytes();
    let whole = (right.len() - 14) as u16;
    for (total, outcome) in
        [(whole, None), (0, Some("malformed")), (19, Some("malformed")), (whole + 1, Some("malformed"))]
    {
        let mut frame = right.clone();
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[24..26].fill(0);
        let sum = braid_nf::packet::checksum::ipv4_header(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(bench.send(0, 0, &frame).dropped, outcome, "a total length of {total}");
    }
    assert_eq!(bench.send(0, 0, &Frame::ethernet(0x88b5).bytes()).dropped, Some("not_ip"));
}

#[test]
fn hops_are_counted_in_known_sets_too() {
    let mut bench = bench(10, CONFIG);
    for (ttl, sent) in [(64, vec![1]), (2, vec![1]), (1, vec![0]), (0, vec![0]), (64, vec![1])] {
        let outcome = bench.send(0, 0, &to_far().ttl(ttl).bytes());
        assert_eq!(outcome.ports(), sent, "ttl {ttl}");
        outcome.sent.iter().for_each(|(_, frame)| assert_checksums(frame));
    }
}

/// Builds a neighbour solicitation or advertisement as laid out in the RFC.
fn discovery(kind: u8, from: &str, to: &str, target: &str, option: Option<[u8; 6]>) -> Vec<u8> {
    flagged(0, kind, (from, to), target, option)
}

/// Like [`discovery`], with these flags of an advertisement.
fn flagged(flags: u8, kind: u8, (from, to): (&str, &str), target: &str, option: Option<[u8; 6]>) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    body.extend(target.parse::<std::net::Ipv6Addr>().unwrap().octets());
    body.extend(option.iter().flat_map(|mac| [&[if kind == 135 { 1 } else { 2 }, 1][..], &mac[..]].concat()));
    let ends = [from, to].map(|text| text.parse::<IpAddress>().unwrap());
    let sum = braid_nf::packet::checksum::transport(ends[0], ends[1], 58, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    Frame::ip(from, to, 58).mac(HOST, [0x33, 0x33, 0xff, 0, 0, 1]).ttl(255).payload(&body).bytes()
}

#[test]
fn solicitations_for_own_addresses_are_answered_and_teach() {
    let mut bench = bench(10, CONFIG);
    let ask = discovery(135, "2001:db8:1::7", "ff02::1:ff00:1", "2001:db8:1::1", Some(HOST));
    let outcome = bench.send(0, 0, &ask);
    let (port, answer) = outcome.only();
    assert_checksums(answer);
    assert_eq!((port, &answer[..6], &answer[6..12]), (0, &HOST[..], &OURS[0][..]));
    assert_eq!((answer[54], answer[58] >> 5, answer[21]), (136, 0b111, 255), "router, solicited, override; hop limit");
    assert_eq!((&answer[78..80], &answer[80..86]), (&[2, 1][..], &OURS[0][..]));
    // The asker is now known, so no query is needed.
    let back = Frame::udp("[2001:db8:2::9]:1", "[2001:db8:1::7]:2").mac(HOST, OURS[1]).bytes();
    let outcome = bench.send(1, 0, &back);
    assert_eq!(outcome.only().1[..6], HOST);
    // Queries for other addresses are not answered, and messages that a router has forwarded are not believed.
    let other = discovery(135, "2001:db8:1::7", "ff02::1:ff00:2", "2001:db8:1::2", Some(HOST));
    assert_eq!(bench.send(0, 0, &other).sent, []);
    let mut forwarded = ask.clone();
    forwarded[21] = 254;
    assert_eq!(bench.send(0, 0, &forwarded).sent, []);
}

#[test]
fn duplicate_address_detection_is_answered_to_all_nodes() {
    let outcome = bench(10, CONFIG).send(0, 0, &discovery(135, "::", "ff02::1:ff00:1", "2001:db8:1::1", None));
    let (_, answer) = outcome.only();
    assert_checksums(answer);
    assert_eq!(answer[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(answer[58] >> 5, 0b101, "not solicited");
}

#[test]
fn solicitations_that_nobody_may_send_are_not_answered() {
    let unanswered = |from: &str, to: &str, mac: Option<[u8; 6]>| {
        let frame = discovery(135, from, to, "2001:db8:1::1", mac);
        assert_eq!(bench(10, CONFIG).send(0, 0, &frame).sent, [], "{from} to {to}");
    };
    unanswered("::", "ff02::1:ff00:1", Some(HOST));
    unanswered("::", "ff02::1", None);
    let mut coded = discovery(135, "2001:db8:1::7", "ff02::1:ff00:1", "2001:db8:1::1", Some(HOST));
    coded[55] = 1;
    let sum = u16::from_be_bytes([coded[56], coded[57]]);
    coded[56..58].copy_from_slice(&(sum - 1).to_be_bytes());
    assert_checksums(&coded);
    assert_eq!(bench(10, CONFIG).send(0, 0, &coded).sent, []);
}

#[test]
fn another_station_with_an_address_of_the_router_is_told() {
    let mut router = bench(10, CONFIG);
    // Probes for whether the address is free, queries for it, and the router's own frame coming back are not claims.
    router.send(0, 0, &Frame::arp("0.0.0.0", "10.0.0.1").bytes());
    router.send(0, 0, &Frame::arp("10.0.0.7", "10.0.0.1").bytes());
    router.send(0, 0, &discovery(135, "::", "ff02::1:ff00:1", "2001:db8:1::1", None));
    router.send(0, 0, &discovery(136, "2001:db8:1::1", "ff02::1", "2001:db8:1::1", Some(OURS[0])));
    let claims = [
        (0, Frame::arp("10.0.0.1", "10.0.0.1").bytes()),
        (1, Frame::arp("192.0.2.1", "192.0.2.77").bytes()),
        (0, discovery(135, "2001:db8:1::1", "ff02::1:ff00:9", "2001:db8:1::9", Some(HOST))),
        (0, discovery(136, "2001:db8:1::1", "ff02::1", "2001:db8:1::1", Some(HOST))),
    ];
    for (port, claim) in claims {
        router.send(port, 1, &claim);
    }
    let findings = router.findings();
    let [told] = findings.list() else { panic!("{:?}", findings.list()) };
    assert_eq!((told.kind, told.subject.as_str(), told.number), ("address_conflict", "2001:db8:1::1", Some(4)));
    assert!(told.detail.contains("02:00:00:00:00:07 by port 0 said so last"), "{}", told.detail);
}

#[test]
fn a_packet_waits_for_the_advertisement_of_its_neighbour() {
    let mut bench = bench(10, CONFIG);
    let packet = Frame::udp("[2001:db8:1::7]:1", "[2001:db8:2::44]:2").mac(HOST, OURS[0]).bytes();
    let asked = bench.send(0, 0, &packet);
    assert_eq!(asked.dropped, Some("waits_for_neighbour"));
    let (port, question) = asked.only();
    assert_checksums(question);
    assert_eq!((port, &question[..6], question[54]), (1, &[0x33, 0x33, 0xff, 0, 0, 0x44][..], 135));
    let answer = discovery(136, "2001:db8:2::44", "2001:db8:2::1", "2001:db8:2::44", Some([2, 0, 0, 0, 0, 0x44]));
    let outcome = bench.send(1, 1, &answer);
    let (port, sent) = outcome.only();
    assert_checksums(sent);
    assert_eq!((port, &sent[..6], sent[21]), (1, &[2, 0, 0, 0, 0, 0x44][..], 63));
    assert_eq!(sent[22..], packet[22..]);
}

/// RFC 4861 sections 7.2.3 and 7.2.5.
#[test]
fn what_does_not_override_replaces_nothing_and_questions_for_others_teach_nothing() {
    let mut bench = bench(10, CONFIG);
    let packet = Frame::udp("[2001:db8:1::7]:1", "[2001:db8:2::44]:2").mac(HOST, OURS[0]).bytes();
    let [first, second, third] = [0x44, 0x55, 0x66].map(|last| [2, 0, 0, 0, 0, last]);
    let says = |flags: u8, mac| flagged(flags, 136, ("2001:db8:2::44", "ff02::1"), "2001:db8:2::44", Some(mac));
    let goes_to = |bench: &mut Bench, ms: u64| {
        let sent = bench.send(0, ms, &packet).sent;
        let asked = sent.iter().filter(|(_, frame)| frame[54] == 135).count();
        let to = sent.iter().find(|(_, frame)| frame[20] == 17).map(|(_, frame)| frame[..6].to_vec());
        (to.unwrap_or_default(), asked)
    };
    assert_eq!(goes_to(&mut bench, 100_000), (vec![], 1), "it is asked for");
    // In answer, but not overriding.
    let answer = flagged(0x40, 136, ("2001:db8:2::44", "2001:db8:2::1"), "2001:db8:2::44", Some(first));
    bench.send(1, 100_001, &answer);
    assert_eq!(goes_to(&mut bench, 100_002), (first.to_vec(), 0));
    bench.send(1, 100_003, &says(0, second));
    assert_eq!(goes_to(&mut bench, 100_004), (first.to_vec(), 1), "it is used, and asked again");
    bench.send(1, 100_005, &discovery(135, "2001:db8:2::44", "ff02::1:ff00:9", "2001:db8:2::9", Some(third)));
    assert_eq!(goes_to(&mut bench, 100_006), (first.to_vec(), 0));
    bench.send(1, 100_007, &says(0x20, second));
    assert_eq!(goes_to(&mut bench, 100_008), (second.to_vec(), 1), "nobody has asked it, so it is asked");
}

#[test]
fn a_neighbour_that_moves_is_followed_by_the_next_packet_of_every_set() {
    let mut bench = bench(10, CONFIG);
    for mac in [[2, 0, 0, 0, 0, 0x55], [2, 0, 0, 0, 0, 0x66], [2, 0, 0, 0, 0, 0x55]] {
        let mut request = Frame::arp("192.0.2.55", "192.0.2.1").bytes();
        request[22..28].copy_from_slice(&mac);
        assert_eq!(bench.send(1, 0, &request).ports(), [1], "it is answered");
        for host in ["10.0.0.7:1", "10.0.0.8:1"] {
            let outcome = bench.send(0, 0, &Frame::udp(host, "192.0.2.55:2").mac(HOST, OURS[0]).bytes());
            assert_eq!(outcome.only().1[..6], mac);
        }
    }
}

#[test]
fn an_answer_that_was_not_asked_for_fills_no_table() {
    let mut bench = bench(10, CONFIG);
    let before = bench.object("r.neighbours");
    bench.send(0, 0, &discovery(136, "2001:db8:1::9", "2001:db8:1::1", "2001:db8:1::9", Some(HOST)));
    bench.send(0, 0, &Frame::arp("10.0.0.9", "10.0.0.8").bytes());
    assert_eq!(bench.object("r.neighbours"), before);
}

#[test]
fn a_neighbour_is_used_while_it_is_asked_again_and_forgotten_when_it_is_silent() {
    let mut bench = bench(10, &format!("neighbour_lifetime_s = 10\n{CONFIG}"));
    bench.send(0, 0, &Frame::arp("10.0.0.9", "10.0.0.1").mac(HOST, [0xff; 6]).bytes());
    let back = Frame::udp("198.51.100.9:1", "10.0.0.9:2").mac(HOST, OURS[1]).bytes();
    let mut kinds = Vec::new();
    for second in [1, 9, 11, 12, 13, 14, 15, 17] {
        let outcome = bench.send(1, second * 1000 + second, &back);
        let arps = outcome.sent.iter().filter(|(_, frame)| frame[12..14] == [8, 6]).count();
        kinds.push((arps, outcome.sent.len() - arps, outcome.dropped));
    }
    let absent = Some("neighbour_absent");
    let waits = Some("waits_for_neighbour");
    assert_eq!(
        kinds[..5],
        [(0, 1, None), (0, 1, None), (1, 1, None), (1, 1, None), (1, 1, None)],
        "used, and asked for"
    );
    assert_eq!(kinds[5..], [(0, 1, absent), (0, 1, absent), (1, 0, waits)], "an ICMP error, then asked for again");
}

/// RFC 6583: a thousand addresses a second, none of which answers.
#[test]
fn a_scan_of_a_network_is_bounded_and_keeps_no_host_out() {
    let config = CONFIG.replace("192.0.2.1/24", "192.0.2.1/16");
    let mut bench = bench(10, &format!("neighbours_max = 17\nwaiting_max = 1\n{config}"));
    let changes = bench.object("r.changes");
    let mut asked = 0;
    for n in 0..5000u64 {
        let to = format!("192.0.{}.{}:2", 4 + n / 250, 1 + n % 250);
        let outcome = bench.send(0, n, &Frame::udp("10.0.0.7:1", &to).mac(HOST, OURS[0]).bytes());
        asked += outcome.sent.iter().filter(|(_, frame)| frame[12..14] == [8, 6]).count();
    }
    // Sixteen a second find room, and one for which a packet waits may be asked for again each second.
    assert!((5 * 16..=5 * 17).contains(&asked), "{asked}");
    assert_eq!(bench.object("r.changes"), changes, "no flow needs to look its way up again");
    for n in 0..16u8 {
        let host = format!("192.0.2.{}", 10 + n);
        let request = Frame::arp(&host, "192.0.2.1").mac(HOST, [0xff; 6]).bytes();
        assert_eq!(bench.send(1, 5000, &request).ports(), [1], "it is answered");
        let to_it = Frame::udp("10.0.0.7:1", &format!("{host}:2")).mac(HOST, OURS[0]).bytes();
        assert_eq!(bench.send(0, 5000, &to_it).only().1[..6], request[22..28], "{host} has asked for the router");
    }
    assert_eq!(bench.send(0, 5000, &to_far().bytes()).ports(), [1], "who is written down stays");
    let to_none = Frame::udp("10.0.0.7:1", "192.0.99.1:2").mac(HOST, OURS[0]).bytes();
    bench.send(0, 8999, &to_far().bytes());
    assert_eq!(bench.send(0, 9000, &to_none).dropped, Some("neighbours_full"), "who has answered does so too");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the length, and even if the packet is itself a fragment: the fragments add up to the packet, and each fits.
    #[test]
    fn pieces_make_up_the_packet_again(len in 100usize..4000, before in prop::option::of(1u16..100), more: bool) {
        let frame = to_far().payload(&(0..len).map(|n| n as u8).collect::<Vec<_>>());
        let (start, more) = before.map_or((0, false), |units| (usize::from(units) * 8, more));
        let frame = before.map_or(frame.clone(), |units| frame.fragment(9, units, more));
        let mut bytes = frame.bytes();
        bytes[20] &= !0x40;
        bytes[24..26].fill(0);
        let sum = braid_nf::packet::checksum::ipv4_header(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        let content = bytes[34..].to_vec();
        let sent = bench(10, CONFIG).send(0, 0, &bytes).sent;
        let mut whole = vec![None; content.len()];
        let mut lasts = 0;
        for (_, piece) in &sent {
            assert_checksums(piece);
            let word = u16::from_be_bytes([piece[20], piece[21]]);
            let total = usize::from(u16::from_be_bytes([piece[16], piece[17]]));
            prop_assert!(total <= 1300 && total == piece.len() - 14);
            lasts += usize::from(word & 0x2000 == 0);
            let at = usize::from(word & 0x1fff) * 8 - start;
            for (n, byte) in piece[34..].iter().enumerate() {
                prop_assert_eq!(whole[at + n].replace(*byte), None, "no byte comes twice");
            }
        }
        prop_assert_eq!(whole, content.into_iter().map(Some).collect::<Vec<_>>());
        prop_assert_eq!(lasts, usize::from(!more));
    }
}
