//! What a router has said about its own addresses. When the configuration changes under a live run, interfaces that have other addresses, or another
//! Ethernet address, announce themselves again: neighbours may know the addresses elsewhere (RFC 5227 section 2.3, RFC 4861 section 7.2.6), and
//! switches must learn of the groups (RFC 3810 section 6.1). Where no link has come up, as in a replay, nothing is announced.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use braid_nf::state::{StateBuilder, StateObject, VectorConfig};
use braid_nf::{Part, Port};

use crate::ConfigError;
use crate::router::advertise::Advertisements;
use crate::router::interface::{Interface, LINKS_MAX};
use crate::router::links::Links;
use crate::router::neighbours::Neighbours;

/// The interfaces as they were announced last.
pub(in crate::router) struct Announced {
    /// A hash of each interface, under its number plus one; under [`ALL`] one of all of them. 0: never announced.
    said: Vector<u64>,
    /// A hash of all interfaces of this configuration.
    all: u64,
}

const ALL: u32 = 0;

fn hash_of(what: &impl std::fmt::Debug) -> u64 {
    mixed(format!("{what:?}").as_bytes(), 0).max(1)
}

impl Announced {
    /// Nothing has been said yet about these interfaces.
    pub fn new(builder: &mut StateBuilder, interfaces: &[Option<Interface>]) -> Result<Announced, ConfigError> {
        let config = VectorConfig { name: "announced".into(), len: 1 + LINKS_MAX as u32 };
        let said = Vector::new(builder, &config, 0).map_err(|error| ConfigError::state("interface", &error))?;
        Ok(Announced { said, all: hash_of(&interfaces) })
    }

    /// Announces what is at a port whose link has come up.
    pub fn link_up(&self, cx: &mut Cx<'_>, links: &Links, port: Port) -> Result<(), Conflict> {
        for (link, one) in links.numbered().filter(|(_, one)| one.has_port(port)) {
            one.announce(cx, port);
            self.said.set(cx, u32::from(link) + 1, hash_of(one))?;
        }
        // What was changed before is still to be announced at other ports.
        self.said.update(cx, ALL, |all| *all = if *all == 0 { self.all } else { *all }).map(drop)
    }

    /// Announces interfaces that are others than they were, at ports that have their links, and advertises what hosts find there now.
    pub fn tick(
        &self,
        cx: &mut Cx<'_>,
        (links, neighbours): (&Links, &Neighbours),
        advertisements: Option<&Advertisements>,
    ) -> Result<(), Conflict> {
        match self.said.get(cx, ALL)? {
            Some(said) if said != 0 && said != self.all => {}
            _ => return Ok(()),
        }
        for (link, one) in links.numbered() {
            let (at, hash) = (u32::from(link) + 1, hash_of(one));
            if self.said.get(cx, at)? == Some(hash) {
                continue;
            }
            for port in one.ports() {
                if neighbours.has_link(cx, port)? {
                    one.announce(cx, port);
                }
            }
            advertisements.iter().try_for_each(|advertisements| advertisements.hasten(cx, link))?;
            self.said.set(cx, at, hash)?;
        }
        self.said.set(cx, ALL, self.all).map(drop)
    }
}

impl Part for Announced {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.said.objects(into);
    }
}
