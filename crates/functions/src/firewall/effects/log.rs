//! The log of rules: the last packets that matched a rule with `log`, shown in the report.
//!
//! Each worker keeps a ring of its own, so logging causes no conflicts. The rules' counters tell how many packets there
//! were in total.

use std::collections::HashMap;
use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateError, StateObject};

use crate::firewall::conditions::facts::Facts;
use crate::firewall::connection::states::State;
use crate::firewall::rules::Rule;
use crate::parts::seconds;

/// The size of each worker's ring, and the number of packets that a report shows.
pub(in crate::firewall) const KEPT: u32 = 64;

/// The entry is of an ARP packet.
const OF_ARP: u8 = 2;

/// One packet; all zero if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Logged {
    at_ns: u64,
    /// The origin of its rule's statement.
    origin: u64,
    source: [u8; 16],
    destination: [u8; 16],
    source_port: u16,
    /// For ICMP, type × 256 + code.
    destination_port: u16,
    /// The port on which it arrived.
    port: u16,
    protocol: u8,
    /// 0 if the entry is not in use, 1 for an IP packet, 2 for one of ARP.
    is_there: u8,
}

/// The rings of all workers.
pub(in crate::firewall) struct Log {
    /// The number of packets that each worker has logged.
    written: DistributedVector<u64>,
    rings: DistributedVector<Logged>,
    /// The prefixes of log entries, by the origin of their rules.
    prefixes: HashMap<u64, String>,
}

impl Log {
    pub(in crate::firewall) fn new(builder: &mut StateBuilder, rules: &[Rule]) -> Result<Log, StateError> {
        let prefix = |rule: &Rule| rule.log.clone().map(|prefix| (rule.origin, prefix));
        let written = DistributedVectorConfig { name: "logged".into(), len: 1 };
        let rings = DistributedVectorConfig { name: "log".into(), len: KEPT };
        Ok(Log {
            written: DistributedVector::new(builder, &written, |sum, part| *sum += part)?,
            rings: DistributedVector::new(builder, &rings, |kept: &mut Logged, other| {
                if other.at_ns > kept.at_ns {
                    *kept = *other;
                }
            })?,
            prefixes: rules.iter().filter_map(prefix).collect(),
        })
    }

    /// Writes a packet into the worker's ring, over its oldest entry.
    pub(in crate::firewall) fn write(&self, cx: &mut Cx<'_>, facts: &Facts<'_>, origin: u64) -> Result<(), Conflict> {
        let logged = Logged {
            at_ns: cx.wall(),
            origin,
            source: facts.source.to_be_bytes(),
            destination: facts.destination.to_be_bytes(),
            source_port: facts.source_port,
            destination_port: facts.destination_port,
            port: facts.port,
            protocol: facts.protocol,
            is_there: if facts.state == State::Arp { OF_ARP } else { 1 },
        };
        let number = self.written.update(cx, 0, |written| std::mem::replace(written, *written + 1))?;
        let place = number.unwrap_or_default() % u64::from(KEPT);
        self.rings.update(cx, place as u32, |kept| *kept = logged).map(drop)
    }

    /// Reports the last packets with their rules' prefixes, as one piece.
    pub(in crate::firewall) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        into.pieces(|into, from, _| if from == 0 { self.tell(cx, into).map(|()| None) } else { Ok(None) })
    }

    fn tell(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let mut all: Vec<Logged> = Vec::new();
        for place in 0..KEPT {
            self.rings.visit(cx, place, |logged| all.extend(Some(*logged).filter(|logged| logged.is_there != 0)))?;
        }
        all.sort_by_key(|logged| (std::cmp::Reverse(logged.at_ns), logged.origin, logged.source, logged.source_port));
        for logged in all.iter().take(KEPT as usize) {
            let prefix = self.prefixes.get(&logged.origin).map_or("(a former rule) ", String::as_str);
            into.find("logged", seconds(logged.at_ns), format!("{prefix}{logged}"));
        }
        Ok(())
    }
}

impl std::fmt::Display for Logged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (source, destination) = (IpAddress::from_v6(self.source), IpAddress::from_v6(self.destination));
        if self.is_there == OF_ARP {
            return write!(f, "arp {source} > {destination} by port {}", self.port);
        }
        match protocol::name(self.protocol) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "protocol {}", self.protocol)?,
        }
        let (from, to) = (self.source_port, self.destination_port);
        match self.protocol {
            protocol::ICMP | protocol::ICMPV6 => write!(f, " {source} > {destination} type {}/{}", to >> 8, to & 255)?,
            number if protocol::has_ports(number) => write!(f, " {source} port {from} > {destination} port {to}")?,
            _ => write!(f, " {source} > {destination}")?,
        }
        write!(f, " by port {}", self.port)
    }
}

impl Part for Log {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.extend([self.written.object(), self.rings.object()]);
    }
}
