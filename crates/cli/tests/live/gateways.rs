//! A gateway of `nat` and `router` between links that take less than the hosts on them: the kernels at both ends find out how much.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use braid_testkit::kernel::{Namespace, Unavailable};

use crate::scene::{CLIENT, EXTERNAL, SERVER, Scene, connect, eventually, pings};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 254);
const PATIENCE: Duration = Duration::from_secs(10);

/// Interfaces keep 1500 bytes, so that nothing but the gateway's word makes anyone send less.
const PLAN: &str = r#"
[chain]
order = "same"

[[nf]]
function = "nat"
[nf.config]
external = ["198.51.100.1"]
static = [{ protocol = "tcp", external = "198.51.100.1:7001", inside = "CLIENT:7001" }]
router = "10.7.0.254"
outside_router = "198.51.100.1"
for_router = ["echo", "udp"]
inside_mtu = 1300
outside_mtu = 1400

[[nf]]
function = "router"
[nf.config]
counts_hops = false
interface = [
    { port = 0, addresses = ["10.7.0.254/24", "fd00:7::fe/64"], mtu = 1300 },
    { port = 1, addresses = ["198.51.100.1/24", "fd00:8::fe/64"], mtu = 1400 },
]
"#;

/// The MTU of the path to an address that a host has learnt.
pub fn learnt(host: &Namespace, to: &str) -> Option<u16> {
    let text = host.run("ip", &format!("route get {to}")).expect("a route");
    text.split(" mtu ").nth(1)?.split_whitespace().next()?.parse().ok()
}

/// The gateway answers for its own addresses: nobody needs to be told who has them.
pub fn ask_for_neighbours(scene: &Scene) -> Result<(), Unavailable> {
    scene.client.run("ip", &format!("neighbour del {GATEWAY} dev c0"))?;
    scene.server.run("ip", &format!("neighbour del {EXTERNAL} dev s0"))?;
    for (host, interface, own, far, via) in [
        (&scene.client, "c0", "fd00:7::1", "fd00:8::", "fd00:7::fe"),
        (&scene.server, "s0", "fd00:8::1", "fd00:7::", "fd00:8::fe"),
    ] {
        host.set("ipv6/conf/all/disable_ipv6", 0)?;
        host.run("ip", &format!("address add {own}/64 dev {interface} nodad"))?;
        host.run("ip", &format!("route add {far}/64 via {via}"))?;
    }
    Ok(())
}

/// How a host's UDP to a port that nobody has there fails.
fn refuses_udp(host: &Namespace, to: Ipv4Addr) -> Option<ErrorKind> {
    let socket = host.inside(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
    socket.connect((to, 33434)).expect("a way");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket.send(b"x").expect("it is sent");
    socket.recv(&mut [0; 16]).err().map(|error| error.kind())
}

#[test]
fn both_sides_of_a_gateway_find_out_what_its_links_take() {
    for back_end in crate::BACK_ENDS {
        let Some(scene) = crate::scene("path MTU discovery through a gateway") else { return };
        ask_for_neighbours(&scene).expect("the kernel has IPv6");
        let (client, server) = (&scene.client, &scene.server);
        let folder = tempfile::tempdir().expect("a folder");
        let plan = folder.path().join("plan.toml");
        std::fs::write(&plan, PLAN.replace("CLIENT", &CLIENT.to_string())).expect("the folder can be written to");
        let braid = scene.run_braid(&format!("{} --port {back_end}:m0 --port {back_end}:m1", plan.display()));
        eventually("an echo comes back", || pings(client, SERVER));
        let large = |to: &str, len| client.run("ping", &format!("-n -c 1 -W 2 -M do -s {len} {to}"));
        assert!(large(&SERVER.to_string(), 1472).is_err(), "it is too long, and must not be cut");
        assert_eq!(learnt(client, &SERVER.to_string()), Some(1400), "{back_end}");
        // Segments of 1500 bytes, until the sender is told; each end believes that the other takes as many.
        connect(client, server, SERVER, 7000, PATIENCE).expect("a connection").transfer(1 << 20);
        connect(server, client, EXTERNAL, 7001, PATIENCE).expect("one from outside").transfer(1 << 20);
        assert_eq!(learnt(server, &EXTERNAL.to_string()), Some(1300), "{back_end}");
        // What may be cut is, and is put together at the other end.
        assert!(client.run("ping", &format!("-n -c 1 -W 2 -M dont -s 3000 {SERVER}")).is_ok(), "{back_end}");
        // The gateway itself is asked by the address that its hosts have outside: ping, in pieces too, and traceroute.
        for host in [client, server] {
            assert!(host.run("ping", &format!("-n -c 1 -W 2 -s 3000 {EXTERNAL}")).is_ok(), "{back_end}");
            assert_eq!(refuses_udp(host, EXTERNAL), Some(ErrorKind::ConnectionRefused), "{back_end}");
        }
        // IPv6, which is not translated, by the router's own word.
        eventually("an echo of IPv6 comes back", || client.run("ping", "-n -c 1 -W 1 fd00:8::1").is_ok());
        assert!(large("fd00:8::1", 1452).is_err());
        assert_eq!(learnt(client, "fd00:8::1"), Some(1400), "{back_end}");
        braid.stop();
    }
}

/// The router of a plan that says nothing of MTUs.
const ROUTER: &str = r#"
[[nf]]
function = "router"
[nf.config]
interface = [{ port = 0, addresses = ["10.7.0.254/24"] }, { port = 1, addresses = ["198.51.100.1/24"] }]
"#;

#[test]
fn a_router_takes_the_mtu_of_its_interfaces_and_another_one_with_the_next_plan() {
    let Some(scene) = crate::scene("the MTU of a router's interfaces") else { return };
    ask_for_neighbours(&scene).expect("the kernel has IPv6");
    let (client, middle) = (&scene.client, &scene.middle);
    let folder = tempfile::tempdir().expect("a folder");
    let (plan, socket) = (folder.path().join("plan.toml"), folder.path().join("socket"));
    std::fs::write(&plan, ROUTER).expect("the folder can be written to");
    let takes = |mtu: u16| middle.run("ip", &format!("link set m1 mtu {mtu}")).expect("it takes as many");
    let learns = |mtu: u16| {
        // The largest that the host believes to fit now, and may not be cut.
        let len = learnt(client, &SERVER.to_string()).unwrap_or(1500) - 28;
        assert!(client.run("ping", &format!("-n -c 1 -W 2 -M do -s {len} {SERVER}")).is_err());
        assert_eq!(learnt(client, &SERVER.to_string()), Some(mtu));
    };
    takes(1400);
    let control = format!("--control {}", socket.display());
    let braid = scene.run_braid(&format!("{} {control} --port af_packet:m0 --port af_packet:m1", plan.display()));
    eventually("an echo comes back", || pings(client, SERVER));
    learns(1400);
    takes(1300);
    let mut apply = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
    let output = apply.arg("apply").arg(&plan).arg("--control").arg(&socket).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("an echo comes back", || pings(client, SERVER));
    learns(1300);
    braid.stop();
}
