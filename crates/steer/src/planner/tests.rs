//! The chains of Maestro and NFOS, and what the planner must say of them.

use braid_packet::FieldId::{self, *};

use super::*;
use crate::pattern::Kinds;

const FIVE_TUPLE: &[FieldId] = &[IpSrc, IpDst, IpProto, SrcPort, DstPort];

fn one_way(name: &str, fields: &[FieldId]) -> Member {
    let pattern = Pattern { fields: Fields::of(fields), symmetric: false, kinds: Kinds::ALL };
    Member::new(name, pattern)
}

fn both_ways(name: &str, fields: &[FieldId]) -> Member {
    let mut member = one_way(name, fields);
    member.pattern.symmetric = true;
    member
}

/// Checks which fields are hashed, whether symmetrically, and which functions are not local.
fn check(chain: &[Member], fields: &[FieldId], symmetric: bool, not_local: &[&str]) {
    let plan = plan(chain);
    assert_eq!((plan.chosen.fields, plan.chosen.symmetric), (Fields::of(fields), symmetric), "{plan}");
    let torn = |outcome: &&Outcome| matches!(outcome.locality, Locality::NotLocal { .. });
    let torn: Vec<&str> = plan.chosen.outcomes.iter().filter(torn).map(|outcome| outcome.name.as_str()).collect();
    assert_eq!(torn, not_local, "{plan}");
}

#[test]
fn a_firewall_hashes_its_five_tuple_symmetrically() {
    check(&[both_ways("firewall", FIVE_TUPLE)], FIVE_TUPLE, true, &[]);
}

#[test]
fn a_policer_hashes_the_destination() {
    check(&[one_way("policer", &[IpDst])], &[IpDst], false, &[]);
}

#[test]
fn a_five_tuple_and_a_source_share_the_source() {
    check(&[one_way("flow_counter", FIVE_TUPLE), one_way("source_counter", &[IpSrc])], &[IpSrc], false, &[]);
}

#[test]
fn sources_and_destinations_have_nothing_in_common() {
    let plan = plan(&[one_way("by_source", &[IpSrc]), one_way("by_destination", &[IpDst])]);
    assert_eq!(plan.chosen.local(), 1);
    assert_eq!(plan.alternatives.len(), 1, "the other choice is offered: {plan}");
}

#[test]
fn a_firewall_before_a_policer_keeps_one_of_the_two() {
    // {ip dst} keeps the policer, the five-tuple keeps the firewall; nothing keeps both, so the richer hash wins.
    check(&[both_ways("firewall", FIVE_TUPLE), one_way("policer", &[IpDst])], FIVE_TUPLE, true, &["policer"]);
}

#[test]
fn functions_of_one_key_share_it() {
    let chain = [one_way("flow_counter", FIVE_TUPLE), one_way("limiter", FIVE_TUPLE), one_way("balancer", FIVE_TUPLE)];
    check(&chain, FIVE_TUPLE, false, &[]);
}

#[test]
fn a_one_way_set_follows_a_symmetric_neighbour() {
    check(&[one_way("flow_counter", FIVE_TUPLE), both_ways("firewall", FIVE_TUPLE)], FIVE_TUPLE, true, &[]);
}

#[test]
fn the_address_pair_serves_sessions_and_flows() {
    let chain = [both_ways("pairs", &[IpSrc, IpDst]), one_way("flow_counter", FIVE_TUPLE)];
    check(&chain, &[IpSrc, IpDst], true, &[]);
}

#[test]
fn the_majority_stays_local() {
    let chain = [
        one_way("flows", FIVE_TUPLE),
        one_way("sources", &[IpSrc]),
        one_way("destinations", &[IpDst]),
        one_way("scan", &[IpSrc, DstPort]),
    ];
    check(&chain, &[IpSrc], false, &["destinations"]);
}

#[test]
fn a_hash_of_the_protocol_alone_is_no_hash() {
    let chain = [one_way("flows", FIVE_TUPLE), one_way("per_protocol", &[IpProto])];
    check(&chain, FIVE_TUPLE, false, &["per_protocol"]);
}

