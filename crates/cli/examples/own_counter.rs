//! A flow counter as a user would write it, with the public API alone and nothing tuned: `cargo xtask own` sets the instructions
//! that a packet takes in it beside those of the built-in `flow_counter`, which keeps the same.
#![forbid(unsafe_code)]

use braid_functions::{ConfigError, FromConfig};
use braid_nf::prelude::*;

network_function! {
    /// Counts packets and bytes of every flow.
    pub struct OwnCounter {}
}

/// What is kept of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Seen {
    packets: u64,
    bytes: u64,
}

impl NetworkFunction for OwnCounter {
    type Set = Seen;
    const NAME: &'static str = "own_counter";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &Seen) -> u64 {
        60_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Seen>) -> Handled {
        let _room = set.register(cx, Seen { packets: 1, bytes: packet.bytes().len() as u64 });
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, seen: &mut Seen) -> Handled {
        seen.packets += 1;
        seen.bytes += packet.bytes().len() as u64;
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
