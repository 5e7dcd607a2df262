//! Separates two costs that can only be measured together.
//!
//! A lap takes `a` cycles for each of its packets (or for itself) and `b` cycles for each entry that it left in a log. Laps are divided into
//! those with few entries and those with many, and the two sums give two equations (the grouping estimator of Wald, Annals of Mathematical
//! Statistics 1940). Unlike least squares, it weights a disturbed lap by its deviation instead of the square of it, and the two prices together
//! explain all measured cycles.

/// Sums over laps, in two groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    few: Sums,
    many: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    cycles: u64,
    units: u64,
    entries: u64,
    laps: u64,
}

/// If the laps of both groups are as similar as this, they do not determine the cost of an entry: the determinant of the equations as a share
/// of its largest term.
const ALIKE: f64 = 0.2;
/// A group with fewer than one in `SELDOM` laps is considered chance, such as the last batch of a run, which is not full.
const SELDOM: u64 = 50;

impl Fit {
    /// Adds a lap over `units` units that left `entries` entries.
    pub fn add(&mut self, cycles: u64, units: u64, entries: u64) {
        let (all_units, all_entries) = (self.few.units + self.many.units, self.few.entries + self.many.entries);
        let is_many = u128::from(entries) * u128::from(all_units) > u128::from(units) * u128::from(all_entries);
        let group = if is_many { &mut self.many } else { &mut self.few };
        group.cycles += cycles;
        group.units += units;
        group.entries += entries;
        group.laps += 1;
    }

    /// The same sums if each lap had taken `cycles` cycles less.
    pub fn without(mut self, cycles: f64) -> Fit {
        for group in [&mut self.few, &mut self.many] {
            group.cycles = group.cycles.saturating_sub((cycles * group.laps as f64) as u64);
        }
        self
    }

    /// The cycles per unit and per entry; if the number of entries per unit is always the same, an entry is taken to cost `usual` cycles.
    pub fn prices(&self, usual: f64) -> (f64, f64) {
        let [few, many] = [self.few, self.many].map(|s| (s.cycles as f64, s.units as f64, s.entries as f64));
        let (cycles, units, entries) = (few.0 + many.0, few.1 + many.1, few.2 + many.2);
        let determinant = few.1 * many.2 - many.1 * few.2;
        let fewer = self.few.laps.min(self.many.laps);
        let is_chance = fewer * SELDOM < self.few.laps + self.many.laps;
        let entry = match !is_chance && determinant > ALIKE * few.1 * many.2 {
            true => (few.1 * many.0 - many.1 * few.0) / determinant,
            false => usual,
        };
        let most = if entries > 0.0 { cycles / entries } else { 0.0 };
        let entry = entry.clamp(0.0, most);
        ((cycles - entry * entries) / units.max(1.0), entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(laps: &[(u64, u64, u64)], usual: f64, expected: (f64, f64)) {
        let mut fit = Fit::default();
        laps.iter()
            .cycle()
            .take(100 * laps.len())
            .for_each(|&(cycles, units, entries)| fit.add(cycles, units, entries));
        let (unit, entry) = fit.prices(usual);
        assert!((unit - expected.0).abs() < 0.5 && (entry - expected.1).abs() < 0.5, "{unit} {entry} {expected:?}");
    }

    #[test]
    fn prices_are_found_where_laps_differ() {
        check(&[(100, 10, 0), (900, 10, 40)], 1.0, (10.0, 20.0));
        check(&[(100, 10, 0), (300, 30, 0), (500, 10, 20)], 1.0, (10.0, 20.0));
    }

    #[test]
    fn an_entry_costs_the_usual_where_each_unit_has_as_many() {
        check(&[(500, 10, 20), (1000, 20, 40)], 5.0, (40.0, 5.0));
    }

    #[test]
    fn a_single_lap_that_differs_says_nothing() {
        let mut fit = Fit::default();
        (0..100).for_each(|_| fit.add(1300, 128, 3));
        fit.add(100_000, 64, 3);
        let (unit, entry) = fit.prices(2.0);
        assert!((unit - 17.9).abs() < 0.5 && entry == 2.0, "{unit} {entry}");
    }

    #[test]
    fn no_price_is_negative_and_all_cycles_are_explained() {
        check(&[(100, 10, 0), (50, 10, 10)], 1.0, (7.5, 0.0));
        check(&[(500, 10, 20)], 1e9, (0.0, 25.0));
        check(&[], 3.0, (0.0, 0.0));
    }
}
