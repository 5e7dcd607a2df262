//! Fragments under a plan that leaves the ports of UDP out of the hash: which packets share a worker, and which do not.

use std::collections::HashSet;
use std::sync::Arc;

use braid_packet::{
    Batch, Buffers, FieldId, FrameInfo, KeyExtractor, Layout, Link, Pool, PoolConfig, PortSet, SetDef, protocol,
};
use braid_steer::{Fields, Key, Member, Pattern, Reta, Steering, Symmetry, UdpPorts, plan};

const TCP: u8 = protocol::TCP;
const UDP: u8 = protocol::UDP;
const SCTP: u8 = protocol::SCTP;
const MORE: u16 = 0x2000;

fn reta() -> Reta {
    Reta::new(128, 5).unwrap()
}

/// Steering by addresses and ports, UDP by addresses alone.
fn steering(symmetry: Symmetry) -> Steering {
    Steering::new(Fields::FOUR_TUPLE, symmetry, &Key::microsoft(), reta()).unwrap().without_udp_ports().unwrap()
}

/// An IPv4 packet: flags and offset as in the header, and behind it what would be the ports.
fn v4(host: u8, proto: u8, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let mut frame =
        [&[2; 12], &[0x08, 0, 0x45, 0, 0, 48, 0, 7][..], &fragment.to_be_bytes(), &[64, proto, 0, 0]].concat();
    frame.extend([10, 0, 0, host, 192, 0, 2, 1]);
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([0; 24]);
    frame
}

/// The same over IPv6, with a fragment header.
fn v6(host: u8, proto: u8, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let net = |host| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    let mut frame = [&[2; 12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 44, 64][..], &net(host), &net(200)].concat();
    let field = fragment << 3 | u16::from(fragment & MORE != 0);
    frame.extend([&[proto, 0], &field.to_be_bytes()[..], &[0, 0, 0, 7]].concat());
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([0; 24]);
    frame
}

type Make = fn(u8, u8, u16, [u16; 2]) -> Vec<u8>;
const VERSIONS: [(&str, Make); 2] = [("IPv4", v4), ("IPv6", v6)];

fn worker(steering: &Steering, frame: &[u8]) -> usize {
    steering.queue(frame, Link::Ethernet, 0)
}

#[test]
fn all_fragments_of_a_udp_datagram_reach_the_worker_of_its_first() {
    for (version, make) in VERSIONS {
        for symmetry in [Symmetry::OneWay, Symmetry::BothWays, Symmetry::BySides(PortSet::of([0]))] {
            let steering = steering(symmetry);
            for (host, port) in [(1, 4000), (2, 53), (3, 65_535), (4, 1)] {
                let first = worker(&steering, &make(host, UDP, MORE, [port, 4789]));
                // Behind the header are bytes of the payload that look like ports.
                let later = worker(&steering, &make(host, UDP, MORE | 185, [9, port]));
                let last = worker(&steering, &make(host, UDP, 370, [port, 1]));
                let whole = worker(&steering, &make(host, UDP, 0, [port, 4789]));
                assert_eq!([later, last, whole], [first; 3], "{version}, {symmetry:?}");
            }
        }
    }
}

#[test]
fn hosts_spread_udp_and_ports_do_not() {
    let steering = steering(Symmetry::OneWay);
    for (version, make) in VERSIONS {
        let of_hosts: HashSet<usize> = (1..60).map(|host| worker(&steering, &make(host, UDP, 0, [4000, 53]))).collect();
        let of_ports: HashSet<usize> = (1..60).map(|port| worker(&steering, &make(1, UDP, 0, [port, 53]))).collect();
        assert_eq!((of_hosts.len(), of_ports.len()), (5, 1), "{version}");
    }
}

