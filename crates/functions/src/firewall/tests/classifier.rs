//! The classifier finds what a linear walk through the rules finds.

use proptest::prelude::*;

use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::fields::{Field, Values, Within};
use crate::firewall::conditions::values::{Addresses, Bits, PortRange, Protocol};
use crate::firewall::connection::states::State;
use crate::firewall::policy::boxes::{Boxes, MULTIPLIED_MAX};
use crate::firewall::policy::classifier::Classifier;
use crate::firewall::policy::reachable_rules::Reach;
use crate::firewall::rules::{Action, Direction, Rule};
use crate::parts::{Many, Side};

/// Few values, so that rules overlap with packets and with each other.
fn an_address() -> impl Strategy<Value = Addresses> {
    let v4 = (0u32..4, 0u8..8, prop_oneof![Just(8u8), Just(24), 28u8..=32])
        .prop_map(|(net, host, bits)| format!("10.0.{net}.{host}/{bits}"));
    let range = (0u8..8, 0u8..8).prop_map(|(a, b)| format!("10.0.0.{}-10.0.0.{}", a.min(b), a.max(b)));
    let v6 = (0u8..8, prop_oneof![Just(0u8), Just(64), Just(126), Just(128)])
        .prop_map(|(a, b)| format!("2001:db8::{a}/{b}"));
    prop_oneof![3 => v4, 1 => range, 1 => v6].prop_map(|text| text.parse().expect("a range"))
}

fn many<T: std::fmt::Debug + Clone>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Many<T>> {
    prop_oneof![2 => Just(Many::default()), 3 => prop::collection::vec(one, 1..4).prop_map(Many::of)]
}

fn a_range() -> impl Strategy<Value = PortRange> {
    (0u16..6, 0u16..6).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) })
}

fn a_rule() -> impl Strategy<Value = Rule> {
    let direction = prop_oneof![Just(None), Just(Some(Direction::Outbound)), Just(Some(Direction::Inbound))];
    let flags = (0u8..4, 0u8..4, any::<bool>()).prop_map(|(set, of, not)| Bits { set: set & of.max(1), of, not });
    let flags = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(flags, 1..3)];
    let protocol = many(prop_oneof![Just(Protocol(6)), Just(Protocol(17))]);
    (
        direction,
        many(0u16..3),
        protocol,
        many(an_address()),
        many(an_address()),
        many(a_range()),
        many(a_range()),
        (flags, some_fields()),
    )
        .prop_map(
            |(
                direction,
                ports,
                protocol,
                source,
                destination,
                source_ports,
                destination_ports,
                (tcp_flags, fields),
            )| Rule {
                direction,
                ports,
                protocol,
                source,
                destination,
                source_ports,
                destination_ports,
                tcp_flags: tcp_flags.into_iter().map(|bits| Many::of([bits])).collect(),
                fields,
                ..Rule::new(Action::Allow)
            },
        )
}

const FIELDS: [Field; 7] =
    [Field::Length, Field::Ttl, Field::Dscp, Field::Ecn, Field::Vlan, Field::IcmpCode, Field::NextHeader];

/// Conditions on rarely examined fields; most rules have none.
fn some_fields() -> impl Strategy<Value = Vec<Within>> {
    let field = prop::sample::select(FIELDS.to_vec());
    let range = (0u64..6, 0u64..6).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let within = (field, prop::collection::vec(range, 1..3)).prop_map(|(field, ranges)| Within::new(field, ranges));
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(within, 1..3)]
}

