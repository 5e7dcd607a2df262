//! `braid run`, `gen` and `certify` end to end.

mod support;

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use braid_cli::control::runtime::io::capture::{CaptureReader, CaptureWriter, Precision};
use braid_cli::control::runtime::nf::packet::FrameInfo;
use braid_testkit::Frame;
use rustix::process::{Pid, Signal, kill_process};
use support::{Braid, conserved};

/// Packets of a capture, in order.
fn packets(braid: &Braid, name: &str) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(&braid.path(name)).expect("a capture");
    let mut packets = Vec::new();
    while reader.advance().expect("the capture is whole") {
        packets.push(reader.captured().bytes.to_vec());
    }
    packets
}

#[test]
fn every_function_accounts_for_every_packet_on_one_two_and_four_workers() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=3000&seed=3 --out in.pcapng");
    for function in braid_cli::catalog::catalog(Vec::new()).entries().iter().map(|entry| entry.name.as_str()) {
        for workers in [1, 2, 4] {
            let set = if function == "load_balancer" {
                "--set service=[{address=\"198.18.0.1\",backends=[{address=\"192.0.2.1\"}]}]"
            } else {
                ""
            };
            let report =
                braid.json(&format!("run --nf {function} {set} --in in.pcapng --workers {workers} --out out.pcapng"));
            conserved(&report);
            assert_eq!(report["packets_in"], 3000, "{function}");
            assert_eq!(report["workers"].as_array().map(Vec::len), Some(workers));
            assert_eq!(
                packets(&braid, "out.pcapng").len() as u64,
                report["packets_out"].as_u64().unwrap(),
                "{function}"
            );
        }
    }
}

#[test]
fn every_function_runs_behind_one_with_other_sets_on_two_workers() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=1000&seed=3 --out in.pcapng");
    let mut ran = 0;
    for function in braid_cli::catalog::catalog(Vec::new()).names() {
        let run = braid.run(&format!("run --nf flow_counter,{function} --in in.pcapng --workers 2 --json"));
        // Some need to be told more, or have states too long to be shared.
        let Ok(report) = serde_json::from_slice::<serde_json::Value>(&run.stdout) else { continue };
        conserved(&report);
        assert!(report["dropped"]["handler_panic"].is_null(), "{function}: {report}");
        ran += 1;
    }
    assert!(ran >= 12, "only {ran}");
}

#[test]
fn two_workers_send_what_one_sends_in_the_same_order() {
    let braid = Braid::new();
    braid.ok("gen backbone?packets=5000&flows=300 --out in.pcap.gz");
    for distribution in ["hardware", "software"] {
        for workers in [1, 2] {
            let out = format!("out{workers}.pcapng");
            braid.ok(&format!(
                "run --nf flow_counter,forward --in in.pcap.gz --workers {workers} --distribution {distribution} --out {out}"
            ));
        }
        assert!(packets(&braid, "out1.pcapng") == packets(&braid, "out2.pcapng"), "{distribution}: outputs differ");
    }
}

#[test]
fn a_run_in_order_that_is_stopped_has_done_the_beginning_of_what_one_worker_does() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=60000&flows=500 --out in.pcapng");
    let line =
        |workers: u8| format!("run --nf nat --in in.pcapng --workers {workers} --in-order --out out{workers}.pcapng");
    braid.ok(&line(1));
    let mut command = braid.command(&format!("{} --json", line(3)));
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let begun = Instant::now();
    while std::fs::metadata(braid.path("out3.pcapng")).map_or(0, |file| file.len()) < 20_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&run), Signal::TERM).expect("it runs");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("stopped before the end of the input"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    conserved(&report);
    assert_eq!(report["stopped"], true, "{report}");
    let (all, some) = (packets(&braid, "out1.pcapng"), packets(&braid, "out3.pcapng"));
    assert!(some.len() < all.len() && all.starts_with(&some), "{} of {} packets, or others", some.len(), all.len());
}

