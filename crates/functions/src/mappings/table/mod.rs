//! Mappings between inside endpoints and external ports: the state that both directions share.
//!
//! A mapping is one entry of a map, found by its inside endpoint; `ports.rs` finds the entry of an external port. Both
//! change in one transaction, so no reference dangles.
//!
//! A mapping is valid until a time that packets extend. After that its port rests (RFC 6888 REQ-8), and only its owner
//! may have it back; then a tick removes the mapping. Sets that cache a translation check the mapping again before it can
//! have ended. For TCP mappings the live sets are counted too: with the last of them the mapping ends at once, unless
//! flows without a set (they found no room) have used it. A TCP mapping that nobody has answered lives no longer than an
//! opening connection.

pub(crate) mod entry;
pub(super) mod new;
pub(super) mod reclaim;
pub(crate) mod sweep;
pub(super) mod sweep_after_change;

use std::sync::Arc;

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Handle, MapConfig, StateObject, Tx, Vacancy};
use braid_nf::{Findings, Part};

use self::entry::{Entry, NEVER, Packed, Waits};
use self::reclaim::HOSTS;
use super::block_log::Change;
use super::census::Census;
use super::config::Allocation;
use super::endpoint::{Endpoint, Inside, Kept, slot};
use super::fixed::{self, Fixed, Statics};
use super::hosts::Hosts;
use super::pool::Pool;
use super::ports::search_backoff::Pause;
use super::ports::{Ports, row};
use super::roster::Roster;
use super::session::{Heading, Phase};
use crate::config::ConfigError;
use crate::parts::SECOND;
use crate::parts::tables::tallies::Tally;

/// A mapping that is valid now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) inside: Inside,
    pub(crate) external: Endpoint,
    pub(crate) handle: Handle,
    /// The port of the plan that the inside endpoint is behind.
    pub(crate) home: Port,
    pub(crate) ends_ns: u64,
}

impl Mapping {
    /// Whether the mapping is configured.
    pub(crate) fn is_static(&self) -> bool {
        self.ends_ns == NEVER
    }
}

/// How a packet affects the lifetime of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// It must live for at least this time from now on, in nanoseconds.
    Refresh(u64),
    /// No effect: an inbound packet of TCP, or where only outbound ones count (RFC 4787 REQ-6).
    Look,
    /// A TCP RST: the mapping may end after this time, if no other connection uses it (RFC 7857 section 2.2).
    Reset(u64),
}

/// All mappings.
pub(crate) struct Mappings<K> {
    pub(crate) entries: Map<K, Packed>,
    pub(crate) ports: Ports,
    pub(crate) hosts: Hosts,
    pub(crate) census: Census,
    pub(crate) roster: Roster,
    pub(crate) statics: Statics,
    pub(crate) first_port: u16,
    pub(crate) last_port: u16,
    pub(crate) refresh_ns: u64,
    pub(crate) waits: Waits,
    /// Recent fruitless searches for ended mappings: of the table, then of each row of ports.
    pub(crate) searched: Pause,
    /// Recent fruitless searches for ports that hosts have to themselves, if they have any.
    pub(crate) searched_by_hosts: Option<Pause>,
    pub(crate) rest_ns: u64,
}

impl<K: Kept> Mappings<K> {
    pub(crate) fn new(
        builder: &mut StateBuilder,
        (pool, fixed): (&Pool, &[Fixed]),
        waits: Waits,
    ) -> Result<Mappings<K>, ConfigError> {
        let roster = Roster::new(builder, pool)?;
        let capacity = pool.mappings_max.min(pool.ports().saturating_mul(roster.room()).saturating_mul(3));
        let map = MapConfig { name: "mappings".into(), capacity, ..MapConfig::default() };
        let mappings = Mappings {
            entries: Map::new(builder, &map).map_err(|error| ConfigError::state("mappings_max", &error))?,
            ports: Ports::new(builder, roster.room(), pool.first_port, pool.last_port)
                .map_err(|error| ConfigError::state("external", &error))?
                .reserving(fixed::reserved(fixed, &roster)),
            hosts: Hosts::new(builder, (pool, fixed), &roster)?,
            census: Census::new(builder, pool).map_err(|error| ConfigError::state("networks", &error))?,
            searched: Pause::new(builder, "searched", 1 + row(0, roster.room()))
                .map_err(|error| ConfigError::state("external", &error))?,
            searched_by_hosts: (pool.allocation != Allocation::Shared)
                .then(|| Pause::new(builder, "searched_by_hosts", HOSTS))
                .transpose()
                .map_err(|error| ConfigError::state("allocation", &error))?,
            statics: Statics::new(builder, fixed)?,
            roster,
            first_port: pool.first_port,
            last_port: pool.last_port,
            refresh_ns: pool.refresh_ns,
            waits,
            rest_ns: pool.rest_ns,
        };
        builder.together(&["mappings", "ports", "full_ports", "spent_ports", "external", "hosts", "blocks"]);
        Ok(mappings)
    }