#[test]
fn ports_spread_tcp_and_sctp_as_before() {
    let (left_out, hashed) = (
        steering(Symmetry::OneWay),
        Steering::new(Fields::FOUR_TUPLE, Symmetry::OneWay, &Key::microsoft(), reta()).unwrap(),
    );
    for (version, make) in VERSIONS {
        for proto in [TCP, SCTP] {
            let frames: Vec<Vec<u8>> = (1..60).map(|port| make(1, proto, 0, [port, 443])).collect();
            let workers = |steering| frames.iter().map(|frame| worker(steering, frame)).collect::<Vec<_>>();
            assert_eq!(workers(&left_out), workers(&hashed), "{version}");
            assert_eq!(workers(&left_out).into_iter().collect::<HashSet<_>>().len(), 5, "{version}");
        }
    }
}

#[test]
fn the_hash_of_a_key_is_that_of_its_packets() {
    let (forward, back) = ([4000, 53], [53, 4000]);
    for (version, make) in VERSIONS {
        for (def, symmetry) in [
            (SetDef::five_tuple(), Symmetry::OneWay),
            (SetDef::five_tuple().symmetric(), Symmetry::BothWays),
            (
                SetDef::new("tcp", &[FieldId::IpSrc, FieldId::IpDst, FieldId::SrcPort, FieldId::DstPort]).only(&[TCP]),
                Symmetry::OneWay,
            ),
        ] {
            let (steering, extractor) = (steering(symmetry), KeyExtractor::compile(&def).unwrap());
            assert!(steering.finds(&def));
            let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
            let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
            for proto in [TCP, UDP, SCTP, 1, 47] {
                for (fragment, ports) in [(0, forward), (0, back), (MORE, forward), (185, forward)] {
                    assert!(batch.copy_in(&mut buffers, &make(1, proto, fragment, ports), &FrameInfo::default()));
                }
            }
            batch.parse_all();
            let mut found = 0;
            for i in 0..batch.len() {
                let Some(key) = extractor.extract(&batch.records()[i], batch.bytes(i)) else { continue };
                assert_eq!(steering.hash_of_key(&key.key), steering.hash(&batch, i), "{version}: {:?}", key.key);
                found += 1;
            }
            assert!(found >= 3, "{version}: {}", def.name);
        }
    }
}

#[test]
fn sets_whose_key_does_not_tell_udp_are_neither_kept_nor_found() {
    let four_tuple = || SetDef::new("ports", &[FieldId::IpSrc, FieldId::IpDst, FieldId::SrcPort, FieldId::DstPort]);
    let steering = steering(Symmetry::OneWay);
    let (kept, found) = (|def: &SetDef| steering.keeps(def, Default::default()), |def: &SetDef| steering.finds(def));
    let answers = |def: SetDef| (kept(&def), found(&def));
    assert_eq!(answers(four_tuple()), (false, false), "TCP and UDP of the same ports share a set");
    assert_eq!(answers(four_tuple().only(&[TCP])), (true, true));
    assert_eq!(answers(four_tuple().only(&[UDP])), (true, false), "the key does not say that it is UDP");
    assert_eq!(answers(SetDef::five_tuple()), (true, true));
}

#[test]
fn with_a_tag_in_the_key_fragments_stay_together_as_well() {
    let mut def = SetDef::five_tuple();
    def.fields.push(FieldId::VlanId);
    let follower = Member { follows_fragments: true, ..Member::new("nat", Pattern::from(&def)) };
    let plan = plan(&[follower]);
    assert_eq!(plan.chosen.udp.ports, UdpPorts::LeftOut, "{plan}");
    let steering = Steering::of_plan(&plan.chosen, &Key::microsoft(), reta()).unwrap();
    for (version, make) in VERSIONS {
        for host in 1..20 {
            let first = worker(&steering, &make(host, UDP, MORE, [4000, 53]));
            assert_eq!(worker(&steering, &make(host, UDP, 185, [1, 2])), first, "{version}");
        }
        let of_ports: HashSet<usize> = (1..60).map(|port| worker(&steering, &make(1, TCP, 0, [port, 80]))).collect();
        assert_eq!(of_ports.len(), 5, "{version}");
    }
    assert!(steering.to_string().ends_with("UDP without its ports"), "{steering}");
}
