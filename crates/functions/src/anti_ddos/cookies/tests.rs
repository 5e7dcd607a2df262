//! A client, a server and the proxy between them: who is let in, what is remembered, and that sequence numbers match on
//! both sides.

use braid_nf::packet::headers::{Header, TcpOption};
use braid_testkit::{Bench, Frame, Outcome, assert_checksums};

use super::*;
use crate::find;

const CLIENT: &str = "198.18.0.7:4000";
const SERVER: &str = "192.0.2.1:80";
/// Initial sequence numbers of both ends, and their options: segment sizes 1400 and 8000, window scales 3 and 9, time
/// stamps 7000 and 500.
const FIRST: u32 = 1000;
const FIRST_OF_SERVER: u32 = 77_000;
const CLIENT_SAYS: [u8; 20] = [2, 4, 5, 120, 4, 2, 8, 10, 0, 0, 27, 88, 0, 0, 0, 0, 1, 3, 3, 3];
const SERVER_SAYS: [u8; 20] = [2, 4, 31, 64, 4, 2, 8, 10, 0, 0, 1, 244, 0, 0, 27, 89, 1, 3, 3, 9];

struct Talk {
    bench: Bench,
    /// The client's initial sequence number.
    first: u32,
    ends: [String; 2],
}

impl Talk {
    fn new(config: &str) -> Talk {
        let build = find("anti_ddos").unwrap().build;
        let config = format!("action = 'cookies'\n{config}");
        let bench = Bench::with_sets(2, 64, |builder| build("guard", config.parse().unwrap(), builder, 2).unwrap());
        Talk { bench, first: FIRST, ends: [CLIENT.to_owned(), SERVER.to_owned()] }
    }

    fn frame(&self, from: usize, flags: &str, numbers: (u32, u32), options: &[u8]) -> Frame {
        let frame = Frame::tcp(&self.ends[from], &self.ends[1 - from]).flags(flags).numbers(numbers.0, numbers.1);
        frame.options(options)
    }

    /// Sends a segment of one end at a given millisecond; every checksum of the output is checked.
    #[track_caller]
    fn send(&mut self, from: usize, ms: u64, frame: Frame) -> Outcome {
        let outcome = self.bench.send(from as u16, ms, &frame.bytes());
        outcome.sent.iter().for_each(|(_, bytes)| assert_checksums(bytes));
        outcome
    }

    /// Sends the client's SYN, and returns the cookie and the time stamp of the answer.
    #[track_caller]
    fn syn(&mut self, ms: u64, options: &[u8]) -> (u32, Option<u32>) {
        let syn = self.frame(0, "S", (self.first, 0), options);
        let outcome = self.send(0, ms, syn);
        assert_eq!(outcome.dropped, Some("cookie_sent"));
        let [(0, answer)] = &outcome.sent[..] else { panic!("{:?}", outcome.ports()) };
        let tcp = tcp(answer);
        assert_eq!((tcp.flags(), tcp.acknowledgement(), tcp.window()), (SYN | ACK, self.first + 1, 0));
        (tcp.sequence(), Offer::of(&tcp).stamps.map(|(value, _)| value))
    }

    /// Runs the whole handshake, and returns the cookie and the time stamp that the client was told.
    #[track_caller]
    fn open(&mut self) -> (u32, u32) {
        let (cookie, stamp) = self.syn(0, &CLIENT_SAYS);
        let stamp = stamp.expect("the client offered stamps");
        let ack = self.frame(0, "A", (self.first + 1, cookie + 1), &stamps(7001, stamp)).window(512);
        let outcome = self.send(0, 1, ack);
        let asks = tcp(outcome.only().1);
        assert_eq!((outcome.only().0, asks.flags(), asks.sequence()), (1, SYN, self.first));
        let offer = Offer { size: 1300, shift: Some(3), sack: true, stamps: Some((7001, 0)) };
        assert_eq!(Offer::of(&asks), offer, "the largest size known that is not above the client's");
        let answer = self.frame(1, "SA", (FIRST_OF_SERVER, self.first + 1), &SERVER_SAYS).window(0x8000);
        let outcome = self.send(1, 2, answer);
        let [(1, confirms), (0, opens)] = &sorted(&outcome)[..] else { panic!("{:?}", outcome.ports()) };
        let (confirms, opens) = (tcp(confirms), tcp(opens));
        assert_eq!((confirms.flags(), confirms.sequence(), confirms.acknowledgement()), (ACK, self.first + 1, 77_001));
        assert_eq!((confirms.window(), Offer::of(&confirms).stamps), (512, Some((7001, 500))));
        assert_eq!((opens.flags(), opens.sequence(), opens.acknowledgement()), (ACK, cookie + 1, self.first + 1));
        assert_eq!((opens.window(), Offer::of(&opens).stamps), (0x8000 >> 7, Some((stamp, 7001))));
        (cookie, stamp)
    }
}

