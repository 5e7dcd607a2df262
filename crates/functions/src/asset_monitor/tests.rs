//! What passive observation tells about hosts and services.

use braid_testkit::{Bench, Frame};

use crate::find;

fn bench(config: &str) -> Bench {
    let build = find("asset_monitor").unwrap().build;
    Bench::with_sets(2, 1000, |builder| build("assets", config.parse().unwrap(), builder, 2).unwrap())
}

fn found(bench: Bench, kind: &str) -> Vec<String> {
    let findings = bench.findings();
    let of_kind = findings.list().iter().filter(|finding| finding.kind == kind);
    of_kind.map(|finding| format!("{} {}", finding.subject, finding.detail)).collect()
}

/// Checks which system a SYN with this TTL and these options reveals.
#[track_caller]
fn check(ttl: u8, options: &[u8], expected: &str) {
    let mut bench = bench("");
    let syn = Frame::tcp("10.0.0.1:5000", "192.0.2.1:80").flags("S").ttl(ttl).options(options).bytes();
    bench.send(0, 0, &syn);
    assert_eq!(found(bench, "host"), [format!("10.0.0.1 {expected}, seen for 0 s")]);
}

#[test]
fn systems_are_told_by_their_syns() {
    let linux = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7];
    check(64, &linux, "Linux");
    check(57, &linux, "Linux");
    check(128, &[2, 4, 5, 0xb4, 1, 3, 3, 8, 1, 1, 4, 2], "Windows");
    check(64, &[2, 4, 5, 0xb4], "bare SYNs (a scanner)");
    check(250, &[2, 4, 5, 0xb4, 3, 3, 7, 0], "TTL 255 (network equipment)");
    check(100, &[2, 0, 1, 1], "TTL 128 (Windows-like)");
}

#[test]
fn a_service_is_what_its_server_says() {
    let mut bench = bench("");
    let (client, server) = ("192.0.2.9:5000", "10.0.0.5:2222");
    bench.send(0, 0, &Frame::tcp(client, server).flags("S").bytes());
    bench.send(1, 1, &Frame::tcp(server, client).flags("SA").bytes());
    bench.send(1, 2, &Frame::tcp(server, client).flags("PA").payload(b"SSH-2.0-x\r\n").bytes());
    bench.send(0, 3, &Frame::tcp(client, server).flags("PA").payload(b"GET / HTTP/1.1\r\n").bytes());
    assert_eq!(found(bench, "service"), ["10.0.0.5 tcp 2222: ssh"]);
}

#[test]
fn arp_tells_hardware_addresses() {
    let mut bench = bench("");
    bench.send(0, 0, &Frame::udp("10.0.0.1:7000", "10.0.0.2:8000").bytes());
    let arp = Frame::arp("10.0.0.1", "10.0.0.2").bytes();
    let mac = braid_nf::packet::MacAddress([arp[22], arp[23], arp[24], arp[25], arp[26], arp[27]]);
    bench.send(0, 2500, &arp);
    assert_eq!(found(bench, "host"), [format!("10.0.0.1 {mac}, system unknown, seen for 2 s")]);
}

#[test]
fn only_hosts_of_the_network_are_listed() {
    let mut bench = bench("home = ['10.1.0.0/16']");
    for source in ["10.0.0.1:1", "10.1.0.1:1", "192.0.2.1:1", "[fd00::1]:1"] {
        let to = if source.starts_with('[') { "[2001:db8::1]:53" } else { "198.51.100.1:53" };
        bench.send(0, 0, &Frame::udp(source, to).bytes());
    }
    assert_eq!(found(bench, "host"), ["10.1.0.1 system unknown, seen for 0 s"]);
}

#[test]
fn a_full_list_counts_what_it_leaves_out() {
    let mut bench = bench("hosts_max = 1");
    for host in 1..=3 {
        bench.send(0, 0, &Frame::udp(&format!("10.0.0.{host}:1"), "198.51.100.1:53").bytes());
    }
    let findings = bench.findings();
    assert_eq!(findings.sums()["times that the log of hosts was full"], 2);
    assert_eq!(findings.sums()["packets of sessions"], 3);
}
