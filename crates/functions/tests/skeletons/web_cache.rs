//! A web cache's packet sets: TCP sessions, with the current request as context; cached responses are aggregate state.
//!
//! It reports which requests a cache would have answered. **Missing**: TCP termination on both sides (reassembly,
//! retransmission, windows), without which no answer can be given on a server's behalf; storage of bodies; freshness and
//! validation (RFC 9111); requests that span several packets; and TLS.

use braid_nf::packet::parse::protocol::TCP;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use braid_nf::state::{MapConfig, StateError};

/// The latest request of a session.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// A hash of the request line; 0: none.
    resource: u64,
}

/// A response that would be in the cache.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cached {
    since_ns: u64,
    hits: u64,
}

network_function! {
    /// The skeleton of a web cache.
    #[derive(Debug)]
    pub struct WebCache {
        responses: Map<u64, Cached>,
    }
}

impl WebCache {
    /// A cache for `capacity` responses.
    pub fn new(builder: &mut StateBuilder, capacity: u32) -> Result<WebCache, StateError> {
        let config = MapConfig { name: "responses".into(), capacity, ..MapConfig::default() };
        Ok(WebCache { responses: Map::new(builder, &config)? })
    }
}

impl NetworkFunction for WebCache {
    type Set = Request;
    const NAME: &'static str = "web_cache";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[TCP]).symmetric())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Request>) -> Handled {
        let mut request = Request::default();
        let verdict = self.packet(cx, packet, &mut request)?;
        let _room = set.register(cx, request);
        Ok(verdict)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, request: &mut Request) -> Handled {
        let payload = packet.payload();
        if payload.starts_with(b"GET ") {
            let line = payload.split(|byte| *byte == b'\r').next().unwrap_or_default();
            request.resource = mixed(line, 0).max(1);
            self.responses.update(cx, &request.resource, |cached| cached.hits += 1)?;
        } else if payload.starts_with(b"HTTP/1.1 200") && request.resource != 0 {
            let cached = self.responses.get(cx, &request.resource)?;
            if cached.is_none() {
                let since_ns = cx.now();
                self.responses.insert(cx, &request.resource, &Cached { since_ns, hits: 0 })?;
            }
        }
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        into.pieces(|into, from, entries| {
            self.responses.for_each(cx, from, entries, |_, _, cached| {
                into.add("responses", 1);
                into.add("hits", cached.hits);
                Ok(braid_nf::state::Visit::Keep)
            })
        })
    }
}
