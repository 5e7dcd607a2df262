//! Data about connections by their endpoints: which ones are live, for ICMP errors, which come from anywhere; and their
//! marks.
//!
//! Keys for IPv4 take 16 bytes, so that an entry fits into half a cache line; IPv6 has a table of its own.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateError, StateObject};

use super::ends::Ends;
use crate::firewall::ends_of;
use crate::parts::Side;

/// The counterpart of [`Ends`] for IPv4.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ShortEnds {
    inside: [u8; 4],
    outside: [u8; 4],
    inside_port: u16,
    outside_port: u16,
    protocol: u8,
    /// For live connections, the side that opened them.
    asker: u8,
    zero: [u8; 2],
}

/// A map from the endpoints of connections.
pub(in crate::firewall) struct ByEnds<V> {
    v4: Map<ShortEnds, V>,
    v6: Map<Ends, V>,
}

/// The set of live connections.
pub(in crate::firewall) type Known = ByEnds<()>;

impl<V: Plain> ByEnds<V> {
    /// A map with room for `most` entries of each IP version.
    pub(in crate::firewall) fn new(builder: &mut StateBuilder, name: &str, most: u32) -> Result<ByEnds<V>, StateError> {
        let map = |name: String| MapConfig { name, capacity: most, ..MapConfig::default() };
        let v6 = format!("{name}_v6");
        Ok(ByEnds { v4: Map::new(builder, &map(name.to_owned()))?, v6: Map::new(builder, &map(v6))? })
    }

    /// Stores a value for a connection. False if there is no room.
    pub(in crate::firewall) fn enter(&self, cx: &mut Cx<'_>, ends: &Ends, value: &V) -> Result<bool, Conflict> {
        let inserted = match ends.short() {
            Some(short) => self.v4.insert(cx, &short, value)?,
            None => self.v6.insert(cx, ends, value)?,
        };
        Ok(inserted != Inserted::Full)
    }

    /// Removes a connection. False if it has no entry.
    pub(in crate::firewall) fn leave(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<bool, Conflict> {
        let left = match ends.short() {
            Some(short) => self.v4.remove(cx, &short)?,
            None => self.v6.remove(cx, ends)?,
        };
        Ok(left.is_some())
    }

    /// The value of a connection.
    pub(in crate::firewall) fn of(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<Option<V>, Conflict> {
        match ends.short() {
            Some(short) => self.v4.get(cx, &short),
            None => self.v6.get(cx, ends),
        }
    }

    /// Whether a connection has an entry.
    pub(in crate::firewall) fn has(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<bool, Conflict> {
        match ends.short() {
            Some(short) => self.v4.contains(cx, &short),
            None => self.v6.contains(cx, ends),
        }
    }
}

impl Known {
    /// Prefetches what entering a packet's connection will access.
    #[inline(always)]
    pub(in crate::firewall) fn prefetch_of(&self, packet: &Packet<'_>, from: Side) {
        if packet.addresses_v4().is_none() {
            return self.prefetch(&ends_of(packet, from).opened_from(from as u8));
        }
        if let Some(short) = ShortEnds::of(packet, from) {
            self.v4.prefetch(&short);
        }
    }

    /// Prefetches what entering or removing a connection will access.
    #[inline(always)]
    pub(in crate::firewall) fn prefetch(&self, ends: &Ends) {
        match ends.short() {
            Some(short) => self.v4.prefetch(&short),
            None => self.v6.prefetch(ends),
        }
    }
}

impl ShortEnds {
    /// The endpoints of the connection that a packet opens, if it is IPv4.
    #[inline(always)]
    fn of(packet: &Packet<'_>, from: Side) -> Option<ShortEnds> {
        let (addresses, ports) = (packet.addresses_v4()?, packet.ports().unwrap_or_default());
        let (source, destination) = ((addresses.0, ports.0), (addresses.1, ports.1));
        let (inside, outside) = if from == Side::Inside { (source, destination) } else { (destination, source) };
        Some(ShortEnds {
            inside: inside.0,
            outside: outside.0,
            inside_port: inside.1,
            outside_port: outside.1,
            protocol: packet.protocol(),
            asker: from as u8,
            zero: [0; 2],
        })
    }
}

impl Ends {
    /// The short form, if both addresses are IPv4.
    fn short(&self) -> Option<ShortEnds> {
        let (inside, outside) = (self.inside.v4()?, self.outside.v4()?);
        let &Ends { inside_port, outside_port, protocol, asker, .. } = self;
        Some(ShortEnds { inside, outside, inside_port, outside_port, protocol, asker, zero: [0; 2] })
    }
}

impl<V: Plain> Part for ByEnds<V> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.v4.objects(into);
        self.v6.objects(into);
    }
}
