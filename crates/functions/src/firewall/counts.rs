//! What connections have sent, each way: `ct bytes`, `ct packets`, `ct avgpkt` of nftables.
//!
//! The counts stand in a shared map by the ends of a connection, as its mark does, and only those of connections about which some rule may ask:
//! all others go on without them. Who asks for no counts has no map.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject};

use super::connection::Ends;
use super::fields::{Field, Values};
use super::known::ByEnds;
use super::rules::Rule;
use super::states::State;
use crate::parts::lengths;

/// From who opened it, and from the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Counts {
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// Both ways together, from the opener, from the other end.
const PACKETS: [Field; 3] = [Field::Packets, Field::PacketsOriginal, Field::PacketsReply];
const BYTES: [Field; 3] = [Field::Bytes, Field::BytesOriginal, Field::BytesReply];
const AVERAGE: [Field; 3] = [Field::Average, Field::AverageOriginal, Field::AverageReply];

/// The field that a word of nftables names, of both ways or of one.
pub(super) fn field(name: &str, way: usize) -> Option<Field> {
    let fields = match name {
        "packets" => PACKETS,
        "bytes" => BYTES,
        "avgpkt" => AVERAGE,
        _ => return None,
    };
    fields.get(way).copied()
}

/// Whether a rule asks for counts.
pub(super) fn are_asked(rule: &Rule) -> bool {
    rule.fields.iter().any(|within| is_one(within.field))
}

/// Whether a field is one of them.
pub(super) fn is_one(field: Field) -> bool {
    [PACKETS, BYTES, AVERAGE].iter().any(|fields| fields.contains(&field))
}

impl Counts {
    /// Of the first packet that is counted.
    pub(super) fn of(packet: &Packet<'_>, state: State) -> Counts {
        let mut counts = Counts::default();
        counts.add(packet, state.is_from_opener().unwrap_or(true));
        counts
    }

    fn add(&mut self, packet: &Packet<'_>, from_opener: bool) {
        let from = usize::from(!from_opener);
        self.packets[from] = self.packets[from].saturating_add(1);
        self.bytes[from] = self.bytes[from].saturating_add(lengths::ip_len(packet) as u64);
    }

    /// Puts them where rules look at them.
    pub(super) fn tell(&self, values: &mut Values) {
        let both = |of: [u64; 2]| [of[0].saturating_add(of[1]), of[0], of[1]];
        let (packets, bytes) = (both(self.packets), both(self.bytes));
        for way in 0..3 {
            values.set(PACKETS[way], packets[way]);
            values.set(BYTES[way], bytes[way]);
            values.set(AVERAGE[way], bytes[way].checked_div(packets[way]).unwrap_or(0));
        }
    }
}

/// What is counted of connections.
pub(super) struct Counted(Option<ByEnds<Counts>>);

impl Counted {
    /// `most`: live connections and pings.
    pub(super) fn new(builder: &mut StateBuilder, rules: &[Rule], most: u32) -> Result<Counted, StateError> {
        let is_asked = rules.iter().any(are_asked);
        is_asked.then(|| ByEnds::new(builder, "connection_counts", most)).transpose().map(Counted)
    }

    /// Whether connections are counted at all.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A connection is counted from here on.
    pub(super) fn begin(&self, cx: &mut Cx<'_>, ends: &Ends, counts: &Counts) -> Result<(), Conflict> {
        // There is room for all connections.
        self.0.as_ref().map_or(Ok(()), |map| map.enter(cx, ends, counts).map(drop))
    }

    /// What there is of a connection with a packet of it, which is counted; of what is only about it or not believed nothing is.
    pub(super) fn with(
        &self,
        cx: &mut Cx<'_>,
        ends: &Ends,
        (packet, state): (&Packet<'_>, Option<State>),
    ) -> Result<Option<Counts>, Conflict> {
        let Some(map) = &self.0 else { return Ok(None) };
        let Some(mut counts) = map.of(cx, ends)? else { return Ok(None) };
        if let Some(from_opener) = state.and_then(State::is_from_opener) {
            counts.add(packet, from_opener);
            map.enter(cx, ends, &counts)?;
        }
        Ok(Some(counts))
    }

    /// A connection is over, or is not counted any more.
    pub(super) fn forget(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        self.0.as_ref().map_or(Ok(()), |map| map.leave(cx, ends).map(drop))
    }
}

impl braid_nf::Part for Counted {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.0.iter().for_each(|map| map.objects(into));
    }
}
