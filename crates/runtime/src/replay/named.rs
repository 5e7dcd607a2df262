//! Whether functions name the header fields that they change ([`rewrites`](braid_nf::NetworkFunction::rewrites)).
//!
//! Functions with one packet set are given the key that the first of them has found, and steering reckons with what is named. Behind a
//! change that is not named the next one goes on with the packet's former key, in the run as in its replay: no comparison of the two would
//! tell. So each packet's fields are looked at before a function and behind it.

use std::collections::BTreeSet;

use braid_nf::Verdicts;
use braid_nf::packet::key::{FieldId, KeyExtractor, SetDef, SetKey};
use braid_packet::Batch;
use braid_steer::Fields;

use super::{Difference, Replay};
use crate::chain::Chain;
use crate::course::Direction;

/// What packets have in the fields of a chain's packet sets.
pub(super) struct Named {
    fields: Vec<(FieldId, KeyExtractor)>,
    /// Of some packets one after another, where they came from and each field's value.
    before: Vec<(Direction, Vec<Option<SetKey>>)>,
    /// By functions, as they are told.
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

    /// Notes what some packets have, before functions handle them.
    pub(super) fn look(&mut self, chain: &Chain, batch: &Batch, packets: &[u16]) {
        self.before.clear();
        for &i in packets {
            let side = chain.side_of(batch.records()[usize::from(i)].port);
            let values = self.fields.iter().map(|(_, extractor)| value(extractor, batch, i)).collect();
            self.before.push((side, values));
        }
    }

    /// Compares that with what the packets have behind these functions; those that were dropped meet no other one.
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

    /// What has been found, each function and field once.
    pub(super) fn found(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.found)
    }
}

/// What a packet has in one field, if it has it.
fn value(extractor: &KeyExtractor, batch: &Batch, i: u16) -> Option<SetKey> {
    extractor.extract(&batch.records()[usize::from(i)], batch.bytes(i.into())).map(|found| found.key)
}

/// What functions say that they change of packets of a direction. A chain with one order does not know where packets come from.
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
    /// Of what has been found so far, this first: what comes of it is seen elsewhere too.
    pub(super) fn with_unnamed(&mut self) -> Vec<Difference> {
        let mut all = self.named.found();
        all.append(&mut self.differences);
        all
    }
}
