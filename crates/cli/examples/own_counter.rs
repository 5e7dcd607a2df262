//! A flow counter as a user would write it, with the public API alone and nothing tuned: `cargo xtask own` sets the instructions
//! that a packet takes in it beside those of the built-in `flow_counter`, which keeps the same.
#![forbid(unsafe_code)]

use braid_functions::{ConfigError, FromConfig};
use braid_nf::prelude::*;

network_function! {
    /// Counts packets and bytes of every flow.
    pub struct OwnCounter {}
}

impl NetworkFunction for OwnCounter {
    /// Kept of each flow: packets and bytes.
    type Set = [u64; 2];
    const NAME: &'static str = "own_counter";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &[u64; 2]) -> u64 {
        60_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, [u64; 2]>) -> Handled {
        let _room = set.register(cx, [1, packet.bytes().len() as u64]);
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, [packets, bytes]: &mut [u64; 2]) -> Handled {
        *packets += 1;
        *bytes += packet.bytes().len() as u64;
        Ok(cx.pass())
    }
}

/// Nothing can be configured.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FromConfig for OwnCounter {
    type Config = Config;

    fn from_config(_: Config, _: &mut StateBuilder, _: u16) -> Result<OwnCounter, ConfigError> {
        Ok(OwnCounter {})
    }
}

fn main() -> std::process::ExitCode {
    braid_cli::main(vec![braid_cli::catalog::own::<OwnCounter>("counts packets and bytes of every flow", 2)])
}
