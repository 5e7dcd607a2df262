//! Ends of the live connections: what ICMP errors, which come from anywhere, are looked up by.
//!
//! Those of IPv4 fit into 16 bytes, and with that into half a cache line; those of IPv6 have a table of their own.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateError, StateObject};

use super::connection::Ends;

/// The same of IPv4.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ShortEnds {
    inside: [u8; 4],
    outside: [u8; 4],
    inside_port: u16,
    outside_port: u16,
    protocol: u8,
    zero: [u8; 3],
}

/// The live connections.
pub(super) struct Known {
    v4: Map<ShortEnds, ()>,
    v6: Map<Ends, ()>,
}

impl Known {
    /// Room for `most` connections of each IP version.
    pub(super) fn new(builder: &mut StateBuilder, most: u32) -> Result<Known, StateError> {
        let map = |name: &str| MapConfig { name: name.into(), capacity: most, ..MapConfig::default() };
        Ok(Known { v4: Map::new(builder, &map("connections"))?, v6: Map::new(builder, &map("connections_v6"))? })
    }

    /// Notes a connection that is not there. False if there is no room.
    pub(super) fn enter(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<bool, Conflict> {
        let inserted = match ends.short() {
            Some(short) => self.v4.insert(cx, &short, &())?,
            None => self.v6.insert(cx, ends, &())?,
        };
        Ok(inserted != Inserted::Full)
    }

    /// Forgets a connection.
    pub(super) fn leave(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        match ends.short() {
            Some(short) => self.v4.remove(cx, &short).map(drop),
            None => self.v6.remove(cx, ends).map(drop),
        }
    }

    /// Whether a connection lives.
    pub(super) fn has(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<bool, Conflict> {
        match ends.short() {
            Some(short) => self.v4.contains(cx, &short),
            None => self.v6.contains(cx, ends),
        }
    }
}

impl Ends {
    /// If both are of IPv4. Connections are no queries: who asks says nothing of them.
    fn short(&self) -> Option<ShortEnds> {
        let (inside, outside) = (self.inside.v4()?, self.outside.v4()?);
        let &Ends { inside_port, outside_port, protocol, .. } = self;
        Some(ShortEnds { inside, outside, inside_port, outside_port, protocol, zero: [0; 3] })
    }
}

impl Part for Known {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.v4.objects(into);
        self.v6.objects(into);
    }
}
