//! Inside networks that may have the same addresses, distinguished by port, by VLAN tags, or by both.
//!
//! A network has a number, which is part of every inside endpoint and of the packet set's key. It is the port's number,
//! or the VLAN's identifier; networks behind two tags, and networks of several ports with the same VLANs, are numbered
//! from 4096 on. Translated packets leave with the tags of their destination network; all others keep their tags.

use std::sync::Arc;

use braid_nf::packet::key::KeyParts;
use braid_nf::packet::{MacAddress, Segments, Tagging};
use braid_nf::prelude::*;

use super::config::{Config, Networks, NextHop};
use super::endpoint::NETWORK_MAX;
use crate::config::ConfigError;
use crate::parts::fragments::Meeting;
use crate::parts::headers::tags::{self, OuterTag, TagRange};
use crate::parts::{Side, Sides};

/// The packet is from inside but from no configured network, or from outside to an external address with tags other than
/// those of the outside.
pub const NO_NETWORK: Reason = Reason("no_network");

/// The first number that is not a VLAN identifier.
const BEYOND_VLANS: u16 = 4096;
/// The maximum number of networks, so that their numbers fit into an inside endpoint.
const NETWORKS_MAX: usize = (NETWORK_MAX - BEYOND_VLANS) as usize;

/// A network: its number, and its name in reports, which is empty if there is only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) number: u16,
    pub(crate) name: String,
}

/// All networks, sorted by number.
pub(crate) type List = Arc<[Network]>;

/// The list of a single network.
pub(crate) fn one() -> List {
    [Network { number: 0, name: String::new() }].into()
}

/// The tags with which a packet leaves: its own, those of the outside, or those of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behind {
    #[default]
    Kept,
    /// Its own too, but the packet goes no further: a router behind this function takes it.
    Here,
    Outside,
    Network(u16),
}

impl Behind {
    /// As a number, for later fragments; network numbers are below the other values.
    pub(crate) fn to_bits(self) -> u16 {
        match self {
            Behind::Kept => u16::MAX,
            Behind::Outside => u16::MAX - 1,
            Behind::Here => u16::MAX - 2,
            Behind::Network(number) => number,
        }
    }

    pub(crate) fn from_bits(bits: u16) -> Behind {
        match bits {
            u16::MAX => Behind::Kept,
            bits if bits == u16::MAX - 1 => Behind::Outside,
            bits if bits == u16::MAX - 2 => Behind::Here,
            number => Behind::Network(number),
        }
    }
}

/// How networks are distinguished.
#[derive(Clone, Debug)]
pub(crate) struct Nets {
    kind: Networks,
    pub(crate) list: List,
    tagged: Option<Tagged>,
}

/// Inside port if it matters, tagging, and number of a network.
type Place = (Option<Port>, Tagging, u16);

/// Networks distinguished by VLAN tags.
#[derive(Clone, Debug)]
struct Tagged {
    segments: Arc<Segments>,
    /// The places of the networks, in the order of the configuration.
    places: Box<[Place]>,
    /// Taggings by network number.
    tags: Box<[Tagging]>,
    outside: Tagging,
    outer_tag: OuterTag,
    /// Next hops of packets translated into a network, sorted by network number; without one a packet keeps its
    /// destination.
    hops: Box<[(u16, MacAddress)]>,
    outside_hop: Option<MacAddress>,
    /// The source address of frames that get a next hop; `None`: unchanged.
    mac: Option<MacAddress>,
}

