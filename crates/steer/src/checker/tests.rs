//! Partial misfits, one NIC and one set definition at a time.

use braid_packet::FieldId::*;
use braid_packet::SetDef;

use super::*;
use crate::nic::find;
use crate::pattern::Kinds;
use crate::toeplitz::Toeplitz;

const FIVE_TUPLE: &[FieldId] = &[IpSrc, IpDst, IpProto, SrcPort, DstPort];
const NO_FRAGMENTS: Kinds = Kinds::of(&[Class::Tcp, Class::Udp, Class::Sctp, Class::OtherIp, Class::NonIp]);

fn one_way(fields: &[FieldId], kinds: Kinds) -> Pattern {
    let pattern = Pattern::from(&SetDef::new("a set", fields));
    Pattern { kinds: pattern.kinds.common(kinds), ..pattern }
}

fn both_ways(fields: &[FieldId], kinds: Kinds) -> Pattern {
    Pattern { symmetric: true, ..one_way(fields, kinds) }
}

fn verdict(pattern: Pattern, nic: &str) -> Verdict {
    check(&pattern, find(nic).unwrap(), UdpPorts::Hashed)
}

fn of(verdict: &Verdict, class: Class) -> &Fit {
    &verdict.findings.iter().find(|finding| finding.classes.contains(&class)).unwrap().fit
}

#[test]
fn flows_of_tcp_fit_everywhere_but_without_hardware() {
    let flows = one_way(FIVE_TUPLE, Kinds::of(&[Class::Tcp]));
    for nic in ["mlx5", "ice", "i40e", "ixgbe", "ena", "virtio"] {
        assert!(verdict(flows, nic).fits(), "{}", verdict(flows, nic));
    }
    assert!(!verdict(flows, "veth").fits());
}

#[test]
fn ports_of_sctp_are_missing_where_only_addresses_are_hashed() {
    let flows = verdict(one_way(FIVE_TUPLE, NO_FRAGMENTS), "ixgbe");
    assert_eq!(of(&flows, Class::Tcp), &Fit::Whole { fields: Fields::FOUR_TUPLE });
    assert_eq!(of(&flows, Class::Sctp), &Fit::Coarser { fields: Fields::ADDRESSES, missing: Fields::PORTS });
    assert!(flows.fits());
    assert_eq!(
        of(&verdict(one_way(FIVE_TUPLE, NO_FRAGMENTS), "e810"), Class::Sctp),
        &Fit::Whole { fields: Fields::FOUR_TUPLE }
    );
}

#[test]
fn without_the_protocol_all_kinds_are_hashed_alike() {
    // A set of one address pair and two ports may then contain TCP and SCTP: both are hashed by addresses, although TCP allows more.
    let flows = verdict(one_way(&[IpSrc, IpDst, SrcPort, DstPort], Kinds::of(&[Class::Tcp, Class::Sctp])), "mlx5");
    assert_eq!(of(&flows, Class::Tcp), &Fit::Coarser { fields: Fields::ADDRESSES, missing: Fields::PORTS });
}

#[test]
fn first_fragments_leave_the_queue_of_their_ports() {
    let flows = verdict(one_way(FIVE_TUPLE, Kinds::ALL), "e810");
    assert!(flows.fragments_torn == [Class::Tcp, Class::Udp, Class::Sctp] && !flows.fits());
    assert!(flows.to_string().contains("IP fragments of TCP, UDP, SCTP: NO"), "{flows}");
    let pairs = verdict(one_way(&[IpSrc, IpDst], Kinds::ALL), "e810");
    assert!(pairs.fragments_torn.is_empty() && pairs.fits(), "{pairs}");
}

#[test]
fn without_its_ports_udp_stays_whole_in_fragments() {
    for nic in ["mlx5", "ice", "i40e", "ixgbe", "ena", "virtio"] {
        let flows = check(&one_way(FIVE_TUPLE, Kinds::IP), find(nic).unwrap(), UdpPorts::LeftOut);
        assert_eq!(of(&flows, Class::Udp), &Fit::Whole { fields: Fields::ADDRESSES }, "{flows}");
        assert_eq!(of(&flows, Class::Tcp), &Fit::Whole { fields: Fields::FOUR_TUPLE }, "{flows}");
        assert!(!flows.fragments_torn.contains(&Class::Udp) && flows.fragments_torn.contains(&Class::Tcp), "{flows}");
    }
}

#[test]
fn a_destination_alone_needs_a_key_on_old_hardware() {
    let policer = one_way(&[IpDst], NO_FRAGMENTS);
    assert!(verdict(policer, "mlx5").fits());
    assert!(verdict(policer, "x710").fits());
    let old = verdict(policer, "82599");
    let Fit::ByKey { hashed, seen, key, .. } = of(&old, Class::Udp) else { panic!("{old}") };
    assert_eq!((*hashed, *seen), (Fields::ADDRESSES, Fields::of(&[IpDst])));
    let hash = Toeplitz::new(key);
    let entry = |src: u8, dst: u8| hash.hash(&[10, src, 0, src, 192, 0, 2, dst]) & 127;
    assert!((0..=255).all(|src| entry(src, 9) == entry(0, 9)), "the source has no influence");
    assert!((0..=255).any(|dst| entry(1, dst) != entry(1, 0)), "the destination has");
}

#[test]
fn replies_follow_where_a_mode_or_a_key_makes_the_hash_symmetric() {
    let firewall = both_ways(FIVE_TUPLE, Kinds::of(&[Class::Tcp, Class::Udp]));
    assert!(verdict(firewall, "e810").symmetric_key.is_none());
    let old = verdict(firewall, "x540");
    assert!(old.fits() && old.symmetric_key == Some(Key::symmetric(40)), "{old}");
}

#[test]
fn tunnel_ids_are_named_where_they_cannot_be_hashed() {
    let gtp = one_way(&[IpSrc, GtpTeid], Kinds::of(&[Class::Udp]));
    assert!(matches!(of(&verdict(gtp, "e810"), Class::Udp), Fit::Whole { .. }));
    assert_eq!(verdict(gtp, "mlx5").missing(), Fields::of(&[GtpTeid]));
    let vxlan = one_way(&[VxlanVni], Kinds::of(&[Class::Udp]));
    assert!(
        matches!(of(&verdict(vxlan, "e810"), Class::Udp), Fit::Torn { missing, .. } if *missing == Fields::of(&[VxlanVni]))
    );
}

#[test]
fn macs_are_hashed_by_intel_only() {
    let bridge = one_way(&[EthSrc, EthDst], NO_FRAGMENTS);
    assert!(verdict(bridge, "x710").fits());
    assert!(!verdict(bridge, "mlx5").fits());
    assert!(!verdict(bridge, "ena").fits(), "only for what is not IP");
}

#[test]
fn every_verdict_names_its_missing_fields() {
    for nic in &crate::nic::NICS {
        for fields in [FIVE_TUPLE, &[IpDst], &[EthSrc], &[MplsLabel, IpSrc], &[VxlanVni], &[InPort]] {
            let verdict = check(&one_way(fields, Kinds::ALL), nic, UdpPorts::Hashed);
            let text = verdict.to_string();
            assert!(verdict.missing().iter().all(|field| text.contains(field.name())), "{text}");
        }
    }
}
