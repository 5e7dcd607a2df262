//! An entry of the neighbour table: what is known of a neighbour, how it is listed, and when it is forgotten.

use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::state::Visit;
use braid_nf::{About, EntryRange, Fate, Port, TableEntry};

use super::held::PLACES;
use super::{Neighbours, REST_NS, TRIES};
use crate::parts::SECOND;
use crate::parts::tables::sweep::Over;

/// A neighbour's address and the interface on which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hop {
    /// The address.
    pub address: IpAddress,
    /// The port.
    pub port: Port,
    /// In keys of waiting packets: the index of the packet.
    pub(super) place: u8,
    zero: u8,
    /// The VLAN on that port; 0: none.
    pub vlan: u16,
    zeros: [u8; 2],
}

impl Hop {
    /// A neighbour at a port, or in a VLAN of it.
    pub fn new(address: IpAddress, (port, vlan): (Port, Option<u16>)) -> Hop {
        Hop { address, port, place: 0, zero: 0, vlan: vlan.unwrap_or(0), zeros: [0; 2] }
    }

    /// Whether both are on one link.
    pub(super) fn is_beside(&self, other: &Hop) -> bool {
        (self.port, self.vlan) == (other.port, other.vlan)
    }

    /// The keys of the packets that may wait for it.
    pub(super) fn places(self) -> impl Iterator<Item = Hop> {
        (0..PLACES).map(move |place| Hop { place, ..self })
    }
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Neighbour {
    /// When it last answered, or was added; for ever, if it is static.
    pub(super) seen_ns: u64,
    pub(super) asked_ns: u64,
    /// Where it is, if it is known.
    pub(super) at: Station,
    /// Unanswered queries.
    pub(super) tries: u8,
    /// 1 if it is known where it is, [`MISSED`] if the neighbour did not answer when it was last asked.
    pub(super) known: u8,
    /// 1 if it has answered a question, or a packet was sent to it. One that only asked for this router makes room.
    pub(super) proved: u8,
    pub(super) unused: [u8; 5],
}

impl Neighbour {
    /// Whether the station with this Ethernet address is silent: it has not answered when it was asked.
    pub(super) fn is_silent_at(&self, mac: [u8; 6]) -> bool {
        self.known == MISSED && self.tries > 0 && self.at.mac == mac
    }

    /// Whether it is to be asked again: it has been asked at least `age_ns` ago, and has not answered.
    pub(super) fn is_doubtful(&self, now_ns: u64, age_ns: u64) -> bool {
        let is_asked = self.known == 1 && self.tries > 0 && self.asked_ns >= self.seen_ns;
        is_asked && now_ns.saturating_sub(self.asked_ns) >= age_ns
    }
}

/// Where a neighbour is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Station {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The port by which it was heard.
    pub port: Port,
}

pub(super) const MISSED: u8 = 2;
pub(super) const FIXED: u64 = u64::MAX;

/// What a neighbour's message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It asks for this router; it is added if it is not known. Of one that is known it proves nothing (RFC 4861 section 7.2.3).
    Asks,
    /// Where it is, in answer to a question; ignored unless this router has asked for it.
    Answers,
    /// Where it is, though nobody has asked: that does not prove that it hears this router (RFC 4861 sections 7.2.5, 7.3.1).
    Announces,
    /// Where it may be, if nothing else is known: an answer without the override flag (RFC 4861 section 7.2.5).
    MayBeHere,
    /// The same, though nobody has asked.
    MayBeHereUnasked,
}

impl Says {
    /// Whether it answers a question of this router, which alone shows that the neighbour hears it (RFC 4861 section 7.3.1).
    pub(super) fn is_answer(self) -> bool {
        matches!(self, Says::Answers | Says::MayBeHere)
    }

    /// Whether it replaces another Ethernet address that is known.
    pub(super) fn overrides(self) -> bool {
        !matches!(self, Says::MayBeHere | Says::MayBeHereUnasked)
    }
}

/// Matches neighbours that have not answered and were asked at least `age_ns` ago, and those that only asked for this router a
/// second ago or longer; except those in `but`.
pub(super) struct Silent<'a> {
    pub(super) now_ns: u64,
    pub(super) age_ns: u64,
    pub(super) but: &'a [Hop],
}

impl Over<Hop, Neighbour> for Silent<'_> {
    fn is_over(&self, hop: &Hop, entry: &Neighbour) -> bool {
        let since = |then_ns: u64| self.now_ns.saturating_sub(then_ns);
        let is_silent = match entry.known {
            1 => entry.proved == 0 && since(entry.seen_ns.max(entry.asked_ns)) >= self.age_ns.max(SECOND),
            _ => since(entry.asked_ns) >= self.age_ns,
        };
        is_silent && !self.but.contains(hop)
    }
}

/// Matches neighbours that have been silent for long or have never answered.
pub(super) struct Old {
    pub(super) now_ns: u64,
    pub(super) lifetime_ns: u64,
    /// How many that had answered were removed.
    pub(super) known: u64,
}

impl Over<Hop, Neighbour> for Old {
    fn is_over(&self, _: &Hop, entry: &Neighbour) -> bool {
        let kept_ns = 2 * REST_NS + if entry.known == 1 { self.lifetime_ns } else { 0 };
        entry.seen_ns.max(entry.asked_ns).saturating_add(kept_ns) < self.now_ns
    }

    fn ended(&mut self, _: &mut Cx<'_>, _: &Hop, entry: &Neighbour) -> Result<(), Conflict> {
        self.known += u64::from(entry.known == 1);
        Ok(())
    }
}

impl Neighbours {
    /// Tells of the neighbours in `range`, and forgets those that are to end; returns where to go on.
    /// Packets that wait for one have it asked for again.
    pub fn list(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let (now, mut forgotten) = (cx.now(), 0);
        let next = self.table.for_each(cx, range.first, range.count, |_, hop, entry| {
            match tell(self.shown(hop, entry, now)) {
                Fate::Keep => Ok(Visit::Keep),
                Fate::End => {
                    forgotten += u64::from(entry.known != 0);
                    Ok(Visit::Remove)
                }
            }
        })?;
        if forgotten > 0 {
            self.changes.update(cx, 0, |changes| *changes += forgotten)?;
        }
        Ok(next)
    }

    fn shown(&self, hop: &Hop, entry: &Neighbour, now: u64) -> TableEntry {
        let is_known = entry.known == 1;
        let left_ns = entry.seen_ns.saturating_add(self.lifetime_ns).saturating_sub(now);
        let detail = match (is_known, entry.tries) {
            (true, _) if entry.seen_ns == FIXED => "static".to_owned(),
            (true, _) if left_ns > 0 => String::new(),
            (true, _) => "to be asked again".to_owned(),
            (false, tries) if tries >= TRIES => "silent".to_owned(),
            (false, tries) => format!("asked {tries} of {TRIES} times"),
        };
        TableEntry {
            kind: "neighbour",
            about: About::OnLink {
                address: Some(hop.address),
                mac: is_known.then_some(MacAddress(entry.at.mac)),
                vlan: Some(hop.vlan).filter(|vlan| *vlan != 0),
                ports: vec![if is_known { entry.at.port } else { hop.port }],
            },
            detail,
            left_ns: (is_known && entry.seen_ns != FIXED && left_ns > 0).then_some(left_ns),
            is_configured: entry.seen_ns == FIXED,
        }
    }
}