impl Nets {
    pub(crate) fn check(config: &Config, sides: Sides, ports: u16) -> Result<Nets, ConfigError> {
        let inside = || (0..ports).filter(move |port| sides.of(*port) == Some(Side::Inside));
        let kind = config.networks;
        let by_vlan = matches!(kind, Networks::ByVlan | Networks::ByPortAndVlan);
        let given = [
            ("vlans", !config.vlans.is_empty()),
            ("outer_tag", config.outer_tag != OuterTag::default()),
            ("outside_vlan", config.outside_vlan.is_some()),
            ("next_hops", !config.next_hops.is_empty()),
            ("outside_next_hop", config.outside_next_hop.is_some()),
        ];
        for (key, is_given) in given {
            if is_given && !by_vlan {
                let instead = "add networks = \"by_vlan\", or \"by_port_and_vlan\"";
                return Err(ConfigError::new(key, "says nothing: networks are not told by VLAN", instead));
            }
        }
        if let Some(instead) = told_by_one_port(kind, inside().count()) {
            return Err(ConfigError::new(
                "networks",
                "there is one inside port, which tells no network apart",
                instead,
            ));
        }
        let list = match kind {
            Networks::One => return Ok(Nets { kind, list: one(), tagged: None }),
            Networks::ByPort => {
                inside().map(|port| Network { number: port, name: format!("network {port}") }).collect()
            }
            _ => {
                let tagged = Tagged::check(config, inside().collect())?;
                return Ok(Nets { kind, list: tagged.list(), tagged: Some(tagged) });
            }
        };
        Ok(Nets { kind, list, tagged: None })
    }

    /// Whether networks are distinguished by tags.
    pub(crate) fn are_tagged(&self) -> bool {
        self.tagged.is_some()
    }

    /// Whether networks are distinguished by ports.
    fn are_told_by_port(&self) -> bool {
        matches!(self.kind, Networks::ByPort | Networks::ByPortAndVlan)
    }

    /// In what the pieces of a datagram may differ: of two uplinks either may bring them.
    pub(crate) fn meeting(&self, sides: Sides) -> Meeting {
        Meeting::by_side(sides, self.are_told_by_port(), self.are_tagged())
    }

    /// Whether what leaves for the outside goes to a station that the plan names: no router behind looks where it goes.
    pub(crate) fn have_next_hop_outside(&self) -> bool {
        self.tagged.as_ref().is_some_and(|tagged| tagged.outside_hop.is_some())
    }

    /// Whether every network that the other knows is known here under the same number.
    pub(crate) fn has_those_of(&self, other: &Nets) -> bool {
        match (&self.tagged, &other.tagged) {
            (Some(ours), Some(theirs)) => {
                ours.outside == theirs.outside && theirs.places.iter().all(|place| ours.places.contains(place))
            }
            (None, None) => self.kind == other.kind,
            _ => false,
        }
    }

    /// Adds the network to the definition of a packet set.
    pub(crate) fn within(&self, mut set: SetDef) -> SetDef {
        match &self.tagged {
            Some(tagged) => return set.within(tagged.segments.clone()),
            None if self.kind == Networks::ByPort => set.fields.push(FieldId::InPort),
            None => {}
        }
        set
    }

    /// The number of the network that a packet from an inside port comes from; [`Segments::OTHER`] if there is none.
    #[inline(always)]
    pub(crate) fn of(&self, packet: &Packet<'_>) -> u16 {
        match self.kind {
            Networks::One => 0,
            Networks::ByPort => packet.port(),
            _ => self.of_tags(packet),
        }
    }

    #[inline(never)]
    fn of_tags(&self, packet: &Packet<'_>) -> u16 {
        let number = |tagged: &Tagged| tagged.segments.of(packet.port(), packet.bytes(), packet.link());
        self.tagged.as_ref().map_or(Segments::OTHER, number)
    }

    /// The same from the key of a packet's set.
    pub(crate) fn of_key(&self, key: &KeyParts) -> u16 {
        let field = if self.tagged.is_some() { FieldId::Segment } else { FieldId::InPort };
        key.number(field).unwrap_or(0) as u16
    }

