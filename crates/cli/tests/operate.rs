//! A run looked at while it goes on: the control socket, `braid stats`, `braid top`.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use braid_cli::control::live::Request;
use braid_cli::control::live::protocol::REQUEST_MAX;
use serde_json::Value;
use support::running::Running;
use support::within::Run;
use support::{Braid, conserved};

/// Traffic that does not end before the test does.
const TRAFFIC: &str = "--in gen:campus?packets=4000000000&seed=5";

#[track_caller]
fn adds_up(stats: &Value) {
    let number = |key: &str| stats[key].as_i64().unwrap_or_else(|| panic!("`{key}` is missing in {stats}"));
    let dropped: i64 = stats["dropped"].as_object().expect("reasons").values().filter_map(Value::as_i64).sum();
    assert_eq!(number("missing"), 0, "{stats}");
    assert_eq!(number("packets_in") + number("packets_copied"), number("packets_out") + dropped, "{stats}");
    let sum = |list: &str, key: &str| {
        stats[list].as_array().expect("rows").iter().filter_map(|row| row[key].as_i64()).sum::<i64>()
    };
    assert_eq!(sum("workers", "packets"), number("packets_in"), "{stats}");
    assert_eq!(sum("ports", "packets_in"), number("packets_in"), "{stats}");
    assert_eq!(sum("ports", "packets_out"), number("packets_out"), "{stats}");
}

#[test]
fn counters_add_up_while_packets_go_through_and_at_the_end() {
    let braid = Braid::new();
    for workers in [1, 2] {
        let mut run = Running::start(&braid, &format!("--nf firewall,nat {TRAFFIC} --workers {workers}"));
        let mut last = 0;
        for _ in 0..5 {
            let stats = run.until("more packets", |stats| stats["packets_in"].as_u64() > Some(last));
            adds_up(&stats);
            last = stats["packets_in"].as_u64().expect("a count");
            assert!(stats["functions"][0]["packets"].as_u64() >= stats["functions"][1]["packets"].as_u64());
        }
        let report = run.stop();
        conserved(&report);
        assert!(report["packets_in"].as_u64() >= Some(last));
    }
}

#[test]
fn every_attempt_that_is_taken_back_has_its_reason() {
    let braid = Braid::new();
    let mut run = Running::start(&braid, &format!("--nf firewall,nat {TRAFFIC} --workers 2"));
    let rows = |stats: &Value| stats["aborts"].as_array().cloned().unwrap_or_default();
    // Those that met a commit under way are among them sooner or later.
    let stats = run.until("workers meet", |stats| rows(stats).len() > 3);
    for row in rows(&stats) {
        assert_ne!(row["why"], "", "{row}");
    }
    conserved(&run.stop());
}

