//! Protocols without ports (GRE, ESP, IP in IP), and those whose ports cannot be changed here (SCTP, UDP-Lite, DCCP), of
//! hosts that share an external address: translated by their addresses alone, as Linux and VPP do.
//!
//! The answer has nothing but its addresses to say whom it is for. So in one protocol an external address belongs to one
//! host for each remote address, as long as packets go out: a second host that sends to the same remote address gets another
//! external address, if pooling allows, or is refused and told.
//!
//! There are no packet sets: each packet looks up its two ends in a table that remembers every translation twice, under the
//! inside and under the external address. Both entries are written in one transaction, with the same time. All pieces of a
//! datagram have these addresses, so none waits for another.
//!
//! A host may have so many translations, `portless_per_host`. One that nobody has answered lives no longer than an opening TCP connection.
//!
//! Not translated is AH, whose checksum covers the addresses (RFC 4302 section 3.3.3.1.1).

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Share, StateObject};
use braid_nf::{About, EntryRange, Fate, Part, TableEntry};

use super::Nat;
use super::config::Config;
use super::find::{Course, Found, NOT_TRANSLATABLE};
use super::one_to_one::Owner;
use super::portless_quota::{Host, Quota};
use super::rewrite::Rewrite;
use crate::config::{ConfigError, idle_ns};
use crate::mappings::endpoint::{Endpoint, Inside, Inside4, NETWORK_MAX, is_told_by_port};
use crate::mappings::flows::NO_MAPPING;
use crate::mappings::hosts::{MAPPING_TABLE_FULL, PORT_QUOTA};
use crate::mappings::networks::Behind;
use crate::mappings::table::Mappings;
use crate::parts::Aged;
use crate::parts::tables::aged::Stamp;

/// Another host sends in this protocol to the same remote address, by every external address that the host may have.
pub const NO_FREE_ADDRESS: Reason = Reason("no_free_address");

/// The place of the network in a key that has an external address.
const EXTERNAL: u16 = u16::MAX;
const _: () = assert!(NETWORK_MAX < EXTERNAL);

/// One end here, inside or external, and the remote end.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ends {
    address: [u8; 4],
    remote: [u8; 4],
    /// The network of an inside address, else [`EXTERNAL`].
    network: u16,
    protocol: u8,
    zero: u8,
}

impl Ends {
    fn of_inside(inside: Inside, remote: [u8; 4]) -> Ends {
        let address = inside.address.v4().unwrap_or_default();
        Ends { address, remote, network: inside.network, protocol: inside.protocol, zero: 0 }
    }

    /// The host that an inside address belongs to.
    fn host(&self) -> Host {
        Host { address: self.address, network: self.network }
    }

    fn of_external(address: [u8; 4], remote: [u8; 4], protocol: u8) -> Ends {
        Ends { address, remote, network: EXTERNAL, protocol, zero: 0 }
    }
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [here, there] = [self.address, self.remote].map(IpAddress::from_v4);
        write!(f, "protocol {} of {here} with {there}", self.protocol)
    }
}

/// What the address of a key is translated to.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Other {
    /// When it was used last, or up to `refresh_ms` before.
    seen_ns: u64,
    address: [u8; 4],
    /// The network of the inside address.
    network: u16,
    /// The port behind which it is.
    home: Port,
    /// By how much less than others it lives, because nobody has answered.
    cut_ns: u64,
}

impl From<Other> for Owner {
    /// Of the entry of an external address.
    fn from(Other { address, network, home, .. }: Other) -> Owner {
        Owner { address, network, home }
    }
}

impl Stamp for Other {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }

    fn lives_ns(&self, most_ns: u64) -> u64 {
        most_ns.saturating_sub(self.cut_ns)
    }
}

/// All translations by addresses.
pub(super) struct Portless {
    table: Aged<Ends, Other>,
    quota: Option<Quota>,
    refresh_ns: u64,
    inbound_refresh: bool,
    /// By how much less a translation lives that nobody has answered.
    cut_ns: u64,
}

impl Portless {
    /// No translations; `unanswered_ns`: how long one lives at most that nobody has answered.
    pub(super) fn new(
        builder: &mut StateBuilder,
        config: &Config,
        (refresh_ns, unanswered_ns): (u64, u64),
    ) -> Result<Portless, ConfigError> {
        let idle_ns = idle_ns("portless_s", config.portless_s)?;
        let (lives_ns, cut_ns) = (idle_ns + refresh_ns, idle_ns.saturating_sub(unanswered_ns));
        // Each translation has two entries.
        let room = config.portless_max.saturating_mul(2);
        let table = Aged::new(builder, "portless", room, lives_ns);
        let table = table.map_err(|error| ConfigError::state("portless_max", &error))?;
        let quota = Quota::new(builder, config).map_err(|error| ConfigError::state("portless_max", &error))?;
        Ok(Portless { table, quota, refresh_ns, inbound_refresh: config.inbound_refresh, cut_ns })
    }

