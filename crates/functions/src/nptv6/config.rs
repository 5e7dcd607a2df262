//! The configuration of `nptv6`, as written in a plan file and as checked.

use std::net::{Ipv4Addr, Ipv6Addr};

use braid_nf::packet::IpAddress;
use braid_nf::state::StateBuilder;
use braid_nf::{Hairpins, Port};
use serde::Deserialize;

use super::prefix::{Mapping, Unmapped};
use crate::config::ConfigError;
use crate::parts::answers::answer::Router;
use crate::parts::answers::proxy::Proxy;
use crate::parts::forwarding::hairpin::Return;
use crate::parts::forwarding::others::CountsHops;
use crate::parts::headers::scope::is_routed_v6;
use crate::parts::{Prefix, Side, Sides, WayOut, WrittenMac};

/// The dummy address of RFC 7600 section 4.8: no errors are sent over IPv4.
const NO_ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// The maximum length of the prefixes.
const BITS_MAX: u32 = 64;

/// The configuration as written in a plan file. The README explains each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    pub inside: Option<Prefix>,
    pub outside: Option<Prefix>,
    pub inside_ports: Vec<Port>,
    pub outside_ports: Vec<Port>,
    pub mac: Option<WrittenMac>,
    pub router: Option<Ipv6Addr>,
    pub icmp_errors_per_s: u64,
    pub counts_hops: CountsHops,
    pub hairpins: Option<Return>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            inside: "fd00::/48".parse().ok(),
            outside: "2001:db8:1::/48".parse().ok(),
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            mac: None,
            router: None,
            icmp_errors_per_s: 1000,
            counts_hops: CountsHops::All,
            hairpins: None,
        }
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) inside: Prefix,
    pub(super) outside: Prefix,
    outward: Mapping,
    inward: Mapping,
    /// The source of errors to senders inside.
    router: Router,
    /// The source of errors to senders outside, which know no inside address.
    outside_router: Router,
    pub(super) proxy: Option<Proxy>,
    pub(super) counts_hops: CountsHops,
    /// Which hairpins return through the functions before this one.
    pub(super) hairpins: Hairpins,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16, builder: &StateBuilder) -> Result<Settings, ConfigError> {
        let (inside, outside) = (v6("inside", config.inside)?, v6("outside", config.outside)?);
        if inside.contains(outside.first()) || outside.contains(inside.first()) {
            let reason = format!("{outside} and {inside} have addresses in common");
            return Err(ConfigError::new("outside", reason, "write two different prefixes"));
        }
        let sides = Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?;
        let first = |prefix: Prefix| u128::from_be_bytes(prefix.first().octets());
        // The shorter prefix is extended with zeros (RFC 6296 section 3.1).
        let bits = inside.mapped_bits().max(outside.mapped_bits());
        let outward = Mapping::new(first(inside), first(outside), bits);
        let router = Router::check(("router", NO_ROUTER_V4), ("router", config.router))?;
        Ok(Settings {
            sides,
            inside,
            outside,
            outward,
            inward: Mapping::new(first(outside), first(inside), bits),
            router,
            outside_router: seen_from_outside(router, inside, &outward)?,
            proxy: Proxy::check(config.mac)?,
            counts_hops: config.counts_hops,
            hairpins: Return::hairpins(config.hairpins, &WayOut::new(sides, ports, builder), None),
        })
    }

    /// The source of errors to senders on a side.
    pub(super) fn router(&self, side: Side) -> Router {
        if side == Side::Inside { self.router } else { self.outside_router }
    }

    pub(super) fn outward(&self, address: IpAddress) -> Result<IpAddress, Unmapped> {
        self.outward.map(address)
    }

    pub(super) fn inward(&self, address: IpAddress) -> Result<IpAddress, Unmapped> {
        self.inward.map(address)
    }
}

/// The router as seen from outside: with its translated address, if it has an inside one.
fn seen_from_outside(router: Router, inside: Prefix, outward: &Mapping) -> Result<Router, ConfigError> {
    let Some(own) = router.v6.filter(|own| inside.contains(*own)) else { return Ok(router) };
    let unmapped = |_| {
        let reason = format!("{own} cannot be exchanged, and senders outside are told of no inside address");
        ConfigError::new("router", reason, "write an inside address that has another one outside, or an outside one")
    };
    Ok(Router { v6: Some(outward.map(own).map_err(unmapped)?), ..router })
}

fn v6(key: &str, prefix: Option<Prefix>) -> Result<Prefix, ConfigError> {
    let prefix = prefix.ok_or_else(|| ConfigError::new(key, "missing", "write a prefix as fd00::/48"))?;
    if prefix.is_v4() || !is_routed_v6(prefix.first()) || !(1..=BITS_MAX).contains(&prefix.mapped_bits()) {
        let instead = format!("write an IPv6 unicast prefix of 1 to {BITS_MAX} bits that is routed, as fd00::/48");
        return Err(ConfigError::new(key, format!("{prefix} cannot be exchanged"), instead));
    }
    Ok(prefix)
}
