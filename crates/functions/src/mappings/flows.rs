//! What all translators do with mappings: make them for packets that go out, find them for packets that come in, keep
//! them while flows live, and decide when a cached translation must check its mapping again.

use std::sync::Arc;
use std::time::Duration;

use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Handle, StateObject};
use braid_nf::{Part, Reason};

use super::config::Filtering;
use super::endpoint::{Endpoint, Inside, Kept};
use super::filter::{Filter, Hold};
use super::fixed::Fixed;
use super::hosts::MAPPING_TABLE_FULL;
use super::pool::Pool;
use super::session::{Heading, Needs, Phase, Timeouts};
use super::table::entry::Waits;
use super::table::sweep::SWEEP_EVERY;
use super::table::{Mapping, Mappings, Use};
use crate::config::ConfigError;
use crate::parts::tables::aged;
use crate::parts::{Fragments, SECOND};

/// A packet from outside to an external endpoint without a mapping, or to a private address.
pub const NO_MAPPING: Reason = Reason("no_mapping");
/// A packet from an outside endpoint to which the mapping's owner has not sent.
pub const FILTERED: Reason = Reason("filtered");

/// How much later the other end may answer a TCP segment, from which time on the connection is idle.
const ANSWER_NS: u64 = 4 * SECOND;

/// One period to sweep mappings, and one for everything else.
pub(crate) const PERIODS: [Duration; 2] = [SWEEP_EVERY, aged::SWEEP_EVERY];
/// The former, which workers divide among them.
pub(crate) const SWEEP: usize = 0;

/// Mappings, who may send to them, and how long they live.
pub(crate) struct Flows<K> {
    pub(crate) mappings: Mappings<K>,
    pub(crate) filter: Filter,
    pub(crate) timeouts: Timeouts,
    /// Whether inbound UDP and ICMP packets prolong mappings too.
    pub(crate) inbound_refresh: bool,
    pub(crate) refresh_ns: u64,
}

/// What a set holds: it is counted for these mappings, if its protocol's sets are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Its protocol, way and phase.
    pub(crate) kind: (u8, Heading, Phase),
    pub(crate) handle: Handle,
    /// Of a hairpin to the owner of that mapping, the sender's.
    pub(crate) sender: Option<Handle>,
}

impl Counted {
    pub(crate) fn handles(&self) -> impl Iterator<Item = Handle> + use<> {
        [Some(self.handle), self.sender].into_iter().flatten()
    }
}

/// Returns an error naming keys that define endpoints, if any of them have changed.
pub(crate) fn kept_under(same: &[(&str, bool)]) -> Result<(), String> {
    match same.iter().find(|(_, same)| !same) {
        Some((keys, _)) => {
            Err(format!("mappings stand for endpoints under {keys}, which cannot change while they are kept"))
        }
        None => Ok(()),
    }
}

impl<K: Kept> Flows<K> {
    /// No mappings, and room for `mappings_max`.
    pub(crate) fn new(
        builder: &mut StateBuilder,
        (pool, fixed): (&Pool, &[Fixed]),
        timeouts: Timeouts,
        filtering: Filtering,
        inbound_refresh: bool,
        mappings_max: u32,
    ) -> Result<Flows<K>, ConfigError> {
        let tcp_ns = |phase| timeouts.after(protocol::TCP, phase) + ANSWER_NS;
        let waits = Waits {
            unanswered_ns: tcp_ns(Phase::Opening),
            established_ns: tcp_ns(Phase::Established),
            spare_ns: pool.refresh_ns,
        };
        let mappings = Mappings::new(builder, (pool, fixed), waits)?;
        let filter = Filter::new(builder, filtering, mappings_max)?;
        Ok(Flows { mappings, filter, timeouts, inbound_refresh, refresh_ns: pool.refresh_ns })
    }

    /// One of its [periods](PERIODS) has ended. What else its function ages, fragments, is swept as well.
    pub(crate) fn tick(&self, cx: &mut Cx<'_>, tick: Tick, fragments: &Fragments) -> Result<(), Conflict> {
        if tick.period == SWEEP {
            return self.mappings.sweep(cx, tick.share);
        }
        self.mappings.carry_on(cx)?;
        self.mappings.settle(cx)?;
        self.filter.sweep(cx, tick.share)?;
        fragments.sweep(cx, tick.share)
    }

