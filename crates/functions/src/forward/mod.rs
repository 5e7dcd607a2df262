//! Sends every packet out by the opposite port: the cheapest function there is, and the baseline for all others.

mod config;

pub use config::Config;

use braid_nf::prelude::*;

use crate::{ConfigError, FromConfig};

network_function! {
    /// Forwards between the ports of a pair; see the README beside this file.
    #[derive(Debug)]
    pub struct Forward {
        swap_mac: bool,
        ttl: bool,
    }
}

impl FromConfig for Forward {
    type Config = Config;

    fn from_config(config: Config, _: &mut StateBuilder, _: u16) -> Result<Forward, ConfigError> {
        Ok(Forward { swap_mac: config.swap_mac, ttl: config.ttl })
    }
}

impl NetworkFunction for Forward {
    type Set = ();
    const NAME: &'static str = "forward";

    /// There is no state to inherit.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        self.orphan(cx, packet)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _: &mut ()) -> Handled {
        self.orphan(cx, packet)
    }

    #[inline(always)]
    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if self.ttl && !packet.decrement_ttl() {
            return Ok(Verdict::Drop(Reason::TTL_EXCEEDED));
        }
        if self.swap_mac
            && let Some(ethernet) = packet.ethernet_mut()
        {
            let (source, destination) = (ethernet.source(), ethernet.destination());
            ethernet.set_source(destination);
            ethernet.set_destination(source);
        }
        Ok(Verdict::Forward(cx.opposite(packet.port())))
    }
}

#[cfg(test)]
mod tests;
