//! Descriptions of packet sets and table entries, for listings of a running chain.

use std::net::SocketAddr;

use braid_packet::parse::protocol;
use braid_packet::{IpAddress, MacAddress, Port};

/// A packet set as one of its functions sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetMeaning {
    /// What its state means; `None` if the function does not describe it.
    pub words: Option<String>,
    /// How long it lives without a packet, in nanoseconds; `u64::MAX` if it never ends.
    pub timeout_ns: u64,
}

/// An entry of a function's table that an operator may look for: a mapping of a NAT, a station of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The kind of entry in a word: `mapping`.
    pub kind: &'static str,
    /// The traffic or the host that it belongs to.
    pub about: About,
    /// Further details; may be empty.
    pub detail: String,
    /// Time until it ends without further traffic, in nanoseconds; `None` if it never ends or the detail says when.
    pub left_ns: Option<u64>,
    /// Whether the configuration wants it, so that an operator cannot end it.
    pub is_configured: bool,
}

/// The part of a table that one call visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRange {
    /// The number of its first entry.
    pub first: u32,
    /// How many entries to visit.
    pub count: u32,
}

impl EntryRange {
    /// As many entries from another number on.
    pub fn from(self, first: u32) -> EntryRange {
        EntryRange { first, ..self }
    }
}

/// What becomes of an entry that has been listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Keep,
    /// It ends now, with everything that would happen at the end of its lifetime.
    End,
}

/// The traffic or the host that an entry of a table belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// Traffic between two ends.
    Traffic {
        /// IP protocol.
        protocol: u8,
        /// Address and port of each end; for ICMP queries the identifier takes the place of the port. What the ends are
        /// depends on the kind of entry: for a mapping, the inside and the external one.
        ends: [(IpAddress, u16); 2],
    },
    /// A station, neighbour or group on a link.
    OnLink {
        /// The IP address, of a neighbour or a group.
        address: Option<IpAddress>,
        /// The Ethernet address, if it is known.
        mac: Option<MacAddress>,
        /// The VLAN; `None` if untagged.
        vlan: Option<u16>,
        /// The ports.
        ports: Vec<Port>,
    },
}

impl About {
    /// Formats its two columns: what it is, and where it leads.
    pub fn in_words(&self) -> [String; 2] {
        match self {
            About::Traffic { protocol, ends } => ends.map(|end| end_in_words(*protocol, end)),
            About::OnLink { address, mac, vlan, ports } => {
                let address = address.map(|address| address.to_string());
                let parts = [address, mac.map(|mac| mac.to_string()), vlan.map(|vlan| format!("vlan {vlan}"))];
                let numbers: Vec<String> = ports.iter().map(u16::to_string).collect();
                let word = if ports.len() == 1 { "port" } else { "ports" };
                [parts.into_iter().flatten().collect::<Vec<_>>().join(" "), format!("{word} {}", numbers.join(", "))]
            }
        }
    }
}

/// Looks at entries of one of several tables, for a function that lists more than one
/// ([`NetworkFunction::list_entries`](crate::NetworkFunction::list_entries)).
///
/// `number` counts through the entries of all tables, one table after the other; `capacities` are their numbers of
/// entries. `look` gets the index of the table and the number of an entry within it, and returns the number at which to
/// continue in that table, `None` at its end. Returns the number at which to continue in all of them; `None` at the
/// end. Errors are those of `look`.
pub fn in_tables<E>(
    number: u32,
    capacities: &[u32],
    look: impl FnOnce(usize, u32) -> Result<Option<u32>, E>,
) -> Result<Option<u32>, E> {
    let Some((table, at)) = table_at(number, capacities) else { return Ok(None) };
    let (first, behind) = (number - at, number - at + capacities[table]);
    Ok(look(table, at)?.map(|at| first + at).or_else(|| table_at(behind, capacities).map(|_| behind)))
}

/// The table that a number counts to, and the number within it; `None` beyond the last entry.
fn table_at(number: u32, capacities: &[u32]) -> Option<(usize, u32)> {
    let mut left = number;
    for (table, capacity) in capacities.iter().enumerate() {
        match left.checked_sub(*capacity) {
            Some(beyond) => left = beyond,
            None => return Some((table, left)),
        }
    }
    None
}

/// Formats address and port: `10.0.0.1:1100`, `[2001:db8::1]:1100`; `10.0.0.1 id 7` for ICMP, `10.0.0.1` for a protocol
/// without ports.
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
    fn what_is_on_a_link_is_written_as_far_as_it_is_known() {
        let (address, mac) = (Some(IpAddress::from_v4([10, 0, 0, 9])), Some(MacAddress([2, 0, 0, 0, 0, 9])));
        let about =
            |address, mac, vlan, ports: &[Port]| About::OnLink { address, mac, vlan, ports: ports.to_vec() }.in_words();
        assert_eq!(about(address, mac, None, &[0]), ["10.0.0.9 02:00:00:00:00:09", "port 0"]);
        assert_eq!(about(None, mac, Some(7), &[2]), ["02:00:00:00:00:09 vlan 7", "port 2"]);
        assert_eq!(about(address, None, Some(7), &[1, 3]), ["10.0.0.9 vlan 7", "ports 1, 3"]);
    }

    #[test]
    fn tables_are_numbered_one_after_another() {
        assert_eq!(
            [0, 2, 3, 4].map(|number| table_at(number, &[3, 0, 1])),
            [Some((0, 0)), Some((0, 2)), Some((2, 0)), None]
        );
    }

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