fn sorted(outcome: &Outcome) -> Vec<(u16, Vec<u8>)> {
    let mut sent = outcome.sent.clone();
    sent.sort_by_key(|(port, _)| 1 - port);
    sent
}

fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// The TCP header of an IPv4 frame without IP options.
fn tcp(frame: &[u8]) -> View<'_, Tcp> {
    Tcp::parse(&frame[34..]).expect("a TCP header")
}

#[test]
fn a_connection_opens_and_both_ends_find_their_own_numbers() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let (cookie, stamp) = talk.open();
    let asks = talk.frame(0, "PA", (1001, cookie + 1), &stamps(7002, stamp)).payload(b"question").window(600);
    let outcome = talk.send(0, 3, asks);
    let header = tcp(outcome.only().1);
    assert_eq!((header.sequence(), header.acknowledgement(), header.window()), (1001, 77_001, 600));
    assert_eq!(Offer::of(&header).stamps, Some((7002, 500)));
    let answer = talk.frame(1, "PA", (77_001, 1009), &stamps(510, 7002)).payload(b"answer").window(100);
    let outcome = talk.send(1, 4, answer);
    let header = tcp(outcome.only().1);
    assert_eq!((header.sequence(), header.acknowledgement()), (cookie + 1, 1009));
    assert_eq!((header.window(), Offer::of(&header).stamps), (100 << 9 >> 7, Some((stamp + 10, 7002))));
    let blocks = [&stamps(7003, stamp)[..], &[1, 1, 5, 10], &(cookie + 9).to_be_bytes(), &(cookie + 20).to_be_bytes()];
    let misses = talk.frame(0, "A", (1009, cookie + 7), &blocks.concat());
    let outcome = talk.send(0, 5, misses);
    let header = tcp(outcome.only().1);
    let edges = [77_009u32, 77_020].map(u32::to_be_bytes).concat();
    assert!(header.options().any(|option| option == TcpOption::Sack(&edges)), "{:?}", header.variable());
    let sums = talk.bench.findings().sums().clone();
    assert_eq!((sums["SYN cookies sent"], sums["SYN cookies accepted"]), (1, 1));
}

#[test]
fn nothing_is_remembered_of_who_only_asks() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    for host in 0..200 {
        talk.ends[0] = format!("198.18.1.{host}:99");
        talk.syn(0, &[]);
    }
    talk.ends[0] = CLIENT.to_owned();
    talk.open();
}

/// Checks that a client that returns a wrong cookie is refused.
#[track_caller]
fn check_refused(ms: u64, wrong: impl FnOnce(u32) -> (u32, u32)) {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let (cookie, _) = talk.syn(0, &[]);
    let ack = talk.frame(0, "A", wrong(cookie), &[]);
    assert_eq!(talk.send(0, ms, ack).dropped, Some("cookie_invalid"));
}

#[test]
fn cookies_that_are_guessed_old_or_of_another_syn_are_refused() {
    check_refused(1, |cookie| (FIRST + 1, cookie + 2));
    check_refused(1, |cookie| (FIRST + 3, cookie + 1));
    check_refused(120_000, |cookie| (FIRST + 1, cookie + 1));
    check_refused(1, |_| (FIRST + 1, 1));
}

