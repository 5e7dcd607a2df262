//! The central promise: whatever the chain, every packet of a set that the plan calls local reaches one worker, in hardware
//! style and in software alike.

use std::collections::HashMap;
use std::sync::Arc;

use braid_packet::{
    Batch, Buffers, FieldId, FrameInfo, KeyExtractor, Layout, Link, Pool, PoolConfig, PortSet, SetDef, SetKey,
};
use braid_steer::planner::{Changed, plan_with};
use braid_steer::{Key, Locality, Member, Pattern, Reta, Steering, UdpPorts, plan};
use etherparse::PacketBuilder;
use proptest::prelude::*;

const WORKERS: usize = 5;

/// One packet, drawn from few values, so that sets have several members and both directions meet.
#[derive(Clone, Debug)]
struct Drawn {
    ends: [(u8, u16); 2],
    kind: u8,
    v6: bool,
    vlan: Option<u16>,
    fragment: u16,
    port: u16,
    cut: usize,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let end = || (0u8..4, prop::sample::select(vec![0u16, 53, 80, 4789, 2152, 40_000]));
    let fragment = prop::sample::select(vec![0u16, 0, 0, 0x2000, 0x0010]);
    let vlan = prop::option::of(1u16..4);
    (end(), end(), 0u8..6, any::<bool>(), vlan, fragment, 0u16..3, prop::sample::select(vec![0usize, 0, 0, 0, 6, 40]))
        .prop_map(|(a, b, kind, v6, vlan, fragment, port, cut)| Drawn {
            ends: [a, b],
            kind,
            v6,
            vlan,
            fragment,
            port,
            cut,
        })
}

impl Drawn {
    fn frame(&self) -> Vec<u8> {
        let [(a, p), (b, q)] = self.ends;
        if self.kind == 5 {
            let mut arp = [&[2, 0, 0, 0, 0, b], &[2, 0, 0, 0, 0, a], &[0x08, 0x06, 0, 1, 8, 0][..]].concat();
            arp.extend([6, 4, 0, 1, 2, 0, 0, 0, 0, a, 10, 0, 0, a, 0, 0, 0, 0, 0, 0, 10, 0, 0, b]);
            return arp;
        }
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, a], [2, 0, 0, 0, 0, b]);
        let net = |source: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, source];
        let ip = match (self.vlan, self.v6) {
            (Some(id), true) => link.single_vlan(id.try_into().unwrap()).ipv6(net(a), net(b), 9),
            (None, true) => link.ipv6(net(a), net(b), 9),
            (Some(id), false) => link.single_vlan(id.try_into().unwrap()).ipv4([10, 0, 0, a], [10, 0, 0, b], 9),
            (None, false) => link.ipv4([10, 0, 0, a], [10, 0, 0, b], 9),
        };
        // A tunnel header for functions that look for one: the identifiers of GTP-U and VXLAN are in the same bytes.
        let payload = [0x30, 0xff, 0, 4, 0, 0, a, b, 1, 2, 3, 4];
        let mut frame = Vec::new();
        match self.kind {
            0 => ip.tcp(p, q, 1, 1000).write(&mut frame, &payload),
            1 | 2 => ip.udp(p, q).write(&mut frame, &payload),
            3 if self.v6 => ip.icmpv6_echo_request(p, q).write(&mut frame, &payload),
            3 => ip.icmpv4_echo_request(p, q).write(&mut frame, &payload),
            _ => ip.write(&mut frame, 132.into(), &[p.to_be_bytes(), q.to_be_bytes(), [0; 2], [0; 2]].concat()),
        }
        .unwrap();
        if !self.v6 {
            let at = if self.vlan.is_some() { 24 } else { 20 };
            frame[at..at + 2].copy_from_slice(&self.fragment.to_be_bytes());
        }
        let keep = frame.len().saturating_sub(self.cut).max(14);
        frame.truncate(keep);
        frame
    }
}

fn definition() -> impl Strategy<Value = SetDef> {
    let fields = prop::sample::subsequence(FieldId::ALL.to_vec(), 1..5);
    let protocols = prop::sample::select(vec![None, None, None, Some(vec![6, 17]), Some(vec![17])]);
    let common = prop::sample::select(vec![
        SetDef::five_tuple(),
        SetDef::five_tuple().symmetric(),
        SetDef::src_ip(),
        SetDef::dst_ip(),
        SetDef::mac_pair(),
        SetDef::mac_pair().symmetric(),
        SetDef::new("addresses", &[FieldId::IpSrc, FieldId::IpDst]).symmetric(),
        SetDef::new("ports", &[FieldId::SrcPort, FieldId::DstPort]).symmetric(),
    ]);
    let any = (fields, any::<bool>(), protocols).prop_map(|(fields, symmetric, protocols)| {
        let mut fields = fields;
        if symmetric {
            let opposites: Vec<FieldId> = fields.iter().filter_map(|field| field.opposite()).collect();
            fields.extend(opposites);
        }
        let mut def = SetDef::new("any", &fields);
        (def.symmetric, def.protocols) = (symmetric, protocols);
        def
    });
    prop_oneof![common, any].prop_filter("makes a key", |def| KeyExtractor::compile(def).is_ok())
}

/// Functions with these sets, of which one may follow fragments, and what is asked for the ports of UDP.
fn members(chain: &[SetDef], follower: usize) -> Vec<Member> {
    let member = |(at, def): (usize, &SetDef)| Member {
        follows_fragments: at == follower,
        ..Member::new(&*def.name, Pattern::from(def))
    };
    chain.iter().enumerate().map(member).collect()
}

