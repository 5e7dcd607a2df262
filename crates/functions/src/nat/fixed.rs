//! Mappings that are configured: there before the first packet, and exchanged when another configuration takes over.
//!
//! Their list lies beside the state, so that whoever takes over knows which of them go; a state object says which list was carried out last.

use std::fmt::Display;
use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{Numbering, StateError, StateObject, VectorConfig, hash};
use foldhash::HashSet;

use super::endpoint::{Endpoint, Inside, Kept, slot};
use super::entry::{Entry, NEVER};
use super::mappings::Mappings;
use crate::config::ConfigError;

/// Inside and external endpoints that belong together always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Fixed {
    pub(crate) inside: Inside,
    pub(crate) external: Endpoint,
    /// Port of the plan behind which its host is until it sends.
    pub(crate) home: Port,
}

/// Those of a configuration, as it is read.
#[derive(Default)]
pub(crate) struct List {
    all: Vec<Fixed>,
    insides: HashSet<Inside>,
    externals: HashSet<Endpoint>,
}

impl List {
    /// Adds one, which a configuration writes so; no two have an end in common.
    pub(crate) fn add(
        &mut self,
        fixed: Fixed,
        (inside, external): (&dyn Display, &dyn Display),
    ) -> Result<(), ConfigError> {
        let is_new = self.insides.insert(fixed.inside) & self.externals.insert(fixed.external);
        if !is_new {
            let reason = format!("{inside} or {external} stands there twice");
            return Err(ConfigError::new("static", reason, "write it once"));
        }
        self.all.push(fixed);
        Ok(())
    }

    /// All of them, at most so many.
    pub(crate) fn finish(self, most: u32) -> Result<Box<[Fixed]>, ConfigError> {
        if self.all.len() > most as usize {
            let instead = format!("write at most {most}, or a larger `mappings_max`");
            return Err(ConfigError::new("static", format!("{} are too many", self.all.len()), instead));
        }
        Ok(self.all.into())
    }
}

/// All of them.
pub(super) struct Statics {
    all: Box<[Fixed]>,
    /// Those of the configuration before that are none any more.
    gone: Box<[Fixed]>,
    list: Numbering,
    mark: u64,
    /// The mark of the list that was carried out.
    carried_out: Vector<u64>,
}

/// Of the list, and of the mark.
const LIST: &str = "static";
const CARRIED_OUT: &str = "static_carried_out";

impl Statics {
    pub(super) fn new(builder: &mut StateBuilder, all: &[Fixed]) -> Result<Statics, ConfigError> {
        let former = Numbering::left::<Fixed>(builder, LIST).unwrap_or_default();
        let is_behind = Vector::<u64>::left(builder, CARRIED_OUT, 0).is_some_and(|mark| mark != mark_of(&former));
        if former != all && is_behind {
            let reason = "they have changed a moment ago, and that change has not been carried out";
            return Err(ConfigError::new(
                "static",
                reason,
                "try again in a second; restore what a run has saved meanwhile with those that it had, and change them then",
            ));
        }
        let error = |error: StateError| ConfigError::state("static", &error);
        let stay: HashSet<&Fixed> = all.iter().collect();
        Ok(Statics {
            all: all.into(),
            gone: former.into_iter().filter(|fixed| !stay.contains(fixed)).collect(),
            list: Numbering::new(builder, LIST, all).map_err(error)?,
            mark: mark_of(all),
            carried_out: Vector::new(builder, &VectorConfig { name: CARRIED_OUT.into(), len: 1 }, 0).map_err(error)?,
        })
    }
}

/// Another number for another list, never 0.
fn mark_of(list: &[Fixed]) -> u64 {
    hash::mixed(list.as_bytes(), 1) | 1
}

impl<K: Kept> Mappings<K> {
    /// Has the configured mappings there, and those of the configuration before gone, if that has not been done.
    pub(crate) fn carry_out(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let Statics { all, gone, mark, carried_out, .. } = &self.statics;
        if carried_out.get(cx, 0)? == Some(*mark) {
            return Ok(());
        }
        gone.iter().try_for_each(|fixed| self.loosen(cx, fixed))?;
        let mut are_all_there = true;
        for fixed in all {
            are_all_there &= self.fix(cx, fixed)?;
        }
        // Where the table was full of mappings in use it is tried again.
        if are_all_there {
            carried_out.set(cx, 0, *mark)?;
        }
        Ok(())
    }

    /// Ends a mapping that is configured no more.
    fn loosen(&self, cx: &mut Cx<'_>, fixed: &Fixed) -> Result<(), Conflict> {
        match self.entries.look(cx, &K::of(fixed.inside))? {
            Ok((_, packed)) if self.is_fixed(fixed, &packed.into()) => self.end(cx, fixed.inside, &packed.into()),
            _ => Ok(()),
        }
    }

    /// Makes a mapping that never ends. What the host had instead ends, and what had its external endpoint. False if there is no room.
    fn fix(&self, cx: &mut Cx<'_>, fixed: &Fixed) -> Result<bool, Conflict> {
        let &Fixed { inside, external, home } = fixed;
        if let Ok((_, packed)) = self.entries.look(cx, &K::of(inside))? {
            let entry = packed.into();
            if self.is_fixed(fixed, &entry) {
                return Ok(true);
            }
            self.end(cx, inside, &entry)?;
        }
        let (port, number) = (external.port, slot(external.protocol));
        let Some(address) = self.roster.number(external.address) else { return Ok(true) };
        if let Some(owner) = self.ports.owner(cx, number, address, port)?
            && let Some((_, holder, entry)) = self.at(cx, owner)?
        {
            self.end(cx, holder.inside(), &entry)?;
        }
        let Err(vacancy) = self.entries.look(cx, &K::of(inside))? else { return Ok(true) };
        let entry = Entry { ends_ns: NEVER, address, port, home, ..Entry::default() };
        Ok(self.insert(cx, (inside, vacancy), entry)?.is_ok())
    }

    fn is_fixed(&self, fixed: &Fixed, entry: &Entry) -> bool {
        entry.ends_ns == NEVER
            && self.address(entry.address) == fixed.external.address
            && entry.port == fixed.external.port
    }
}

impl Part for Statics {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.list.object());
        self.carried_out.objects(into);
    }
}
