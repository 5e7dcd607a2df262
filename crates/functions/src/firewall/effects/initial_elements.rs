//! Elements that a rule file gives to sets that packets modify, or that have a timeout, as a listing of a live machine
//! shows them: `elements = { 192.0.2.9 timeout 4h expires 3h59m40s }`.
//!
//! They stay where the file has put them and are not copied. What a rule adds or refreshes is kept in a separate table,
//! which takes precedence. Their lifetime starts when the rules do, and continues as long as the file says the same about
//! the set.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{MapConfig, StateObject, hash};

use super::dynamic_sets::{Dynamic, Element, PARTS_MAX};
use crate::config::ConfigError;

/// One element: with a single field it may be a range, with concatenated fields it is one value of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::firewall) struct Given {
    pub(in crate::firewall) first: [u128; PARTS_MAX],
    /// The last value of the first field.
    pub(in crate::firewall) last: u128,
    /// `None`: it has no timeout.
    pub(in crate::firewall) lives_s: Option<u32>,
}

impl Dynamic {
    /// Sorts the elements that the file gives, for fast look-up. If an element is given twice the first counts, as in the
    /// kernel. Returns false if ranges overlap, which nftables refuses unless it may merge them.
    #[must_use]
    pub(in crate::firewall) fn order(&mut self) -> bool {
        self.given.sort_by_key(|given| given.first);
        self.given.dedup_by(|next, known| (next.first, next.last) == (known.first, known.last));
        let is_apart = |pair: &[Given]| pair[0].last < pair[1].first[0] || pair[0].last == pair[0].first[0];
        self.given.windows(2).all(is_apart)
    }

    /// The element that the file has given, whatever its age.
    pub(in crate::firewall) fn given(&self, element: &Element) -> Option<&Given> {
        let values = element.0.map(u128::from_be_bytes);
        let at = self.given.partition_point(|given| given.first <= values);
        let given = self.given.get(at.checked_sub(1)?)?;
        let is_within = values[0] <= given.last && values[1..] == given.first[1..];
        is_within.then_some(given)
    }

    /// Identifies the set, to find when its elements were added.
    fn id(&self) -> u64 {
        hash::mixed(format!("{} {}", self.table, self.name).as_bytes(), 0)
    }

    /// Identifies the content, to tell whether the file says the same.
    fn content(&self) -> u64 {
        hash::mixed(format!("{:?}", self.given).as_bytes(), 1)
    }

    fn leaves(&self) -> bool {
        self.given.iter().any(|given| given.lives_s.is_some())
    }
}

/// When the elements with a timeout were first there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Beginning {
    content: u64,
    at_ns: u64,
}

/// The times at which sets got their elements.
pub(in crate::firewall) struct Since {
    beginnings: Map<u64, Beginning>,
    /// The identities of the sets and of their contents.
    sets: Vec<(u64, u64)>,
}

/// The maximum number of sets in rule files over time. Elements of a set that finds no room restart with each packet, and
/// never expire.
const SETS_MAX: u32 = 1024;

impl Since {
    /// `None` if these sets are given no elements.
    pub(in crate::firewall) fn of<'a>(
        builder: &mut StateBuilder,
        sets: impl Iterator<Item = &'a Dynamic>,
    ) -> Result<Option<Since>, ConfigError> {
        let mut has_elements = false;
        let leaving = |set: &&Dynamic| {
            has_elements |= !set.given.is_empty();
            set.leaves()
        };
        let sets: Vec<_> = sets.filter(leaving).map(|set| (set.id(), set.content())).collect();
        if !has_elements {
            return Ok(None);
        }
        let config = MapConfig { name: "given".to_owned(), capacity: SETS_MAX, ..MapConfig::default() };
        let beginnings = Map::new(builder, &config).map_err(|error| ConfigError::state("rules_file", &error))?;
        Ok(Some(Since { beginnings, sets }))
    }

    /// Notes for all sets that their elements are there.
    pub(in crate::firewall) fn begin(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.sets.iter().try_for_each(|(id, content)| self.since(cx, *id, *content).map(drop))
    }

    /// The time since which the elements of a set are there; it is now if they were not there before.
    fn since(&self, cx: &mut Cx<'_>, id: u64, content: u64) -> Result<u64, Conflict> {
        match self.beginnings.get(cx, &id)? {
            Some(known) if known.content == content => Ok(known.at_ns),
            _ => {
                let at_ns = cx.now();
                self.beginnings.insert(cx, &id, &Beginning { content, at_ns })?;
                Ok(at_ns)
            }
        }
    }

    /// The time at which an element that the file has given expires, if it is still there.
    pub(in crate::firewall) fn until(
        &self,
        cx: &mut Cx<'_>,
        set: &Dynamic,
        element: &Element,
    ) -> Result<Option<u64>, Conflict> {
        let Some(given) = set.given(element) else { return Ok(None) };
        let Some(seconds) = given.lives_s else { return Ok(Some(u64::MAX)) };
        let id = set.id();
        let content = self.sets.iter().find(|(known, _)| *known == id).map_or(0, |(_, content)| *content);
        let until = self.since(cx, id, content)?.saturating_add(u64::from(seconds) * 1_000_000_000);
        Ok(Some(until).filter(|until| cx.now() <= *until))
    }
}

impl braid_nf::Part for Since {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.beginnings.objects(into);
    }
}
