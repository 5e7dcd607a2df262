//! Meters of address ranges: one for all addresses that share a prefix, whichever workers handle their packets.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Share, StateBuilder, StateObject};
use braid_nf::{Cx, Part};

use super::config::Lengths;
use super::meter::Metered;
use crate::ConfigError;
use crate::parts::Aged;
pub use crate::parts::tables::aged::SWEEP_EVERY;
use crate::parts::tables::aged::Stamp;

/// A meter, and when it was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Used {
    metered: Metered,
    seen_ns: u64,
}

impl Stamp for Used {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// The table of meters; a meter is forgotten once it is full again.
pub struct Groups {
    lengths: Lengths,
    table: Aged<IpAddress, Used>,
}

impl Groups {
    /// An empty table. `lifetime_ns` is the time in which a meter fills.
    pub fn new(builder: &mut StateBuilder, lengths: Lengths, lifetime_ns: u64) -> Result<Groups, ConfigError> {
        lengths.bits().check("prefix")?;
        let table = Aged::new(builder, "ranges", lengths.capacity, lifetime_ns);
        Ok(Groups { lengths, table: table.map_err(|error| ConfigError::state("prefix.capacity", &error))? })
    }

    fn range(&self, address: IpAddress) -> IpAddress {
        self.lengths.bits().range_of(address)
    }

    /// The meter of an address's range, if there is an entry.
    pub fn get(&self, cx: &mut Cx<'_>, address: IpAddress) -> Result<Option<Metered>, Conflict> {
        Ok(self.table.get(cx, &self.range(address))?.map(|used| used.metered))
    }

    /// Stores the meter; false if the table is full.
    pub fn set(&self, cx: &mut Cx<'_>, address: IpAddress, metered: Metered) -> Result<bool, Conflict> {
        let seen_ns = cx.now();
        self.table.insert(cx, &self.range(address), &Used { metered, seen_ns })
    }

    /// Forgets meters that are full again, a few at a time.
    pub fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.table.sweep(cx, share)
    }
}

impl Part for Groups {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
    }
}
