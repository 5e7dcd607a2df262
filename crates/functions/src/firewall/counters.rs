//! How often rules with a counter have decided, as with `counter` of nftables: of packets that would open a connection and queries,
//! for rules are asked about no others.
//!
//! Each worker counts by itself. Other rules begin to count anew: the counts of rules that were exchanged say nothing about theirs.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateObject, hash};

use super::rules::Rule;
use crate::config::ConfigError;

/// The counts; none at all if no rule has a counter.
pub(super) struct Counters {
    /// By the number of the rule its place among those that count.
    places: Vec<Option<u32>>,
    counts: Option<DistributedVector<u64>>,
}

impl Counters {
    pub(super) fn new(builder: &mut StateBuilder, rules: &[Rule]) -> Result<Counters, ConfigError> {
        let mut len = 0;
        let mut places = Vec::with_capacity(rules.len());
        for rule in rules {
            places.push(rule.counter.then_some(len));
            len += u32::from(rule.counter);
        }
        if len == 0 {
            return Ok(Counters { places: Vec::new(), counts: None });
        }
        let name = format!("rule_counts_{:08x}", hash::mixed(format!("{rules:?}").as_bytes(), 0) as u32);
        let counts = DistributedVector::new(builder, &DistributedVectorConfig { name, len }, |sum, part| *sum += part);
        let counts = counts.map_err(|error| ConfigError::state("rules", &error))?;
        Ok(Counters { places, counts: Some(counts) })
    }

    /// The rule with this number has decided once more.
    pub(super) fn count(&self, cx: &mut Cx<'_>, number: Option<usize>) -> Result<(), Conflict> {
        if let Some(counts) = &self.counts
            && let Some(place) = number.and_then(|number| *self.places.get(number)?)
        {
            counts.update(cx, place, |count| *count += 1)?;
        }
        Ok(())
    }

    /// What each rule that counts has counted.
    pub(super) fn report(&self, cx: &mut Cx<'_>, rules: &[Rule], into: &mut Findings) -> Result<(), Conflict> {
        let Some(counts) = &self.counts else { return Ok(()) };
        for (number, (rule, place)) in rules.iter().zip(&self.places).enumerate() {
            let Some(place) = place else { continue };
            let mut sum = 0;
            counts.visit(cx, *place, |count| sum += count)?;
            let comment = if rule.comment.is_empty() { String::new() } else { format!(" ({})", rule.comment) };
            into.find("rule", format!("{}{comment}", rule.place(number)), format!("decided {sum} times"));
        }
        Ok(())
    }
}

impl Part for Counters {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.extend(self.counts.iter().map(DistributedVector::object));
    }
}
