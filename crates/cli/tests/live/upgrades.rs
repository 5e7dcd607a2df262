//! What arrives while one program takes over from another: the kernel holds it, and the new program receives it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use braid_testkit::skip::skip;

use crate::operations::{Gateway, OF_CAPTURE};
use crate::scene::{Running, SERVER, Scene, eventually, pings};

/// Echo requests, and milliseconds between two of them.
const ECHOES: usize = 400;
const EVERY_MS: usize = 5;
/// Buffers that the kernel has to fill for each queue.
const FILLED: usize = 2048;
/// Packets that may be on their way at the moment at which one program ends, and buffers that are given back with them.
const ON_THEIR_WAY: usize = 256;

/// A run of a gateway's plan with both ports by one back end.
struct Upgraded<'a> {
    scene: &'a Scene,
    gateway: Gateway,
    braid: Running,
}

impl Upgraded<'_> {
    fn run<'a>(scene: &'a Scene, port: &str, keys: &str, workers: usize) -> Upgraded<'a> {
        Upgraded::of(Gateway::new(), scene, port, keys, workers)
    }

    fn of<'a>(gateway: Gateway, scene: &'a Scene, port: &str, keys: &str, workers: usize) -> Upgraded<'a> {
        let (plan, socket) = (gateway.path("plan.toml"), gateway.path("socket"));
        let (plan, socket) = (plan.display(), socket.display());
        let ports = format!("--port {port}:m0{keys} --port {port}:m1{keys}");
        let braid = scene.run_braid(&format!("{plan} --control {socket} {ports} -w {workers}"));
        eventually("the first echo comes back", || pings(&scene.client, SERVER));
        Upgraded { scene, gateway, braid }
    }

    /// Upgrades it; what the next program says of its ports.
    fn upgrade(&mut self, words: &[&str]) -> String {
        self.gateway.tell(&[&["upgrade"], words].concat(), None).expect("it is continued");
        let said = self.braid.hear_successor();
        self.gateway.tell(&["stats"], None).expect("the new program answers by then");
        said
    }

    /// The same to its plan on two workers, with both ports in it.
    fn upgrade_to_two_workers(&mut self, port: &str) -> String {
        let more = self.plan_of(port, ["m0", "m1"]);
        self.upgrade(&[more.to_str().expect("a path")])
    }

    /// Writes its plan on two workers, with these ports in it.
    fn plan_of(&self, back_end: &str, devices: [&str; 2]) -> PathBuf {
        let plan = std::fs::read_to_string(self.gateway.path("plan.toml")).expect("a plan").replace(OF_CAPTURE, "");
        let more = self.gateway.path("more.toml");
        let ports = devices.map(|device| format!("[[port]]\ndevice = \"{back_end}:{device}\"\n")).concat();
        std::fs::write(&more, format!("workers = 2\n{plan}{ports}")).expect("the same folder");
        more
    }

    /// Does something while echoes go to and fro: how many of them were lost, and what came of it.
    fn lost_while<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> (usize, T) {
        let ping = format!("-n -q -i 0.{EVERY_MS:03} -c {ECHOES} -W 3 {SERVER}");
        let client = &self.scene.client;
        std::thread::scope(|scope| {
            let echoes = scope.spawn(|| client.run("ping", &ping));
            sleep(Duration::from_millis(200));
            let done = act(self);
            let said = echoes.join().expect("ping ends").expect("some echoes come back");
            let words: Vec<&str> = said.split_whitespace().collect();
            let received = words.iter().position(|word| *word == "received,").expect("ping says how many");
            (ECHOES - words[received - 1].parse::<usize>().expect("a number"), done)
        })
    }

    fn stop(self) {
        self.braid.stop();
    }
}

/// Buffers that the kernel has of each port, as a program says that goes on.
fn buffers(said: &str) -> Vec<usize> {
    let before = |line: &str| line.split_once(" buffers in them")?.0.rsplit(' ').next()?.parse().ok();
    said.lines().filter_map(before).collect()
}

#[test]
fn no_packet_is_lost_in_an_upgrade_over_af_packet() {
    let Some(scene) = crate::scene("an upgrade over AF_PACKET") else { return };
    for workers in [1, 2] {
        let mut run = Upgraded::run(&scene, "af_packet", "", workers);
        let (lost, _) = run.lost_while(|run| run.upgrade(&[]));
        assert_eq!(lost, 0, "{workers} workers");
        run.stop();
    }
}

