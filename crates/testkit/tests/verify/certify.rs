//! Certificates for every function: what several workers did equals what one worker does in the order of commits, packets,
//! state and all, on captures and generated mixes, under seeded schedules and on real threads.

mod broken;

use std::path::Path;

use braid_control::certify::{Request, certify_run};
use braid_control::frames::Frames;
use braid_control::profile::certificate::Certificate;
use braid_functions::{Entry, catalog, find};
use braid_io::capture::CaptureSource;
use braid_io::generate::{Addresses, GenConfig, Generator};
use braid_io::{FrameStream, Next};
use braid_packet::{FrameInfo, Link};
use braid_testkit::kernel::Replies;
use braid_testkit::{Bench, Frame};

use crate::cookies::handshakes;
use crate::generated::MIXES;
use crate::run::{Case, split};
use braid_testkit::captures::{captures, recorded};

/// The project's own captures.
const RECORDED: [&str; 6] =
    ["office.pcapng", "gateway.pcapng", "lan.pcapng", "lan-vlan.pcap", "dns.pcap.gz", "scan.pcap"];

/// Small tables and low rates: functions that refuse, fill up and fight for the same entries.
pub fn busy(function: &str) -> &'static str {
    match function {
        "bridge" => "capacity = 64\nrefresh_interval_ms = 1\nsnooping = { enabled = true, groups_max = 4 }",
        "nat" => "mappings_max = 256\nfragments_max = 8\nfirst_port = 1024\nlast_port = 1407",
        "nat64" => {
            "mappings_max = 128\nfragments_max = 8\nheld_max = 4\nfirst_port = 1024\nlast_port = 1151\n\
             ports_per_host = 20\nrouter_v6 = '2001:db8::1'\nfiltering = 'address_dependent'"
        }
        "firewall" => {
            "connections_max = 256\nqueries_max = 16\nfragments_max = 8\ninbound = 'reject'\n\
             half_open_max = 40\nhost_connections_max = 20\nhost_half_open_max = 5\nhosts_max = 64"
        }
        "policer" => "bytes_per_s = 20000\nburst_bytes = 3000",
        "shaper" => "bytes_per_s = 20000\nburst_bytes = 3000\nqueue_packets = 20",
        "rate_limiter" => "bytes_per_s = 20000\nburst_bytes = 3000",
        "flow_counter" => "totals = true",
        "anti_ddos" => "flows_min = 5",
        "heavy_hitters" => {
            "count = 'packets'\nthreshold = 3\nrows = 2\ncolumns = 30\ninterval_ms = 100\nhitters_max = 6"
        }
        "connection_limiter" => {
            "connections_max = 3\nconnections_per_s = 20\nburst = 5\naction = 'reject'\nopening_s = 1\nclosing_s = 1
                udp_s = 1\nowners_max = 12\nalerts_max = 4"
        }
        "load_balancer" => BALANCED,
        "router" => "promiscuous = true\nneighbours_max = 16\nwaiting_max = 4\nneighbour_lifetime_s = 1",
        "port_scan" => "answer_ms = 1\naction = 'drop'\nforget_s = 1\nfalse_alarms = 0.2\nalerts_max = 3",
        "dns_tunnel" => "orphans = 1\nbytes = 0\nwindow_s = 1\nanswers_max = 40\nalerts_max = 3",
        "sidejacking" => "session_s = 1\nrefresh_ms = 0\nsessions_max = 5",
        "protocol_classifier" => "packets_max = 1\nidle_timeout_s = 1",
        "asset_monitor" => "refresh_ms = 0\nhosts_max = 20\nservices_max = 5\nidle_timeout_s = 1",
        "abacus" => "action = 'drop'\nidle_timeout_s = 1\nsubscribers_max = 30",
        _ => "",
    }
}

