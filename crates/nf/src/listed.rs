//! What functions say of their packet sets and tables to somebody who lists them while packets go through.

use std::net::SocketAddr;

use braid_packet::IpAddress;
use braid_packet::parse::protocol;

/// A packet set as one of its functions sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetMeaning {
    /// What its state means; none if the function does not say.
    pub words: Option<String>,
    /// How long it lives without a packet, in nanoseconds; `u64::MAX`: for ever.
    pub timeout_ns: u64,
}

/// An entry of a function's table that stands for somebody's traffic, as a mapping of a NAT does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// What it is, in a word: `mapping`.
    pub kind: &'static str,
    /// IP protocol.
    pub protocol: u8,
    /// Its two ends, address and port; of ICMP queries the identifier takes the place of the port. What they are depends on the kind: of a
    /// mapping the inside and the external one.
    pub ends: [(IpAddress, u16); 2],
    /// What else there is to say; may be empty.
    pub detail: String,
    /// How long it lives if nothing more comes, in nanoseconds; none: for ever.
    pub left_ns: Option<u64>,
}

impl TableEntry {
    /// Its ends, as people read them.
    pub fn ends_in_words(&self) -> [String; 2] {
        self.ends.map(|end| end_in_words(self.protocol, end))
    }
}

/// Address and port as people read them: `10.0.0.1:1100`, `[2001:db8::1]:1100`; `10.0.0.1 id 7` of ICMP, `10.0.0.1` of a protocol without ports.
pub fn end_in_words(number: u8, (address, port): (IpAddress, u16)) -> String {
    match number {
        protocol::ICMP | protocol::ICMPV6 => format!("{address} id {port}"),
        number if protocol::has_ports(number) => SocketAddr::new(address.into(), port).to_string(),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_written_as_their_protocol_and_version_ask_for() {
        let (v4, v6) = (IpAddress::from_v4([10, 0, 0, 1]), "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().into());
        assert_eq!(end_in_words(protocol::TCP, (v4, 80)), "10.0.0.1:80");
        assert_eq!(end_in_words(protocol::UDP, (v6, 80)), "[2001:db8::1]:80");
        assert_eq!(end_in_words(protocol::ICMP, (v4, 7)), "10.0.0.1 id 7");
        assert_eq!(end_in_words(protocol::ICMPV6, (v6, 7)), "2001:db8::1 id 7");
        assert_eq!(end_in_words(protocol::GRE, (v4, 0)), "10.0.0.1");
    }
}
