//! `braid trace` and `braid sets`, on captures and on a run that goes on.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};

use braid_cli::control::runtime::io::capture::{CaptureReader, CaptureWriter, Precision};
use braid_cli::control::runtime::nf::packet::FrameInfo;
use braid_testkit::Frame;
use serde_json::Value;
use support::running::Running;
use support::{Braid, conserved};

/// One packet out and its answer back.
fn dialogue(braid: &Braid) {
    braid.ok("gen uniform?packets=6&flows=3&seed=1&size=60 --out in.pcapng");
}

/// The chain of `NAT` with one transaction for a packet's whole way.
const ATOMIC: &str = "[chain]\natomic = \"chain\"\n[[nf]]\nfunction = \"firewall\"\n[[nf]]\nfunction = \"nat\"\n\
                      config.external = [\"192.0.2.1\"]\n";
const NAT: &str = "--nf firewall,nat --set nat.external=[\"192.0.2.1\"]";

#[test]
fn a_packet_is_followed_through_the_chain() {
    check_followed(NAT);
}

#[test]
fn a_packet_is_followed_through_a_chain_that_is_one_transaction() {
    check_followed("atomic.toml");
}

#[track_caller]
fn check_followed(chain: &str) {
    let braid = Braid::new();
    dialogue(&braid);
    braid.write("atomic.toml", ATOMIC);
    let traced: Value = braid.json(&format!("trace udp {chain} --in in.pcapng -n 2 --workers 2 --out traced.pcapng"));
    let packets = traced.as_array().expect("packets");
    assert_eq!(packets.len(), 2);
    let steps = packets[0]["steps"].as_array().expect("steps");
    assert_eq!((steps[0]["function"].as_str(), steps[1]["function"].as_str()), (Some("firewall"), Some("nat")));
    let nat = &steps[1];
    assert_eq!((nat["state_before"].as_str(), nat["verdict"].as_str()), (None, Some("out by port 1")));
    assert!(nat["state_after"].is_string(), "the set is live now: {nat}");
    let edited: Vec<&str> =
        nat["edits"].as_array().expect("edits").iter().filter_map(|e| e["field"].as_str()).collect();
    assert!(edited.contains(&"ip.src") && edited.contains(&"ip.ttl"), "{edited:?}");
    let source = nat["edits"].as_array().and_then(|e| e.iter().find(|e| e["field"] == "ip.src")).expect("an edit");
    assert_eq!(source["after"], "192.0.2.1");
    let written = |step: &Value, name: &str| {
        let accesses = step["accesses"].as_array().expect("accesses");
        accesses.iter().any(|access| access["object"] == name && access["access"] == "write")
    };
    assert!(written(nat, "nat.mappings"), "{nat}");
    assert!(written(&steps[0], "firewall.connections") && !written(nat, "firewall.connections"), "{packets:?}");
    let mut reader = CaptureReader::open(&braid.path("traced.pcapng")).expect("a capture");
    let mut frames = 0;
    while reader.advance().expect("whole") {
        frames += 1;
    }
    assert_eq!(frames, 4, "each as it came and as it left");
}

/// The second and third packets of a flow, in the batch in which its set has begun.
#[test]
fn only_the_first_packet_of_a_batch_is_new() {
    let braid = Braid::new();
    braid.ok("gen uniform?packets=3&flows=1&seed=1&size=60 --out in.pcapng");
    let traced: Value = braid.json("trace ip --nf flow_counter --in in.pcapng -n 3 --workers 1");
    let steps: Vec<&Value> = traced.as_array().expect("packets").iter().map(|packet| &packet["steps"][0]).collect();
    assert_eq!(steps.len(), 3);
    assert!(steps[0]["state_before"].is_null() && steps[0]["state_after"].is_string(), "{steps:?}");
    for pair in steps.windows(2) {
        assert_eq!(pair[1]["state_before"], pair[0]["state_after"], "{steps:?}");
    }
}

