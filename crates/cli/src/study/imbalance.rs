//! How evenly a hash distributes flows to workers, and what moving entries of the indirection table between workers gains.
//!
//! Nothing is run: flows are hashed as a network card would hash them, and packets are counted. Load is
//! moved as with `balance = true`: entries move to less loaded workers according to one interval, and the
//! distribution of the *next* interval's packets counts.

use std::fmt::Write;

use braid_control::profile::plot::{Plot, Series};
use braid_control::report::grouped;
use braid_control::runtime::Balance;
use braid_control::runtime::steer::reta::{ENTRIES_DEFAULT, RetaError, imbalance};
use braid_control::runtime::steer::{Key, Reta, Toeplitz};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Numbers of flows.
const FLOWS: [usize; 9] = [8, 16, 32, 128, 512, 2_048, 8_192, 65_536, 1_000_000];
/// Number of random sets of flows for each row.
const DRAWS: u64 = 12;
/// Minimum gain for which moving load is worthwhile.
const WORTH: f64 = 1.05;

/// Distribution of packets over flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Popularity {
    Even,
    Zipf,
}

/// Results for one number of flows.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    flows: usize,
    popularity: Popularity,
    /// Share of the heaviest flow, in percent.
    heaviest: f64,
    /// Load of the busiest worker relative to the mean, with the hash alone and after moving load.
    hashed: f64,
    balanced: f64,
    /// Load of the busiest worker relative to the least loaded one, with the hash alone; infinite if a worker had no load.
    busiest_to_idlest: f64,
    /// Number of entries moved.
    moved: f64,
}

impl Row {
    /// By which factor all workers together are faster when load moves.
    fn gain(&self) -> f64 {
        self.hashed / self.balanced
    }
}

/// Computes the rows for this number of workers.
pub fn study(workers: usize) -> Result<Vec<Row>, RetaError> {
    let cases = [Popularity::Even, Popularity::Zipf].into_iter().flat_map(|p| FLOWS.map(|flows| (p, flows)));
    cases.map(|(popularity, flows)| row(workers, popularity, flows)).collect()
}

fn row(workers: usize, popularity: Popularity, flows: usize) -> Result<Row, RetaError> {
    let (hash, balance) = (Toeplitz::new(&Key::microsoft()), Balance::default());
    let mut sum =
        Row { flows, popularity, heaviest: 0.0, hashed: 0.0, balanced: 0.0, busiest_to_idlest: 0.0, moved: 0.0 };
    for seed in 0..DRAWS {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut reta = Reta::new(ENTRIES_DEFAULT.max((4 * workers).next_power_of_two()), workers)?;
        let entries: Vec<usize> =
            (0..flows).map(|_| reta.entry(hash.hash_fixed(&random.random::<[u8; 12]>()))).collect();
        let mut interval = || {
            let mut of_flows = vec![0u32; flows];
            let law = Zipf::new(flows as f64, 1.1).ok().filter(|_| popularity == Popularity::Zipf);
            for _ in 0..balance.every_packets {
                let flow = match &law {
                    Some(law) => law.sample(&mut random) as usize - 1,
                    None => random.random_range(0..flows),
                };
                of_flows[flow.min(flows - 1)] += 1;
            }
            let mut per_entry = vec![0u64; reta.entries().len()];
            of_flows.iter().zip(&entries).for_each(|(packets, entry)| per_entry[*entry] += u64::from(*packets));
            (per_entry, of_flows.into_iter().max().unwrap_or(0))
        };
        let (first, _) = interval();
        let (second, heaviest) = interval();
        let load = reta.load(&second);
        let (most, least) = (load.iter().max().copied().unwrap_or(0), load.iter().min().copied().unwrap_or(0));
        sum.heaviest += 100.0 * f64::from(heaviest) / balance.every_packets as f64;
        sum.hashed += imbalance(&load);
        sum.busiest_to_idlest += most as f64 / least as f64;
        sum.moved += reta.rebalance(&first, balance.goal).len() as f64;
        sum.balanced += imbalance(&reta.load(&second));
    }
    let mean = |sum: f64| sum / DRAWS as f64;
    Ok(Row {
        heaviest: mean(sum.heaviest),
        hashed: mean(sum.hashed),
        balanced: mean(sum.balanced),
        busiest_to_idlest: mean(sum.busiest_to_idlest),
        moved: mean(sum.moved),
        ..sum
    })
}

