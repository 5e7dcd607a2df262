//! How many neighbours one source may have this router ask for in a second: a host that sends to all addresses of a network (RFC 6583 section 6.4)
//! fills no more of the table with neighbours that are too young to make room.
//!
//! Sources are counted in so many places by a hash; a network of 64 bits is one source in IPv6, as its hosts have as many addresses as they
//! like. Two that share a place share its limit.

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use braid_nf::state::{StateBuilder, StateError, VectorConfig};

use crate::parts::SECOND;

/// How many places there are.
const PLACES: u32 = 1024;
const SEED: u64 = 0x6173_6b65_7273_0001;

/// What a source has had this router ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Asked {
    /// Since when they are counted.
    since_ns: u64,
    count: u64,
}

/// The counts of sources, and how many each may have in a second.
pub(super) struct Askers {
    asked: Vector<Asked>,
    most: u64,
}

impl Askers {
    pub(super) fn new(builder: &mut StateBuilder, most: u32) -> Result<Askers, StateError> {
        let config = VectorConfig { name: "asked_by_source".into(), len: PLACES };
        Ok(Askers { asked: Vector::new(builder, &config, Asked::default())?, most: most.into() })
    }

    /// Counts a neighbour that a source has this router ask for. False if it may not have more at this time.
    pub(super) fn admit(&self, cx: &mut Cx<'_>, source: IpAddress) -> Result<bool, Conflict> {
        let (now, bits) = (cx.now(), if source.is_v4() { 32 } else { 64 });
        let place = (mixed(&source.prefix(bits).octets(), SEED) >> 32) as u32 % PLACES;
        let before = self.asked.get(cx, place)?.unwrap_or_default();
        let asked = match now.saturating_sub(before.since_ns) < SECOND && before.count > 0 {
            true => before,
            false => Asked { since_ns: now, count: 0 },
        };
        if asked.count >= self.most {
            return Ok(false);
        }
        self.asked.set(cx, place, Asked { count: asked.count + 1, ..asked })?;
        Ok(true)
    }

    pub(super) fn objects(&self, into: &mut Vec<std::sync::Arc<dyn braid_nf::state::StateObject>>) {
        braid_nf::Part::objects(&self.asked, into);
    }
}
