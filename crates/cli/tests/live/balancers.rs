//! A load balancer, and a router behind it, between clients and backends of Linux. Datagrams of 4,000 bytes are cut by the client's kernel,
//! perhaps once more for a tunnel, and put together by the backend's.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_testkit::kernel::Namespace;
use braid_testkit::skip::skip;

use crate::gateways::{ask_for_neighbours, learnt};
use crate::scene::{CLIENT, SERVER, Scene, connect, eventually, run_braid};

const SERVICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
const SERVICE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 8, 0, 0, 0, 0, 0, 1);
const PATIENCE: Duration = Duration::from_secs(10);

/// Backends are behind port 0, clients behind port 1; the services' addresses are the router's own.
const PLAN: &str = r#"
[[nf]]
function = "load_balancer"
[nf.config]
MORE
service = [
    { address = "203.0.113.10", mode = "MODE", backends = [{ address = "198.51.100.2"MAC }] },
    { address = "2001:db8::10", mode = "MODE", backends = [{ address = "fd00:8::1"MAC }] },
]

[[nf]]
function = "router"
[nf.config]
interface = [
    { port = 0, addresses = ["198.51.100.1/24", "fd00:8::fe/64"] },
    { port = 1, addresses = ["10.7.0.254/24", "203.0.113.10/32", "fd00:7::fe/64", "2001:db8::10/128"] },
]
"#;

fn plan(mode: &str, mac: &str) -> String {
    let routers = "router = \"198.51.100.1\"\nrouter_v6 = \"fd00:8::fe\"";
    let more = if matches!(mode, "nat" | "direct") { "" } else { routers };
    let mac = if mode == "direct" { format!(", mac = \"{mac}\"") } else { String::new() };
    PLAN.replace("MORE", more).replace("MODE", mode).replace("MAC", &mac)
}

fn socket(host: &Namespace, at: IpAddr, port: u16) -> UdpSocket {
    let socket = host.inside(|| UdpSocket::bind((at, port))).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    socket
}

/// Asks a service with a datagram of 4,000 bytes, which answers with as many; whether both arrive.
fn asks(near: &UdpSocket, far: &UdpSocket, service: IpAddr) -> bool {
    let (sent, mut arrived) = ((0..4000).map(|at| (at ^ at >> 8) as u8).collect::<Vec<_>>(), vec![0; 5000]);
    // The first one over IPv6 may be too long for a tunnel: the error comes with the next call.
    let _ = near.send_to(&sent, (service, 5300));
    let Ok((count, client)) = far.recv_from(&mut arrived) else { return false };
    assert!(arrived[..count] == sent, "{service}");
    far.send_to(&arrived[..count], client).expect("a route back");
    matches!(near.recv_from(&mut arrived), Ok((count, from)) if arrived[..count] == sent && from.ip() == service)
}

/// The far end of a kind of tunnel, which this kernel has no device for (`CONFIG_NET_IPIP`, `CONFIG_NET_IPGRE`, `CONFIG_NET_FOU`): packets as the
/// kernel has put them together, and how many bytes of each stand before what it carries.
fn tunnel_ends(host: &Namespace, mode: &str) -> Vec<(File, usize, [u8; 2])> {
    let (v4, v6) = ([0x08, 0], [0x86, 0xdd]);
    let raw = |protocol, is_v6| host.packet_receiver(protocol, is_v6).expect("a socket for IP packets");
    let udp = |at: IpAddr| {
        let socket = socket(host, at, 6080);
        // As long as the others wait.
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
        File::from(OwnedFd::from(socket))
    };
    match mode {
        "ipip" => vec![(raw(4, false), 20, v4), (raw(41, true), 0, v6)],
        "gre" => vec![(raw(47, false), 20 + 4, v4), (raw(47, true), 4, v6)],
        "gue" => vec![(udp(SERVER.into()), 0, v4), (udp(SERVER_V6.into()), 0, v6)],
        _ => Vec::new(),
    }
}

/// Tells others to stop when it goes, also by a panic.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Gives what a tunnel carries to the host's kernel, as from a cable of its own, until told to stop.
fn unwrap(stop: &AtomicBool, host: &Namespace, mac: [u8; 6], (mut from, before, kind): (File, usize, [u8; 2])) {
    let mut cable = host.frame_sender("t1").expect("the cable's other end");
    let mut packet = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(len) = from.read(&mut packet) {
            let link = [&mac[..], &[2, 0, 0, 0, 0, 9], &kind].concat();
            cable.write_all(&[&link, &packet[before.min(len)..len]].concat()).expect("the cable takes it");
        }
    }
}

