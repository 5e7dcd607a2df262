//! Tagged frames over a wire: a bridge with a trunk and two access ports, hosts that speak in raw frames. No host needs the kernel's
//! VLAN interfaces for that.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use braid_cli::control::runtime::io::capture::CaptureReader;
use braid_testkit::Frame;
use braid_testkit::kernel::Namespace;
use braid_testkit::skip::skip;
use tempfile::TempDir;

use crate::scene::{Running, eventually, run_braid};

/// A trunk of two VLANs, and an access port of each.
const PLAN: &str = "[[nf]]\nfunction = \"bridge\"\n[[nf.config.port]]\nport = 0\ntrunk = [\"10\", \"20\"]\n\
    [[nf.config.port]]\nport = 1\naccess = 10\n[[nf.config.port]]\nport = 2\naccess = 20\n";

/// A host that sends raw frames, and has what it receives written down.
struct Host {
    sends: File,
    received: PathBuf,
    capture: Child,
    _namespace: Namespace,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.capture.kill();
        let _ = self.capture.wait();
    }
}

impl Host {
    /// At the far end of a cable from the machine between.
    fn new(folder: &TempDir, middle: &Namespace, number: usize) -> Result<Host, String> {
        let namespace = Namespace::new().map_err(|reason| reason.to_string())?;
        namespace.cable("h0", middle, &format!("p{number}")).map_err(|reason| reason.to_string())?;
        let received = folder.path().join(format!("{number}.pcap"));
        let mut capture = Command::new("tcpdump");
        capture.args(["-i", "h0", "-Q", "in", "-U", "-Z", "root", "-w"]).arg(&received).stderr(Stdio::null());
        let capture = namespace.inside(|| capture.spawn());
        let capture = capture.map_err(|_| "tcpdump is not installed: apt-get install tcpdump".to_owned())?;
        let sends = namespace.frame_sender("h0").expect("the cable is there");
        let host = Host { sends, received, capture, _namespace: namespace };
        eventually("tcpdump has begun", || host.received.metadata().is_ok_and(|file| file.len() >= 24));
        Ok(host)
    }

    fn has(&self, frame: &[u8]) -> bool {
        let mut reader = CaptureReader::open(&self.received).expect("a capture");
        while let Ok(true) = reader.advance() {
            if reader.captured().bytes == frame {
                return true;
            }
        }
        false
    }
}

/// A datagram with this text in this VLAN, 0 for none; of the length that is on a wire.
fn frame(from: u8, to: u8, vlan: u16, text: &str) -> Vec<u8> {
    let mac = |host| [2, 0, 0, 0, 0, host];
    let frame =
        Frame::udp("10.0.0.1:7", "10.0.0.2:7").mac(mac(from), mac(to)).payload(format!("{text:>40}").as_bytes());
    if vlan == 0 { frame.bytes() } else { frame.vlan(vlan).bytes() }
}

/// A frame of one host comes to another in this form, and to the third one in none.
#[track_caller]
fn check(hosts: &mut [Host], (from, sent): (usize, &[u8]), (to, wanted): (usize, &[u8]), text: &str) {
    eventually(text, || {
        hosts[from].sends.write_all(sent).expect("the cable is there");
        std::thread::sleep(std::time::Duration::from_millis(50));
        hosts[to].has(wanted)
    });
    let other = 3 - from - to;
    assert!(!hosts[other].has(sent) && !hosts[other].has(wanted), "{text}: it came to host {other} too");
}

fn vlans_stay_apart(ports: [&str; 3]) {
    let test = "VLANs over a wire";
    let Ok(middle) = Namespace::new().inspect_err(|reason| skip(test, reason)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let hosts: Result<Vec<Host>, String> = (0..3).map(|number| Host::new(&folder, &middle, number)).collect();
    let Ok(mut hosts) = hosts.inspect_err(|reason| skip(test, reason)) else { return };
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, PLAN).expect("the folder can be written to");
    let ports = ports.map(|port| format!("--port {port}")).join(" ");
    let braid: Running = run_braid(&middle, &format!("{} {ports} --workers 2", plan.display()));
    let hosts = &mut hosts;
    // Hosts 1 and 2 have the same address: the VLAN tells them apart.
    check(hosts, (0, &frame(1, 9, 10, "to ten")), (1, &frame(1, 9, 0, "to ten")), "tagged 10, into VLAN 10");
    check(hosts, (0, &frame(1, 9, 20, "to twenty")), (2, &frame(1, 9, 0, "to twenty")), "tagged 20, into VLAN 20");
    check(hosts, (1, &frame(9, 1, 0, "of ten")), (0, &frame(9, 1, 10, "of ten")), "out of VLAN 10, tagged");
    check(hosts, (2, &frame(9, 1, 0, "of twenty")), (0, &frame(9, 1, 20, "of twenty")), "out of VLAN 20, tagged");
    braid.stop();
}

#[test]
fn vlans_stay_apart_by_af_packet() {
    vlans_stay_apart(["af_packet:p0", "af_packet:p1", "af_packet:p2"]);
}

#[test]
fn vlans_stay_apart_by_af_xdp_in_the_driver() {
    vlans_stay_apart(["af_xdp:p0?mode=native", "af_xdp:p1?mode=native", "af_xdp:p2?mode=native"]);
}

#[test]
fn vlans_stay_apart_by_af_xdp_in_the_kernels_stack() {
    vlans_stay_apart(["af_xdp:p0?mode=generic", "af_xdp:p1?mode=generic", "af_xdp:p2?mode=generic"]);
}
