//! Ports of a service: one, a range, a list of these or all; and a table of values by address, ports and protocol. Where port ranges
//! overlap, the one with the fewest ports applies.

use std::fmt;

use braid_nf::packet::{IpAddress, services};
use foldhash::HashMap;
use serde::Deserialize;

use crate::config::backwards;

/// Address, port and protocol.
pub(super) type End = (IpAddress, u16, u8);

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "Written")]
pub struct Ports {
    first: u16,
    last: u16,
}

/// Ports as written in a plan.
#[derive(Deserialize)]
#[serde(untagged, expecting = "no port: write one from 1 to 65535, or a range as \"5000-5999\"")]
enum Written {
    One(u16),
    Some(String),
}

/// The ports of a service as written in a plan: one, a range, or a list of both.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenList")]
pub struct PortList(Vec<Ports>);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "no port: write one from 1 to 65535, a range as \"5000-5999\", or a list of them as [80, 443]"
)]
enum WrittenList {
    One(u16),
    Some(String),
    Many(Vec<Written>),
}

impl PortList {
    /// Each of them, none of which meets another.
    pub fn ranges(&self) -> &[Ports] {
        &self.0
    }

    /// From the first to the last port of all: what a service is known by.
    pub fn span(&self) -> Ports {
        let first = self.0.iter().map(|ports| ports.first).min().unwrap_or(0);
        let last = self.0.iter().map(|ports| ports.last).max().unwrap_or(u16::MAX);
        Ports { first, last }
    }
}

impl TryFrom<WrittenList> for PortList {
    type Error = String;

    fn try_from(written: WrittenList) -> Result<PortList, String> {
        let all = match written {
            WrittenList::One(port) => vec![Ports::one(port)],
            WrittenList::Some(text) => vec![Written::Some(text).try_into()?],
            WrittenList::Many(all) => all.into_iter().map(Ports::try_from).collect::<Result<_, _>>()?,
        };
        if all.is_empty() {
            return Err("the list names no port; leave `port` out for all ports".to_owned());
        }
        for (number, ports) in all.iter().enumerate() {
            if let Some(other) = all[..number].iter().find(|other| other.meets(*ports)) {
                return Err(format!("{ports} and {other} meet; name each port once"));
            }
        }
        Ok(PortList(all))
    }
}

impl Ports {
    /// All ports of an address.
    pub const ALL: Ports = Ports { first: 0, last: u16::MAX };

    /// One port.
    pub const fn one(port: u16) -> Ports {
        Ports { first: port, last: port }
    }

    /// The port, if there is only one.
    pub fn only(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }

    /// The first port.
    pub fn first(self) -> u16 {
        self.first
    }

    /// The number of a single port, or 0 if there are several: packets then keep their port.
    pub(super) fn number(self) -> u16 {
        self.only().unwrap_or(0)
    }

    /// The form that state objects store: [`Ports::number`], and the last port of a range (0 for a single port or all).
    pub(super) fn words(self) -> [u16; 2] {
        match self.only() {
            Some(port) => [port, 0],
            None if self == Ports::ALL => [0, 0],
            None => [self.first, self.last],
        }
    }

    /// The inverse of [`Ports::words`].
    pub(super) fn of_words([first, last]: [u16; 2]) -> Ports {
        match (first, last) {
            (0, _) => Ports::ALL,
            (port, 0) => Ports::one(port),
            (first, last) => Ports { first, last },
        }
    }

    fn many(self) -> u16 {
        self.last - self.first
    }

