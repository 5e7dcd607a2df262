//! Frames for tests, which another library than the one under test writes and checks (etherparse).
//!
//! ```
//! use braid_testkit::Frame;
//! let syn = Frame::tcp("10.0.0.1:1000", "192.0.2.1:80").flags("S").vlan(7).bytes();
//! braid_testkit::assert_checksums(&syn);
//! ```

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    Icmpv4Type, Icmpv6Type, IpDscp, IpEcn, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header,
    Ipv6Extensions, Ipv6Header, PacketBuilder, TcpHeader,
};

/// A frame to be built: Ethernet, VLAN tags, IP, and what follows.
#[derive(Clone, Debug)]
pub struct Frame {
    source_mac: [u8; 6],
    destination_mac: [u8; 6],
    vlans: Vec<u16>,
    content: Content,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Content {
    Ip(Ip),
    /// An Ethernet type; the payload is everything after it.
    Other(u16),
}

#[derive(Clone, Debug)]
struct Ip {
    source: IpAddr,
    destination: IpAddr,
    ttl: u8,
    tos: u8,
    identification: u16,
    dont_fragment: bool,
    fragment: Option<(u16, bool)>,
    transport: Transport,
}

#[derive(Clone, Debug)]
enum Transport {
    Tcp(Box<TcpHeader>),
    Udp(u16, u16),
    /// UDP without a checksum (RFC 768).
    UnsummedUdp(u16, u16),
    /// ICMP or ICMPv6: type, code, and the four bytes after the checksum.
    Icmp(u8, u8, [u8; 4]),
    /// A protocol number; the payload is everything after the IP header.
    Other(u8),
}

#[track_caller]
fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no address with port"))
}

#[track_caller]
fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no address"))
}

impl Frame {
    fn new(content: Content) -> Frame {
        Frame {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            vlans: Vec::new(),
            content,
            payload: Vec::new(),
        }
    }

    fn over_ip(source: IpAddr, destination: IpAddr, transport: Transport) -> Frame {
        let (identification, dont_fragment) = (1, true);
        Frame::new(Content::Ip(Ip {
            source,
            destination,
            ttl: 64,
            tos: 0,
            identification,
            dont_fragment,
            fragment: None,
            transport,
        }))
    }

    /// TCP between two addresses with ports, such as `10.0.0.1:80` or `[2001:db8::1]:80`; an ACK unless flags are given.
    #[track_caller]
    pub fn tcp(source: &str, destination: &str) -> Frame {
        let (from, to) = (socket(source), socket(destination));
        let header = TcpHeader { ack: true, ..TcpHeader::new(from.port(), to.port(), 1, 65_535) };
        Frame::over_ip(from.ip(), to.ip(), Transport::Tcp(Box::new(header)))
    }

    /// UDP between two addresses with ports.
    #[track_caller]
    pub fn udp(source: &str, destination: &str) -> Frame {
        let (from, to) = (socket(source), socket(destination));
        Frame::over_ip(from.ip(), to.ip(), Transport::Udp(from.port(), to.port()))
    }

    /// An ICMP or ICMPv6 echo request.
    #[track_caller]
    pub fn echo_request(source: &str, destination: &str, id: u16, sequence: u16) -> Frame {
        let source = address(source);
        let kind = if source.is_ipv4() { 8 } else { 128 };
        Frame::over_ip(source, address(destination), Transport::Icmp(kind, 0, words(id, sequence)))
    }

    /// An ICMP or ICMPv6 echo reply.
    #[track_caller]
    pub fn echo_reply(source: &str, destination: &str, id: u16, sequence: u16) -> Frame {
        let source = address(source);
        let kind = if source.is_ipv4() { 0 } else { 129 };
        Frame::over_ip(source, address(destination), Transport::Icmp(kind, 0, words(id, sequence)))
    }

    /// An ICMP or ICMPv6 error (port unreachable) that quotes the IP packet in `frame`, which must have no VLAN tags.
    #[track_caller]
    pub fn unreachable(source: &str, destination: &str, frame: &[u8]) -> Frame {
        let source = address(source);
        let (kind, code) = if source.is_ipv4() { (3, 3) } else { (1, 4) };
        let transport = Transport::Icmp(kind, code, [0; 4]);
        Frame::over_ip(source, address(destination), transport).payload(&frame[14..])
    }

    /// Any ICMP message, or ICMPv6 message between IPv6 addresses: type, code, and the four bytes after the checksum.
    #[track_caller]
    pub fn icmp(source: &str, destination: &str, kind: u8, code: u8, rest: [u8; 4]) -> Frame {
        Frame::over_ip(address(source), address(destination), Transport::Icmp(kind, code, rest))
    }

