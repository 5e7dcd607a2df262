//! Skeletons of two functions from NFOS's table 6, as far as the programming model is concerned: packet set, packet-set
//! state, aggregate state, and which handler accesses what. They only observe and are not in the catalogue; each says
//! what is missing. They keep their sets, and access what they say.

mod ipsec_tunnel;
mod web_cache;

use braid_nf::Instance;
use braid_testkit::{Bench, Frame};

use ipsec_tunnel::IpsecTunnel;
use web_cache::WebCache;

#[test]
fn a_second_request_would_be_a_hit() {
    let mut bench = Bench::new(2, |builder| Box::new(Instance::new("cache", WebCache::new(builder, 10).unwrap())));
    for client in ["10.0.0.1:1", "10.0.0.2:1"] {
        let request = Frame::tcp(client, "192.0.2.1:80").flags("PA").payload(b"GET /x HTTP/1.1\r\n\r\n").bytes();
        let response = Frame::tcp("192.0.2.1:80", client).flags("PA").payload(b"HTTP/1.1 200 OK\r\n\r\n").bytes();
        bench.send(0, 0, &request);
        bench.send(1, 1, &response);
    }
    let findings = bench.findings();
    assert_eq!((findings.sums()["responses"], findings.sums()["hits"]), (1, 1));
}

#[test]
fn an_association_is_a_set() {
    let mut bench = Bench::new(2, |_| Box::new(Instance::new("esp", IpsecTunnel {})));
    for number in [1u8, 2, 2] {
        let esp = [0, 0, 1, 0, 0, 0, 0, number, 9, 9, 9, 9];
        bench.send(0, 0, &Frame::ip("192.0.2.1", "192.0.2.2", 50).payload(&esp).bytes());
    }
    let findings = bench.findings();
    let [found] = findings.list() else { panic!("{findings:?}") };
    assert_eq!(found.detail, "SPI 0x00000100: 3 packets, 1 number not growing");
}
