//! What everyday programs make of the way through a gateway, compared with Linux's own forwarding and nftables.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use braid_testkit::kernel::{Namespace, Unavailable};
use braid_testkit::skip::{note, skip};

use crate::scene::{CLIENT, EXTERNAL, SERVER, Scene, connect, eventually, pings, uninterrupted};

/// Bytes of the file that is fetched.
const FILE: usize = 24 << 20;

/// What went through.
#[derive(Debug, PartialEq, Eq)]
struct Everyday {
    echo: bool,
    iperf3: bool,
    file_is_whole: bool,
    name: String,
    route: bool,
    held: bool,
}

impl Everyday {
    /// Tries everything, while one connection is open all the time.
    fn of(scene: &Scene) -> Everyday {
        let (client, server) = (&scene.client, &scene.server);
        eventually("the first echo comes back", || pings(client, SERVER));
        let mut held = connect(client, server, SERVER, 7000, Duration::from_secs(10)).expect("a connection");
        held.talk();
        let found = Everyday {
            echo: client.run("ping", &format!("-n -c 5 -i 0.05 -s 1400 -W 2 {SERVER}")).is_ok(),
            iperf3: iperf3(client, server),
            file_is_whole: fetches(client, server),
            name: resolves(client, server),
            route: client
                .run("traceroute", &format!("-n -q 1 -w 1 -m 4 {SERVER}"))
                .is_ok_and(|text| text.lines().skip(1).any(|hop| hop.contains(&SERVER.to_string()))),
            held: true,
        };
        held.talk();
        found
    }
}

/// A program that ends with its handle.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn iperf3(client: &Namespace, server: &Namespace) -> bool {
    let mut listening = Command::new("iperf3");
    listening.arg("-s").stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(_listening) = server.inside(|| listening.spawn()).map(Program) else { return false };
    let mut done = false;
    // It takes a moment until it listens.
    eventually("iperf3 transfers", || {
        done = client.run("iperf3", &format!("-c {SERVER} -n 8M --connect-timeout 2000")).is_ok();
        done
    });
    done
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect()
}

fn fetches(client: &Namespace, server: &Namespace) -> bool {
    let listener = server.inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080))).expect("a socket");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    let serving = std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\nContent-Length: {FILE}\r\n\r\n").as_bytes());
        let _ = stream.write_all(&pattern(FILE));
    });
    let fetched = client.run_with_input(
        "curl",
        &format!("-s --max-time 30 --connect-timeout 5 -o {} http://{SERVER}:8080/file", file.display()),
        "",
    );
    let is_whole = fetched.is_ok() && std::fs::read(&file).is_ok_and(|bytes| bytes == pattern(FILE));
    if fetched.is_ok() {
        serving.join().expect("it serves one");
    }
    is_whole
}

/// What a name server of one answer says.
fn resolves(client: &Namespace, server: &Namespace) -> String {
    let socket = server.inside(|| UdpSocket::bind((SERVER, 53))).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
    let serving = std::thread::spawn(move || {
        let mut query = [0; 512];
        let Ok((len, from)) = uninterrupted(|| socket.recv_from(&mut query)) else { return };
        // RFC 1035 section 4.1: header, question; the answer names the question's name by its place.
        let name = query[12..len].iter().position(|byte| *byte == 0).unwrap_or(0);
        let mut answer = query[..12 + name + 5].to_vec();
        (answer[2], answer[3]) = (0x84, 0);
        answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        let _ = socket.send_to(&answer, from);
    });
    let said = client.run("dig", &format!("+short +time=3 +tries=1 @{SERVER} server.example A"));
    serving.join().expect("it answers one");
    said.map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
}

/// Without these programs nothing is compared.
fn has_programs(test: &str) -> bool {
    let lacking = ["iperf3", "curl", "dig", "traceroute"].into_iter().find(|program| {
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    });
    if let Some(program) = lacking {
        skip(test, &format!("{program} is not installed"));
    }
    lacking.is_none()
}

#[test]
fn everyday_programs_find_a_gateway_as_they_find_that_of_linux() {
    let test = "everyday programs";
    if !has_programs(test) {
        return;
    }
    let Some(linux) = crate::scene(test) else { return };
    let rules = format!(
        "table ip gateway {{
            chain forward {{ type filter hook forward priority 0; policy drop; ct state established,related accept; iifname m0 accept; }}
            chain postrouting {{ type nat hook postrouting priority srcnat; oifname m1 snat to {EXTERNAL}; }}
        }}"
    );
    if let Err(reason) = linux.forward_by_linux(&rules) {
        return skip(test, &reason);
    }
    let expected = Everyday::of(&linux);
    drop(linux);
    assert_eq!((expected.name.as_str(), expected.file_is_whole), ("192.0.2.7", true), "{expected:?}");
    let gateway = format!("--nf firewall,nat --set nat.external=[\"{EXTERNAL}\"]");
    for ports in gateways() {
        let mut scene = Scene::new().expect("the first one was there");
        if ports.contains("dpdk") {
            scene = scene.without_offloads().expect("veth has them");
        }
        let braid = scene.run_braid(&format!("{gateway} {ports}"));
        assert_eq!(Everyday::of(&scene), expected, "{ports}");
        braid.stop();
    }
}

