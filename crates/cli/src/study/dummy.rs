//! The paper's dummy function (section 5.3, figure 6a): every packet reads, or reads and writes, one element of an array of 10,000,
//! chosen uniformly or by Zipf's law. It is only in the catalog of `braid study`.

use braid_control::runtime::nf::prelude::*;
use braid_control::runtime::nf::state::VectorConfig;
use braid_control::runtime::nf::state::hash::mixed;
use braid_functions::{ConfigError, FromConfig};
use serde::Deserialize;

const ELEMENTS: u32 = 10_000;
/// Number of precomputed choices; a packet selects one by a hash of its flow.
const CHOICES: usize = 1 << 16;

/// Configuration, set by a study.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether packets write.
    pub writes: bool,
    /// Zipf's exponent in hundredths; 0 for uniform.
    pub zipf_percent: u32,
}

network_function! {
    /// Touches one element for each packet.
    pub struct Dummy {
        writes: bool,
        choices: Vec<u32>,
        elements: Vector<u64>,
    }
}

impl FromConfig for Dummy {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<Dummy, ConfigError> {
        let elements = Vector::new(builder, &VectorConfig { name: "elements".into(), len: ELEMENTS }, 0);
        let elements = elements.map_err(|error| ConfigError::state("writes", &error))?;
        Ok(Dummy { writes: config.writes, choices: choices(f64::from(config.zipf_percent) / 100.0), elements })
    }
}

/// Precomputes choices of elements: rank *k* occurs *k* to the power of `-exponent` times as often as rank 1.
fn choices(exponent: f64) -> Vec<u32> {
    let weights: Vec<f64> = (1..=ELEMENTS).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let sum: f64 = weights.iter().sum();
    let (mut rank, mut below) = (0, weights[0] / sum);
    let choice = |at| {
        let wanted = (at as f64 + 0.5) / CHOICES as f64;
        while below < wanted && rank + 1 < weights.len() {
            rank += 1;
            below += weights[rank] / sum;
        }
        // Spread the ranks over the array, so that frequent elements are not neighbours.
        (rank as u32 * 7919) % ELEMENTS
    };
    (0..CHOICES).map(choice).collect()
}

impl NetworkFunction for Dummy {
    type Set = ();
    const NAME: &'static str = "dummy";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, ()>) -> Handled {
        let _room = set.register(cx, ());
        self.orphan(cx, packet)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let (source, destination) = packet.ports().unwrap_or_default();
        let flow = mixed(&packet.src_ip().octets(), u64::from(source) << 16 | u64::from(destination));
        let element = self.choices[flow as usize % CHOICES];
        if self.writes {
            self.elements.update(cx, element, |count| *count += 1)?;
        } else {
            self.elements.get(cx, element)?;
        }
        Ok(cx.pass())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of the most frequent element.
    fn share(exponent: f64) -> f64 {
        let mut counts = vec![0u32; ELEMENTS as usize];
        choices(exponent).iter().for_each(|element| counts[*element as usize] += 1);
        f64::from(counts.into_iter().max().unwrap_or(0)) / CHOICES as f64
    }

    #[test]
    fn choices_follow_zipf() {
        assert!(share(0.0) < 0.0002);
        // 1 / sum of k^-0.99 over 10,000.
        assert!((share(0.99) - 0.0974).abs() < 0.005, "{}", share(0.99));
    }
}
