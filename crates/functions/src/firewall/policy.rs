//! All rules together: which one decides about a packet, and what it says.

use std::fs;
use std::sync::Arc;

use super::classifier::{BOXES_MAX, Classifier};
use super::config::Config;
use super::rule_file;
use super::rules::{Action, Facts, Rule, refuse};
use crate::config::ConfigError;

/// Rules, and what counts if none of them fits.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) rules: Arc<[Rule]>,
    classifier: Arc<Classifier>,
    /// From inside, from outside.
    otherwise: [Action; 2],
}

impl Policy {
    /// Those of the plan first, then those of the rule file.
    pub(super) fn check(config: &mut Config) -> Result<Policy, ConfigError> {
        for (number, rule) in config.rules.iter().enumerate() {
            rule.check().map_err(|error| refuse(number, error))?;
        }
        if let Some(path) = config.rules_file.clone() {
            let wrong = |reason: String, instead: String| ConfigError::new("rules_file", reason, instead);
            let text = fs::read_to_string(&path).map_err(|error| {
                let instead = "write the path of a rule file, from the folder in which braid runs";
                wrong(format!("{}: {error}", path.display()), instead.to_owned())
            })?;
            rule_file::read(&text, config).map_err(|error| {
                wrong(format!("{}:{}: {}", path.display(), error.line, error.reason), error.instead)
            })?;
        }
        let classifier = Classifier::new(&config.rules).map_err(|boxes| {
            let reason = format!("the lists of the rules multiply to {boxes} combinations; {BOXES_MAX} is the most");
            ConfigError::new("rules", reason, "write rules with fewer long lists in one")
        })?;
        Ok(Policy {
            rules: std::mem::take(&mut config.rules).into(),
            classifier: Arc::new(classifier),
            otherwise: [config.outbound, config.inbound],
        })
    }

    /// The number of the first rule that fits, if one does, and what becomes of the packet.
    pub(super) fn decide(&self, facts: &Facts) -> (Option<usize>, Action) {
        let number = self.classifier.find(facts);
        let action = number.and_then(|number| self.rules.get(number)).map(|rule| rule.action);
        (number, action.unwrap_or(self.otherwise[facts.side as usize]))
    }
}
