//! Functions in order, and which of them share a flow-table entry.
//!
//! Functions with equal packet-set definitions form a *group*: one look-up finds one record that holds the state of them all.

use braid_nf::packet::key::{KeyError, KeyExtractor, SetDef};
use braid_nf::state::StateBuilder;
use braid_nf::{Place, ShareError, Stage};
use braid_packet::fields::{FieldError, StageUse};
use braid_packet::{Layout, Port};

/// Most functions that share one record: the bits of its live mask.
const GROUP_MAX: usize = 16;

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
    #[error("more than 16 functions share the packet set `{0}`")]
    GroupTooLarge(String),
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

/// Functions that share their packet sets.
#[derive(Debug)]
pub struct Group {
    /// Which packets belong together.
    pub set: SetDef,
    /// Its compiled form.
    pub extractor: KeyExtractor,
    /// Bytes of state of all functions of the group, each aligned to eight.
    pub state_bytes: usize,
    /// The functions, by position in the chain.
    pub stages: Vec<usize>,
    /// Steering does not keep these sets on one worker: they live in shared state instead of the workers' tables.
    pub shared: bool,
}

/// What is needed to share sets that steering does not keep together.
pub struct Sharing<'a> {
    /// Whether steering keeps the packets of a set on one worker.
    pub is_local: &'a dyn Fn(&SetDef) -> bool,
    /// Makes the shared tables.
    pub builder: &'a mut StateBuilder,
    /// Sets that each of them holds.
    pub capacity: usize,
}

/// Functions in the order in which packets meet them.
pub struct Chain {
    stages: Vec<Box<dyn Stage>>,
    groups: Vec<Group>,
    group_of: Vec<Option<usize>>,
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
        for (position, stage) in stages.iter_mut().enumerate() {
            let Some(set) = stage.packet_set() else {
                group_of.push(None);
                continue;
            };
            let known = groups.iter().position(|group| same_packets(&group.set, &set));
            let number = match known {
                Some(number) => number,
                None => {
                    let extractor = KeyExtractor::compile(&set)?;
                    let shared = !(sharing.is_local)(&set);
                    groups.push(Group { set, extractor, state_bytes: 0, stages: Vec::new(), shared });
                    groups.len() - 1
                }
            };
            let group = &mut groups[number];
            if group.stages.len() == GROUP_MAX {
                return Err(ChainError::GroupTooLarge(group.set.name.clone()));
            }
            if group.shared {
                stage.share(sharing.builder, &group.set, sharing.capacity)?;
            } else {
                stage.settle(Place { bit: 1 << group.stages.len(), offset: group.state_bytes });
                group.state_bytes += stage.set_bytes().next_multiple_of(8);
            }
            group.stages.push(position);
            group_of.push(Some(number));
        }
        let uses = Self::uses(&stages, own_fields);
        let layout = Layout::compose(&uses)?;
        Ok(Chain { stages, groups, group_of, layout })
    }

    fn uses(stages: &[Box<dyn Stage>], own_fields: &[StageUse]) -> Vec<StageUse> {
        let (before, after): (Vec<_>, Vec<_>) = own_fields.iter().cloned().partition(|own| own.stage != "sink");
        let functions = stages.iter().map(|stage| stage_use(&**stage));
        before.into_iter().chain(functions).chain(after).collect()
    }

    /// The functions.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.stages
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

    /// Where metadata lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where a packet goes if nobody decides otherwise.
    pub fn default_port(port: Port, ports: u16) -> Port {
        braid_nf::opposite(port, ports)
    }
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

/// Whether two definitions put the same packets together, whatever they are called.
pub fn same_packets(a: &SetDef, b: &SetDef) -> bool {
    let sorted = |set: &SetDef| {
        let (mut fields, mut protocols) = (set.fields.clone(), set.protocols.clone());
        fields.sort_unstable();
        fields.dedup();
        if let Some(protocols) = &mut protocols {
            protocols.sort_unstable();
        }
        (fields, protocols, set.symmetric)
    };
    sorted(a) == sorted(b)
}
