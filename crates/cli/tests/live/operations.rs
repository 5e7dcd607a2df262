//! What outlives a change of the plan, an upgrade and `kill -9` while packets go through.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use braid_testkit::kernel::Namespace;

use crate::scene::{EXTERNAL, Running, SERVER, Scene, connect, eventually, pings};

const PORTS: &str = "--port af_xdp:m0 --port af_xdp:m1 -w 2";

const STRICT: &str = "strict";

/// What a gateway's plan says of a capture; between interfaces it does not matter.
pub const OF_CAPTURE: &str = "in_order = true\n[input]\nfrom = [\"of-a-capture.pcap\"]\ninside = [\"10.0.0.0/8\"]\n";

/// A gateway with a rule about one port, in a folder with its control socket.
pub struct Gateway {
    folder: tempfile::TempDir,
}

impl Gateway {
    pub fn new() -> Gateway {
        let gateway = Gateway { folder: tempfile::tempdir().expect("a folder") };
        gateway.write(9999, STRICT);
        gateway
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A plan that refuses connections to this port, and looks at TCP windows so.
    fn write(&self, refused: u16, windows: &str) -> PathBuf {
        let path = self.path("plan.toml");
        let text = format!(
            "{OF_CAPTURE}[[nf]]\nfunction = \"firewall\"\n[nf.config]\nwindows = \"{windows}\"\nrules = [{{ action = \"deny\", direction = \"outbound\", \
             protocol = \"tcp\", destination_ports = \"{refused}\" }}]\n[[nf]]\nfunction = \"nat\"\n[nf.config]\n\
             external = [\"{EXTERNAL}\"]\n"
        );
        std::fs::write(&path, text).expect("the folder can be written to");
        path
    }

    fn run(&self, scene: &Scene, more: &str) -> Running {
        let (plan, socket) = (self.path("plan.toml"), self.path("socket"));
        scene.run_braid(&format!("{} --control {} {PORTS} {more}", plan.display(), socket.display()))
    }

    /// A command to the run; what it says, or why not.
    pub fn tell(&self, words: &[&str], file: Option<&Path>) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        let output = command.args(words).args(file).arg("--control").arg(self.path("socket")).output();
        let output = output.expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn is_refused(&self, scene: &Scene, port: u16) -> bool {
        connect(&scene.client, &scene.server, SERVER, port, Duration::from_millis(700)).is_err()
    }
}

#[test]
fn connections_outlive_another_plan_an_upgrade_and_a_kill() {
    let Some(scene) = crate::scene("what outlives a change") else { return };
    let gateway = Gateway::new();
    let braid = gateway.run(&scene, "");
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    let open =
        |port| connect(&scene.client, &scene.server, SERVER, port, Duration::from_secs(10)).expect("a connection");
    let (mut held, mut bulk) = (open(7000), open(7001));
    held.talk();
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| bulk.transfer(48 << 20));
        assert!(
            gateway
                .tell(&["apply"], Some(&gateway.write(2525, STRICT)))
                .expect("applied")
                .contains("changed  firewall")
        );
        // The file at the start is another one again: what was applied is what goes on.
        gateway.write(9999, STRICT);
        gateway.tell(&["upgrade"], None).expect("it is continued");
        transfer.join().expect("all bytes arrive");
    });
    held.talk();
    eventually("the new program answers", || gateway.tell(&["stats"], None).is_ok());
    assert!(gateway.is_refused(&scene, 2525) && !gateway.is_refused(&scene, 9999), "the applied plan goes on");
    // A connection goes on after the snapshot, so what comes after the kill lies outside of the windows that were saved.
    gateway.tell(&["apply"], Some(&gateway.write(9999, "liberal"))).expect("applied");
    gateway.tell(&["snapshot"], Some(&gateway.path("state"))).expect("saved");
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| bulk.transfer(24 << 20));
        std::thread::sleep(Duration::from_millis(50));
        braid.kill();
        let after = gateway.run(&scene, &format!("--restore {}", gateway.path("state").display()));
        transfer.join().expect("all bytes arrive");
        held.talk();
        after.stop();
    });
}

#[test]
fn a_run_gives_up_its_privileges_when_its_ports_are_open() {
    let Some(scene) = crate::scene("giving up privileges") else { return };
    let gateway = Gateway::new();
    let plan = std::fs::read_to_string(gateway.path("plan.toml")).expect("a plan");
    std::fs::write(gateway.path("plan.toml"), format!("user = \"65534:65534\"\n{plan}")).expect("the same folder");
    let braid = gateway.run(&scene, "");
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", braid.id())).expect("it runs");
    let statuses: Vec<String> =
        tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("status")).unwrap_or_default()).collect();
    assert!(statuses.len() > 2, "{statuses:?}");
    for status in statuses {
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        assert_eq!(line("Uid:"), "Uid:\t65534\t65534\t65534\t65534");
        assert!(line("CapPrm:").ends_with("0000000000000000") && line("CapEff:").ends_with("0000000000000000"));
        assert_eq!(line("NoNewPrivs:"), "NoNewPrivs:\t1");
    }
    let refused = gateway.tell(&["upgrade"], None).expect_err("it could not open its ports");
    assert!(refused.contains("given up its privileges"), "{refused}");
    let mut held = connect(&scene.client, &scene.server, SERVER, 7000, Duration::from_secs(10)).expect("TCP");
    held.transfer(1 << 20);
    braid.stop();
}

