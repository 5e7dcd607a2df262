//! All rules together: which one decides about a packet, and what it says.

use std::fs;
use std::sync::Arc;

use braid_nf::packet::Packet;
use braid_nf::state::hash;

use super::classifier::{BOXES_MAX, Classifier};
use super::config::{Config, Ttl};
use super::fields;
use super::rule_file::{self, Ports};
use super::rules::{Action, Facts, Rule, refuse};
use crate::config::ConfigError;
use crate::parts::Side;

/// Rules, and what counts if none of them fits.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) rules: Arc<[Rule]>,
    /// What of a rule file is not asked, and why.
    pub(super) notes: Arc<[rule_file::Note]>,
    classifier: Arc<Classifier>,
    /// Whether rules may say of packets of one connection what they did not say of its first one: they count, or look at more than its ends.
    pub(super) tells_packets_apart: bool,
    /// How many hops a packet loses here, if rules look at what few do.
    looks_at_fields: Option<u8>,
    /// From inside, from outside.
    otherwise: [Action; 2],
}

impl Policy {
    /// Those of the plan first, then those of the rule file.
    pub(super) fn check(config: &mut Config, ports: Ports) -> Result<Policy, ConfigError> {
        for key in [("outbound", config.outbound), ("inbound", config.inbound)] {
            if key.1 == Action::Continue {
                return Err(ConfigError::new(key.0, "nothing comes behind it", "write allow, deny or reject"));
            }
        }
        for (number, rule) in config.rules.iter_mut().enumerate() {
            rule.check().and_then(|()| rule.check_ports(ports.count)).map_err(|error| refuse(number, error))?;
            rule.origin = hash::mixed(format!("{rule:?}").as_bytes(), 0);
        }
        let mut notes = Vec::new();
        if let Some(path) = config.rules_file.clone() {
            let wrong = |reason: String, instead: String| ConfigError::new("rules_file", reason, instead);
            let text = fs::read_to_string(&path).map_err(|error| {
                let instead = "write the path of a rule file, from the folder in which braid runs";
                wrong(format!("{}: {error}", path.display()), instead.to_owned())
            })?;
            notes = rule_file::read(&path, &text, config, ports).map_err(|error| {
                let rule_file::RuleError { file, line, column, reason, instead } = error;
                wrong(format!("{file}:{line}:{column}: {reason}"), instead)
            })?;
        }
        let classifier = Classifier::new(&config.rules).map_err(|boxes| {
            let reason = format!("the lists of the rules multiply to {boxes} combinations; {BOXES_MAX} is the most");
            ConfigError::new("rules", reason, "write rules with fewer long lists in one")
        })?;
        let looks = config.rules.iter().any(|rule| !rule.fields.is_empty());
        let looks_at_fields = looks.then_some(u8::from(config.ttl == Ttl::Decrement));
        let one_port_each = ports.count <= 2;
        Ok(Policy {
            tells_packets_apart: config.rules.iter().any(|rule| rule.tells_packets_apart(one_port_each)),
            rules: std::mem::take(&mut config.rules).into(),
            notes: notes.into(),
            classifier: Arc::new(classifier),
            looks_at_fields,
            otherwise: [config.outbound, config.inbound],
        })
    }

    /// What the rules look at of a packet.
    #[inline]
    pub(super) fn facts(&self, packet: &Packet<'_>, side: Side) -> Facts {
        let facts = Facts::of(packet, side);
        match self.looks_at_fields {
            None => facts,
            Some(hops) => Facts { fields: fields::of(packet, hops), ..facts },
        }
    }

    /// The number of the rule that decides, if one does, and what becomes of the packet. `meets` is asked about each rule on the
    /// way that does something besides: whether it fits now, which its limit may prevent.
    pub(super) fn decide<E>(
        &self,
        facts: &Facts,
        mut meets: impl FnMut(usize, &Rule) -> Result<bool, E>,
    ) -> Result<(Option<usize>, Action), E> {
        let mut from = 0;
        while let Some(number) = self.classifier.find(facts, from)
            && let Some(rule) = self.rules.get(number)
        {
            let behind = if !rule.has_effects() || meets(number, rule)? {
                if rule.action != Action::Continue {
                    return Ok((Some(number), rule.action));
                }
                rule.next
            } else {
                rule.missed
            };
            // Rules only go on at later ones.
            from = behind.map_or(number + 1, |behind| (behind as usize).max(number + 1));
        }
        Ok((None, self.otherwise[facts.side as usize]))
    }
}