fn wish() -> impl Strategy<Value = Option<UdpPorts>> {
    prop::sample::select(vec![None, None, Some(UdpPorts::Hashed), Some(UdpPorts::LeftOut)])
}

fn filled(packets: &[Drawn]) -> Batch {
    let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
    let mut batch = Batch::new(&pool, &Arc::new(Layout::bare()));
    let mut buffers = Buffers::new(&pool);
    for packet in packets {
        let info = FrameInfo { port: packet.port, ..FrameInfo::default() };
        assert!(batch.copy_in(&mut buffers, &packet.frame(), &info));
    }
    batch.parse_all();
    batch
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_of_a_local_set_reaches_one_worker(
        chain in prop::collection::vec(definition(), 1..4),
        packets in prop::collection::vec(drawn(), 1..200),
        (follower, wish) in (0..4usize, wish()),
        seed: u64,
    ) {
        let plan = plan_with(&members(&chain, follower), None, wish);
        let reta = Reta::new(128, WORKERS).unwrap();
        let steering = Steering::of_plan(&plan.chosen, &Key::random(40, seed), reta).unwrap();
        let batch = filled(&packets);
        for (def, outcome) in chain.iter().zip(&plan.chosen.outcomes) {
            if outcome.locality != Locality::Local {
                continue;
            }
            let extractor = KeyExtractor::compile(def).unwrap();
            let mut homes: HashMap<SetKey, usize> = HashMap::new();
            for i in 0..batch.len() {
                let Some(found) = extractor.extract(&batch.records()[i], batch.bytes(i)) else { continue };
                let worker = steering.worker_of(&batch, i);
                let home = *homes.entry(found.key).or_insert(worker);
                prop_assert_eq!(home, worker, "packet {} of {:?} under {}", i, def, plan);
                if steering.finds(def) {
                    prop_assert_eq!(steering.hash_of_key(&found.key), steering.hash(&batch, i), "{:?} of {:?}", found.key, def);
                }
            }
        }
    }

    #[test]
    fn every_packet_of_a_set_that_is_local_by_sides_reaches_one_worker(
        chain in prop::collection::vec(definition(), 1..4),
        packets in prop::collection::vec(drawn(), 1..200),
        (follower, wish) in (0..4usize, wish()),
        seed: u64,
    ) {
        let outside = PortSet::ODD;
        let plan = plan_with(&members(&chain, follower), Some(outside), wish);
        let batch = filled(&packets);
        for candidate in std::iter::once(&plan.chosen).chain(&plan.alternatives) {
            let reta = Reta::new(128, WORKERS).unwrap();
            let steering = Steering::of_plan(candidate, &Key::random(40, seed), reta).unwrap();
            for (def, outcome) in chain.iter().zip(&candidate.outcomes) {
                let extractor = KeyExtractor::compile(def).and_then(|extractor| extractor.by_sides(outside));
                let kept = steering.keeps(def, Changed::default());
                // Steering leaves the protocol out if addresses are hashed, so it may keep more than the plan says.
                prop_assert!(kept || outcome.locality != Locality::Local, "{} under {}", outcome.explanation, candidate);
                let (Ok(extractor), true) = (extractor, kept) else { continue };
                let mut homes: HashMap<SetKey, usize> = HashMap::new();
                for i in 0..batch.len() {
                    let Some(found) = extractor.extract(&batch.records()[i], batch.bytes(i)) else { continue };
                    let worker = steering.worker_of(&batch, i);
                    let home = *homes.entry(found.key).or_insert(worker);
                    prop_assert_eq!(home, worker, "packet {} of {:?} under {}", i, def, candidate);
                    prop_assert_eq!(worker, steering.queue(batch.bytes(i), Link::Ethernet, batch.records()[i].port));
                    if steering.finds(def) {
                        prop_assert_eq!(steering.hash_of_key(&found.key), steering.hash(&batch, i), "{:?} of {:?}", found.key, def);
                    }
                }
            }
        }
    }

    #[test]
    fn queues_and_rings_distribute_alike(
        def in definition(),
        packets in prop::collection::vec(drawn(), 1..100),
        (follower, wish) in (0..2usize, wish()),
    ) {
        let plan = plan_with(&members(std::slice::from_ref(&def), follower), None, wish);
        let steering = Steering::of_plan(&plan.chosen, &Key::microsoft(), Reta::new(128, WORKERS).unwrap()).unwrap();
        let batch = filled(&packets);
        for i in 0..batch.len() {
            let queue = steering.queue(batch.bytes(i), Link::Ethernet, batch.records()[i].port);
            prop_assert_eq!(queue, steering.worker_of(&batch, i));
        }
    }

    #[test]
    fn no_frame_whatsoever_is_steered_out_of_range(frame in prop::collection::vec(any::<u8>(), 0..200), link in 0..8usize) {
        use Link::*;
        let link = [Ethernet, RawIp, Cooked1, Cooked2, Loopback, Other, Ppp, Hdlc][link];
        let tunnels = SetDef::new("tunnels", &[FieldId::GtpTeid, FieldId::VlanId]);
        for def in [SetDef::five_tuple().symmetric(), SetDef::mac_pair(), tunnels] {
            let plan = plan(&[Member::new(&*def.name, Pattern::from(&def))]);
            let reta = Reta::new(128, WORKERS).unwrap();
            let steering = Steering::of_plan(&plan.chosen, &Key::microsoft(), reta).unwrap();
            prop_assert!(steering.queue(&frame, link, 0) < WORKERS);
        }
    }
}
