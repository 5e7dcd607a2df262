//! Recognises application protocols by the first bytes of a payload, or else by the port.
//!
//! Each packet is examined alone: nothing is reassembled or decrypted. The rules test what a protocol's own specification
//! requires of its first message (magic numbers, lengths that agree), so that other protocols on its port are not mistaken for
//! it.

use crate::parts::config::named::named;

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

named! {
    /// The application protocol of a session.
    pub enum Protocol;
    Unknown "unknown", Amqp "amqp", Bgp "bgp", BitTorrent "bittorrent", Coap "coap", Dhcp "dhcp", Dhcpv6 "dhcpv6",
    Diameter "diameter", Dnp3 "dnp3", Dns "dns", Dtls "dtls", Ftp "ftp", GtpC "gtp_c", GtpU "gtp_u", Http "http", Http2 "http2",
    Iec104 "iec104", Ike "ike", Imap "imap", Irc "irc", Kerberos "kerberos", Ldap "ldap", Llmnr "llmnr", Mdns "mdns",
    Memcached "memcached", Modbus "modbus", Mongo "mongodb", Mqtt "mqtt", MySql "mysql", NetBios "netbios",
    NetFlow "netflow", Nntp "nntp", Ntp "ntp", OpenVpn "openvpn", Pop3 "pop3", Postgres "postgresql", Quic "quic",
    Radius "radius", Rdp "rdp", Redis "redis", Rsync "rsync", Rtmp "rtmp", Rtp "rtp", Rtsp "rtsp", S7 "s7comm", SFlow "sflow",
    Sip "sip", Smb "smb", Smtp "smtp", Snmp "snmp", Socks "socks", Ssdp "ssdp", Ssh "ssh", Steam "source_engine", Stun "stun",
    Syslog "syslog", Telnet "telnet", Tftp "tftp", Tls "tls", Vnc "vnc", Vxlan "vxlan", WireGuard "wireguard", Xmpp "xmpp",
}

use Protocol::*;

/// How messages in plain text begin.
#[rustfmt::skip]
const TCP_TEXT: &[(&[u8], Protocol)] = &[
    (b"GET ", Http), (b"POST ", Http), (b"HEAD ", Http), (b"PUT ", Http), (b"DELETE ", Http), (b"CONNECT ", Http),
    (b"PATCH ", Http), (b"HTTP/1.", Http), (b"PRI * HTTP/2", Http2), (b"SSH-", Ssh), (b"RFB 00", Vnc),
    (b"@RSYNCD:", Rsync), (b"AMQP\0", Amqp), (b"\x13BitTorrent protocol", BitTorrent), (b"+OK ", Pop3), (b"* OK", Imap),
    (b"EHLO ", Smtp), (b"HELO ", Smtp), (b"RTSP/1.", Rtsp), (b"DESCRIBE rtsp", Rtsp), (b"OPTIONS rtsp", Rtsp),
    (b"SIP/2.0 ", Sip), (b"INVITE sip", Sip), (b"REGISTER sip", Sip), (b"OPTIONS sip", Sip), (b"<?xml", Xmpp),
    (b"<stream:stream", Xmpp), (b"OPTIONS ", Http), (b"NICK ", Irc), (b"CAP LS", Irc), (b"*1\r\n$", Redis), (b"*2\r\n$", Redis),
    (b"*3\r\n$", Redis), (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Bgp),
    (b"\0\0\0\x08\x04\xd2\x16\x2f", Postgres),
];

#[rustfmt::skip]
const UDP_TEXT: &[(&[u8], Protocol)] = &[
    (b"M-SEARCH * HTTP", Ssdp), (b"NOTIFY * HTTP", Ssdp), (b"SIP/2.0 ", Sip), (b"INVITE sip", Sip), (b"REGISTER sip", Sip),
    (b"OPTIONS sip", Sip), (b"ACK sip", Sip), (b"BYE sip", Sip), (b"SUBSCRIBE sip", Sip), (b"NOTIFY sip", Sip),
    (b"d1:ad2:id20:", BitTorrent), (b"d1:rd2:id20:", BitTorrent), (b"\xff\xff\xff\xff", Steam),
];

