//! Checks that functions declare the header fields that they change ([`rewrites`](braid_nf::NetworkFunction::rewrites)).
//!
//! Functions with the same packet set share the key found by the first of them, and steering relies on the declared changes. After an
//! undeclared change the next function would continue with the packet's former key, in the run as well as in its replay, so comparing the two
//! would not reveal it. Therefore each packet's fields are compared before and after a function.

use std::collections::BTreeSet;

use braid_nf::Verdicts;
use braid_nf::packet::key::{FieldId, KeyExtractor, SetDef, SetKey};
use braid_packet::Batch;
use braid_steer::Fields;

use super::{Difference, Replay};
use crate::chain::Chain;
use crate::chain::course::Direction;

/// The values of packets in the fields of a chain's packet sets.
pub(super) struct Named {
    fields: Vec<(FieldId, KeyExtractor)>,
    /// For each of some packets in order: its direction and the value of each field.
    before: Vec<(Direction, Vec<Option<SetKey>>)>,
    /// Functions and fields already reported; functions by the names shown in the report.
    told: BTreeSet<(String, FieldId)>,
    found: Vec<Difference>,
}

impl Named {
    pub(super) fn new(chain: &Chain) -> Named {
        let sets = || chain.groups().iter().map(|group| &group.set);
        let fields: BTreeSet<FieldId> = sets().flat_map(|set| &set.fields).copied().collect();
        let alone = |field: FieldId| {
            let segments = sets().find_map(|set| set.segments.clone());
            let set = SetDef { segments, ..SetDef::new(field.name(), &[field]) };
            Some((field, KeyExtractor::compile(&set).ok()?))
        };
        let fields = fields.into_iter().filter_map(alone).collect();
        Named { fields, before: Vec::new(), told: BTreeSet::new(), found: Vec::new() }
    }

    /// Notes the field values of some packets before functions handle them.
    pub(super) fn look(&mut self, chain: &Chain, batch: &Batch, packets: &[u16]) {
        self.before.clear();
        for &i in packets {
            let side = chain.side_of(batch.records()[usize::from(i)].port);
            let values = self.fields.iter().map(|(_, extractor)| value(extractor, batch, i)).collect();
            self.before.push((side, values));
        }
    }

    /// Compares those values with the ones after these functions; dropped packets meet no further function and are skipped.
    pub(super) fn compare(
        &mut self,
        (chain, functions): (&Chain, &[usize]),
        (batch, verdicts): (&Batch, &Verdicts),
        packets: &[u16],
    ) {
        let went_on = packets.iter().zip(&self.before).filter(|(i, _)| !verdicts.is_drop(usize::from(**i)));
        for (&i, (side, before)) in went_on {
            let named = named(chain, functions, *side);
            for ((field, extractor), before) in self.fields.iter().zip(before) {
                if named.has(*field) || *before == value(extractor, batch, i) {
                    continue;
                }
                let names: Vec<&str> = functions.iter().map(|at| chain.stages()[*at].name()).collect();
                let (function, field) = (names.join(", "), *field);
                if self.told.insert((function.clone(), field)) {
                    let packet = batch.sequence(i.into());
                    self.found.push(Difference::Unnamed { function, field: field.name(), packet });
                }
            }
        }
    }

    /// Returns what has been found, each function and field once.
    pub(super) fn found(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.found)
    }
}

/// The value of a packet in one field, if it has the field.
fn value(extractor: &KeyExtractor, batch: &Batch, i: u16) -> Option<SetKey> {
    extractor.extract(&batch.records()[usize::from(i)], batch.bytes(i.into())).map(|found| found.key)
}

/// The fields that functions declare to change in packets of a direction. A chain with a single order does not distinguish directions.
fn named(chain: &Chain, functions: &[usize], direction: Direction) -> Fields {
    let of = |&at: &usize| {
        let changed = chain.changes(at);
        match (chain.course().outside(), direction) {
            (None, _) => changed.any(),
            (Some(_), Direction::Forward) => changed.from_inside,
            (Some(_), Direction::Reverse) => changed.from_outside,
        }
    };
    functions.iter().map(of).fold(Fields::NONE, Fields::and)
}

impl Replay {
    /// Returns all differences, undeclared changes first, because they may be the cause of the others.
    pub(super) fn with_unnamed(&mut self) -> Vec<Difference> {
        let mut all = self.named.found();
        all.append(&mut self.differences);
        all
    }
}
