//! Detects stations that claim an address of this router (address conflicts).
//!
//! Claims are counted, and the report names the last one, because neighbours may send to either station. The router does not
//! defend its address beyond answering every query for it (`local.rs`), including probes for whether it is free and
//! announcements.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject, VectorConfig};

use crate::router::interface::Interface;
use crate::router::neighbours::Station;

/// How many claims there were, and the last one.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Said {
    times: u64,
    address: IpAddress,
    mac: [u8; 6],
    port: Port,
}

/// The claims heard so far.
pub(in crate::router) struct Conflicts {
    said: Vector<Said>,
}

impl Conflicts {
    pub(in crate::router) fn new(builder: &mut StateBuilder) -> Result<Conflicts, StateError> {
        let config = VectorConfig { name: "conflicts".into(), len: 1 };
        Ok(Conflicts { said: Vector::new(builder, &config, Said::default())? })
    }

    /// Records that a station claims an address, if the address is the router's. The router's own frames that come back do not
    /// count.
    pub(in crate::router) fn hear(
        &self,
        cx: &mut Cx<'_>,
        interface: &Interface,
        (address, Station { mac, port }): (IpAddress, Station),
    ) -> Result<(), Conflict> {
        if !interface.owns(address) || mac == interface.mac.0 {
            return Ok(());
        }
        self.said.update(cx, 0, |said| *said = Said { times: said.times + 1, address, mac, port })?;
        Ok(())
    }

    pub(in crate::router) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let Said { times, address, mac, port } = self.said.get(cx, 0)?.unwrap_or_default();
        if times > 0 {
            let detail =
                format!("another station has this router's address: {} by port {port} said so last", MacAddress(mac));
            into.count("address_conflict", address, times, detail);
        }
        Ok(())
    }
}

impl Part for Conflicts {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.said.objects(into);
    }
}
