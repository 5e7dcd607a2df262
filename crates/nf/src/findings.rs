//! What a function has to tell when a run ends: sums, and findings about somebody.
//!
//! Findings are for reading. They are made from committed state after the last packet, so they are as certain as the state
//! is: a certificate that compares all state compares them too.

use std::collections::BTreeMap;

/// One finding: what was found, about whom, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Its kind in lower case with `_`, as `scanner`.
    pub kind: &'static str,
    /// Whom it concerns: an address, a key.
    pub subject: String,
    /// What speaks for it.
    pub detail: String,
}

/// All that one function found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    sums: BTreeMap<String, u64>,
    list: Vec<Finding>,
}

impl Findings {
    /// Adds to a sum, which begins at 0.
    pub fn add(&mut self, name: impl Into<String>, more: u64) {
        *self.sums.entry(name.into()).or_default() += more;
    }

    /// Adds a finding.
    pub fn find(&mut self, kind: &'static str, subject: impl ToString, detail: impl Into<String>) {
        self.list.push(Finding { kind, subject: subject.to_string(), detail: detail.into() });
    }

    /// Sums by name.
    pub fn sums(&self) -> &BTreeMap<String, u64> {
        &self.sums
    }

    /// Findings, by kind and subject once [sorted](Findings::sort).
    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.list.is_empty()
    }

    /// Puts findings in an order that does not depend on where state lies; the same finding stands once.
    pub fn sort(&mut self) {
        self.list.sort();
        self.list.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_findings_stand_once_in_order() {
        let mut findings = Findings::default();
        assert!(findings.is_empty());
        findings.add("flows", 2);
        findings.add("flows", 3);
        for subject in ["10.0.0.2", "10.0.0.1", "10.0.0.2"] {
            findings.find("scanner", subject, "5 failures");
        }
        findings.sort();
        assert_eq!(findings.sums()["flows"], 5);
        assert_eq!(findings.list().iter().map(|f| f.subject.as_str()).collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.2"]);
    }
}
