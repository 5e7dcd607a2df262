//! What connections have sent in each direction: `ct bytes`, `ct packets` and `ct avgpkt` of nftables.
//!
//! Like marks, counters are kept in a shared map by the endpoints of a connection, and only for connections whose
//! counters a rule may test; all others pay nothing. If no rule tests counters there is no map.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject};

use super::ends::Ends;
use super::live_connections::ByEnds;
use super::states::{Sender, State};
use crate::firewall::conditions::fields::{Field, Values};
use crate::firewall::rules::Rule;
use crate::parts::headers::lengths;

/// The counters of a connection: from the opener, and from the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::firewall) struct Counts {
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// The fields for both directions, from the opener, and from the other end.
const PACKETS: [Field; 3] = [Field::Packets, Field::PacketsOriginal, Field::PacketsReply];
const BYTES: [Field; 3] = [Field::Bytes, Field::BytesOriginal, Field::BytesReply];
const AVERAGE: [Field; 3] = [Field::Average, Field::AverageOriginal, Field::AverageReply];

/// The field for a keyword of nftables, for both directions or one.
pub(in crate::firewall) fn field(name: &str, way: usize) -> Option<Field> {
    let fields = match name {
        "packets" => PACKETS,
        "bytes" => BYTES,
        "avgpkt" => AVERAGE,
        _ => return None,
    };
    fields.get(way).copied()
}

/// Whether a rule tests counters.
pub(in crate::firewall) fn are_asked(rule: &Rule) -> bool {
    rule.fields.iter().any(|within| is_one(within.field))
}

/// Whether a field is a counter.
pub(in crate::firewall) fn is_one(field: Field) -> bool {
    [PACKETS, BYTES, AVERAGE].iter().any(|fields| fields.contains(&field))
}

impl Counts {
    /// The counters after the first packet that is counted.
    pub(in crate::firewall) fn of(packet: &Packet<'_>, state: State) -> Counts {
        let mut counts = Counts::default();
        counts.add(packet, state.sender().unwrap_or(Sender::Opener));
        counts
    }

    fn add(&mut self, packet: &Packet<'_>, sender: Sender) {
        let from = sender as usize;
        self.packets[from] = self.packets[from].saturating_add(1);
        self.bytes[from] = self.bytes[from].saturating_add(lengths::ip_len(packet) as u64);
    }

    /// Sets the fields that rules examine.
    pub(in crate::firewall) fn tell(&self, values: &mut Values) {
        let both = |of: [u64; 2]| [of[0].saturating_add(of[1]), of[0], of[1]];
        let (packets, bytes) = (both(self.packets), both(self.bytes));
        for way in 0..3 {
            values.set(PACKETS[way], packets[way]);
            values.set(BYTES[way], bytes[way]);
            values.set(AVERAGE[way], bytes[way].checked_div(packets[way]).unwrap_or(0));
        }
    }
}

/// The counters of all connections that have some.
pub(in crate::firewall) struct Counted(Option<ByEnds<Counts>>);

impl Counted {
    /// `most`: the maximum number of live connections and queries.
    pub(in crate::firewall) fn new(
        builder: &mut StateBuilder,
        rules: &[Rule],
        most: u32,
    ) -> Result<Counted, StateError> {
        let is_asked = rules.iter().any(are_asked);
        is_asked.then(|| ByEnds::new(builder, "connection_counts", most)).transpose().map(Counted)
    }

    /// Whether connections are counted at all.
    #[inline]
    pub(in crate::firewall) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts counting a connection.
    pub(in crate::firewall) fn begin(&self, cx: &mut Cx<'_>, ends: &Ends, counts: &Counts) -> Result<(), Conflict> {
        // There is room for all connections.
        self.0.as_ref().map_or(Ok(()), |map| map.enter(cx, ends, counts).map(drop))
    }

    /// The counters of a connection, after counting this packet. A packet that is only about the connection, or is not
    /// believed, does not count.
    pub(in crate::firewall) fn with(
        &self,
        cx: &mut Cx<'_>,
        ends: &Ends,
        (packet, state): (&Packet<'_>, Option<State>),
    ) -> Result<Option<Counts>, Conflict> {
        let Some(map) = &self.0 else { return Ok(None) };
        let Some(mut counts) = map.of(cx, ends)? else { return Ok(None) };
        if let Some(sender) = state.and_then(State::sender) {
            counts.add(packet, sender);
            map.enter(cx, ends, &counts)?;
        }
        Ok(Some(counts))
    }

    /// Forgets the counters of a connection that is over, or is no longer counted.
    pub(in crate::firewall) fn forget(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        self.0.as_ref().map_or(Ok(()), |map| map.leave(cx, ends).map(drop))
    }
}

impl braid_nf::Part for Counted {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.0.iter().for_each(|map| map.objects(into));
    }
}