#[test]
fn a_state_that_could_not_be_saved_without_privileges_is_refused_at_the_start() {
    let Some(scene) = crate::scene("a state and no privileges") else { return };
    let gateway = Gateway::new();
    // The folder of the test is its own alone.
    let state = gateway.path("state");
    let run = |owner: Option<u32>| {
        let _ = std::os::unix::fs::chown(gateway.path(""), owner, owner);
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        let ports = "--port af_packet:m0 --port af_packet:m1 --user 65534:65534 --duration 100ms";
        command.arg("run").args(["--nf", "forward"]).args(ports.split_whitespace()).arg("--state").arg(&state);
        let output = scene.middle.inside(|| command.output()).expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(None);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(code == Some(3) && words.contains("for the user that the run becomes, 65534:65534"), "{said}");
    assert!(!said.contains("AF_PACKET"), "before a port is opened: {said}");
    let (code, said) = run(Some(65534));
    assert!(code == Some(0) && state.exists(), "{said}");
}

#[test]
fn an_interface_that_goes_away_is_told() {
    let Some(scene) = crate::scene("an interface that goes away") else { return };
    let mut braid = scene.run_braid("--nf forward --port af_packet:m0 --port af_xdp:m1");
    let change = |host: &Namespace, command: &str| host.run("ip", command).expect("an interface changes");
    // It has been looked at since its cable is up.
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    std::thread::sleep(Duration::from_secs(2));
    change(&scene.client, "link set c0 down");
    braid.hear_of("m0: the interface is down, or has no carrier");
    change(&scene.client, "link set c0 up");
    braid.hear_of("m0: the interface is up");
    change(&scene.server, "link delete s0");
    braid.hear_of("m1: the interface is gone");
    braid.stop_with(3);
}

#[test]
fn stations_behind_a_lost_link_are_forgotten() {
    let Some(scene) = crate::scene("stations behind a lost link") else { return };
    let gateway = Gateway::new();
    let socket = gateway.path("socket");
    let braid =
        scene.run_braid(&format!("--nf bridge --port af_packet:m0 --port af_packet:m1 --control {}", socket.display()));
    eventually("a station is learnt at either port", || {
        scene.client.run("ping", "-c 1 -W 1 -I c0 198.51.100.77").ok();
        scene.server.run("ping", "-c 1 -W 1 -I s0 198.51.100.77").ok();
        let entries = gateway.tell(&["entries"], None).unwrap_or_default();
        ["port 0", "port 1"].iter().all(|port| entries.contains(port))
    });
    scene.client.run("ip", "link set c0 down").expect("an interface changes");
    eventually("those at port 0 are forgotten", || {
        gateway.tell(&["entries"], None).is_ok_and(|entries| entries.contains("port 1") && !entries.contains("port 0"))
    });
    braid.stop();
}

#[test]
fn an_interface_that_is_renamed_stays() {
    let Some(scene) = crate::scene("an interface that is renamed") else { return };
    let mut braid = scene.run_braid("--nf forward --port af_packet:m0 --port af_xdp:m1");
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    if let Err(reason) = scene.middle.run("ip", "link set m1 name x1") {
        return braid_testkit::skip::skip("an interface that is renamed while it is up", &reason);
    }
    braid.hear_of("m1: the interface is called x1 now");
    assert!(pings(&scene.client, SERVER));
    braid.stop();
}

#[test]
fn a_run_ends_when_its_last_interface_is_gone() {
    let Some(scene) = crate::scene("a last interface that goes away") else { return };
    let mut braid = scene.run_braid("--nf forward --port af_packet:m0 --port af_packet:m1");
    scene.client.run("ip", "link delete c0").expect("an interface goes");
    braid.hear_of("m0: the interface is gone");
    scene.server.run("ip", "link delete s0").expect("an interface goes");
    braid.hear_of("m0, m1 were gone before the run ended");
    braid.end_with(3);
}

#[test]
fn an_interface_is_one_runs_at_a_time() {
    let Some(scene) = crate::scene("an interface of one run") else { return };
    let ports = "--nf forward --port af_packet:m0 --port af_packet:m1";
    let first = scene.run_braid(ports);
    let mut second = Command::new(env!("CARGO_BIN_EXE_braid"));
    second.arg("run").args(ports.split_whitespace());
    let refused = scene.middle.inside(|| second.output()).expect("the binary runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("m0: another run of Braid has this interface"), "{said}");
    // However it ends.
    first.kill();
    scene.run_braid(ports).stop();
}
