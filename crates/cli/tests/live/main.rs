//! `braid run` between real interfaces: veth cables between network namespaces, which each test makes and the kernel removes.
//!
//! Offloads of the interfaces stay as they are by default: segments of 64 KiB and checksums that were left undone arrive, and
//! must leave right.

mod addresses;
mod balancers;
#[cfg(feature = "dpdk")]
mod dpdk;
mod everyday;
mod gateways;
mod operations;
mod resizes;
mod scene;
mod steered;
mod storms;
#[path = "../support/mod.rs"]
mod support;
mod tunnels;
mod upgrades;
mod vlans;

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use braid_testkit::kernel::Namespace;
use braid_testkit::skip::skip;
use scene::{
    CLIENT, EXTERNAL, Reach, SERVER, Scene, connect, datagrams, eventually, pings, reach, run_anywhere, run_braid,
};

const BACK_ENDS: [&str; 2] = ["af_packet", "af_xdp"];

/// The scene; none, and said so, where this machine has no namespaces.
fn scene(test: &str) -> Option<Scene> {
    Scene::new().inspect_err(|reason| skip(test, reason)).ok()
}

/// Everything that must go through a chain of two ports.
fn everything_comes_through(test: &str, back_end: &str, arguments: &str) {
    let Some(scene) = scene(test) else { return };
    comes_through(&scene, &format!("{arguments} --port {back_end}:m0 --port {back_end}:m1"));
}

/// The same for a scene and all arguments.
fn comes_through(scene: &Scene, arguments: &str) {
    let braid = scene.run_braid(arguments);
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    let (client, server) = (&scene.client, &scene.server);
    let mut held = connect(client, server, SERVER, 7000, Duration::from_secs(10)).expect("a connection");
    held.talk();
    let mut bulk = connect(client, server, SERVER, 7001, Duration::from_secs(10)).expect("another one");
    bulk.transfer(4 << 20);
    datagrams(client, server, SERVER);
    eventually("an ICMP error finds its way", || scene::hears_of_a_closed_port(client, SERVER));
    held.talk();
    let report = braid.stop();
    assert!(report["bytes_in"].as_u64().is_some_and(|bytes| bytes > 4 << 20), "{report}");
}

#[test]
fn a_firewall_lets_everything_through_that_begins_inside_by_af_packet() {
    everything_comes_through("firewall by af_packet", "af_packet", "--nf firewall");
}

#[test]
fn a_firewall_lets_everything_through_that_begins_inside_by_af_xdp() {
    everything_comes_through("firewall by af_xdp", "af_xdp", "--nf firewall");
}

#[test]
fn a_nat_translates_everything_by_af_packet_on_two_workers() {
    everything_comes_through(
        "nat by af_packet",
        "af_packet",
        &format!("--nf nat --set external=[\"{EXTERNAL}\"] -w 2"),
    );
}

#[test]
fn a_nat_translates_everything_by_af_xdp_on_two_workers() {
    everything_comes_through("nat by af_xdp", "af_xdp", &format!("--nf nat --set external=[\"{EXTERNAL}\"] -w 2"));
}

#[test]
fn syn_cookies_connect_clients_and_servers_of_linux() {
    let arguments = "--nf anti_ddos --set action=cookies --set cookies={when=\"always\"}";
    for (back_end, workers) in [("af_packet", 1), ("af_xdp", 2)] {
        everything_comes_through("SYN cookies", back_end, &format!("{arguments} -w {workers}"));
    }
}

/// Linux and Braid, each in a scene of its own, let the same through.
fn as_linux_does(test: &str, inwards: Ipv4Addr, arguments: &str, rules: &str) {
    let Some(linux) = scene(test) else { return };
    if let Err(reason) = linux.forward_by_linux(rules) {
        return skip(test, &reason);
    }
    let expected = reach(&linux, inwards);
    assert_eq!((expected.tcp, expected.icmp_error), (true, true), "{expected:?}");
    for back_end in BACK_ENDS {
        let scene = Scene::new().expect("the first one was there");
        let braid = scene.run_braid(&format!("{arguments} --port {back_end}:m0 --port {back_end}:m1"));
        let found: Reach = reach(&scene, inwards);
        assert_eq!(found, expected, "{back_end}");
        braid.stop();
    }
}

