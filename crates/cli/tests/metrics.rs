//! Metrics of a run over HTTP, read by an independent parser, and the page with its token.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use braid_testkit::skip::skip;
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
        "braid_sets_evicted",
        "braid_sets_refused",
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
    let (head, body) = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("Content-Length: ") && body.is_empty(), "{head}{body}");
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

/// A page as a browser shows it after some seconds of its own time, and what it had to complain of.
struct Shown {
    dom: String,
    complaints: Vec<String>,
}

/// None if there is no browser.
fn browse(address: &str, braid: &Braid) -> Option<Shown> {
    let mut browser = Command::new("chromium");
    // Root's browser has no sandbox; the page is our own.
    browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    browser.arg(format!("--user-data-dir={}", braid.path("browser").display()));
    browser.args(["--enable-logging=stderr", "--window-size=1280,1100", "--virtual-time-budget=4000", "--dump-dom"]);
    let output = browser.arg(address).output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    let complaints = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    Some(Shown { dom: text(&output.stdout), complaints })
}

#[test]
fn a_browser_draws_the_chain_with_live_rates_and_fills_the_tables() {
    let braid = Braid::new();
    let run = start(&braid, "--web", "page at ");
    let Some(Shown { dom, complaints }) = browse(&run.1, &braid) else {
        return skip("the page in a browser", &"chromium is not installed: apt-get install chromium");
    };
    assert_eq!(complaints, [""; 0], "{dom}");
    let part = |from: &str, to: &str| {
        let (_, rest) = dom.split_once(from).unwrap_or_else(|| panic!("no {from} in\n{dom}"));
        rest.split_once(to).map_or(rest, |(part, _)| part).to_owned()
    };
    let chain = part("<svg id=\"chain\"", "</svg>");
    for name in ["port 0", "port 1", "firewall", "nat"] {
        assert!(chain.contains(&format!(">{name}</text>")), "{name} is not drawn:\n{chain}");
    }
    assert!(chain.contains("moving") && !chain.contains("NaN"), "packets move along its edges:\n{chain}");
    for id in ["workers", "ports", "sets", "objects"] {
        let rows = part(&format!("<table id=\"{id}\""), "</table>").matches("<tr>").count();
        assert!(rows >= 2, "table {id} has {rows} rows:\n{dom}");
    }
    assert!(part("<span id=\"state\"", "</span>").contains("running for"), "{dom}");
}

#[test]
fn a_browser_without_the_token_says_so_and_shows_nothing() {
    let braid = Braid::new();
    let run = start(&braid, "--web", "page at ");
    let (address, _) = run.1.split_once('#').expect("a token");
    let Some(Shown { dom, .. }) = browse(address, &braid) else {
        return skip("the page in a browser", &"chromium is not installed: apt-get install chromium");
    };
    assert!(dom.contains("The token behind # in the address is missing or wrong"), "{dom}");
    assert!(!dom.contains("firewall"), "{dom}");
}
