//! The XDP program in front of AF_XDP sockets steers as the plan does, whatever queues an interface has.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use braid_testkit::kernel::Namespace;
use braid_testkit::skip::skip;
use serde_json::Value;

use crate::scene::{Running, SERVER, connect, eventually, pings, run_bounded, run_braid};

/// What the run at this socket has received by each worker, and handed on.
fn received(socket: &Path) -> (Vec<u64>, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    let output = command.args(["stats", "--json", "--control"]).arg(socket).output().expect("the binary runs");
    let stats: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let of_each = |name: &str| -> Vec<u64> {
        let workers = stats["workers"].as_array().expect("workers");
        workers.iter().map(|worker| worker[name].as_u64().expect("a number")).collect()
    };
    (of_each("packets"), of_each("handed_on").iter().sum())
}

/// Many connections through a firewall on two workers: each worker has some, and packets came to whose they are.
fn is_steered(client: &Namespace, server: &Namespace, address: Ipv4Addr, run: impl FnOnce(&str) -> Running) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let braid = run(&format!("--nf firewall -w 2 --control {}", socket.display()));
    assert_eq!(braid.said.matches("and steers as the plan").count(), 2, "{}", braid.said);
    eventually("the first echo comes back", || pings(client, address));
    for port in 7000..7016 {
        let mut connection = connect(client, server, address, port, Duration::from_secs(10)).expect("TCP");
        connection.transfer(64 << 10);
        connection.talk();
    }
    let (packets, handed_on) = received(&socket);
    // ARP and neighbour discovery are spread by other rules than the program knows.
    let all: u64 = packets.iter().sum();
    assert!(packets.iter().all(|&count| count > 50) && handed_on * 10 < all, "{packets:?}, handed on: {handed_on}");
    braid.stop();
}

#[test]
fn a_program_in_the_driver_steers_where_there_is_one_queue() {
    let Some(scene) = crate::scene("steering in the driver") else { return };
    let ports = "--port af_xdp:m0?mode=native --port af_xdp:m1?mode=native";
    is_steered(&scene.client, &scene.server, SERVER, |plan| scene.run_braid(&format!("{plan} {ports}")));
}

#[test]
fn a_program_in_the_kernels_stack_steers_where_there_is_one_queue() {
    let Some(scene) = crate::scene("steering in the kernel's stack") else { return };
    let scene = scene.without_offloads().expect("ethtool");
    let ports = "--port af_xdp:m0?mode=generic --port af_xdp:m1?mode=generic";
    is_steered(&scene.client, &scene.server, SERVER, |plan| scene.run_braid(&format!("{plan} {ports}")));
}

#[test]
fn the_capabilities_of_the_packaged_service_are_enough() {
    let Some(scene) = crate::scene("capabilities of the service") else { return };
    let ports = "--port af_xdp:m0 --port af_xdp:m1";
    is_steered(&scene.client, &scene.server, SERVER, |plan| run_bounded(&scene.middle, &format!("{plan} {ports}")));
}

#[test]
fn a_program_steers_from_every_queue_of_an_interface() {
    let namespaces = [0; 3].map(|_| Namespace::new());
    let [Ok(client), Ok(middle), Ok(server)] = namespaces else {
        return skip("several queues", &"no network namespace: needs root");
    };
    let queues = "numtxqueues 2 numrxqueues 2";
    client.cable_of("c0", &middle, "m0", queues).expect("veth has several queues");
    server.cable_of("s0", &middle, "m1", queues).expect("veth has several queues");
    client.run("ip", "address add 10.9.0.1/24 dev c0").expect("an address");
    server.run("ip", "address add 10.9.0.2/24 dev s0").expect("an address");
    // Which queue a connection takes is the kernel's choice; of so many some take each.
    is_steered(&client, &server, Ipv4Addr::new(10, 9, 0, 2), |plan| {
        let braid = run_braid(&middle, &format!("{plan} --port af_xdp:m0 --port af_xdp:m1"));
        assert!(braid.said.contains("queues: 2"), "{}", braid.said);
        braid
    });
}

/// Datagrams of 4,000 bytes from many ports of two hosts: none of their fragments waits on another worker for the first one.
fn fragments_come_to_one_worker(mode: &str) {
    let Some(scene) = crate::scene("fragments on two workers") else { return };
    let scene = scene.without_offloads().expect("ethtool");
    scene.client.run("ip", "address add 10.7.0.9/24 dev c0").expect("a second address");
    let braid = scene.run_braid(&format!("--nf nat -w 2 --port {mode}m0 --port {mode}m1"));
    let far = scene.server.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5300))).expect("a socket");
    far.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    for number in 0..24 {
        let host = if number % 2 == 0 { [10, 7, 0, 1] } else { [10, 7, 0, 9] };
        let near = scene.client.inside(|| UdpSocket::bind((Ipv4Addr::from(host), 0))).expect("a socket");
        near.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
        let (sent, mut arrived) = (vec![number; 4000], vec![0; 5000]);
        eventually("a long datagram goes there and back", || {
            near.send_to(&sent, (SERVER, 5300)).expect("a route");
            let Ok((count, source)) = far.recv_from(&mut arrived) else { return false };
            far.send_to(&arrived[..count], source).expect("a route");
            matches!(near.recv_from(&mut arrived), Ok((count, _)) if arrived[..count] == sent)
        });
    }
    let report = braid.stop();
    assert_eq!(report["dropped"]["fragment_held"], Value::Null, "{report}");
    assert!(report["packets_out"].as_u64() >= Some(24 * 2 * 3), "{report}");
}

#[test]
fn fragments_of_udp_come_to_one_worker_behind_the_program() {
    fragments_come_to_one_worker("af_xdp:");
}

#[test]
fn fragments_of_udp_come_to_one_worker_by_rings() {
    fragments_come_to_one_worker("af_packet:");
}
