//! Structures that belong together because one holds numbers of entries in another: two functions must share all of them or none.

use super::StateBuilder;

/// The structures of a function that belong together: the function's own name of each, and its full name.
#[derive(Debug)]
pub(super) struct Together {
    function: String,
    names: Vec<(String, String)>,
}

/// Two functions share some, but not all, of the structures that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// A structure that they share.
    pub name: String,
    /// The function that came first.
    pub function: String,
    /// All structures that belong together, by the functions' own names, and whether each is shared.
    pub all: Vec<(String, bool)>,
}

impl StateBuilder {
    /// Declares that these structures of the current scope belong together: a function that shares one of them must share all. Structures that
    /// do not exist are ignored.
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

    /// The first function that shares only some of the structures that belong together.
    pub fn parted(&self) -> Option<&Parted> {
        self.parted.as_ref()
    }
}
