//! The functions of a run in order, and which of them share a flow-table entry.
//!
//! Functions with equal packet-set definitions form a *group*: one look-up finds one record that holds the states of all of them. They must
//! see the same packets under the same keys: no function between them changes a field of the key, and their conditions admit the same
//! packets. In a mirrored chain this must hold in both directions.

pub mod course;
pub(super) mod turns;
pub(super) mod whole;

mod group;

use std::sync::Arc;

use braid_nf::packet::key::{FieldId, KeyError, KeyShape, SetDef};
use braid_nf::state::StateObject;
use braid_nf::{Hairpins, Reason, Round, ShareError, Stage};
use braid_packet::fields::{FieldError, StageUse};
use braid_packet::{Batch, Flags, Layout, Port, protocol};
use braid_steer::planner::Changed;
use braid_steer::{Fields, Steering, Symmetry};

use self::course::{Course, Direction, Order, When};
use self::group::GROUP_MAX;
pub(crate) use self::group::keys_hold;
pub use self::group::{Group, Sharing, same_packets};
use crate::observe::counters::Drops;

/// Why a chain cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The chain has no function.
    #[error("the chain is empty: name at least one function")]
    Empty,
    /// Two functions have the same name.
    #[error("two functions of the chain are named `{0}`: give one of them another name")]
    SameName(String),
    /// A group has more functions than its live mask has bits.
    #[error("{GROUP_MAX} functions share the packet set `{set}`, and `{function}` would be one more")]
    GroupTooLarge {
        /// The name of the packet set.
        set: String,
        /// The function that no longer fits.
        function: String,
    },
    /// A packet-set definition yields no valid key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Packet sets cannot be shared between workers.
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
    /// What hairpins of each function meet.
    rounds: Vec<Round>,
    course: Course,
    steering: Option<Arc<Steering>>,
    layout: Layout,
    former: Vec<Former>,
}

/// What drops of a function that has been removed mean.
#[derive(Clone, PartialEq, Eq)]
struct Former {
    name: String,
    consumes: &'static [Reason],
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| stage.name())).finish()
    }
}

