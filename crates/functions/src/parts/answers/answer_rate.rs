//! Limits how many answers a function sends per second on each port (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f), RFC
//! 5508 REQ-10).
//!
//! Packets that are not answered only because of the limit are counted.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{Distributed, DistributedConfig, StateObject, VectorConfig};
use braid_nf::{Findings, Part, Port};

use super::answer::{self, Router, may_be_answered};
use crate::config::ConfigError;
use crate::token_bucket::{Bucket, Limit};

/// The plan file's key for the number of answers per second.
const KEY: &str = "icmp_errors_per_s";

/// The limit of answers per port, and the count of those withheld.
pub struct AnswerRate {
    /// `None`: nothing is answered.
    limit: Option<Limit>,
    buckets: Vector<Bucket>,
    withheld: Distributed<u64>,
}

impl AnswerRate {
    /// Allows `per_second` answers by each port, in bursts of a tenth of a second's worth (at least 10). With 0, nothing is
    /// answered (RFC 5508 REQ-9).
    pub fn new(builder: &mut StateBuilder, per_second: u64, ports: u16) -> Result<AnswerRate, ConfigError> {
        let limit = match per_second {
            0 => None,
            _ => Some(Limit::new(KEY, per_second, KEY, Limit::usual_burst(per_second, 10))?),
        };
        let full = limit.map_or(Bucket::default(), |limit| limit.full(0));
        builder.agree("icmp_errors", format!("{per_second} answers a second by each port"));
        // The second half is for messages of path MTU discovery.
        let buckets = VectorConfig { name: "icmp_errors".into(), len: 2 * u32::from(ports.max(1)) };
        let withheld = DistributedConfig { name: "icmp_errors_withheld".into(), staleness_ns: 0 };
        let state = |error| ConfigError::state(KEY, &error);
        Ok(AnswerRate {
            limit,
            buckets: Vector::new(builder, &buckets, full).map_err(state)?,
            withheld: Distributed::new(builder, &withheld, 0).map_err(state)?,
        })
    }

    /// Whether the packet may be answered now; uses up one answer if so.
    #[cold]
    pub fn admits(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<bool, Conflict> {
        if !may_be_answered(packet) { Ok(false) } else { self.admits_by(cx, packet.port()) }
    }

    /// Like [`admits`](Self::admits), for a packet that [`may_be_answered`] and arrived on this port.
    #[cold]
    pub fn admits_by(&self, cx: &mut Cx<'_>, port: Port) -> Result<bool, Conflict> {
        self.take(cx, port.into())
    }

    /// Like [`admits`](Self::admits), for the message that a packet is too long. These have a limit of their own at each port: without them
    /// connections hang, so no other errors may use it up (Linux does not limit them at all).
    #[cold]
    pub fn admits_too_long(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<bool, Conflict> {
        let second = self.buckets.len() / 2;
        if !may_be_answered(packet) { Ok(false) } else { self.take(cx, second + u32::from(packet.port())) }
    }

    fn take(&self, cx: &mut Cx<'_>, at: u32) -> Result<bool, Conflict> {
        let now = cx.now();
        if let Some(limit) = &self.limit
            && let Some(mut bucket) = self.buckets.get(cx, at)?
            && limit.take(&mut bucket, now, 1)
        {
            return self.buckets.set(cx, at, bucket);
        }
        // An empty bucket is not written: when most packets go unanswered, workers would conflict on it for nothing.
        self.withheld.update(cx, |count| *count += 1)?;
        Ok(false)
    }

    /// Drops a packet whose last hop this is, and tells its sender so, as `router`, if it may be answered.
    #[cold]
    pub(crate) fn time_exceeded(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, router: Router) -> Handled {
        if self.admits(cx, packet)? {
            answer::time_exceeded(cx, packet, router);
        }
        Ok(Verdict::Drop(Reason::TTL_EXCEEDED))
    }

    /// How many packets were not answered because of the limit.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let withheld = self.withheld.read(cx, |sum, part| *sum += part)?;
        if withheld > 0 {
            into.add("icmp_errors_withheld", withheld);
        }
        Ok(())
    }
}

impl Part for AnswerRate {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.buckets.objects(into);
        self.withheld.objects(into);
    }
}

impl std::fmt::Debug for AnswerRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerRate").field("limit", &self.limit).finish_non_exhaustive()
    }
}