    /// Whether port numbers have the same meaning in both.
    pub(crate) fn has_ports_of(&self, other: &Mappings<K>) -> bool {
        (self.first_port, self.last_port) == (other.first_port, other.last_port)
    }

    /// The mapping of an inside endpoint that sends now, on port `home`; it is extended to live for `lives_ns` from now
    /// on. If there is none, the vacancy for a new one.
    #[inline(always)]
    pub(crate) fn outward(
        &self,
        cx: &mut Cx<'_>,
        inside: Inside,
        home: Port,
        lives_ns: u64,
    ) -> Result<Result<Mapping, Vacancy>, Conflict> {
        let (handle, mut entry) = match self.entries.look(cx, &K::of(inside))? {
            Ok((handle, packed)) => (handle, Entry::from(packed)),
            Err(vacancy) => return Ok(Err(vacancy)),
        };
        if self.roster.has_left(entry.address) {
            return self.begin_anew(cx, inside, &entry);
        }
        let now = cx.now();
        let (_, is_prolonged) = entry.prolong(now, lives_ns, &self.waits);
        if entry.home != home || is_prolonged {
            entry.home = home;
            self.entries.update_at(cx, handle, |at| *at = entry.into())?;
        }
        Ok(Ok(self.mapping(inside, handle, &entry)))
    }

    /// Ends a mapping on an address that has left, and returns the vacancy for a new one.
    #[cold]
    fn begin_anew(&self, cx: &mut Cx<'_>, inside: Inside, entry: &Entry) -> Result<Result<Mapping, Vacancy>, Conflict> {
        self.end(cx, inside, entry)?;
        let found = self.entries.look(cx, &K::of(inside))?;
        Ok(found.map(|(handle, packed)| self.mapping(inside, handle, &packed.into())))
    }

    /// The mapping of an external endpoint, if it is valid. Nothing is extended.
    pub(crate) fn inward(&self, cx: &mut Cx<'_>, external: Endpoint) -> Result<Option<Mapping>, Conflict> {
        if !self.gives_out(external.port) {
            return self.inward_of_reserved(cx, external);
        }
        let Some(address) = self.roster.number(external.address) else { return Ok(None) };
        let owner = self.ports.owner(cx, slot(external.protocol), address, external.port)?;
        let Some(owner) = owner else { return self.inward_of_reserved(cx, external) };
        let now = cx.now();
        let entry = self.at(cx, owner)?.filter(|(_, _, entry)| now < entry.ends_ns);
        Ok(entry.map(|(handle, inside, entry)| self.mapping(inside.inside(), handle, &entry)))
    }

    /// Whether a port is one of those that hosts get. Configured mappings may have others, whose owners are in the configuration alone.
    #[inline(always)]
    pub(crate) fn gives_out(&self, port: u16) -> bool {
        (self.first_port..=self.last_port).contains(&port)
    }

    /// The mapping of a port without an owner, if one is configured: for a port that no host gets, or one whose turn has not come yet.
    fn inward_of_reserved(&self, cx: &mut Cx<'_>, external: Endpoint) -> Result<Option<Mapping>, Conflict> {
        self.statics.of_external(external).map_or(Ok(None), |fixed| self.make_at_once(cx, fixed))
    }

