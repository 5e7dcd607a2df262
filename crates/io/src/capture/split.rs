//! Splits one capture by port: a capture of a single link shows both sides of a network function, which has a port for each side.
//!
//! Only the part of a frame that the rule needs is examined. What precedes the IP header is skipped like in
//! the parser, but tunnels are not.

use std::net::IpAddr;
use std::str::FromStr;

use braid_packet::{Flags, Link, Parsed, Port, parse};

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
                Some(address) => Port::from(!prefixes.iter().any(|prefix| prefix.contains(address))),
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

/// An address prefix, such as `10.0.0.0/8` or `2001:db8::/32`. Bits after the prefix are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// Why a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address prefix: write an address, a slash and a length, as in 10.0.0.0/8 or 2001:db8::/32")]
pub struct PrefixError {
    /// The text.
    pub text: String,
}

impl Prefix {
    /// Makes a prefix; `None` if `len` exceeds the number of bits of the address.
    pub fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (len <= bits).then_some(Prefix { address, len })
    }

    /// Whether an address matches the prefix; addresses of the other IP version do not.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (ours.to_bits() ^ theirs.to_bits()).checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                (ours.to_bits() ^ theirs.to_bits()).checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let parse = || {
            let (address, len) = text.split_once('/')?;
            Prefix::new(address.trim().parse().ok()?, len.trim().parse().ok()?)
        };
        parse().ok_or_else(|| PrefixError { text: text.to_owned() })
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

    fn inside(address: &str) -> bool {
        let prefixes: Vec<Prefix> =
            ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"].map(|text| text.parse().expect("a prefix")).into();
        prefixes.iter().any(|prefix| prefix.contains(address.parse().expect("an address")))
    }

    #[test]
    fn prefixes_hold_their_addresses_and_no_others() {
        assert!(inside("10.255.0.1") && inside("2001:db8:ffff::1") && inside("192.0.2.7"));
        assert!(!inside("11.0.0.1") && !inside("2001:db9::1") && !inside("192.0.2.6"));
        let all: Prefix = "0.0.0.0/0".parse().expect("a prefix");
        assert!(all.contains("255.1.2.3".parse().expect("an address")));
        assert!(!all.contains("::1".parse().expect("an address")));
    }

    #[test]
    fn what_is_no_prefix_is_said() {
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "ten/8", ""] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError { text: text.into() }));
        }
    }

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
