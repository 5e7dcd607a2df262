//! State saved and put back: a run in two halves does what one run does.

mod support;

use braid_cli::control::runtime::io::capture::{CaptureReader, CaptureWriter, Precision};
use braid_cli::control::runtime::nf::packet::FrameInfo;
use braid_testkit::Frame;
use support::running::Running;
use support::{Braid, conserved};

/// Frames of a capture with what is known of them.
fn frames(braid: &Braid, name: &str) -> Vec<(Vec<u8>, FrameInfo)> {
    let mut reader = CaptureReader::open(&braid.path(name)).expect("a capture");
    let mut frames = Vec::new();
    while reader.advance().expect("whole") {
        let captured = reader.captured();
        let info = FrameInfo {
            timestamp_ns: captured.timestamp_ns.unwrap_or(0),
            wire_len: captured.wire_len,
            sequence: frames.len() as u64,
            ..FrameInfo::default()
        };
        frames.push((captured.bytes.to_vec(), info));
    }
    frames
}

fn write(braid: &Braid, name: &str, frames: &[(Vec<u8>, FrameInfo)]) {
    let mut writer = CaptureWriter::create(&braid.path(name), Precision::Nanoseconds).expect("a capture");
    frames.iter().for_each(|(bytes, info)| writer.write(bytes, info));
    writer.finish().expect("written");
}

fn bytes(braid: &Braid, name: &str) -> Vec<Vec<u8>> {
    frames(braid, name).into_iter().map(|(bytes, _)| bytes).collect()
}

#[test]
fn a_run_in_two_halves_sends_what_one_run_sends_whatever_the_number_of_workers() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=3000&flows=200&seed=11&reverse=0.4 --out whole.pcapng");
    let whole = frames(&braid, "whole.pcapng");
    write(&braid, "first.pcapng", &whole[..1500]);
    write(&braid, "second.pcapng", &whole[1500..]);
    for chain in
        ["firewall,nat", "bridge", "flow_counter,load_balancer", "policer", "connection_limiter", "heavy_hitters"]
    {
        braid.ok(&format!("run --nf {chain} --in whole.pcapng --workers 1 --out whole.out.pcapng"));
        let wanted = bytes(&braid, "whole.out.pcapng");
        for (before, after) in [(1, 1), (1, 2), (2, 1), (2, 4)] {
            let run = |line: &str, workers: usize| {
                let output = braid.run(&format!("run --nf {chain} {line} --workers {workers} --json"));
                conserved(&serde_json::from_slice(&output.stdout).expect("a report"));
                let notes = String::from_utf8_lossy(&output.stderr);
                assert!(!notes.contains("found no place"), "{chain}, {before} workers, then {after}: {notes}");
            };
            run("--in first.pcapng --out first.out.pcapng --snapshot state", before);
            run("--in second.pcapng --out second.out.pcapng --restore state", after);
            let halves = [bytes(&braid, "first.out.pcapng"), bytes(&braid, "second.out.pcapng")].concat();
            // What a bridge floods depends on which worker learns first.
            if chain != "bridge" {
                assert_eq!(halves.len(), wanted.len(), "{chain}, {before} workers, then {after}");
            }
            if (before, after) == (1, 1) {
                assert!(halves == wanted, "{chain}: another packet came out");
            }
        }
    }
}