#[test]
fn a_signal_while_it_is_printed_leaves_what_was_followed() {
    let braid = Braid::new();
    let line = "trace udp --nf nat --in gen:uniform?packets=4000&flows=1000 -n 500 --out traced.pcapng";
    let mut child = braid.command(line).stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut out = child.stdout.take().expect("piped");
    // The first line is printed when all packets have been followed, and a pipe holds a small part of them: it waits for whoever reads.
    out.read_exact(&mut [0]).expect("something is printed");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    out.read_to_end(&mut Vec::new()).expect("the rest");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    let mut reader = CaptureReader::open(&braid.path("traced.pcapng")).expect("a capture");
    let mut frames = 0;
    while reader.advance().expect("whole") {
        frames += 1;
    }
    assert!(frames >= 500, "{frames}");
}

#[test]
fn tracing_changes_nothing_that_comes_out() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=2000&seed=3&reverse=0.3 --out in.pcapng");
    let report = braid.json(&format!("run {NAT} --in in.pcapng --workers 1"));
    let traced = braid.json(&format!("trace ip {NAT} --in in.pcapng --workers 1 -n 3000"));
    let left = traced.as_array().expect("packets").iter().filter(|packet| packet["output"] != "").count() as u64;
    let others = 2000 - traced.as_array().map_or(0, Vec::len) as u64;
    let out = report["packets_out"].as_u64().expect("a count");
    assert!((left..=left + others).contains(&out), "{left} traced packets left, {out} in an ordinary run");
}

#[test]
fn a_slip_in_a_filter_is_named() {
    let braid = Braid::new();
    let refused = braid.fails(2, "trace hots --nf forward --in gen:uniform?packets=10");
    assert!(refused.contains("`hots` at character 1"), "{refused}");
}

#[test]
fn a_run_that_goes_on_is_traced_and_its_sets_are_found_and_ended() {
    let braid = Braid::new();
    let line = format!("{NAT} --in gen:campus?packets=4000000000&flows=200&seed=5 --workers 2");
    let mut run = Running::start(&braid, &line);
    let traced = braid.json("trace tcp --control control.sock -n 3");
    assert_eq!(traced.as_array().map(Vec::len), Some(3));
    assert!(traced[0]["steps"][0]["set"].as_str().is_some_and(|set| set.ends_with("tcp")), "{traced}");
    let stats = run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(20));
    assert_eq!(stats["missing"], 0);
    let listing = braid.json("sets --control control.sock --filter udp --limit 5");
    assert!(listing["sets"].as_array().is_some_and(|sets| !sets.is_empty() && sets.len() <= 5), "{listing}");
    assert!(listing["sets"][0]["key"].as_str().is_some_and(|key| key.ends_with("udp")), "{listing}");
    let ended = braid.ok("sets --control control.sock --filter udp --end");
    assert!(!ended.starts_with("0 "), "{ended}");
    assert!(braid.fails(2, "sets --control control.sock --end").contains("that a filter names"));
    conserved(&run.stop());
}

#[test]
fn sets_are_listed_when_a_capture_has_come_to_its_end() {
    let braid = Braid::new();
    dialogue(&braid);
    let all = braid.json("sets --nf flow_counter --in in.pcapng --workers 2");
    assert_eq!((all["sets"].as_array().map(Vec::len), all["live"].as_u64()), (Some(3), Some(3)));
    let key = all["sets"][0]["key"].as_str().expect("a key");
    let source = key.split(':').next().expect("an address");
    let found = braid.run(&format!("sets --filter {source} --nf flow_counter --in in.pcapng --json"));
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert!(found["sets"].as_array().is_some_and(|sets| !sets.is_empty()), "{found}");
}

