//! Functions in order, and which of them share a flow-table entry.
//!
//! Functions with equal packet-set definitions form a *group*: one look-up finds one record that holds the state of them all.
//! They have to meet the same packets under the same keys: no function between them changes a field of the key, and a
//! condition lets the same ones through. Where packets from outside go the other way, "between" counts in both.

mod group;

use std::sync::Arc;

use braid_nf::packet::key::{FieldId, KeyError, SetDef};
use braid_nf::state::StateObject;
use braid_nf::{ShareError, Stage};
use braid_packet::fields::{FieldError, StageUse};
use braid_packet::{Batch, Flags, Layout, Port, protocol};
use braid_steer::planner::Changed;
use braid_steer::{Fields, Steering};

use self::group::GROUP_MAX;
pub use self::group::{Group, Sharing, keys_hold, same_packets};
use crate::course::{Course, Direction, Order, When};

/// A chain that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// No function at all.
    #[error("the chain is empty: name at least one function")]
    Empty,
    /// Two functions under one name.
    #[error("two functions of the chain are named `{0}`: give one of them another name")]
    SameName(String),
    /// More functions in a group than its live mask has bits.
    #[error("{GROUP_MAX} functions share the packet set `{set}`, and `{function}` would be one more")]
    GroupTooLarge {
        /// Name of the packet set.
        set: String,
        /// The function that finds no room.
        function: String,
    },
    /// A packet-set definition makes no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Sets cannot be shared.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// Metadata fields contradict each other.
    #[error(transparent)]
    Fields(#[from] FieldError),
}

/// Functions in the order in which packets meet them.
pub struct Chain {
    stages: Vec<Box<dyn Stage>>,
    groups: Vec<Group>,
    group_of: Vec<Option<usize>>,
    course: Course,
    steering: Option<Arc<Steering>>,
    layout: Layout,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| stage.name())).finish()
    }
}

