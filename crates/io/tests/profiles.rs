//! Each profile has the figures of the traces that it represents, and every generated frame is valid.

use std::collections::HashMap;

use braid_io::generate::{GenConfig, Generator, Order, Profile, TcpStyle};
use braid_io::{FrameStream, Next};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

type Key = [u8; 37];

/// The one-way five-tuple of a frame; later fragments, ARP and ICMP have no ports.
fn key(frame: &[u8]) -> Key {
    let mut key = [0; 37];
    let (l4, protocol) = match (frame[12], frame[13]) {
        (8, 0) => {
            key[..8].copy_from_slice(&frame[26..34]);
            let later = frame[20] & 0x1f != 0 || frame[21] != 0;
            (if later { frame.len() } else { 34 }, frame[23])
        }
        (0x86, 0xdd) => {
            key[..32].copy_from_slice(&frame[22..54]);
            (54, frame[20])
        }
        _ => return key,
    };
    key[32] = protocol;
    if let (6 | 17, Some(ports)) = (protocol, frame.get(l4..l4 + 4)) {
        key[33..].copy_from_slice(ports);
    }
    key
}

#[derive(Debug, Default)]
struct Figures {
    packets: u64,
    flows: usize,
    mean: f64,
    median: u64,
    one_packet: f64,
    /// Share of packets that belong to the largest 1 % of flows.
    top: f64,
    largest: f64,
    /// New flows per 1000 packets, in the second half.
    new: f64,
    /// Share of packets that belong to the same flow as the previous packet.
    same: f64,
    gap_median: usize,
    bytes_mean: f64,
    sizes: Vec<u64>,
}

fn figures(config: GenConfig) -> Figures {
    let mut generator = Generator::new(config.clone()).expect("a valid configuration");
    let mut flows: HashMap<Key, (u64, usize)> = HashMap::new();
    let (mut bytes, mut same, mut new, mut last, mut gaps) = (0usize, 0usize, 0usize, None, Vec::new());
    let mut number = 0;
    while generator.advance() == Next::Frame {
        let (frame, info) = generator.frame();
        assert_eq!((info.sequence, info.wire_len as usize), (number as u64, frame.len()));
        let key = key(frame);
        bytes += frame.len();
        same += usize::from(last == Some(key));
        last = Some(key);
        let (count, seen) = flows.entry(key).or_insert((0, 0));
        match *count {
            0 if number >= config.packets as usize / 2 => new += 1,
            0 => {}
            _ => gaps.push(number - *seen),
        }
        (*count, *seen) = (*count + 1, number);
        number += 1;
    }
    gaps.sort_unstable();
    let mut sizes: Vec<u64> = flows.values().map(|&(count, _)| count).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let packets: u64 = sizes.iter().sum();
    assert_eq!(packets, config.packets);
    let share = |flows: usize| sizes[..flows].iter().sum::<u64>() as f64 / packets as f64;
    Figures {
        packets,
        flows: sizes.len(),
        mean: packets as f64 / sizes.len() as f64,
        median: sizes[sizes.len() / 2],
        one_packet: sizes.iter().filter(|&&size| size == 1).count() as f64 / sizes.len() as f64,
        top: share(sizes.len().div_ceil(100)),
        largest: share(1),
        new: new as f64 / (packets as f64 / 2000.0),
        same: same as f64 / packets as f64,
        gap_median: gaps.get(gaps.len() / 2).copied().unwrap_or(0),
        bytes_mean: bytes as f64 / packets as f64,
        sizes,
    }
}

#[track_caller]
fn within(name: &str, value: f64, least: f64, most: f64) {
    assert!((least..=most).contains(&value), "{name} is {value}, not within {least} to {most}");
}

#[test]
fn backbone_has_the_concentration_of_caida() {
    let figures = figures(Profile::Backbone.config(1_000_000));
    within("mean", figures.mean, 19.0, 22.0);
    within("largest", figures.largest, 0.015, 0.05);
    within("new per 1000", figures.new, 40.0, 60.0);
    within("same", figures.same, 0.05, 0.20);
    within("gap", figures.gap_median as f64, 30.0, 400.0);
    within("bytes", figures.bytes_mean, 820.0, 960.0);
    // Share of packets of the largest 0.44, 4.4, 22 and 44 % of flows.
    for (part, share) in [(0.0044, 0.31), (0.044, 0.55), (0.22, 0.78), (0.44, 0.87)] {
        let flows = (figures.flows as f64 * part) as usize;
        let measured = figures.sizes[..flows].iter().sum::<u64>() as f64 / figures.packets as f64;
        within(&format!("share of the largest {part}"), measured, share - 0.06, share + 0.06);
    }
}