#[test]
fn a_window_probe_makes_up_for_a_lost_acknowledgement_and_a_lost_syn() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let (cookie, _) = talk.syn(0, &[]);
    for _ in 0..2 {
        let probe = talk.frame(0, "A", (FIRST, cookie + 1), &[]);
        let outcome = talk.send(0, 500, probe);
        let asks = tcp(outcome.only().1);
        assert_eq!((asks.flags(), asks.sequence()), (SYN, FIRST));
        assert_eq!(Offer::of(&asks), Offer { size: 536, ..Offer::default() }, "no stamp, nowhere to keep more");
    }
    assert_eq!(talk.bench.findings().sums()["SYNs repeated to servers"], 1);
}

#[test]
fn a_lost_confirmation_is_sent_again() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    talk.open();
    let again = talk.frame(1, "SA", (FIRST_OF_SERVER, FIRST + 1), &SERVER_SAYS);
    let outcome = talk.send(1, 1000, again);
    assert_eq!(outcome.ports().len(), 2);
    let other = talk.frame(1, "SA", (FIRST_OF_SERVER + 1, FIRST + 1), &SERVER_SAYS);
    assert_eq!(talk.send(1, 1000, other).dropped, Some("no_connection"));
}

#[test]
fn a_closed_port_is_told_with_the_number_that_the_client_expects() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let (cookie, _) = talk.syn(0, &[]);
    let ack = talk.frame(0, "A", (FIRST + 1, cookie + 1), &[]);
    talk.send(0, 1, ack);
    let closed = talk.frame(1, "RA", (0, FIRST + 1), &[]);
    let outcome = talk.send(1, 2, closed);
    let reset = tcp(outcome.only().1);
    assert_eq!((reset.flags(), reset.sequence()), (RST | ACK, cookie + 1));
}

#[test]
fn ends_whose_connection_is_over_may_open_another() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let (cookie, stamp) = talk.open();
    let ends = talk.frame(0, "FA", (1001, cookie + 1), &stamps(7002, stamp));
    talk.send(0, 3, ends);
    let early = talk.frame(0, "S", (5000, 0), &[]);
    assert_eq!(talk.send(0, 4, early).ports(), [1], "the server challenges it");
    let ends = talk.frame(1, "FA", (77_001, 1002), &stamps(501, 7002));
    assert_eq!(tcp(talk.send(1, 5, ends).only().1).sequence(), cookie + 1);
    let last = talk.frame(0, "A", (1002, cookie + 2), &stamps(7003, stamp));
    assert_eq!(tcp(talk.send(0, 6, last).only().1).acknowledgement(), 77_002);
    talk.first = 5000;
    assert_ne!(talk.open().0, cookie);
}

#[test]
fn numbers_in_icmp_errors_are_those_of_who_gets_them() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let (cookie, stamp) = talk.open();
    let quoted = |frame: &[u8]| tcp(&frame[28..]).sequence();
    let sent = talk.frame(1, "A", (77_001, 1001), &stamps(501, 7001)).bytes();
    let translated = talk.bench.send(1, 3, &sent);
    let error = Frame::unreachable("198.18.0.1", "192.0.2.1", translated.only().1);
    let outcome = talk.send(0, 4, error);
    assert_eq!(quoted(outcome.only().1), 77_001);
    let sent = talk.frame(0, "A", (1001, cookie + 1), &stamps(7002, stamp)).bytes();
    let translated = talk.bench.send(0, 5, &sent);
    let error = Frame::unreachable("192.0.2.9", "198.18.0.7", translated.only().1);
    let outcome = talk.send(1, 6, error);
    let header = &outcome.only().1[28..];
    assert_eq!((tcp(header).sequence(), tcp(header).acknowledgement()), (1001, cookie + 1));
}

