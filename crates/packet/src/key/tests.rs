//! Tests of keys: how they are printed, what has no key, and the fast paths against the generic one.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::address::IpAddress;
use crate::batch::Batch;
use crate::fields::Layout;
use crate::port_set::PortSet;
use crate::record::Link;
use crate::segments::{Segments, Tagging};
use crate::testing::{self, Spec, Transport, Wrap, noise, specs};

fn keys(def: &SetDef, batch: &Batch) -> (KeyExtractor, Box<Keys>) {
    let extractor = KeyExtractor::compile(def).unwrap();
    let mut keys = Keys::boxed();
    extractor.extract_batch(batch, &mut keys);
    (extractor, keys)
}

fn text(def: &SetDef, frame: (Vec<u8>, Link)) -> String {
    let batch = testing::batch(&[frame], Layout::bare());
    let (_, keys) = keys(def, &batch);
    match keys.class[0] {
        KeyClass::None => "orphan".to_owned(),
        _ => keys.key(0).to_string(),
    }
}

fn spec(v6: bool, transport: Transport) -> Spec {
    let (src, dst) = if v6 { ("2001:db8::2", "2001:db8::1") } else { ("10.0.0.2", "10.0.0.1") };
    Spec::new(src, dst, (1234, 80), transport)
}

#[track_caller]
fn check(def: SetDef, spec: Spec, expected: &str) {
    assert_eq!(text(&def, spec.frame()), expected);
}

#[test]
fn keys_print_as_people_read_them() {
    use FieldId::*;
    check(SetDef::five_tuple(), spec(false, Transport::Tcp), "10.0.0.2:1234 > 10.0.0.1:80 tcp");
    check(SetDef::five_tuple(), spec(true, Transport::Udp), "[2001:db8::2]:1234 > [2001:db8::1]:80 udp");
    check(SetDef::five_tuple(), spec(false, Transport::Echo), "10.0.0.2:0 > 10.0.0.1:0 icmp");
    check(SetDef::five_tuple(), spec(true, Transport::Other(99)), "[2001:db8::2]:0 > [2001:db8::1]:0 proto 99");
    check(SetDef::five_tuple().symmetric(), spec(false, Transport::Tcp), "10.0.0.1:80 <> 10.0.0.2:1234 tcp");
    check(SetDef::src_ip(), spec(false, Transport::Tcp), "from 10.0.0.2");
    check(SetDef::dst_ip(), spec(true, Transport::Tcp), "to 2001:db8::1");
    check(SetDef::mac_pair(), spec(false, Transport::Tcp), "02:00:00:00:00:02 > 02:00:00:00:00:01");
    let vlan = Spec { wrap: Wrap::QinQ, ..spec(false, Transport::Echo) };
    check(SetDef::new("x", &[VlanId, IcmpId, InPort, EtherType]), vlan, "icmp id 7 type 0x0800 vlan 9 in 0");
    let segments = std::sync::Arc::new(Segments::by_tagging([(Tagging::two(9, 5), 77)]));
    let within = Spec { wrap: Wrap::QinQ, ..spec(false, Transport::Udp) };
    let named = "10.0.0.2:1234 > 10.0.0.1:80 udp segment 77";
    check(SetDef::five_tuple().within(segments.clone()), within, named);
    check(SetDef::five_tuple().within(segments), spec(false, Transport::Udp), &named.replace("77", "65535"));
    check(SetDef::new("x", &[MplsLabel]), Spec { wrap: Wrap::Mpls, ..spec(false, Transport::Tcp) }, "mpls 16");
}