/// Further configurations that share more, or take other ways.
pub fn others(function: &str) -> &'static [&'static str] {
    match function {
        "bridge" => &[FILTERED],
        "nat" => &[BY_VLAN],
        "policer" => &[
            "meter = 'trtcm'\npackets_per_s = 20\nburst_packets = 5\npeak_per_s = 40\npeak_burst = 10
                colour_aware = true\ndscp = { green = 10, yellow = 12 }\nlink = { per_s = 500, burst = 50 }",
            "meter = 'srtcm'\nby = 'source'\nexcess_burst = 9000\nprefix = { capacity = 8 }",
        ],
        "firewall" => &[RULED],
        "router" => &[ROUTED, SPREAD, TAGGED],
        "shaper" => &[
            "burst_bytes = 2000\nlink = { bytes_per_s = 100000, burst_bytes = 2000 }\nby = 'source'",
            "bytes_per_s = 20000\nburst_bytes = 3000\nceil_bytes_per_s = 400000\nceil_burst_bytes = 4000
                queue_packets = 40\naddresses_max = 20\nlink = { bytes_per_s = 500000, burst_bytes = 5000 }",
            GROUPED,
        ],
        "anti_ddos" => &[
            "flows_min = 5\naction = 'limit'\nsources_max = 6",
            "flows_min = 5\naction = 'mark'\ndscp = 8",
            COOKIES_ALWAYS,
            COOKIES_UNDER_ATTACK,
        ],
        "heavy_hitters" => &["by = 'flow'\nthreshold = 500\nrows = 1\ncolumns = 6"],
        "connection_limiter" => &["by = 'subscriber'\nconnections_max = 2\nprefix = { v4 = 16, v6 = 0 }"],
        _ => &[],
    }
}

/// Groups of every kind, and priorities.
const GROUPED: &str = "bytes_per_s = 10000\nburst_bytes = 2000\nceil_bytes_per_s = 300000\nceil_burst_bytes = 4000\nqueue_packets = 60
    addresses_max = 30\nlink = { bytes_per_s = 500000, burst_bytes = 5000 }\nquantum_bytes = 500
    group = [{ prefixes = ['10.0.0.0/9', 'fd00::/9'], total = { bytes_per_s = 100000, ceil_bytes_per_s = 150000, burst_bytes = 3000 } },
        { prefixes = '0.0.0.0/1', total = { bytes_per_s = 100000, burst_bytes = 3000 }, each = { bytes_per_s = 20000 } }]
    priority = [{ dscp = 46, ports = [53, 443] }, { addresses = '0.0.0.0/2' }]";

/// Few connections are listed, and those that open or are asked for do not wait long.
const COOKIES_ALWAYS: &str =
    "action = 'cookies'\ncookies = { when = 'always', secret = '000102030405060708090a0b0c0d0e0f',
    connections_max = 8, opening_timeout_s = 1, connection_timeout_s = 2 }";
const COOKIES_UNDER_ATTACK: &str = "action = 'cookies'\nflows_min = 5\nidle_timeout_s = 1
    cookies = { secret = '000102030405060708090a0b0c0d0e0f', window_scale = 9, connections_max = 8 }";

/// Rules that log, count and are limited, and decide nothing or for a while only.
const RULED: &str = "rules = [
    { action = 'continue', protocol = 'udp', log = 'udp: ' },
    { action = 'reject', protocol = 'udp', limit = 'over 50/second burst 20' },
    { action = 'allow', direction = 'inbound', limit = '100/second burst 30', counter = true },
    { action = 'continue', counter = true },
]";

/// Two ways to everybody, one of which nobody answers on.
const SPREAD: &str = "promiscuous = true
    interface = [
        { port = 0, addresses = ['10.0.0.1/8', 'fd00::1/8'] },
        { port = 1, addresses = ['192.0.2.1/24', '2001:db8::1/32'] },
    ]
    route = [{ to = '0.0.0.0/0', hops = [{ via = '192.0.2.2' }, { via = '192.0.2.3', weight = 2 }] }]
    neighbour = [{ address = '192.0.2.3', mac = '02:00:00:00:00:03', port = 1 }]";