impl Chain {
    /// Groups the functions and gives each its place.
    pub fn new(
        mut stages: Vec<Box<dyn Stage>>,
        own_fields: &[StageUse],
        course: &Course,
        sharing: &mut Sharing<'_>,
    ) -> Result<Chain, ChainError> {
        if stages.is_empty() {
            return Err(ChainError::Empty);
        }
        for (i, stage) in stages.iter().enumerate() {
            if stages[..i].iter().any(|earlier| earlier.name() == stage.name()) {
                return Err(ChainError::SameName(stage.name().to_owned()));
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of = Vec::with_capacity(stages.len());
        let torn: Vec<Changed> = stages.iter().map(|stage| torn(&**stage)).collect();
        for (position, stage) in stages.iter_mut().enumerate() {
            let Some(set) = stage.packet_set() else {
                group_of.push(None);
                continue;
            };
            let together = |group: &Group| {
                let Some(&last) = group.stages.last() else { return false };
                same_packets(&group.set, &set)
                    && meet_the_same(course.when(last), course.when(position))
                    && course.full(last) == course.full(position)
                    && see_the_same(&set, &torn[last..=position], course.order)
            };
            let number = match groups.iter().rposition(together) {
                Some(number) => number,
                None => {
                    let torn = changed_before(&torn, position, course.order);
                    let group = Group::new(set, torn, course, sharing)?;
                    groups.push(Group { full: course.full(position), ..group });
                    groups.len() - 1
                }
            };
            groups[number].take_in(position, &mut **stage, sharing)?;
            group_of.push(Some(number));
        }
        let layout = Self::compose(&stages, own_fields, course.order)?;
        Ok(Chain { stages, groups, group_of, course: course.clone(), steering: None, layout })
    }

    /// Has packets whose hash under `steering` differs change places within a batch where the directions of a mirrored chain
    /// take turns. Without it no packet changes places, and directions take turns as they come.
    pub fn mark_by(mut self, steering: &Arc<Steering>) -> Chain {
        let kept = |group: &Group| {
            let first = group.stages.first().copied().unwrap_or_default();
            !group.set.symmetric || steering.keeps(&group.set, self.torn_before(first))
        };
        self.steering = self.groups.iter().all(kept).then(|| Arc::clone(steering));
        self
    }

    /// What only packets of one connection share; none if the packet follows one that may be of another.
    #[inline]
    pub(crate) fn mark(&self, batch: &Batch, i: usize) -> Option<u32> {
        match &self.steering {
            Some(_) if follows_another(batch, i) => None,
            Some(steering) => Some(steering.hash(batch, i)),
            None => Some(0),
        }
    }

    fn compose(stages: &[Box<dyn Stage>], own_fields: &[StageUse], order: Order) -> Result<Layout, FieldError> {
        let (before, after): (Vec<_>, Vec<_>) = own_fields.iter().cloned().partition(|own| own.stage != "sink");
        let functions: Vec<StageUse> = stages.iter().map(|stage| stage_use(&**stage)).collect();
        let back = functions.iter().rev().cloned();
        let course = |functions: Vec<StageUse>| [before.clone(), functions, after.clone()].concat();
        if order == Order::Same {
            return Layout::compose(&course(functions));
        }
        // Nothing may be read unwritten on the way back either; and no two fields share bytes, for all are alive on both ways.
        Layout::compose(&course(back.clone().collect()))?;
        Layout::compose(&course(functions.iter().cloned().chain(back).collect()))
    }

    /// The functions.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.stages
    }

    /// The state objects of all functions, each once: functions may share some.
    pub fn objects(&self) -> Vec<Arc<dyn StateObject>> {
        let mut objects: Vec<Arc<dyn StateObject>> = Vec::new();
        for object in self.stages.iter().flat_map(|stage| stage.objects()) {
            if objects.iter().all(|known| known.id() != object.id()) {
                objects.push(object);
            }
        }
        objects
    }

    /// Whether functions have a state object in common.
    pub fn has_common_objects(&self) -> bool {
        let of_each: usize = self.stages.iter().map(|stage| stage.objects().len()).sum();
        of_each > self.objects().len()
    }

    /// If workers keep an index of where the sets of the function at a position are, which they share: how many there may be.
    pub fn indexed(&self, position: usize) -> Option<usize> {
        self.stages[position].indexed().filter(|_| self.course.indexes())
    }

    /// The groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of the function at a position.
    #[inline(always)]
    pub fn group_of(&self, position: usize) -> Option<usize> {
        self.group_of[position]
    }

    /// The group whose keys are made of every batch before any function has changed a packet: the first function's, if all packets
    /// meet that one first.
    #[inline]
    pub fn first_keys(&self) -> Option<usize> {
        let course = &self.course;
        let meets_all = course.outside().is_none() && !course.atomic && course.when(0).is_always();
        self.group_of.first().copied().flatten().filter(|_| meets_all)
    }

    /// The course of packets.
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// The functions in the order in which packets of a direction meet them.
    pub fn positions(&self, direction: Direction) -> impl Iterator<Item = usize> + use<> {
        let count = self.stages.len();
        (0..count).map(move |step| match direction {
            Direction::Forward => step,
            Direction::Reverse => count - 1 - step,
        })
    }

    /// What the function at a position says that it changes.
    pub(crate) fn changes(&self, position: usize) -> Changed {
        rewritten(&*self.stages[position])
    }

    /// What functions before the one at a position change in packets of either side.
    pub fn changed_before(&self, position: usize) -> Changed {
        let rewrites: Vec<Changed> = self.stages.iter().map(|stage| rewritten(&**stage)).collect();
        changed_before(&rewrites, position, self.course.order)
    }

    /// The same, as far as steering goes: of packets that a function before it held back, which are sent on by the first worker, it says nothing
    /// at all.
    pub fn torn_before(&self, position: usize) -> Changed {
        let torn: Vec<Changed> = self.stages.iter().map(|stage| torn(&**stage)).collect();
        changed_before(&torn, position, self.course.order)
    }

    /// The functions that an answer meets, made by the one at a position, to a packet that came by `port`: those before it that undo what
    /// they did, the last one first.
    pub(crate) fn back_from(&self, position: usize, port: Port) -> Vec<usize> {
        let met = |&at: &usize| self.course.when(at).came_by.is_none_or(|ports| ports.has(port));
        let before = self.positions(self.side_of(port)).take_while(|&at| at != position);
        let mut functions: Vec<usize> = before.filter(met).filter(|&at| self.stages[at].turns_back()).collect();
        functions.reverse();
        functions
    }

    /// In which order packets meet the functions that come by a port.
    pub(crate) fn side_of(&self, port: Port) -> Direction {
        match self.course.outside() {
            Some(outside) if outside.has(port) => Direction::Reverse,
            _ => Direction::Forward,
        }
    }

    /// Whether a function between that at a position and a port changes addresses on the way there, in a mirrored chain: the functions
    /// behind it on the way out, those before it on the way in.
    pub fn translates_between(&self, position: usize, port: Port) -> bool {
        const ADDRESSES: [FieldId; 2] = [FieldId::IpSrc, FieldId::IpDst];
        let any = |fields: &[FieldId]| fields.iter().any(|field| ADDRESSES.contains(field));
        let mut stages = self.stages.iter().enumerate();
        match self.course.outside() {
            Some(outside) if outside.has(port) => {
                stages.any(|(at, stage)| at > position && any(stage.rewrites().from_inside))
            }
            Some(_) => stages.any(|(at, stage)| at < position && any(stage.rewrites().from_outside)),
            None => false,
        }
    }

    /// Where metadata lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where a packet goes if nobody decides otherwise.
    pub fn default_port(port: Port, ports: u16) -> Port {
        braid_nf::opposite(port, ports)
    }
}

fn rewritten(stage: &dyn Stage) -> Changed {
    let fields = |fields: &[FieldId]| fields.iter().copied().collect();
    let rewrites = stage.rewrites();
    Changed { from_inside: fields(rewrites.from_inside), from_outside: fields(rewrites.from_outside) }
}

/// The same; everything, of packets that it holds back.
fn torn(stage: &dyn Stage) -> Changed {
    if stage.holds_packets() { Changed::everything() } else { rewritten(stage) }
}

/// What is changed before a packet comes to the function at a position. A chain with one order does not know where packets come
/// from, so a change in those of one side counts for all.
fn changed_before(rewrites: &[Changed], position: usize, order: Order) -> Changed {
    let all = |some: &[Changed], of: fn(&Changed) -> Fields| some.iter().map(of).fold(Fields::NONE, Fields::and);
    let (before, behind) = (&rewrites[..position], &rewrites[position + 1..]);
    match order {
        Order::Same => {
            let any = all(before, |changed| changed.any());
            Changed { from_inside: any, from_outside: any }
        }
        Order::Mirrored { .. } => Changed {
            from_inside: all(before, |changed| changed.from_inside),
            from_outside: all(behind, |changed| changed.from_outside),
        },
    }
}

/// Whether the first and the last of some functions in a row see the same values in the fields of a set.
fn see_the_same(set: &SetDef, rewrites: &[Changed], order: Order) -> bool {
    let own: Fields = set.fields.iter().copied().collect();
    let Changed { from_inside, .. } = changed_before(rewrites, rewrites.len() - 1, order);
    let Changed { from_outside, .. } = changed_before(rewrites, 0, order);
    from_inside.and(from_outside).common(own).is_empty()
}

/// Whether two conditions let the same packets through, whatever happens between the functions.
fn meet_the_same(a: When, b: When) -> bool {
    a == b && !a.looks_at_verdicts()
}

fn stage_use(stage: &dyn Stage) -> StageUse {
    use braid_packet::fields::FieldDecl;
    let declared = stage.fields();
    let pick = |reads: bool| {
        let wanted = declared.iter().filter(move |f| if reads { f.reads } else { f.writes });
        wanted.map(|f| FieldDecl::new(f.name, f.bytes)).collect::<Vec<_>>()
    };
    StageUse { stage: stage.name().to_owned(), reads: pick(true), writes: pick(false) }
}

/// Whether what becomes of a packet hangs on one that need not look like it: a later fragment on the first, an ICMP error on what
/// it reports (RFC 792: types 3 to 5, 11 and 12; RFC 4443: types below 128).
fn follows_another(batch: &Batch, i: usize) -> bool {
    let record = &batch.records()[i];
    if record.flags.has(Flags::LATER_FRAGMENT) {
        return true;
    }
    let kind = || batch.bytes(i).get(usize::from(record.l3) + usize::from(record.l4) * 4).copied();
    match record.proto {
        protocol::ICMP => kind().is_some_and(|kind| matches!(kind, 3..=5 | 11 | 12)),
        protocol::ICMPV6 => kind().is_some_and(|kind| kind < 128),
        _ => false,
    }
}