#[test]
fn campus_has_mean_21_and_median_3() {
    let figures = figures(Profile::Campus.config(1_000_000));
    within("mean", figures.mean, 18.0, 22.0);
    within("median", figures.median as f64, 3.0, 4.0);
    within("one packet", figures.one_packet, 0.28, 0.38);
    within("top 1 %", figures.top, 0.29, 0.39);
    within("same", figures.same, 0.10, 0.25);
    within("gap", figures.gap_median as f64, 20.0, 400.0);
    within("bytes", figures.bytes_mean, 500.0, 620.0);
}

#[test]
fn edge_has_many_short_flows() {
    let figures = figures(Profile::Edge.config(500_000));
    within("mean", figures.mean, 3.0, 5.5);
    within("median", figures.median as f64, 1.0, 2.0);
    within("one packet", figures.one_packet, 0.48, 0.56);
    within("new per 1000", figures.new, 180.0, 230.0);
    within("same", figures.same, 0.05, 0.20);
    within("gap", figures.gap_median as f64, 30.0, 400.0);
    within("bytes", figures.bytes_mean, 480.0, 620.0);
}

#[test]
fn dns_scan_and_flood_are_nearly_all_new() {
    let dns = figures(Profile::Dns.config(300_000));
    within("mean", dns.mean, 1.05, 1.2);
    within("one packet", dns.one_packet, 0.87, 0.91);
    within("new per 1000", dns.new, 860.0, 920.0);
    within("same", dns.same, 0.05, 0.12);
    within("bytes", dns.bytes_mean, 73.0, 93.0);
    let scan = figures(Profile::Scan.config(300_000));
    within("mean", scan.mean, 1.0, 1.25);
    within("one packet", scan.one_packet, 0.90, 1.0);
    within("new per 1000", scan.new, 880.0, 1000.0);
    let flood = figures(Profile::SynFlood.config(300_000));
    within("mean", flood.mean, 1.0, 1.01);
    within("one packet", flood.one_packet, 0.99, 1.0);
    within("new per 1000", flood.new, 985.0, 1000.0);
    within("same", flood.same, 0.0, 0.001);
}

#[test]
fn skewed_uniform_and_single_are_what_they_say() {
    let skewed = figures(Profile::Skewed.config(500_000));
    within("largest", skewed.largest, 0.12, 0.30);
    within("top 1 %", skewed.top, 0.6, 0.9);
    let uniform = figures(GenConfig { flows: 50_000, ..Profile::Uniform.config(500_000) });
    assert_eq!((uniform.flows, uniform.sizes[0], uniform.sizes[49_999]), (50_000, 10, 10));
    assert_eq!((uniform.gap_median, uniform.bytes_mean), (50_000, 64.0));
    let single = figures(Profile::Single.config(1000));
    assert_eq!((single.flows, single.same), (1, 0.999));
}

/// Generates frames and passes each to `see`.
fn each(config: GenConfig, mut see: impl FnMut(&[u8])) {
    let mut generator = Generator::new(config).expect("a valid configuration");
    while generator.advance() == Next::Frame {
        see(generator.frame().0);
    }
}

/// A configuration with all features.
fn everything() -> GenConfig {
    GenConfig { reverse: 0.4, ipv6: 0.3, arp: 0.05, fragments: 0.05, mac_pairs: 7, ..Profile::Edge.config(30_000) }
}

