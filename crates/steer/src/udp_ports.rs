//! Whether the ports of UDP packets are hashed where those of TCP and SCTP are.
//!
//! Only the first fragment of a datagram carries ports. Hashed by them, it reaches another worker than the later fragments, which have
//! nothing but addresses, and a function that lets those follow the first one has to hold most of them until it has come. TCP avoids
//! fragments (path MTU discovery, RFC 1191); UDP does not. So where a function follows fragments, UDP is hashed by addresses alone and
//! TCP keeps its spread. Linux drivers such as igb and ixgbe do so by default, for the same reason (`ethtool -n eth0 rx-flow-hash udp4`).
//!
//! Invariant: a packet's protocol decides whether its ports are hashed, so no set may have UDP packets and others with ports. Sets with the
//! protocol number in their key have not; of others it depends on the protocols that they admit (`UdpPorts::keeps`).
//!
//! Not covered: fragments of TCP and SCTP, which functions hold as before.

use std::fmt;

use braid_packet::{FieldId, SetDef};

use crate::fields::Fields;
use crate::nic::Class;
use crate::pattern::{Kinds, Pattern};
use crate::planner::{Locality, Member, SPREAD_BITS_MIN, locality, spread_of};

/// What becomes of the ports of UDP packets in a hash that has ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpPorts {
    /// They are hashed.
    #[default]
    Hashed,
    /// They are left out: all fragments of a datagram have one hash.
    LeftOut,
}

/// Fields that later fragments lack, so that they do not follow the first one even if no ports are hashed.
const BEHIND_PORTS: Fields = Fields::of(&[FieldId::GtpTeid, FieldId::VxlanVni]);

impl UdpPorts {
    /// Whether sets of this pattern stay whole if `hashed` is hashed; `seen` are those of their fields that arrive unchanged.
    pub(crate) fn keeps(self, pattern: &Pattern, seen: Fields, hashed: Fields) -> bool {
        let with_ports = Kinds::of(&[Class::Tcp, Class::Sctp]);
        let is_mixed = pattern.kinds.has(Class::Udp) && pattern.kinds.common(with_ports) != Kinds::of(&[]);
        self == UdpPorts::Hashed || !hashed.has_ports() || seen.has(FieldId::IpProto) || !is_mixed
    }

    /// Whether the key of a set of this definition tells whether its ports are hashed.
    pub(crate) fn is_told_by_keys_of(self, set: &SetDef, hashed: Fields) -> bool {
        let pattern = Pattern::from(set);
        self == UdpPorts::Hashed
            || !hashed.has_ports()
            || pattern.fields.has(FieldId::IpProto)
            || !pattern.kinds.has(Class::Udp)
    }
}

/// What a plan does with the ports of UDP, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpChoice {
    /// What becomes of them.
    pub ports: UdpPorts,
    /// Why.
    pub why: Why,
}

/// Why the ports of UDP are hashed or left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No ports are hashed at all.
    NoPorts,
    /// No function of the chain follows fragments.
    NoneFollows,
    /// These functions follow fragments.
    Followed(Vec<String>),
    /// It was asked for; these functions follow fragments.
    Asked(Vec<String>),
    /// Without its ports hardly anything would be hashed of UDP.
    FewValues,
    /// Sets of these functions would be torn: they may have UDP packets and others, and their key does not say which.
    WouldTear(Vec<String>),
    /// These fields are hashed, which later fragments lack.
    Beyond(Fields),
}

impl UdpChoice {
    /// What to do where `hashed` is hashed for these functions. A wish is granted unless it would tear sets or leave nothing to hash.
    pub(crate) fn of(hashed: Fields, members: &[Member], by_sides: bool, wish: Option<UdpPorts>) -> UdpChoice {
        let names = |which: &dyn Fn(&Member) -> bool| {
            members.iter().filter(|member| which(member)).map(|member| member.name.clone()).collect::<Vec<_>>()
        };
        let place = |member: &Member, ports| locality(member, (hashed, ports), by_sides);
        let torn = names(&|member| {
            place(member, UdpPorts::Hashed) == Locality::Local && place(member, UdpPorts::LeftOut) != Locality::Local
        });
        let followers = names(&|member| member.follows_fragments);
        let beyond = hashed.common(BEHIND_PORTS);
        let hashes = |why| UdpChoice { ports: UdpPorts::Hashed, why };
        match wish {
            _ if !hashed.has_ports() => hashes(Why::NoPorts),
            Some(UdpPorts::Hashed) => hashes(Why::Asked(followers)),
            None if followers.is_empty() => hashes(Why::NoneFollows),
            _ if !torn.is_empty() => hashes(Why::WouldTear(torn)),
            _ if spread_of(hashed.without(Fields::PORTS)) < SPREAD_BITS_MIN => hashes(Why::FewValues),
            Some(UdpPorts::LeftOut) => UdpChoice { ports: UdpPorts::LeftOut, why: Why::Asked(followers) },
            None if !beyond.is_empty() => hashes(Why::Beyond(beyond)),
            None => UdpChoice { ports: UdpPorts::LeftOut, why: Why::Followed(followers) },
        }
    }

    /// Whether UDP is steered by its ports although a function follows fragments, so that it has to hold many of them.
    pub fn holds_fragments(&self) -> bool {
        self.ports == UdpPorts::Hashed
            && match &self.why {
                Why::Asked(followers) => !followers.is_empty(),
                Why::FewValues | Why::WouldTear(_) | Why::Beyond(_) => true,
                Why::NoPorts | Why::NoneFollows | Why::Followed(_) => false,
            }
    }
}

