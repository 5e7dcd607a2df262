//! A bounded log of alerts, or of anything else that a function lists. It has one entry for each subject, raised once, perhaps
//! amended later, and kept until the run ends.
//!
//! Functions raise an alert when something passes a threshold. That is rare, so the log is an ordinary map and costs a
//! transaction only then. A full log counts how often it could not take an alert; several of these attempts may concern the
//! same one.

use std::fmt::Debug;
use std::sync::Arc;

use braid_nf::state::{Inserted, Map, MapConfig, StateBuilder, StateError, StateObject, Visit};
use braid_nf::{Conflict, Cx, Findings, Part, Plain};

use crate::parts::Unkept;

/// Alerts of type `A` about subjects of type `K`.
pub struct Alerts<K, A> {
    log: Map<K, A>,
    unkept: Unkept,
}

impl<K: Plain + Debug, A: Plain> Alerts<K, A> {
    /// Creates an empty log for `capacity` subjects, named `alerts`.
    pub fn new(builder: &mut StateBuilder, capacity: u32) -> Result<Alerts<K, A>, StateError> {
        Alerts::named(builder, "alerts", capacity)
    }

    /// Creates an empty log with another name.
    pub fn named(builder: &mut StateBuilder, name: &'static str, capacity: u32) -> Result<Alerts<K, A>, StateError> {
        let log = Map::new(builder, &MapConfig { name: name.into(), capacity, ..MapConfig::default() })?;
        let told = format!("times that the log of {name} was full");
        Ok(Alerts { log, unkept: Unkept::new(builder, &format!("{name}_lost"), told)? })
    }

    /// Returns the alert about the subject, if there is one.
    pub fn known(&self, cx: &mut Cx<'_>, subject: &K) -> Result<Option<A>, Conflict> {
        self.log.get(cx, subject)
    }

    /// Raises an alert unless there already is one about the subject. Returns whether it is new.
    pub fn raise(&self, cx: &mut Cx<'_>, subject: &K, alert: &A) -> Result<bool, Conflict> {
        if self.log.contains(cx, subject)? {
            return Ok(false);
        }
        self.write(cx, subject, alert)?;
        Ok(true)
    }

    /// Replaces the alert about the subject with what `change` makes of it; `change` receives `None` if there is none.
    pub fn amend(&self, cx: &mut Cx<'_>, subject: &K, change: impl FnOnce(Option<A>) -> A) -> Result<(), Conflict> {
        let alert = change(self.log.get(cx, subject)?);
        self.write(cx, subject, &alert)
    }

    /// Writes an alert about the subject, replacing any previous one.
    pub fn write(&self, cx: &mut Cx<'_>, subject: &K, alert: &A) -> Result<(), Conflict> {
        if self.log.insert(cx, subject, alert)? == Inserted::Full {
            self.unkept.count(cx)?;
        }
        Ok(())
    }

    /// Passes each alert to `show`, which adds it to the findings.
    pub fn report(
        &self,
        cx: &mut Cx<'_>,
        into: &mut Findings,
        mut show: impl FnMut(&K, &A, &mut Findings),
    ) -> Result<(), Conflict> {
        into.pieces(|into, from, entries| {
            self.log.for_each(cx, from, entries, |_, subject, alert| {
                show(subject, alert, into);
                Ok(Visit::Keep)
            })
        })?;
        self.unkept.report(cx, into)
    }
}

impl<K: Plain, A: Plain> Part for Alerts<K, A> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.log.objects(into);
        self.unkept.objects(into);
    }
}

impl<K, A> Debug for Alerts<K, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alerts")
    }
}