    pub(super) fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn meets(self, other: Ports) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl TryFrom<Written> for Ports {
    type Error = String;

    fn try_from(written: Written) -> Result<Ports, String> {
        let text = match written {
            Written::One(port) => return Ok(Ports::one(port)),
            Written::Some(text) => text,
        };
        if let Some(port) = services::port(text.trim()) {
            return Ok(Ports::one(port));
        }
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match number(first).zip(number(last)) {
            Some((first, last)) if first > last => Err(backwards(&text, first, last)),
            Some((0, last)) if last > 0 => {
                Err(format!("ports {text} begin at 0; write \"1-{last}\", or leave `port` out for all ports"))
            }
            Some((first, last)) => Ok(Ports { first, last }),
            None => Err(format!(
                "`{text}` is no port, expected 80, \"http\" or \"5000-5999\"; leave `port` out for all ports"
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.only() {
            Some(port) => write!(f, "port {port}"),
            None if *self == Ports::ALL => f.write_str("all ports"),
            None => write!(f, "ports {}-{}", self.first, self.last),
        }
    }
}

/// An address and its ports, as shown in reports: `10.0.0.1:80`, `10.0.0.1:5000-5999`, `10.0.0.1`.
pub(super) fn shown(address: IpAddress, ports: Ports) -> String {
    match ports.only() {
        Some(port) => std::net::SocketAddr::new(address.into(), port).to_string(),
        None if ports == Ports::ALL => address.to_string(),
        None if address.is_v4() => format!("{address}:{}-{}", ports.first, ports.last),
        None => format!("[{address}]:{}-{}", ports.first, ports.last),
    }
}

/// A table of values by address, ports and protocol.
#[derive(Clone, Debug)]
pub(super) struct Ends<V> {
    ones: HashMap<End, V>,
    /// Entries with more than one port, the narrowest first.
    ranges: HashMap<(IpAddress, u8), Vec<(Ports, V)>>,
}

impl<V> Default for Ends<V> {
    fn default() -> Self {
        Ends { ones: HashMap::default(), ranges: HashMap::default() }
    }
}

impl<V: Copy> Ends<V> {
    /// The value at one port; the narrowest entry applies.
    pub(super) fn at(&self, (address, port, protocol): End) -> Option<V> {
        if let Some(one) = self.ones.get(&(address, port, protocol)) {
            return Some(*one);
        }
        let ranges = self.ranges.get(&(address, protocol))?;
        ranges.iter().find(|(ports, _)| ports.has(port)).map(|(_, value)| *value)
    }

    /// All entries that overlap these ports.
    pub(super) fn meeting(&self, (address, ports, protocol): (IpAddress, Ports, u8)) -> Vec<(Ports, V)> {
        let ranges = self.ranges.get(&(address, protocol)).map_or(&[][..], Vec::as_slice);
        let mut all: Vec<_> = ranges.iter().copied().filter(|(others, _)| others.meets(ports)).collect();
        match ports.only() {
            Some(port) => all.extend(self.ones.get(&(address, port, protocol)).map(|one| (ports, *one))),
            None => {
                let is_met = |end: &End| end.0 == address && end.2 == protocol && ports.has(end.1);
                let ones = self.ones.iter().filter(|(end, _)| is_met(end));
                all.extend(ones.map(|(end, one)| (Ports::one(end.1), *one)));
            }
        }
        all
    }

    /// The ports of an entry that overlaps these and has as many ports, so that neither is the narrower one.
    pub(super) fn rival(&self, end: (IpAddress, Ports, u8)) -> Option<Ports> {
        self.meeting(end).into_iter().map(|(others, _)| others).find(|others| others.many() == end.1.many())
    }

    /// Adds a value for all of these ports.
    pub(super) fn insert(&mut self, (address, ports, protocol): (IpAddress, Ports, u8), value: V) {
        if let Some(port) = ports.only() {
            self.ones.insert((address, port, protocol), value);
            return;
        }
        let ranges = self.ranges.entry((address, protocol)).or_default();
        let place = ranges.partition_point(|(others, _)| others.many() < ports.many());
        ranges.insert(place, (ports, value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Ports, String> {
        Ports::try_from(Written::Some(text.to_owned()))
    }

    #[test]
    fn ports_are_written_as_one_or_a_range() {
        for (text, shown) in
            [("80", "port 80"), ("80-80", "port 80"), ("https", "port 443"), ("5000 - 5999", "ports 5000-5999")]
        {
            assert_eq!(read(text).unwrap().to_string(), shown);
        }
        for (text, wrong) in [
            ("6-5", "`6-5` ends before it begins; write \"5-6\""),
            ("0-9", "begin at 0; write \"1-9\", or leave `port` out for all ports"),
            ("all", "`all` is no port, expected 80, \"http\" or \"5000-5999\""),
            ("1-65536", "is no port"),
            ("", "is no port"),
        ] {
            assert!(read(text).unwrap_err().contains(wrong), "{text}");
        }
    }

    #[test]
    fn a_list_names_each_port_once() {
        let some = |text: &str| Written::Some(text.to_owned());
        let list = |all| PortList::try_from(WrittenList::Many(all));
        let web = list(vec![Written::One(80), some("https"), some("8000-8099")]).unwrap();
        assert_eq!((web.ranges().len(), web.span()), (3, Ports { first: 80, last: 8099 }));
        assert!(list(vec![some("80-90"), Written::One(85)]).unwrap_err().contains("port 85 and ports 80-90 meet"));
        assert!(list(Vec::new()).unwrap_err().contains("the list names no port"));
    }

    proptest! {
        /// Where ranges overlap the narrowest applies, and ports survive the round trip through their stored form.
        #[test]
        fn the_narrowest_counts(list in prop::collection::vec((1u16..40, 0u16..9), 1..12), port in 1u16..50) {
            let address = IpAddress::from(std::net::IpAddr::from([10, 0, 0, 1]));
            let mut ends = Ends::default();
            let mut all = Vec::new();
            for (first, more) in list {
                let ports = Ports { first, last: first + more };
                prop_assert_eq!(Ports::of_words(ports.words()), ports);
                let rivals = all.iter().filter(|other: &&Ports| other.meets(ports) && other.many() == more).count();
                prop_assert_eq!(ends.rival((address, ports, 6)).is_some(), rivals > 0);
                if rivals == 0 {
                    ends.insert((address, ports, 6), ports);
                    all.push(ports);
                }
            }
            let expected = all.iter().filter(|ports| ports.has(port)).min_by_key(|ports| ports.many());
            prop_assert_eq!(ends.at((address, port, 6)), expected.copied());
            prop_assert_eq!(ends.at((address, port, 17)), None);
            prop_assert_eq!(Ports::of_words(Ports::ALL.words()), Ports::ALL);
        }
    }
}