    /// The mapping of an inside endpoint that sends by `home`, made if there is none.
    pub(crate) fn outward(
        &self,
        cx: &mut Cx<'_>,
        source: Inside,
        home: Port,
        flags: u8,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        if flags & tcp_flags::RST != 0 {
            // It answers something or ends it, so it neither makes nor prolongs a mapping (RFC 7857 section 7.1).
            return Ok(self.mappings.holding(cx, source)?.ok_or(NO_MAPPING));
        }
        let lives_ns = self.outward_ns(source.protocol, Phase::after(0, flags));
        let claim = self.mappings.expect(source);
        let vacancy = match self.mappings.outward(cx, source, home, lives_ns)? {
            Ok(mapping) => return Ok(Ok(mapping)),
            Err(vacancy) => vacancy,
        };
        // The end of an unknown connection makes no mapping.
        if flags & tcp_flags::FIN != 0 {
            return Ok(Err(NO_MAPPING));
        }
        self.mappings.create(cx, (claim, vacancy), home, lives_ns)
    }

    /// The mapping of a packet to an external endpoint. `is_free`: packets from inside are not filtered.
    pub(crate) fn inward(
        &self,
        cx: &mut Cx<'_>,
        (source, destination): (Endpoint, Endpoint),
        flags: u8,
        is_free: bool,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        let Some(mapping) = self.mappings.inward(cx, destination)? else { return Ok(Err(NO_MAPPING)) };
        // Static mappings are open to everyone.
        if !is_free
            && !mapping.is_static()
            && !self.filter.admits(cx, mapping.inside, source, self.hold(source.protocol))?
        {
            return Ok(Err(FILTERED));
        }
        if let Use::Refresh(lives_ns) = self.use_of(source.protocol, Heading::Inward, Phase::after(0, flags)) {
            self.mappings.renew(cx, mapping.handle, Use::Refresh(lives_ns))?;
        }
        Ok(Ok(mapping))
    }

    /// Notes whom the owner of a mapping asks by an ICMP query, which has no set. False if the filter has no room for that.
    pub(crate) fn asks(&self, cx: &mut Cx<'_>, mapping: &Mapping, remote: Endpoint) -> Result<bool, Conflict> {
        let lives_ns = self.timeouts.after(remote.protocol, Phase::Opening);
        self.filter.note(cx, mapping.inside, remote, Hold { lives_ns, spare_ns: self.refresh_ns })
    }

    /// Whether the owner of a mapping has sent to `remote`, which an ICMP error from anywhere says; true where nothing is filtered.
    pub(crate) fn has_sent(&self, cx: &mut Cx<'_>, mapping: &Mapping, remote: Endpoint) -> Result<bool, Conflict> {
        Ok(mapping.is_static() || self.filter.has_sent(cx, mapping.inside, remote)?)
    }

    /// How long inbound packets hold their sender in the filter: as long as they prolong the mapping.
    pub(crate) fn hold(&self, number: u8) -> Hold {
        match self.use_of(number, Heading::Inward, Phase::Established) {
            Use::Refresh(lives_ns) => Hold { lives_ns, spare_ns: self.refresh_ns },
            _ => Hold::default(),
        }
    }

    /// When a new flow has to check its mapping for the first time.
    pub(crate) fn look_first_ns(&self, now: u64, mapping: &Mapping, number: u8, way: Heading, phase: Phase) -> u64 {
        let lives_ns = match self.use_of(number, way, phase) {
            Use::Refresh(lives_ns) | Use::Reset(lives_ns) => lives_ns,
            Use::Look => 0,
        };
        mapping.ends_ns.saturating_sub(lives_ns).min(now + self.refresh_ns)
    }

    /// Checks the mapping of a known flow. Returns when to check again and where the inside endpoint is, or `None` if the flow
    /// must not continue unchanged.
    pub(crate) fn look(
        &self,
        cx: &mut Cx<'_>,
        handle: Handle,
        number: u8,
        way: Heading,
        phase: u8,
    ) -> Result<Option<(u64, Port)>, Conflict> {
        if way != Heading::Outward && self.filter.is_strict() {
            // The filter has to be asked again.
            return Ok(None);
        }
        self.mappings.renew(cx, handle, self.use_of(number, way, Phase::from_bits(phase)))
    }

