//! Limits every flow to a rate of its own: a token bucket for each 5-tuple.

mod config;

pub use config::Config;

use braid_nf::FieldUse;
use braid_nf::prelude::*;

use crate::config::READS_WIRE_LEN;
use crate::parts::headers::scope::pass_unless_damaged;
use crate::token_bucket::{Bucket, LARGER_THAN_BURST, Limit, RATE_EXCEEDED};
use crate::{ConfigError, FromConfig};

network_function! {
    /// Limits flows; see the README beside this file.
    #[derive(Debug)]
    pub struct RateLimiter {
        limit: Limit,
        in_packets: bool,
        idle_timeout_ns: u64,
    }
}

impl FromConfig for RateLimiter {
    type Config = Config;

    fn from_config(config: Config, _: &mut StateBuilder, _: u16) -> Result<RateLimiter, ConfigError> {
        let (limit, in_packets) = config.limit()?;
        Ok(RateLimiter { limit, in_packets, idle_timeout_ns: config.idle_timeout_ns(&limit)? })
    }
}

impl NetworkFunction for RateLimiter {
    type Set = Bucket;
    const NAME: &'static str = "rate_limiter";
    const ANY_SET: bool = true;

    /// A bucket keeps its credit under any limit; credit beyond the burst is cut.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &Bucket) -> u64 {
        self.idle_timeout_ns
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.idle_timeout_ns
    }

    fn fields(&self) -> Vec<FieldUse> {
        if self.in_packets { Vec::new() } else { vec![READS_WIRE_LEN] }
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Bucket>) -> Handled {
        if u64::from(self.cost(packet)) > self.limit.burst() {
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
        let cost = self.cost(packet);
        if self.limit.take(bucket, cx.now(), cost) {
            return Ok(cx.pass());
        }
        Ok(Verdict::Drop(if u64::from(cost) > self.limit.burst() { LARGER_THAN_BURST } else { RATE_EXCEEDED }))
    }

    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, bucket: &Bucket) -> Result<Option<String>, Conflict> {
        let unit = if self.in_packets { "packets" } else { "bytes" };
        Ok(Some(self.limit.credit_in_words(bucket, cx.now(), unit)))
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(pass_unless_damaged(cx, packet))
    }
}

impl RateLimiter {
    #[inline(always)]
    fn cost(&self, packet: &Packet<'_>) -> u32 {
        if self.in_packets { 1 } else { packet.wire_len() }
    }
}

#[cfg(test)]
mod tests;