    /// The network number and inside port of a static mapping for `inside`, from what its entry says; `home` is the port
    /// if ports do not matter.
    pub(crate) fn place(
        &self,
        (port, vlan): (Option<Port>, &Option<TagRange>),
        home: Port,
        inside: &dyn std::fmt::Display,
    ) -> Result<(u16, Port), ConfigError> {
        let tagging = vlan.as_ref().map(|range| range.single());
        let named = match tagging {
            Some(None) => None,
            tagging => self.named(port, tagging.flatten(), home),
        };
        let instead = match self.kind {
            Networks::One if vlan.is_some() => "leave out `vlan`, or add networks = \"by_vlan\"",
            Networks::One => "leave out `network`, or add networks = \"by_port\"",
            Networks::ByPort => "name an inside port: network = 0",
            Networks::ByVlan => "name one of `vlans`: vlan = 10",
            Networks::ByPortAndVlan => "name an inside port and one of `vlans`: network = 0, vlan = 10",
        };
        let told = match (port, vlan) {
            (None, None) => format!("{inside} is in no network"),
            (Some(port), None) => format!("there is no network {port}"),
            (port, Some(_)) => {
                format!("there is no such VLAN{}", port.map_or(String::new(), |port| format!(" of port {port}")))
            }
        };
        named.ok_or_else(|| ConfigError::new("static", told, instead))
    }

    fn named(&self, port: Option<Port>, vlan: Option<Tagging>, home: Port) -> Option<(u16, Port)> {
        match (&self.tagged, port, vlan) {
            (None, None, None) if self.kind == Networks::One => Some((0, home)),
            (None, Some(port), None) if self.kind == Networks::ByPort => {
                self.list.iter().any(|network| network.number == port).then_some((port, port))
            }
            (Some(tagged), port, Some(vlan)) => {
                number_at(&tagged.places, port, vlan).map(|number| (number, port.unwrap_or(home)))
            }
            _ => None,
        }
    }

    /// Whether a packet from outside has the tags of the outside.
    pub(crate) fn is_outside(&self, packet: &Packet<'_>) -> bool {
        let has = |tagged: &Tagged| Tagging::of(packet.bytes(), packet.link()) == Some(tagged.outside);
        self.tagged.as_ref().is_none_or(has)
    }

    /// Gives a packet the tags with which it leaves. False if there is no room for them.
    #[inline(always)]
    pub(crate) fn retag(&self, packet: &mut Packet<'_>, behind: Behind) -> bool {
        match &self.tagged {
            Some(tagged) => tagged.retag(packet, behind),
            None => true,
        }
    }

    /// The same for a frame in bytes whose IP header is at `ip`: writes it to `into` and returns its length; `None` if it
    /// leaves unchanged.
    pub(crate) fn retagged(&self, frame: &[u8], ip: usize, behind: Behind, into: &mut [u8]) -> Option<usize> {
        let tagged = self.tagged.as_ref()?;
        let len = tags::exchanged(frame, ip, tagged.of(behind)?, tagged.outer_tag, into)?;
        if let Some(MacAddress(hop)) = tagged.hop(behind) {
            let (to, from) = into.split_at_mut(hop.len());
            to.copy_from_slice(&hop);
            if let Some(MacAddress(mac)) = tagged.mac {
                from[..mac.len()].copy_from_slice(&mac);
            }
        }
        Some(len)
    }
}

impl Tagged {
    fn check(config: &Config, inside: Vec<Port>) -> Result<Tagged, ConfigError> {
        let wrong = |key, reason: String, instead: &str| Err(ConfigError::new(key, reason, instead));
        let all: Vec<Tagging> = match config.vlans.is_empty() {
            true => (1..BEYOND_VLANS - 1).map(Tagging::one).collect(),
            false => config.vlans.iter().flat_map(|range| range.iter()).collect(),
        };
        let by_port = config.networks == Networks::ByPortAndVlan;
        let ports: Vec<Option<Port>> = if by_port { inside.into_iter().map(Some).collect() } else { vec![None] };
        let mut counted = BEYOND_VLANS;
        let mut places = Vec::new();
        let mut known = std::collections::HashSet::new();
        for tagging in all {
            if !known.insert(tagging) {
                return wrong("vlans", format!("{tagging} stands there twice"), "write it once");
            }
            for port in &ports {
                let number = match tagging.vlans() {
                    (outer, None) if !by_port => outer.unwrap_or(0),
                    _ => {
                        counted += 1;
                        counted - 1
                    }
                };
                places.push((*port, tagging, number));
                if places.len() > NETWORKS_MAX {
                    let reason = format!("more than {NETWORKS_MAX} networks");
                    return wrong("vlans", reason, "name fewer; with by_port_and_vlan each port has all of them");
                }
            }
        }
        let outside = match &config.outside_vlan {
            None => Tagging::NONE,
            Some(range) => match range.single() {
                Some(tagging) => tagging,
                None => return wrong("outside_vlan", "names several".into(), "write one: 100, or \"100.7\""),
            },
        };
        let segments = match by_port {
            true => Segments::by_port_and_tagging(places.iter().map(|(port, tags, n)| (port.unwrap_or(0), *tags, *n))),
            false => Segments::by_tagging(places.iter().map(|(_, tags, n)| (*tags, *n))),
        };
        let mut tags = vec![Tagging::NONE; usize::from(counted)];
        places.iter().for_each(|(_, tagging, number)| tags[usize::from(*number)] = *tagging);
        let (segments, hops) = (Arc::new(segments), hops(&config.next_hops, &places)?);
        Ok(Tagged {
            segments,
            places: places.into(),
            tags: tags.into(),
            outside,
            outer_tag: config.outer_tag,
            hops,
            outside_hop: config.outside_next_hop.map(|hop| hop.0),
            mac: config.mac.map(|mac| mac.0),
        })
    }