#[test]
fn an_upgrade_that_no_program_continues_is_reported_as_such() {
    let Some(scene) = crate::scene("an upgrade that fails") else { return };
    let run = Upgraded::run(&scene, "af_packet", "", 1);
    // Only who opens a memif finds out that its socket cannot be there.
    let plan = run.plan_of("memif", ["/dev/null/0?role=server", "/dev/null/1?role=server"]);
    let said = run.gateway.tell(&["upgrade", plan.to_str().expect("a path")], None).expect_err("nobody opens these");
    assert!(said.contains("no other program continues it") && said.contains("--restore"), "{said}");
    let Upgraded { mut braid, .. } = run;
    assert!(braid.hear_of("/dev/null/0").contains("/dev/null/0"));
}

#[test]
fn a_run_whose_next_program_would_find_no_interface_goes_on() {
    let Some(scene) = crate::scene("an upgrade to an interface that is not there") else { return };
    let mut run = Upgraded::run(&scene, "af_packet", "", 1);
    let plan = run.plan_of("af_packet", ["m0", "m9"]);
    let refused = |run: &Upgraded<'_>, words: &[&str], wanted: &[&str]| {
        let said = run.gateway.tell(&[&["upgrade"], words].concat(), None).expect_err("it is refused");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(wanted.iter().all(|wanted| said.contains(wanted)), "{wanted:?}: {said}");
        assert!(pings(&scene.client, SERVER), "the run goes on");
    };
    refused(&run, &[plan.to_str().expect("a path")], &["m9: there is no such interface", "nothing has changed"]);
    if let Err(reason) = scene.middle.run("ip", "link set m1 name x1") {
        return skip("an upgrade with an interface that was renamed", &reason);
    }
    // A plan is taken at its word; without one the run goes on with what it has.
    let plan = run.plan_of("af_packet", ["m0", "m1"]);
    refused(&run, &[plan.to_str().expect("a path")], &["m1: there is no such interface", "write device = \"x1\""]);
    run.upgrade(&[]);
    assert!(pings(&scene.client, SERVER));
    let stats = run.gateway.tell(&["stats"], None).expect("it answers");
    assert!(stats.contains("\"x1\"") && !stats.contains("\"m1\""), "{stats}");
    // What a port would not be opened by is refused too.
    scene.client.run("ip", "link set c0 down").expect("an interface changes");
    scene.middle.run("ip", "link set m0 down").expect("an interface changes");
    let said = run.gateway.tell(&["upgrade"], None).expect_err("it is down");
    assert!(said.contains("m0: is down"), "{said}");
    run.stop();
}

/// Two upgrades while echoes go to and fro and a third one: nothing is lost, and the kernel has as many buffers as ever.
fn nothing_is_lost_over_af_xdp(scene: &Scene, queues: usize, keys: &str, workers: usize) {
    let mut run = Upgraded::run(scene, "af_xdp", keys, workers);
    let (lost, mut said) = run.lost_while(|run| [run.upgrade(&[]), run.upgrade(&[])].to_vec());
    said.push(run.upgrade(&[]));
    assert_eq!(lost, 0, "{workers} workers, {queues} queues, {keys}: {said:?}");
    for said in said {
        let buffers = buffers(&said);
        assert_eq!(buffers.len(), 2, "{said}");
        let expected = FILLED * queues..FILLED * queues + ON_THEIR_WAY;
        assert!(buffers.iter().all(|count| expected.contains(count)), "none is missing: {said}");
    }
    assert!(pings(&scene.client, SERVER));
    run.stop();
}

#[test]
fn no_packet_is_lost_in_upgrades_over_af_xdp() {
    let Some(scene) = crate::scene("upgrades over AF_XDP") else { return };
    nothing_is_lost_over_af_xdp(&scene, 1, "", 1);
    nothing_is_lost_over_af_xdp(&scene, 1, "?mode=generic&busy_poll=50", 2);
}

#[test]
fn no_packet_is_lost_in_upgrades_over_several_queues_and_workers() {
    match Scene::with_queues(2) {
        Ok(scene) => nothing_is_lost_over_af_xdp(&scene, 2, "", 2),
        Err(reason) => skip("upgrades over several queues", &reason),
    }
}