/// Interfaces told by tags, one of them with two ways by ports, of which nobody answers on one.
const TAGGED: &str = "promiscuous = true\nhash = 'ports'\nneighbours_max = 16\nwaiting_max = 4\nneighbour_lifetime_s = 1
    interface = [
        { port = 0, addresses = ['10.0.1.1/24'] },
        { port = 0, vlan = 10, addresses = ['10.0.0.1/24', '2001:db8:10::1/64'] },
        { port = 0, vlan = 20, addresses = ['10.0.20.1/24', 'fd00::1/64'], mtu = 1280 },
        { port = 1, addresses = ['198.18.0.250/16'], mtu = 576 },
        { port = 1, vlan = 30, addresses = ['192.0.2.1/24', '2001:db8::1/64'] },
    ]
    route = [{ to = '0.0.0.0/0', hops = [{ via = '192.0.2.2' }, { via = '192.0.2.3', weight = 2 }] }, { to = '::/0', via = '2001:db8::fe' }]
    neighbour = [{ address = '192.0.2.3', mac = '02:00:00:00:00:03', port = 1, vlan = 30 }]";

/// Neighbours that are there, links of different length.
const ROUTED: &str = "promiscuous = true\nicmp_errors_per_s = 20
    [[interface]]\nport = 0\naddresses = ['10.0.0.1/8', 'fd00::1/8']\n[[interface]]\nport = 1\naddresses = ['192.0.2.1/24']\nmtu = 576
    [[route]]\nto = '0.0.0.0/0'\nvia = '192.0.2.254'\n[[route]]\nto = '198.18.0.0/15'\nvia = '10.0.0.9'
    [[route]]\nto = '::/0'\nport = 0
    [[neighbour]]\naddress = '192.0.2.254'\nmac = '02:00:00:00:00:fe'\nport = 1
    [[neighbour]]\naddress = '10.0.0.9'\nmac = '02:00:00:00:00:09'\nport = 0\n";

/// Filters VLANs, cuts storms, and lets few stations in.
const FILTERED: &str = "capacity = 64\nrefresh_interval_ms = 1\nstorm = { broadcast_per_s = 20, unknown_per_s = 100 }
    [[port]]\nport = 0\naccess = 1\n[[port]]\nport = 1\ntrunk = ['1-4094']\n[[port]]\nport = 2\ntrunk = ['2-200']\nnative = 1
    [[vlan]]\nid = 1\nstations_max = 8\n";

/// Networks told by one tag, by two, and by none.
const BY_VLAN: &str =
    "networks = 'by_vlan'\nvlans = ['untagged', '1-100', '9.1-20']\nmappings_max = 256\nfragments_max = 8
    held_max = 4\nfirst_port = 1024\nlast_port = 1151\nports_per_host = 20\nfiltering = 'address_dependent'\n";

/// Balances servers of the mixes and of the recorded captures. Clients are those who ask there, so they come by port 0.
const BALANCED: &str = "persistence_max = 16\nclient_ports = [0]\nbackend_ports = [1]\ntable_size = 251\nfragments_max = 8
    [[service]]\naddress = '203.0.113.10'\nbackends = [{ address = '192.0.2.1' }, { address = '192.0.2.2' }]
    [[service]]\naddress = '203.0.113.53'\nmode = 'gue'\nbackends = [{ address = '192.0.2.3' }]
    [[service]]\naddress = '2001:db8:2::10'\nbackends = [{ address = '2001:db8:3::1' }, { address = '2001:db8:3::2' }]
    [[service]]\naddress = '198.18.0.0'\npersistence = 'source'\nbackends = [{ address = '192.0.2.10' }, { address = '192.0.2.11' }]
    [[service]]\naddress = '198.18.0.1'\nbackends = [{ address = '192.0.2.12' }]\n";

/// Frames that are played from memory.
struct Played {
    frames: Vec<(FrameInfo, Vec<u8>)>,
    next: usize,
}

impl FrameStream for Played {
    fn advance(&mut self) -> Next {
        self.next += 1;
        if self.next <= self.frames.len() { Next::Frame } else { Next::End }
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let (info, bytes) = &self.frames[self.next - 1];
        (bytes, *info)
    }
}