    fn list(&self) -> List {
        let mut list: Vec<Network> = self
            .places
            .iter()
            .map(|(port, tagging, number)| {
                let port = port.map(|port| format!("port {port} ")).unwrap_or_default();
                Network { number: *number, name: format!("{port}{tagging}") }
            })
            .collect();
        list.sort_by_key(|network| network.number);
        list.into()
    }

    fn retag(&self, packet: &mut Packet<'_>, behind: Behind) -> bool {
        let Some(tags) = self.of(behind) else { return true };
        if let Some(hop) = self.hop(behind) {
            packet.set_eth_dst(hop);
            if let Some(mac) = self.mac {
                packet.set_eth_src(mac);
            }
        }
        tags::exchange(packet, tags, self.outer_tag)
    }

    /// The station that a packet is sent to; `None` if it keeps its destination.
    fn hop(&self, behind: Behind) -> Option<MacAddress> {
        match behind {
            Behind::Kept | Behind::Here => None,
            Behind::Outside => self.outside_hop,
            Behind::Network(number) => {
                let at = self.hops.binary_search_by_key(&number, |(known, _)| *known).ok()?;
                Some(self.hops[at].1)
            }
        }
    }

    /// The tags with which a packet leaves; `None` if it keeps its own.
    fn of(&self, behind: Behind) -> Option<Tagging> {
        match behind {
            Behind::Kept | Behind::Here => None,
            Behind::Outside => Some(self.outside),
            Behind::Network(number) => self.tags.get(usize::from(number)).copied(),
        }
    }
}

/// What to write instead if networks are to be distinguished by port but there is only one.
fn told_by_one_port(kind: Networks, inside: usize) -> Option<&'static str> {
    match kind {
        Networks::ByPort if inside < 2 => Some("leave it out, or name more `inside_ports`"),
        Networks::ByPortAndVlan if inside < 2 => Some("write \"by_vlan\", or name more `inside_ports`"),
        _ => None,
    }
}

fn number_at(places: &[Place], port: Option<Port>, tagging: Tagging) -> Option<u16> {
    places.iter().find(|place| (place.0, place.1) == (port, tagging)).map(|place| place.2)
}

fn hops(written: &[NextHop], places: &[Place]) -> Result<Box<[(u16, MacAddress)]>, ConfigError> {
    let mut hops = Vec::new();
    for NextHop { network, vlan, mac } in written {
        let wrong = |reason, instead: &str| Err(ConfigError::new("next_hops", reason, instead));
        for tagging in vlan.iter() {
            let Some(number) = number_at(places, *network, tagging) else {
                return wrong(
                    format!("{tagging} is no network"),
                    "name some of `vlans`, and with by_port_and_vlan an inside port",
                );
            };
            hops.push((number, mac.0));
        }
    }
    hops.sort_by_key(|(number, _)| *number);
    match hops.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let reason = format!("{} and {} are of one network", pair[0].1, pair[1].1);
            Err(ConfigError::new("next_hops", reason, "write one for each network"))
        }
        None => Ok(hops.into()),
    }
}
