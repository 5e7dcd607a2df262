//! What a function noted when it was built, for its successor: after a change of the configuration, or in another process that continues
//! with the state.
//!
//! State refers to things by numbers that some configuration assigned. Under another configuration the same things must keep their numbers.
//! Therefore the assignment is kept here, saved with the state and read before the state is ([`StateBuilder::left_behind`]). It does
//! not change while packets are handled, and no transaction reads it.

use std::sync::Arc;

use braid_stm::{Arena, Part, Tx};

use crate::image::{Image, ImageError};
use crate::object::{Named, StateBuilder, StateError, StateObject};
use crate::plain::Plain;
use crate::succession::{Brought, Succeed, check};

/// An immutable list.
pub struct Numbering {
    shared: Arc<Shared>,
}

struct Shared {
    named: Named,
    content: Vec<u8>,
    /// An empty arena, because every object must have elements that could be copied.
    elements: Arena,
}

impl Numbering {
    /// The list that the function's predecessor in this scope left under `name`; `None` if there was none, or one with other values.
    pub fn left<T: Plain>(builder: &StateBuilder, name: &str) -> Option<Vec<T>> {
        let content = builder.left_behind(name, "Numbering")?;
        content.chunks(size_of::<T>()).map(|bytes| T::read_from_bytes(bytes).ok()).collect()
    }

    /// Leaves a list for a successor.
    pub fn new<T: Plain>(builder: &mut StateBuilder, name: &str, list: &[T]) -> Result<Numbering, StateError> {
        let content: Vec<u8> = list.iter().flat_map(|value| value.as_bytes()).copied().collect();
        if let Some(shared) = builder.inherited(name, |shared: &Shared| shared.content == content) {
            return Ok(Numbering { shared });
        }
        let named = builder.register(name, "Numbering");
        let elements = builder.arena(Arena::new, &named, Part(0), 1, 1)?;
        let shared = Arc::new(Shared { named, content, elements });
        builder.list(Arc::clone(&shared) as Arc<dyn StateObject>);
        Ok(Numbering { shared })
    }

    /// The structure as seen from outside.
    pub fn object(&self) -> Arc<dyn StateObject> {
        Arc::clone(&self.shared) as Arc<dyn StateObject>
    }
}

impl std::fmt::Debug for Numbering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Numbering({})", self.shared.named.name)
    }
}

impl StateObject for Shared {
    fn named(&self) -> &Named {
        &self.named
    }

    fn capacity(&self) -> usize {
        1
    }

    fn len(&self) -> usize {
        1
    }

    fn memory_bytes(&self) -> usize {
        self.elements.bytes() + self.content.len()
    }

    fn snapshot(&self) -> Vec<u8> {
        self.content.clone()
    }
}

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        self.content.clone()
    }

    /// Restores nothing: the function has read the image when it created this object.
    fn restore(&self, _: &mut Tx, _: &[u8]) -> Result<(), ImageError> {
        Ok(())
    }
}

impl Succeed for Shared {
    fn elements(&self) -> &Arena {
        &self.elements
    }

    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError> {
        check(self, former, |_: &Shared| true)
    }

    fn bring(&self, _: &dyn StateObject, _: u32) -> Brought {
        Brought::Nothing
    }
}