#[test]
fn a_run_is_saved_while_it_goes_on_and_continued_by_another() {
    let braid = Braid::new();
    let traffic = "--nf firewall,nat --in gen:campus?packets=4000000000&flows=300&seed=5 --time live";
    let mut run = Running::start(&braid, &format!("{traffic} --workers 2"));
    run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    let taken = braid.json("snapshot state --control control.sock");
    let saved = taken["sets"].as_u64().expect("a count");
    assert!(saved > 50, "{taken}");
    assert_eq!(run.until("packets", |_| true)["missing"], 0);
    run.stop();
    let mut next = Running::start(&braid, &format!("{traffic} --workers 1 --restore state"));
    let stats = next.until("packets", |_| true);
    assert!(stats["sets"]["created"].as_u64() >= Some(saved), "{stats}");
    conserved(&next.stop());
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    let braid = Braid::new();
    let line = "run --nf nat --in gen:campus?packets=500 --workers 1";
    braid.ok(&format!("{line} --snapshot state"));
    let refused = |code, line: &str, part: &str| {
        let said = braid.fails(code, line);
        assert!(said.contains(part), "{said}");
    };
    refused(2, &format!("{line} --restore state --set first_port=2000"), "`first_port`");
    refused(2, &format!("{line} --restore state --time live"), "time = \"capture\"");
    refused(3, &format!("{line} --restore nothing"), "No such file");
    refused(3, &format!("{line} --snapshot state/inside"), "a file stands where a folder would have to be");
    assert!(!braid.path("state.partial").exists());
    braid.ok(&format!("{line} --restore state --set udp_s=10"));
    let flood = "run --nf anti_ddos --in gen:campus?packets=500 --workers 1";
    braid.ok(&format!("{flood} --snapshot flows"));
    refused(
        2,
        &format!("{flood} --restore flows --set action=cookies"),
        "anti_ddos of another sort, which keeps other",
    );
    let mut bytes = std::fs::read(braid.path("state")).expect("a file");
    bytes[100] ^= 1;
    std::fs::write(braid.path("state"), bytes).expect("a file");
    refused(3, &format!("{line} --restore state"), "checksum");
    braid.write("state", "nothing of that kind");
    refused(3, &format!("{line} --restore state"), "not a snapshot");
}

