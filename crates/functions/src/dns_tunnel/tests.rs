//! Which answers make a tunnel, and that ordinary look-ups do not.

use braid_nf::state::{Domain, HugePages, StateBuilder};
use braid_testkit::{Bench, Frame};

use super::DnsTunnel;
use crate::config::parse;
use crate::{FromConfig, find};

fn bench(config: &str) -> Bench {
    let build = find("dns_tunnel").unwrap().build;
    Bench::with_sets(2, 10_000, |builder| build("dns", config.parse().unwrap(), builder, 2).unwrap())
}

/// What a response holds besides its question.
enum Answer {
    Nothing,
    Text(usize),
    Address([u8; 4]),
}

fn response(name: &str, answer: &Answer) -> Vec<u8> {
    response_about(16, name, answer)
}

/// A response to a question of this type.
fn response_about(kind: u8, name: &str, answer: &Answer) -> Vec<u8> {
    let mut message = vec![0, 7, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, kind, 0, 1]);
    let mut record = |kind: u8, data: &[u8]| {
        message[7] = 1;
        message.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60]);
        message.extend_from_slice(&(data.len() as u16).to_be_bytes());
        message.extend_from_slice(data);
    };
    match answer {
        Answer::Nothing => {}
        Answer::Text(len) => record(16, &vec![b'x'; *len]),
        Answer::Address(address) => record(1, address),
    }
    Frame::udp("192.0.2.53:53", "10.0.0.1:4000").payload(&message).bytes()
}

/// Sends 100 answers, ten a second, named and filled by `of`, and checks what is reported of the first tunnel, if any.
#[track_caller]
fn check(of: impl Fn(u64) -> (String, Answer), follows: bool, expected: Option<&str>) {
    check_with("", of, follows, expected);
}

#[track_caller]
fn check_with(config: &str, of: impl Fn(u64) -> (String, Answer), follows: bool, expected: Option<&str>) {
    let mut bench = bench(config);
    for n in 0..100 {
        let (name, answer) = of(n);
        assert_eq!(bench.send(0, n * 100, &response(&name, &answer)).ports(), [1]);
        if let (Answer::Address([a, b, c, d]), true) = (&answer, follows) {
            let web = Frame::tcp("10.0.0.1:5000", &format!("{a}.{b}.{c}.{d}:443")).flags("S").bytes();
            bench.send(0, n * 100 + 50, &web);
        }
    }
    let findings = bench.findings();
    assert_eq!(findings.list().first().map(|finding| finding.detail.as_str()), expected);
    assert!(findings.list().len() <= 1, "{findings:?}");
}

#[test]
fn text_about_ever_new_names_of_one_zone_is_a_tunnel() {
    let expected = "30 answers about t.example.com led nowhere, 3330 bytes in them, since 0.000 s";
    let expected = expected.replace("t.example.com", "example.com");
    check(|n| (format!("{n:08}.t.example.com"), Answer::Text(88)), false, Some(&expected));
}

#[test]
fn so_are_addresses_that_nobody_contacts_if_the_names_carry_enough() {
    let name = |n| format!("{n:04}{}.evil.co.uk", "a".repeat(40));
    let address = |n: u64| Answer::Address([198, 51, 100, n as u8]);
    let expected = "30 answers about evil.co.uk led nowhere, 1350 bytes in them, since 0.000 s";
    check(|n| (name(n), address(n)), false, Some(expected));
    check(|n| (name(n), address(n)), true, None);
}

/// What carries data upwards needs no answers that differ: a tunnel's server may give one and the same address for all names.
#[test]
fn one_address_for_all_names_hides_no_tunnel() {
    let name = |n| format!("{n:04}{}.evil.co.uk", "a".repeat(40));
    let expected = "30 answers about evil.co.uk led nowhere, 1350 bytes in them, since 0.000 s";
    check(|n| (name(n), Answer::Address([198, 51, 100, 7])), false, Some(expected));
    check(|n| (name(n), Answer::Address([198, 51, 100, 7])), true, None);
    // Nor do other zones that were told this address first, as the names that a resolver blocks.
    let others = |n: u64| if n < 40 { format!("www.site{n}.example") } else { name(n) };
    let expected = expected.replace("0.000", "4.000");
    check(|n| (others(n), Answer::Address([127, 0, 0, 1])), false, Some(&expected));
}