/// The protocol assumed for a session whose bytes do not tell.
#[rustfmt::skip]
const TCP_PORTS: &[(u16, Protocol)] = &[
    (20, Ftp), (21, Ftp), (22, Ssh), (23, Telnet), (25, Smtp), (53, Dns), (80, Http), (88, Kerberos), (110, Pop3), (119, Nntp),
    (139, NetBios), (143, Imap), (179, Bgp), (389, Ldap), (443, Tls), (445, Smb), (465, Smtp), (587, Smtp), (993, Imap), (995, Pop3),
    (1080, Socks), (1935, Rtmp), (3306, MySql), (3389, Rdp), (5432, Postgres), (5900, Vnc), (6379, Redis), (6667, Irc),
];

#[rustfmt::skip]
const UDP_PORTS: &[(u16, Protocol)] = &[
    (53, Dns), (67, Dhcp), (68, Dhcp), (69, Tftp), (88, Kerberos), (123, Ntp), (137, NetBios), (138, NetBios), (161, Snmp),
    (162, Snmp), (443, Quic), (500, Ike), (514, Syslog), (546, Dhcpv6), (547, Dhcpv6), (1194, OpenVpn), (1812, Radius), (1813, Radius),
    (1900, Ssdp), (2123, GtpC), (2152, GtpU), (3478, Stun), (5060, Sip), (5353, Mdns), (5355, Llmnr), (6343, SFlow),
];

/// Returns the only protocol whose first message this payload can be, or `None` if it does not tell.
pub fn by_payload(transport: Transport, ports: (u16, u16), payload: &[u8]) -> Option<Protocol> {
    let texts = if transport == Transport::Tcp { TCP_TEXT } else { UDP_TEXT };
    let text = texts.iter().find(|(beginning, _)| payload.starts_with(beginning)).map(|(_, protocol)| *protocol);
    text.or_else(|| match transport {
        Transport::Tcp => tcp_binary(ports, payload),
        Transport::Udp => udp_binary(ports, payload),
    })
}

/// Returns the protocol for which one of the ports is registered; the destination port goes first.
pub fn by_port(transport: Transport, (source, destination): (u16, u16)) -> Protocol {
    let table = if transport == Transport::Tcp { TCP_PORTS } else { UDP_PORTS };
    let named = |port: u16| table.iter().find(|(known, _)| *known == port).map(|(_, protocol)| *protocol);
    named(destination).or_else(|| named(source)).unwrap_or(Unknown)
}

fn be16(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(b[0]) << 8 | usize::from(b[1]))
}