/// The ports of a connection that was opened with a cookie open another one, which is not translated; nor are errors about it.
#[test]
fn errors_concern_the_connection_that_there_is_now() {
    let mut talk = Talk::new("flows_min = 10\nidle_timeout_s = 10");
    for host in 0..10 {
        talk.ends[0] = format!("198.18.1.{host}:99");
        let syn = talk.frame(0, "S", (1, 0), &[]);
        talk.send(0, 0, syn);
    }
    talk.ends[0] = CLIENT.to_owned();
    let (cookie, stamp) = talk.open();
    for (from, numbers, at) in [(0, (1001, cookie + 1), stamps(7002, stamp)), (1, (77_001, 1002), stamps(501, 7002))] {
        let fin = talk.frame(from, "FA", numbers, &at);
        assert_eq!(talk.send(from, 4, fin).ports(), [1 - from as u16]);
    }
    talk.bench.send(0, 19_000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let next = [(0, "S", (500_000, 0)), (1, "SA", (9000, 500_001)), (0, "A", (500_001, 9001))];
    for (from, flags, numbers) in next {
        let frame = talk.frame(from, flags, numbers, &[]);
        assert_eq!(talk.send(from, 20_000, frame.clone()).only().1, frame.bytes());
    }
    let data = talk.frame(1, "PA", (9001, 500_001), &[]).payload(&[7; 100]).bytes();
    let error = Frame::unreachable("198.18.0.1", "192.0.2.1", &data);
    assert_eq!(tcp(&talk.send(0, 20_001, error).only().1[28..]).sequence(), 9001);
}

#[test]
fn cookies_are_sent_while_there_is_an_attack_and_others_go_on() {
    let mut talk = Talk::new("flows_min = 10\nidle_timeout_s = 10");
    talk.ends[0] = "198.18.2.1:1".to_owned();
    let begins = talk.frame(0, "S", (1, 0), &[]);
    assert_eq!(talk.send(0, 0, begins).ports(), [1]);
    for host in 0..8 {
        talk.ends[0] = format!("198.18.1.{host}:99");
        let syn = talk.frame(0, "S", (1, 0), &[]);
        assert_eq!(talk.send(0, 0, syn).ports(), [1]);
    }
    talk.ends[0] = CLIENT.to_owned();
    talk.open();
    talk.ends[0] = "198.18.2.1:1".to_owned();
    let goes_on = talk.frame(0, "A", (2, 9), &[]);
    assert_eq!(talk.send(0, 3, goes_on.clone()).only().1, goes_on.bytes());
    talk.ends[0] = "198.18.2.2:1".to_owned();
    talk.bench.send(0, 19_000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let calm = talk.frame(0, "S", (1, 0), &[]);
    assert_eq!(talk.send(0, 20_000, calm).ports(), [1], "the flood's flows have been forgotten");
}

#[test]
fn a_flood_that_goes_round_is_a_flood_still() {
    let mut talk = Talk::new("flows_min = 10");
    let flood = |talk: &mut Talk, from: usize, flags: &str, numbers: (u32, u32)| {
        for host in 0..9 {
            talk.ends[0] = format!("198.18.1.{host}:99");
            let frame = talk.frame(from, flags, numbers, &[]);
            assert_eq!(talk.send(from, 0, frame).ports(), [1 - from as u16]);
        }
        talk.ends[0] = CLIENT.to_owned();
        talk.syn(1, &[]);
    };
    for (from, flags, numbers) in
        [(0, "S", (1, 0)), (0, "S", (1, 0)), (0, "A", (2, 9)), (1, "SA", (77_000, 2)), (0, "S", (1, 0))]
    {
        flood(&mut talk, from, flags, numbers);
    }
    // Acknowledgements of numbers that were never sent, and resets from hosts whose addresses were forged.
    for (flags, numbers) in [("A", (2, 77_000)), ("A", (2, 7)), ("R", (2, 0)), ("RA", (2, 77_001))] {
        flood(&mut talk, 0, flags, numbers);
    }
    for host in 3..6 {
        talk.ends[0] = format!("198.18.1.{host}:99");
        let knows = talk.frame(0, "A", (2, 77_001), &[]);
        assert_eq!(talk.send(0, 2, knows).ports(), [1]);
    }
    talk.ends[0] = CLIENT.to_owned();
    let calm = talk.frame(0, "S", (1, 0), &[]);
    assert_eq!(talk.send(0, 3, calm).ports(), [1], "three of nine have gone on");
}

#[test]
fn when_there_is_no_room_cookies_need_none() {
    let mut talk = Talk::new("");
    for port in 0..64 {
        talk.ends[0] = format!("198.18.1.1:{}", port + 1);
        let syn = talk.frame(0, "S", (1, 0), &[]);
        assert_eq!(talk.send(0, 0, syn).ports(), [1]);
    }
    talk.ends[0] = CLIENT.to_owned();
    let (cookie, _) = talk.syn(0, &[]);
    let ack = talk.frame(0, "A", (FIRST + 1, cookie + 1), &[]);
    assert_eq!(talk.send(0, 1, ack).dropped, Some("set_table_full"));
}

#[test]
fn only_protected_hosts_are() {
    let mut talk = Talk::new("cookies = { when = 'always', protect = ['192.0.2.0/28'] }");
    talk.ends[1] = "192.0.2.99:80".to_owned();
    let syn = talk.frame(0, "S", (1, 0), &[]);
    assert_eq!(talk.send(0, 0, syn).ports(), [1]);
    talk.ends = [SERVER.to_owned(), "203.0.113.5:443".to_owned()];
    let outwards = talk.frame(0, "S", (1, 0), &[]);
    assert_eq!(talk.send(0, 0, outwards).ports(), [1]);
    let answer = talk.frame(1, "SA", (9, 2), &[]);
    assert_eq!(talk.send(1, 1, answer).ports(), [0], "a protected host may ask");
    talk.ends[1] = "203.0.113.6:443".to_owned();
    let unasked = talk.frame(1, "SA", (9, 2), &[]);
    assert_eq!(talk.send(1, 1, unasked).dropped, Some("no_connection"));
}

#[test]
fn ipv6_is_protected_as_well() {
    let mut talk = Talk::new("cookies = { when = 'always' }");
    let ends = ["[2001:db8::7]:4000", "[2001:db8:1::1]:80"];
    let syn = Frame::tcp(ends[0], ends[1]).flags("S").numbers(1, 0).options(&CLIENT_SAYS).vlan(5);
    let outcome = talk.send(0, 0, syn);
    let [(0, answer)] = &outcome.sent[..] else { panic!("{:?}", outcome.dropped) };
    assert_eq!(answer[14..16], [0, 5], "the tag stays");
    let header = Tcp::parse(&answer[58..]).unwrap();
    let (cookie, offer) = (header.sequence(), Offer::of(&header));
    assert_eq!((offer.size, offer.shift), (1440, Some(7)));
    let (told, _) = offer.stamps.unwrap();
    let ack = Frame::tcp(ends[0], ends[1]).numbers(2, cookie + 1).options(&stamps(7, told)).payload(b"x").vlan(5);
    let outcome = talk.send(0, 1, ack);
    let asks = Tcp::parse(&outcome.only().1[58..]).unwrap();
    assert_eq!((asks.flags(), Offer::of(&asks).size), (SYN, 1220));
    assert_eq!(outcome.only().1.len(), 58 + 40, "no payload");
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    crate::parts::testing::refuse::refuse("anti_ddos", config, expected);
}

#[test]
fn configurations_that_make_no_cookies_are_refused() {
    let with = |key: &str| format!("action = 'cookies'\ncookies = {{ {key} }}");
    refuse("cookies = { sack = true }", "`cookies`: no cookies are sent; write `action = \"cookies\"`");
    refuse("action = 'cookies'\ndscp = 4", "`dscp`: nothing is marked; write `action = \"mark\"`");
    refuse(
        &with("window_scale = 15"),
        "`cookies.window_scale`: windows cannot be shifted by 15; write 0 to 14 (RFC 7323 section 2.3)",
    );
    refuse(&with("mss = 500"), "`cookies.mss`: every host takes segments of more than 500 bytes; write at least 536");
    for key in ["threshold = 0.5", "flows_min = 5", "staleness_us = 100"] {
        let reason = "every connection is opened with a cookie, so nobody asks whether there is an attack";
        let instead = "leave it out, or write when = \"attack\" into `cookies`";
        let name = key.split(' ').next().unwrap();
        refuse(&format!("{key}\n{}", with("when = 'always'")), &format!("`{name}`: {reason}; {instead}"));
    }
    refuse(
        &with("timestamps = false, window_scale = 3"),
        "`cookies.window_scale`: without time stamps there is no place to keep it; leave it out, or leave out `timestamps`",
    );
    refuse(
        &with("secret = 'abc'"),
        "`cookies.secret`: `abc` is no secret; write 32 hexadecimal digits that nobody knows",
    );
}