/// Has a host take packets for the services' addresses, also by a cable `t0` whose other end it holds.
fn serve(host: &Namespace) {
    host.cable("t0", host, "t1").expect("a cable");
    host.set("ipv6/conf/all/disable_ipv6", 0).expect("the kernel has IPv6");
    for interface in ["all", "t0"] {
        host.set(&format!("ipv4/conf/{interface}/rp_filter"), 0).expect("a setting");
    }
    host.run("ip", "link set lo up").expect("an interface");
    host.run("ip", &format!("address add {SERVICE}/32 dev lo")).expect("an address");
    host.run("ip", &format!("address add {SERVICE_V6}/128 dev lo nodad")).expect("an address");
}

fn mac_of(host: &Namespace, interface: &str) -> [u8; 6] {
    let text = host.link_address(interface).expect("an interface");
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("two digits"));
    std::array::from_fn(|_| bytes.next().expect("six bytes"))
}

fn written(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, text).expect("the folder can be written to");
    (folder, plan.display().to_string())
}

#[test]
fn a_load_balancer_brings_clients_to_its_backends() {
    for back_end in crate::BACK_ENDS {
        let Some(scene) = crate::scene("a load balancer") else { return };
        let (_folder, plan) = written(&format!(
            "[[port]]\ndevice = \"{back_end}:m1\"\n[[port]]\ndevice = \"{back_end}:m0\"\n[[nf]]\nfunction = \"load_balancer\"\n\
             [[nf.config.service]]\naddress = \"{SERVICE}\"\nport = 80\nbackends = [{{ address = \"{SERVER}\", port = 8080 }}]\n"
        ));
        let braid = scene.run_braid(&format!("{plan} --port {back_end}:m1 --port {back_end}:m0"));
        let listener = scene.server.inside(|| std::net::TcpListener::bind((SERVER, 8080))).expect("a socket");
        let stream = scene
            .client
            .inside(|| std::net::TcpStream::connect_timeout(&(SERVICE, 80).into(), Duration::from_secs(10)));
        let near = stream.expect("the service answers");
        let (_, client) = listener.accept().expect("the backend was asked");
        assert_eq!((client.ip(), near.peer_addr().expect("connected").ip()), (CLIENT.into(), SERVICE.into()));
        braid.stop();
    }
}

fn long_datagrams_reach_the_backend(mode: &str) {
    for (back_end, workers) in [("af_packet", 1), ("af_packet", 2), ("af_xdp", 2)] {
        let Some(scene) = crate::scene("long datagrams to a backend") else { return };
        ask_for_neighbours(&scene).expect("the kernel has IPv6");
        let Scene { client, server, .. } = &scene;
        client.run("ip", &format!("route add {SERVICE_V6} via fd00:7::fe")).expect("a route");
        serve(server);
        let (_folder, plan) = written(&plan(mode, &server.link_address("s0").expect("an interface")));
        let braid = scene.run_braid(&format!("{plan} --port {back_end}:m1 --port {back_end}:m0 -w {workers}"));
        let at = |service: IpAddr, server: IpAddr| if mode == "nat" { server } else { service };
        let services = [
            (CLIENT.into(), SERVICE.into(), SERVER.into()),
            ("fd00:7::1".parse().expect("an address"), SERVICE_V6.into(), SERVER_V6.into()),
        ];
        let (stop, mac) = (AtomicBool::new(false), mac_of(server, "t0"));
        std::thread::scope(|scope| {
            let _end = Stop(&stop);
            for end in tunnel_ends(server, mode) {
                scope.spawn(|| unwrap(&stop, server, mac, end));
            }
            for (client_address, service, own) in services {
                let (near, far) = (socket(client, client_address, 0), socket(server, at(service, own), 5300));
                eventually("a long datagram goes there and back", || asks(&near, &far, service));
                let arrived = (0..50).filter(|_| asks(&near, &far, service)).count();
                // All of them on a machine that has time; beside other tests the kernel loses a few.
                assert!(arrived >= 35, "{arrived} of 50: {mode} {service} {back_end} {workers}");
            }
            // Segments that are too long for a tunnel, until their sender is told.
            connect(client, server, SERVICE, 7000, PATIENCE).expect("a connection").transfer(1 << 20);
            // Past the service, in pieces as well.
            for _ in 0..5 {
                client.run("ping", &format!("-n -c 1 -W 2 -s 4000 {SERVER}")).expect("a long echo comes back");
            }
            // The router answers for the service's addresses, also what its clients' kernels have cut.
            for service in [SERVICE.to_string(), SERVICE_V6.to_string()] {
                for len in [56, 4000] {
                    client.run("ping", &format!("-n -c 1 -W 2 -s {len} {service}")).expect("an echo of the router");
                }
            }
        });
        braid.stop();
    }
}

#[test]
fn long_datagrams_are_translated() {
    long_datagrams_reach_the_backend("nat");
}

#[test]
fn long_datagrams_go_by_ip_in_ip() {
    long_datagrams_reach_the_backend("ipip");
}

#[test]
fn long_datagrams_go_by_gre() {
    long_datagrams_reach_the_backend("gre");
}

#[test]
fn long_datagrams_go_by_gue() {
    long_datagrams_reach_the_backend("gue");
}