#[test]
fn sets_that_have_ended_by_the_last_packet_of_a_capture_are_not_listed() {
    let braid = Braid::new();
    let mut writer = CaptureWriter::create(&braid.path("in.pcapng"), Precision::Nanoseconds).expect("a capture");
    for (sequence, seconds) in [0, 1, 100].into_iter().enumerate() {
        let frame = Frame::udp(&format!("10.0.0.{sequence}:1000"), "192.0.2.1:53").bytes();
        let sequence = sequence as u64;
        let info = FrameInfo { timestamp_ns: seconds * 1_000_000_000, sequence, ..FrameInfo::default() };
        writer.write(&frame, &info);
    }
    writer.finish().expect("written");
    let of = |name: &str, fields: &str| {
        format!(
            "[[nf]]\nfunction = \"flow_counter\"\nname = \"{name}\"\npacket_set = {{ fields = [\"{fields}\"] }}\nconfig.idle_timeout_s = 60\n"
        )
    };
    braid.write("own.toml", &of("a", "ip.src"));
    // On two workers one of them shares its sets.
    braid.write("shared.toml", &(of("a", "ip.src") + &of("b", "ip.dst")));
    for (plan, live) in [("own.toml", 1), ("shared.toml", 2)] {
        for workers in [1, 2] {
            let all = braid.json(&format!("sets {plan} --in in.pcapng --in-order --workers {workers}"));
            let listed = all["sets"].as_array().map(Vec::len);
            assert_eq!((listed, all["live"].as_u64()), (Some(live), Some(live as u64)), "{plan}, {workers}: {all}");
        }
    }
}

/// A chain of which one function's sets are shared: by source, and by destination. None ends while somebody looks.
const TORN: &str = "[[nf]]\nfunction = \"flow_counter\"\npacket_set = { fields = [\"ip.src\"] }\n\
    [[nf]]\nfunction = \"policer\"\nconfig = { bytes_per_s = 1000, burst_bytes = 80000000 }\n";

#[test]
fn sets_that_workers_share_are_listed_searched_and_ended() {
    let braid = Braid::new();
    braid.write("torn.toml", TORN);
    let run = Running::start(&braid, "torn.toml --in gen:campus?packets=4000000000&seed=5 --workers 2");
    let of = |listing: &Value, is_shared: bool| {
        let sets = listing["sets"].as_array().expect("sets").iter();
        sets.filter(|set| set["worker"].is_null() == is_shared).cloned().collect::<Vec<_>>()
    };
    let listing = braid.json("sets --control control.sock --limit 1000000");
    let shared = of(&listing, true);
    assert!(!shared.is_empty() && !of(&listing, false).is_empty(), "{listing}");
    assert!(shared.iter().all(|set| set["functions"].as_array().map(Vec::len) == Some(1)), "{listing}");
    let address = |set: &Value| {
        let key = set["key"].as_str()?;
        key.split(' ').find(|part| part.contains('.')).map(|part| part.trim_end_matches(":*").to_owned())
    };
    let address = shared.iter().find_map(address).expect("a set with an IPv4 address");
    let filter = format!("--filter {address}");
    let found = braid.json(&format!("sets --control control.sock {filter}"));
    assert!((1..shared.len()).contains(&of(&found, true).len()), "{found}");
    assert!(!braid.ok(&format!("sets --control control.sock {filter} --end")).starts_with("0 "));
    conserved(&run.stop());
    let listing = braid.json("sets torn.toml --in gen:campus?packets=2000&seed=5 --workers 2 --limit 1000000");
    let all = listing["sets"].as_array().map_or(0, Vec::len) as u64;
    assert!(!of(&listing, true).is_empty() && listing["live"].as_u64() == Some(all), "{}", listing["live"]);
}

