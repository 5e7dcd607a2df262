//! Metrics of a run over HTTP, read by an independent parser, and the page with its token.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use openmetrics_parser::openmetrics::parse_openmetrics;
use support::Braid;

/// A run with metrics on a free port; killed with the test.
struct Measured(std::process::Child, String);

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(braid: &Braid, option: &str, says: &str) -> Measured {
    let line = format!("run --nf firewall,nat --in gen:campus?packets=4000000000 --workers 2 {option} 127.0.0.1:0");
    let mut child = braid.command(&line).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let told = lines.find_map(|line| line.ok()?.strip_prefix(says).map(str::to_owned));
    let address = told.expect("it says where");
    // Whatever else it says must not block it.
    std::thread::spawn(move || lines.for_each(drop));
    Measured(child, address)
}

fn ask(address: &str, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    // A request that is too long is not read to its end.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

#[test]
fn metrics_conform_to_the_format_and_count_what_went_through() {
    let braid = Braid::new();
    let run = start(&braid, "--metrics", "metrics at http://");
    let address = run.1.trim_end_matches("/metrics");
    let (mut body, mut packets) = (String::new(), 0.0);
    while packets < 1000.0 {
        let (head, text) = ask(address, b"GET /metrics HTTP/1.1\r\nHost: braid\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        let received = text.lines().filter(|line| line.starts_with("braid_worker_received_packets_total"));
        packets = received.filter_map(value).sum();
        body = text;
    }
    let exposition = parse_openmetrics(&body).unwrap_or_else(|error| panic!("{error:?}\n{body}"));
    for family in [
        "braid_function_packets",
        "braid_port_received_bytes",
        "braid_worker_cpu_seconds",
        "braid_object_elements",
        "braid_sets_live",
        "braid_packets_missing",
    ] {
        let found = exposition.families.get(family).unwrap_or_else(|| panic!("no {family} in\n{body}"));
        assert!(!found.help.is_empty(), "{family} has no help");
    }
    assert!(body.contains("braid_packets_missing 0"), "{body}");
}

#[test]
fn other_requests_are_refused_and_harm_nobody() {
    let braid = Braid::new();
    let run = start(&braid, "--metrics", "metrics at http://");
    let address = run.1.trim_end_matches("/metrics");
    let status = |request: &[u8]| ask(address, request).0;
    assert!(status(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(status(b"GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(status(b"\x00\x01\x02\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = [b"GET /".as_slice(), &[b'a'; 100_000]].concat();
    assert!(!status(&long).starts_with("HTTP/1.1 200"));
    assert!(status(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
}

#[test]
fn other_machines_are_let_in_only_if_that_is_said() {
    let braid = Braid::new();
    let refused = braid.fails(2, "run --nf forward --in gen:uniform?packets=10 --metrics 0.0.0.0:0");
    assert!(refused.contains("--metrics-remote"), "{refused}");
    braid.ok("run --nf forward --in gen:uniform?packets=10 --metrics 0.0.0.0:0 --metrics-remote");
}

#[test]
fn the_page_shows_figures_only_to_those_who_know_the_token() {
    let braid = Braid::new();
    let run = start(&braid, "--web", "page at http://");
    let (address, token) = run.1.split_once("/#").expect("a token");
    let (head, page) = ask(address, b"GET / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("default-src 'none'"), "{head}");
    assert!(page.contains("<title>braid</title>") && !page.contains("http://") && !page.contains("https://"));
    let stats = |token: &str| {
        let request = format!("GET /stats HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n");
        ask(address, request.as_bytes())
    };
    let (head, body) = stats(token);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let figures: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(figures["functions"][1]["name"], "nat");
    for wrong in ["", "0", &token[1..], &token.to_uppercase().replace(|c: char| c.is_ascii_digit(), "0")] {
        assert!(stats(wrong).0.starts_with("HTTP/1.1 401"), "{wrong}");
    }
    assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(braid.fails(2, "run --nf forward --in gen:uniform?packets=10 --web 0.0.0.0:0").contains("ssh -L"));
}
