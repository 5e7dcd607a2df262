//! Splits one capture by port: a capture of a single link shows both sides of a network function, which has a port for each side.
//!
//! Only the part of a frame that the rule needs is examined. What precedes the IP header is skipped like in
//! the parser, but tunnels are not.

use std::net::IpAddr;

use braid_packet::{Flags, Link, Parsed, Port, Prefix, parse};

/// The rule that determines on which port a captured frame arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PortSplit {
    /// All frames arrive on port 0.
    #[default]
    Single,
    /// Frames whose IP source address matches one of the prefixes arrive on port 0, other IP frames on port 1, and non-IP frames on port 0.
    InsidePrefixes(Vec<Prefix>),
    /// A hash of the Ethernet source address over this many ports, so that every station stays at its port: (7 × sum of its bytes +
    /// last byte) modulo ports. Frames with a group address as source, or of other link types, arrive on port 0.
    MacHash(Port),
    /// The interface by which the capturing machine received a frame, of so many: those that a pcapng file describes in its order, those of
    /// Linux cooked packets (version 2) as they appear. What came in by further ones is left out, as
    /// [`RxCounters::no_port`](crate::source::RxCounters::no_port).
    Interface(Port),
}

impl PortSplit {
    /// Number of ports that the rule yields.
    pub fn ports(&self) -> usize {
        match self {
            PortSplit::Single => 1,
            PortSplit::InsidePrefixes(_) => 2,
            PortSplit::MacHash(ports) | PortSplit::Interface(ports) => usize::from(*ports).max(1),
        }
    }

    /// The port on which a frame arrives, as far as its bytes say so: port 0 if that is a matter of its interface.
    pub fn port(&self, frame: &[u8], link: Link) -> Port {
        match self {
            PortSplit::Single | PortSplit::Interface(_) => 0,
            PortSplit::InsidePrefixes(prefixes) => match addresses(frame, link).map(|(source, _)| source) {
                Some(address) => Port::from(!prefixes.iter().any(|prefix| prefix.contains(address.into()))),
                None => 0,
            },
            PortSplit::MacHash(ports) => match frame.get(6..12) {
                Some(mac) if link == Link::Ethernet && mac[0] & 1 == 0 => {
                    let sum: u16 = mac.iter().map(|&byte| u16::from(byte)).sum();
                    (sum * 7 + u16::from(mac[5])).checked_rem(*ports).unwrap_or(0)
                }
                _ => 0,
            },
        }
    }
}

/// Source and destination IP address of a frame, if it carries IP after any headers that the parser skips.
pub fn addresses(frame: &[u8], link: Link) -> Option<(IpAddr, IpAddr)> {
    let Parsed { l3, flags, .. } = parse(frame, link);
    let ip = frame.get(usize::from(l3)..).filter(|_| flags.has(Flags::IP))?;
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?));
    match flags.has(Flags::V6) {
        false => v4(12).zip(v4(16)),
        true => v6(8).zip(v6(24)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(source: [u8; 6], kinds: &[u16], ip: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(source);
        for (i, kind) in kinds.iter().enumerate() {
            frame.extend(kind.to_be_bytes());
            if i + 1 < kinds.len() {
                frame.extend([0, 5]);
            }
        }
        frame.extend(ip);
        frame
    }

    #[test]
    fn inside_and_outside_are_told_apart_behind_tags_and_on_every_link() {
        let split = PortSplit::InsidePrefixes(vec!["10.0.0.0/8".parse().expect("a prefix")]);
        let mut ours = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 2, 3, 8, 8, 8, 8];
        let check = |frame: &[u8], link, port| assert_eq!(split.port(frame, link), port, "{link:?} {frame:02x?}");
        check(&ethernet([2; 6], &[0x0800], &ours), Link::Ethernet, 0);
        check(&ours, Link::RawIp, 0);
        ours[12] = 11;
        check(&ethernet([2; 6], &[0x0800], &ours), Link::Ethernet, 1);
        check(&ethernet([2; 6], &[0x88a8, 0x8100, 0x0800], &ours), Link::Ethernet, 1);
        check(&ours, Link::RawIp, 1);
        check(&[&[2, 0, 0, 0][..], &ours].concat(), Link::Loopback, 1);
        check(&[&[0; 14][..], &[8, 0], &ours].concat(), Link::Cooked1, 1);
        check(&[&[8, 0, 0, 0][..], &[0; 16], &ours].concat(), Link::Cooked2, 1);
        check(&[&[0xff, 3, 0, 0x21][..], &ours].concat(), Link::Ppp, 1);
        check(&[&[0x0f, 0, 8, 0][..], &ours].concat(), Link::Hdlc, 1);
        check(&ethernet([2; 6], &[0x8847], &[&[0, 0, 0x11, 64][..], &ours].concat()), Link::Ethernet, 1);
        let session = [&[0x11, 0, 0, 1, 0, 22, 0, 0x21][..], &ours].concat();
        check(&ethernet([2; 6], &[0x8864], &session), Link::Ethernet, 1);
        check(&ours, Link::Other, 0);
        check(&ethernet([2; 6], &[0x0806], &ours), Link::Ethernet, 0);
        check(&ethernet([2; 6], &[0x0800], &ours[..14]), Link::Ethernet, 0);
    }

    #[test]
    fn a_station_stays_at_its_port() {
        let port = |mac| PortSplit::MacHash(4).port(&ethernet(mac, &[0x0806], &[]), Link::Ethernet);
        assert_eq!(port([0, 0x1b, 0x1b, 1, 2, 3]), ((0x1b + 0x1b + 6) * 7 + 3) % 4);
        assert_eq!(port([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff]), ((0xfe + 5 * 0xff) * 7 + 0xff) % 4);
        assert_eq!(port([1, 0x1b, 0x1b, 1, 2, 3]), 0);
    }
}