    /// An IP packet with another protocol.
    #[track_caller]
    pub fn ip(source: &str, destination: &str, protocol: u8) -> Frame {
        Frame::over_ip(address(source), address(destination), Transport::Other(protocol))
    }

    /// A frame with another Ethernet type.
    pub fn ethernet(ether_type: u16) -> Frame {
        Frame::new(Content::Other(ether_type)).payload(&[0; 46])
    }

    /// An ARP request from one IPv4 address for another.
    #[track_caller]
    pub fn arp(source: &str, target: &str) -> Frame {
        let (IpAddr::V4(source), IpAddr::V4(target)) = (address(source), address(target)) else {
            panic!("ARP asks for IPv4 addresses")
        };
        let frame = Frame::new(Content::Other(0x0806)).mac([2, 0, 0, 0, 0, 1], [0xff; 6]);
        let mut payload = vec![0, 1, 8, 0, 6, 4, 0, 1];
        payload.extend(frame.source_mac.iter().chain(&source.octets()).chain(&[0; 6]).chain(&target.octets()));
        frame.payload(&payload)
    }

    /// Sets the Ethernet addresses; the defaults are 02:00:00:00:00:01 and 02:00:00:00:00:02.
    pub fn mac(mut self, source: [u8; 6], destination: [u8; 6]) -> Frame {
        (self.source_mac, self.destination_mac) = (source, destination);
        self
    }

    /// Adds a VLAN tag after the existing ones; the outer of two is an 802.1ad tag.
    pub fn vlan(mut self, id: u16) -> Frame {
        self.vlans.push(id);
        self
    }

    /// Sets the payload.
    pub fn payload(mut self, bytes: &[u8]) -> Frame {
        self.payload = bytes.to_vec();
        self
    }

    /// Sets a payload such that the frame has `len` bytes.
    #[track_caller]
    pub fn len(mut self, len: usize) -> Frame {
        self.payload.clear();
        let bare = self.clone().bytes().len();
        assert!(len >= bare, "headers alone take {bare} bytes");
        self.payload = (0..len - bare).map(|n| n as u8).collect();
        self
    }

    /// Sets the time to live or hop limit.
    #[track_caller]
    pub fn ttl(mut self, ttl: u8) -> Frame {
        self.ip_mut().ttl = ttl;
        self
    }

    /// Sets the type of service or traffic class.
    #[track_caller]
    pub fn tos(mut self, tos: u8) -> Frame {
        self.ip_mut().tos = tos;
        self
    }

    /// Sets the IPv4 identification.
    #[track_caller]
    pub fn identification(mut self, identification: u16) -> Frame {
        self.ip_mut().identification = identification;
        self
    }

    /// Allows fragmentation, which is forbidden by default.
    #[track_caller]
    pub fn may_be_fragmented(mut self) -> Frame {
        self.ip_mut().dont_fragment = false;
        self
    }

    /// Omits the UDP checksum.
    #[track_caller]
    pub fn without_checksum(mut self) -> Frame {
        let ip = self.ip_mut();
        let Transport::Udp(from, to) = ip.transport else { panic!("no UDP packet") };
        ip.transport = Transport::UnsummedUdp(from, to);
        self
    }

    /// Makes it a fragment of an IPv4 datagram, with the offset in units of eight bytes; `more` says whether fragments follow.
    /// Later fragments should be made with [`Frame::ip`], because they have no transport header.
    #[track_caller]
    pub fn fragment(mut self, identification: u16, offset: u16, more: bool) -> Frame {
        let ip = self.ip_mut();
        (ip.identification, ip.fragment) = (identification, Some((offset, more)));
        self
    }

    /// Sets the TCP flags by their letters: `S` SYN, `A` ACK, `F` FIN, `R` RST, `P` PSH, `U` URG, `E` ECE, `C` CWR.
    #[track_caller]
    pub fn flags(mut self, letters: &str) -> Frame {
        let tcp = self.tcp_mut();
        (tcp.syn, tcp.ack, tcp.fin, tcp.rst, tcp.psh) = (false, false, false, false, false);
        (tcp.urg, tcp.ece, tcp.cwr) = (false, false, false);
        for letter in letters.chars() {
            match letter {
                'S' => tcp.syn = true,
                'A' => tcp.ack = true,
                'F' => tcp.fin = true,
                'R' => tcp.rst = true,
                'P' => tcp.psh = true,
                'U' => tcp.urg = true,
                'E' => tcp.ece = true,
                'C' => tcp.cwr = true,
                _ => panic!("`{letter}` is no TCP flag"),
            }
        }
        self
    }