/// As for names of one site on one host, to which a browser keeps one connection.
#[test]
fn names_of_an_address_that_is_contacted_lead_there_before_and_after() {
    let name = |n: u64| format!("{n:04}{}.example.com", "a".repeat(40));
    let tell = |bench: &mut Bench, n: u64, kind: u8, answer: &Answer| {
        bench.send(0, n * 100, &response_about(kind, &name(n), answer));
    };
    let web = Frame::tcp("10.0.0.1:5000", "198.51.100.7:443").flags("S").bytes();
    let mut bench = bench("");
    (0..29).for_each(|n| tell(&mut bench, n, 1, &Answer::Address([198, 51, 100, 7])));
    bench.send(0, 2950, &web);
    for n in 30..300 {
        tell(&mut bench, n, 28, &Answer::Nothing);
        tell(&mut bench, n, 1, &Answer::Address([198, 51, 100, 7]));
    }
    assert!(bench.findings().is_empty());
}

/// Their queries are as new and as long as data, so the configuration has to name such lists.
#[test]
fn lists_of_names_and_hashes_are_none_if_they_are_named() {
    let hash = |list: &str, n: u64| (format!("{:032x}.{list}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)), Answer::Nothing);
    let expected = "30 answers about surbl.org led nowhere, 1170 bytes in them, since 0.000 s";
    check(|n| hash("multi.surbl.org", n), false, Some(expected));
    let config = "lists = ['Multi.SURBL.org.', 'dbl.spamhaus.org']";
    check_with(config, |n| hash("multi.surbl.org", n), false, None);
    check_with(config, |n| hash("other.surbl.org", n), false, Some(expected));
    check_with(
        config,
        |n| hash("multi.surbl.org.evil.example", n),
        false,
        Some("30 answers about evil.example led nowhere, 1470 bytes in them, since 0.000 s"),
    );
    for (name, reason) in [("", "is no name"), ("a..b", "is no name"), ("org", "is all below a top-level domain")] {
        let mut builder = StateBuilder::new(&Domain::new(2), HugePages::Never);
        let config = parse(format!("lists = ['{name}']").parse().unwrap());
        let made = config.and_then(|config| DnsTunnel::from_config(config, builder.scope("dns"), 2));
        assert!(made.is_err_and(|error| error.to_string().contains(reason)), "{name}");
    }
}

/// A resolver contacts no address itself: the hosts that asked it do.
#[test]
fn what_a_resolver_is_told_leads_somewhere_when_anybody_contacts_it() {
    let name = |n: u64| format!("d{:013x}.cloudfront.example", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
    let check = |config: &str, contacts: u64, expected: usize| {
        let mut bench = bench(config);
        for n in 0..200 {
            bench.send(0, n * 100, &response(&name(n), &Answer::Address([198, 51, 100, n as u8])));
            if n % 4 < contacts {
                let web = Frame::tcp("10.0.7.9:5000", &format!("198.51.100.{n}:443")).flags("S").bytes();
                bench.send(0, n * 100 + 50, &web);
            }
        }
        assert_eq!(bench.findings().list().len(), expected, "{config}");
    };
    let resolvers = "resolvers = ['10.0.0.53', '10.0.0.1']";
    check("", 4, 1);
    check(resolvers, 4, 0);
    check(resolvers, 0, 1);
    for (wrong, reason) in [
        (format!("resolvers = {:?}", (0..17).map(|n| format!("10.0.0.{n}")).collect::<Vec<_>>()), "17 are too many"),
        ("resolvers = ['10.0.0.1', '10.0.0.1']".to_owned(), "10.0.0.1 is there twice; name it once"),
    ] {
        let mut builder = StateBuilder::new(&Domain::new(2), HugePages::Never);
        let made =
            parse(wrong.parse().unwrap()).and_then(|config| DnsTunnel::from_config(config, builder.scope("dns"), 2));
        assert!(made.is_err_and(|error| error.to_string().contains(reason)), "{wrong}");
    }
}

#[test]
fn ordinary_look_ups_are_none() {
    check(|n| (format!("www.site{n}.example"), Answer::Address([198, 51, 100, n as u8])), false, None);
    check(|n| (format!("host{n}.example.com"), Answer::Address([198, 51, 100, n as u8])), true, None);
    check(|_| ("missing.example.com".to_owned(), Answer::Nothing), false, None);
    check(|n| (format!("{n}.100.51.198.in-addr.arpa"), Answer::Text(200)), false, None);
    check(|n| (format!("w{n}.example.com"), Answer::Nothing), false, None);
}

/// As a mail server asks about the hosts that connect to it, with a customer's key (RFC 5782).
#[test]
fn lists_that_are_asked_about_addresses_are_none_and_what_stands_behind_an_address_is_no_address() {
    for list in
        ["zen.spamhaus.org", "bl.spamcop.net", "dnsbl.example.co.uk", "abcdefghijklmnopqrstuvwxyz.zen.dq.spamhaus.net"]
    {
        check(|n| (format!("{n}.113.0.203.{list}"), Answer::Nothing), false, None);
        check(|n| (format!("9.113.{n}.203.{list}"), Answer::Address([127, 0, 0, 2])), false, None);
    }
    let expected = "30 answers about evil.co.uk led nowhere, 1350 bytes in them, since 0.000 s";
    let data = |n: u64| format!("{n:04}{}", "a".repeat(40));
    check(|n| (format!("{n}.113.0.203.{}.evil.co.uk", data(n)), Answer::Nothing), false, Some(expected));
    for no_address in ["0.113.0.2031", "01.113.0.203", "256.113.0.203", "+1.113.0.203", "a.113.0.203"] {
        let bytes = 30 * (no_address.len() + 1 + 45);
        let expected = format!("30 answers about evil.co.uk led nowhere, {bytes} bytes in them, since 0.000 s");
        check(|n| (format!("{no_address}.{}.evil.co.uk", data(n)), Answer::Nothing), false, Some(&expected));
    }
    let text = "30 answers about spamhaus.org led nowhere, 3004 bytes in them, since 0.000 s";
    check(|n| (format!("{n}.113.0.203.zen.spamhaus.org"), Answer::Text(88)), false, Some(text));
}

/// The same for IPv6: 32 digits, the last one first (RFC 5782 section 2.4).
#[test]
fn lists_that_are_asked_about_addresses_of_ipv6_are_none() {
    let backwards_from = |first: &str, n: u64, top: char| {
        let digits = format!("{:04x}", n * 7);
        let labels: String = digits.chars().rev().flat_map(|digit| [digit, '.']).collect();
        format!("{first}.1.0.0.{labels}{}8.b.d.0.1.0.0.{top}", "0.".repeat(16))
    };
    // One of them has digits that look like an IPv4 address.
    check(|n| (format!("{}.zen.spamhaus.org", backwards_from("5", n, '2')), Answer::Nothing), false, None);
    let backwards = |n: u64, top: char| backwards_from("e", n, top);
    check(|n| (format!("{}.zen.spamhaus.org", backwards(n, '2')), Answer::Nothing), false, None);
    check(|n| (format!("{}.zen.spamhaus.org", backwards(n, '2').to_uppercase()), Answer::Nothing), false, None);
    let told =
        |bytes: u64| format!("30 answers about evil.co.uk led nowhere, {} bytes in them, since 0.000 s", 30 * bytes);
    // An address outside the global range, one digit too few, an invalid digit, and data behind an address: none of these
    // is exempt.
    check(|n| (format!("{}.l.evil.co.uk", backwards(n, 'f')), Answer::Nothing), false, Some(&told(66)));
    check(
        |n| (format!("{}.l.evil.co.uk", backwards(n, '2').replacen(".8.", ".", 1)), Answer::Nothing),
        false,
        Some(&told(64)),
    );
    check(|n| (format!("g{}.l.evil.co.uk", &backwards(n, '2')[1..]), Answer::Nothing), false, Some(&told(66)));
    let data = |n: u64| format!("{n:04}{}", "a".repeat(40));
    check(|n| (format!("{}.{}.evil.co.uk", backwards(n, '2'), data(n)), Answer::Nothing), false, Some(&told(45)));
}

#[test]
fn one_answer_is_told_of_as_one() {
    let mut bench = bench("orphans = 1\nbytes = 1");
    bench.send(0, 0, &response("a.example.com", &Answer::Nothing));
    let detail = bench.findings().list().first().map(|finding| finding.detail.clone());
    assert_eq!(detail.as_deref(), Some("1 answer about example.com led nowhere, 2 bytes in it, since 0.000 s"));
}

#[test]
fn a_name_that_leads_somewhere_does_whatever_else_was_asked_of_it() {
    const HTTPS: u8 = 65;
    for (before, after) in [(vec![28, HTTPS], vec![]), (vec![28], vec![HTTPS]), (vec![], vec![28, HTTPS])] {
        let mut bench = bench("");
        for n in 0..100u64 {
            let name = format!("a{n:02}-{}.example.com", "x".repeat(40));
            let asks = |bench: &mut Bench, kinds: &[u8], at_ms: u64| {
                kinds.iter().for_each(|kind| _ = bench.send(0, at_ms, &response_about(*kind, &name, &Answer::Nothing)));
            };
            asks(&mut bench, &before, n * 100);
            bench.send(0, n * 100, &response_about(1, &name.to_uppercase(), &Answer::Address([198, 51, 100, n as u8])));
            bench.send(
                0,
                n * 100 + 50,
                &Frame::tcp("10.0.0.1:5000", &format!("198.51.100.{n}:443")).flags("S").bytes(),
            );
            asks(&mut bench, &after, n * 100 + 60);
        }
        assert!(bench.findings().is_empty());
    }
}

#[test]
fn orphans_of_different_windows_do_not_add_up() {
    let mut bench = bench("window_s = 1");
    for n in 0..100 {
        bench.send(0, n * 100, &response(&format!("{n:08}.example.com"), &Answer::Text(88)));
    }
    assert!(bench.findings().is_empty());
}

#[test]
fn no_answer_at_all_is_no_tunnel() {
    let expected = "`orphans`: 0 answers lead nowhere to anybody; write 1 for every one that does";
    crate::parts::testing::refuse::refuse("dns_tunnel", "orphans = 0", expected);
}

#[test]
fn damaged_messages_are_no_answers() {
    let whole = response("abc.example.com", &Answer::Text(30));
    let found = |is_whole: bool| {
        let mut bench = bench("orphans = 1\nbytes = 0");
        for len in 42..whole.len() - 42 {
            let mut cut = whole[..len].to_vec();
            bench.send(0, len as u64, &cut);
            cut[len - 1] ^= 0xff;
            bench.send(0, len as u64, &cut);
        }
        if is_whole {
            bench.send(0, whole.len() as u64, &whole);
        }
        bench.findings().list().len()
    };
    assert_eq!(found(false), 0, "no cut message is an answer");
    assert_eq!(found(true), 1, "or the test shows nothing");
}

#[test]
fn answers_for_which_there_is_no_room_are_counted_and_speak_for_no_tunnel() {
    let unkept = |config: &str, zones: bool| {
        let mut bench = bench(config);
        for n in 0..40u64 {
            let name = if zones { format!("a.zone{n}.example") } else { format!("{n:08}.t.example") };
            bench.send(0, n, &response(&name, &Answer::Text(200)));
        }
        let findings = bench.findings();
        (findings.sums().get("answers for which there was no room").copied(), findings.list().len())
    };
    assert_eq!(unkept("", false), (None, 1));
    assert_eq!(unkept("", true), (None, 0));
    assert_eq!(unkept("answers_max = 16\norphans = 20", false), (Some(24), 0));
    assert_eq!(unkept("answers_max = 16\norphans = 20", true), (Some(24), 0));
}
