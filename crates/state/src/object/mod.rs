//! What all structures have in common: how they are created, named and inspected from outside.

mod together;

pub use together::Parted;

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;

use braid_stm::{Arena, ArenaInit, Boosted, Domain, HugePages, MemoryError, ObjectId, ObjectInfo, Part};

use crate::image::Image;
use crate::succession::Succeed;

/// The identity of a structure.
#[derive(Clone, Debug)]
pub struct Named {
    pub(crate) id: ObjectId,
    pub(crate) name: String,
    kind: &'static str,
}

/// A structure as seen from outside transactions: for reports, and for comparing final states.
pub trait StateObject: Image + Succeed + Any + Send + Sync {
    /// Its identity.
    fn named(&self) -> &Named;
    /// Its number in the domain.
    fn id(&self) -> ObjectId {
        self.named().id
    }
    /// Its name in the plan, such as `nat.sessions`.
    fn name(&self) -> &str {
        &self.named().name
    }
    /// `Map`, `Vector`, `Allocator`, `Distributed` or `Numbering`.
    fn kind(&self) -> &'static str {
        self.named().kind
    }
    /// Maximum number of elements.
    fn capacity(&self) -> usize;
    /// Current number of elements; exact while no transaction runs.
    fn len(&self) -> usize;
    /// Whether it has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A readable description of an element of one of its arenas: the key of a map's entry, or the keys in its bucket. `None` if only the
    /// number is known. Exact while no transaction runs.
    fn element(&self, _part: Part, _index: u32) -> Option<String> {
        None
    }
    /// Bytes of memory mapped or allocated.
    fn memory_bytes(&self) -> usize;
    /// The committed content as bytes that do not depend on the location or order of elements in memory.
    fn snapshot(&self) -> Vec<u8>;
}

/// Why a structure cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The capacity is zero or exceeds what 32-bit element numbers allow.
    #[error("{name}: a capacity of {capacity} is not possible: {}", bound(*.capacity, *.most))]
    Capacity {
        /// The structure.
        name: String,
        /// The requested capacity.
        capacity: u64,
        /// The maximum capacity.
        most: u64,
    },
    /// Memory cannot be mapped.
    #[error("{name}: {source}")]
    Memory {
        /// The structure.
        name: String,
        /// The cause.
        source: MemoryError,
    },
    /// The builder's [limit](StateBuilder::limit) is exceeded.
    #[error("{name}: {}, {} with what was made before it, and there are {}", gib(*.bytes), gib(*.all), gib(*.limit))]
    Beyond {
        /// The structure.
        name: String,
        /// Bytes of the part that exceeds the limit.
        bytes: usize,
        /// Bytes of all structures so far, including this part.
        all: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// The bound that a capacity violates. A function that omits a structure may pass 0, which is no valid capacity.
fn bound(capacity: u64, most: u64) -> String {
    if capacity == 0 { "1 is the least".to_owned() } else { format!("{most} is the most") }
}

fn gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// What a function has declared about the values of a structure.
struct Terms {
    name: String,
    function: String,
    terms: String,
}

/// Two functions that share a structure and [disagree](StateBuilder::agree) about the meaning of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The structure.
    pub name: String,
    /// The function that declared its terms first.
    pub function: String,
    /// The terms of the first function.
    pub other: String,
    /// The terms of the later function.
    pub terms: String,
}

/// Where a chain decides by which port a packet leaves, as seen from one of its functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decided {
    /// In no other function: the packet leaves by the port opposite to its own, or crosses to the other side.
    #[default]
    Nowhere,
    /// In a function that the packet has met.
    Before,
    /// In a function that it has yet to meet.
    Behind,
}

