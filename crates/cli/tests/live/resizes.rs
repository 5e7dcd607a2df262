//! State objects that get another size while packets go through: none is lost, and no connection notices.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::operations::Gateway;
use crate::scene::{Connection, EXTERNAL, SERVER, Scene, connect, eventually, pings, uninterrupted};

/// How long a datagram may be on its way before it is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sockets that send, and how many of them are exchanged for others each round.
const SOCKETS: usize = 64;
const EXCHANGED: usize = 8;

fn plan(chain: &str, mappings: u32, connections: u32) -> String {
    format!(
        "{chain}[[nf]]\nfunction = \"firewall\"\nconfig = {{ connections_max = {connections} }}\n[[nf]]\nfunction = \"nat\"\n\
         config = {{ external = [\"{EXTERNAL}\"], mappings_max = {mappings} }}\n"
    )
}

/// The client asks the server by datagrams from ever other ports until `stop`; says how many were answered, of which each must be.
pub fn ask(scene: &Scene, gateway: &Gateway, stop: &AtomicBool) -> usize {
    let asked = ask_each(scene, stop);
    asked.unwrap_or_else(|lost| panic!("{lost}\n{}", accounts(scene, gateway)))
}

/// What became of packets, by Braid and by the hosts.
fn accounts(scene: &Scene, gateway: &Gateway) -> String {
    let mut text = gateway.tell(&["stats"], None).unwrap_or_else(|why| why);
    for (name, host) in [("client", &scene.client), ("between", &scene.middle), ("server", &scene.server)] {
        for (program, arguments) in [("cat", "/proc/net/snmp /proc/net/softnet_stat"), ("ip", "-s link")] {
            let said = host.run(program, arguments).unwrap_or_else(|why| why.to_string());
            text += &format!("\n{name}: {program} {arguments}\n{said}");
        }
    }
    text
}

/// The same. An answer that does not come, or to another socket, is an error.
fn ask_each(scene: &Scene, stop: &AtomicBool) -> Result<usize, String> {
    let server = scene.server.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7070))).expect("a socket");
    server.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
    let (done, open) = (AtomicBool::new(false), || {
        let socket = scene.client.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).expect("a socket");
        socket.connect((SERVER, 7070)).expect("a route");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        socket
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut question = [0; 8];
            while !done.load(Ordering::Relaxed) {
                if let Ok((len, from)) = server.recv_from(&mut question) {
                    server.send_to(&question[..len], from).expect("a route back");
                }
            }
        });
        let mut sockets: Vec<UdpSocket> = (0..SOCKETS).map(|_| open()).collect();
        let mut answered = 0u64;
        let mut lost = None;
        while !stop.load(Ordering::Relaxed) && lost.is_none() {
            let numbers = answered..answered + SOCKETS as u64;
            for (socket, number) in sockets.iter().zip(numbers.clone()) {
                socket.send(&number.to_be_bytes()).expect("a route");
            }
            for (socket, number) in sockets.iter().zip(numbers) {
                let mut answer = [0; 8];
                let wrong = match uninterrupted(|| socket.recv(&mut answer)) {
                    Ok(_) if answer == number.to_be_bytes() => continue,
                    Ok(_) => format!("the answer to {}", u64::from_be_bytes(answer)),
                    Err(error) => error.to_string(),
                };
                lost = lost.or_else(|| Some(format!("datagram {number} by {:?}: {wrong}", socket.local_addr())));
            }
            answered += SOCKETS as u64;
            sockets.drain(..EXCHANGED);
            sockets.extend((0..EXCHANGED).map(|_| open()));
        }
        done.store(true, Ordering::Relaxed);
        lost.map_or(Ok(answered as usize), Err)
    })
}