#[test]
fn every_frame_is_valid_to_an_independent_parser() {
    let (mut v6, mut arp, mut fragments, mut icmp, mut transports) = (0, 0, 0, 0, 0);
    each(everything(), |frame| {
        let packet = SlicedPacket::from_ethernet(frame).expect("valid headers");
        let fragment = match &packet.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
                header.is_fragmenting_payload()
            }
            Some(NetSlice::Ipv6(_)) => {
                v6 += 1;
                false
            }
            _ => {
                arp += 1;
                return;
            }
        };
        fragments += usize::from(fragment);
        let right = match (&packet.net, &packet.transport) {
            (_, None) => fragment,
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) => {
                let payload = tcp.payload();
                tcp.to_header().calc_checksum_ipv4(&ip.header().to_header(), payload) == Ok(tcp.checksum())
            }
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) => {
                udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()) == Ok(udp.checksum())
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Tcp(tcp))) => {
                tcp.to_header().calc_checksum_ipv6(&ip.header().to_header(), tcp.payload()) == Ok(tcp.checksum())
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(udp))) => {
                udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload()) == Ok(udp.checksum())
            }
            (_, Some(TransportSlice::Icmpv4(message))) => {
                icmp += 1;
                message.icmp_type().calc_checksum(message.payload()) == message.checksum()
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(message))) => {
                icmp += 1;
                message.is_checksum_valid(ip.header().source(), ip.header().destination())
            }
            _ => false,
        };
        assert!(right, "{packet:?}");
        transports += 1;
    });
    within("IPv6", f64::from(v6) / 30_000.0, 0.25, 0.33);
    within("ARP", f64::from(arp) / 30_000.0, 0.045, 0.055);
    within("fragments", fragments as f64 / 30_000.0, 0.045, 0.055);
    assert!(icmp > 100 && transports > 28_000);
}

#[test]
fn tcp_connections_begin_with_syn_end_with_fin_and_number_every_byte() {
    let config = GenConfig { fragments: 0.0, ..everything() };
    let config =
        GenConfig { protocols: braid_io::generate::Protocols { tcp: 1.0, udp: 0.0 }, ipv6: 0.0, arp: 0.0, ..config };
    let mut next: HashMap<Key, u32> = HashMap::new();
    let (mut syns, mut fins) = (0, 0);
    each(config, |frame| {
        let flags = frame[47];
        let sequence = u32::from_be_bytes(frame[38..42].try_into().expect("four bytes"));
        let payload = u32::from(u16::from_be_bytes([frame[16], frame[17]])) - 40;
        let known = next.insert(key(frame), sequence.wrapping_add(payload + u32::from(flags & 3 != 0)));
        match known {
            None => assert!(flags & 0x02 != 0, "a direction begins with SYN"),
            Some(expected) => assert_eq!((sequence, flags & 0x02), (expected, 0)),
        }
        syns += u32::from(flags & 0x12 == 2);
        fins += u32::from(flags & 1);
    });
    assert!(syns > 5000 && fins > 3000, "{syns} SYN, {fins} FIN");
}

#[test]
fn a_flood_is_nothing_but_syn() {
    let config = Profile::SynFlood.config(1000);
    assert_eq!(config.tcp, TcpStyle::SynOnly);
    each(config, |frame| assert_eq!(frame[47], 2));
}

#[test]
fn a_million_flows_are_a_million_five_tuples() {
    let mut config = Profile::Uniform.config(1_000_000);
    config.seed = 42;
    assert_eq!(config.order, Order::RoundRobin);
    let mut keys = std::collections::HashSet::new();
    each(config, |frame| assert!(keys.insert(key(frame))));
}

#[test]
fn eight_million_flows_cost_no_more_memory_than_those_under_way() {
    let config = GenConfig { flows: 8_000_000, packets: 100_000, ..Profile::Backbone.config(1) };
    let mut seen = 0;
    each(config, |_| seen += 1);
    assert_eq!(seen, 100_000);
}

#[test]
fn the_same_seed_gives_the_same_packets_and_another_does_not() {
    let all = |seed| {
        let mut bytes = Vec::new();
        each(GenConfig { seed, packets: 2000, ..everything() }, |frame| bytes.extend_from_slice(frame));
        bytes
    };
    assert!(all(1) == all(1));
    assert!(all(1) != all(2));
}

#[test]
fn nonsense_is_refused_with_its_field_and_value() {
    let refused = |config: GenConfig| Generator::new(config).err().expect("refused").to_string();
    let base = || Profile::Edge.config(10);
    assert_eq!(refused(GenConfig { ipv6: 1.5, ..base() }), "ipv6 is 1.5: it must lie between 0 and 1");
    assert!(refused(GenConfig { flows: 0, ..base() }).starts_with("flows is 0"));
    assert!(
        refused(GenConfig {
            flows: 1 << 39,
            addresses: braid_io::generate::Addresses { client_bits: 4, ..Default::default() },
            ..base()
        })
        .contains("2^32")
    );
    assert!(
        refused(GenConfig { frame_sizes: braid_io::generate::FrameSizes::Fixed(20), ..base() }).contains("between 60")
    );
    let unknown = "backbones".parse::<Profile>().expect_err("unknown").to_string();
    assert!(unknown.contains("syn_flood"), "{unknown}");
    assert_eq!("SYN-flood".parse(), Ok(Profile::SynFlood));
}
