//! Configured mappings: they exist before the first packet, and are exchanged when another configuration takes over.
//!
//! Their list is kept beside the state, so that the next function knows which of them to remove. A state object says
//! which list was carried out last, or how far the present one is. A change is carried out in portions, each in a
//! transaction of its own, so that no packet waits long for a range of tens of thousands of ports. In the meantime
//! packets meet the new list: no other host gets a port of it (`reserved.rs`), and a mapping that is needed before its
//! turn is made at once.

use std::fmt::Display;
use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Numbering, StateError, StateObject, VectorConfig, hash};
use foldhash::{HashMap, HashSet};

use super::config::Static;
use super::endpoint::{Endpoint, Inside, Kept, slot};
use super::networks::Nets;
use super::pool::Pool;
use super::ports::reserved::Reserved;
use super::ports::row;
use super::roster::Roster;
use super::table::entry::{Entry, NEVER};
use super::table::{Mapping, Mappings};
use crate::config::ConfigError;
use crate::parts::config::endpoints::End;

/// An inside and an external endpoint that always belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Fixed {
    pub(crate) inside: Inside,
    pub(crate) external: Endpoint,
    /// The port of the plan that its host is behind until it sends.
    pub(crate) home: Port,
}

/// The configured mappings while they are being read.
#[derive(Default)]
struct List {
    all: Vec<Fixed>,
    insides: HashSet<Inside>,
    externals: HashSet<Endpoint>,
}

impl List {
    /// Adds one, which a configuration writes so; no two have an end in common.
    fn add(&mut self, fixed: Fixed, (inside, external): (&dyn Display, &dyn Display)) -> Result<(), ConfigError> {
        let is_new = [self.insides.insert(fixed.inside), self.externals.insert(fixed.external)];
        let (reason, instead) = match is_new {
            [true, true] => (String::new(), String::new()),
            [false, false] => {
                (format!("{inside} and {external} stand in an earlier one"), "write them once".to_owned())
            }
            [true, false] => (format!("{external} leads to another host already"), "write another port".to_owned()),
            [false, true] => {
                let instead = format!("let the host listen at a second port, for {external}");
                (format!("{inside} has an external endpoint already, and an inside endpoint has one"), instead)
            }
        };
        if !reason.is_empty() {
            return Err(ConfigError::new("static", reason, instead));
        }
        self.all.push(fixed);
        Ok(())
    }

    /// Returns all, at most `most`.
    fn finish(self, most: u32) -> Result<Box<[Fixed]>, ConfigError> {
        if self.all.len() > most as usize {
            let instead = format!("write at most {most}, or a larger `mappings_max`");
            return Err(ConfigError::new("static", format!("{} are too many", self.all.len()), instead));
        }
        Ok(self.all.into())
    }
}

/// Checks the static mappings of a plan file, at most `most`; their hosts must be inside.
pub(crate) fn check<A: End>(
    (entries, most): (&[Static<A>], u32),
    pool: &Pool,
    (networks, home): (&Nets, Port),
    is_inside: impl Fn(IpAddress) -> bool,
) -> Result<Box<[Fixed]>, ConfigError> {
    let mut list = List::default();
    for (at, entry) in entries.iter().enumerate() {
        let of_entry = |error: ConfigError| error.of("static", at);
        let wrong = |reason: String, instead: &str| Err(of_entry(ConfigError::new("static", reason, instead)));
        for (external, inside) in entry.external.paired(entry.inside).map_err(of_entry)? {
            pool.check_static(external).map_err(of_entry)?;
            let (address, number) = (inside.address(), entry.protocol.number());
            if !is_inside(address) {
                return wrong(format!("{address} is not inside"), "write an address of an `inside` range");
            }
            if inside.port() == 0 {
                return wrong(format!("{inside} has no port"), "write where the host listens");
            }
            let place = networks.place((entry.network, &entry.vlan), home, &inside);
            let (network, home) = place.map_err(of_entry)?;
            let one = Fixed {
                inside: Inside::new(network, address, inside.port(), number),
                external: Endpoint::new(external.ip().octets(), external.port(), number),
                home,
            };
            list.add(one, (&inside, &external)).map_err(of_entry)?;
        }
    }
    list.finish(most)
}

