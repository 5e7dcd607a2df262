//! Another way to find shares: by HTB's rules a fluid is poured, a drop for everybody at a time, until nobody can take another.

use proptest::prelude::*;

use super::{SHARED, shares};

/// Thousands of bytes a second that are poured at a time.
const DROP: u64 = 1;
const LINK: u64 = 2000;

/// Thousands of bytes a second by right and with what is borrowed.
type Rates = (u64, u64);

/// Four hosts, of which each two may have a group, and each its priority.
#[derive(Clone, Debug)]
struct Load {
    offered: [u64; 4],
    each: Rates,
    groups: [Option<Rates>; 2],
    comes_first: [bool; 4],
}

impl Load {
    /// What each host has, when fluids are poured.
    fn shares(&self) -> [u64; 4] {
        let (mut all, mut by_right, mut of_groups, mut group_by_right) = (0, [0; 4], [0; 2], [0; 2]);
        let mut has = [0; 4];
        for charge in 0..3 {
            for band in [true, false] {
                let hosts: Vec<usize> = (0..4).filter(|host| self.comes_first[*host] == band).collect();
                let mut flows = true;
                while flows {
                    flows = false;
                    for &host in &hosts {
                        let (group, rates) = (host / 2, self.groups[host / 2]);
                        let (own, ceil) = rates.unwrap_or((0, u64::MAX));
                        let may = match charge {
                            0 => by_right[host] < self.each.0,
                            1 => group_by_right[group] < own,
                            _ => true,
                        };
                        let room =
                            has[host] < self.offered[host].min(self.each.1) && of_groups[group] < ceil && all < LINK;
                        if !(may && room) {
                            continue;
                        }
                        all += DROP;
                        has[host] += DROP;
                        of_groups[group] += DROP;
                        by_right[host] += if charge == 0 { DROP } else { 0 };
                        group_by_right[group] += if charge < 2 { DROP } else { 0 };
                        flows = true;
                    }
                }
            }
        }
        has
    }

    fn config(&self) -> String {
        let rates =
            |(own, ceil): Rates| format!("bytes_per_s = {own}000, ceil_bytes_per_s = {ceil}000, burst_bytes = 5600");
        let groups = self.groups.iter().enumerate().filter_map(|(n, group)| {
            group.map(|it| format!("{{ prefixes = '10.0.0.{}/31', total = {{ {} }} }}", 2 * n, rates(it)))
        });
        let first = (0..4).filter(|host| self.comes_first[*host]).map(|host| format!("'10.0.0.{host}'"));
        let first = first.collect::<Vec<_>>().join(", ");
        let priority = if first.is_empty() { String::new() } else { format!("{{ addresses = [{first}] }}") };
        let terms = SHARED.replace("bytes_per_s = 500000\n", &format!("bytes_per_s = {}000\n", self.each.0));
        let terms = terms.replace("ceil_bytes_per_s = 2000000", &format!("ceil_bytes_per_s = {}000", self.each.1));
        format!("{terms}group = [{}]\npriority = [{priority}]\n", groups.collect::<Vec<_>>().join(", "))
    }
}

fn rates(own: std::ops::Range<u64>, more: std::ops::Range<u64>) -> impl Strategy<Value = Rates> {
    (own, more).prop_map(|(own, more)| (own * 10, (own + more) * 10))
}

fn load() -> impl Strategy<Value = Load> {
    let groups = [prop::option::of(rates(20..100, 0..100)), prop::option::of(rates(20..100, 0..100))];
    (prop::array::uniform4(0u64..30), rates(5..50, 0..150), groups, prop::array::uniform4(any::<bool>())).prop_map(
        |(offered, each, groups, comes_first)| Load { offered: offered.map(|n| n * 100), each, groups, comes_first },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// All together within a thousandth, beside the bursts of two groups and four hosts. Each within six hundredths of the link: packets are not
    /// fluid, and who goes first may be waiting for its ceiling when there is something to borrow.
    #[test]
    fn shares_are_those_of_a_fluid(load in load()) {
        const SECONDS: u64 = 2;
        let found = shares(&load.config(), load.offered, SECONDS);
        let fluid = load.shares().map(|thousands| thousands * 1000 * SECONDS);
        let (all, expected) = (found.iter().sum::<u64>(), fluid.iter().sum::<u64>());
        prop_assert!(all.abs_diff(expected) <= expected / 1000 + 26_000, "{:?}, not {:?} together", found, fluid);
        let slack = LINK * 1000 * SECONDS * 6 / 100;
        prop_assert!(found.iter().zip(fluid).all(|(found, fluid)| found.abs_diff(fluid) <= slack), "{:?}, not {:?}", found, fluid);
    }
}