#[test]
fn a_plan_that_steers_otherwise_gets_another_program_between_two_packets() {
    let Some(scene) = crate::scene("an upgrade to another steering") else { return };
    let gateway = Gateway::new();
    std::fs::write(gateway.path("plan.toml"), "[[nf]]\nfunction = \"forward\"\n")
        .expect("the folder can be written to");
    let other = gateway.path("other.toml");
    std::fs::write(&other, "[[nf]]\nfunction = \"flow_counter\"\n[nf.config]\nsymmetric = true\n")
        .expect("the same folder");
    let mut run = Upgraded::of(gateway, &scene, "af_xdp", "", 2);
    let attached = || {
        let said = scene.middle.run("ip", "link show m0").expect("it is there");
        said.split_once("prog/xdp id ").and_then(|(_, id)| id.split(' ').next()?.parse::<u32>().ok())
    };
    let first = attached();
    let (lost, said) = run.lost_while(|run| run.upgrade(&[other.to_str().expect("a path")]));
    assert_eq!((lost, buffers(&said).len()), (0, 2), "{said}");
    let second = attached();
    assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
    run.upgrade(&[]);
    assert_eq!(attached(), second, "the same program goes on");
    run.stop();
}

#[test]
fn another_number_of_workers_opens_ports_anew_and_says_so() {
    let Some(scene) = crate::scene("an upgrade to other workers") else { return };
    let mut run = Upgraded::run(&scene, "af_xdp", "", 1);
    let said = run.upgrade_to_two_workers("af_xdp");
    assert!(said.contains("are closed, and opened anew: it had "), "{said}");
    assert!(said.contains("m1: AF_XDP") && buffers(&said).is_empty(), "{said}");
    eventually("echoes come back again", || pings(&scene.client, SERVER));
    run.stop();
}

#[test]
fn rings_of_another_number_of_workers_are_closed_and_that_is_said() {
    let Some(scene) = crate::scene("rings of other workers") else { return };
    let mut run = Upgraded::run(&scene, "af_packet", "", 1);
    let said = run.upgrade_to_two_workers("af_packet");
    for port in ["m0", "m1"] {
        let line =
            said.lines().find(|line| line.starts_with(&format!("{port}: AF_PACKET, 2 rings"))).expect("it opens");
        assert!(line.ends_with("; a ring of the program before closed, and what came meanwhile lost"), "{said}");
    }
    eventually("echoes come back again", || pings(&scene.client, SERVER));
    let said = run.upgrade(&[]);
    assert!(!said.contains("closed"), "as many as before go on: {said}");
    run.stop();
}

/// A program that goes on with runs, and says nothing of sockets.
fn older(gateway: &Gateway) -> PathBuf {
    let path = gateway.path("older");
    let program = env!("CARGO_BIN_EXE_braid");
    let text = format!("#!/bin/sh\n[ \"$2\" = --help ] && exec echo --restore\nexec {program} \"$@\"\n");
    std::fs::write(&path, text).expect("the folder can be written to");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

#[test]
fn a_program_that_knows_nothing_of_sockets_opens_ports_anew() {
    let Some(scene) = crate::scene("an upgrade to an older program") else { return };
    let mut run = Upgraded::run(&scene, "af_xdp", "", 1);
    let older = older(&run.gateway);
    assert_eq!(buffers(&run.upgrade(&[])).len(), 2);
    let said = run.upgrade(&["--program", older.to_str().expect("a path")]);
    assert!(buffers(&said).is_empty() && said.contains("opens its ports of AF_XDP anew"), "{said}");
    eventually("echoes come back again", || pings(&scene.client, SERVER));
    assert_eq!(buffers(&run.upgrade(&[])).len(), 2);
    run.stop();
}

#[test]
fn nothing_stays_behind_a_program_that_is_killed_in_an_upgrade() {
    let Some(scene) = crate::scene("a kill in an upgrade") else { return };
    for milliseconds in [0, 30, 60, 120, 250] {
        let run = Upgraded::run(&scene, "af_xdp", "", 1);
        run.gateway.tell(&["upgrade"], None).expect("it is continued");
        sleep(Duration::from_millis(milliseconds));
        run.braid.kill();
        let is_there = || scene.middle.run("ip", "-details link show m0").is_ok_and(|said| said.contains("xdp"));
        eventually("the program is taken off", || !is_there());
    }
    Upgraded::run(&scene, "af_xdp", "", 1).stop();
}