/// A sentence, without its full stop.
impl fmt::Display for UdpChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const APART: &str = "later fragments of a datagram, which have none, reach other workers than its first one and are held until that has come";
        match (&self.why, self.ports) {
            (Why::NoPorts, _) => f.write_str("no ports are hashed, of UDP or of anything else"),
            (Why::NoneFollows, _) => f.write_str("UDP is steered by its ports: no function follows fragments"),
            (Why::Followed(functions), _) => write!(
                f,
                "UDP is steered without its ports, so that all fragments of a datagram reach one worker: {} follow{} fragments",
                functions.join(", "),
                if functions.len() == 1 { "s" } else { "" }
            ),
            (Why::Asked(_), UdpPorts::LeftOut) => {
                f.write_str("UDP is steered without its ports, as asked: all fragments of a datagram reach one worker")
            }
            (Why::Asked(followers), UdpPorts::Hashed) if followers.is_empty() => {
                f.write_str("UDP is steered by its ports, as asked")
            }
            (Why::Asked(_), UdpPorts::Hashed) => write!(f, "UDP is steered by its ports, as asked: {APART}"),
            (Why::FewValues, _) => {
                write!(f, "UDP is steered by its ports, since without them it would reach a few workers only: {APART}")
            }
            (Why::WouldTear(functions), _) => write!(
                f,
                "UDP is steered by its ports, since packet sets of {} have ports but no protocol number (ip.proto), and those \
                 with packets of several protocols would be torn without: {APART}",
                functions.join(", ")
            ),
            (Why::Beyond(fields), _) => {
                write!(f, "UDP is steered by its ports: later fragments have no {fields}, which is hashed too: {APART}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::plan_with;

    fn follower(name: &str, set: &SetDef) -> Member {
        Member { follows_fragments: true, ..Member::new(name, Pattern::from(set)) }
    }

    fn other(name: &str, set: &SetDef) -> Member {
        Member::new(name, Pattern::from(set))
    }

    fn four_tuple() -> SetDef {
        use FieldId::*;
        SetDef::new("four-tuple", &[IpSrc, IpDst, SrcPort, DstPort])
    }

    #[track_caller]
    fn check(chain: &[Member], wish: Option<UdpPorts>, ports: UdpPorts, why: Why) {
        let plan = plan_with(chain, None, wish);
        assert_eq!(plan.chosen.udp, UdpChoice { ports, why }, "{plan}");
    }

    fn names(name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    use UdpPorts::{Hashed, LeftOut};

    #[test]
    fn udp_goes_by_addresses_where_a_function_follows_fragments() {
        let nat = follower("nat", &SetDef::five_tuple());
        check(std::slice::from_ref(&nat), None, LeftOut, Why::Followed(names("nat")));
        check(&[other("flows", &SetDef::five_tuple()), nat.clone()], None, LeftOut, Why::Followed(names("nat")));
        check(&[nat], Some(Hashed), Hashed, Why::Asked(names("nat")));
        check(
            &[follower("firewall", &SetDef::five_tuple().symmetric())],
            None,
            LeftOut,
            Why::Followed(names("firewall")),
        );
    }

    #[test]
    fn udp_goes_by_its_ports_where_no_function_follows_fragments() {
        let flows = [other("flows", &SetDef::five_tuple())];
        check(&flows, None, Hashed, Why::NoneFollows);
        check(&flows, Some(LeftOut), LeftOut, Why::Asked(Vec::new()));
        check(&[], None, Hashed, Why::NoneFollows);
    }

    #[test]
    fn sets_that_mix_protocols_are_not_torn_whoever_asks() {
        let nat = follower("nat", &SetDef::five_tuple());
        let torn = || Why::WouldTear(names("ports"));
        check(&[nat.clone(), other("ports", &four_tuple())], None, Hashed, torn());
        check(&[nat.clone(), other("ports", &four_tuple())], Some(LeftOut), Hashed, torn());
        check(&[nat.clone(), other("ports", &four_tuple().only(&[6, 17]))], None, Hashed, torn());
    }

    #[test]
    fn sets_of_some_protocols_need_no_protocol_number() {
        let nat = follower("nat", &SetDef::five_tuple());
        for protocols in [&[6][..], &[6, 132], &[17], &[17, 1], &[1]] {
            let chain = [nat.clone(), other("ports", &four_tuple().only(protocols))];
            check(&chain, None, LeftOut, Why::Followed(names("nat")));
        }
    }

    #[test]
    fn without_ports_enough_must_be_left_to_hash() {
        let services = SetDef::new("services", &[FieldId::SrcPort, FieldId::DstPort, FieldId::IpProto]);
        check(&[follower("odd", &services)], None, Hashed, Why::FewValues);
        check(&[follower("odd", &services)], Some(LeftOut), Hashed, Why::FewValues);
        check(&[follower("sources", &SetDef::src_ip())], None, Hashed, Why::NoPorts);
    }

    #[test]
    fn what_later_fragments_lack_is_hashed_with_the_ports() {
        let mut tunnels = SetDef::five_tuple();
        tunnels.fields.push(FieldId::GtpTeid);
        let beyond = Why::Beyond(Fields::of(&[FieldId::GtpTeid]));
        check(&[follower("tunnels", &tunnels)], None, Hashed, beyond);
    }

    #[test]
    fn every_reason_is_a_sentence_that_names_the_functions() {
        let plan = plan_with(&[follower("nat", &SetDef::five_tuple())], None, None);
        let text = plan.to_string();
        assert!(text.contains("all fragments of a datagram reach one worker: nat follows fragments"), "{text}");
        let mixed = plan_with(&[follower("odd", &four_tuple())], None, None).chosen.udp;
        assert!(mixed.holds_fragments() && mixed.to_string().contains("packet sets of odd"), "{mixed}");
    }
}
