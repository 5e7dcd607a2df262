//! What goes wrong around a command (nobody reads what it says, no room on the disk, an interruption) ends it with a clear error or not at all,
//! and leaves nothing half done.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use braid_testkit::skip::skip;
use serde_json::Value;
use support::running::Running;
use support::{Braid, conserved};

fn names(braid: &Braid) -> Vec<String> {
    let entries = std::fs::read_dir(braid.path("")).expect("the folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_goes_on_when_nobody_reads_what_it_says() {
    let braid = Braid::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = braid
        .command("run --nf nat --in gen:campus?packets=2000 --out out.pcapng --snapshot state --json")
        .stderr(writer)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{:?}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    conserved(&report);
    assert_eq!(names(&braid), ["out.pcapng", "state"]);
}

#[test]
fn an_error_that_nobody_reads_still_has_its_exit_code() {
    let braid = Braid::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = braid.command("run --nf forward --in nothing.pcap").stderr(writer).status().expect("it runs");
    assert_eq!(status.code(), Some(3));
}

#[test]
fn generated_traffic_that_is_interrupted_leaves_no_file_and_what_was_there() {
    let braid = Braid::new();
    braid.write("there.pcap", "what was there");
    for file in ["there.pcap", "new.pcapng.gz"] {
        let mut command = braid.command(&format!("gen campus?packets=4000000000 --out {file}"));
        let child = command.stderr(Stdio::piped()).spawn().expect("it runs");
        let partial = braid.path(&format!("{file}.partial"));
        wait_for("packets are written", || std::fs::metadata(&partial).is_ok_and(|file| file.len() > 0));
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted after"), "{output:?}");
    }
    assert_eq!(names(&braid), ["there.pcap"]);
    assert_eq!(std::fs::read_to_string(braid.path("there.pcap")).expect("it"), "what was there");
}

#[test]
fn a_full_disk_is_named_with_what_was_lost() {
    let braid = Braid::new();
    std::os::unix::fs::symlink("/dev/full", braid.path("full.pcap")).expect("a link");
    let said = braid.fails(3, "gen campus?packets=5000 --out full.pcap");
    assert!(said.contains("No space left on device") && said.contains(" 5000 packets not written"), "{said}");
    let output = braid.run("run --nf forward --in gen:campus?packets=5000 --out full.pcap --json");
    assert_eq!(output.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report all the same");
    assert!(report["lost"][0].as_str().is_some_and(|lost| lost.contains("No space left")), "{report}");
    conserved(&report);
    let counts = (&report["packets_in"], &report["packets_out"], &report["dropped_by_nf"]["sink"]["not_written"]);
    assert_eq!(counts, (&5000.into(), &0.into(), &5000.into()), "what is not there did not come out: {report}");
    assert!(braid.path("full.pcap").is_symlink());
}

#[test]
fn help_that_cannot_be_written_is_no_success() {
    let braid = Braid::new();
    for asked in ["--help", "run --help", "--version"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let output = braid.command(asked).stdout(full).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("No space left"), "{asked}: {said}");
    }
}

#[test]
fn a_state_that_cannot_be_saved_takes_no_report_with_it() {
    let braid = Braid::new();
    let said = braid.fails(3, "run --nf nat --in gen:campus?packets=50 --snapshot .");
    assert!(said.contains("is a directory"), "found out before the run: {said}");
    std::fs::create_dir(braid.path("there")).expect("a folder");
    let mut command = braid.command("run --nf nat --in gen:campus?packets=4000000000 --snapshot there/state --json");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // Its first line comes when the place has been looked at.
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    said.read_line(&mut String::new()).expect("it says how it runs");
    std::fs::remove_dir(braid.path("there")).expect("nothing is in it yet");
    braid.write("there", "a file, so no folder");
    std::thread::sleep(Duration::from_millis(300));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    conserved(&serde_json::from_slice(&output.stdout).expect("a report all the same"));
}

#[test]
fn a_damaged_capture_is_handled_up_to_there_and_told_by_the_exit_code() {
    let braid = Braid::new();
    for name in ["cut.pcap", "cut.pcapng", "cut.pcap.gz"] {
        braid.ok(&format!("gen campus?packets=400 --out {name}"));
        let bytes = std::fs::read(braid.path(name)).expect("a capture");
        std::fs::write(braid.path(name), &bytes[..bytes.len() / 2]).expect("the folder can be written to");
        let output = braid.run(&format!("run --nf nat --in {name} --out out.pcapng --json"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("{name}: damaged at byte")), "{said}");
        assert!(!said.contains("cut by who captured"), "the file was cut, not what was captured: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report all the same");
        conserved(&report);
        assert!(report["packets_in"].as_u64() > Some(50), "{report}");
        assert_eq!(report["damages"].as_array().map(Vec::len), Some(1), "{report}");
        let written = braid.json("run --nf forward --in out.pcapng --workers 1");
        assert_eq!(written["packets_in"], report["packets_out"], "what came before is written, and readable");
        for command in ["trace udp -n 10000", "sets"] {
            let output = braid.run(&format!("{command} --nf flow_counter --in {name} --json"));
            assert_eq!(output.status.code(), Some(3), "{command}");
            assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{command}: {output:?}");
        }
        for command in ["profile --packets 1000", "model --packets 1000 --repeats 1 --measured 1 --workers 1", "tune"] {
            let output = braid.run(&format!("{command} --nf flow_counter --in {name}"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(3) && said.contains("damaged at byte"), "{command}: {said}");
            assert!(!output.stdout.is_empty(), "{command}: what was measured is told all the same");
        }
        let output = braid.run(&format!("certify --nf flow_counter --in {name} --runs 1 --json"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("; before it: "), "{said}");
        let certificate: Value = serde_json::from_slice(&output.stdout).expect("a certificate all the same");
        assert_eq!(certificate["damages"].as_array().map(Vec::len), Some(1), "{certificate}");
    }
}

#[test]
fn a_trace_that_is_interrupted_writes_what_it_has_followed() {
    let braid = Braid::new();
    let run = Running::start(&braid, "--nf nat --in gen:campus?packets=4000000000&flows=300&seed=5 --time live");
    braid.write("traced.pcapng", "what was there");
    let partial = braid.path("traced.pcapng.partial");
    // The first waits in vain: no frame is so short. When it has gone, the next may follow packets.
    for (filter, frames) in [("less 10", 0), ("udp", 1)] {
        let mut command = braid.command("trace --control control.sock -n 10000 --wait 60s --out traced.pcapng");
        let mut child = command.arg(filter).stdout(Stdio::piped()).spawn().expect("it runs");
        wait_for("it has begun", || partial.exists());
        if frames > 0 {
            let mut first = String::new();
            BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut first).expect("a packet");
        }
        std::thread::sleep(Duration::from_millis(200));
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        assert!(child.wait_with_output().expect("it ends").status.success(), "{filter}");
        let found = braid.json("run --nf forward --in traced.pcapng --workers 1");
        assert!(found["packets_in"].as_u64() >= Some(frames) && !partial.exists(), "{found}");
        wait_for("nobody follows packets", || braid.run("trace ip --control control.sock -n 1").status.success());
    }
    conserved(&run.stop());
}

#[test]
fn a_trace_that_cannot_begin_leaves_what_was_there() {
    let braid = Braid::new();
    braid.write("traced.pcapng", "what was there");
    braid.fails(3, "trace udp --nf nat --in nothing.pcap --out traced.pcapng");
    braid.fails(3, "trace udp --control nothing --out traced.pcapng");
    assert_eq!(names(&braid), ["traced.pcapng"]);
    assert_eq!(std::fs::read_to_string(braid.path("traced.pcapng")).expect("it"), "what was there");
}

/// Nothing can be written where the state and the plan of an upgrade would stand.
fn take_places(braid: &Braid) {
    for place in ["control.sock.state", "control.sock.applied.toml"] {
        std::fs::create_dir_all(braid.path(&format!("{place}/taken"))).expect("a folder");
        std::fs::create_dir_all(braid.path(&format!("{place}.partial/taken"))).expect("a folder");
    }
}

#[test]
fn a_run_is_upgraded_without_room_beside_its_socket() {
    let braid = Braid::new();
    let traffic = "--in gen:campus?packets=4000000000&flows=300&seed=5 --time live --workers 2";
    let mut run = Running::start(&braid, &format!("--nf nat {traffic}"));
    let before = run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(100));
    take_places(&braid);
    braid.write("plan.toml", "[[nf]]\nfunction = \"nat\"\nconfig = { udp_s = 100 }\n");
    assert!(braid.ok("apply plan.toml --control control.sock").contains("changed  nat"));
    for _ in 0..3 {
        let after = run.upgrade("");
        assert!(after["sets"]["created"].as_u64() >= before["sets"]["live"].as_u64(), "{after}");
        let kept = braid.ok("apply plan.toml --control control.sock");
        assert!(!kept.contains("changed"), "the plan that was applied last goes on: {kept}");
    }
    conserved(&run.stop());
}

#[test]
fn figures_that_were_measured_before_an_interruption_are_written() {
    let braid = Braid::new();
    let said = braid.fails(3, "bench --quick --chain forward --csv /proc/none/bench.csv");
    assert!(said.contains("/proc/none/bench.csv"), "found out before the first row: {said}");
    let line = "bench --quick --chain forward,flow_counter,nat,policer,bridge --flows 1000 --packets 0.02 --workers 1";
    let mut command = braid.command(&format!("{line} --trace uniform,zipf,ipv6 --csv bench.csv"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let rows = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut rows = rows.skip_while(|line| !line.starts_with("forward "));
    assert!(rows.next().is_some(), "a first row");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    let more = rows.count();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    let written = std::fs::read_to_string(braid.path("bench.csv")).expect("what there was");
    assert_eq!(written.lines().filter(|line| line.starts_with("forward")).count(), 1 + more.min(2), "{written}");
    assert!(more < 14, "it went on: {written}");
}

/// Each of these would take hours.
#[test]
fn a_measurement_that_is_interrupted_ends_before_its_row_does() {
    let braid = Braid::new();
    for line in [
        "--what rates --packets 1000000",
        "--what rates --packets 1000000 --distribution software",
        "--what ablation --packets 1000000",
        "--what latency --duration 5h",
        "--what soak --duration 5h",
    ] {
        let mut command = braid.command(&format!("bench {line} --chain flow_counter --flows 1000 --workers 1"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let (mut said, mut head) = (BufReader::new(child.stdout.take().expect("piped")), String::new());
        said.read_line(&mut head).expect("its head");
        std::thread::sleep(Duration::from_millis(500));
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{line}: {output:?}");
    }
}

#[test]
fn every_output_makes_its_folder() {
    let braid = Braid::new();
    let input = "--in gen:campus?packets=200";
    for (line, file) in [
        (format!("run --nf nat {input} --out a/b/out.pcapng"), "a/b/out.pcapng"),
        (format!("run --nf nat {input} --snapshot c/d/state"), "c/d/state"),
        (format!("trace udp --nf nat {input} --out e/f/out.pcapng"), "e/f/out.pcapng"),
        ("gen campus?packets=10 --out g/h/out.pcap".to_owned(), "g/h/out.pcap"),
        (
            "bench --quick --chain forward --flows 10 --packets 0.01 --workers 1 --csv k/l/out.csv".to_owned(),
            "k/l/out.csv",
        ),
    ] {
        braid.ok(&line);
        assert!(braid.path(file).is_file(), "{line}");
    }
}

#[test]
fn a_device_takes_packets_and_stays_one() {
    let braid = Braid::new();
    std::os::unix::fs::symlink("/dev/null", braid.path("nothing")).expect("a link");
    for to in ["/dev/null", "nothing"] {
        conserved(&braid.json(&format!("run --nf forward --in gen:campus?packets=100 --out {to}")));
    }
    assert!(braid.path("nothing").is_symlink());
    let said = braid.fails(2, "run --nf forward --in gen:campus?packets=100 --out nothing.txt");
    assert!(said.contains("does not say the format"), "{said}");
}

#[test]
fn a_terminal_that_goes_away_ends_a_run_in_order() {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
    if u64::from_str_radix(mask, 16).expect("hexadecimal") & 1 != 0 {
        return skip("a_terminal_that_goes_away_ends_a_run_in_order", &"SIGHUP is ignored");
    }
    let braid = Braid::new();
    let mut run =
        Running::start(&braid, "--nf nat --in gen:campus?packets=4000000000 --snapshot state --out out.pcapng");
    run.signal("-HUP");
    conserved(&run.ended());
    assert_eq!(names(&braid), ["out.pcapng", "state"]);
}

#[test]
fn one_signal_during_an_upgrade_ends_whoever_runs_then_and_the_state_is_saved() {
    let line = "--nf firewall,nat --in gen:campus?packets=4000000000&flows=20000 --time live --state kept";
    for wait_ms in [0, 20, 60, 150, 400] {
        let braid = Braid::new();
        let mut run = Running::start(&braid, line);
        let upgrade = braid.command("upgrade --control control.sock").stderr(Stdio::null()).spawn();
        std::thread::sleep(Duration::from_millis(wait_ms));
        run.signal("-TERM");
        // The report is that of the run before, if that one has ended, or of both.
        let (output, said) = run.output();
        assert_eq!(output.status.code(), Some(0), "after {wait_ms} ms: {said}");
        assert!(braid.path("kept").exists(), "after {wait_ms} ms: {said}");
        upgrade.expect("it runs").wait().expect("it ends");
    }
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_with_the_length_that_is_possible() {
    let braid = Braid::new();
    let path = "x".repeat(108);
    for line in [format!("run --nf nat --in gen:campus?packets=5 --control {path}"), format!("stats --control {path}")]
    {
        let output = braid.run(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("at most 107 bytes"), "{said}");
    }
}

#[test]
fn a_limit_of_file_sizes_is_a_full_disk_and_no_sudden_end() {
    let braid = Braid::new();
    let program = env!("CARGO_BIN_EXE_braid");
    let run =
        format!("ulimit -f 8; exec {program} run --nf nat --in 'gen:campus?packets=2000' --out out.pcapng --json");
    let output = Command::new("sh").args(["-c", &run]).current_dir(braid.path("")).output().expect("sh");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report all the same");
    conserved(&report);
    assert!(report["lost"][0].as_str().is_some_and(|lost| lost.contains("out.pcapng: File too large")), "{report}");
}
