//! Structures that belong together: one holds numbers of what is in another, so two functions have all of them in common, or none.

use super::StateBuilder;

/// The structures of a function that belong together: what it calls each, and what each is called.
#[derive(Debug)]
pub(super) struct Together {
    function: String,
    names: Vec<(String, String)>,
}

/// Two functions that have some structures in common, and others not that belong to those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// One that they have in common.
    pub name: String,
    /// The function that was there before.
    pub function: String,
    /// All that belong together, as both call them, and whether they have it in common.
    pub all: Vec<(String, bool)>,
}

impl StateBuilder {
    /// Says that these structures of the present scope belong together: a function that shares one of them shares all. Those of them that a
    /// function has not are left out.
    pub fn together(&mut self, names: &[&str]) {
        let function = self.prefix.trim_end_matches('.').to_owned();
        let is_there = |name: &String| self.objects.iter().any(|object| object.name() == *name);
        let names: Vec<(String, String)> = names.iter().map(|own| ((*own).to_owned(), self.name(own))).collect();
        let names: Vec<_> = names.into_iter().filter(|(_, name)| is_there(name)).collect();
        let parted = self.together.iter().find_map(|before| {
            let is_common = |pair: &(String, String)| before.names.contains(pair);
            let first = names.iter().find(|pair| is_common(pair)).filter(|_| !names.iter().all(is_common))?;
            let all = names.iter().map(|pair| (pair.0.clone(), is_common(pair))).collect();
            Some(Parted { name: first.1.clone(), function: before.function.clone(), all })
        });
        self.parted = self.parted.take().or(parted);
        self.together.push(Together { function, names });
    }

    /// The first function that shares only some of what belongs together.
    pub fn parted(&self) -> Option<&Parted> {
        self.parted.as_ref()
    }
}
