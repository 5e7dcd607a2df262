//! Filtering: who outside may send to a mapping (RFC 4787 section 5).
//!
//! For every live outward packet set a peer is noted, and counted: with address-dependent filtering several sets share one. Where inbound
//! packets keep mappings alive they hold their peer as well, for as long as they would the mapping. An endpoint-independent filter notes nothing.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, Share, StateObject};

use super::config::Filtering;
use super::endpoint::{Endpoint, Inside};
use super::entry::TICK_BITS;
use crate::config::ConfigError;
use crate::parts::aged;
use crate::parts::sweep::{Over, Sweep, make_room, take_out};

/// An inside endpoint and whom outside it has sent to; port 0 with address-dependent filtering.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Peer {
    inside: Inside,
    remote: Endpoint,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with {}", self.inside, self.remote.ip())
    }
}

/// How a peer is held, in one word: from below how many live sets there are to it, and until when what it sends holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Held(u64);

const SETS_BITS: u32 = 24;
const SETS_MAX: u64 = (1 << SETS_BITS) - 1;

impl Held {
    fn new(sets: u64, until_ns: u64) -> Held {
        Held(sets.min(SETS_MAX) | until_ns.div_ceil(1 << TICK_BITS) << SETS_BITS)
    }

    fn sets(self) -> u64 {
        self.0 & SETS_MAX
    }

    fn until_ns(self) -> u64 {
        self.0 >> SETS_BITS << TICK_BITS
    }

    fn holds(self, now: u64) -> bool {
        self.sets() > 0 || now < self.until_ns()
    }
}

/// For how long inbound packets hold their peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    /// At least, from each on; 0: not at all.
    pub(crate) lives_ns: u64,
    /// How much longer is written, so that few packets write.
    pub(crate) spare_ns: u64,
}

impl Hold {
    fn until_ns(self, now: u64) -> u64 {
        if self.lives_ns == 0 { 0 } else { now + self.lives_ns + self.spare_ns }
    }
}

/// The filter.
pub(crate) struct Filter {
    with_port: bool,
    peers: Option<Map<Peer, Held>>,
}

/// How peers that nobody holds are looked for.
const SWEEP: Sweep = Sweep { every: aged::SWEEP_EVERY, round: Duration::from_secs(5) };
/// Most that leave at once.
const MOST: u32 = 1024;
/// Peers that are looked at at a time where all entries are in use.
const SEARCH: u32 = 16;

/// Nobody holds it at a time.
struct Free(u64);

impl Over<Peer, Held> for Free {
    fn is_over(&self, _: &Peer, held: &Held) -> bool {
        !held.holds(self.0)
    }
}

impl Filter {
    /// Whether both ask the same of those who send in.
    pub(crate) fn is_like(&self, other: &Filter) -> bool {
        (self.with_port, self.peers.is_some()) == (other.with_port, other.peers.is_some())
    }

    /// A filter for as many peers as there may be mappings.
    pub(crate) fn new(
        builder: &mut StateBuilder,
        filtering: Filtering,
        mappings_max: u32,
    ) -> Result<Filter, ConfigError> {
        let with_port = filtering == Filtering::AddressAndPortDependent;
        let map = MapConfig { name: "peers".into(), capacity: mappings_max, ..MapConfig::default() };
        let peers = match filtering {
            Filtering::EndpointIndependent => None,
            _ => Some(Map::new(builder, &map).map_err(|error| ConfigError::state("mappings_max", &error))?),
        };
        Ok(Filter { with_port, peers })
    }

    /// Whether it lets nobody in who was not asked.
    pub(crate) fn is_strict(&self) -> bool {
        self.peers.is_some()
    }

    fn peer(&self, inside: Inside, remote: Endpoint) -> Peer {
        let port = if self.with_port { remote.port } else { 0 };
        Peer { inside, remote: Endpoint::new(remote.address, port, remote.protocol) }
    }

    /// Whether `remote`, which does so now, may send to `inside`.
    pub(crate) fn admits(
        &self,
        cx: &mut Cx<'_>,
        inside: Inside,
        remote: Endpoint,
        hold: Hold,
    ) -> Result<bool, Conflict> {
        let Some(peers) = &self.peers else { return Ok(true) };
        let (peer, now) = (self.peer(inside, remote), cx.now());
        let Some(held) = peers.get(cx, &peer)?.filter(|held| held.holds(now)) else { return Ok(false) };
        if held.until_ns() < now + hold.lives_ns && hold.lives_ns > 0 {
            peers.update(cx, &peer, |held| *held = Held::new(held.sets(), hold.until_ns(now)))?;
        }
        Ok(true)
    }

    /// A set from `inside` to `remote` lives. False if nobody more can be noted.
    pub(crate) fn enter(
        &self,
        cx: &mut Cx<'_>,
        inside: Inside,
        remote: Endpoint,
        hold: Hold,
    ) -> Result<bool, Conflict> {
        let Some(peers) = &self.peers else { return Ok(true) };
        let (peer, until_ns) = (self.peer(inside, remote), hold.until_ns(cx.now()));
        let one_more = |held: &mut Held| *held = Held::new(held.sets() + 1, held.until_ns().max(until_ns));
        if peers.update(cx, &peer, one_more)?.is_some() {
            return Ok(true);
        }
        let enters = |cx: &mut Cx<'_>| Ok(peers.insert(cx, &peer, &Held::new(1, until_ns))? != Inserted::Full);
        Ok(enters(cx)? || (self.makes_room(cx, peers, &peer)? && enters(cx)?))
    }

    /// A set from `inside` to `remote` is gone.
    pub(crate) fn leave(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint) -> Result<(), Conflict> {
        match &self.peers {
            Some(peers) => self.forget(cx, peers, self.peer(inside, remote)),
            None => Ok(()),
        }
    }

    fn forget(&self, cx: &mut Cx<'_>, peers: &Map<Peer, Held>, peer: Peer) -> Result<(), Conflict> {
        let now = cx.now();
        let left = peers.update(cx, &peer, |held| {
            *held = Held::new(held.sets().saturating_sub(1), held.until_ns());
            *held
        })?;
        if left.is_some_and(|held| !held.holds(now)) {
            peers.remove(cx, &peer)?;
        }
        Ok(())
    }

    /// Forgets peers that nobody holds any more, in the piece of a share whose turn it is.
    pub(crate) fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let now = cx.now();
        take_out(cx, peers, SWEEP.piece(now, peers.capacity(), share), MOST, &mut Free(now)).map(drop)
    }

    /// Looks for peers to forget where all entries are in use. True if there were some.
    #[cold]
    fn makes_room(&self, cx: &mut Cx<'_>, peers: &Map<Peer, Held>, peer: &Peer) -> Result<bool, Conflict> {
        let now = cx.now();
        let out =
            |cx: &mut Cx<'_>, among: Range<u32>| take_out(cx, peers, std::iter::once(among), MOST, &mut Free(now));
        make_room(cx, peer, (SEARCH, peers.capacity()), out)
    }
}

impl Part for Filter {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.peers.objects(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_peer_is_held_is_packed_and_unpacked() {
        for (sets, until_ns) in [(0, 0), (1, 300 << TICK_BITS), (SETS_MAX, 1 << 40)] {
            let held = Held::new(sets, until_ns);
            assert_eq!((held.sets(), held.until_ns()), (sets, until_ns));
        }
        assert_eq!(Held::new(SETS_MAX + 1, 0).sets(), SETS_MAX);
        assert!(Held::new(0, 5).holds(4) && Held::new(1, 0).holds(u64::MAX) && !Held::new(0, 0).holds(0));
    }
}
