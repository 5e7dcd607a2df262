//! Connections in VXLAN tunnels between two kernels, through a bump in the wire: what the kernel leaves undone is the packet within.

use std::net::Ipv4Addr;
use std::time::Duration;

use braid_testkit::kernel::{Namespace, Unavailable};
use braid_testkit::skip::skip;

use crate::scene::{CLIENT, SERVER, Scene, connect, eventually, pings};
use crate::{BACK_ENDS, scene};

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// An end of a tunnel whose packets fit the link below.
fn end(host: &Namespace, ends: (Ipv4Addr, Ipv4Addr), address: Ipv4Addr, checksum: &str) -> Result<(), Unavailable> {
    let (local, remote) = ends;
    let below = format!("type vxlan id 5 local {local} remote {remote} dstport 8472 {checksum}");
    host.run("ip", &format!("link add v0 mtu 1450 {below}"))?;
    host.run("ip", &format!("address add {address}/24 dev v0"))?;
    host.run("ip", "link set v0 up").map(drop)
}

fn tunnel(scene: &Scene, checksum: &str) -> Result<(), Unavailable> {
    end(&scene.client, (CLIENT, SERVER), NEAR, checksum)?;
    end(&scene.server, (SERVER, CLIENT), FAR, checksum)
}

#[test]
fn connections_in_tunnels_come_through() {
    for (back_end, checksum) in BACK_ENDS.into_iter().flat_map(|end| [(end, "noudpcsum"), (end, "udpcsum")]) {
        let test = format!("a tunnel through {back_end}, {checksum}");
        let Some(scene) = scene(&test) else { return };
        if let Err(reason) = tunnel(&scene, checksum) {
            return skip(&test, &reason);
        }
        let braid = scene.run_braid(&format!("--nf forward --port {back_end}:m0 --port {back_end}:m1"));
        eventually("the first echo comes back", || pings(&scene.client, FAR));
        let mut bulk = connect(&scene.client, &scene.server, FAR, 7001, Duration::from_secs(10)).expect("a connection");
        bulk.talk();
        bulk.transfer(4 << 20);
        let report = braid.stop();
        assert!(report["bytes_in"].as_u64().is_some_and(|bytes| bytes > 4 << 20), "{report}");
    }
}