/// Ports of a gateway, by each back end that is built.
fn gateways() -> Vec<&'static str> {
    let mut all = vec!["--port af_xdp:m0 --port af_xdp:m1", "--port af_packet:m0 --port af_packet:m1 -w 2"];
    if cfg!(feature = "dpdk") {
        all.push("--port dpdk:net_af_packet0,iface=m0 --port dpdk:net_af_packet1,iface=m1");
    }
    all
}

/// The server behind a tag.
const TAGGED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

#[test]
fn ipv6_and_tagged_packets_pass_a_firewall() {
    for back_end in crate::BACK_ENDS {
        let Some(scene) = crate::scene("IPv6 and VLAN") else { return };
        let (client, server) = (&scene.client, &scene.server);
        let set = |host: &Namespace, end: &str, number: u8, other: &str| -> Result<(), Unavailable> {
            host.set("ipv6/conf/all/disable_ipv6", 0)?;
            host.run("ip", &format!("address add fd00::{number}/64 dev {end} nodad"))?;
            host.run("ip", &format!("neighbour replace fd00::{} lladdr {other} dev {end} nud permanent", 3 - number))?;
            host.run("ip", &format!("link add link {end} name v7 type vlan id 7"))?;
            host.run("ip", "link set v7 up")?;
            host.run("ip", &format!("address add 10.77.0.{number}/24 dev v7"))?;
            host.run("ip", &format!("neighbour replace 10.77.0.{} lladdr {other} dev v7 nud permanent", 3 - number))?;
            Ok(())
        };
        let (of_client, of_server) = (client.link_address("c0").expect("c0"), server.link_address("s0").expect("s0"));
        let tags = [set(client, "c0", 1, &of_server), set(server, "s0", 2, &of_client)];
        let braid = scene.run_braid(&format!("--nf firewall --port {back_end}:m0 --port {back_end}:m1"));
        eventually("an echo of IPv6 comes back", || client.run("ping", "-6 -n -c 1 -W 1 fd00::2").is_ok());
        match tags.into_iter().find_map(Result::err) {
            // A kernel without CONFIG_VLAN_8021Q cannot be given it.
            Some(reason) => note("tagged packets", &reason),
            None => {
                eventually("a tagged echo comes back", || pings(client, TAGGED));
                connect(client, server, TAGGED, 7000, Duration::from_secs(10)).expect("TCP").transfer(4 << 20);
            }
        }
        let listener = server.inside(|| TcpListener::bind("[fd00::2]:7001")).expect("a socket");
        let near = client.inside(|| std::net::TcpStream::connect("[fd00::2]:7001")).expect("TCP over IPv6");
        let mut bulk = crate::scene::Connection::of(near, listener.accept().expect("it was asked").0).expect("open");
        bulk.transfer(4 << 20);
        assert!(!pings(server, CLIENT), "nothing begins outside");
        braid.stop();
    }
}

const RATE: u64 = 2_000_000;
const PAYLOAD: usize = 1000;
/// Bytes of a frame beside the payload: Ethernet, IP, UDP.
const HEADERS: usize = 14 + 20 + 8;

#[test]
fn a_policer_holds_its_rate_within_two_percent() {
    for back_end in crate::BACK_ENDS {
        let Some(scene) = crate::scene("the rate of a policer") else { return };
        let keys = format!("--set bytes_per_s={RATE} --set burst_bytes=200000 --set from_port=0");
        let braid = scene.run_braid(&format!("--nf policer {keys} --port {back_end}:m0 --port {back_end}:m1"));
        eventually("the first echo comes back", || pings(&scene.client, SERVER));
        // A machine that stands still for a tenth of a second loses credit: then once more.
        let mut found = Vec::new();
        let holds = (0..3).any(|_| {
            found.push(passing(&scene));
            found.last().is_some_and(|rate| (rate / RATE as f64 - 1.0).abs() < 0.02)
        });
        assert!(holds, "{back_end}: {found:?} bytes a second instead of {RATE}");
        braid.stop();
    }
}

/// Bytes a second that pass of twice as many as may, when the burst is over.
fn passing(scene: &Scene) -> f64 {
    let far = scene.server.inside(|| UdpSocket::bind((SERVER, 9000))).expect("a socket");
    let near = scene.client.inside(|| UdpSocket::bind((CLIENT, 9000))).expect("a socket");
    far.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    let sending = std::thread::spawn(move || {
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(4) {
            let due = 2.0 * RATE as f64 * begun.elapsed().as_secs_f64() / (PAYLOAD + HEADERS) as f64;
            while sent < due as u64 {
                let _ = near.send_to(&[0; PAYLOAD], (SERVER, 9000));
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (mut arrivals, mut payload) = (Vec::new(), [0; 2000]);
    while uninterrupted(|| far.recv_from(&mut payload)).is_ok() {
        arrivals.push(Instant::now());
    }
    sending.join().expect("it sends");
    let steady: Vec<Instant> =
        arrivals.iter().copied().filter(|at| *at >= arrivals[0] + Duration::from_secs(1)).collect();
    let (Some(first), Some(last)) = (steady.first(), steady.last()) else { return 0.0 };
    ((steady.len() - 1) * (PAYLOAD + HEADERS)) as f64 / (*last - *first).as_secs_f64()
}