/// What a function has to know of the chain around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Where other functions decide by which port a packet leaves: of packets that meet the functions in their order, and of those that meet
    /// the last one first.
    pub decided: [Decided; 2],
    /// No function before this one in that order writes IP addresses.
    pub sees_addresses: bool,
    /// Packets come with Ethernet addresses and VLAN tags that another function has written, in the same order as for `decided`.
    pub readdressed: [bool; 2],
    /// A translator has a condition: some packets that this function sends on do not meet it.
    pub translator_is_conditional: bool,
    /// Another function meets packets by the port by which they are to leave, so what is flooded has to be one packet for each port.
    pub splits_floods: bool,
    /// The most bytes of an IP packet that the interface at each port takes, by port; `None`, or no entry, where that is not known.
    pub mtus: Vec<Option<u16>>,
}

/// Creates the structures of a chain and keeps a list of them.
pub struct StateBuilder {
    domain: Arc<Domain>,
    prefix: String,
    pages: HugePages,
    objects: Vec<Arc<dyn StateObject>>,
    heritage: Vec<Arc<dyn StateObject>>,
    /// Structures saved by another process: name, kind, image.
    saved: Vec<(String, String, Vec<u8>)>,
    /// Names of structures that are shared, each with the common name used instead.
    shares: Vec<(String, String)>,
    unlike: Option<String>,
    /// What was declared about the values of shared structures, and by whom first.
    terms: Vec<Terms>,
    disagreement: Option<Disagreement>,
    /// Structures that belong together, by function; and the function that has separated some.
    together: Vec<together::Together>,
    parted: Option<Parted>,
    /// Maximum number of bytes of new structures, and the number used so far.
    limit: usize,
    made: Cell<usize>,
    around: Surroundings,
}

impl StateBuilder {
    /// Creates a builder for the structures of a domain.
    pub fn new(domain: &Arc<Domain>, pages: HugePages) -> StateBuilder {
        StateBuilder {
            domain: Arc::clone(domain),
            prefix: String::new(),
            pages,
            objects: Vec::new(),
            heritage: Vec::new(),
            saved: Vec::new(),
            shares: Vec::new(),
            unlike: None,
            terms: Vec::new(),
            disagreement: None,
            together: Vec::new(),
            parted: None,
            limit: usize::MAX,
            made: Cell::new(0),
            around: Surroundings::default(),
        }
    }

    /// Describes the chain around the function that is built next.
    pub fn place(&mut self, around: Surroundings) {
        self.around = around;
    }

    /// Where other functions decide by which port packets leave: of those from inside, and from outside.
    pub fn decided(&self) -> [Decided; 2] {
        self.around.decided
    }

    /// Whether packets that meet the functions in their order come to this one with the addresses with which they arrived, as far as
    /// [`place`](Self::place) has said so or no function with state precedes it.
    pub fn sees_addresses(&self) -> bool {
        self.around.sees_addresses || self.objects.is_empty()
    }

    /// Whether some packets do not meet the translator of the chain.
    pub fn translator_is_conditional(&self) -> bool {
        self.around.translator_is_conditional
    }

    /// Whether what this function floods has to be one packet for each port.
    pub fn splits_floods(&self) -> bool {
        self.around.splits_floods
    }

    /// The most bytes of an IP packet that the interface at a port takes, if the port is an interface and that is known.
    pub fn mtu(&self, port: u16) -> Option<u16> {
        *self.around.mtus.get(usize::from(port))?
    }

    /// Whether packets come with Ethernet addresses and VLAN tags that another function has written: those from inside, and from outside.
    pub fn readdressed(&self) -> [bool; 2] {
        self.around.readdressed
    }

    /// Limits the total size of new structures in bytes; one that exceeds the limit is refused before its pages are used.
    pub fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Sets the existing structures of the same domain. A structure that is created with the name of one of them and has the same kind, types and
    /// sizes is that existing one.
    pub fn inherit(&mut self, objects: Vec<Arc<dyn StateObject>>) {
        self.heritage = objects;
    }

    /// Sets the structures saved by another process, whose content will be restored into new ones: name, kind and image of each.
    pub fn succeed_saved(&mut self, objects: &[(String, String, Vec<u8>)]) {
        self.saved = objects.to_vec();
    }

