//! How many packets got which colour, and how many bytes they had, if `counts` is set.
//!
//! Counts are exact, so they are part of each packet's transaction, in counters of each worker's own. No packet takes the short way
//! of a plain policer then; hence the option.

use braid_nf::prelude::*;

use super::{Colour, Policer};
use crate::ConfigError;
use crate::parts::tables::tallies::{Adds, Tallies};
use crate::parts::{Volume, times};

/// The names of what is counted: the colours, in their order, and what the link had no room for.
const NAMES: [&str; 4] = ["green", "yellow", "red", "link_exceeded"];

/// What became of a metered packet, as a place among the counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Met {
    Colour(Colour),
    LinkExceeded,
}

impl Adds for Volume {
    fn add(&mut self, more: &Volume) {
        *self = self.plus(*more);
    }
}

/// The counts; `None` if nothing is to be counted.
pub(super) fn counts(builder: &mut StateBuilder, are_wanted: bool) -> Result<Tallies<Volume>, ConfigError> {
    let len = NAMES.len() as u32;
    let made = Tallies::new(builder, "colours", if are_wanted { len } else { 0 }, len);
    made.map_err(|error| ConfigError::state("counts", &error))
}

impl Policer {
    /// Counts a packet, if packets are counted.
    #[inline(always)]
    pub(super) fn count(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, met: Met) -> Result<(), Conflict> {
        let number = match met {
            Met::Colour(Colour::Green) => 0,
            Met::Colour(Colour::Yellow) => 1,
            Met::Colour(Colour::Red) => 2,
            Met::LinkExceeded => 3,
        };
        self.colours.count(cx, number, Volume { packets: 1, bytes: packet.wire_len().into() })
    }

    /// Reports what was counted.
    pub(super) fn tell_counts(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        if self.colours.is_empty() {
            return Ok(());
        }
        let is_there =
            |name: &&str| (*name != "yellow" || self.has_yellow()) && (*name != "link_exceeded" || self.link.is_some());
        for (number, name) in NAMES.iter().enumerate().filter(|(_, name)| is_there(name)) {
            let Volume { packets, bytes } = self.colours.sum(cx, number as u32)?;
            if into.is_for_metrics() {
                into.count("colour_bytes", *name, bytes, "");
            }
            into.count("colour", *name, packets, format!("{}, {bytes} bytes", times(packets)));
        }
        Ok(())
    }

    /// Whether a packet can be yellow.
    fn has_yellow(&self) -> bool {
        self.colour_aware || !matches!(self.meter, super::Meter::Single(_))
    }
}