#[test]
fn five_tuples_can_be_taken_out_of_their_keys() {
    let tuple = |def: &SetDef, v6| {
        let batch = testing::batch(&[spec(v6, Transport::Tcp).frame()], Layout::bare());
        let FiveTuple { src_ip, src_port, dst_ip, dst_port, protocol } = keys(def, &batch).1.key(0).five_tuple()?;
        Some(format!("{src_ip} {src_port} {dst_ip} {dst_port} {protocol}"))
    };
    let def = SetDef::five_tuple();
    assert_eq!(tuple(&def, false).as_deref(), Some("10.0.0.2 1234 10.0.0.1 80 6"));
    assert_eq!(tuple(&def, true).as_deref(), Some("2001:db8::2 1234 2001:db8::1 80 6"));
    assert_eq!(tuple(&def.symmetric(), false).as_deref(), Some("10.0.0.1 80 10.0.0.2 1234 6"));
    for finer in [FieldId::VlanId, FieldId::InPort, FieldId::IcmpId] {
        let mut def = SetDef::five_tuple();
        def.fields.push(finer);
        assert_eq!(tuple(&def, false).as_deref(), Some("10.0.0.2 1234 10.0.0.1 80 6"), "{finer:?}");
        assert_eq!(tuple(&def, true).as_deref(), Some("2001:db8::2 1234 2001:db8::1 80 6"), "{finer:?}");
    }
    assert_eq!(tuple(&SetDef::src_ip(), false), None);
}