    /// The external address from which an inside host sends to a remote one; it gets one if it has none.
    fn outward(
        &self,
        cx: &mut Cx<'_>,
        mappings: &Mappings<Inside4>,
        (inside, home): (Inside, Port),
        remote: [u8; 4],
    ) -> Result<Result<[u8; 4], Reason>, Conflict> {
        let here = Ends::of_inside(inside, remote);
        let known = self.table.get(cx, &here)?;
        let Some(known) = known.filter(|known| mappings.roster.number(known.address).is_some()) else {
            return self.begin(cx, mappings, (inside, home), remote);
        };
        if known.home != home || self.is_due(cx, &known) {
            self.note(cx, here, Other { seen_ns: cx.now(), home, ..known })?;
        }
        Ok(Ok(known.address))
    }

    /// The inside host to which a remote one sends; none if no host has sent to it by this external address.
    fn inward(
        &self,
        cx: &mut Cx<'_>,
        (external, remote): ([u8; 4], [u8; 4]),
        number: u8,
    ) -> Result<Option<Owner>, Conflict> {
        let Some(owner) = self.owner(cx, (external, remote), number)? else { return Ok(None) };
        let is_first = owner.cut_ns > 0;
        let refreshes = self.inbound_refresh && (is_first || self.is_due(cx, &owner));
        if is_first || refreshes {
            let inside = Inside::new(owner.network, IpAddress::from_v4(owner.address), 0, number);
            let seen_ns = if refreshes { cx.now() } else { owner.seen_ns };
            self.note(cx, Ends::of_inside(inside, remote), Other { seen_ns, address: external, cut_ns: 0, ..owner })?;
        }
        Ok(Some(owner.into()))
    }

    fn owner(
        &self,
        cx: &mut Cx<'_>,
        (external, remote): ([u8; 4], [u8; 4]),
        number: u8,
    ) -> Result<Option<Other>, Conflict> {
        if !is_translatable(number) {
            return Ok(None);
        }
        self.table.get(cx, &Ends::of_external(external, remote, number))
    }

    /// Whether the time of an entry has to be written again.
    fn is_due(&self, cx: &Cx<'_>, known: &Other) -> bool {
        cx.now().saturating_sub(known.seen_ns) >= self.refresh_ns
    }

    /// Writes both entries of a translation, of which one is from an inside address. False if there is no room.
    fn note(&self, cx: &mut Cx<'_>, here: Ends, other: Other) -> Result<bool, Conflict> {
        if !self.table.insert_telling(cx, &here, &other, |cx, gone| self.uncount(cx, gone))? {
            return Ok(false);
        }
        let external = Ends::of_external(other.address, here.remote, here.protocol);
        let other = Other { address: here.address, ..other };
        if self.table.insert_telling(cx, &external, &other, |cx, gone| self.uncount(cx, gone))? {
            return Ok(true);
        }
        self.table.remove(cx, &here)?;
        Ok(false)
    }

    /// Counts a translation that is about to be noted, unless it is an old one that has not been removed. False if the host has as many as it
    /// may.
    fn count(&self, cx: &mut Cx<'_>, here: &Ends) -> Result<bool, Conflict> {
        match &self.quota {
            Some(quota) if !self.table.has(cx, here)? => quota.enter(cx, here.host()),
            _ => Ok(true),
        }
    }

    /// Stops counting a translation that is gone. Each has two entries, of which that of the inside address counts.
    fn uncount(&self, cx: &mut Cx<'_>, gone: &Ends) -> Result<(), Conflict> {
        match &self.quota {
            Some(quota) if gone.network != EXTERNAL => quota.leave(cx, gone.host()),
            _ => Ok(()),
        }
    }

    #[cold]
    fn begin(
        &self,
        cx: &mut Cx<'_>,
        mappings: &Mappings<Inside4>,
        (inside, home): (Inside, Port),
        remote: [u8; 4],
    ) -> Result<Result<[u8; 4], Reason>, Conflict> {
        let here = Ends::of_inside(inside, remote);
        for number in mappings.hosts.addresses(cx, &mappings.roster, inside)? {
            let address = mappings.address(number);
            let owner = self.owner(cx, (address, remote), inside.protocol)?;
            if owner.is_some_and(|owner| (owner.address, owner.network) != (here.address, here.network)) {
                continue;
            }
            let other = Other { seen_ns: cx.now(), address, network: inside.network, home, cut_ns: self.cut_ns };
            if !self.count(cx, &here)? {
                return Ok(Err(PORT_QUOTA));
            }
            if self.note(cx, here, other)? {
                return Ok(Ok(address));
            }
            self.uncount(cx, &here)?;
            return Ok(Err(MAPPING_TABLE_FULL));
        }
        Ok(Err(NO_FREE_ADDRESS))
    }

