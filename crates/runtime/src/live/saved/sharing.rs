//! Saved packet sets of functions whose sets workers shared and no longer share, or the reverse, as after a change of the number of workers: sets of
//! workers' own tables become an image of shared ones, and an image becomes sets.

use std::borrow::Cow;

use braid_nf::{Stage, image_of_shared, shared_of_image, shared_sets_name};

use super::{Saved, SavedSet};
use crate::chain::Chain;

/// The kind of state object that shared sets are in.
const MAP: &str = "Map";

impl Saved {
    /// The same state, with the packet sets of each function shared as in this chain.
    pub(crate) fn shared_as_in(&self, chain: &Chain) -> Cow<'_, Saved> {
        let mut saved = Cow::Borrowed(self);
        for (at, function) in self.functions.iter().enumerate() {
            let stage = chain.stages().iter().find(|stage| stage.name() == function.name);
            // One that keeps other states is refused later.
            let is_its = |stage: &dyn Stage| stage.set_bytes() == function.set_bytes;
            if stage.is_some_and(|stage| is_its(&**stage) && stage.is_shared() != function.shared) {
                let saved = saved.to_mut();
                if function.shared {
                    saved.take_apart(at)
                } else {
                    saved.put_together(at)
                }
                saved.functions[at].shared = !function.shared;
            }
        }
        saved
    }

    /// Makes the sets that workers kept for a function shared ones.
    fn put_together(&mut self, at: usize) {
        let mut shared = Vec::new();
        for set in &mut self.sets {
            let own = set.states.iter().position(|(function, _)| *function == at);
            if let Some((_, state)) = own.map(|own| set.states.swap_remove(own)) {
                shared.push((set.key, set.last_seen_ms, state));
            }
        }
        self.sets.retain(|set| !set.states.is_empty());
        let name = shared_sets_name(&self.functions[at].name);
        self.objects.push((name, MAP.to_owned(), image_of_shared(&shared)));
    }

    /// Makes the shared sets of a function sets that workers keep. An image that is damaged has none.
    fn take_apart(&mut self, at: usize) {
        let function = &self.functions[at];
        let (name, bytes) = (shared_sets_name(&function.name), function.set_bytes);
        let Some(place) = self.objects.iter().position(|(object, kind, _)| *object == name && kind == MAP) else {
            return;
        };
        let (_, _, image) = self.objects.swap_remove(place);
        let sets = shared_of_image(&image, bytes).unwrap_or_default().into_iter();
        let saved = |(key, last_seen_ms, state)| SavedSet { key, last_seen_ms, states: vec![(at, state)] };
        self.sets.extend(sets.map(saved));
    }
}
