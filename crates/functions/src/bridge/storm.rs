//! Storm control: limits how many frames a second may be flooded from each port, counted separately for broadcast, multicast
//! and unknown destinations. All workers share the counts.

use std::sync::Arc;

use braid_nf::packet::MacAddress;
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateObject, VectorConfig};
use braid_nf::{Part, Port};
use serde::Deserialize;

use crate::config::ConfigError;
use crate::token_bucket::{Bucket, Limit};

/// `[storm]`: frames a second on each port; `None`: unlimited. Bursts may be a tenth of a second's worth, at least 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StormConfig {
    /// Frames for ff:ff:ff:ff:ff:ff.
    pub broadcast_per_s: Option<u64>,
    /// Frames for other groups.
    pub multicast_per_s: Option<u64>,
    /// Frames for unknown stations.
    pub unknown_per_s: Option<u64>,
}

/// Why a frame is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is for the broadcast address.
    Broadcast = 0,
    /// It is for a group.
    Multicast = 1,
    /// Its destination is unknown.
    Unknown = 2,
}

impl Cause {
    /// Why a frame for `to` is flooded.
    pub fn of(to: MacAddress) -> Cause {
        match (to.0 == [0xff; 6], to.is_group()) {
            (true, _) => Cause::Broadcast,
            (_, true) => Cause::Multicast,
            _ => Cause::Unknown,
        }
    }

    /// The drop reason when there are too many.
    pub fn reason(self) -> Reason {
        Reason(["storm_broadcast", "storm_multicast", "storm_unknown"][self as usize])
    }
}

/// The three limits and what each port has used of them.
pub struct Storm {
    limits: [Option<Limit>; 3],
    buckets: Vector<[Bucket; 3]>,
}

impl Storm {
    /// Creates the limits; `None` if there are none.
    pub fn new(config: StormConfig, builder: &mut StateBuilder, ports: u16) -> Result<Option<Storm>, ConfigError> {
        let limit = |key: &str, rate: Option<u64>| {
            rate.map(|rate| Limit::new(key, rate, key, Limit::usual_burst(rate, 10))).transpose()
        };
        let limits = [
            limit("storm.broadcast_per_s", config.broadcast_per_s)?,
            limit("storm.multicast_per_s", config.multicast_per_s)?,
            limit("storm.unknown_per_s", config.unknown_per_s)?,
        ];
        if limits.iter().all(Option::is_none) {
            return Ok(None);
        }
        let full = limits.map(|limit| limit.map_or(Bucket::default(), |limit| limit.full(0)));
        let init = VectorConfig { name: "storm".into(), len: ports.max(1).into() };
        let buckets = Vector::new(builder, &init, full).map_err(|error| ConfigError::state("storm", &error))?;
        Ok(Some(Storm { limits, buckets }))
    }

    /// Whether another frame from `port` may be flooded.
    pub fn admits(&self, cx: &mut Cx<'_>, port: Port, cause: Cause) -> Result<bool, Conflict> {
        let (now, kind) = (cx.now(), cause as usize);
        let Some(limit) = self.limits[kind] else { return Ok(true) };
        let taken = self.buckets.update(cx, port.into(), |buckets| limit.take(&mut buckets[kind], now, 1))?;
        Ok(taken.unwrap_or(false))
    }
}

impl Part for Storm {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.buckets.objects(into);
    }
}

impl std::fmt::Debug for Storm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storm").field("limits", &self.limits).finish_non_exhaustive()
    }
}
