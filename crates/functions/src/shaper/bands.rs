//! Priorities of packets: by code point, port or address, in the order in which they are configured.

use braid_nf::Packet;
use serde::Deserialize;

use crate::config::ConfigError;
use crate::parts::Prefix;
use crate::parts::config::many::Many;
use crate::parts::headers::dscp::{self, CodePoint};

/// The most priorities that can be configured; packets that match none have one more, the lowest.
pub const PRIORITIES_MAX: usize = 7;

/// The packets of a priority: those that have one of these code points, one of these ports, or one of these addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fits {
    /// Code points, 0 to 63 (RFC 2474).
    pub dscp: Many<CodePoint>,
    /// Either port of TCP, UDP or SCTP.
    pub ports: Many<u16>,
    /// Either address.
    pub addresses: Many<Prefix>,
}

/// The priorities, the highest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bands(Vec<Fits>);

braid_nf::plain!(Bands);

impl Bands {
    /// Checks the priorities.
    pub fn new(priorities: &[Fits]) -> Result<Bands, ConfigError> {
        if priorities.len() > PRIORITIES_MAX {
            let reason = format!("{} priorities are more than there are queues for", priorities.len());
            return Err(ConfigError::new("priority", reason, format!("write at most {PRIORITIES_MAX}")));
        }
        if let Some(number) = priorities.iter().position(|fits| *fits == Fits::default()) {
            let instead = "write `dscp`, `ports` or `addresses`, such as { dscp = 46 }";
            let error = ConfigError::new("priority", "nothing is said about which packets", instead);
            return Err(error.of("priority", number));
        }
        for (number, fits) in priorities.iter().enumerate() {
            let taken = priorities[..number]
                .iter()
                .enumerate()
                .find_map(|(higher, other)| Some((higher, other.takes_of(fits)?)));
            if let Some((higher, (key, what))) = taken {
                let reason = format!("{what} is of priority[{higher}] already, which comes first");
                let instead = "write it once; what is more special stands in the higher priority";
                return Err(ConfigError::new(&format!("priority.{key}"), reason, instead).of("priority", number));
            }
        }
        Ok(Bands(priorities.to_vec()))
    }

    /// The number of priorities, including that of all other packets.
    pub fn count(&self) -> u32 {
        self.0.len() as u32 + 1
    }

    /// The priority of a packet, 0 being the highest: the first that matches.
    #[inline]
    pub fn of(&self, packet: &Packet<'_>) -> u32 {
        if self.0.is_empty() {
            return 0;
        }
        self.0.iter().position(|fits| fits.fit(packet)).unwrap_or(self.0.len()) as u32
    }
}

impl Fits {
    /// The first condition of `lower` that this priority matches too, so that no such packet reaches `lower`: its key and its
    /// value.
    fn takes_of(&self, lower: &Fits) -> Option<(&'static str, String)> {
        let point = lower.dscp.0.iter().find(|point| self.dscp.0.contains(point));
        let port = lower.ports.0.iter().find(|port| self.ports.0.contains(port));
        let range = lower.addresses.0.iter().find(|range| self.addresses.0.iter().any(|ours| ours.covers(range)));
        point
            .map(|CodePoint(point)| ("dscp", format!("code point {point}")))
            .or(port.map(|port| ("ports", format!("port {port}"))))
            .or(range.map(|range| ("addresses", range.to_string())))
    }

    fn fit(&self, packet: &Packet<'_>) -> bool {
        dscp::of(packet).is_some_and(|point| self.dscp.0.contains(&CodePoint(point)))
            || packet.ports().is_some_and(|(from, to)| self.ports.0.iter().any(|port| *port == from || *port == to))
            || self.addresses.0.iter().any(|range| range.contains(packet.src_ip()) || range.contains(packet.dst_ip()))
    }
}