#[test]
fn sets_that_no_packet_would_find_again_are_refused() {
    let braid = Braid::new();
    let firewall = "[[nf]]\nfunction = \"firewall\"\n";
    let counter = "[[nf]]\nfunction = \"flow_counter\"\n";
    let finer = "packet_set = { fields = [\"vlan\", \"ip.src\", \"ip.dst\", \"ip.proto\", \"port.src\", \"port.dst\"], symmetric = true }\n";
    let plans = [
        ("one", firewall.to_owned()),
        ("longer", format!("{firewall}{counter}")),
        // A chain with such a function is mirrored if nothing else is written.
        (
            "mirrored",
            format!(
                "{firewall}[[nf]]\nfunction = \"nptv6\"\nconfig = {{ inside = \"fd01:203:405::/48\", outside = \"2001:db8:1::/48\" }}\n"
            ),
        ),
        ("turned", format!("[chain]\noutside = [0]\n{firewall}{counter}")),
        ("outside", format!("[chain]\noutside = [1]\n{firewall}{counter}")),
        ("finer", format!("{firewall}{finer}")),
    ];
    plans.iter().for_each(|(name, text)| braid.write(&format!("{name}.toml"), text));
    let run = |plan: &str, rest: &str| format!("run {plan}.toml --in gen:campus?packets=300 --workers 1 {rest}");
    for (before, after, words) in [
        (
            "one",
            "mirrored",
            "packets from outside would meet the functions in another order, and packet sets are kept by",
        ),
        ("outside", "longer", "packets from outside would meet the functions in another order"),
        ("outside", "turned", "packets from outside would meet the functions in another order"),
        ("one", "finer", "firewall: its packet set would be another one"),
        ("finer", "one", "firewall: its packet set would be another one"),
    ] {
        braid.ok(&run(before, "--snapshot state"));
        let refused = braid.fails(2, &run(after, "--restore state"));
        assert!(refused.contains(words) && !refused.contains("restored from"), "{before}, then {after}: {refused}");
    }
    for (before, after) in [("one", "longer"), ("longer", "one"), ("outside", "outside"), ("finer", "finer")] {
        braid.ok(&run(before, "--snapshot state"));
        braid.ok(&run(after, "--restore state"));
    }
    braid.ok(&run("one", "--state kept"));
    let output = braid.run(&run("mirrored", "--state kept"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("begins without that state, which is in kept.refused"), "{said}");
}

#[test]
fn a_function_that_cannot_go_on_leaves_the_others_their_state() {
    let braid = Braid::new();
    let plan = |by: &str, outside: &str| {
        let policer = format!("[[nf]]\nfunction = \"policer\"\nconfig = {{ by = \"{by}\" }}\n");
        let nptv6 =
            format!("[[nf]]\nfunction = \"nptv6\"\nconfig = {{ inside = \"fd00::/48\", outside = \"{outside}\" }}\n");
        format!("[[nf]]\nfunction = \"nat\"\n{policer}{nptv6}")
    };
    braid.write("before.toml", &plan("source", "2001:db8:1::/48"));
    braid.write("after.toml", &plan("destination", "2001:db8:2::/48"));
    let run = |plan: &str| {
        let output =
            braid.run(&format!("run {plan} --in gen:uniform?packets=500&flows=100&seed=5 --workers 1 --state kept"));
        let said = String::from_utf8_lossy(&output.stderr).replace(',', "");
        assert!(output.status.success(), "{said}");
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    run("before.toml");
    let said = run("after.toml");
    assert!(said.contains("restored from kept: 100 packet sets"), "those of the nat: {said}");
    assert!(said.contains("policer: buckets hold what they were filled with"), "{said}");
    assert!(said.contains("the function begins without its state which is in kept.refused now"), "{said}");
    assert_eq!(said.matches("begins without").count(), 1, "nptv6 has no state to lose: {said}");
    // The old state is there for the former plan.
    braid.ok("run before.toml --in gen:uniform?packets=500&flows=100&seed=5 --workers 1 --restore kept.refused");
}

#[test]
fn sets_that_workers_share_are_counted_with_their_own() {
    let braid = Braid::new();
    let by = |by: &str| format!("[[nf]]\nfunction = \"policer\"\nname = \"by_{by}\"\nconfig = {{ by = \"{by}\" }}\n");
    braid.write("plan.toml", &format!("{}{}", by("source"), by("destination")));
    let run = "run plan.toml --in gen:uniform?packets=5000&flows=300&seed=5 --workers 2 --json";
    let said = |line: &str| {
        let output = braid.run(line);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        (report["sets"].clone(), String::from_utf8_lossy(&output.stderr).replace(',', ""))
    };
    let (first, text) = said(&format!("{run} --snapshot state"));
    let live = first["live"].as_u64().expect("a count");
    assert!(live > 500, "about one for each flow and function: {first}");
    assert!(text.contains(&format!("{live} packet sets and 1 state object saved")), "{text}");
    let (second, text) = said(&format!("{run} --restore state"));
    assert!(text.contains(&format!("restored from state: {live} packet sets")), "{text}");
    assert_eq!((&second["live"], &second["created"]), (&first["live"], &first["live"]), "the same flows again");
    // One worker shares no sets. They become its own, with their states, and shared ones again.
    let alone = |files: &str| said(&format!("{run} {files}").replacen("--workers 2", "--workers 1", 1)).0;
    let third = alone("--restore state --snapshot own");
    assert_eq!((&third["live"], &third["created"]), (&first["live"], &first["live"]), "the same flows again");
    assert_eq!(said(&format!("{run} --restore own")).0, third);
}

#[test]
fn what_shared_sets_hold_goes_along_to_another_number_of_workers() {
    let braid = Braid::new();
    let by = |by: &str| {
        format!(
            "[[nf]]\nfunction = \"policer\"\nname = \"by_{by}\"\nconfig = {{ by = \"{by}\", bytes_per_s = 1000, burst_bytes = 2000 }}\n"
        )
    };
    braid.write("plan.toml", &format!("{}{}", by("source"), by("destination")));
    braid.ok("gen uniform?packets=2000&flows=50&seed=5 --out in.pcapng");
    let passed = |workers: u8, files: &str| {
        let report = braid.json(&format!("run plan.toml --in in.pcapng --in-order --workers {workers} {files}"));
        report["packets_out"].as_u64().expect("a count")
    };
    let fresh = passed(2, "--snapshot two");
    let again = passed(2, "--restore two");
    assert!(again < fresh, "the buckets are empty: {again} of {fresh}");
    assert_eq!(passed(1, "--restore two --snapshot one"), again);
    passed(1, "--snapshot one");
    assert_eq!(passed(2, "--restore one"), again);
}

#[test]
fn another_program_continues_a_run_with_its_state_and_its_socket() {
    let braid = Braid::new();
    let mut run =
        Running::start(&braid, "--nf nat --in gen:campus?packets=4000000000&flows=300&seed=5 --time live --workers 2");
    let before = run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(100));
    assert!(braid.fails(1, "upgrade --program /etc/passwd --control control.sock").contains("no program"));
    // What the next process would not understand is found out before this one ends.
    assert!(braid.fails(1, "upgrade --program /bin/true --control control.sock").contains("does not go on with a run"));
    for _ in 0..2 {
        let after = run.upgrade("");
        assert!(after["sets"]["created"].as_u64() >= before["sets"]["live"].as_u64(), "{after}");
        assert_eq!(after["missing"], 0);
        run.until("the state that was left has served", |_| !braid.path("control.sock.state").exists());
    }
    conserved(&run.stop());
}

#[test]
fn another_number_of_workers_goes_on_with_the_state_in_another_process() {
    let braid = Braid::new();
    braid.write("plan.toml", "workers = 2\n[[nf]]\nfunction = \"nat\"\n");
    let traffic = "--in gen:campus?packets=4000000000&flows=300&seed=5 --time live";
    let mut run = Running::start(&braid, &format!("plan.toml {traffic}"));
    let before = run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(100));
    braid.write("one.toml", "workers = 1\n[[nf]]\nfunction = \"nat\"\nconfig = { udp_s = 100 }\n");
    let refused = braid.fails(1, "apply one.toml --control control.sock");
    assert!(refused.contains("`workers` cannot change") && refused.contains("braid upgrade PLAN"), "{refused}");
    let workers = |stats: &serde_json::Value| stats["workers"].as_array().map(Vec::len);
    let mut upgraded = |plan: &str, wanted: usize| {
        let after = run.upgrade(plan);
        assert_eq!(workers(&after), Some(wanted));
        assert!(after["sets"]["created"].as_u64() >= before["sets"]["live"].as_u64(), "{after}");
    };
    upgraded("one.toml", 1);
    // What a file leaves open stays as it was last, also in the process after the next.
    braid.write("open.toml", "[[nf]]\nfunction = \"nat\"\nconfig = { udp_s = 200 }\n");
    assert!(braid.ok("apply open.toml --control control.sock").contains("changed  nat"));
    braid.write("plan.toml", "by now no plan");
    upgraded("", 1);
    braid.write("plan.toml", "workers = 2\n[[nf]]\nfunction = \"nat\"\n");
    upgraded("plan.toml", 2);
    let refused = braid.fails(1, "snapshot plan.toml --control control.sock");
    assert!(refused.contains("not a snapshot of braid, and is left alone"), "{refused}");
    braid.write("other.toml", "workers = 1\n[[nf]]\nfunction = \"nat\"\nconfig = { first_port = 2000 }\n");
    let refused = braid.fails(1, "upgrade other.toml --control control.sock");
    assert!(refused.contains("`first_port`"), "{refused}");
    assert_eq!(workers(&run.until("packets", |_| true)), Some(2), "after a refusal nothing has changed");
    assert!(braid.path("control.sock.applied.toml").exists(), "the next process would go on with it");
    conserved(&run.stop());
    assert!(!braid.path("control.sock.applied.toml").exists() && !braid.path("control.sock.state").exists());
}