    /// The mapping of an inside endpoint, if it is valid. Nothing is extended.
    pub(crate) fn holding(&self, cx: &mut Cx<'_>, inside: Inside) -> Result<Option<Mapping>, Conflict> {
        let now = cx.now();
        let found = self.entries.look(cx, &K::of(inside))?.ok().map(|(handle, packed)| (handle, Entry::from(packed)));
        let holds = |entry: &Entry| now < entry.ends_ns && !self.roster.has_left(entry.address);
        Ok(found.filter(|(_, entry)| holds(entry)).map(|(handle, entry)| self.mapping(inside, handle, &entry)))
    }

    /// The entry of an inside endpoint, ended or not.
    pub(crate) fn handle_of(&self, cx: &mut Cx<'_>, inside: Inside) -> Result<Option<Handle>, Conflict> {
        Ok(self.entries.look(cx, &K::of(inside))?.ok().map(|(handle, _)| handle))
    }

    /// The external endpoint of an inside one, if it has a valid mapping. Nothing is extended.
    pub(crate) fn external_of(&self, cx: &mut Cx<'_>, inside: Inside) -> Result<Option<Endpoint>, Conflict> {
        Ok(self.holding(cx, inside)?.map(|mapping| mapping.external))
    }

    /// The entry with this number, ended or not.
    #[inline(always)]
    pub(crate) fn at(&self, cx: &mut Cx<'_>, index: u32) -> Result<Option<(Handle, K, Entry)>, Conflict> {
        Ok(self.entries.entry_at(cx, index)?.map(|(handle, inside, packed)| (handle, inside, packed.into())))
    }

    /// The same [alone](Alone); `None` also if another worker is just writing it.
    #[inline(always)]
    pub(crate) fn at_alone(&self, alone: Alone<'_>, index: u32) -> Option<(Handle, K, Entry)> {
        let (handle, inside, packed) = self.entries.entry_alone(alone, index)?;
        Some((handle, inside, packed.into()))
    }

