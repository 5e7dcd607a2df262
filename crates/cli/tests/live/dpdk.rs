//! DPDK's drivers as ports: devices that need no card.

use std::path::Path;

use braid_testkit::kernel::Unavailable;
use braid_testkit::skip::skip;

use crate::scene::{EXTERNAL, Running, SERVER, Scene, connect, eventually, pings, run_anywhere, run_braid};
use crate::support::Braid;

fn scene(test: &str) -> Option<Scene> {
    let scene: Result<Scene, Unavailable> = Scene::new().and_then(Scene::without_offloads);
    scene.inspect_err(|reason| skip(test, reason)).ok()
}

const CABLES: &str = "--port dpdk:net_af_packet0,iface=m0 --port dpdk:net_af_packet1,iface=m1";

#[test]
fn dpdk_carries_a_firewall_between_cables() {
    let Some(scene) = scene("firewall by DPDK") else { return };
    crate::comes_through(&scene, &format!("--nf firewall {CABLES}"));
}

#[test]
fn dpdk_carries_a_nat_between_cables_on_two_workers() {
    let Some(scene) = scene("nat by DPDK") else { return };
    crate::comes_through(&scene, &format!("--nf nat --set external=[\"{EXTERNAL}\"] -w 2 {CABLES}"));
}

#[test]
fn dpdk_receives_by_several_queues_and_every_packet_comes_to_its_worker() {
    let Some(scene) = scene("queues of DPDK") else { return };
    let cables = CABLES.replace("iface", "qpairs=2,iface");
    crate::comes_through(&scene, &format!("--nf firewall -w 2 {cables}"));
    crate::comes_through(&scene, &format!("--nf firewall -w 2 --distribution software {cables}"));
}

#[test]
fn dpdk_carries_packets_between_memory_and_an_interface() {
    let Some(scene) = scene("memif of DPDK") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("m").display().to_string();
    let near = scene.run_braid(&format!("--nf forward --port af_packet:m0 --port memif:{socket}?role=server"));
    let far = scene.run_braid(&format!(
        "--nf forward --port dpdk:net_memif0,role=client,socket={socket},socket-abstract=no --port dpdk:net_af_packet1,iface=m1"
    ));
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    let mut bulk =
        connect(&scene.client, &scene.server, SERVER, 7000, std::time::Duration::from_secs(10)).expect("TCP");
    bulk.transfer(1 << 20);
    near.stop();
    far.stop();
}

#[test]
fn dpdk_is_the_wire_of_a_tap_interface() {
    let Some(scene) = scene("tap of DPDK") else { return };
    let braid =
        run_braid(&scene.middle, "--nf forward --port dpdk:net_tap0,iface=t0 --port dpdk:net_af_packet1,iface=m1");
    scene.middle.run("ip", &format!("address add {EXTERNAL}/24 dev t0")).expect("the interface is there");
    let address = scene.middle.link_address("t0").expect("the interface is there");
    scene.server.run("ip", &format!("neighbour replace {EXTERNAL} lladdr {address} dev s0")).expect("a neighbour");
    eventually("the machine reaches the server by its TAP interface", || pings(&scene.middle, SERVER));
    braid.stop();
}

/// Packets of a capture, from a driver that reads it to one that writes it, around by a ring.
#[test]
fn dpdk_brings_a_capture_through_a_ring_as_it_is() {
    let braid = Braid::new();
    braid.ok("gen campus?packets=5000&size=900 --out in.pcap");
    let (from, to) = (braid.path("in.pcap"), braid.path("out.pcap"));
    let ports =
        format!("--port dpdk:net_pcap0,rx_pcap={},tx_pcap={} --port dpdk:net_ring0", from.display(), to.display());
    let running: Running = run_anywhere(&format!("--nf forward {ports}"));
    // The file is written in pieces, and whole when the port closes.
    eventually("most of it has gone round", || to.metadata().is_ok_and(|file| file.len() > 1 << 20));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let report = running.stop();
    assert_eq!(report["packets_in"].as_u64(), Some(10_000), "{report}");
    assert_eq!(frames(&from), frames(&to));
}

/// Bytes of all frames of a capture, without their times.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("it was written");
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let (mut at, mut frames) = (24, Vec::new());
    while at + 16 <= bytes.len() {
        let len = number(at + 8);
        frames.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
}

#[test]
fn dpdk_refuses_what_it_cannot_be_with_what_helps() {
    let braid = Braid::new();
    let check = |port: &str, what: &str| {
        let text = braid.fails(3, &format!("run --nf forward --port {port} --port dpdk:net_null0")).replace('\n', " ");
        assert!(text.contains(what), "{text}");
    };
    check("dpdk:net_nothing0", "DPDK cannot open it");
    check("dpdk:net_ring0?eal=--no-such-option", "environment does not start");
}