fn be32(bytes: &[u8], at: usize) -> usize {
    be16(bytes, at) << 16 | be16(bytes, at + 2)
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Whether this is a DNS header (RFC 1035 section 4.1.1): a known opcode, few questions, few answers, and the reserved bit
/// zero.
fn is_dns(message: &[u8]) -> bool {
    if message.len() < 17 {
        return false;
    }
    let (flags, questions, answers) = (be16(message, 2), be16(message, 4), be16(message, 6));
    let opcode = flags >> 11 & 15;
    opcode <= 5 && questions <= 4 && answers <= 256 && questions + answers + be16(message, 8) > 0 && flags & 0x40 == 0
}

#[rustfmt::skip] // one rule each
fn tcp_binary(ports: (u16, u16), p: &[u8]) -> Option<Protocol> {
    let on = |port| ports.0 == port || ports.1 == port;
    let (first, len) = (*p.first()?, p.len());
    Some(match first {
        // RFC 8446 section 5.1: type, version 3.x, length; a handshake begins with a hello.
        0x16 if len > 5 && p[1] == 3 && p[2] <= 4 && matches!(p[5], 0 | 1 | 2 | 11 | 12 | 16) => Tls,
        0x14 | 0x15 | 0x17 if len > 5 && p[1] == 3 && p[2] <= 4 && (1..=16640).contains(&be16(p, 3)) => Tls,
        // An SSL 2 hello that offers version 3.
        0x80 if len > 5 && p[2] == 1 && p[3] == 3 && p[4] <= 4 => Tls,
        b'2' if p.starts_with(b"220") && (on(21) || contains(p, b"FTP")) => Ftp,
        b'2' if p.starts_with(b"220") && (on(25) || on(587) || contains(p, b"SMTP")) => Smtp,
        b'2' if p.starts_with(b"20") && on(119) => Nntp,
        b'U' if p.starts_with(b"USER ") && on(21) => Ftp,
        b'U' if p.starts_with(b"USER ") && on(110) => Pop3,
        b'U' if p.starts_with(b"USER ") && len > 12 => Irc,
        0x03 if len > 6 && p[1] == 0 && be16(p, 2) == len && matches!(p[5], 0xe0 | 0xd0) =>
            if on(102) { S7 } else { Rdp },
        0x03 if len > 8 && p[1] == 0 && be16(p, 2) == len && p[7] == 0x32 => S7,
        0x03 if len >= 1400 && on(1935) => Rtmp,
        0x00 if len > 8 && matches!(&p[4..8], b"\xffSMB" | b"\xfeSMB") => Smb,
        0x81..=0x83 if len >= 4 && on(139) => NetBios,
        0xff if len >= 3 && matches!(p[1], 0xfb..=0xfe) => Telnet,
        0x10 if len > 8 && (contains(&p[..12.min(len)], b"MQTT") || contains(&p[..12.min(len)], b"MQIsdp")) => Mqtt,
        0x05 if len >= 10 && p[1] == 0x64 => Dnp3,
        0x05 if on(1080) && len <= 5 => Socks,
        0x04 if on(1080) && len >= 9 => Socks,
        0x68 if on(2404) && len >= 6 && usize::from(p[1]) + 2 <= len => Iec104,
        0x01 if len >= 20 && be32(p, 0) & 0xff_ffff == len && p[4] & 0x0f == 0 && len.is_multiple_of(4) => Diameter,
        0x30 if on(389) && len > 6 => Ldap,
        0x00 if len >= 8 && be32(p, 0) == len && p[4..8] == [0, 3, 0, 0] => Postgres,
        _ if len > 5 && p[3] == 0 && p[4] == 0x0a && on(3306) => MySql,
        _ if len >= 16 && p[..4] == (len as u32).to_le_bytes()
            && matches!(u32::from_le_bytes([p[12], p[13], p[14], p[15]]), 1 | 2001..=2013) => Mongo,
        _ if on(502) && len >= 8 && be16(p, 2) == 0 && be16(p, 4) + 6 == len => Modbus,
        _ if on(53) && be16(p, 0) + 2 == len && is_dns(&p[2..]) => Dns,
        _ if on(88) && len > 8 && be32(p, 0) + 4 == len && matches!(p[4], 0x6a..=0x7e) => Kerberos,
        _ if on(11211) && (p.starts_with(b"get ") || p.starts_with(b"set ") || p.starts_with(b"stats")) => Memcached,
        _ => return None,
    })
}

#[rustfmt::skip] // one rule each
fn udp_binary(ports: (u16, u16), p: &[u8]) -> Option<Protocol> {
    let on = |port| ports.0 == port || ports.1 == port;
    let (first, len) = (*p.first()?, p.len());
    Some(match first {
        _ if len >= 20 && first < 4 && be32(p, 4) == 0x2112_A442 && be16(p, 2) + 20 <= len => Stun,
        _ if on(5353) && is_dns(p) => Mdns,
        _ if on(5355) && is_dns(p) => Llmnr,
        _ if on(53) && is_dns(p) => Dns,
        _ if (on(67) || on(68)) && len >= 240 && p[236..240] == [0x63, 0x82, 0x53, 0x63] => Dhcp,
        1..=13 if (on(546) || on(547)) && len >= 4 => Dhcpv6,
        _ if on(123) && len >= 48 && (1..=4).contains(&(first >> 3 & 7)) => Ntp,
        _ if (on(137) || on(138)) && len >= 12 => NetBios,
        0x30 if (on(161) || on(162)) && len > 8 => Snmp,
        0x16 if len > 13 && p[1] == 0xfe && matches!(p[2], 0xff | 0xfd) => Dtls,
        // RFC 9000 section 17.2: the two high bits of a long header, then a version that is not 0.
        _ if first & 0xc0 == 0xc0 && len > 20 && is_quic_version(be32(p, 1)) => Quic,
        // Google's QUIC: flags, an 8-byte connection ID, `Q0nn`.
        _ if first & 0x09 == 0x09 && len > 13 && p[9] == b'Q' && p[10].is_ascii_digit() => Quic,
        0x01 if len == 148 && p[1..4] == [0; 3] => WireGuard,
        0x02 if len == 92 && p[1..4] == [0; 3] => WireGuard,
        0x04 if len >= 32 && len.is_multiple_of(16) && p[1..4] == [0; 3] => WireGuard,
        0x38 | 0x40 if on(1194) && len >= 14 => OpenVpn,
        _ if on(500) && len >= 28 && matches!(p[17], 0x10 | 0x20) => Ike,
        _ if on(4500) && len >= 32 && p[..4] == [0; 4] && matches!(p[21], 0x10 | 0x20) => Ike,
        _ if on(2152) && first & 0xf0 == 0x30 && be16(p, 2) + 8 <= len => GtpU,
        _ if on(2123) && matches!(first >> 5, 1 | 2) && len >= 8 => GtpC,
        _ if on(4789) && first == 0x08 && len >= 8 => Vxlan,
        1..=5 | 11 if (on(1812) || on(1813) || on(1645) || on(1646)) && len >= 20 && be16(p, 2) <= len => Radius,
        b'<' if len > 3 && p[1].is_ascii_digit() => Syslog,
        0 if on(69) && matches!(be16(p, 0), 1..=6) => Tftp,
        0x40..=0x7f if on(5683) && first & 0x0f <= 8 && len >= 4 => Coap,
        0 if on(6343) && be32(p, 0) == 5 => SFlow,
        0 if len >= 24 && matches!(be16(p, 0), 5 | 9 | 10) && (on(2055) || on(9995) || on(9996) || on(4739)) => NetFlow,
        0x6a..=0x7e if on(88) && len > 20 => Kerberos,
        0x80 | 0x90 if len >= 12 && p[1] & 0x7f < 35 || first == 0x80 && len >= 12 && (96..128).contains(&(p[1] & 0x7f)) => Rtp,
        _ => return None,
    })
}

fn is_quic_version(version: usize) -> bool {
    matches!(version, 1 | 0x6b33_43cf | 0xff00_0000..=0xff00_00ff | 0xface_b000..=0xface_b0ff)
        || version & 0x0f0f_0f0f == 0x0a0a_0a0a
        || matches!(version >> 24, 0x51 | 0x54) // Q0nn, T0nn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(transport: Transport, port: u16, payload: &[u8], expected: Option<Protocol>) {
        assert_eq!(by_payload(transport, (50000, port), payload), expected);
        assert_eq!(by_payload(transport, (port, 50000), payload), expected);
    }

    #[test]
    fn first_bytes_tell_whatever_the_port() {
        check(Transport::Tcp, 8000, b"GET / HTTP/1.1\r\n", Some(Http));
        check(Transport::Tcp, 2222, b"SSH-2.0-OpenSSH_9.6\r\n", Some(Ssh));
        check(Transport::Tcp, 993, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc], Some(Tls));
        check(Transport::Tcp, 2525, b"220 mail.example.com ESMTP\r\n", Some(Smtp));
        check(Transport::Udp, 9999, b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaa", Some(BitTorrent));
        check(Transport::Udp, 443, &[[0xc3, 0, 0, 0, 1].as_slice(), &[0; 40]].concat(), Some(Quic));
    }

    #[test]
    fn a_port_alone_does_not() {
        check(Transport::Tcp, 443, b"hello", None);
        check(Transport::Udp, 53, &[0xfe; 40], None);
        check(Transport::Tcp, 80, &[], None);
        assert_eq!(by_port(Transport::Tcp, (50000, 443)), Tls);
        assert_eq!(by_port(Transport::Udp, (53, 50000)), Dns);
        assert_eq!(by_port(Transport::Tcp, (50000, 50001)), Unknown);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for len in 0..300 {
            for byte in 0..=255u8 {
                let payload = vec![byte; len];
                for port in [53, 67, 80, 123, 443, 500, 502, 1080, 2404, 4500] {
                    by_payload(Transport::Tcp, (port, port), &payload);
                    by_payload(Transport::Udp, (port, port), &payload);
                }
            }
        }
    }

    #[test]
    fn numbers_lead_back() {
        assert!(Protocol::ALL.iter().all(|protocol| Protocol::from_number(*protocol as u8) == *protocol));
        assert_eq!(Protocol::from_number(255), Unknown);
    }
}
