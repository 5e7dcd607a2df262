//! External addresses and their numbers.
//!
//! Mappings, ports and blocks refer to an address by its number, which survives configuration changes: an address that
//! joins gets a free number, and one that leaves keeps its number until nothing refers to it any more.
//!
//! New mappings are made on *open* addresses only. *Draining* addresses keep what they have. Addresses that have *left*
//! lose it in the sweep that follows each change ([`Mappings::settle`](super::table::Mappings)). Until that sweep has
//! seen every mapping, another change is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{Numbering, StateObject, Tx};

use super::pool::{EXTERNAL_MAX, Pool};
use super::table::sweep_after_change::Settling;
use crate::config::ConfigError;
use crate::parts::tables::sweep::scaled;

/// The maximum number of addresses including those that have left, of which there may be as many as of the others.
pub(crate) const NUMBERS_MAX: usize = 2 * EXTERNAL_MAX as usize;

/// The states of an address, stored as a byte.
const NOBODYS: u8 = 0;
const OPEN: u8 = 1;
const DRAINING: u8 = 2;
const LEFT: u8 = 3;

/// One address, as stored for the function that takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Line {
    address: [u8; 4],
    /// How often the addresses have changed; the same in all lines.
    epoch: u32,
    now: u8,
    /// The state before the last change.
    before: u8,
    /// 1 if all mappings are counted by host, and if they were before the last change; the same in all lines.
    counts_hosts: u8,
    counted_hosts: u8,
}

/// All external addresses.
pub(crate) struct Roster {
    lines: Box<[Line]>,
    /// Addresses by number.
    addresses: Box<[[u8; 4]]>,
    /// Sorted addresses that may have mappings, and the number of each.
    known: Box<[[u8; 4]]>,
    numbers: Box<[u32]>,
    /// The numbers of open addresses, sorted by address: now, and before the last change.
    open: Box<[u32]>,
    open_before: Box<[u32]>,
    /// Sorted addresses that have left.
    left: Box<[[u8; 4]]>,
    /// Whether a host without state is certain to have no mapping.
    knows_hosts: bool,
    numbering: Numbering,
    pub(crate) settling: Settling,
}

braid_nf::plain!(Line);

impl Roster {
    /// Numbers the addresses of a pool, following the numbers that the former function used.
    pub(crate) fn new(builder: &mut StateBuilder, pool: &Pool) -> Result<Roster, ConfigError> {
        let wrong = |reason: &str, instead: &str| Err(ConfigError::new("external", reason, instead));
        let former = Numbering::left::<Line>(builder, "external").filter(|lines| are_sound(lines)).unwrap_or_default();
        let was_numbered = pool.external.len() == 1 && !pool.counts_hosts();
        if former.is_empty() && builder.has_left("mappings", "Map") && !was_numbered {
            let instead = "begin without that state: this one numbers ports and hosts otherwise";
            return wrong("the state was saved by an older program", instead);
        }
        let wanted: BTreeMap<[u8; 4], u8> =
            pool.external.iter().map(|address| (*address, pool.state_of(*address))).collect();
        let mut lines = former.clone();
        let changes = |line: &Line| (wanted.get(&line.address).copied() != Some(line.now)) && line.is_known();
        let has_known = |address: &[u8; 4]| former.iter().any(|line| line.address == *address && line.is_known());
        let counts = u8::from(pool.counts_hosts());
        let counts_otherwise = former.iter().any(|line| line.counts_hosts != counts);
        let is_other = former.iter().any(changes) || !wanted.keys().all(has_known) || counts_otherwise;
        if is_other {
            let epoch = former.first().map_or(0, |line| line.epoch + 1);
            if epoch > 1 && !Settling::was_through(builder, epoch - 1) {
                return wrong(
                    "the addresses, or whether there is a quota, have changed a moment ago, and not all mappings have been looked at since",
                    "try again in some seconds; restore what a run has saved meanwhile with the addresses that it had, and change them then",
                );
            }
            renumber(&mut lines, wanted);
            let counted = former.first().map_or(counts, |line| line.counts_hosts);
            for line in &mut lines {
                (line.epoch, line.counts_hosts, line.counted_hosts) = (epoch, counts, counted);
            }
        }
        if lines.len() > NUMBERS_MAX {
            let reason = format!("with those that leave they are more than {NUMBERS_MAX} addresses");
            return wrong(&reason, "let some leave first, and others join later");
        }
        let numbering =
            Numbering::new(builder, "external", &lines).map_err(|error| ConfigError::state("external", &error))?;
        let epoch = lines.first().map_or(0, |line| line.epoch);
        let settling =
            Settling::new(builder, epoch, &pool.inside).map_err(|error| ConfigError::state("external", &error))?;
        Ok(Roster::of(lines, numbering, settling))
    }

