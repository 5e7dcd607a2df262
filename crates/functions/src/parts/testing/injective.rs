//! For tests, what every translator with mappings must guarantee: each inside endpoint has an external one that no other has,
//! and a reply to it comes back to the inside endpoint.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;

use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::show;

/// Host, its port, server, and whether the packet is TCP.
pub type Sends = Vec<(u8, u16, u8, bool)>;

/// An inside endpoint, a server as the inside sees it, and the server's own address.
pub type Ends = [String; 3];

/// Up to about a hundred packets from some hosts and ports.
pub fn sends() -> impl Strategy<Value = Sends> {
    prop::collection::vec((0u8..12, 0u16..6, 0u8..3, any::<bool>()), 1..120)
}

/// Sends all of them, each with a reply.
pub fn check(bench: &mut Bench, sends: Sends, ends: impl Fn(u8, u16, u8) -> Ends) -> Result<(), TestCaseError> {
    let mut external = External::default();
    for (n, (host, port, server, tcp)) in sends.into_iter().enumerate() {
        let ([inside, seen, server], ms) = (ends(host, port, server), n as u64 * 10);
        let make = |from: &str, to: &str| if tcp { Frame::tcp(from, to) } else { Frame::udp(from, to) }.bytes();
        let sent = show::outcome(&bench.send(0, ms, &make(&inside, &seen)));
        prop_assert!(sent.contains(&format!("> {server} ")), "{}", sent);
        let mapped = sent.split(' ').nth(2).expect("a source").to_owned();
        external.note(inside.clone(), tcp, &mapped)?;
        let back = show::outcome(&bench.send(1, ms, &make(&server, &mapped)));
        prop_assert!(back.contains(&format!("{seen} > {inside} ")), "{}", back);
    }
    external.check()
}

/// The external endpoints of the inside ones, by protocol.
#[derive(Debug)]
pub struct External<K>(HashMap<(K, bool), String>);

impl<K> Default for External<K> {
    fn default() -> Self {
        External(HashMap::new())
    }
}

impl<K: Eq + Hash + Debug> External<K> {
    /// Checks that an inside endpoint keeps its external one.
    pub fn note(&mut self, inside: K, tcp: bool, mapped: &str) -> Result<(), TestCaseError> {
        let before = self.0.insert((inside, tcp), mapped.to_owned());
        prop_assert!(before.as_ref().is_none_or(|before| before == mapped), "{:?}, then {}", before, mapped);
        Ok(())
    }

    /// Checks that no two inside endpoints have the same external one.
    pub fn check(&self) -> Result<(), TestCaseError> {
        let all: HashSet<_> = self.0.iter().map(|((_, tcp), mapped)| (*tcp, mapped)).collect();
        prop_assert_eq!(all.len(), self.0.len());
        Ok(())
    }
}
