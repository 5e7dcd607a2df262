//! Measures the cost of finding the deciding rule, by the number of rules: for operators who ask how many are feasible.
//!
//! The generated rules are half for one host and port, a quarter for networks with a range of ports, the rest for
//! networks alone. Half of the packets are made to match a rule, the others are random.

use braid_nf::packet::IpVersion;
use std::hint::black_box;
use std::time::Instant;

use super::conditions::facts::Facts;
use super::conditions::values::{Addresses, PortRange, Protocol};
use super::config::{Config, Settings};
use super::policy::classifier::Classifier;
use super::policy::reachable_rules::Reach;
use super::rules::{Action, Rule};
use crate::config::ConfigError;
use crate::parts::Many;

/// The cost with a number of rules.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The number of rules.
    pub rules: usize,
    /// The boxes that they make.
    pub boxes: usize,
    /// Size of the tree, in bytes.
    pub bytes: usize,
    /// Time to build it, in milliseconds.
    pub build_ms: f64,
    /// Time to find the deciding rule, in nanoseconds.
    pub search_ns: f64,
    /// Time to try one rule after another, in nanoseconds.
    pub walk_ns: f64,
}

const PACKETS: usize = 10_000;
const ROUNDS: usize = 20;
/// The total number of rules, and of ranges in their lists of addresses, to try in a linear walk.
const WALKED: usize = 20_000_000;

/// Measures 1, 10, … 100,000 generated rules.
pub fn curve() -> impl Iterator<Item = Cost> {
    (0..6).map(|exponent| {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let rules: Vec<Rule> = (0..10usize.pow(exponent)).map(|_| generated(&mut random)).collect();
        measure(&rules)
    })
}

/// Measures the rules of a configuration.
pub fn of(config: Config, ports: u16) -> Result<Cost, ConfigError> {
    Ok(measure(&Settings::check(config, ports, Default::default())?.policy.rules))
}

fn measure(rules: &[Rule]) -> Cost {
    let begun = Instant::now();
    // This cannot fail: a policy was built from them, or they have few lists.
    let classifier = Classifier::new(rules, &Reach::of(rules)).unwrap_or_default();
    let build_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let packets: Vec<Facts<'_>> = (0..PACKETS).map(|_| packet(rules, &mut random)).collect();
    let begun = Instant::now();
    for facts in packets.iter().cycle().take(PACKETS * ROUNDS) {
        black_box(classifier.find(black_box(facts), 0));
    }
    let search_ns = begun.elapsed().as_secs_f64() * 1e9 / (PACKETS * ROUNDS) as f64;
    let tried: usize = rules.iter().map(|rule| 1 + rule.source.0.len() + rule.destination.0.len()).sum();
    let walked = (WALKED / tried.max(1)).clamp(10, PACKETS);
    let begun = Instant::now();
    for facts in packets.iter().take(walked) {
        black_box(rules.iter().position(|rule| rule.mismatch(black_box(facts)).is_none()));
    }
    let walk_ns = begun.elapsed().as_secs_f64() * 1e9 / walked as f64;
    let (boxes, bytes) = classifier.size();
    Cost { rules: rules.len(), boxes, bytes, build_ms, search_ns, walk_ns }
}

fn generated(random: &mut Random) -> Rule {
    let network = |random: &mut Random, bits: u32| {
        let address = 0x0a00_0000 | random.below(1 << 24) as u32;
        let range = std::net::Ipv4Addr::from(address);
        format!("{range}/{bits}").parse::<Addresses>().map(|range| Many::of([range])).unwrap_or_default()
    };
    let port = random.below(1 << 16) as u16;
    let kind = random.below(4);
    let (source, destination) = match kind {
        0 | 1 => (Many::default(), network(random, 32)),
        2 => (network(random, 16), network(random, 24)),
        _ => (network(random, 20), Many::default()),
    };
    let ports = match kind {
        0 | 1 => Many::of([PortRange { first: port, last: port }]),
        2 => Many::of([PortRange { first: port & 0xff00, last: port | 0x00ff }]),
        _ => Many::default(),
    };
    let protocol = Many::of([Protocol([6, 17][random.below(2) as usize])]);
    let action = if random.below(2) == 0 { Action::Allow } else { Action::Deny };
    Rule { protocol, source, destination, destination_ports: ports, ..Rule::new(action) }
}

fn packet(rules: &[Rule], random: &mut Random) -> Facts<'static> {
    let any = Addresses::all(IpVersion::V4).first | (0x0a00_0000 | u128::from(random.below(1 << 24)));
    let fits = random.below(2) == 0;
    let chosen = if fits { rules.get(random.below(rules.len().max(1) as u64) as usize) } else { None };
    let first = |list: Option<&Many<Addresses>>| list.and_then(|list| list.0.first()).map_or(any, |range| range.first);
    let ports = chosen.and_then(|rule| rule.destination_ports.0.first());
    Facts {
        source: first(chosen.map(|rule| &rule.source)),
        destination: first(chosen.map(|rule| &rule.destination)),
        source_port: random.below(1 << 16) as u16,
        destination_port: ports.map_or(random.below(1 << 16) as u16, |range| range.first),
        protocol: chosen.and_then(|rule| rule.protocol.0.first()).map_or(6, |protocol| protocol.0),
        ..Facts::SYN
    }
}

/// Marsaglia's xorshift generator: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }
}