    /// Whether a structure of this name and kind already exists, or existed in another process.
    pub fn has_left(&self, name: &str, kind: &str) -> bool {
        let name = self.name(name);
        self.heritage.iter().any(|object| object.name() == name && object.kind() == kind)
            || self.saved.iter().any(|(saved, of, _)| *saved == name && of == kind)
    }

    /// The image of the structure of this name and kind that already exists, or existed in another process.
    pub fn left_behind(&self, name: &str, kind: &str) -> Option<Vec<u8>> {
        let name = self.name(name);
        let inherited = self.heritage.iter().find(|object| object.name() == name && object.kind() == kind);
        let saved = || self.saved.iter().find(|(saved, of, _)| *saved == name && of == kind);
        inherited.map(|object| object.save()).or_else(|| saved().map(|(.., image)| image.clone()))
    }

    /// Gives the structure `name` of the current scope the name `shared` instead. So functions of a chain can share a structure: the first
    /// creates it, and the others find it.
    pub fn share(&mut self, name: &str, shared: &str) {
        self.shares.push((format!("{}{name}", self.prefix), shared.to_owned()));
    }

    /// The name of a shared structure for which a function wanted another kind, type or size than the function before.
    pub fn unlike(&self) -> Option<&str> {
        self.unlike.as_deref()
    }

    /// Declares the meaning of the values of structure `name`, in words that continue "it is". Functions that share the structure must
    /// declare the same. A token bucket that two functions fill at different rates, for example, would enforce neither rate.
    pub fn agree(&mut self, name: &str, terms: impl Display) {
        let (name, terms) = (self.name(name), terms.to_string());
        if self.shares.iter().all(|(_, shared)| *shared != name) {
            return;
        }
        let function = self.prefix.trim_end_matches('.').to_owned();
        match self.terms.iter().find(|said| said.name == name) {
            None => self.terms.push(Terms { name, function, terms }),
            Some(first) if first.terms == terms => (),
            Some(Terms { function, terms: other, .. }) => {
                let (function, other) = (function.clone(), other.clone());
                self.disagreement.get_or_insert(Disagreement { name, function, other, terms });
            }
        }
    }

    /// The first shared structure about which two functions disagree.
    pub fn disagreement(&self) -> Option<&Disagreement> {
        self.disagreement.as_ref()
    }

    /// The structure of a shared name that an earlier function of the chain has created.
    fn shared(&self, name: &str) -> Option<&Arc<dyn StateObject>> {
        self.shares.iter().find(|(_, shared)| shared == name)?;
        self.objects.iter().find(|object| object.name() == name)
    }

    /// The inherited structure of this name if it is an `S` for which `is_like` is true; it is added to the list.
    pub(crate) fn inherited<S: StateObject>(&mut self, name: &str, is_like: impl FnOnce(&S) -> bool) -> Option<Arc<S>> {
        let name = self.name(name);
        if let Some(shared) = self.shared(&name) {
            let found = same_type(shared).filter(|found| is_like(found));
            if found.is_none() {
                self.unlike.get_or_insert(name);
            }
            return found;
        }
        let found = self.heritage.iter().find(|object| object.name() == name)?;
        let found = same_type(found).filter(|found| is_like(found))?;
        self.list(Arc::clone(&found) as Arc<dyn StateObject>);
        Some(found)
    }

    /// Structures created from now on are named `scope.name`.
    pub fn scope(&mut self, scope: &str) -> &mut StateBuilder {
        self.prefix = if scope.is_empty() { String::new() } else { format!("{scope}.") };
        self
    }

    /// The domain of the structures.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The page size that structures request.
    pub fn pages(&self) -> HugePages {
        self.pages
    }

    /// All structures created so far, in order.
    pub fn objects(&self) -> &[Arc<dyn StateObject>] {
        &self.objects
    }