/// All of them.
pub(crate) struct Statics {
    all: Box<[Fixed]>,
    /// Mappings of the former configuration that are no longer configured.
    gone: Box<[Fixed]>,
    /// The same list was taken over before it had been carried out, so it is unknown which mappings of an earlier list
    /// still exist.
    has_strays: bool,
    list: Numbering,
    mark: u64,
    /// The mark of the list that was carried out, or the [`Progress`] of this one.
    carried_out: Vector<u64>,
    insides: HashMap<Inside, u32>,
    externals: HashMap<Endpoint, u32>,
}

/// How far a list has been carried out.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The next one to make, then to remove, then of all mappings if some of them may be [strays](Statics::has_strays).
    next: usize,
    /// There was no room for one of them.
    is_short: bool,
    /// Whether this progress includes the search for strays.
    of_strays: bool,
}

impl Progress {
    /// Reads a progress. It is an even number; odd ones are marks of other lists, which means that nothing of this list
    /// is done.
    fn of(bits: u64) -> Progress {
        match bits & 1 {
            0 => Progress { next: (bits >> 3) as usize, is_short: bits & 2 != 0, of_strays: bits & 4 != 0 },
            _ => Progress::default(),
        }
    }

    fn bits(self) -> u64 {
        (self.next as u64) << 3 | u64::from(self.of_strays) << 2 | u64::from(self.is_short) << 1
    }
}

/// Mappings per portion; there are a hundred portions per second.
const PORTION: usize = 512;

/// Names of the list and of the mark.
const LIST: &str = "static";
const CARRIED_OUT: &str = "static_carried_out";

impl Statics {
    pub(crate) fn new(builder: &mut StateBuilder, all: &[Fixed]) -> Result<Statics, ConfigError> {
        let former = Numbering::left::<Fixed>(builder, LIST).unwrap_or_default();
        let is_behind = Vector::<u64>::left(builder, CARRIED_OUT, 0).is_some_and(|mark| mark != mark_of(&former));
        if former != all && is_behind {
            let reason = "they have changed a moment ago, and that change has not been carried out";
            return Err(ConfigError::new(
                "static",
                reason,
                "try again in a few seconds; restore what a run has saved meanwhile with those that it had, and change them then",
            ));
        }
        let error = |error: StateError| ConfigError::state("static", &error);
        let stay: HashSet<&Fixed> = all.iter().collect();
        Ok(Statics {
            all: all.into(),
            gone: former.into_iter().filter(|fixed| !stay.contains(fixed)).collect(),
            has_strays: is_behind,
            list: Numbering::new(builder, LIST, all).map_err(error)?,
            mark: mark_of(all),
            carried_out: Vector::new(builder, &VectorConfig { name: CARRIED_OUT.into(), len: 1 }, 0).map_err(error)?,
            insides: (0..).zip(all).map(|(at, fixed)| (fixed.inside, at)).collect(),
            externals: (0..).zip(all).map(|(at, fixed)| (fixed.external, at)).collect(),
        })
    }

    /// The configured mapping of an inside endpoint.
    #[inline(always)]
    pub(crate) fn of_inside(&self, inside: Inside) -> Option<&Fixed> {
        if self.all.is_empty() { None } else { self.insides.get(&inside).map(|at| &self.all[*at as usize]) }
    }

    /// The configured mapping of an external endpoint.
    pub(crate) fn of_external(&self, external: Endpoint) -> Option<&Fixed> {
        if self.all.is_empty() {
            return None;
        }
        self.externals.get(&external).map(|at| &self.all[*at as usize])
    }
}