/// As systemd starts it, again and again by one line.
#[test]
fn a_service_goes_on_with_the_state_that_it_left_and_begins_without_one_that_does_not_fit() {
    let braid = Braid::new();
    let said = |rest: &str| {
        let line = format!("run --nf nat --in gen:campus?packets=500 --state state {rest}");
        let output = braid.run(&line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("packet sets and"), "{line}: {said}");
        said
    };
    assert!(!said("").contains("restored"), "there is nothing yet");
    assert!(said("").contains("restored from state: "));
    assert!(said("--workers 1").contains("restored from state: "));
    let refused = said("--set first_port=2000");
    assert!(refused.contains("begins without that state, which is in state.refused now"), "{refused}");
    assert!(refused.contains("`first_port`") && !refused.contains("restored from"), "{refused}");
    assert!(said("--set first_port=2000").contains("restored from state: "));
    assert!(said("--restore state.refused").contains("restored from state.refused: "), "what is named goes before");
    std::fs::write(braid.path("state"), &std::fs::read(braid.path("state")).expect("a state")[..100]).expect("room");
    assert!(said("").contains("begins without that state"), "a damaged one");
    // After a power failure a file may be there with zeros in it.
    std::fs::write(braid.path("state"), [0; 3000]).expect("room");
    assert!(said("").contains("begins without that state, which is in state.refused now"), "a blank one");
    assert!(said("").contains("restored from state: "));
    braid.write("state", "somebody's");
    let others = braid.fails(3, "run --nf nat --in gen:campus?packets=9 --state state");
    assert!(others.contains("not a snapshot of braid, and is left alone"), "{others}");
    // What only the chain as a whole can tell: there is no room for the sets that workers would share.
    let by_source = "[[nf]]\nfunction = \"flow_counter\"\npacket_set = { fields = [\"ip.src\"] }\n";
    braid.write("torn.toml", &format!("{by_source}[[nf]]\nfunction = \"policer\"\n"));
    let torn = "torn.toml --in gen:campus?packets=500&flows=200 --state torn";
    assert!(braid.run(&format!("run {torn} --workers 2")).status.success());
    let output = braid.run(&format!("run {torn} --workers 2 --sets 20"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("begins without that state, which is in torn.refused now"),
        "{said}"
    );
    assert!(braid.path("torn").exists() && !said.contains("restored from"), "it has left its own: {said}");
    assert!(braid.fails(2, "run --nf nat --in gen:campus --state a --snapshot b").contains("cannot be used with"));
    braid.write("plan.toml", "[[nf]]\nfunction = \"nat\"\n");
    let own = braid.fails(2, "run plan.toml --in gen:campus?packets=9 --state plan.toml");
    assert!(own.contains("is to be read, and the state"), "{own}");
}

#[test]
fn the_state_of_a_function_that_the_plan_has_not_is_left_out_and_said_to_be() {
    let braid = Braid::new();
    let input = "--in gen:campus?packets=200";
    braid.ok(&format!("run --nf flow_counter,nat {input} --snapshot state"));
    let said = |line: &str| String::from_utf8_lossy(&braid.run(line).stderr).into_owned();
    let other = said(&format!("run --nf firewall {input} --restore state"));
    assert!(other.contains("restored from state: 0 packet sets"), "{other}");
    assert!(other.contains("the state of `nat` is left out: no function of the plan has this name"), "{other}");
    let same = said(&format!("run --nf flow_counter,nat {input} --restore state"));
    assert!(!same.contains("left out") && !same.contains(": 0 packet sets"), "{same}");
}

/// Segments of 10.0.0.1 to a server from one port after another, `flags` at a second, and what lets time pass.
fn segments(braid: &Braid, name: &str, parts: &[(u64, &str, std::ops::Range<u16>)]) {
    let mut all = Vec::new();
    let mut add = |second: u64, bytes: Vec<u8>| {
        let (timestamp_ns, wire_len) = (second * 1_000_000_000, bytes.len() as u32);
        all.push((bytes, FrameInfo { timestamp_ns, wire_len, ..FrameInfo::default() }));
    };
    for (second, flags, ports) in parts {
        let frame = |port| Frame::tcp(&format!("10.0.0.1:{port}"), "192.0.2.9:80").flags(flags).numbers(2, 0);
        ports.clone().for_each(|port| add(*second, frame(port).bytes()));
        (50..60).for_each(|later| add(second + later, Frame::arp("10.0.0.1", "10.0.0.2").bytes()));
    }
    all.sort_by_key(|(_, info)| info.timestamp_ns);
    write(braid, name, &all);
}

/// What a firewall dropped, whose limits were one thing after another.
fn dropped(limits: &[&str], parts: &[&[(u64, &str, std::ops::Range<u16>)]]) -> String {
    let braid = Braid::new();
    let mut report = serde_json::Value::Null;
    for (at, (limits, parts)) in limits.iter().zip(parts).enumerate() {
        segments(&braid, "in.pcapng", parts);
        let restore = if at == 0 { String::new() } else { format!("--restore {at}.state") };
        let line = format!(
            "run --nf firewall {limits} --in in.pcapng --workers 1 --batch 1 --sets 100 {restore} --snapshot {}.state",
            at + 1
        );
        report = braid.json(&line);
        conserved(&report);
    }
    report["dropped"].to_string()
}

#[test]
fn what_a_firewall_counts_is_counted_out_whatever_its_limits_are_meanwhile() {
    let ended: &[_] = &[(100, "R", 1..5)];
    // Of those that were half open nothing is left when there is a limit again.
    let (before, after): (&[_], &[_]) = (&[(0, "S", 1..5)], &[(200, "S", 11..16)]);
    let half_open = ["--set half_open_max=4", "--set half_open_max=0", "--set half_open_max=4"];
    assert_eq!(dropped(&half_open, &[before, ended, after]), r#"{"half_open_limit":1}"#);
    let of_host = ["--set host_connections_max=4", "", "--set host_connections_max=4"];
    assert_eq!(dropped(&of_host, &[before, ended, after]), r#"{"host_limit":1}"#);
    // Those that no limit has counted take nobody's place when they end, and nobody's end makes room for more.
    let counted: &[_] = &[(100, "S", 11..15), (101, "R", 1..5), (170, "S", 21..22)];
    let of_host = ["", "--set host_connections_max=4"];
    assert_eq!(dropped(&of_host, &[before, counted]), r#"{"host_limit":1}"#);
}

#[test]
fn functions_keep_their_sets_whether_they_share_records_or_not() {
    let braid = Braid::new();
    let counter = |name: &str, more: &str| format!("[[nf]]\nfunction = \"flow_counter\"\nname = \"{name}\"\n{more}");
    let apart = counter("a", "") + &counter("b", "full = \"evict_oldest\"\n");
    braid.write("together.toml", &(counter("a", "") + &counter("b", "")));
    braid.write("apart.toml", &apart);
    braid.ok("gen campus?packets=3000&flows=200 --out in.pcapng");
    braid.ok("gen campus?packets=1&flows=200 --out one.pcapng");
    // How many sets are live at the end.
    let live = |line: &str| {
        let output = braid.run(&format!("run {line} --json"));
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !notes.contains("found no place"), "{notes}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        report["sets"]["live"].as_u64().expect("a count")
    };
    for workers in [1, 2] {
        let end = format!("--workers {workers}");
        let in_one = live(&format!("together.toml --in in.pcapng {end} --snapshot one"));
        let in_two = live(&format!("apart.toml --in in.pcapng {end} --snapshot two"));
        assert_eq!(in_two, 2 * in_one);
        assert_eq!(live(&format!("apart.toml --in one.pcapng {end} --restore one --snapshot back")), in_two);
        assert_eq!(live(&format!("together.toml --in one.pcapng {end} --restore two")), in_one);
        assert_eq!(live(&format!("together.toml --in one.pcapng {end} --restore back --snapshot again")), in_one);
        assert_eq!(live(&format!("apart.toml --in one.pcapng {end} --restore again")), in_two);
    }
}

/// Runs the plan with these hundred packets on one worker and goes on with them on two: each belongs to a set of the first run.
#[track_caller]
fn find_their_workers(braid: &Braid, packets: &[(Vec<u8>, FrameInfo)]) {
    write(braid, "packets.pcapng", packets);
    let line = "run plan.toml --in packets.pcapng --json";
    braid.ok(&format!("{line} --workers 1 --snapshot state"));
    let output = braid.run(&format!("{line} --workers 2 --restore state"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((&report["sets"]["live"], &report["sets"]["created"]), (&100.into(), &100.into()), "{report}");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(!notes.contains("found no place"), "{notes}");
}

#[test]
fn sets_of_pings_find_their_workers_in_both_versions_of_ip() {
    let braid = Braid::new();
    braid.write(
        "plan.toml",
        "[[nf]]\nfunction = \"flow_counter\"\n[nf.packet_set]\nfields = [\"ip.src\", \"ip.dst\", \"icmp.id\"]\n",
    );
    let ping = |id: u16| {
        let ends = if id.is_multiple_of(2) { ["10.0.0.1", "192.0.2.1"] } else { ["2001:db8::1", "2001:db8::2"] };
        let bytes = Frame::echo_request(ends[0], ends[1], id, 1).bytes();
        let info = FrameInfo { wire_len: bytes.len() as u32, sequence: id.into(), ..FrameInfo::default() };
        (bytes, info)
    };
    find_their_workers(&braid, &(0..100).map(ping).collect::<Vec<_>>());
}

#[test]
fn sets_of_some_protocols_find_their_workers() {
    let braid = Braid::new();
    let plan = "[[nf]]\nfunction = \"flow_counter\"\n[nf.packet_set]\nfields = [\"ip.src\"]\nprotocols = [6]\n";
    braid.write("plan.toml", plan);
    let segment = |host: u16| {
        let [high, low] = host.to_be_bytes();
        let bytes = Frame::tcp(&format!("10.0.{high}.{low}:1000"), "192.0.2.1:80").bytes();
        let info = FrameInfo { wire_len: bytes.len() as u32, sequence: host.into(), ..FrameInfo::default() };
        (bytes, info)
    };
    find_their_workers(&braid, &(1..101).map(segment).collect::<Vec<_>>());
}