    /// The most entries of its table.
    pub(super) fn capacity(&self) -> u32 {
        self.table.capacity()
    }

    /// Tells of the entries in `range`, and ends those that are to end; returns where to go on.
    pub(super) fn list(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        name_of: impl Fn(u16) -> Option<String>,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let told = |ends: &Ends, other: &Other, left_ns: u64| {
            if ends.network == EXTERNAL {
                return Fate::Keep;
            }
            let [inside, external, remote] = [ends.address, other.address, ends.remote].map(IpAddress::from_v4);
            let network = name_of(ends.network).map_or_else(String::new, |name| format!("{name}, "));
            tell(TableEntry {
                kind: "mapping",
                about: About::Traffic { protocol: ends.protocol, ends: [(inside, 0), (external, 0)] },
                detail: format!("{network}by addresses, with {remote}"),
                left_ns: Some(left_ns),
                is_configured: false,
            })
        };
        self.table.list(cx, range, told, |cx, ends, other| {
            self.uncount(cx, ends)?;
            self.table.remove(cx, &Ends::of_external(other.address, ends.remote, ends.protocol)).map(drop)
        })
    }

    /// Forgets translations that have ended.
    pub(super) fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.table.sweep_telling(cx, share, |cx, gone| self.uncount(cx, gone))
    }
}

/// Whether packets of a protocol that has no ports still make sense with another address.
fn is_translatable(number: u8) -> bool {
    number != protocol::AH && !is_told_by_port(number)
}

impl Nat {
    /// Translates a packet of a protocol without ports at those ends that hosts share. What becomes of an end that is a host's
    /// own address, the rewrite says already.
    #[cold]
    #[inline(never)]
    pub(super) fn find_portless(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        ends: ([u8; 4], [u8; 4]),
        course: Course,
        mut rewrite: Rewrite,
    ) -> Result<Found, Conflict> {
        Ok(match self.portless_ends(cx, packet, ends, course, &mut rewrite)? {
            Ok(()) => Found::Once(rewrite),
            Err(reason @ (NO_MAPPING | NOT_TRANSLATABLE)) => Found::No(reason),
            Err(reason) => Found::Refused(reason),
        })
    }

    /// Adds to a rewrite what becomes of the ends that hosts share.
    fn portless_ends(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (source, destination): ([u8; 4], [u8; 4]),
        course: Course,
        rewrite: &mut Rewrite,
    ) -> Result<Result<(), Reason>, Conflict> {
        let number = packet.protocol();
        if !is_translatable(number) {
            return Ok(Err(NOT_TRANSLATABLE));
        }
        if course.inward {
            // A hairpin comes from the external address of its sender, by which the other host has to know it.
            let from = match rewrite.source {
                Some(own) => own.address,
                None if course.outward => return Ok(Err(NO_MAPPING)),
                None => source,
            };
            let Some(owner) = self.portless.inward(cx, (destination, from), number)? else {
                return Ok(Err(NO_MAPPING));
            };
            rewrite.destination = Some(Endpoint::new(owner.address, 0, number));
            (rewrite.to, rewrite.behind) = (owner.home, Behind::Network(owner.network));
        }
        if course.outward {
            let inside = self.settings.inside(packet, Endpoint::new(source, 0, number));
            match self.portless.outward(cx, &self.flows.mappings, (inside, packet.port()), destination)? {
                Ok(address) => rewrite.source = Some(Endpoint::new(address, 0, number)),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(()))
    }

    /// Whom a quoted packet of such a protocol, that has gone out, came from.
    pub(super) fn portless_sender(
        &self,
        cx: &mut Cx<'_>,
        (source, destination): (Endpoint, Endpoint),
    ) -> Result<Option<Owner>, Conflict> {
        let owner = self.portless.owner(cx, (source.address, destination.address), source.protocol)?;
        Ok(owner.map(Owner::from))
    }

    /// By which external address an inside host was reached that a quoted packet of such a protocol, from `remote`, went to.
    pub(super) fn portless_external(
        &self,
        cx: &mut Cx<'_>,
        inside: Inside,
        remote: Endpoint,
    ) -> Result<Option<Endpoint>, Conflict> {
        let known = self.portless.table.get(cx, &Ends::of_inside(inside, remote.address))?;
        Ok(known.map(|known| Endpoint::new(known.address, 0, inside.protocol)))
    }
}

impl Part for Portless {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.quota.objects(into);
    }
}