#[test]
fn a_firewall_lets_through_what_nftables_lets_through() {
    let rules = "table ip guard { chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname m0 accept
    }
    }";
    as_linux_does("firewall as nftables", CLIENT, "--nf firewall", rules);
}

#[test]
fn a_nat_lets_through_what_nftables_lets_through() {
    let rules = format!(
        "table ip translate {{
            chain postrouting {{ type nat hook postrouting priority srcnat; oifname m1 snat to {EXTERNAL}; }}
            chain input {{ type filter hook input priority 0; policy drop; }}
        }}"
    );
    let strict = "--set filtering=address_and_port_dependent";
    as_linux_does("nat as nftables", EXTERNAL, &format!("--nf nat --set external=[\"{EXTERNAL}\"] {strict}"), &rules);
}

#[test]
fn a_bridge_of_three_ports_joins_three_hosts() {
    for back_end in BACK_ENDS {
        let Ok(middle) = Namespace::new().inspect_err(|reason| skip("a bridge of three ports", reason)) else { return };
        let hosts: Vec<Namespace> = (0..3).map(|_| Namespace::new().expect("the first one was there")).collect();
        for (i, host) in hosts.iter().enumerate() {
            host.cable("h0", &middle, &format!("p{i}")).expect("a cable");
            host.run("ip", &format!("address add 10.8.0.{}/24 dev h0", i + 1)).expect("an address");
        }
        let ports: String = (0..3).map(|i| format!(" --port {back_end}:p{i}")).collect();
        let braid = run_braid(&middle, &format!("--nf bridge{ports}"));
        for (i, host) in hosts.iter().enumerate() {
            for other in (1..=3).filter(|other| *other != i + 1) {
                eventually("hosts of a bridge reach each other", || pings(host, Ipv4Addr::new(10, 8, 0, other as u8)));
            }
        }
        let mut bulk =
            connect(&hosts[0], &hosts[2], Ipv4Addr::new(10, 8, 0, 3), 7000, Duration::from_secs(10)).expect("TCP");
        bulk.transfer(1 << 20);
        let report = braid.stop();
        assert!(report["packets_copied"].as_u64().is_some_and(|copies| copies > 0), "ARP is flooded: {report}");
    }
}

#[test]
fn checksums_that_leave_are_right_for_tshark() {
    let test = "checksums that leave are right";
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip(test, &"tshark is not installed: apt-get install tshark");
    }
    for back_end in BACK_ENDS {
        let Some(scene) = scene(test) else { return };
        let braid = scene
            .run_braid(&format!("--nf nat --set external=[\"{EXTERNAL}\"] --port {back_end}:m0 --port {back_end}:m1"));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("received.pcap");
        // Only what the server receives: what it sends has its checksums left undone on purpose.
        let mut capture = Command::new("tcpdump");
        capture.args(["-i", "s0", "-Q", "in", "-s", "0", "-U", "-Z", "root", "-w"]).arg(&file).stderr(Stdio::null());
        let Ok(mut capture) = scene.server.inside(|| capture.spawn()) else {
            return skip(test, &"tcpdump is not installed: apt-get install tcpdump");
        };
        eventually("tcpdump has begun", || {
            pings(&scene.client, SERVER) && file.metadata().is_ok_and(|file| file.len() > 24)
        });
        let connection = connect(&scene.client, &scene.server, SERVER, 7000, Duration::from_secs(10));
        connection.expect("TCP").transfer(256 << 10);
        datagrams(&scene.client, &scene.server, SERVER);
        let written = || file.metadata().map_or(0, |file| file.len());
        eventually("tcpdump has written it", || written() > 256 << 10);
        capture.kill().expect("it runs");
        capture.wait().expect("it ends");
        braid.stop();
        let bad = "ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
        let checks = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"];
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&file).args(checks.iter().flat_map(|check| ["-o", check])).args(["-Y", bad]);
        let found = tshark.output().expect("it was there before");
        assert!(found.stdout.is_empty(), "{back_end}: {}", String::from_utf8_lossy(&found.stdout));
    }
}

#[test]
fn each_worker_receives_its_share_unless_one_thread_is_to_receive_for_all() {
    let Some(scene) = scene("shares of workers") else { return };
    let check = |arguments: &str, rings: &str| {
        let braid = scene.run_braid(&format!("--nf firewall --port af_packet:m0 --port af_packet:m1 {arguments}"));
        assert!(braid.said.contains(rings), "{}", braid.said);
        eventually("packets pass", || pings(&scene.client, SERVER));
        braid.stop();
    };
    check("-w 2", "m0: AF_PACKET, 2 rings");
    check("-w 2 --distribution software", "m0: AF_PACKET, a ring");
    check("-w 2 --balance", "m0: AF_PACKET, a ring");
}