/// Runs a command with a filter, which has spaces; its JSON.
#[track_caller]
fn filtered(braid: &Braid, line: &str, filter: &str) -> Value {
    let output = braid.command(line).args(["--filter", filter, "--json"]).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn sets_say_what_their_state_means_and_how_long_they_live() {
    let braid = Braid::new();
    dialogue(&braid);
    let listing = braid.json(&format!("sets {NAT} --in in.pcapng"));
    let sets = listing["sets"].as_array().expect("sets");
    let has = |function: &str, words: &[&str]| {
        sets.iter().flat_map(|set| set["meanings"].as_array().expect("meanings")).any(|meaning| {
            let text = meaning["text"].as_str().unwrap_or_default();
            meaning["function"] == function && words.iter().all(|word| text.contains(word))
        })
    };
    assert!(has("nat", &["source ", " → 192.0.2.1:"]) && has("firewall", &["opened from inside by "]), "{listing}");
    let left = |set: &Value| set["meanings"][0]["left_seconds"].as_f64().is_some_and(|left| left > 0.0);
    assert!(sets.iter().all(left), "{listing}");
    assert!(sets.iter().all(|set| set["functions"][0][1].as_str().is_some_and(|hex| !hex.is_empty())), "{listing}");
    let text = braid.ok(&format!("sets {NAT} --in in.pcapng"));
    assert!(text.contains("nat              source ") && text.contains(" s left\n"), "{text}");
}

#[test]
fn a_mapping_is_found_by_its_external_end_when_a_capture_has_come_to_its_end() {
    let braid = Braid::new();
    dialogue(&braid);
    let line = format!("entries {NAT} --in in.pcapng --workers 2");
    let all = braid.json(&line);
    let entries = all["entries"].as_array().expect("entries");
    assert!(!entries.is_empty() && all["is_cut"] == false, "{all}");
    let wanted = &entries[0];
    let filter = format!("dst host {} and dst port {}", wanted["to"].as_str().expect("an address"), wanted["to_port"]);
    let found = filtered(&braid, &line, &filter);
    assert_eq!(found["entries"].as_array(), Some(&vec![wanted.clone()]), "{filter}");
    let inside = format!("src host {}", wanted["from"].as_str().expect("an address"));
    assert!(filtered(&braid, &line, &inside)["entries"].as_array().expect("entries").contains(wanted));
    assert_eq!(filtered(&braid, &line, &filter.replace("dst", "src"))["entries"], Value::Array(Vec::new()));
    let text = braid.ok(&line.replace("--workers 2", "--limit 1"));
    assert!(text.contains("mapping") && text.ends_with("1 entry, and perhaps more: --limit\n"), "{text}");
    let none = braid.ok("entries --nf forward --in in.pcapng");
    assert!(none.starts_with("no function of this chain keeps entries"), "{none}");
}

#[test]
fn mappings_of_a_run_that_goes_on_are_listed_and_searched() {
    let braid = Braid::new();
    let fixed = r#"[{protocol="tcp",inside="10.9.9.9:80",external="192.0.2.1:8080"}]"#;
    let line = format!("{NAT} --set nat.static={fixed} --in gen:campus?packets=4000000000&seed=5 --workers 2");
    let mut run = Running::start(&braid, &line);
    run.until("mappings", |stats| stats["sets"]["live"].as_u64() > Some(1500));
    let few = braid.json("mappings --control control.sock --limit 5");
    assert_eq!((few["entries"].as_array().map(Vec::len), &few["is_cut"]), (Some(5), &Value::Bool(true)));
    assert_eq!(few["functions"], serde_json::json!(["firewall", "nat"]));
    let found = filtered(&braid, "entries --control control.sock", "tcp and dst host 192.0.2.1 and dst port 8080");
    let entries = found["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 1, "{found}");
    let of = |key: &str| entries[0][key].clone();
    assert_eq!((of("from"), of("from_port"), of("detail")), ("10.9.9.9".into(), 80.into(), "static".into()));
    assert_eq!((of("function"), of("left_seconds")), ("nat".into(), Value::Null));
    let many = braid.json("mappings --control control.sock --limit 400");
    assert_eq!((many["entries"].as_array().map(Vec::len), &many["is_cut"]), (Some(400), &Value::Bool(true)));
    // Those of the first worker alone do not suffice, and neither does one portion of them.
    let sets = braid.json("sets --control control.sock --limit 1200");
    let sets = sets["sets"].as_array().expect("sets");
    assert_eq!(sets.len(), 1200);
    assert!(sets.iter().all(|set| set["meanings"].as_array().is_some_and(|all| !all.is_empty())), "{sets:?}");
    let none = braid.ok("sets --control control.sock --filter icmp6");
    assert!(none.contains("`braid entries` lists those of firewall, nat"), "{none}");
    let end = |filter: &str| {
        let ended = filtered(&braid, "entries --control control.sock --end", filter);
        (ended["ended"].as_u64(), ended["configured"].as_u64())
    };
    assert_eq!(end("tcp and dst host 192.0.2.1 and dst port 8080"), (Some(0), Some(1)));
    let (ended, configured) = end("greater 0 or not greater 0");
    assert!(ended > Some(100) && configured == Some(1), "{ended:?} of mappings and queries");
    conserved(&run.stop());
}
