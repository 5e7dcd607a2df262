//! Which user a session belongs to, however a request is cut into packets.

use braid_testkit::{Bench, Frame};

use super::request::{Seen, lines};
use crate::find;

fn bench(config: &str) -> Bench {
    let build = find("sidejacking").unwrap().build;
    Bench::with_sets(2, 1000, |builder| build("web", config.parse().unwrap(), builder, 2).unwrap())
}

fn request(client: &str, text: &str) -> Vec<u8> {
    Frame::tcp(&format!("{client}:5000"), "192.0.2.1:80").flags("PA").payload(text.as_bytes()).bytes()
}

fn get(client: &str, agent: &str, cookie: &str) -> Vec<u8> {
    request(
        client,
        &format!("GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {agent}\r\nCookie: x=1; {cookie}\r\n\r\n"),
    )
}

const SID: &str = "PHPSESSID=0123456789abcdef";

/// Sends requests one second apart, and checks what is found at the end.
#[track_caller]
fn check(config: &str, requests: &[Vec<u8>], expected: Option<(&str, &str)>) {
    let mut bench = bench(config);
    for (n, frame) in requests.iter().enumerate() {
        assert_eq!(bench.send(0, 1000 * n as u64, frame).ports(), [1]);
    }
    let findings = bench.findings();
    let found: Vec<_> = findings.list().iter().map(|finding| (finding.subject.as_str(), &*finding.detail)).collect();
    match (expected, &found[..]) {
        (None, []) => {}
        (Some((subject, part)), [(thief, detail)]) => {
            assert_eq!(*thief, subject);
            assert!(detail.contains(part), "{detail}");
        }
        _ => panic!("{found:?}, not {expected:?}"),
    }
}

#[test]
fn a_cookie_that_moves_to_another_address_is_stolen() {
    let theft = [get("10.0.0.1", "a", SID), get("10.0.0.2", "a", SID)];
    check("", &theft, Some(("10.0.0.2", "of 10.0.0.1 was used by another address, at 1.000 s")));
    check("cookies = ['other']", &theft, None);
}

#[test]
fn another_browser_at_the_same_address_is_another_user_unless_configured_otherwise() {
    let theft = [get("10.0.0.1", "firefox", SID), get("10.0.0.1", "curl", SID)];
    check("", &theft, Some(("10.0.0.1", "another browser of the same address")));
    check("by_agent = false", &theft, None);
}

#[test]
fn a_users_own_requests_are_none() {
    check("", &[get("10.0.0.1", "a", SID), get("10.0.0.1", "a", SID)], None);
    check("", &[get("10.0.0.1", "a", SID), get("10.0.0.2", "a", "PHPSESSID=ffffffffffffffff")], None);
    check("", &[get("10.0.0.1", "a", "lang=german1234"), get("10.0.0.2", "a", "lang=german1234")], None);
    check("", &[get("10.0.0.1", "a", "PHPSESSID=1"), get("10.0.0.2", "a", "PHPSESSID=1")], None);
}

#[test]
fn the_same_number_at_another_host_is_another_session() {
    let there = "GET / HTTP/1.1\r\nHost: b.example\r\nUser-Agent: a\r\nCookie: x=1; PHPSESSID=0123456789abcdef\r\n\r\n";
    check("", &[get("10.0.0.1", "a", SID), request("10.0.0.2", there)], None);
}

#[test]
fn a_request_in_several_packets_is_read_whole() {
    let pieces = [
        "GET / HTTP/1.1\r\nHost: a.example\r\n",
        "User-Agent: a\r\nCookie: x=1; PHPSESSID=0123456789abcdef\r\n",
        "Accept: */*\r\n\r\n",
    ];
    let mut requests = vec![get("10.0.0.1", "a", SID)];
    requests.extend(pieces.map(|piece| request("10.0.0.2", piece)));
    check("", &requests, Some(("10.0.0.2", "another address, at 3.000 s")));
}

/// The line with the browser, or the host, may lie in two packets; the cookie's may not.
#[test]
fn nothing_is_concluded_from_a_line_in_two_packets() {
    let whole = |client, agent| get(client, agent, SID);
    let cut = |client: &str, agent: &str, at: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {agent}\r\nCookie: {SID}\r\n\r\n");
        let at = text.find(at).unwrap();
        [request(client, &text[..at]), request(client, &text[at..])]
    };
    for at in ["-Agent", "example"] {
        let [first, second] = cut("10.0.0.1", "a", at);
        check("", &[whole("10.0.0.1", "a"), first.clone(), second.clone()], None);
        check("", &[first, second, whole("10.0.0.1", "a")], None);
    }
    let [first, second] = cut("10.0.0.2", "a", "-Agent");
    check("", &[whole("10.0.0.1", "a"), first, second], Some(("10.0.0.2", "used by another address")));
    let [first, second] = cut("10.0.0.1", "curl", " HTTP");
    check("", &[whole("10.0.0.1", "a"), first, second], Some(("10.0.0.1", "another browser")));
}

#[test]
fn an_old_session_is_forgotten() {
    check("session_s = 1\nrefresh_ms = 0", &[get("10.0.0.1", "a", SID), vec![], get("10.0.0.2", "a", SID)], None);
}

#[test]
fn lines_are_read_without_their_ends() {
    let names = ["sid".to_owned()];
    let text = b"GET / HTTP/1.1\nHOST:  h \r\nuser-agent:u\r\nCookie: SID=12345678 ; b=2\r\n\r\nHost: body\r\n";
    let seen: Vec<_> = lines(text, &names).collect();
    assert_eq!(seen, [Seen::Host(b"h"), Seen::Agent(b"u"), Seen::Cookie(b"SID", b"12345678"), Seen::End]);
}

#[test]
fn requests_whose_session_finds_no_room_are_counted() {
    let mut bench = bench("sessions_max = 4");
    for n in 0..10 {
        bench.send(0, n, &get("10.0.0.1", "a", &format!("PHPSESSID=0123456789abcde{n}")));
    }
    assert_eq!(bench.findings().sums().get("requests whose session found no room"), Some(&6));
}

#[test]
fn names_that_no_cookie_has_are_refused() {
    let build = find("sidejacking").unwrap().build;
    let refused = |cookies: &str| {
        let domain = braid_nf::state::Domain::new(1);
        let mut builder = braid_nf::state::StateBuilder::new(&domain, braid_nf::state::HugePages::Never);
        let config = format!("cookies = [{cookies}]").parse().unwrap();
        build("web", config, &mut builder, 2).err().map(|error| error.to_string())
    };
    assert_eq!(refused("'ASP.NET_SessionId', 'connect.sid'"), None);
    let none = "`cookies`: names none; write for example cookies = [\"PHPSESSID\"]";
    assert_eq!(refused("").as_deref(), Some(none));
    for wrong in ["", "a b", "SID=", "sid;x"] {
        let expected =
            format!("`cookies`: no cookie is called {wrong:?}; write its name alone, without `=` and what follows");
        assert_eq!(refused(&format!("'SID', '{wrong}'")), Some(expected));
    }
}