#[test]
fn tunnels_and_arp_have_keys_of_their_own() {
    let tunnel =
        |port, payload: &[u8]| Spec { ports: (9, port), payload: payload.to_vec(), ..spec(false, Transport::Udp) };
    let teid = SetDef::new("bearer", &[FieldId::GtpTeid]);
    check(teid.clone(), tunnel(2152, &[0x30, 255, 0, 0, 0, 0, 0, 5]), "teid 0x00000005");
    check(teid.clone(), tunnel(2152, &[0x30, 255, 0]), "orphan");
    check(teid, tunnel(2153, &[0x30, 255, 0, 0, 0, 0, 0, 5]), "orphan");
    check(SetDef::new("vni", &[FieldId::VxlanVni]), tunnel(4789, &[8, 0, 0, 0, 0, 0, 5, 0]), "vxlan.vni 5");
    let arp = [&[0xff; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[0; 10], &[0; 6], &[10, 0, 0, 9]].concat();
    assert_eq!(text(&SetDef::new("arp", &[FieldId::ArpTarget]), (arp.clone(), Link::Ethernet)), "arp 10.0.0.9");
    assert_eq!(text(&SetDef::five_tuple(), (arp, Link::Ethernet)), "orphan");
}

#[test]
fn a_set_with_protocols_takes_in_no_others() {
    let def = SetDef::five_tuple().only(&[6, 17]);
    check(def.clone(), spec(false, Transport::Tcp), "10.0.0.2:1234 > 10.0.0.1:80 tcp");
    check(def.clone(), spec(false, Transport::Echo), "orphan");
    let (mut frame, link) = spec(false, Transport::Udp).frame();
    frame[21] = 1;
    assert_eq!(text(&def, (frame.clone(), link)), "orphan");
    assert_eq!(text(&SetDef::five_tuple(), (frame, link)), "10.0.0.2:0 > 10.0.0.1:0 udp");
}

#[test]
fn what_makes_no_key_is_refused() {
    use FieldId::*;
    let error = |def: SetDef| KeyExtractor::compile(&def).unwrap_err().to_string();
    assert_eq!(error(SetDef::new("a", &[])), "packet set `a` names no field");
    let one_sided = error(SetDef::new("b", &[IpSrc, VlanId]).symmetric());
    assert_eq!(one_sided, "packet set `b` is symmetric but names ip.src without ip.dst");
    assert_eq!(
        error(SetDef::new("c", &[VlanId]).symmetric()),
        "packet set `c` is symmetric but names no field that has two directions"
    );
    assert_eq!(error(SetDef::new("d", &FieldId::ALL)), "packet set `d` needs 76 bytes of key, 40 is the most");
}

#[test]
fn every_field_has_a_name_of_its_own() {
    for field in FieldId::ALL {
        assert_eq!(FieldId::by_name(field.name()), Some(field));
    }
    assert!(FieldId::ALL.is_sorted());
}

#[test]
fn the_hash_spreads_flows_that_differ_by_little() {
    let hash = KeyHash::new(DEFAULT_SEED);
    for shift in [0, 16, 32, 48, 56] {
        let mut buckets = vec![0u32; 4096];
        for i in 0..65_536u64 {
            let key = if shift == 48 { [i << 8, 6 << 32] } else { [0x0a00_0001_0a00_0002, i << (shift % 48)] };
            let hash = hash.narrow(&key);
            // The upper half selects a bucket, the lower bits the tag.
            buckets[(hash >> 52) as usize] += 1;
            buckets[(hash & 0xfff) as usize] += 1;
        }
        let square: f64 = buckets.iter().map(|&n| (f64::from(n) - 32.0).powi(2) / 32.0).sum();
        assert!(square < 4096.0 * 1.25, "shift {shift}: chi-square {square}");
    }
}

/// Computes a key and its fields from the packet's own accessors.
fn oracle(batch: &mut Batch, i: usize, symmetric: bool) -> Option<(IpAddress, u16, IpAddress, u16, u8, bool)> {
    let packet = batch.packet(i, None);
    let (sport, dport) = packet.ports().unwrap_or((0, 0));
    let (src, dst) = ((packet.src_ip(), sport), (packet.dst_ip(), dport));
    let swapped = symmetric && src > dst;
    let (first, second) = if swapped { (dst, src) } else { (src, dst) };
    packet.is_ip().then_some((first.0, first.1, second.0, second.1, packet.protocol(), swapped))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn packets_have_one_key_exactly_if_they_have_one_five_tuple(
        mut frames in prop::collection::vec(prop_oneof![noise(), specs().prop_map(|spec| spec.frame())], 1..20), symmetric: bool,
    ) {
        frames.extend(frames.clone());
        let def = SetDef { symmetric, ..SetDef::five_tuple() };
        let mut batch = testing::batch(&frames, Layout::bare());
        let (extractor, keys) = keys(&def, &batch);
        let mut seen = HashMap::new();
        for i in 0..batch.len() {
            let alone = extractor.extract(&batch.records()[i], batch.bytes(i));
            let expected = oracle(&mut batch, i, symmetric);
            prop_assert_eq!(expected.is_some(), keys.class[i] != KeyClass::None);
            prop_assert_eq!(alone.is_some(), expected.is_some());
            if let (Some(alone), Some(expected)) = (alone, expected) {
                let key = keys.key(i);
                // The fast path and the generic path agree.
                prop_assert_eq!((alone.key, alone.hash, alone.swapped), (key, keys.hash[i], keys.swapped[i]));
                prop_assert_eq!(key.hash_with(extractor.hash()), keys.hash[i]);
                prop_assert_eq!(keys.swapped[i], expected.5);
                let meaning = (expected.0, expected.1, expected.2, expected.3, expected.4);
                prop_assert_eq!(*seen.entry(key).or_insert(meaning), meaning);
            }
        }
        let meanings: std::collections::HashSet<_> = seen.values().collect();
        prop_assert_eq!(meanings.len(), seen.len());
    }

    #[test]
    fn the_fast_ways_agree_with_the_general_one(
        frames in prop::collection::vec(prop_oneof![noise(), specs().prop_map(|spec| spec.frame())], 1..20), symmetric: bool,
        protocols in prop::option::of(prop::sample::subsequence(vec![1u8, 6, 17, 47, 58, 99, 132], 1..7)),
    ) {
        let batch = testing::batch(&frames, Layout::bare());
        let mut in_vlan = SetDef::mac_pair();
        in_vlan.fields.push(FieldId::VlanId);
        for def in [SetDef::five_tuple(), SetDef::src_ip(), SetDef::dst_ip(), SetDef::mac_pair(), in_vlan] {
            let symmetric = symmetric && def.fields.len() > 1;
            let def = SetDef { symmetric, protocols: protocols.clone(), ..def };
            let (extractor, keys) = keys(&def, &batch);
            let (mut on_the_way, mut again) = (testing::unparsed(&frames, Layout::bare()), Keys::boxed());
            extractor.parse_and_extract(&mut on_the_way, &mut again);
            for (i, (record, parsed)) in batch.records().iter().zip(on_the_way.records()).enumerate() {
                prop_assert_eq!(record.parsed(), parsed.parsed());
                prop_assert_eq!((keys.key(i), keys.hash[i], keys.swapped[i]), (again.key(i), again.hash[i], again.swapped[i]));
            }
            prop_assert_eq!(keys.of_all, again.of_all);
            let (first, classes) = (keys.class[0], &keys.class[..frames.len()]);
            let same = classes.iter().all(|class| *class == first);
            prop_assert_eq!(keys.of_all, if same { first } else { KeyClass::None });
            for (i, (record, frame)) in batch.frames().enumerate() {
                let alone = extractor.extract(record, frame);
                prop_assert_eq!(alone.map_or(SetKey::NONE, |alone| alone.key), keys.key(i));
                prop_assert_eq!(alone.map_or((0, false), |alone| (alone.hash, alone.swapped)), (keys.hash[i], keys.swapped[i]));
            }
        }
    }

    #[test]
    fn packets_that_are_looked_at_together_have_the_keys_that_they_have_alone(
        plain in prop::collection::vec((any::<[u8; 36]>(), any::<bool>(), 0usize..40, 0u8..8), 4..40),
        v6_below in 0u8..9, damages in prop::collection::vec((0usize..40, 12usize..26, 0u8..8), 0..3),
        lengths in prop::collection::vec((0usize..40, 0u8..12, 0usize..10), 0..4),
        form in 0usize..4, protocols in prop::option::of(prop::sample::subsequence(vec![6u8, 17, 47], 1..3)),
    ) {
        // All IPv4, all IPv6, or a mixture.
        let frame = |&(ends, is_tcp, payload, of_eight): &([u8; 36], bool, usize, u8)| {
            let (transport, v6) = (if is_tcp { Transport::Tcp } else { Transport::Udp }, of_eight < v6_below);
            let (mut frame, link) = Spec { payload: vec![0; payload], ..spec(v6, transport) }.frame();
            let (at, len) = if v6 { (22, 36) } else { (26, 12) };
            frame[at..at + len].copy_from_slice(&ends[..len]);
            (frame, link)
        };
        let mut frames: Vec<_> = plain.iter().map(frame).collect();
        for (i, at, bit) in damages {
            let count = frames.len();
            frames[i % count].0[at] ^= 1u8 << bit;
        }
        for (i, room, len) in lengths {
            let count = frames.len();
            let (frame, _) = &mut frames[i % count];
            match frame[12] {
                0x86 => (frame[19], _) = (room, frame.truncate(54 + len)),
                _ => (frame[17], _) = (18 + room, frame.truncate(34 + len)),
            }
        }
        let symmetric = form == 1;
        let def = match form { 2 => SetDef::src_ip(), 3 => SetDef::dst_ip(), _ => SetDef::five_tuple() };
        let extractor = KeyExtractor::compile(&SetDef { symmetric, protocols, ..def }).unwrap();
        let (mut on_the_way, mut keys) = (testing::unparsed(&frames, Layout::bare()), Keys::boxed());
        extractor.parse_and_extract(&mut on_the_way, &mut keys);
        let mut again = Keys::boxed();
        extractor.extract_batch(&on_the_way, &mut again);
        for (i, (frame, link)) in frames.iter().enumerate() {
            let (record, parsed) = (&on_the_way.records()[i], crate::parse::parse(frame, *link));
            prop_assert_eq!((record.l3, record.l4, record.proto, record.flags), (parsed.l3, parsed.l4, parsed.proto, parsed.flags));
            let alone = extractor.extract(record, frame);
            let expected = alone.map_or((SetKey::NONE, 0, false), |alone| (alone.key, alone.hash, alone.swapped));
            prop_assert_eq!((keys.key(i), keys.hash[i], keys.swapped[i]), expected);
            prop_assert_eq!((again.key(i), again.hash[i], again.swapped[i]), expected);
        }
    }

    #[test]
    fn both_directions_have_one_symmetric_key(mut spec in specs(), to_itself in prop::bool::weighted(0.2)) {
        prop_assume!(!matches!(spec.transport, Transport::Error(..)));
        if to_itself {
            spec.dst = spec.src;
        }
        let back = Spec { src: spec.dst, dst: spec.src, ports: (spec.ports.1, spec.ports.0), ..spec.clone() };
        let batch = testing::batch(&[spec.frame(), back.frame()], Layout::bare());
        let (_, keys) = keys(&SetDef::five_tuple().symmetric(), &batch);
        prop_assert_eq!(keys.key(0), keys.key(1));
        prop_assert_eq!(keys.hash[0], keys.hash[1]);
        prop_assert!(keys.swapped[0] != keys.swapped[1] || (spec.src == spec.dst));
    }

    #[test]
    fn by_sides_a_reply_shares_the_key_of_what_it_answers_and_nothing_else_does(spec in specs(), symmetric: bool) {
        prop_assume!(!matches!(spec.transport, Transport::Error(..)));
        let back = Spec { src: spec.dst, dst: spec.src, ports: (spec.ports.1, spec.ports.0), ..spec.clone() };
        let batch = testing::batch(&[spec.frame(), back.frame()], Layout::bare());
        for def in [SetDef::five_tuple(), SetDef::new("ends", &[FieldId::IpSrc, FieldId::IpDst])] {
            let by_sides = |outside| {
                let def = SetDef { symmetric, ..def.clone() };
                let extractor = KeyExtractor::compile(&def).unwrap().by_sides(outside).unwrap();
                let mut keys = Keys::boxed();
                extractor.extract_batch(&batch, &mut keys);
                for i in 0..2 {
                    let (batched, mut alone) = (keys.key(i), Keys::boxed());
                    extractor.extract_at(&batch, i, &mut alone);
                    assert_eq!((batched, keys.hash[i], keys.swapped[i]), (alone.key(i), alone.hash[i], alone.swapped[i]));
                }
                [(keys.key(0), keys.swapped[0]), (keys.key(1), keys.swapped[1])]
            };
            let (inside, outside) = (by_sides(PortSet::default()), by_sides(PortSet::of([0])));
            prop_assert_eq!(inside[0].0 == outside[1].0, symmetric);
            prop_assert!((outside[1].1, inside[0].1) == (symmetric, false));
            if !symmetric {
                let tuple = |key: SetKey| key.five_tuple();
                prop_assert_eq!(tuple(inside[0].0), tuple(outside[0].0), "the mark is no part of the tuple");
                prop_assert!(inside[0].0 != outside[0].0 || inside[0].0 == SetKey::NONE);
            }
        }
    }

    #[test]
    fn no_definition_panics_on_any_bytes(frame in noise(), mask in 1u32..1 << 16, symmetric: bool) {
        let fields: Vec<FieldId> = FieldId::ALL.into_iter().filter(|field| mask & field.bit() != 0).collect();
        let segments = Some(std::sync::Arc::new(Segments::by_tagging([(Tagging::one(5), 1)])));
        let def = SetDef { symmetric, segments, ..SetDef::new("any", &fields) };
        if KeyExtractor::compile(&def).is_ok() {
            text(&def, frame);
        }
    }
}

#[test]
fn a_key_is_told_from_others_by_its_words() {
    let frames = [
        spec(false, Transport::Tcp),
        spec(false, Transport::Udp),
        spec(true, Transport::Tcp),
        Spec::new("10.0.0.2", "10.0.0.1", (1234, 81), Transport::Tcp),
    ];
    let frames: Vec<_> = frames.iter().map(Spec::frame).chain([(vec![0; 14], Link::Ethernet)]).collect();
    let batch = testing::batch(&frames, Layout::bare());
    let defs = [SetDef::five_tuple(), SetDef::src_ip(), SetDef::dst_ip()];
    let all: Vec<_> = defs.iter().map(|def| keys(def, &batch).1).collect();
    let each = || all.iter().flat_map(|keys| (0..batch.len()).map(move |i| (keys, i)));
    for ((keys, i), (others, k)) in each().flat_map(|one| each().map(move |other| (one, other))) {
        let (own, other) = (keys.key(i), others.key(k));
        let words: [u64; SetKey::WORDS] = zerocopy::transmute!(other);
        assert_eq!(keys.is(i, |at| words[at]), own == other && own != SetKey::NONE, "{own} and {other}");
    }
    assert_eq!(all[0].key(batch.len() - 1), SetKey::NONE, "one of them has no key");
}