/// Formats the rows as a table, with a recommendation.
pub fn table(rows: &[Row], workers: usize) -> String {
    let mut out = format!(
        "modelled: {workers} workers, an indirection table of {ENTRIES_DEFAULT} entries, {} packets an interval, mean of {DRAWS} draws\n\
         {:>9}  {:<11} {:>8}  {:>9} {:>11}  {:>9} {:>7}  {:>6}  balance\n",
        grouped(Balance::default().every_packets),
        "flows",
        "popularity",
        "heaviest",
        "busiest/",
        "busiest/",
        "busiest/",
        "entries",
        "gain"
    );
    let _ = writeln!(
        out,
        "{:>9}  {:<11} {:>8}  {:>9} {:>11}  {:>9} {:>7}",
        "", "", "flow", "mean", "idlest", "mean then", "moved"
    );
    for row in rows {
        let Row { flows, popularity, heaviest, hashed, balanced, busiest_to_idlest, moved } = *row;
        let name = if popularity == Popularity::Even { "even" } else { "Zipf 1.1" };
        let idlest = if busiest_to_idlest.is_finite() {
            format!("{:.0} %", 100.0 * busiest_to_idlest)
        } else {
            "one idle".to_owned()
        };
        let advice = match row.gain() {
            gain if gain < WORTH && hashed < 1.2 => "off: the hash is even enough",
            gain if gain < WORTH => "off: one flow is too heavy to help",
            _ => "on",
        };
        let _ = writeln!(
            out,
            "{:>9}  {name:<11} {heaviest:>6.1} %  {hashed:>9.2} {idlest:>11}  {balanced:>9.2} {moved:>7.1}  {:>5.2}x  {advice}",
            grouped(flows as u64),
            row.gain()
        );
    }
    out + "\nThe rule: leave `balance` off with thousands of flows of like weight; switch it on (software distribution) for tens or hundreds of\n\
           flows, or for heavy flows among many. A flow heavier than one worker's share cannot be helped by moving: make it several sets, or leave it.\n"
}

/// Plots the imbalance over the number of flows.
pub fn plot(rows: &[Row], workers: usize) -> Plot {
    let line = |popularity, name: &str, value: fn(&Row) -> f64| {
        let of = rows.iter().filter(|row| row.popularity == popularity);
        Series {
            name: name.to_owned(),
            points: of.map(|row| ((row.flows as f64).log2(), value(row))).collect(),
            measured: Vec::new(),
        }
    };
    Plot {
        title: format!("load of the busiest of {workers} workers over the mean, modelled"),
        x: "flows, as a power of two".to_owned(),
        y: "busiest over mean".to_owned(),
        series: vec![
            line(Popularity::Even, "even, hash alone", |row| row.hashed),
            line(Popularity::Even, "even, balanced", |row| row.balanced),
            line(Popularity::Zipf, "Zipf 1.1, hash alone", |row| row.hashed),
            line(Popularity::Zipf, "Zipf 1.1, balanced", |row| row.balanced),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_flows_are_uneven_many_are_not_and_moving_helps_between() {
        let of = |flows| row(8, Popularity::Even, flows).expect("a table of 128");
        let (few, some, many) = (of(32), of(128), of(65_536));
        assert!(few.hashed > 1.5 && some.hashed > 1.3 && many.hashed < 1.15, "{few:?} {some:?} {many:?}");
        assert!(some.gain() > 1.2 && some.balanced < 1.2, "{some:?}");
        assert!(of(8).hashed > 1.5);
    }

    #[test]
    fn a_flow_heavier_than_a_workers_share_cannot_be_helped() {
        let row = row(64, Popularity::Zipf, 2_048).expect("a table of 256");
        assert!(row.heaviest > 100.0 / 64.0 && row.balanced > 4.0, "{row:?}");
    }
}
