//! The small network function of the README, with all of `braid` around it:
//!
//! ```sh
//! cargo run --release -p braid-cli --example guests -- run --nf guests --in tests/traffic/scan.pcap --set guests_max=3
//! cargo run --release -p braid-cli --example guests -- certify --nf guests --in gen:campus
//! ```
#![forbid(unsafe_code)]

use braid_functions::{ConfigError, FromConfig};
use braid_nf::state::DistributedConfig;

// listing: begin
use braid_nf::prelude::*;

network_function! {
    /// Limits how many sources may send at the same time, and how many packets each may send.
    pub struct Guests {
        guests_max: i64,
        packets_max: u64,
        guests: Distributed<i64>,
    }
}

impl NetworkFunction for Guests {
    /// Kept for each source: how many packets it has sent.
    type Set = u64;
    const NAME: &'static str = "guests";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::src_ip())
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        10_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        let guests = self.guests.read(cx, |sum, part| *sum += part)?;
        if guests >= self.guests_max || !set.register(cx, 1) {
            return Ok(Verdict::Drop(Reason("house_full")));
        }
        self.guests.update(cx, |guests| *guests += 1)?;
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, packets: &mut u64) -> Handled {
        *packets += 1;
        Ok(if *packets <= self.packets_max { cx.pass() } else { Verdict::Drop(Reason("too_many")) })
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, _: &u64) -> Result<(), Conflict> {
        self.guests.update(cx, |guests| *guests -= 1)
    }
}
// listing: end

/// What a plan file may say about it.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Most sources at a time.
    pub guests_max: i64,
    /// Most packets of one source until it has been silent for ten seconds.
    pub packets_max: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { guests_max: 1000, packets_max: 1_000_000 }
    }
}

impl FromConfig for Guests {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<Guests, ConfigError> {
        let exact = DistributedConfig { name: "guests".into(), staleness_ns: 0 };
        let guests = Distributed::new(builder, &exact, 0).map_err(|error| ConfigError::state("guests_max", &error))?;
        Ok(Guests { guests_max: config.guests_max, packets_max: config.packets_max, guests })
    }
}

#[allow(dead_code, reason = "tests/readme.rs takes the function and not the program")]
fn main() -> std::process::ExitCode {
    braid_cli::main(vec![braid_cli::catalog::own::<Guests>("lets so many sources talk at a time", 2)])
}
