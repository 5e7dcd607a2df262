//! Flows and mappings in words, for an operator who lists them: which inside endpoint has which external one.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Handle, Visit};
use braid_nf::{About, EntryRange, Fate, TableEntry, end_in_words};

use super::endpoint::{Inside, Kept};
use super::flows::Flows;
use super::session::{Heading, Phase};
use super::table::Mappings;
use super::table::entry::{Entry, NEVER};

/// When the port of a mapping that an operator ends is free for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// At once: every packet of a known flow looks at the mapping.
    AtOnce,
    /// When every known flow has looked at the mapping, which takes up to `refresh_ms`.
    WhenLookedAt,
}

/// Of a flow whose mapping has ended: its next packet begins another, or is dropped.
const ENDED: &str = "its mapping has ended";

impl<K: Kept> Flows<K> {
    /// What one direction of a flow is translated to, and how far it has come.
    pub(crate) fn words(
        &self,
        cx: &mut Cx<'_>,
        (index, way, phase): (u32, Heading, Phase),
        is_over: impl FnOnce(Handle) -> bool,
    ) -> Result<String, Conflict> {
        let now = cx.now();
        let known = self.mappings.at(cx, index)?.filter(|(handle, ..)| is_over(*handle));
        let Some((_, inside, entry)) = known.filter(|(.., entry)| self.mappings.holds(now, entry)) else {
            return Ok(ENDED.to_owned());
        };
        let inside = inside.inside();
        let [own, external] = self.mappings.ends(&inside, &entry).map(|end| end_in_words(inside.protocol, end));
        let exchanged = match way {
            Heading::Outward => format!("source {own} → {external}"),
            Heading::Inward => format!("destination {external} → {own}"),
        };
        let network = self.mappings.network(&inside).map_or_else(String::new, |name| format!(", {name}"));
        Ok(format!("{exchanged}{network}, {}", phase_in_words(inside.protocol, phase)))
    }
}

/// How far a direction has come.
fn phase_in_words(number: u8, phase: Phase) -> &'static str {
    match (number, phase) {
        (protocol::TCP, Phase::Asked) => "SYN sent",
        (protocol::TCP, Phase::Opening) => "opening",
        (protocol::TCP, Phase::Established) => "established",
        (protocol::TCP, Phase::Finished) => "FIN sent",
        (protocol::TCP, Phase::Reset) => "reset",
        (_, Phase::Opening) => "one packet",
        _ => "several packets",
    }
}

impl<K: Kept> Mappings<K> {
    /// Tells of the entries in `range`, and ends those that are to end; returns where to go on.
    pub(crate) fn list(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        freed: Freed,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let (now, mut chosen) = (cx.now(), Vec::new());
        let next = self.entries.for_each(cx, range.first, range.count, |_, inside, packed| {
            let (inside, entry) = (inside.inside(), Entry::from(*packed));
            if tell(self.shown(now, &inside, &entry)) == Fate::Keep {
                return Ok(Visit::Keep);
            }
            if freed == Freed::AtOnce {
                chosen.push((inside, entry));
                return Ok(Visit::Keep);
            }
            // Its port rests no longer than flows may go without a look.
            let ends_ns = entry.ends_ns.min((now + self.refresh_ns).saturating_sub(self.rest_ns));
            Ok(Visit::Replace(Entry { ends_ns, ..entry }.into()))
        })?;
        chosen.iter().try_for_each(|(inside, entry)| self.end(cx, *inside, entry))?;
        Ok(next)
    }

    fn shown(&self, now: u64, inside: &Inside, entry: &Entry) -> TableEntry {
        let is_static = entry.ends_ns == NEVER;
        // It ends with the last of them.
        let is_held = self.counts_sets(inside.protocol) && entry.counts() && entry.sets > 0 && self.holds(now, entry);
        TableEntry {
            kind: "mapping",
            about: About::Traffic { protocol: inside.protocol, ends: self.ends(inside, entry) },
            detail: self.detail(now, inside, entry),
            left_ns: (!is_static && !is_held).then(|| entry.ends_ns.saturating_sub(now)),
            is_configured: is_static,
        }
    }

    fn detail(&self, now: u64, inside: &Inside, entry: &Entry) -> String {
        let mut details = Vec::new();
        details.extend(self.network(inside).map(str::to_owned));
        if entry.ends_ns == NEVER {
            details.push("static".to_owned());
        } else if !self.holds(now, entry) {
            details.push("ended, its port rests".to_owned());
        } else if self.counts_sets(inside.protocol) && entry.counts() {
            details.push(match entry.sets {
                1 => "1 TCP packet set".to_owned(),
                sets => format!("{sets} TCP packet sets"),
            });
        }
        details.join(", ")
    }

    /// Whether a mapping holds.
    fn holds(&self, now: u64, entry: &Entry) -> bool {
        now < entry.ends_ns && !self.roster.has_left(entry.address)
    }

    /// The inside and the external end.
    fn ends(&self, inside: &Inside, entry: &Entry) -> [(IpAddress, u16); 2] {
        [(inside.address, inside.port), (IpAddress::from_v4(self.address(entry.address)), entry.port)]
    }

    /// What the network of an inside endpoint is called; nothing if there is but one.
    fn network(&self, inside: &Inside) -> Option<&str> {
        self.census.name(inside.network)
    }
}
