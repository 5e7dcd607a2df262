//! Holds the traffic to every destination address to a rate: a token bucket for each.

mod config;

pub use config::Config;

use braid_nf::FieldUse;
use braid_nf::prelude::*;

use crate::config::READS_WIRE_LEN;
use crate::token_bucket::{Bucket, Limit};
use crate::{ConfigError, FromConfig};

/// A packet found too little credit.
const RATE_EXCEEDED: Reason = Reason("rate_exceeded");
/// A packet that even a full bucket does not cover.
const LARGER_THAN_BURST: Reason = Reason("larger_than_burst");

network_function! {
    /// Polices destinations; see the README beside this file.
    #[derive(Debug)]
    pub struct Policer {
        limit: Limit,
        from_port: Option<Port>,
    }
}

impl FromConfig for Policer {
    type Config = Config;

    fn from_config(config: Config, _: &mut StateBuilder, ports: u16) -> Result<Policer, ConfigError> {
        Ok(Policer { limit: config.limit()?, from_port: config.checked_port(ports)? })
    }
}

impl NetworkFunction for Policer {
    type Set = Bucket;
    const NAME: &'static str = "policer";

    /// A bucket is worth its credit under any limit; more than the burst is cut.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::dst_ip())
    }

    /// A bucket that has had the time to fill is as good as none.
    fn timeout_ns(&self, _: &Bucket) -> u64 {
        self.limit.timeout_ns()
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Bucket>) -> Handled {
        if !self.polices(packet) {
            return Ok(cx.pass());
        }
        if u64::from(packet.wire_len()) > self.limit.burst() {
            return Ok(Verdict::Drop(LARGER_THAN_BURST));
        }
        let mut bucket = self.limit.full(cx.now());
        let verdict = self.packet(cx, packet, &mut bucket)?;
        if !set.register(cx, bucket) {
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        Ok(verdict)
    }

    #[inline(always)]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, bucket: &mut Bucket) -> Handled {
        if !self.polices(packet) || self.limit.take(bucket, cx.now(), packet.wire_len()) {
            return Ok(cx.pass());
        }
        let hopeless = u64::from(packet.wire_len()) > self.limit.burst();
        Ok(Verdict::Drop(if hopeless { LARGER_THAN_BURST } else { RATE_EXCEEDED }))
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }
}

impl Policer {
    #[inline(always)]
    fn polices(&self, packet: &Packet<'_>) -> bool {
        self.from_port.is_none_or(|port| port == packet.port())
    }
}

#[cfg(test)]
mod tests;