    fn of(lines: Vec<Line>, numbering: Numbering, settling: Settling) -> Roster {
        let in_order = |is: &dyn Fn(&Line) -> bool| {
            let listed = lines.iter().zip(0u32..).filter(|(line, _)| is(line));
            let mut listed: Vec<([u8; 4], u32)> = listed.map(|(line, number)| (line.address, number)).collect();
            listed.sort_unstable();
            listed
        };
        let numbers = |listed: Vec<([u8; 4], u32)>| listed.into_iter().map(|(_, number)| number).collect();
        let known = in_order(&Line::is_known);
        Roster {
            addresses: lines.iter().map(|line| line.address).collect(),
            known: known.iter().map(|(address, _)| *address).collect(),
            numbers: numbers(known),
            open: numbers(in_order(&|line| line.now == OPEN)),
            open_before: numbers(in_order(&|line| line.before == OPEN)),
            left: in_order(&|line| line.now == LEFT).into_iter().map(|(address, _)| address).collect(),
            knows_hosts: lines.iter().all(|line| line.counts_hosts & line.counted_hosts == 1),
            lines: lines.into(),
            numbering,
            settling,
        }
    }

    /// All numbers are below this.
    pub(crate) fn room(&self) -> u32 {
        self.lines.len() as u32
    }

    /// The address with this number.
    #[inline(always)]
    pub(crate) fn address(&self, number: u32) -> [u8; 4] {
        self.addresses.get(number as usize).copied().unwrap_or_default()
    }

    /// The number of an address that may have mappings.
    #[inline(always)]
    pub(crate) fn number(&self, address: [u8; 4]) -> Option<u32> {
        self.known.binary_search(&address).ok().map(|at| self.numbers[at])
    }

    /// Whether an address has left, but something may still refer to it.
    pub(crate) fn is_leaving(&self, tx: &mut Tx, address: [u8; 4]) -> Result<bool, Conflict> {
        Ok(self.left.binary_search(&address).is_ok() && !self.settling.is_through(tx)?)
    }

    /// Whether new mappings may be made on an address.
    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.lines.get(number as usize).is_some_and(|line| line.now == OPEN)
    }

    /// Whether the mappings on an address end.
    #[inline(always)]
    pub(crate) fn has_left(&self, number: u32) -> bool {
        !self.left.is_empty() && self.lines.get(number as usize).is_none_or(|line| line.now == LEFT)
    }

    /// Whether addresses have joined or left since the state was created.
    pub(crate) fn has_changed(&self) -> bool {
        self.settling.epoch > 0
    }

    /// The address for a host without mappings.
    #[inline(always)]
    pub(crate) fn home(&self, host: u64) -> u32 {
        self.open[scaled(host, self.open.len() as u32) as usize]
    }

    /// The address for a host without counted mappings on an open address: if it may have uncounted ones, the address
    /// that they are on.
    pub(crate) fn home_unless_counted(&self, tx: &mut Tx, host: u64) -> Result<u32, Conflict> {
        if self.knows_hosts || self.settling.is_through(tx)? {
            return Ok(self.home(host));
        }
        let before = self.open_before.get(scaled(host, self.open_before.len() as u32) as usize).copied();
        Ok(before.filter(|number| self.is_open(*number)).unwrap_or_else(|| self.home(host)))
    }

    /// The open address at this position in their order.
    pub(crate) fn open(&self, place: u64) -> u32 {
        self.open.get(place as usize).copied().unwrap_or(0)
    }

    /// The open addresses after this one, wrapping around, without it.
    pub(crate) fn others(&self, number: u32) -> impl Iterator<Item = u32> {
        let at = self.open.iter().position(|open| *open == number).unwrap_or(0);
        self.open[at + 1..].iter().chain(&self.open[..at]).copied()
    }
}

impl Line {
    fn is_known(&self) -> bool {
        matches!(self.now, OPEN | DRAINING)
    }
}

impl Pool {
    fn state_of(&self, address: [u8; 4]) -> u8 {
        if self.draining.binary_search(&address).is_ok() { DRAINING } else { OPEN }
    }
}

/// Gives every wanted address its former number or a free one; others leave. Nothing refers any more to addresses that
/// had left before.
fn renumber(lines: &mut Vec<Line>, mut wanted: BTreeMap<[u8; 4], u8>) {
    for line in lines.iter_mut() {
        let is_known = line.is_known();
        let stays = if line.now == NOBODYS { None } else { wanted.remove(&line.address) };
        line.before = if is_known { line.now } else { NOBODYS };
        line.now = stays.unwrap_or(if is_known { LEFT } else { NOBODYS });
    }
    let mut free = (0..lines.len()).filter(|at| lines[*at].now == NOBODYS).collect::<Vec<_>>().into_iter();
    for (address, now) in wanted {
        let line = Line { address, now, ..Line::default() };
        match free.next() {
            Some(at) => lines[at] = line,
            None => lines.push(line),
        }
    }
}

/// Checks lines that may come from an edited file: each address must have one number.
fn are_sound(lines: &[Line]) -> bool {
    let mut known: Vec<[u8; 4]> = lines.iter().filter(|line| line.now != NOBODYS).map(|line| line.address).collect();
    known.sort_unstable();
    known.windows(2).all(|pair| pair[0] != pair[1])
        && lines.len() <= NUMBERS_MAX
        && lines.iter().all(|line| line.now <= LEFT && line.before <= LEFT && line.epoch == lines[0].epoch)
}

impl Part for Roster {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.numbering.object());
        self.settling.objects(into);
    }
}