/// A TAP interface that went with the old program would take its address along.
#[test]
fn a_tap_interface_and_its_address_outlive_an_upgrade_and_not_the_run() {
    let Some(scene) = scene("tap and an upgrade") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let braid = scene.run_braid(&format!("--nf forward --port tap:t0 --port m1 --control {}", socket.display()));
    scene.middle.run("ip", &format!("address add {EXTERNAL}/24 dev t0")).expect("the interface is there");
    let address = scene.middle.link_address("t0").expect("the interface is there");
    scene.server.run("ip", &format!("neighbour replace {EXTERNAL} lladdr {address} dev s0")).expect("a neighbour");
    eventually("the machine reaches the server by its TAP interface", || pings(&scene.middle, SERVER));
    let mut upgrade = Command::new(env!("CARGO_BIN_EXE_braid"));
    assert!(upgrade.args(["upgrade", "--control"]).arg(&socket).status().expect("it runs").success());
    let shown = || scene.middle.run("ip", "address show t0").unwrap_or_default();
    let environment = || std::fs::read(format!("/proc/{}/environ", braid.id())).expect("it runs");
    eventually("the process is the next program", || {
        environment().windows(15).any(|bytes| bytes == b"BRAID_TAP_WIRES")
    });
    eventually("packets pass again", || pings(&scene.middle, SERVER));
    assert!(shown().contains(&EXTERNAL.to_string()), "{}", shown());
    drop(braid);
    eventually("it goes with the run", || shown().is_empty());
}

/// Nothing is left behind on the interface, once the kernel has cleaned up.
fn is_free(scene: &Scene) {
    let shown = || scene.middle.run("ip", "link show m0").expect("the interface is there");
    eventually("the program is off the interface", || !shown().contains("xdp"));
}

#[test]
fn after_kill_9_nothing_is_left_behind_and_the_next_one_starts() {
    let Some(scene) = scene("kill -9") else { return };
    let first = scene.run_braid("--nf forward --port af_xdp:m0 --port tap:t0");
    assert!(scene.middle.run("ip", "link show m0").expect("m0").contains("xdp"), "{}", first.said);
    first.kill();
    is_free(&scene);
    assert!(scene.middle.run("ip", "link show t0").is_err(), "the TAP interface has gone");
    let second = scene.run_braid("--nf forward --port af_xdp:m0?mode=generic --port af_xdp:m1");
    assert!(
        second.said.contains("generic") && second.said.contains("m1: AF_XDP, program in the driver"),
        "{}",
        second.said
    );
    eventually("packets pass", || pings(&scene.client, SERVER));
    second.stop();
}

#[test]
fn on_veth_the_best_back_end_is_af_packet_and_elsewhere_it_falls_back_to_it_and_says_why() {
    let Some(scene) = scene("the best back end") else { return };
    let braid = scene.run_braid("--nf forward --port m0 --port m1");
    assert!(braid.said.contains("m0: AF_PACKET") && braid.said.contains("faster than AF_XDP"), "{}", braid.said);
    eventually("packets pass from one to the other", || pings(&scene.client, SERVER));
    braid.stop();
    for arguments in ["link add bridge0 type bridge", "link set bridge0 up"] {
        scene.middle.run("ip", arguments).expect("the kernel has bridges");
    }
    let braid = scene.run_braid("--nf forward --port bridge0 --port m1");
    assert!(braid.said.contains("bridge0: AF_PACKET") && braid.said.contains("no AF_XDP: "), "{}", braid.said);
    braid.stop();
}

#[test]
fn a_tap_port_is_the_wire_of_an_interface() {
    let Some(scene) = scene("tap") else { return };
    let braid = scene.run_braid("--nf forward --port tap:t0 --port m1");
    scene.middle.run("ip", &format!("address add {EXTERNAL}/24 dev t0")).expect("the interface is there");
    let address = scene.middle.link_address("t0").expect("the interface is there");
    scene.server.run("ip", &format!("neighbour replace {EXTERNAL} lladdr {address} dev s0")).expect("a neighbour");
    eventually("the machine reaches the server by its TAP interface", || pings(&scene.middle, SERVER));
    braid.stop();
}