/// An input with a name, as a function shall see it: what comes from outside to a NAT is addressed to what that has chosen.
pub fn input(entry: &Entry, stream: &mut dyn FrameStream, packets: usize) -> Frames {
    let mut frames = Vec::new();
    while frames.len() < packets && stream.advance() == Next::Frame {
        let (bytes, info) = stream.frame();
        frames.push((info, bytes.to_vec()));
    }
    if entry.name == "nat" {
        readdress(&mut frames);
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

/// Replies as they would come back from outside, learnt from one worker. Another order may choose other ports: then they are
/// strangers, which is as good a test.
fn readdress(frames: &mut [(FrameInfo, Vec<u8>)]) {
    let nat = find("nat").expect("it is in the catalogue");
    let config = || busy("nat").parse().expect("TOML");
    let mut bench = Bench::new(2, |builder| (nat.build)("nat", config(), builder, 2).expect("it can be built"));
    let mut replies = Replies::default();
    for (info, frame) in frames {
        if info.port == 0 {
            if let [(1, translated)] = &bench.send_info(*info, frame).sent[..] {
                replies.learn(frame, translated);
            }
        } else if let Some(reply) = replies.readdress(frame) {
            bench.send_info(*info, &reply);
            *frame = reply;
        }
    }
}

/// Requests of hosts with IPv6 to servers with IPv4, and answers to what one worker made of them.
fn translated(packets: usize) -> Frames {
    let nat = find("nat64").expect("it is in the catalogue");
    let config = busy("nat64").parse().expect("TOML");
    let mut bench = Bench::new(2, |builder| (nat.build)("nat64", config, builder, 2).expect("it can be built"));
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0.. {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [host, port, server, kind, ..] = (chance >> 24).to_be_bytes()[3..].try_into().unwrap_or([0; 5]);
        let (host, server) = (format!("2001:db8:1:{}::{host:x}", host % 8), server % 4);
        let to = (format!("64:ff9b::c000:20{server}"), format!("192.0.2.{server}"));
        let inside = format!("[{host}]:{}", 1030 + u16::from(port % 8));
        let ends = (inside.as_str(), format!("[{}]:80", to.0));
        let request = match kind % 5 {
            0 => Frame::tcp(ends.0, &ends.1).flags(["S", "A", "FA", "R"][usize::from(kind / 5 % 4)]),
            1 => Frame::echo_request(&host, &to.0, u16::from(port), 1),
            2 => Frame::udp(ends.0, &ends.1).payload(&[1; 8]).fragment(u16::from(kind), 0, true),
            3 => Frame::ip(&host, &to.0, 17).payload(&[2; 16]).fragment(u16::from(kind - 1), 2, false),
            _ => Frame::udp(ends.0, &ends.1).payload(&[kind; 30]),
        };
        for (port, frame) in answers(&mut bench, n, (0, request.bytes())) {
            frames.push((at_ms(n, port, &frame, frames.len()), frame));
        }
        if frames.len() >= packets {
            break;
        }
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

/// Hosts of several networks with the same addresses, and answers to what one worker made of their requests.
fn customers(packets: usize) -> Frames {
    let nat = find("nat").expect("it is in the catalogue");
    let config = BY_VLAN.parse().expect("TOML");
    let mut bench = Bench::new(2, |builder| (nat.build)("nat", config, builder, 2).expect("it can be built"));
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0.. {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [network, host, port, kind, ..] = (chance >> 24).to_be_bytes()[3..].try_into().unwrap_or([0; 5]);
        let (host, server) = (format!("10.0.0.{}", host % 4), format!("192.0.2.{}", kind % 3));
        let ends = (format!("{host}:{}", 1030 + u16::from(port % 8)), format!("{server}:80"));
        let request = match kind % 4 {
            0 => Frame::tcp(&ends.0, &ends.1).flags(["S", "A", "FA", "R"][usize::from(kind / 4 % 4)]),
            1 => Frame::echo_request(&host, &server, u16::from(port), 1),
            2 => Frame::udp(&ends.0, &ends.1).payload(&[1; 8]).fragment(u16::from(kind), 0, true),
            _ => Frame::udp(&ends.0, &ends.1).payload(&[kind; 30]),
        };
        // The last one is no network.
        let tags: &[u16] = [&[][..], &[7], &[9, 7], &[9, 8], &[7, 9]][usize::from(network % 5)];
        let request = tags.iter().fold(request, |request, tag| request.vlan(*tag));
        for (port, frame) in answers(&mut bench, n, (0, request.bytes())) {
            frames.push((at_ms(n, port, &frame, frames.len()), frame));
        }
        if frames.len() >= packets {
            break;
        }
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

/// A frame that comes by a port at a time, as the so many-th.
fn at_ms(ms: u64, port: u16, frame: &[u8], sequence: usize) -> FrameInfo {
    let (wire_len, sequence) = (frame.len() as u32, sequence as u64);
    FrameInfo { port, link: Link::Ethernet, timestamp_ns: ms * 1_000_000, wire_len, sequence }
}

/// A request, and what a server answers to its translation: an echo, a datagram back, or that nobody is there.
fn answers(bench: &mut Bench, ms: u64, request: (u16, Vec<u8>)) -> Vec<(u16, Vec<u8>)> {
    let mut frames = vec![request];
    let outcome = bench.send(0, ms, &frames[0].1);
    if let [(1, sent)] = &outcome.sent[..] {
        let mut back = sent.clone();
        for at in 0..4 {
            back.swap(26 + at, 30 + at);
        }
        if sent[23] == 1 && sent.len() > 36 {
            // The type changes from 8 to 0, so the checksum rises by as much.
            back[34] = 0;
            let sum = u32::from(u16::from_be_bytes([sent[36], sent[37]])) + 0x0800;
            back[36..38].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
        } else if sent.len() > 37 {
            back.swap(34, 36);
            back.swap(35, 37);
        }
        let source = |at: usize| format!("{}.{}.{}.{}", sent[at], sent[at + 1], sent[at + 2], sent[at + 3]);
        frames.push((1, if ms % 4 == 3 { Frame::unreachable(&source(30), &source(26), sent).bytes() } else { back }));
    }
    frames
}

/// Hosts of several VLANs that ask each other, those of the world and the router; questions of ARP among them, and pieces.
fn tagged(packets: usize) -> Frames {
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0..packets as u64 {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [network, host, peer, port, kind] = (chance >> 24).to_be_bytes()[3..].try_into().unwrap_or([0; 5]);
        // By port and VLAN the network there.
        let networks =
            [(0, None, "10.0.1"), (0, Some(10), "10.0.0"), (0, Some(20), "10.0.20"), (1, Some(30), "192.0.2")];
        let at = |n: u8| networks[usize::from(n) % networks.len()];
        let (in_port, vlan, network) = at(network);
        let source = format!("{network}.{}", 2 + host % 4);
        let other = if peer % 3 == 0 { "203.0.113".to_owned() } else { at(peer / 3).2.to_owned() };
        let destination = format!("{other}.{}", 1 + peer % 5);
        let ends = (format!("{source}:{}", 1030 + u16::from(port % 8)), format!("{destination}:80"));
        let frame = match kind % 8 {
            0 | 1 => Frame::arp(&source, &format!("{network}.1")),
            2 => Frame::echo_request(&source, &destination, u16::from(port), 1),
            3 => Frame::udp(&ends.0, &ends.1).payload(&[1; 8]).fragment(u16::from(kind), 0, true),
            4 => Frame::ip(&source, &destination, 17).payload(&[2; 16]).fragment(u16::from(kind - 1), 2, false),
            5 => Frame::tcp(&ends.0, &ends.1).payload(&[3; 1300]).may_be_fragmented(),
            6 => Frame::udp(&ends.0, &ends.1).ttl(1),
            _ => Frame::tcp(&ends.0, &ends.1).flags("S"),
        };
        let frame = frame.mac([2, 0, 0, 9, network.len() as u8, host % 4], [2, 0, 0, 1, 0, in_port as u8]);
        // Some come by a VLAN that no interface is in.
        let frame = vlan.map(|vlan| vlan + u16::from(host % 16 == 0)).into_iter().fold(frame, Frame::vlan).bytes();
        frames.push((at_ms(n * 7, in_port, &frame, frames.len()), frame));
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

fn of_capture(entry: &Entry, path: &Path, packets: usize) -> Frames {
    let source = CaptureSource::new(vec![path.to_owned()]).split(split(entry));
    input(entry, &mut source.into_stream().expect("a capture"), packets)
}

/// All inputs for a function: recorded captures, so many shared ones, three mixes.
pub fn inputs(entry: &Entry, test: &str, shared: usize, packets: usize) -> Vec<(String, Frames)> {
    let mut inputs: Vec<_> =
        RECORDED.iter().map(|name| ((*name).to_owned(), of_capture(entry, &recorded(name), packets))).collect();
    let captures = if shared == 0 { Vec::new() } else { captures(test) };
    let rich = captures.into_iter().filter(|capture| {
        capture.text("error").is_empty() && capture.count("biflows") > 8 && capture.count("packets") > 200
    });
    inputs.extend(rich.step_by(6).take(shared).map(|capture| {
        let frames = of_capture(entry, &capture.path, packets);
        (capture.name, frames)
    }));
    for profile in MIXES {
        let addresses = Addresses { client_bits: 4, client_port_bits: 4, server_bits: 2, ..Addresses::default() };
        let config = GenConfig { reverse: 0.4, addresses, mac_pairs: 16, ..profile.config(packets as u64) };
        let mut generator = Generator::new(config).expect("a mix of the tests");
        inputs.push((profile.name().to_owned(), input(entry, &mut generator, packets)));
    }
    if entry.name == "anti_ddos" {
        inputs.push((
            "clients that show cookies".to_owned(),
            Frames::read(&mut Played { frames: handshakes(COOKIES_ALWAYS, packets), next: 0 }, packets),
        ));
    }
    if entry.name == "nat" {
        inputs.push(("customers with the same addresses".to_owned(), customers(packets)));
    }
    if entry.name == "router" {
        inputs.push(("hosts in VLANs".to_owned(), tagged(packets)));
    }
    if entry.name == "nat64" {
        inputs.push(("hosts with IPv6".to_owned(), translated(packets)));
    }
    inputs
}

/// Sets by source and sets by destination: no steering keeps both on one worker each. Those without a state object are held by their
/// packets, those with one (a link's bucket) are read and written in the batch's transaction.
fn by_opposite_ends(workers: usize) -> Case {
    Case::new(2, workers, |builder| {
        let build = find("policer").expect("it is in the catalogue").build;
        let mut stages = Vec::new();
        for by in ["source", "destination"] {
            for link in ["", "link = { per_s = 100000, burst = 9000 }"] {
                let config = format!("bytes_per_s = 20000\nburst_bytes = 3000\nby = '{by}'\n{link}");
                let scope = format!("policer_{}", stages.len());
                stages.push(build(&scope, config.parse().expect("TOML"), builder, 2).expect("it can be built"));
            }
        }
        stages
    })
}

fn certificate(case: &Case, chain: &str, name: &str, frames: &Frames, seeds: u64) -> Certificate {
    let request = Request { frames, input: name, runs: seeds, seed: 1, watchdog: None, meanwhile: None };
    certify_run(&case.plan(), vec![chain.to_owned()], request, &mut |_| {}).expect("it runs")
}

/// Certifies every function on every input with 2 and 4 workers.
fn check(test: &str, shared: usize, packets: usize, seeds: u64) {
    for entry in catalog() {
        let (mut runs, mut transactions, mut aborts) = (0, 0, 0);
        let inputs = inputs(entry, test, shared, packets);
        let configs = std::iter::once(busy(entry.name)).chain(others(entry.name).iter().copied());
        let cases = configs.flat_map(|config| [2, 4].map(|workers| (config, workers)));
        for (config, workers) in cases {
            for (name, frames) in &inputs {
                let case = Case { sets: 2048, ..Case::of(entry, config, workers) };
                let certificate = certificate(&case, entry.name, name, frames, seeds);
                assert!(certificate.holds(), "{config}\n{certificate}");
                runs += certificate.runs.len();
                transactions += certificate.runs.iter().map(|run| run.transactions).sum::<usize>();
                aborts += certificate.runs.iter().map(|run| run.aborts).sum::<u64>();
            }
        }
        let name = entry.name;
        eprintln!("{name}: {} inputs, {runs} runs, {transactions} transactions, {aborts} retried: holds", inputs.len());
    }
}

#[test]
fn a_chain_whose_sets_workers_share_is_certified() {
    let entry = find("policer").expect("it is in the catalogue");
    for (name, frames) in inputs(entry, "a_chain_whose_sets_workers_share_is_certified", 0, 300) {
        for workers in [2, 4] {
            let certificate = certificate(&by_opposite_ends(workers), "four policers", &name, &frames, 4);
            assert!(certificate.holds(), "{certificate}");
        }
    }
}

/// A function, and a router behind it.
fn before_a_router(name: &'static str, config: String, router: &'static str, workers: usize) -> Case {
    Case {
        sets: 2048,
        ..Case::new(2, workers, move |builder| {
            let mut build = |name, config: &str| {
                let entry = find(name).expect("it is in the catalogue");
                (entry.build)(name, config.parse().expect("TOML"), builder, 2).expect("it can be built")
            };
            vec![build(name, &config), build("router", router)]
        })
    }
}

/// The inside and the outside of a translator that has the router's hop.
const BEHIND_NAT: &str = "promiscuous = true\ncounts_hops = false\nneighbours_max = 8\nwaiting_max = 8
    interface = [
        { port = 0, addresses = ['10.0.0.254/24'] },
        { port = 1, addresses = ['198.51.100.1/24'], mtu = 576 },
    ]
    route = [{ to = '0.0.0.0/0', via = '198.51.100.9' }]
    neighbour = [
        { address = '198.51.100.9', mac = '02:00:00:00:00:09', port = 1 },
        { address = '10.0.0.2', mac = '02:00:00:00:00:12', port = 0 },
        { address = '10.0.0.3', mac = '02:00:00:00:00:13', port = 0 },
    ]";

/// Datagrams in pieces, in any order, of hosts and to them; whole ones that a link is too short for among them.
fn pieces(packets: usize) -> Frames {
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0.. {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [host, server, kind, first] = (chance >> 32).to_be_bytes()[4..].try_into().unwrap_or([0; 4]);
        let (host, server) = (2 + host % 3, format!("203.0.113.{}", server % 4));
        // Each host has a port of its own, which it keeps outside.
        let (inside, port) = (format!("10.0.0.{host}"), 2000 + u16::from(host));
        let (by, from, to) = if kind % 3 == 0 {
            (1, (server, 80), ("198.51.100.1".to_owned(), port))
        } else {
            (0, (inside, port), (server, 80))
        };
        let whole = Frame::udp(&format!("{}:{}", from.0, from.1), &format!("{}:{}", to.0, to.1));
        let later = |offset, more| Frame::ip(&from.0, &to.0, 17).payload(&[2; 16]).fragment(n as u16, offset, more);
        let mut datagram = match kind % 5 {
            0 => vec![whole.payload(&[3; 700]).may_be_fragmented()],
            _ => vec![whole.payload(&[1; 8]).fragment(n as u16, 0, true), later(2, true), later(4, false)],
        };
        let len = datagram.len();
        datagram.rotate_left(usize::from(first) % len);
        for frame in datagram {
            let frame = frame.bytes();
            frames.push((at_ms(n, by, &frame, frames.len()), frame));
        }
        if frames.len() >= packets {
            break;
        }
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

#[test]
fn pieces_that_go_on_behind_a_translator_are_certified() {
    let config = "fragments_max = 64\nheld_max = 32\nrouter = '10.0.0.254'\noutside_router = '198.51.100.1'";
    for workers in [1, 2, 4] {
        let case = before_a_router("nat", config.to_owned(), BEHIND_NAT, workers);
        let certificate = certificate(&case, "nat, router", "pieces", &pieces(600), 8);
        assert!(certificate.holds(), "{certificate}");
    }
}

#[test]
fn a_firewall_before_a_router_is_certified() {
    let entry = find("router").expect("it is in the catalogue");
    for (name, frames) in inputs(entry, "a_firewall_before_a_router_is_certified", 0, 300) {
        for (config, workers) in [SPREAD, TAGGED].into_iter().flat_map(|config| [(config, 2), (config, 4)]) {
            let ruled = format!("{}\n{RULED}", busy("firewall"));
            let case = before_a_router("firewall", ruled, config, workers);
            let certificate = certificate(&case, "firewall, router", &name, &frames, 4);
            assert!(certificate.holds(), "{config}\n{certificate}");
        }
    }
}

#[test]
fn every_function_is_certified_on_a_few_seeds() {
    check("every_function_is_certified_on_a_few_seeds", 0, 300, 4);
}

#[test]
#[ignore = "minutes: cargo xtask certify"]
fn every_function_is_certified() {
    let seeds = std::env::var("BRAID_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    check("every_function_is_certified", 12, 400, seeds);
}