impl Chain {
    /// Groups the functions and assigns each its place in the group's record.
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
        let torn: Vec<Changed> = stages.iter().map(|stage| torn(&**stage, course.order)).collect();
        let routes: Vec<bool> = stages.iter().map(|stage| stage.holds_packets() && stage.turns_back()).collect();
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
                    let is_routed = (0..routes.len()).any(|at| at != position && routes[at]);
                    let group = Group::new(set, (torn, is_routed), course, sharing)?;
                    groups.push(Group { full: course.full(position), ..group });
                    groups.len() - 1
                }
            };
            groups[number].take_in(position, &mut **stage, sharing)?;
            group_of.push(Some(number));
        }
        let layout = Self::compose(&stages, own_fields, course.order)?;
        let rounds = (0..stages.len()).map(|position| round(&stages, position, course.order)).collect();
        Ok(Chain {
            stages,
            groups,
            group_of,
            rounds,
            course: course.clone(),
            steering: None,
            layout,
            former: Vec::new(),
        })
    }

    /// Lets packets with different hashes under `steering` be reordered within a batch where the directions of a mirrored chain take turns.
    /// Without it packets keep their order, and a turn ends with each change of direction.
    pub(crate) fn mark_by(mut self, steering: &Arc<Steering>) -> Chain {
        let kept = |group: &Group| {
            let first = group.stages.first().copied().unwrap_or_default();
            !group.set.symmetric || steering.keeps(&group.set, self.torn_before(first))
        };
        let is_told = self.groups.iter().all(kept) && !self.stages.iter().any(|stage| changes_hash(&**stage, steering));
        self.steering = is_told.then(|| Arc::clone(steering));
        self
    }

    /// Follows another chain in the same run: what the functions that are removed with it have dropped keeps its meaning.
    pub(crate) fn following(mut self, before: &Chain) -> Chain {
        let is_here = |name: &str| self.stages.iter().any(|stage| stage.name() == name);
        let mut former = before.former.clone();
        for stage in before.stages.iter().filter(|stage| !is_here(stage.name())) {
            let gone = Former { name: stage.name().to_owned(), consumes: stage.consumes() };
            if !former.contains(&gone) {
                former.push(gone);
            }
        }
        self.former = former;
        self
    }

    /// A value that is equal for packets of one connection; `None` if the packet depends on one that may belong to another connection.
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
        // On the way back too, no field may be read before it is written. All fields are alive in both directions, so none may share bytes.
        Layout::compose(&course(back.clone().collect()))?;
        Layout::compose(&course(functions.iter().cloned().chain(back).collect()))
    }

    /// The functions in order.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.stages
    }

    /// Gives the functions back, to make another chain of them.
    pub fn into_stages(self) -> Vec<Box<dyn Stage>> {
        self.stages
    }

    /// The state objects of all functions, each listed once even if functions share it.
    pub fn objects(&self) -> Vec<Arc<dyn StateObject>> {
        let mut objects: Vec<Arc<dyn StateObject>> = Vec::new();
        for object in self.stages.iter().flat_map(|stage| stage.objects()) {
            if objects.iter().all(|known| known.id() != object.id()) {
                objects.push(object);
            }
        }
        objects
    }

    /// Whether some functions have a state object in common.
    pub(crate) fn has_common_objects(&self) -> bool {
        let of_each: usize = self.stages.iter().map(|stage| stage.objects().len()).sum();
        of_each > self.objects().len()
    }

    /// The capacity of the workers' index for the function at a position; `None` unless its sets are shared and indexed.
    pub fn indexed(&self, position: usize) -> Option<usize> {
        self.stages[position].indexed().filter(|_| self.course.indexes())
    }

    /// The groups of functions.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of the function at a position; `None` if it has no packet sets.
    #[inline(always)]
    pub fn group_of(&self, position: usize) -> Option<usize> {
        self.group_of[position]
    }

    /// The group whose keys are extracted from every batch before any function has changed a packet: that of the first function, provided that
    /// all packets meet this function first.
    #[inline]
    pub(crate) fn first_keys(&self) -> Option<usize> {
        let course = &self.course;
        let meets_all = course.outside().is_none() && !course.atomic && course.when(0).is_always();
        self.group_of.first().copied().flatten().filter(|_| meets_all)
    }

    /// The course of packets through the chain.
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// The positions of the functions in the order in which packets of a direction meet them.
    pub fn positions(&self, direction: Direction) -> impl Iterator<Item = usize> + use<> {
        let count = self.stages.len();
        (0..count).map(move |step| match direction {
            Direction::Forward => step,
            Direction::Reverse => count - 1 - step,
        })
    }

    /// The fields that the function at a position declares to change.
    pub(crate) fn changes(&self, position: usize) -> Changed {
        rewritten(&*self.stages[position])
    }

    /// The shape of the keys of the function at a position; the default if it has no packet sets.
    pub(crate) fn key_shape(&self, position: usize) -> KeyShape {
        self.group_of(position).map_or_else(KeyShape::default, |group| self.groups[group].extractor.shape())
    }

    /// The same of the function with this name.
    pub(crate) fn key_shape_of(&self, name: &str) -> Option<KeyShape> {
        self.stages.iter().position(|stage| stage.name() == name).map(|position| self.key_shape(position))
    }

    /// The fields that functions before the one at a position change, by the side that packets come from.
    pub(crate) fn changed_before(&self, position: usize) -> Changed {
        let rewrites: Vec<Changed> = self.stages.iter().map(|stage| rewritten(&**stage)).collect();
        changed_before(&rewrites, position, self.course.order)
    }

    /// Like `changed_before`, as far as steering is concerned: a function that holds packets back counts as changing
    /// everything, because the first worker releases its packets, and one whose hairpins return may count as changing packets from outside.
    pub fn torn_before(&self, position: usize) -> Changed {
        let torn: Vec<Changed> = self.stages.iter().map(|stage| torn(&**stage, self.course.order)).collect();
        changed_before(&torn, position, self.course.order)
    }

    /// The functions that an answer made by the function at `position` to a packet from `port` meets: those before it that undo their changes
    /// on answers, the last one first.
    pub(crate) fn back_from(&self, position: usize, port: Port) -> Vec<usize> {
        let met = |&at: &usize| self.course.when(at).came_by.is_none_or(|ports| ports.has(port));
        let before = self.positions(self.side_of(port)).take_while(|&at| at != position);
        let mut functions: Vec<usize> = before.filter(met).filter(|&at| self.stages[at].turns_back()).collect();
        functions.reverse();
        functions
    }

    /// The order in which packets from a port meet the functions.
    pub(crate) fn side_of(&self, port: Port) -> Direction {
        match self.course.outside() {
            Some(outside) if outside.has(port) => Direction::Reverse,
            _ => Direction::Forward,
        }
    }

    /// What hairpins of the function at a position meet.
    #[inline(always)]
    pub(crate) fn round(&self, position: usize) -> Round {
        self.rounds[position]
    }

    /// The functions after the one at a position that its hairpins meet if they do not return: those that turn packets back.
    pub(crate) fn past(&self, position: usize) -> impl Iterator<Item = usize> {
        (position + 1..self.stages.len()).filter(|&at| self.stages[at].turns_back())
    }

    /// Whether, in a mirrored chain, a function between the one at `position` and `port` translates addresses: one after it on the way to the
    /// inside, one before it on the way to the outside.
    pub(crate) fn translates_between(&self, position: usize, port: Port) -> bool {
        let mut stages = self.stages.iter().enumerate();
        match self.course.outside() {
            Some(outside) if outside.has(port) => {
                stages.any(|(at, stage)| at > position && stage.rewrites().addresses()[0])
            }
            Some(_) => stages.any(|(at, stage)| at < position && stage.rewrites().addresses()[1]),
            None => false,
        }
    }

    /// How many of these dropped packets are not lost: the functions that took them [consume](Stage::consumes) them.
    pub fn consumed(&self, drops: &Drops) -> u64 {
        let consumed = drops.iter().filter(|(name, reason, _)| self.has_consumed(name, reason));
        consumed.map(|(.., count)| count).sum()
    }

    /// Whether packets that the function of this name dropped for this reason are not lost, also if it has been removed since.
    pub fn has_consumed(&self, name: &str, reason: &str) -> bool {
        let now = self.stages.iter().filter(|stage| stage.name() == name).map(|stage| stage.consumes());
        let before = self.former.iter().filter(|former| former.name == name).map(|former| former.consumes);
        now.chain(before).flatten().any(|Reason(own)| *own == reason)
    }

    /// The layout of the metadata.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The port to which a packet goes unless a function decides otherwise.
    pub(crate) fn default_port(port: Port, ports: u16) -> Port {
        braid_nf::opposite(port, ports)
    }
}