    /// Returns the list of structures.
    pub fn finish(self) -> Vec<Arc<dyn StateObject>> {
        self.objects
    }

    pub(crate) fn name(&self, name: &str) -> String {
        let own = format!("{}{name}", self.prefix);
        self.shares.iter().find(|(name, _)| *name == own).map_or(own, |(_, shared)| shared.clone())
    }

    pub(crate) fn register(&self, name: &str, kind: &'static str) -> Named {
        let name = self.name(name);
        Named { id: self.domain.register(ObjectInfo { name: name.clone(), kind }), name, kind }
    }

    pub(crate) fn attach(&self, object: ObjectId, boosted: Arc<dyn Boosted>) {
        self.domain.attach(object, boosted);
    }

    pub(crate) fn list(&mut self, object: Arc<dyn StateObject>) {
        self.objects.push(object);
    }

    /// Creates an arena; `make` is `Arena::new` or `Arena::packed`.
    pub(crate) fn arena(
        &self,
        make: fn(&Domain, ArenaInit) -> Result<Arena, MemoryError>,
        of: &Named,
        part: Part,
        objects: u32,
        payload_words: usize,
    ) -> Result<Arena, StateError> {
        let init = ArenaInit { object: of.id, part, objects, payload_words, pages: self.pages };
        let failed = |source| StateError::Memory { name: of.name.clone(), source };
        let arena = make(&self.domain, init).map_err(failed)?;
        self.claim(of, arena.bytes())?;
        Ok(arena)
    }

    /// Accounts for bytes of a structure whose pages have not been used yet.
    pub(crate) fn claim(&self, of: &Named, bytes: usize) -> Result<(), StateError> {
        let all = self.made.get().saturating_add(bytes);
        if all > self.limit {
            return Err(StateError::Beyond { name: of.name.clone(), bytes, all, limit: self.limit });
        }
        self.made.set(all);
        Ok(())
    }

    pub(crate) fn check_capacity(&self, name: &str, capacity: u64, most: u64) -> Result<u32, StateError> {
        if capacity == 0 || capacity > most {
            return Err(StateError::Capacity { name: self.name(name), capacity, most });
        }
        Ok(capacity as u32)
    }
}

/// Downcasts a structure; `None` if it is not an `S`.
fn same_type<S: StateObject>(object: &Arc<dyn StateObject>) -> Option<Arc<S>> {
    let object: Arc<dyn Any + Send + Sync> = Arc::clone(object) as _;
    object.downcast().ok()
}

impl std::fmt::Debug for StateBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.objects.iter().map(|object| object.name()).collect();
        f.debug_struct("StateBuilder").field("prefix", &self.prefix).field("objects", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Allocator, AllocatorConfig, Map, MapConfig};

    #[test]
    fn what_is_beyond_the_limit_is_refused_with_its_bytes_and_the_sum() {
        let mut builder = StateBuilder::new(&Domain::new(2), HugePages::Never);
        builder.limit(1 << 30);
        let map = |capacity| MapConfig { name: "flows".to_owned(), capacity, ..MapConfig::default() };
        Map::<u64, u64>::new(builder.scope("a"), &map(1_000_000)).expect("it is small");
        let error = Map::<u64, u64>::new(builder.scope("b"), &map(1 << 31)).map(drop).expect_err("it is large");
        let StateError::Beyond { name, bytes, all, limit } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), *limit), ("b.flows", 1 << 30));
        assert!(*bytes > 1 << 30 && all > bytes, "{error}");
        assert!(error.to_string().ends_with("and there are 1.0 GiB"), "{error}");
        let numbers = AllocatorConfig { resources: 1 << 30, ..AllocatorConfig::default() };
        let error = Allocator::new(&mut builder, &numbers).map(drop).expect_err("12 bytes of each number");
        assert!(matches!(error, StateError::Beyond { .. }), "{error}");
    }
}