/// The configured ports, as far as their addresses are known.
pub(crate) fn reserved(all: &[Fixed], roster: &Roster) -> Reserved {
    let place = |Fixed { external, .. }: &Fixed| {
        Some((row(slot(external.protocol), roster.number(external.address)?), external.port))
    };
    Reserved::new(all.iter().filter_map(place))
}

/// A mark that differs for different lists, never 0.
fn mark_of(list: &[Fixed]) -> u64 {
    hash::mixed(list.as_bytes(), 1) | 1
}

impl<K: Kept> Mappings<K> {
    /// Makes all configured mappings, before the first packet.
    pub(crate) fn carry_out(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.carry_out_some(cx, usize::MAX)
    }

    /// Makes a portion of the configured mappings, or removes some of the former configuration's, as long as that is not
    /// done.
    pub(crate) fn carry_on(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.carry_out_some(cx, PORTION)
    }

    fn carry_out_some(&self, cx: &mut Cx<'_>, most: usize) -> Result<(), Conflict> {
        let Statics { all, gone, has_strays, mark, carried_out, .. } = &self.statics;
        let bits = carried_out.get(cx, 0)?.unwrap_or_default();
        if bits == *mark {
            return Ok(());
        }
        let fresh = Progress { of_strays: *has_strays, ..Progress::default() };
        let so_far = Some(Progress::of(bits)).filter(|progress| progress.of_strays == *has_strays);
        let Progress { next, mut is_short, .. } = so_far.unwrap_or(fresh);
        let listed = all.len() + gone.len();
        let through = if *has_strays { listed + self.entries.capacity() as usize } else { listed };
        let end = through.min(next.saturating_add(most));
        for at in next..end {
            match (all.get(at), at.checked_sub(all.len()).and_then(|at| gone.get(at))) {
                (Some(fixed), _) => is_short |= !self.fix(cx, fixed)?,
                (None, Some(fixed)) => self.loosen(cx, fixed)?,
                (None, None) => self.end_stray(cx, (at - listed) as u32)?,
            }
        }
        let bits = match end == through {
            // If the table was full of mappings in use, start again.
            true if is_short => fresh.bits(),
            true => *mark,
            false => Progress { next: end, is_short, ..fresh }.bits(),
        };
        carried_out.set(cx, 0, bits).map(drop)
    }

    /// Makes a configured mapping that is needed before its turn; `None` if there is no room.
    #[cold]
    pub(crate) fn make_at_once(&self, cx: &mut Cx<'_>, fixed: &Fixed) -> Result<Option<Mapping>, Conflict> {
        if self.fix(cx, fixed)? { self.holding(cx, fixed.inside) } else { Ok(None) }
    }

    /// Ends a mapping that is no longer configured.
    fn loosen(&self, cx: &mut Cx<'_>, fixed: &Fixed) -> Result<(), Conflict> {
        match self.entries.look(cx, &K::of(fixed.inside))? {
            Ok((_, packed)) if self.is_fixed(fixed, &packed.into()) => self.end(cx, fixed.inside, &packed.into()),
            _ => Ok(()),
        }
    }

    /// Ends the mapping at a place of the table if it is permanent but not in the list.
    fn end_stray(&self, cx: &mut Cx<'_>, place: u32) -> Result<(), Conflict> {
        let found = self.at(cx, place)?.map(|(_, inside, entry)| (inside.inside(), entry));
        let Some((inside, entry)) = found.filter(|(_, entry)| entry.ends_ns == NEVER) else { return Ok(()) };
        let is_listed = self.statics.of_inside(inside).is_some_and(|fixed| self.is_fixed(fixed, &entry));
        if is_listed { Ok(()) } else { self.end(cx, inside, &entry) }
    }

    /// Makes a permanent mapping. Another mapping of the same host endpoint, or of the same external endpoint, ends.
    /// False if there is no room.
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
        if self.gives_out(port)
            && let Some(owner) = self.ports.owner(cx, number, address, port)?
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