#[test]
fn a_port_that_cannot_be_opened_ends_it_with_the_command_that_mends_it() {
    let Some(scene) = scene("refusals") else { return };
    scene.middle.run("ip", "link add idle type veth peer name far").expect("a cable that is not up");
    let refused = |arguments: &str, what: &str, help: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.arg("run").args(arguments.split_whitespace()).args(["--nf", "forward"]);
        let output = scene.middle.inside(|| command.output()).expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stderr).replace("\n", " ");
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(what) && text.contains(help), "{text}");
    };
    let check = |arguments: &str, what: &str, help: &str| {
        refused(arguments, what, help);
        is_free(&scene);
    };
    check("--port m0 --port nowhere", "no such interface", "ip -brief link");
    check("--port m0 --port idle", "is down", "ip link set idle up");
    match scene.middle.run("ip", "tuntap add mode tun name layer3") {
        Ok(_) => check("--port m0 --port layer3", "no Ethernet headers", "tap:braid0"),
        Err(reason) => skip("an interface without Ethernet", &reason),
    }
    check("--port m0 --port tap:m1", "no TAP interface", "af_packet:m1");
    // The last one, since nothing is free now: a program of somebody else.
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ebpf/steer.o");
    match scene.middle.run("ip", &format!("link set m0 xdp obj {program} sec xdp")) {
        Ok(_) => refused("--port af_xdp:m0 --port tap:t0", "attached to it already", "xdp off"),
        Err(reason) => skip("an XDP program of somebody else", &reason),
    }
}

/// What DPDK's testpmd prints that sends by two memif ports for some seconds, to a server at the first socket and a client at the second; how it ended,
/// if it did so early. None if it is not installed.
fn testpmd_by_memif(folder: &Path, server: &str, client: &str) -> Option<Result<String, String>> {
    let mut testpmd = Command::new("dpdk-testpmd");
    testpmd.args(["--no-huge", "-m", "512", "--no-pci", "--file-prefix", &format!("braid{}", std::process::id())]);
    for (number, role, socket) in [(0, "client", server), (1, "server", client)] {
        testpmd.arg(format!("--vdev=net_memif{number},role={role},id=0,socket={socket},socket-abstract=no"));
    }
    testpmd.args(["--", "-i", "--total-num-mbufs=8192", "--forward-mode=flowgen"]);
    let said = folder.join("testpmd.txt");
    let errors = std::fs::File::create(&said).expect("a file");
    let mut child = testpmd.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn().ok()?;
    let mut orders = child.stdin.take().expect("piped");
    let mut order = |text: &str| writeln!(orders, "{text}");
    let told = order("start").and_then(|()| {
        // Reading until the port says so would need its prompt; connecting takes a moment.
        std::thread::sleep(Duration::from_secs(4));
        order("stop").and_then(|()| order("quit"))
    });
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = || format!("{}\n{text}\n{}", output.status, std::fs::read_to_string(&said).unwrap_or_default());
    Some(if told.is_ok() { Ok(text) } else { Err(complaint()) })
}

#[test]
fn memif_speaks_with_dpdk_as_server_and_as_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut fell_over = Vec::new();
    for attempt in 0..3 {
        let [server, client] = ["a", "b"].map(|name| path(&format!("{name}{attempt}")));
        let ports = format!("--nf forward --port memif:{server}?role=server --port memif:{client}?role=client");
        let braid = run_anywhere(&ports);
        let Some(ended) = testpmd_by_memif(folder.path(), &server, &client) else {
            return skip("memif with DPDK", &"dpdk-testpmd is not installed: apt-get install dpdk-dev");
        };
        let report = braid.stop();
        let text = match ended {
            Ok(text) => text,
            // Once in a while, on a machine with much else to do, testpmd itself ends at once: that says nothing of Braid.
            Err(complaint) => {
                fell_over.push(complaint);
                continue;
            }
        };
        let of = |line: &str| line.trim().strip_prefix("RX-packets:")?.split_whitespace().next()?.parse().ok();
        let received: Vec<u64> = text.lines().filter_map(of).collect();
        let is_both_ways = received.len() >= 2 && received[..2].iter().all(|count| *count > 0);
        assert!(is_both_ways, "both ways: {received:?}\n{text}\n{report}");
        return;
    }
    panic!("testpmd ended each time: {fell_over:?}");
}