#[test]
fn long_datagrams_go_by_the_backends_ethernet_address() {
    long_datagrams_reach_the_backend("direct");
}

/// The way to the backends takes less than the tunnels' `mtu`: the router there says so to the tunnels' end, and the balancer to the client.
#[test]
fn clients_find_out_what_a_tunnels_way_takes() {
    for (mode, between) in [("ipip", 0), ("gre", 4), ("gue", 8)] {
        let Some(scene) = crate::scene("path MTU discovery through tunnels") else { return };
        ask_for_neighbours(&scene).expect("the kernel has IPv6");
        let Scene { client, server, .. } = &scene;
        client.run("ip", &format!("route add {SERVICE_V6} via fd00:7::fe")).expect("a route");
        serve(server);
        let port = "port = 0, ";
        let (_folder, plan) = written(&plan(mode, "").replacen(port, &format!("{port}mtu = 1400, "), 1));
        let braid = scene.run_braid(&format!("{plan} --port af_packet:m1 --port af_packet:m0 -w 2"));
        let (stop, mac) = (AtomicBool::new(false), mac_of(server, "t0"));
        std::thread::scope(|scope| {
            let _end = Stop(&stop);
            for end in tunnel_ends(server, mode) {
                scope.spawn(|| unwrap(&stop, server, mac, end));
            }
            connect(client, server, SERVICE, 7000, PATIENCE).expect("a connection").transfer(1 << 20);
            assert_eq!(learnt(client, &SERVICE.to_string()), Some(1380 - between), "{mode}");
            let near = socket(client, "fd00:7::1".parse().expect("an address"), 0);
            let far = socket(server, SERVICE_V6.into(), 5300);
            eventually("a long datagram goes there and back", || asks(&near, &far, SERVICE_V6.into()));
            assert_eq!(learnt(client, &SERVICE_V6.to_string()), Some(1360 - between), "{mode}");
        });
        braid.stop();
    }
}

/// As a director of LVS with one interface: all are on one link, and answers pass it by.
#[test]
fn a_director_with_one_interface_sends_clients_to_backends_beside_it() {
    const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 100);
    let new = || Namespace::new().inspect_err(|reason| skip("a director with one interface", reason));
    let (Ok(hub), Ok(client), Ok(director)) = (new(), new(), new()) else { return };
    let backends = [new(), new()].map(|host| host.expect("the first ones were there"));
    if let Err(reason) = hub.run("ip", "link add bridge type bridge") {
        return skip("a director with one interface", &reason);
    }
    hub.run("ip", "link set bridge up").expect("an interface");
    let hosts = [(&client, 1), (&director, 2), (&backends[0], 11), (&backends[1], 12)];
    for (host, number) in hosts {
        host.cable("e0", &hub, &format!("p{number}")).expect("a cable");
        hub.run("ip", &format!("link set p{number} master bridge")).expect("a port");
    }
    client.run("ip", "address add 10.9.0.1/24 dev e0").expect("an address");
    for (host, number) in hosts.into_iter().skip(2) {
        host.set("ipv4/conf/all/arp_ignore", 1).expect("a setting");
        host.set("ipv4/conf/all/arp_announce", 2).expect("a setting");
        host.run("ip", &format!("address add 10.9.0.{number}/24 dev e0")).expect("an address");
        host.run("ip", "link set lo up").expect("an interface");
        host.run("ip", &format!("address add {VIRTUAL}/32 dev lo")).expect("an address");
    }
    let [first, second] = [&backends[0], &backends[1]].map(|host| host.link_address("e0").expect("an interface"));
    let (_folder, plan) = written(&format!(
        "[[nf]]\nfunction = \"load_balancer\"\n[[nf.config.service]]\naddress = \"{VIRTUAL}\"\nmode = \"direct\"
        backends = [{{ address = \"10.9.0.11\", mac = \"{first}\" }}, {{ address = \"10.9.0.12\", mac = \"{second}\", weight = 0 }}]
        [[nf]]\nfunction = \"router\"\nconfig.interface = [{{ port = 0, addresses = [\"10.9.0.2/24\", \"{VIRTUAL}/32\"] }}]"
    ));
    for workers in [1, 2] {
        let braid = run_braid(&director, &format!("{plan} --port af_packet:e0 -w {workers}"));
        let (near, far) = (socket(&client, [10, 9, 0, 1].into(), 0), socket(&backends[0], VIRTUAL.into(), 5300));
        eventually("a long datagram goes there and back", || asks(&near, &far, VIRTUAL.into()));
        assert!((0..50).filter(|_| asks(&near, &far, VIRTUAL.into())).count() >= 35);
        connect(&client, &backends[0], VIRTUAL, 7000, PATIENCE).expect("a connection").transfer(1 << 20);
        let known = client.run("ip", &format!("neighbour show {VIRTUAL}")).expect("an entry");
        assert!(known.contains("02:00:00:01:00:00"), "the router answers for it: {known}");
        braid.stop();
    }
}
