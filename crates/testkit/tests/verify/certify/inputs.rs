//! Inputs on which functions are certified: captures, generated mixes, and what some functions are for.

use std::path::Path;

use braid_control::frames::Frames;
use braid_functions::{Entry, find};
use braid_io::capture::CaptureSource;
use braid_io::generate::{Addresses, GenConfig, Generator};
use braid_io::{FrameStream, Next};
use braid_packet::{FrameInfo, Link};
use braid_testkit::captures::{captures, recorded};
use braid_testkit::kernel::Replies;
use braid_testkit::{Bench, Frame};

use super::configs::{BY_VLAN, COOKIES_ALWAYS, busy};
use crate::cookies::handshakes;
use crate::generated::MIXES;
use crate::run::split;

/// The project's own captures.
const RECORDED: [&str; 6] =
    ["office.pcapng", "gateway.pcapng", "lan.pcapng", "lan-vlan.pcap", "dns.pcap.gz", "scan.pcap"];

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

/// Datagrams of a few hundred hosts in more networks than are remembered at a time, so slowly that workers are at very different times.
pub fn slow(packets: usize) -> Frames {
    let mut chance = 1u64;
    let of = |n: u64| {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [network, host, port, ..] = (chance >> 24).to_be_bytes()[3..].try_into().unwrap_or([0; 5]);
        let source = format!("10.0.{}.{}:{}", network % 24, 1 + host % 9, 1030 + u16::from(port % 4));
        let frame = Frame::udp(&source, "192.0.2.1:53").payload(&[host; 30]).bytes();
        (at_ms(n * 40, 0, &frame, n as usize), frame)
    };
    let frames = (0..packets as u64).map(of).collect();
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

/// Hosts that ask servers outside, and each other by what stands for them there, with Ethernet addresses of their own: for nat by the
/// external address, for nat64 by that behind its prefix, for nptv6 by the outside prefix.
pub fn hairpins(function: &str, packets: usize) -> Frames {
    let (inside, server, outside) = match function {
        "nat" => ("10.0.0.", "192.0.2.", "198.51.100.1"),
        "nat64" => ("2001:db8:1::", "64:ff9b::c000:20", "64:ff9b::c633:6401"),
        _ => ("fd00::", "2001:db8:9::", "2001:db8:1::1"),
    };
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0..packets as u64 {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [host, port, peer, kind, ..] = (chance >> 24).to_be_bytes()[3..].try_into().unwrap_or([0; 5]);
        let in_brackets = |address: String| if inside.contains(':') { format!("[{address}]") } else { address };
        let source = format!("{}:{}", in_brackets(format!("{inside}{}", 1 + host % 6)), 2000 + u16::from(port % 4));
        let destination = match kind % 3 {
            0 => format!("{}:53", in_brackets(format!("{server}{}", 1 + peer % 3))),
            _ => format!("{}:{}", in_brackets(outside.to_owned()), 2000 + u16::from(peer % 4)),
        };
        let frame = Frame::udp(&source, &destination).payload(&[kind; 30]);
        let frame = frame.mac([2, 0, 0, 0, 1, host % 6], [2, 0, 0, 0, 0, 0xfe]).bytes();
        frames.push((at_ms(n, 0, &frame, frames.len()), frame));
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

/// Hosts of both families that send to neighbours of whom nothing is known yet, and neighbours that ask for the router, so that it knows them:
/// those of [`ASKING`](super::configs::ASKING), which forgets them soon.
pub fn unknown_neighbours(packets: usize) -> Frames {
    const NETWORKS: [[&str; 2]; 2] = [["10.0.0.", "192.0.2."], ["2001:db8:1::", "2001:db8:2::"]];
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0..packets as u64 {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [host, peer, port, kind] = (chance >> 32).to_be_bytes()[4..].try_into().unwrap_or([0; 4]);
        let (in_port, networks, is_v6) = (u16::from(kind & 1), NETWORKS[usize::from(kind >> 1 & 1)], kind & 2 != 0);
        let (here, there) = (networks[usize::from(in_port)], networks[1 - usize::from(in_port)]);
        let source = format!("{here}{}", 2 + host % 6);
        let mac = [2, 0, 0, 9, in_port as u8, host % 6];
        let end =
            |address: &str, port: u16| if is_v6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        let (from, to) = (end(&source, 2000 + u16::from(port % 4)), end(&format!("{there}{}", 2 + peer % 6), 80));
        let frame = match (kind >> 2) % 4 {
            0 if is_v6 => {
                let own = format!("{here}1");
                let mut message = own.parse::<std::net::Ipv6Addr>().expect("an address").octets().to_vec();
                message.extend([1, 1]);
                message.extend(mac);
                Frame::icmp(&source, &own, 135, 0, [0; 4]).ttl(255).payload(&message)
            }
            0 => Frame::arp(&source, &format!("{here}1")),
            // Some are too long for the other link.
            1 => Frame::udp(&from, &to).payload(&[1; 1350]).may_be_fragmented(),
            2 => Frame::tcp(&from, &to).flags("S"),
            _ => Frame::udp(&from, &to).payload(&[2; 40]),
        };
        let frame = frame.mac(mac, [2, 0, 0, 1, 0, in_port as u8]).bytes();
        frames.push((at_ms(n * 40, in_port, &frame, frames.len()), frame));
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

/// Long and short packets to the services of [`IN_EVERY_MODE`](super::configs::IN_EVERY_MODE), and what routers say about their tunnels.
pub fn about_tunnels(packets: usize) -> Frames {
    const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    let (mut frames, mut chance) = (Vec::new(), 1u64);
    for n in 0..packets as u64 {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
        let [client, service, kind, size] = (chance >> 32).to_be_bytes()[4..].try_into().unwrap_or([0; 4]);
        let (client, service) = (format!("10.0.0.{}:{}", 2 + client % 3, 2000 + u16::from(client % 8)), service % 3);
        let packet =
            Frame::udp(&client, &format!("203.0.113.{service}:80")).payload(&vec![1; 500 + usize::from(size) * 3]);
        let packet = if kind % 4 == 0 { packet.may_be_fragmented() } else { packet };
        let (port, frame) = match kind % 3 {
            0 => {
                let backend = format!("198.51.100.{}", 2 + 2 * service + size % 2);
                let outer = Frame::ip("198.51.100.254", &backend, 4).payload(&packet.bytes()[14..]).bytes();
                let (code, mtu) = if kind % 2 == 0 { (4, 1400 - u16::from(size)) } else { (1, 0) };
                let [high, low] = mtu.to_be_bytes();
                let error = Frame::icmp("198.51.100.77", "198.51.100.254", 3, code, [0, 0, high, low]);
                (1, error.payload(&outer[14..200]))
            }
            _ => (0, packet),
        };
        let frame = frame.mac([2, 0, 0, 9, 0, 9], ROUTER).bytes();
        frames.push((at_ms(n * 900, port, &frame, frames.len()), frame));
    }
    Frames::read(&mut Played { frames, next: 0 }, packets)
}

/// Datagrams in pieces of so many eights of bytes, in any order, of hosts and to them; whole ones that a link is too short for among them.
pub fn pieces(packets: usize, eights: u16) -> Frames {
    let len = usize::from(eights) * 8;
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
        let later =
            |at, more| Frame::ip(&from.0, &to.0, 17).payload(&vec![2; len]).fragment(n as u16, at * eights, more);
        let mut datagram = match kind % 5 {
            0 => vec![whole.payload(&[3; 700]).may_be_fragmented()],
            _ => vec![whole.payload(&vec![1; len - 8]).fragment(n as u16, 0, true), later(1, true), later(2, false)],
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