    /// Caches a translation with `register`, for a flow from `peer.0` to `peer.1` if it is outward; only a strict filter
    /// asks for the peer. If there is no room the packet is translated anyway, and so will the next one be, unless the
    /// filter has to know when the flow ends.
    pub(crate) fn keep(
        &self,
        cx: &mut Cx<'_>,
        peer: impl FnOnce() -> Option<(Inside, Endpoint)>,
        held: &Counted,
        register: impl FnOnce(&mut Cx<'_>) -> bool,
    ) -> Result<Result<(), Reason>, Conflict> {
        let peer = if self.filter.is_strict() { peer() } else { None };
        let number = held.kind.0;
        if let Some((inside, remote)) = peer
            && !self.filter.enter(cx, inside, remote, self.hold(number))?
        {
            return Ok(Err(MAPPING_TABLE_FULL));
        }
        if register(cx) {
            self.attach(cx, held)?;
        } else if let Some((inside, remote)) = peer {
            self.filter.leave(cx, inside, remote)?;
            return Ok(Err(Reason::SET_TABLE_FULL));
        } else {
            for handle in held.handles() {
                self.mappings.use_without_set(cx, number, handle)?;
            }
        }
        Ok(Ok(()))
    }

    /// Counts the set of a flow for its mappings.
    pub(crate) fn attach(&self, cx: &mut Cx<'_>, held: &Counted) -> Result<(), Conflict> {
        let (number, _, phase) = held.kind;
        self.mappings.attach(cx, held.kind, held.handle)?;
        held.sender.map_or(Ok(()), |sender| self.mappings.attach(cx, (number, Heading::Outward, phase), sender))
    }

    /// A TCP RST between two hosts inside: the mappings of both may end soon.
    pub(crate) fn reset(&self, cx: &mut Cx<'_>, held: &Counted) -> Result<(), Conflict> {
        for handle in held.handles() {
            self.mappings.renew(cx, handle, self.use_of(held.kind.0, Heading::Inward, Phase::Reset))?;
        }
        Ok(())
    }

    /// Forgets a flow that was kept; `peer` is as passed to [`keep`](Self::keep). Its mappings may be gone too.
    pub(crate) fn forget(
        &self,
        cx: &mut Cx<'_>,
        peer: impl FnOnce() -> Option<(Inside, Endpoint)>,
        (number, handles): (u8, impl IntoIterator<Item = Handle>),
    ) -> Result<(), Conflict> {
        if self.filter.is_strict()
            && let Some((inside, remote)) = peer()
        {
            self.filter.leave(cx, inside, remote)?;
        }
        self.detach(cx, number, handles)
    }

    /// Counts the set of a flow no more.
    pub(crate) fn detach(
        &self,
        cx: &mut Cx<'_>,
        number: u8,
        handles: impl IntoIterator<Item = Handle>,
    ) -> Result<(), Conflict> {
        handles.into_iter().try_for_each(|handle| self.mappings.detach(cx, number, handle))
    }

    /// For each kind of session, how much longer than now its mapping must live, in nanoseconds, so that a packet only
    /// has to read it.
    pub(crate) fn needs(&self) -> Needs {
        Needs::new(|number, way, phase| {
            match self.use_of(number, way, phase) {
                // The second packet changes the phase.
                _ if number != protocol::TCP && phase == Phase::Opening => u64::MAX,
                // The filter has to be asked each time.
                _ if way == Heading::Inward && self.filter.is_strict() => u64::MAX,
                Use::Refresh(lives_ns) => lives_ns,
                Use::Look => 0,
                Use::Reset(_) => u64::MAX,
            }
        })
    }

    /// How a packet of a flow affects its mapping's lifetime. For TCP only the owner's packets prolong it: inbound
    /// packets that matter are answered, and anyone may send others.
    pub(crate) fn use_of(&self, number: u8, way: Heading, phase: Phase) -> Use {
        match (number, phase) {
            (protocol::TCP, Phase::Reset) => Use::Reset(self.timeouts.after(number, phase)),
            _ if way == Heading::Outward => Use::Refresh(self.outward_ns(number, phase)),
            _ if number != protocol::TCP && self.inbound_refresh => Use::Refresh(self.timeouts.after(number, phase)),
            _ => Use::Look,
        }
    }

    /// How long an owner's packet prolongs its mapping. After the owner's answer to a SYN, the other end's
    /// acknowledgement may be the last packet for long; if it does not come, the mapping ends with its sets.
    fn outward_ns(&self, number: u8, phase: Phase) -> u64 {
        match (number, phase) {
            (protocol::TCP, Phase::Opening) => self.timeouts.after(number, Phase::Established) + ANSWER_NS,
            (protocol::TCP, _) => self.timeouts.after(number, phase) + ANSWER_NS,
            _ => self.timeouts.after(number, phase),
        }
    }
}

impl<K: Kept> Part for Flows<K> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.mappings.objects(into);
        self.filter.objects(into);
    }
}