    /// Sets the TCP sequence and acknowledgment numbers.
    #[track_caller]
    pub fn numbers(mut self, sequence: u32, acknowledgment: u32) -> Frame {
        let tcp = self.tcp_mut();
        (tcp.sequence_number, tcp.acknowledgment_number) = (sequence, acknowledgment);
        self
    }

    /// Sets the TCP window.
    #[track_caller]
    pub fn window(mut self, window: u16) -> Frame {
        self.tcp_mut().window_size = window;
        self
    }

    /// Sets the TCP options, as bytes.
    #[track_caller]
    pub fn options(mut self, bytes: &[u8]) -> Frame {
        if self.tcp_mut().set_options_raw(bytes).is_err() {
            panic!("{} bytes of TCP options do not fit", bytes.len());
        }
        self
    }

    #[track_caller]
    fn ip_mut(&mut self) -> &mut Ip {
        let Content::Ip(ip) = &mut self.content else { panic!("no IP packet") };
        ip
    }

    #[track_caller]
    fn tcp_mut(&mut self) -> &mut TcpHeader {
        let Transport::Tcp(tcp) = &mut self.ip_mut().transport else { panic!("no TCP segment") };
        tcp
    }

    /// The frame, with all checksums.
    pub fn bytes(self) -> Vec<u8> {
        let mut out = [self.destination_mac, self.source_mac].concat();
        for (n, id) in self.vlans.iter().enumerate() {
            let kind = if n + 1 < self.vlans.len() { 0x88a8u16 } else { 0x8100 };
            out.extend(kind.to_be_bytes());
            out.extend(id.to_be_bytes());
        }
        let ip = match self.content {
            Content::Ip(ip) => ip,
            Content::Other(ether_type) => {
                out.extend(ether_type.to_be_bytes());
                out.extend(&self.payload);
                return out;
            }
        };
        out.extend(if ip.source.is_ipv4() { 0x0800u16 } else { 0x86dd }.to_be_bytes());
        ip.write(&mut out, &self.payload);
        out
    }
}

impl Ip {
    fn header(&self) -> IpHeaders {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (offset, more) = self.fragment.unwrap_or((0, false));
                let header = Ipv4Header {
                    source: source.octets(),
                    destination: destination.octets(),
                    time_to_live: self.ttl,
                    identification: self.identification,
                    dscp: IpDscp::try_new(self.tos >> 2).expect("6 bits"),
                    ecn: IpEcn::try_new(self.tos & 3).expect("2 bits"),
                    dont_fragment: self.dont_fragment && self.fragment.is_none(),
                    more_fragments: more,
                    fragment_offset: IpFragOffset::try_new(offset).expect("13 bits"),
                    ..Ipv4Header::default()
                };
                IpHeaders::Ipv4(header, Ipv4Extensions::default())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    source: source.octets(),
                    destination: destination.octets(),
                    hop_limit: self.ttl,
                    traffic_class: self.tos,
                    ..Ipv6Header::default()
                };
                IpHeaders::Ipv6(header, Ipv6Extensions::default())
            }
            _ => panic!("{} and {} are of two families", self.source, self.destination),
        }
    }

    fn write(self, out: &mut Vec<u8>, payload: &[u8]) {
        let (v4, step) = (self.source.is_ipv4(), PacketBuilder::ip(self.header()));
        let written = match self.transport {
            Transport::Tcp(header) => step.tcp_header(*header).write_to_vec(out, payload),
            Transport::Udp(from, to) => step.udp(from, to).write_to_vec(out, payload),
            Transport::UnsummedUdp(from, to) => {
                let at = out.len() + step.size(0);
                let written = step.udp(from, to).write_to_vec(out, payload);
                out[at + 6..at + 8].fill(0);
                written
            }
            Transport::Other(protocol) => step.write_to_vec(out, IpNumber(protocol), payload),
            Transport::Icmp(type_u8, code_u8, bytes5to8) if v4 => {
                step.icmpv4(Icmpv4Type::Unknown { type_u8, code_u8, bytes5to8 }).write_to_vec(out, payload)
            }
            Transport::Icmp(type_u8, code_u8, bytes5to8) => {
                step.icmpv6(Icmpv6Type::Unknown { type_u8, code_u8, bytes5to8 }).write_to_vec(out, payload)
            }
        };
        written.expect("a packet that can be written");
    }
}

/// Identifier and sequence number in the order of an echo message.
fn words(id: u16, sequence: u16) -> [u8; 4] {
    let [[a, b], [c, d]] = [id.to_be_bytes(), sequence.to_be_bytes()];
    [a, b, c, d]
}