#[test]
fn a_chain_without_sets_spreads_by_connection() {
    check(&[one_way("forward", &[])], &[IpSrc, IpDst, SrcPort, DstPort], false, &[]);
    check(&[], &[IpSrc, IpDst, SrcPort, DstPort], false, &[]);
}

#[test]
fn a_symmetric_set_of_one_address_cannot_be_hashed() {
    // Sources of one direction are destinations of the other: nothing is the same in both.
    let plan = plan(&[both_ways("odd", &[IpSrc])]);
    assert_eq!(plan.chosen.local(), 0);
}

/// A chain in which packets from outside meet the translator first, so the firewall sees them with another inside end.
fn gateway() -> [Member; 2] {
    let mut firewall = both_ways("firewall", FIVE_TUPLE);
    firewall.changed.from_outside = Fields::of(&[IpDst, DstPort]);
    [firewall, one_way("nat", FIVE_TUPLE)]
}

#[test]
fn a_translated_connection_is_kept_by_the_end_that_is_not_translated() {
    let plan = plan_with(&gateway(), Some(PortSet::of([1])), None);
    assert_eq!(plan.chosen.fields, Fields::of(&[IpDst]), "{plan}");
    assert_eq!((plan.chosen.local(), plan.chosen.sides), (2, Some(PortSet::of([1]))), "{plan}");
}

#[test]
fn without_sides_a_translated_connection_is_torn() {
    check(&gateway(), FIVE_TUPLE, false, &["firewall"]);
    let plan = plan(&gateway());
    assert!(plan.to_string().contains("firewall: ip.dst, port.dst of its sets"), "{plan}");
}

#[test]
fn hairpins_of_one_address_stay_where_they_came_by_sides_alone() {
    // They return from the address to which they came: the outside end remains, but it was the other field.
    let [mut firewall, nat] = gateway();
    firewall.changed.unless_by_sides = Fields::ALL;
    let plan = plan_with(&[firewall.clone(), nat.clone()], Some(PortSet::of([1])), None);
    assert_eq!((plan.chosen.fields, plan.chosen.local()), (Fields::of(&[IpDst]), 2), "{plan}");
    check(&[firewall.clone(), nat.clone()], FIVE_TUPLE, false, &["firewall"]);
    let mut counter = one_way("flow_counter", &[IpSrc]);
    check(&[counter.clone(), nat.clone()], &[IpSrc], false, &[]);
    counter.changed.unless_by_sides = Fields::ALL;
    check(&[counter, nat.clone()], FIVE_TUPLE, false, &["flow_counter"]);
    firewall.changed = Changed { from_outside: Fields::ALL, ..firewall.changed };
    let plan = plan_with(&[firewall, nat], Some(PortSet::of([1])), None);
    assert_eq!(plan.chosen.local(), 1, "{plan}");
    assert!(plan.to_string().contains("hairpins of a function after it"), "{plan}");
}

#[test]
fn sides_are_told_apart_only_where_that_keeps_more() {
    let chain = [both_ways("firewall", FIVE_TUPLE), one_way("flow_counter", FIVE_TUPLE)];
    assert_eq!(plan_with(&chain, Some(PortSet::of([1])), None).chosen.sides, None);
}

#[test]
fn what_is_changed_on_the_way_does_not_steer() {
    let mut policer = one_way("policer", &[IpDst]);
    policer.changed.from_inside = Fields::of(&[IpDst]);
    check(&[one_way("balancer", FIVE_TUPLE), policer], FIVE_TUPLE, false, &["policer"]);
}

#[test]
fn explanations_name_function_fields_and_consequence() {
    let plan =
        plan(&[one_way("flow_counter", FIVE_TUPLE), one_way("source_counter", &[IpSrc]), one_way("policer", &[IpDst])]);
    let text = plan.to_string();
    assert!(
        text.contains("flow_counter: its sets (ip.src, ip.dst, port.src, port.dst, ip.proto) all contain ip.src"),
        "{text}"
    );
    assert!(text.contains("policer: packets of one of its sets (ip.dst) differ in ip.src"), "{text}");
    assert!(text.contains("instead: hash ip.dst: 2 of 3 local"), "{text}");
}