fn rewritten(stage: &dyn Stage) -> Changed {
    let fields = |fields: &[FieldId]| fields.iter().copied().collect();
    let rewrites = stage.rewrites();
    Changed::of(fields(rewrites.from_inside), fields(rewrites.from_outside))
}

/// Whether requests and answers of one connection have different hashes because of what a function changes. Steered by sides, a function does so
/// only if it changes the end outside in both directions, as from one version of IP to the other: in one direction, these are hairpins.
fn changes_hash(stage: &dyn Stage, steering: &Steering) -> bool {
    let (hashed, Changed { from_inside, from_outside, .. }) = (steering.fields(), rewritten(stage));
    let [inside, outside] = [hashed.common(from_inside), hashed.swapped().common(from_outside)];
    match steering.symmetry() {
        Symmetry::BySides(_) => !inside.is_empty() && !outside.is_empty(),
        Symmetry::OneWay | Symmetry::BothWays => !hashed.common(from_inside.and(from_outside)).is_empty(),
    }
}

/// What hairpins of the function at a position meet.
fn round(stages: &[Box<dyn Stage>], position: usize, order: Order) -> Round {
    let is_mirrored = order != Order::Same;
    if is_mirrored && position > 0 && stages[position].hairpins() != Hairpins::None {
        return Round::Return;
    }
    let has_others_behind = stages[position + 1..].iter().any(|stage| !stage.turns_back());
    if is_mirrored && has_others_behind { Round::Past } else { Round::Onward }
}

/// Like [`rewritten`], but a function that holds packets back counts as changing everything. In a mirrored chain hairpins count as packets from
/// outside.
fn torn(stage: &dyn Stage, order: Order) -> Changed {
    match stage.hairpins() {
        _ if stage.holds_packets() => Changed::everything(),
        _ if order == Order::Same => rewritten(stage),
        Hairpins::None => rewritten(stage),
        Hairpins::OneAddress => Changed { unless_by_sides: Fields::ALL, ..rewritten(stage) },
        Hairpins::Any => Changed { from_outside: Fields::ALL, ..rewritten(stage) },
    }
}

/// The fields changed before a packet reaches the function at a position. A chain with a single order does not know from which side packets
/// come, so it counts changes to packets of either side for all.
fn changed_before(rewrites: &[Changed], position: usize, order: Order) -> Changed {
    let all = |some: &[Changed], of: fn(&Changed) -> Fields| some.iter().map(of).fold(Fields::NONE, Fields::and);
    let (before, behind) = (&rewrites[..position], &rewrites[position + 1..]);
    match order {
        Order::Same => {
            let any = all(before, |changed| changed.any());
            Changed::of(any, any)
        }
        Order::Mirrored { .. } => Changed {
            from_inside: all(before, |changed| changed.from_inside),
            from_outside: all(behind, |changed| changed.from_outside),
            unless_by_sides: all(behind, |changed| changed.unless_by_sides),
        },
    }
}

/// Whether the first and the last of consecutive functions see the same values in the fields of a set.
fn see_the_same(set: &SetDef, rewrites: &[Changed], order: Order) -> bool {
    let own: Fields = set.fields.iter().copied().collect();
    let Changed { from_inside, .. } = changed_before(rewrites, rewrites.len() - 1, order);
    let Changed { from_outside, .. } = changed_before(rewrites, 0, order);
    from_inside.and(from_outside).common(own).is_empty()
}

/// Whether two conditions admit the same packets, whatever happens between the functions.
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

/// Whether the handling of a packet depends on another packet that may look different: a later fragment depends on the first, an ICMP error
/// on the packet it reports (RFC 792: types 3 to 5, 11 and 12; RFC 4443: types below 128).
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