#[test]
fn the_socket_is_its_owners_and_goes_with_the_run() {
    let braid = Braid::new();
    let run = Running::start(&braid, &format!("--nf forward {TRAFFIC} --workers 1"));
    let mode = std::fs::metadata(run.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let taken = braid.fails(3, "run --nf forward --in gen:uniform?packets=10 --control control.sock");
    assert!(taken.contains("another run answers there"), "{taken}");
    let path = run.socket();
    run.stop();
    assert!(!path.exists());
    assert!(braid.fails(3, "stats --control control.sock").contains("no run offers a control socket here"));
}

#[test]
fn what_a_killed_run_left_is_replaced_and_what_is_no_socket_is_not() {
    let braid = Braid::new();
    let run = Running::start(&braid, &format!("--nf forward {TRAFFIC} --workers 1"));
    let path = run.socket();
    drop(run);
    assert!(path.exists(), "killed, it could not remove its socket");
    assert!(braid.fails(3, "top --once --control control.sock").contains("has ended"));
    Running::start(&braid, &format!("--nf forward {TRAFFIC} --workers 1")).stop();
    braid.write("control.sock", "something of somebody");
    braid.fails(3, "run --nf forward --in gen:uniform?packets=10 --control control.sock");
    assert!(braid.fails(3, "stats --control control.sock").contains("no control socket"));
    assert_eq!(std::fs::read_to_string(path).expect("it is still there"), "something of somebody");
}

#[test]
fn nonsense_on_the_socket_is_answered_and_harms_nobody() {
    let braid = Braid::new();
    let run = Running::start(&braid, &format!("--nf forward {TRAFFIC} --workers 1"));
    let say = |bytes: &[u8]| -> Option<Value> {
        let mut stream = UnixStream::connect(run.socket()).expect("it listens");
        stream.write_all(bytes).expect("a line that is too long is read to its end");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok().filter(|read| *read > 0)?;
        serde_json::from_str(&line).ok()
    };
    let mut too_long = vec![b'x'; REQUEST_MAX];
    too_long.push(b'\n');
    for nonsense in [
        &too_long[..],
        b"\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"{\"ask\":\"everything\"}\n",
        b"[[[[[[\n",
        b"{\"ask\":\"stats\",\"no\":1}\n",
    ] {
        let answer = say(nonsense).expect("an answer");
        assert!(answer["error"]["what"].is_string(), "{answer}");
    }
    assert!(say(b"{\"ask\":\"stats\"}\n").expect("an answer")["ok"]["running"].as_bool().expect("it answers"));
    run.stop();
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let braid = Braid::new();
    let run = Running::start(&braid, &format!("--nf forward {TRAFFIC} --workers 1"));
    let connect = || UnixStream::connect(run.socket()).expect("it listens");
    // Until who has asked so far is gone.
    std::thread::sleep(Duration::from_millis(500));
    let mut silent: Vec<UnixStream> = (0..32).map(|_| connect()).collect();
    // They have only just come, and might still say something.
    assert!(braid.fails(1, "stats --control control.sock").contains("32 connections are open"));
    std::thread::sleep(Duration::from_secs(6));
    let asks = |stream: &mut UnixStream| {
        stream.write_all(b"{\"ask\":\"stats\"}\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok().filter(|read| *read > 0)?;
        serde_json::from_str::<Value>(&line).ok()
    };
    assert!(asks(&mut silent[0]).is_some());
    let stats: Value = serde_json::from_str(&braid.ok("stats --control control.sock")).expect("figures");
    assert_eq!((&stats["connections"]["ended_for_others"], &stats["connections"]["refused"]), (&1.into(), &1.into()));
    assert_eq!(asks(&mut silent[1]), None, "the second one had been silent for longest");
    assert!(asks(&mut silent[0]).is_some());
    run.stop();
}

#[test]
fn a_run_that_is_stopped_is_given_up_and_goes_on_afterwards() {
    let braid = Braid::new();
    let mut run = Running::start(&braid, &format!("--nf forward {TRAFFIC} --workers 1"));
    run.signal("-STOP");
    let begun = Instant::now();
    let given_up = braid.fails(3, "stats --control control.sock");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(given_up.contains("says nothing") && given_up.contains("kill -CONT"), "{given_up}");
    run.signal("-CONT");
    adds_up(&run.until("it goes on", |stats| stats["running"] == true));
    conserved(&run.stop());
}

#[test]
fn workers_that_hang_are_waited_for_once_whatever_is_asked_of_them() {
    let nf = |name: &str| format!("[[nf]]\nfunction = \"firewall\"\nname = \"{name}\"\n");
    for hanging in [1, 2] {
        let run = Run::start(2, &["one", "two", "three"].map(nf).concat());
        std::thread::scope(|scope| {
            for worker in 0..hanging {
                let live = &run.live;
                scope.spawn(move || live.ask(worker, |_| std::thread::sleep(Duration::from_secs(14))));
            }
            std::thread::sleep(Duration::from_millis(200));
            let begun = Instant::now();
            let stats = run.service.answer(Request::Stats { timing: false }, &mut |_| Ok(())).expect("figures");
            assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
            let late =
                stats["workers"].as_array().expect("rows").iter().filter(|worker| worker["state"] == "late").count();
            assert_eq!(late, hanging, "{stats}");
        });
        run.stop();
    }
}

#[test]
fn who_asks_too_late_is_told_that_the_run_ends_or_who_goes_on_with_it() {
    let upgrade = |plan: Option<&str>| {
        let program = Some(env!("CARGO_BIN_EXE_braid").into());
        Request::Upgrade { program, plan: plan.map(str::to_owned) }
    };
    let nat = "[[nf]]\nfunction = \"nat\"\n";
    for is_upgraded in [true, false] {
        let run = Run::start(1, nat);
        let ask = |request: Request| run.service.answer(request, &mut |_| Ok(()));
        let why = match is_upgraded {
            true => {
                ask(upgrade(None)).expect("it can go on");
                "another program is just going on with this run"
            }
            false => {
                ask(Request::Stop {}).expect("it ends");
                "the run is ending"
            }
        };
        // Whether or not the workers have ended by now.
        for request in [upgrade(None), upgrade(Some(nat)), Request::Apply { plan: nat.to_owned() }] {
            let refused = ask(request).expect_err("too late");
            assert_eq!(refused.what, why, "{refused:?}");
        }
        run.stop();
    }
}

#[test]
fn top_prints_a_page_with_rates_load_and_drops() {
    let braid = Braid::new();
    let run = Running::start(&braid, &format!("--nf firewall,nat {TRAFFIC} --workers 2"));
    let page = braid.ok("top --once --every 300ms --control control.sock");
    for part in
        ["firewall → nat", "── functions", "── workers", "── ports", "── objects", "nat.mappings", "── top sets"]
    {
        assert!(page.contains(part), "no `{part}` in\n{page}");
    }
    let loads = page.lines().filter(|line| line.contains("running  ") && line.contains('%')).count();
    assert_eq!(loads, 2, "the load of each worker stands in\n{page}");
    run.stop();
}

#[test]
fn a_run_with_a_dispatcher_can_be_looked_at_too() {
    let braid = Braid::new();
    let line = format!("--nf flow_counter {TRAFFIC} --workers 2 --distribution software");
    let mut run = Running::start(&braid, &line);
    adds_up(&run.until("packets", |stats| stats["packets_in"].as_u64() > Some(1000)));
    conserved(&run.stop());
}

#[test]
fn a_service_manager_is_told_when_a_run_has_begun_and_when_it_ends() {
    let braid = Braid::new();
    let manager = UnixDatagram::bind(braid.path("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("a socket");
    let told = |line: &str| {
        let output = braid.command(line).env("NOTIFY_SOCKET", braid.path("notify")).output().expect("the binary runs");
        let mut text = [0; 256];
        let words = std::iter::from_fn(|| manager.recv(&mut text).ok().map(|len| text[..len].to_vec()));
        (output.status.code(), words.map(|word| String::from_utf8_lossy(&word).into_owned()).collect::<Vec<_>>())
    };
    let (code, words) = told("run --nf firewall,nat --in gen:campus?packets=100");
    assert_eq!(code, Some(0));
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(words[0].contains("READY=1") && words[0].contains("STATUS=firewall → nat"), "{words:?}");
    assert!(words[1].contains("STOPPING=1"), "{words:?}");
    // Neither a refused plan nor a port that is not there is ever ready.
    assert_eq!(told("run --nf natt --in gen:campus?packets=100"), (Some(2), Vec::new()));
    let (code, words) = told("run --nf nat --port af_packet:nowhere --port af_packet:there");
    assert!(code != Some(0) && words.is_empty(), "{code:?} {words:?}");
}