/// A gateway whose mappings and connections become more and fewer under traffic on two workers.
fn nothing_is_lost(test: &str, chain: &str) {
    let Some(scene) = crate::scene(test) else { return };
    let gateway = Gateway::new();
    let write = |mappings, connections| {
        std::fs::write(gateway.path("plan.toml"), plan(chain, mappings, connections))
            .expect("the folder can be written to");
        gateway.path("plan.toml")
    };
    let (file, socket) = (write(50_000, 20_000), gateway.path("socket"));
    let ports = "--port af_packet:m0 --port af_packet:m1 -w 2";
    let braid = scene.run_braid(&format!("{} --control {} {ports}", file.display(), socket.display()));
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    let mut held = connect(&scene.client, &scene.server, SERVER, 7000, PATIENCE).expect("a connection");
    held.talk();
    let stop = AtomicBool::new(false);
    let answered = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&scene, &gateway, &stop));
        for (mappings, connections) in [(150_000, 60_000), (30_000, 10_000), (80_000, 80_000), (25_000, 15_000)] {
            std::thread::sleep(Duration::from_millis(200));
            held.talk();
            let said = gateway.tell(&["apply"], Some(&write(mappings, connections)));
            let said = said.inspect_err(|_| stop.store(true, Ordering::Relaxed)).expect("applied");
            assert!(said.contains("nat.mappings") && said.contains(", none while workers stood still"), "{said}");
        }
        held.talk();
        stop.store(true, Ordering::Relaxed);
        asking.join().expect("all are answered")
    });
    assert!(answered > 3 * SOCKETS, "{answered}");
    held.transfer(1 << 20);
    braid.stop();
}

#[test]
fn a_nat_that_grows_and_shrinks_on_two_workers_loses_nothing() {
    nothing_is_lost("a NAT of another size", "");
}

/// A shaper comes before a gateway and goes again under traffic, on one worker; on two it is refused, as nobody has the state that it would need.
fn a_shaper_comes_and_goes(test: &str, workers: usize) {
    let Some(scene) = crate::scene(test) else { return };
    let gateway = Gateway::new();
    let write = |shaper: &str, workers: usize| {
        let text = format!("workers = {workers}\n{shaper}{}", plan("", 50_000, 20_000));
        std::fs::write(gateway.path("plan.toml"), text).expect("the folder can be written to");
        gateway.path("plan.toml")
    };
    let (file, socket) = (write("", workers), gateway.path("socket"));
    let ports = "--port af_packet:m0 --port af_packet:m1";
    let braid = scene.run_braid(&format!("{} --control {} {ports}", file.display(), socket.display()));
    eventually("the first echo comes back", || pings(&scene.client, SERVER));
    let mut held = connect(&scene.client, &scene.server, SERVER, 7000, PATIENCE).expect("a connection");
    held.talk();
    let stop = AtomicBool::new(false);
    let shaper = "[[nf]]\nfunction = \"shaper\"\nconfig = { bytes_per_s = 100_000_000, burst_bytes = 1_000_000 }\n";
    let change = |chain: &str, held: &mut Connection| {
        std::thread::sleep(Duration::from_millis(300));
        held.talk();
        match (workers, gateway.tell(&["apply"], Some(&write(chain, workers)))) {
            (1, said) => assert!(said.expect("applied").contains("kept     firewall, nat")),
            (_, Ok(said)) => assert!(chain.is_empty() && said.contains("nothing differs"), "{said}"),
            (_, Err(refused)) => {
                assert!(
                    refused.contains("would share its packet sets") && refused.contains("workers = 1"),
                    "{refused}"
                );
            }
        }
        held.talk();
    };
    let answered = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&scene, &gateway, &stop));
        [shaper, "", shaper, ""].into_iter().for_each(|chain| change(chain, &mut held));
        stop.store(true, Ordering::Relaxed);
        asking.join().expect("all are answered")
    });
    assert!(answered > 3 * SOCKETS, "{answered}");
    if workers > 1 {
        // What the refusal says: with one worker it goes on. Its rings are other ones, so what comes meanwhile may be lost.
        gateway.tell(&["upgrade"], Some(&write("", 1))).expect("it is continued");
        let workers = || {
            let stats: Value = serde_json::from_str(&gateway.tell(&["stats"], None).ok()?).ok()?;
            stats["workers"].as_array().map(Vec::len)
        };
        eventually("one worker goes on", || workers() == Some(1));
        gateway.tell(&["apply"], Some(&write(shaper, 1))).expect("applied");
        held.talk();
    }
    held.transfer(1 << 20);
    braid.stop();
}

#[test]
fn a_shaper_before_a_gateway_comes_and_goes_without_loss() {
    a_shaper_comes_and_goes("a shaper comes and goes", 1);
}

#[test]
fn a_shaper_before_a_gateway_on_two_workers_is_refused_without_loss() {
    a_shaper_comes_and_goes("a shaper on two workers", 2);
}

#[test]
fn nor_does_a_chain_that_is_one_transaction() {
    nothing_is_lost("a chain in one transaction of another size", "[chain]\natomic = \"chain\"\n");
}
