//! What steering needs to know about a packet-set definition: its fields, its directions, and the kinds of packets in its
//! sets.

use braid_packet::{FieldId, SetDef, protocol};

use crate::fields::Fields;
use crate::nic::Class;

/// A set of kinds of packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

impl Kinds {
    /// All packets.
    pub const ALL: Kinds = Kinds::of(&Class::ALL);
    /// All IP packets.
    pub const IP: Kinds = Kinds::of(&[Class::Tcp, Class::Udp, Class::Sctp, Class::OtherIp, Class::Fragment]);

    /// The set of the given kinds.
    pub const fn of(classes: &[Class]) -> Kinds {
        let (mut bits, mut i) = (0, 0);
        while i < classes.len() {
            bits |= 1 << classes[i] as u8;
            i += 1;
        }
        Kinds(bits)
    }

    /// Whether the kind is in the set.
    pub const fn has(self, class: Class) -> bool {
        self.0 & 1 << class as u8 != 0
    }

    /// The kinds that are in both sets.
    pub const fn common(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// The kinds that are in either set.
    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// The kinds in the set.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |&class| self.has(class))
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The packet sets of one network function, as far as steering is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Fields that are equal in all packets of a set; empty if the function has no packet sets.
    pub fields: Fields,
    /// Whether both directions of a connection are one set.
    pub symmetric: bool,
    /// Kinds of packets that can be in a set.
    pub kinds: Kinds,
}

impl Pattern {
    /// The pattern of a function without packet sets.
    pub const NONE: Pattern = Pattern { fields: Fields::NONE, symmetric: false, kinds: Kinds::of(&[]) };
}

impl From<&SetDef> for Pattern {
    fn from(def: &SetDef) -> Pattern {
        // NICs know no segments. Without them a pattern merges sets with equal addresses, which then stay together.
        let fields: Fields = def.fields.iter().copied().filter(|field| *field != FieldId::Segment).collect();
        let kinds = def.protocols.as_ref().map_or(Kinds::ALL, |numbers| kinds_of(numbers));
        Pattern { fields, symmetric: def.symmetric, kinds: kinds.common(carriers(fields)) }
    }
}

fn kinds_of(protocols: &[u8]) -> Kinds {
    let class = |number: &u8| match *number {
        protocol::TCP => Class::Tcp,
        protocol::UDP => Class::Udp,
        protocol::SCTP => Class::Sctp,
        _ => Class::OtherIp,
    };
    protocols.iter().map(|number| Kinds::of(&[class(number), Class::Fragment])).fold(Kinds::of(&[]), Kinds::and)
}

/// The kinds of packets that can carry all of these fields. Ports and the ICMP identifier exclude no kind: where a packet has none, they are 0
/// in its key.
fn carriers(fields: Fields) -> Kinds {
    const ANY: Fields = Fields::of(&[
        FieldId::InPort,
        FieldId::EthSrc,
        FieldId::EthDst,
        FieldId::EtherType,
        FieldId::VlanId,
        FieldId::MplsLabel,
        FieldId::ArpTarget,
    ]);
    let mut kinds = if fields.is_within(ANY) { Kinds::ALL } else { Kinds::IP };
    if fields.has(FieldId::GtpTeid) || fields.has(FieldId::VxlanVni) {
        kinds = kinds.common(Kinds::of(&[Class::Udp, Class::Fragment]));
    }
    if fields.has(FieldId::ArpTarget) {
        kinds = kinds.common(Kinds::of(&[Class::NonIp]));
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(def: &SetDef, kinds: &[Class]) {
        assert_eq!(Pattern::from(def).kinds, Kinds::of(kinds));
    }

    #[test]
    fn a_definition_takes_in_the_packets_that_carry_its_fields() {
        use Class::*;
        check(&SetDef::five_tuple(), &[Tcp, Udp, Sctp, OtherIp, Fragment]);
        check(&SetDef::five_tuple().only(&[6, 17]), &[Tcp, Udp, Fragment]);
        check(&SetDef::mac_pair(), &Class::ALL);
        check(&SetDef::new("tunnels", &[FieldId::GtpTeid]), &[Udp, Fragment]);
        check(&SetDef::new("pings", &[FieldId::IcmpId]).only(&[1]), &[OtherIp, Fragment]);
        check(&SetDef::new("arp", &[FieldId::ArpTarget]), &[NonIp]);
        let segments = std::sync::Arc::new(braid_packet::Segments::by_tagging([]));
        assert_eq!(Pattern::from(&SetDef::src_ip().within(segments)), Pattern::from(&SetDef::src_ip()));
    }
}