fn a_packet() -> impl Strategy<Value = Facts<'static>> {
    let address = prop_oneof![
        (0u8..4, 0u8..8).prop_map(|(net, host)| format!("10.0.{net}.{host}")),
        (0u8..8).prop_map(|host| format!("2001:db8::{host}")),
    ];
    let address = address.prop_map(|text| text.parse::<Addresses>().expect("an address").first);
    let protocol = prop_oneof![Just(6u8), Just(17)];
    (
        address.clone(),
        address,
        (0u16..7, 0u16..7),
        protocol,
        0u8..4,
        0u16..4,
        any::<bool>(),
        prop::array::uniform7(0u64..7),
    )
        .prop_map(
            |(source, destination, (source_port, destination_port), protocol, flags, port, inside, fields)| Facts {
                source,
                destination,
                source_port,
                destination_port,
                protocol,
                flags,
                port,
                side: if inside { Side::Inside } else { Side::Outside },
                state: State::New,
                opening: [0; 2],
                // Leaked, because it must live as long as the test runs.
                fields: Box::leak(Box::new(
                    FIELDS.into_iter().zip(fields).fold(Values::NONE, |all, (field, value)| all.with(field, value)),
                )),
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The rule that the classifier finds is the first match of a linear walk, whether lists are multiplied out or looked up.
    #[test]
    fn the_tree_finds_what_a_walk_finds(
        rules in prop::collection::vec(a_rule(), 0..120),
        packets in prop::collection::vec(a_packet(), 40),
        most in prop::sample::select(MULTIPLIED_MAX.to_vec()),
    ) {
        let reach = Reach::of(&rules);
        let classifier = Classifier::of(&rules, &Boxes::of_each(&rules, most), &reach);
        for facts in packets {
            for from in [0, 1, rules.len() / 3, rules.len() / 2] {
                // Nothing is found after a rule that decides about everything, because no packet gets there.
                let met = reach.list(State::New, facts.side as usize);
                let fits = |at: &usize| met.contains(&(*at as u32)) && rules[*at].mismatch(&facts).is_none();
                prop_assert_eq!(classifier.find(&facts, from), (from..rules.len()).find(fits), "{:?}", facts);
            }
        }
    }

    /// Everything except some ranges is what is in none of them.
    #[test]
    fn what_is_left_is_in_none_that_is_taken(taken in prop::collection::vec(an_address(), 1..5), address in a_packet()) {
        let version = taken[0].version();
        let taken: Vec<_> = taken.into_iter().filter(|range| range.version() == version).collect();
        let is_taken = taken.iter().any(|range| range.contains(address.source));
        let left = Addresses::except(version, taken);
        let is_left = left.iter().any(|range| range.contains(address.source));
        prop_assert_eq!(is_left, !is_taken && Addresses::all(version).contains(address.source));
    }
}

/// 1,000 networks and more, of both versions.
fn networks(third: u8) -> Many<Addresses> {
    let v4 = (0..1000u32).map(|i| format!("10.{}.{}.{third}/32", i / 256, i % 256));
    let v6 = (0..10u32).map(|i| format!("2001:db8:{third}:{i}::/64"));
    Many::of(v4.chain(v6).map(|text| text.parse().expect("a range")))
}

#[test]
fn two_long_lists_of_addresses_in_one_rule_are_looked_up() {
    let rule = Rule { source: networks(1), destination: networks(2), ..Rule::new(Action::Deny) };
    let rules = vec![rule; 1000];
    let classifier = Classifier::new(&rules, &Reach::of(&rules)).expect("few boxes");
    // The bounds of both versions at either end.
    assert_eq!(classifier.size().0, 1000 * 4);
    let number = |text: &str| text.parse::<Addresses>().expect("an address").first;
    let found = |source: &str, destination: &str| {
        let facts = Facts { source: number(source), destination: number(destination), ..Facts::SYN };
        classifier.find(&facts, 7)
    };
    assert_eq!(found("10.0.3.1", "10.2.200.2"), Some(7));
    assert_eq!(found("10.0.3.2", "10.2.200.2"), None, "the source is within the bounds, and not in the list");
    assert_eq!(found("10.0.3.1", "10.2.200.1"), None);
    assert_eq!(found("2001:db8:1:9::1", "2001:db8:2:0::7"), Some(7));
    assert_eq!(found("2001:db8:1:a::1", "2001:db8:2:0::7"), None);
}

#[test]
fn rules_of_too_many_combinations_of_ports_are_refused() {
    let list = |n: u16| Many::of((0..n).map(|i| PortRange { first: i * 4, last: i * 4 }));
    let protocol = Many::of([Protocol(17)]);
    let rule = Rule { protocol, source_ports: list(1100), destination_ports: list(1000), ..Rule::new(Action::Deny) };
    let rules = std::slice::from_ref(&rule);
    assert_eq!(Classifier::new(rules, &Reach::of(rules)).err(), Some(1_100_000));
}

#[test]
fn what_two_lists_have_in_common_is_found_in_one_pass() {
    let list = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a range")).collect::<Vec<Addresses>>();
    let one = list(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0-192.0.2.9", "2001:db8::/32", "::/0"]);
    let other = list(&["192.0.2.5-192.0.2.30", "10.255.255.255-11.0.0.9", "10.1.2.3", "2001:db8:7::/48"]);
    let expected = list(&["10.1.2.3", "10.255.255.255", "192.0.2.5-192.0.2.9", "2001:db8:7::/48"]);
    assert_eq!(Addresses::in_both(&one, &other), expected);
    assert_eq!(Addresses::in_both(&other, &one), expected);
}
