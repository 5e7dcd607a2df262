//! External addresses of a NAT that join and leave while packets go through.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use crate::operations::Gateway;
use crate::resizes::ask;
use crate::scene::{CLIENT, EXTERNAL, SERVER, Scene, connect, eventually, uninterrupted};

const PATIENCE: Duration = Duration::from_secs(10);
/// Hosts beside the client, behind the same interface, and the external addresses that may be.
const HOSTS: std::ops::Range<u8> = 11..31;
const OTHERS: std::ops::RangeInclusive<u8> = 3..=6;

/// Ports of hosts from which nothing was sent before. The kernel does not give them out by itself: of one that it gives out a mapping may
/// be left, and what comes from it keeps that mapping's address.
static UNUSED: AtomicU16 = AtomicU16::new(20_000);

/// By which external address the server sees a host, if its datagram arrives.
fn seen(scene: &Scene, host: Ipv4Addr) -> Option<IpAddr> {
    // A port of its own: a program that is being started has what was open here open for a moment longer.
    let server = scene.server.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).expect("a socket");
    let port = server.local_addr().expect("it is bound").port();
    let socket =
        scene.client.inside(|| UdpSocket::bind((host, UNUSED.fetch_add(1, Ordering::Relaxed)))).expect("a socket");
    for socket in [&server, &socket] {
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    }
    socket.send_to(b"?", (SERVER, port)).expect("a route");
    let (_, from) = uninterrupted(|| server.recv_from(&mut [0; 8])).ok()?;
    server.send_to(b"!", from).expect("a route back");
    uninterrupted(|| socket.recv(&mut [0; 8])).ok()?;
    Some(from.ip())
}

#[test]
fn external_addresses_join_drain_and_leave_under_traffic() {
    let Some(scene) = crate::scene("a NAT of other addresses") else { return };
    let mac = scene.client.link_address("c0").expect("an interface");
    for n in OTHERS {
        let address = format!("neighbour replace 198.51.100.{n} lladdr {mac} dev s0 nud permanent");
        scene.server.run("ip", &address).expect("a neighbour");
    }
    for n in HOSTS {
        scene.client.run("ip", &format!("address add 10.7.0.{n}/24 dev c0")).expect("an address");
    }
    let gateway = Gateway::new();
    let write = |config: &str| -> PathBuf {
        let text = format!("[[nf]]\nfunction = \"nat\"\n[nf.config]\nmappings_max = 20000\n{config}\n");
        std::fs::write(gateway.path("plan.toml"), text).expect("the folder can be written to");
        gateway.path("plan.toml")
    };
    // Until all mappings were looked at since the last change another one is refused.
    let apply = |config: &str| eventually("applied", || gateway.tell(&["apply"], Some(&write(config))).is_ok());
    let (file, socket) = (write("external = [\"198.51.100.1\"]"), gateway.path("socket"));
    let ports = "--port af_packet:m0 --port af_packet:m1 -w 2";
    let braid = scene.run_braid(&format!("{} --control {} {ports}", file.display(), socket.display()));
    eventually("the first datagram arrives", || seen(&scene, CLIENT) == Some(EXTERNAL.into()));
    let mut held = connect(&scene.client, &scene.server, SERVER, 7000, PATIENCE).expect("a connection");
    held.talk();

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&scene, &gateway, &stop));
        for external in ["\"198.51.100.1\", \"198.51.100.3-198.51.100.6\"", "\"198.51.100.1\", \"198.51.100.4/31\""] {
            std::thread::sleep(Duration::from_millis(300));
            apply(&format!("external = [{external}]"));
            held.talk();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(asking.join().expect("all are answered") > 0);
    });
    let used: BTreeSet<IpAddr> = HOSTS.filter_map(|n| seen(&scene, Ipv4Addr::new(10, 7, 0, n))).collect();
    let open = [1, 4, 5].map(|n| IpAddr::from([198, 51, 100, n]));
    assert!(used.len() > 1 && used.iter().all(|address| open.contains(address)), "{used:?}");
    assert_eq!(seen(&scene, CLIENT), Some(EXTERNAL.into()), "it has mappings there");

    let external = "external = [\"198.51.100.1\", \"198.51.100.4/31\"]";
    let refused = gateway.tell(&["apply"], Some(&write(&format!("{external}\nfirst_port = 2000"))));
    let refused = refused.expect_err("ports keep their numbers");
    assert!(refused.contains(".toml:6:1: nat: ") && refused.contains("`first_port` and `last_port`"), "{refused}");
    // A port forward comes, and goes with the next change.
    let fixed = "static = [{ protocol = \"tcp\", external = \"198.51.100.4:8080\", inside = \"10.7.0.1:8080\" }]";
    apply(&format!("{external}\n{fixed}"));
    let to = Ipv4Addr::new(198, 51, 100, 4);
    let mut forwarded = None;
    eventually("the port is forwarded", || {
        forwarded = connect(&scene.server, &scene.client, to, 8080, Duration::from_secs(1)).ok();
        forwarded.is_some()
    });
    let mut forwarded = forwarded.expect("a connection");
    forwarded.talk();

    apply("external = [\"198.51.100.4/31\"]\ndraining = [\"198.51.100.1\"]");
    eventually("the port is not forwarded any more", || !forwarded.answers());
    held.talk();
    let other = seen(&scene, CLIENT).expect("it is let out");
    assert_ne!(other, IpAddr::from(EXTERNAL), "no new mapping there");
    // Another process knows addresses by the same numbers.
    eventually("upgraded", || {
        gateway
            .tell(
                &["upgrade"],
                Some(&write("external = [\"198.51.100.3-198.51.100.5\"]\ndraining = [\"198.51.100.1\"]")),
            )
            .is_ok()
    });
    held.talk();
    eventually("the new program answers", || gateway.tell(&["stats"], None).is_ok());
    assert_eq!(seen(&scene, CLIENT), Some(other), "pooling is paired");
    held.transfer(1 << 20);

    apply("external = [\"198.51.100.3-198.51.100.5\"]");
    eventually("its mapping has ended", || seen(&scene, CLIENT) == Some(other) && !held.answers());
    braid.stop();
}