    /// Prefetches the entry with this number.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        self.entries.prefetch_at(Handle { index, generation: 0 });
    }

    /// Prefetches what is accessed for an endpoint that sends and may have no mapping yet.
    #[inline(always)]
    pub(crate) fn prefetch_outward(&self, inside: Inside) {
        self.entries.prefetch(&K::of(inside));
        self.hosts.prefetch((&self.ports, &self.roster), inside);
    }

    /// Prefetches the port that a packet for an external endpoint goes to.
    #[inline(always)]
    pub(crate) fn prefetch_inward(&self, external: Endpoint) {
        if let (Some(address), true) = (self.roster.number(external.address), self.gives_out(external.port)) {
            self.ports.prefetch(slot(external.protocol), address, external.port);
        }
    }

    /// The external address with this number.
    #[inline(always)]
    pub(crate) fn address(&self, number: u32) -> [u8; 4] {
        self.roster.address(number)
    }

    fn change<R>(
        &self,
        cx: &mut Cx<'_>,
        handle: Handle,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Result<Option<R>, Conflict> {
        self.entries.update_at(cx, handle, |packed| {
            let mut entry = Entry::from(*packed);
            let result = change(&mut entry);
            *packed = entry.into();
            result
        })
    }

    /// Checks the mapping of a cached translation. Returns when it has to be checked again, and the port of the plan that the
    /// inside endpoint is behind now; or `None` if the mapping has ended.
    pub(crate) fn renew(&self, cx: &mut Cx<'_>, handle: Handle, how: Use) -> Result<Option<(u64, Port)>, Conflict> {
        let now = cx.now();
        let found = self.entries.value_at(cx, handle)?.map(Entry::from);
        let holds = |entry: &Entry| now < entry.ends_ns && !self.roster.has_left(entry.address);
        let Some(mut entry) = found.filter(holds) else {
            return Ok(None);
        };
        let look_ns = match how {
            Use::Look => entry.ends_ns,
            Use::Refresh(lives_ns) => {
                let (lives_ns, is_prolonged) = entry.prolong(now, lives_ns, &self.waits);
                if is_prolonged {
                    self.entries.update_at(cx, handle, |at| *at = entry.into())?;
                }
                entry.ends_ns - lives_ns
            }
            Use::Reset(lives_ns) => {
                if entry.sets <= 2 && entry.ends_ns != NEVER {
                    entry.ends_ns = entry.ends_ns.min(now + lives_ns.max(self.refresh_ns + SECOND));
                    self.entries.update_at(cx, handle, |at| *at = entry.into())?;
                }
                entry.ends_ns
            }
        };
        Ok(Some((look_ns.min(now + self.refresh_ns), entry.home)))
    }

    /// Whether the sets that use mappings of this protocol are counted.
    #[inline(always)]
    pub(crate) fn counts_sets(&self, number: u8) -> bool {
        number == protocol::TCP
    }

    /// Counts a set that uses the mapping from now on, by its protocol, way and phase. From outside it answers the owner.
    pub(crate) fn attach(
        &self,
        cx: &mut Cx<'_>,
        (number, way, phase): (u8, Heading, Phase),
        handle: Handle,
    ) -> Result<(), Conflict> {
        if self.counts_sets(number) {
            let now = cx.now();
            self.change(cx, handle, |entry| {
                entry.attach();
                if way == Heading::Inward {
                    entry.answer(now, phase == Phase::Established, &self.waits);
                }
            })?;
        }
        Ok(())
    }

    /// Counts a set that is gone. With the last counted set the mapping ends.
    pub(crate) fn detach(&self, cx: &mut Cx<'_>, number: u8, handle: Handle) -> Result<(), Conflict> {
        if !self.counts_sets(number) {
            return Ok(());
        }
        let left = self.change(cx, handle, Entry::detach)?;
        if left == Some(0)
            && let Some((_, inside, entry)) = self.at(cx, handle.index)?
            && entry.ends_ns != NEVER
        {
            self.end(cx, inside.inside(), &entry)?;
        }
        Ok(())
    }

    /// Notes that a flow without a set uses the mapping, which must then not end with the last set of others.
    pub(crate) fn use_without_set(&self, cx: &mut Cx<'_>, number: u8, handle: Handle) -> Result<(), Conflict> {
        if self.counts_sets(number)
            && self.entries.value_at(cx, handle)?.map(Entry::from).is_some_and(|entry| entry.counts())
        {
            self.change(cx, handle, Entry::count_no_more)?;
        }
        Ok(())
    }

    /// Reports the log of hosts' blocks, and the mappings of each network.
    pub(crate) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.hosts.report(cx, into)?;
        self.roster.settling.report(cx, into)?;
        self.census.report(cx, into)
    }

    /// Whether a mapping that ended at `ends_ns` has rested long enough.
    pub(crate) fn is_free(&self, now: u64, ends_ns: u64) -> bool {
        ends_ns.saturating_add(self.rest_ns) <= now
    }

    #[cold]
    pub(crate) fn end(&self, cx: &mut Cx<'_>, inside: Inside, entry: &Entry) -> Result<(), Conflict> {
        self.entries.remove(cx, &K::of(inside))?;
        let change = self.give_back(cx, inside, entry)?;
        self.note(cx, change)
    }

    pub(crate) fn note(&self, cx: &mut Cx<'_>, change: Option<Change>) -> Result<(), Conflict> {
        change.map_or(Ok(()), |change| self.hosts.note(cx, &change, self.address(change.address)))
    }

    /// Releases what belongs to an entry; returns the block that its host loses with it, if any.
    pub(crate) fn give_back(&self, tx: &mut Tx, inside: Inside, entry: &Entry) -> Result<Option<Change>, Conflict> {
        if self.gives_out(entry.port) {
            self.ports.set_owner(tx, slot(inside.protocol), entry.address, entry.port, None)?;
        }
        if entry.ends_ns != NEVER {
            self.census.count(tx, inside.network, Tally::ENDED)?;
        }
        if entry.is_known { self.hosts.leave(tx, inside, (entry.address, entry.port)) } else { Ok(None) }
    }

    pub(crate) fn mapping(&self, inside: Inside, handle: Handle, entry: &Entry) -> Mapping {
        let external = self.external(inside.protocol, entry);
        Mapping { inside, external, handle, home: entry.home, ends_ns: entry.ends_ns }
    }

    fn external(&self, number: u8, entry: &Entry) -> Endpoint {
        Endpoint::new(self.address(entry.address), entry.port, number)
    }
}

impl<K: Kept> Part for Mappings<K> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.roster.objects(into);
        self.statics.objects(into);
        self.entries.objects(into);
        self.ports.objects(into);
        self.hosts.objects(into);
        self.census.objects(into);
        self.searched.objects(into);
        self.searched_by_hosts.objects(into);
    }
}