#[test]
fn workers_that_wait_for_their_turn_hold_no_buffers() {
    let braid = Braid::new();
    let mut writer = CaptureWriter::create(&braid.path("in.pcap"), Precision::Nanoseconds).expect("created");
    // More long frames for each worker than there are buffers for such frames, one flow after another.
    for flow in 0..64 {
        let frame = Frame::udp(&format!("10.0.0.1:{}", 5000 + flow), "192.0.2.1:53").len(3_000).bytes();
        let info = FrameInfo { wire_len: frame.len() as u32, ..FrameInfo::default() };
        (0..100).for_each(|_| writer.write(&frame, &info));
    }
    writer.finish().expect("written");
    // A run that does not end by itself is ended, and is not whole.
    let report = braid.json("run --nf flow_counter --in in.pcap --in-order --workers 8 --sets 1000 --duration 60s");
    assert_eq!((&report["packets_out"], &report["packets_in"]), (&6_400.into(), &6_400.into()), "{report}");
}

#[test]
fn a_run_says_where_its_time_went_if_asked() {
    let braid = Braid::new();
    let text = braid.ok("run --nf flow_counter --in gen:campus?packets=3000&flows=300 --workers 2 --profile");
    for part in
        ["flow_counter from generated campus", "2 workers, measured", "Time per packet", "flow_counter: look-up"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn other_tools_may_stand_before_and_behind() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=3000&flows=300 --out in.pcap.gz");
    braid.ok("run --nf flow_counter --in in.pcap.gz --out whole.pcapng");
    for workers in [1, 2] {
        let output = braid
            .command(&format!("run --nf flow_counter --in - --out - --workers {workers}"))
            .stdin(std::fs::File::open(braid.path("in.pcap.gz")).expect("readable"))
            .output()
            .expect("the binary runs");
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("packets in"), "the table goes to standard error");
        std::fs::write(braid.path("piped.pcapng"), output.stdout).expect("written");
        assert!(packets(&braid, "piped.pcapng") == packets(&braid, "whole.pcapng"), "{workers} workers");
    }
}

