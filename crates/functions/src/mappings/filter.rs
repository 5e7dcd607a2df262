//! Filtering: which outside hosts may send to a mapping (RFC 4787 section 5).
//!
//! For every live outward packet set its peer is noted and counted; with address-dependent filtering several sets share
//! one peer. If inbound packets prolong mappings they also hold their peer, for the same time. ICMP queries have no sets, so
//! each holds its peer as long as it holds its mapping. An endpoint-independent filter notes nothing.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::Part;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, Share, StateObject};

use super::config::Filtering;
use super::endpoint::{Endpoint, Inside};
use super::table::entry::TICK_BITS;
use crate::config::ConfigError;
use crate::parts::tables::aged;
use crate::parts::tables::sweep::{Over, Sweep, make_room, take_out};

/// An inside endpoint and a peer that it has sent to; with address-dependent filtering the peer's port is 0, and that of ICMP queries always.
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

/// How long a peer is held, in one word: low bits, the number of live sets to it; above, until when its own packets hold
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct PeerUse(u64);

const SETS_BITS: u32 = 24;
const SETS_MAX: u64 = (1 << SETS_BITS) - 1;

impl PeerUse {
    fn new(sets: u64, until_ns: u64) -> PeerUse {
        PeerUse(sets.min(SETS_MAX) | until_ns.div_ceil(1 << TICK_BITS) << SETS_BITS)
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

/// How long inbound packets hold their peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    /// The minimum time for each packet, in nanoseconds; 0: they do not hold it.
    pub(crate) lives_ns: u64,
    /// Time added when writing, so that few packets have to write.
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
    peers: Option<Map<Peer, PeerUse>>,
}

/// The schedule of the search for peers that are no longer held.
const SWEEP: Sweep = Sweep { every: aged::SWEEP_EVERY, round: Duration::from_secs(5) };
/// The maximum number to remove at once.
const MOST: u32 = 1024;
/// Entries to search at a time when all are in use.
const SEARCH: u32 = 16;

/// Selects peers that are not held at this time.
struct Free(u64);

impl Over<Peer, PeerUse> for Free {
    fn is_over(&self, _: &Peer, held: &PeerUse) -> bool {
        !held.holds(self.0)
    }
}

impl Filter {
    /// Whether both apply the same condition to inbound packets.
    pub(crate) fn is_like(&self, other: &Filter) -> bool {
        (self.with_port, self.peers.is_some()) == (other.with_port, other.peers.is_some())
    }

    /// A filter with room for as many peers as there may be mappings.
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

    /// Whether it only admits known peers.
    pub(crate) fn is_strict(&self) -> bool {
        self.peers.is_some()
    }

    fn peer(&self, inside: Inside, remote: Endpoint) -> Peer {
        // Identifiers of queries are not ports.
        let port = if self.with_port && remote.protocol != protocol::ICMP { remote.port } else { 0 };
        Peer { inside, remote: Endpoint::new(remote.address, port, remote.protocol) }
    }

    /// Whether `remote`, which is sending now, may send to `inside`.
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
            peers.update(cx, &peer, |held| *held = PeerUse::new(held.sets(), hold.until_ns(now)))?;
        }
        Ok(true)
    }

    /// Whether `inside` has sent to `remote`, as far as is known. Nothing is prolonged.
    pub(crate) fn has_sent(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint) -> Result<bool, Conflict> {
        let Some(peers) = &self.peers else { return Ok(true) };
        let (held, now) = (peers.get(cx, &self.peer(inside, remote))?, cx.now());
        Ok(held.is_some_and(|held| held.holds(now)))
    }

    /// Counts a set from `inside` to `remote`. False if there is no room for another peer.
    pub(crate) fn enter(
        &self,
        cx: &mut Cx<'_>,
        inside: Inside,
        remote: Endpoint,
        hold: Hold,
    ) -> Result<bool, Conflict> {
        let Some(peers) = &self.peers else { return Ok(true) };
        let until_ns = hold.until_ns(cx.now());
        self.hold(cx, peers, &self.peer(inside, remote), (1, until_ns))
    }

    /// Holds `remote`, to which `inside` has sent a packet of no set. False if there is no room for another peer.
    pub(crate) fn note(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint, hold: Hold) -> Result<bool, Conflict> {
        let Some(peers) = &self.peers else { return Ok(true) };
        let (peer, now) = (self.peer(inside, remote), cx.now());
        if peers.get(cx, &peer)?.is_some_and(|held| held.until_ns() >= now + hold.lives_ns) {
            return Ok(true);
        }
        self.hold(cx, peers, &peer, (0, hold.until_ns(now)))
    }

    /// Holds a peer for so many more sets, and until then. False if there is no room for it.
    fn hold(
        &self,
        cx: &mut Cx<'_>,
        peers: &Map<Peer, PeerUse>,
        peer: &Peer,
        (sets, until_ns): (u64, u64),
    ) -> Result<bool, Conflict> {
        let longer = |held: &mut PeerUse| *held = PeerUse::new(held.sets() + sets, held.until_ns().max(until_ns));
        if peers.update(cx, peer, longer)?.is_some() {
            return Ok(true);
        }
        let enters = |cx: &mut Cx<'_>| Ok(peers.insert(cx, peer, &PeerUse::new(sets, until_ns))? != Inserted::Full);
        Ok(enters(cx)? || (self.makes_room(cx, peers, peer)? && enters(cx)?))
    }

    /// Stops counting a set from `inside` to `remote`.
    pub(crate) fn leave(&self, cx: &mut Cx<'_>, inside: Inside, remote: Endpoint) -> Result<(), Conflict> {
        match &self.peers {
            Some(peers) => self.forget(cx, peers, self.peer(inside, remote)),
            None => Ok(()),
        }
    }

    fn forget(&self, cx: &mut Cx<'_>, peers: &Map<Peer, PeerUse>, peer: Peer) -> Result<(), Conflict> {
        let now = cx.now();
        let left = peers.update(cx, &peer, |held| {
            *held = PeerUse::new(held.sets().saturating_sub(1), held.until_ns());
            *held
        })?;
        if left.is_some_and(|held| !held.holds(now)) {
            peers.remove(cx, &peer)?;
        }
        Ok(())
    }

    /// Forgets peers that are no longer held, in the piece of the share that is due.
    pub(crate) fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let now = cx.now();
        take_out(cx, peers, SWEEP.piece(now, peers.capacity(), share), MOST, &mut Free(now)).map(drop)
    }

    /// Tries to free entries when all are in use. True if some were freed.
    #[cold]
    fn makes_room(&self, cx: &mut Cx<'_>, peers: &Map<Peer, PeerUse>, peer: &Peer) -> Result<bool, Conflict> {
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
            let held = PeerUse::new(sets, until_ns);
            assert_eq!((held.sets(), held.until_ns()), (sets, until_ns));
        }
        assert_eq!(PeerUse::new(SETS_MAX + 1, 0).sets(), SETS_MAX);
        assert!(PeerUse::new(0, 5).holds(4) && PeerUse::new(1, 0).holds(u64::MAX) && !PeerUse::new(0, 0).holds(0));
    }
}
