//! Bytes as a packet: the first byte chooses the link type, the rest is the frame. Every accessor answers, every setter keeps
//! its promise, and taking everything back gives the frame as it was.
#![no_main]

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use braid_packet::headers::{
    Arp, Ethernet, Gre, GtpU, Header, Icmp, Icmpv6, Ipv4, Ipv6, Mpls, Pppoe, Sctp, Tcp, Udp, Vlan, Vxlan,
};
use braid_packet::{
    Batch, Buffers, Flags, FrameInfo, IpAddress, KeyExtractor, Keys, Layout, Link, MacAddress, Packet, Pool,
    PoolConfig, SetDef, Undo, parse,
};
use libfuzzer_sys::fuzz_target;

const LINKS: [Link; 6] = [Link::Ethernet, Link::RawIp, Link::Cooked1, Link::Cooked2, Link::Loopback, Link::Other];

struct Bench {
    buffers: Buffers,
    batch: Batch,
    keys: Box<Keys>,
    sets: Vec<KeyExtractor>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

impl Bench {
    fn new() -> Bench {
        let pool =
            Pool::new(&PoolConfig { buffers: 64, jumbos: 4, ..PoolConfig::default() }).expect("memory for 64 buffers");
        let sets = [
            SetDef::five_tuple(),
            SetDef::five_tuple().symmetric(),
            SetDef::src_ip(),
            SetDef::dst_ip(),
            SetDef::mac_pair(),
        ];
        Bench {
            buffers: Buffers::new(&pool),
            batch: Batch::new(&pool, &Arc::new(Layout::capture())),
            keys: Keys::boxed(),
            sets: sets.iter().map(|set| KeyExtractor::compile(set).expect("a set of the library")).collect(),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, frame)) = bytes.split_first() else { return };
    let link = LINKS[usize::from(choice) % LINKS.len()];
    headers(frame);
    let parsed = parse(frame, link);
    // where the headers end may lie behind a frame that was cut or lies; where IP begins may not
    let is_ip = parsed.flags.has(Flags::IP);
    assert!(!is_ip || usize::from(parsed.l3) < frame.len(), "an IP header behind the end of the frame");
    BENCH.with_borrow_mut(|bench| through_a_batch(bench, frame, link));
});

fn through_a_batch(bench: &mut Bench, frame: &[u8], link: Link) {
    let Bench { buffers, batch, keys, sets } = bench;
    if !batch.copy_in(buffers, frame, &FrameInfo { link, wire_len: frame.len() as u32, ..FrameInfo::default() }) {
        return;
    }
    batch.parse_all();
    for set in &*sets {
        set.extract_batch(batch, keys);
    }
    let mut undo = Undo::default();
    read(&batch.packet(0, None));
    change(&mut batch.packet(0, Some(&mut undo)));
    read(&batch.packet(0, None));
    batch.restore_all(&mut undo, 0);
    assert_eq!(batch.bytes(0), frame, "undo puts every byte back");
    batch.release(buffers);
}

fn read(packet: &Packet<'_>) {
    black_box((
        packet.len(),
        packet.is_ip(),
        packet.ip_version(),
        packet.is_fragment(),
        packet.is_later_fragment(),
        packet.is_short(),
    ));
    black_box((packet.ether_type(), packet.src_ip(), packet.dst_ip(), packet.protocol(), packet.ports(), packet.ttl()));
    black_box((
        packet.l4_offset(),
        packet.icmp_id(),
        packet.tcp_flags(),
        packet.ip_payload(),
        packet.payload(),
        packet.checksums_ok(),
    ));
    black_box((packet.ethernet(), packet.vlan(), packet.vlans().count(), packet.arp(), packet.embedded()));
    black_box((
        packet.ipv4().map(|ip| ip.options().count()),
        packet.ipv6().map(|ip| (ip.extensions().filter_map(|e| e.fragment()).count(), ip.extensions().upper())),
    ));
    black_box((packet.tcp().map(|tcp| tcp.options().count()), packet.udp().is_some(), packet.sctp().is_some()));
    black_box((packet.icmp().map(|icmp| icmp.id()), packet.icmpv6().map(|icmp| icmp.id())));
}

/// Every setter once. A checksum that was right stays right.
fn change(packet: &mut Packet<'_>) {
    let was_right = packet.checksums_ok();
    let to = match packet.src_ip().is_v4() {
        true => IpAddress::from_v4([198, 51, 100, 7]),
        false => IpAddress::from_v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
    };
    packet.set_src_ip(to);
    packet.set_dst_ip(to);
    packet.set_src_port(0xbeef);
    packet.set_dst_port(0);
    packet.set_icmp_id(0x1234);
    packet.decrement_ttl();
    assert!(!was_right || packet.checksums_ok(), "a setter spoiled a checksum");
    if let Some(mut quoted) = packet.embedded_mut() {
        quoted.set_src_ip(to);
        quoted.set_dst_ip(to);
        quoted.set_src_port(0xbeef);
        quoted.set_dst_port(0);
        quoted.set_icmp_id(0x1234);
    }
    packet.set_eth_src(MacAddress([2, 0, 0, 0, 0, 1]));
    packet.set_eth_dst(MacAddress([2, 0, 0, 0, 0, 2]));
    packet.fill_checksums();
    packet.push_front(4);
    packet.pop_front(8);
    packet.reparse();
    read(packet);
    packet.extend(3);
    packet.set_len(packet.len() / 2);
    packet.reparse();
}

/// Each header type on the bare bytes, as tunnels are read.
fn headers(bytes: &[u8]) {
    fn of<H: Header>(bytes: &[u8]) {
        if let Some(view) = H::parse(bytes) {
            assert_eq!(view.header_len() + view.payload().len(), bytes.len(), "header and payload are the whole");
            black_box(view.variable());
        }
    }
    (of::<Ethernet>(bytes), of::<Vlan>(bytes), of::<Mpls>(bytes), of::<Pppoe>(bytes), of::<Arp>(bytes));
    (of::<Ipv4>(bytes), of::<Ipv6>(bytes), of::<Tcp>(bytes), of::<Udp>(bytes), of::<Sctp>(bytes));
    (of::<Icmp>(bytes), of::<Icmpv6>(bytes), of::<Gre>(bytes), of::<Vxlan>(bytes), of::<GtpU>(bytes));
    if let Some(gre) = Gre::parse(bytes) {
        black_box((gre.checksum(), gre.key(), gre.sequence()));
    }
    if let Some(gtp) = GtpU::parse(bytes) {
        black_box((gtp.sequence(), gtp.n_pdu(), gtp.extensions().count()));
    }
    if let Some(tcp) = Tcp::parse(bytes) {
        black_box(tcp.options().count());
    }
}