#[test]
fn a_packet_goes_through_before_the_next_one_is_sent() {
    let braid = Braid::new();
    braid.ok("gen uniform?packets=1&flows=1 --out one.pcap");
    let capture = std::fs::read(braid.path("one.pcap")).expect("readable");
    let mut run = braid
        .command("run --nf forward --in - --out - --workers 2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let (mut to, mut from) = (run.stdin.take().expect("piped"), run.stdout.take().expect("piped"));
    to.write_all(&capture).expect("written");
    // Waits for ever if the packet waits for another.
    let mut head = [0; 28 + 32 + 60];
    from.read_exact(&mut head).expect("the packet comes out while the input is still open");
    drop(to);
    assert!(run.wait().expect("it ends").success());
}

#[test]
fn a_capture_without_inside_addresses_is_pointed_out() {
    let braid = Braid::new();
    braid.ok("gen uniform?packets=50&flows=5 --out in.pcap");
    let said = |line: &str| String::from_utf8_lossy(&braid.run(line).stderr).into_owned();
    let note = said("run --nf nat --in in.pcap --inside 203.0.113.0/24");
    let words: Vec<&str> = note.split_whitespace().collect();
    let (at, _) = words.iter().enumerate().find(|(_, word)| **word == "--inside").expect("an example");
    let follows = said(&format!("run --nf nat --in in.pcap --inside {}", words[at + 1]));
    assert!(!follows.contains("no packet comes from inside"), "{follows}");
    let one = said("run --nf nat --in in.pcap --inside 203.0.113.7");
    assert!(one.contains("no packet comes from inside (203.0.113.7/32)"), "a single address is a range too: {one}");
    assert!(!said("run --nf forward --in in.pcap").contains("inside"), "forward does not ask for sides");
}

#[test]
fn packet_sets_that_no_steering_keeps_together_are_shared_and_certified() {
    let braid = Braid::new();
    let chain = "--nf flow_counter,policer,bridge --workers 2 --in gen:campus?packets=600";
    conserved(&braid.json(&format!("run {chain}")));
    let output = braid.run(&format!("run {chain}"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("shared state"));
    assert_eq!(braid.json(&format!("certify {chain} --runs 4"))["violation"], serde_json::Value::Null);
}

#[test]
fn files_for_ports_keep_their_ports() {
    let braid = Braid::new();
    braid.ok("gen uniform?packets=100&flows=10&seed=1 --out a.pcap");
    braid.ok("gen uniform?packets=200&flows=10&seed=2 --out b.pcap");
    let report = braid.json("run --nf forward --in 1=b.pcap --in 0=a.pcap --out 0=x.pcap --out 1=y.pcap");
    conserved(&report);
    assert_eq!((packets(&braid, "x.pcap").len(), packets(&braid, "y.pcap").len()), (200, 100));
}

#[test]
fn a_single_file_that_names_its_port_is_not_split() {
    let braid = Braid::new();
    let office = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traffic/office.pcapng");
    for (port, is_split) in [("", true), ("0=", false)] {
        let report = braid.json(&format!("run --nf firewall --in {port}{office} --out 0=x.pcap --out 1=y.pcap"));
        conserved(&report);
        assert_eq!(!packets(&braid, "x.pcap").is_empty(), is_split, "what came by port 1");
        assert!(!packets(&braid, "y.pcap").is_empty());
    }
}

#[test]
fn the_folder_of_an_output_is_made() {
    let braid = Braid::new();
    braid.ok("run --nf forward --in gen:uniform?packets=10&flows=2 --out out/of/runs/a.pcapng");
    assert_eq!(packets(&braid, "out/of/runs/a.pcapng").len(), 10);
}

#[test]
fn ctrl_c_ends_the_run_and_leaves_a_capture_that_can_be_read() {
    let braid = Braid::new();
    let mut command =
        braid.command("run --nf flow_counter --in gen:uniform?packets=4000000000&flows=100 --out out.pcap --json");
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().expect("it runs");
    let begun = Instant::now();
    while std::fs::metadata(braid.path("out.pcap")).map_or(0, |file| file.len()) < 100_000 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was written");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{:?}", output.status);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    conserved(&report);
    assert_eq!(packets(&braid, "out.pcap").len() as u64, report["packets_out"].as_u64().unwrap());
}

#[test]
fn a_duration_ends_a_run() {
    let braid = Braid::new();
    let begun = Instant::now();
    conserved(&braid.json("run --nf forward --in gen:uniform?packets=4000000000&flows=100 --duration 300ms"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn functions_are_certified_on_generated_traffic() {
    let braid = Braid::new();
    for function in ["flow_counter", "bridge", "nat", "firewall"] {
        let input = "gen:campus?packets=600&reverse=0.4";
        let certificate = braid.json(&format!("certify --nf {function} --in {input} --workers 2 --runs 6"));
        assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
        assert_eq!(certificate["runs"].as_array().map(Vec::len), Some(6));
    }
}

#[test]
fn the_same_seed_generates_the_same_packets() {
    let braid = Braid::new();
    braid.ok("gen edge?packets=500&seed=9 --out a.pcap");
    braid.ok("gen gen:edge?packets=500&seed=9 --out b.pcap");
    braid.ok("gen edge?packets=500&seed=8 --out c.pcap");
    let read = |name| std::fs::read(braid.path(name)).unwrap();
    assert!(read("a.pcap") == read("b.pcap") && read("a.pcap") != read("c.pcap"));
}

#[test]
fn the_table_for_people_says_what_happened() {
    let braid = Braid::new();
    let text = braid.ok("run --nf flow_counter --in gen:uniform?packets=1000&flows=50 --workers 2");
    let line = |start: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(start))
            .unwrap_or_else(|| panic!("no `{start}` in\n{text}"))
    };
    assert!(line("packets in").contains("1,000"));
    assert!(line("packet sets live").contains("50"));
    assert!(line("worker 1").contains('%'));
}

#[test]
fn findings_stand_under_the_table_and_in_the_json() {
    let braid = Braid::new();
    let scan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traffic/scan.pcap");
    let table = braid.ok(&format!("run --nf port_scan,abacus --workers 2 --in {scan}"));
    let found = table.split_once("found by port_scan\n").expect("findings").1;
    assert!(found.contains("scanner  10.1.0.14   ") && found.contains("first contacts failed"), "{table}");
    assert!(table.contains("found by abacus") && table.contains("10.1.0.14 bytes charged"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&braid.ok(&format!("run --json --nf port_scan --in {scan}"))).expect("JSON");
    let told = &json["findings"]["port_scan"];
    assert_eq!(
        (told["found"][0]["kind"].as_str(), told["found"][0]["subject"].as_str()),
        (Some("scanner"), Some("10.1.0.14"))
    );
    assert!(told["sums"]["hosts that open connections"].as_u64() > Some(0));
}

#[test]
fn load_moves_between_workers_and_nobody_can_tell() {
    let braid = Braid::new();
    let few = "--in gen:skewed?packets=6000&flows=60&seed=3 --distribution software --balance --balance-every 200";
    for chain in ["--nf nat", "--nf flow_counter,firewall --set firewall.inbound=allow"] {
        let report = braid.json(&format!("run {chain} {few} --workers 3"));
        conserved(&report);
        assert!(report["balanced"]["looks"].as_u64() > Some(20), "{report}");
        let certificate = braid.json(&format!("certify {chain} {few} --workers 3 --runs 4 --packets 3000"));
        assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
    }
    let flows = braid.json(&format!("run --nf flow_counter {few} --workers 3"));
    assert!(flows["balanced"]["sets"].as_u64() > Some(0), "{flows}");
    let text = braid.ok(&format!("run --nf flow_counter {few} --workers 3"));
    assert!(text.contains("entries moved") && text.contains(" ms at the longest"), "{text}");
}

/// Who finds a full table of sets that workers share is decided by one of them after another: whoever has to wait for its turn to be told
/// so begins again with its packet.
#[test]
fn full_tables_of_shared_sets_refuse_and_are_certified() {
    let braid = Braid::new();
    braid.write(
        "full.toml",
        "workers = 2\nsets = 64\n[[nf]]\nfunction = \"load_balancer\"\n[[nf.config.service]]\naddress = \"198.18.0.1\"\n\
         backends = [{ address = \"100.64.0.1\" }]\n[[nf]]\nfunction = \"shaper\"\nconfig.by = \"source\"\n",
    );
    let input = "--in gen:campus?packets=20000&flows=2000&seed=3";
    let certificate = braid.json(&format!("certify full.toml --runs 4 {input}"));
    assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
    let report = braid.json(&format!("run full.toml {input}"));
    conserved(&report);
    assert!(report["dropped"]["set_table_full"].as_u64() > Some(0), "{report}");
}

/// Far more flows than the table holds: what a full table does, counted, conserved and certified.
#[test]
fn full_tables_evict_under_churn_and_are_certified() {
    let braid = Braid::new();
    let uniform = "--in gen:uniform?packets=3000&flows=2000&reverse=0.3";
    // Connections of TCP, some of them established.
    let campus = "--in gen:campus?packets=6000&flows=2000&seed=3";
    let chains = [["flow_counter", "rate_limiter"], ["firewall", "nat"], ["firewall", "nat"]];
    for (functions, input) in chains.into_iter().zip([uniform, uniform, campus]) {
        let nf = functions.map(|name| format!("[[nf]]\nfunction = \"{name}\"\nfull = \"evict_oldest\"\n")).concat();
        braid.write("full.toml", &format!("workers = 2\nsets = 128\n{nf}"));
        let report = braid.json(&format!("run full.toml {input}"));
        conserved(&report);
        let sets = |key: &str| report["sets"][key].as_u64().unwrap();
        // 96 of 128 for each of two workers, in at most two tables.
        assert!(sets("evicted") > 400 && sets("refused") == 0 && sets("live") <= 384, "{report}");
        let certificate = braid.json(&format!("certify full.toml --runs 4 --workers 3 --packets 2000 {input}"));
        assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
    }
    // Sets that the workers share, of which there may be a batch more for each of them.
    braid.write("shared.toml", "workers = 2\nsets = 128\n[[nf]]\nfunction = \"flow_counter\"\npacket_set = { fields = [\"ip.src\"] }\n[[nf]]\nfunction = \"policer\"\nfull = \"evict_oldest\"\n");
    let report = braid.json(&format!("run shared.toml {campus}"));
    conserved(&report);
    assert!(report["sets"]["evicted"].as_u64() > Some(100), "{report}");
    let certificate = braid.json(&format!("certify shared.toml --runs 4 --workers 3 --packets 2000 {campus}"));
    assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
}

/// The plan of a gateway is tried on a capture in the place of its interfaces.
#[test]
fn a_plan_with_interfaces_is_tried_on_a_capture() {
    let braid = Braid::new();
    braid.write(
        "gateway.toml",
        "user = \"nobody\"\n[[port]]\ndevice = \"in0\"\n[[port]]\ndevice = \"out0\"\n[[nf]]\nfunction = \"nat\"\n",
    );
    let input = "--in gen:campus?packets=500&flows=20&seed=3";
    let report = braid.json(&format!("run gateway.toml {input}"));
    conserved(&report);
    assert_eq!(report["packets_in"], 500, "{report}");
    let certificate = braid.json(&format!("certify gateway.toml --runs 2 {input}"));
    assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
    assert!(braid.ok(&format!("trace udp gateway.toml {input} -n 1")).contains("nat"));
}

/// The first function of a batch that lasts seconds would leave the bucket empty for what the second has to let through.
#[test]
fn functions_with_one_bucket_take_from_it_in_the_order_of_time() {
    let braid = Braid::new();
    let policer = |name: &str, port: u8| {
        let head = format!("[[nf]]\nfunction = \"policer\"\nname = \"{name}\"\nwhen = {{ in = [{port}] }}\n");
        format!("{head}share = {{ link = \"line\" }}\n[nf.config]\nlink = {{ per_s = 4000, burst = 3000 }}\n")
    };
    let plan = |atomic: &str| format!("[chain]\natomic = \"{atomic}\"\n{}{}", policer("up", 0), policer("down", 1));
    let input = "--in gen:campus?packets=3000&flows=50&reverse=0.5&rate=20&seed=7";
    let passed = |atomic: &str, more: &str| {
        braid.write("plan.toml", &plan(atomic));
        let report = braid.json(&format!("run plan.toml {input} {more}"));
        conserved(&report);
        let of = |name: &str| report["dropped_by_nf"][name]["link_exceeded"].as_i64().expect("a number");
        [report["packets_out"].as_i64().expect("a number"), of("up"), of("down")]
    };
    let one_by_one = passed("chain", "--workers 1");
    for more in ["--workers 1", "--workers 1 --distribution software", "--workers 3 --in-order"] {
        let by_function = passed("function", more);
        let is_near = |(one, other): (&i64, &i64)| (one - other).abs() <= 30;
        assert!(one_by_one.iter().zip(&by_function).all(is_near), "{more}: {one_by_one:?} {by_function:?}");
    }
    let certificate = braid.json(&format!("certify plan.toml {input} --workers 3 --runs 4 --packets 1000"));
    assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
}
