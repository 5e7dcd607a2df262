//! External addresses and their ports, to which inside endpoints are translated, and limits on how many a host may have.
//! Every translator that shares external addresses has a pool.

use std::time::Duration;

use braid_nf::packet::IpAddress;

use super::config::{Allocation, AllocationKind, Config, Networks, Pooling};
use super::hosts::BLOCKS_MAX;
use super::networks;
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::headers::scope::is_host_v4;
use crate::parts::{Prefix, Syslog};

/// The maximum number of external addresses.
pub(crate) const EXTERNAL_MAX: u64 = 4096;

/// The checked part of a configuration that concerns external addresses.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Sorted, including those that drain.
    pub(crate) external: Box<[[u8; 4]]>,
    /// The ones on which no new mappings are made, sorted.
    pub(crate) draining: Box<[[u8; 4]]>,
    /// How many of the others, from the first on, have blocks that hosts' addresses determine.
    pub(crate) determined: usize,
    pub(crate) first_port: u16,
    pub(crate) last_port: u16,
    pub(crate) allocation: Allocation,
    pub(crate) pooling: Pooling,
    /// The maximum number of mappings of a subscriber; 0: no limit.
    pub(crate) quota: u32,
    pub(crate) mappings_max: u32,
    /// The maximum number of mappings of an inside network; 0: no limit.
    pub(crate) network_quota: u32,
    /// The maximum number of logged block events.
    pub(crate) block_log_max: u32,
    /// The collector to which block events are sent immediately.
    pub(crate) block_syslog: Option<Syslog>,
    /// The addresses whose mappings stay after a change, and that deterministic allocation counts.
    pub(crate) inside: Box<[Prefix]>,
    /// The length of an IPv6 subscriber's prefix, in bits.
    pub(crate) subscriber_bits: u8,
    pub(crate) refresh_ns: u64,
    pub(crate) rest_ns: u64,
    /// Inside networks, each of which has all inside addresses.
    pub(crate) networks: networks::List,
}

impl Pool {
    pub(crate) fn check(config: &Config, ports: u16, networks: networks::List) -> Result<Pool, ConfigError> {
        if config.first_port == 0 || config.first_port > config.last_port {
            let reason = format!("{} to {} is no range of ports", config.first_port, config.last_port);
            return Err(ConfigError::new("first_port", reason, "write 1 or more, and at most `last_port`"));
        }
        check_meant(config)?;
        let (open, draining) = (addresses("external", &config.external)?, addresses("draining", &config.draining)?);
        let external = known(&open, &draining)?;
        let (allocation, determined) = allocation(config, open.len() as u64, networks.len() as u64)?;
        let (refresh, rest) = (Duration::from_millis(config.refresh_ms), Duration::from_secs(config.rest_s));
        Ok(Pool {
            allocation,
            external,
            draining,
            determined,
            first_port: config.first_port,
            last_port: config.last_port,
            pooling: config.pooling,
            quota: config.ports_per_host,
            mappings_max: config.mappings_max,
            network_quota: config.mappings_per_network,
            block_log_max: config.block_log_max,
            block_syslog: config.block_syslog.map(|to| Syslog::check("block_syslog", to, ports)).transpose()?,
            inside: config.inside.clone().into(),
            subscriber_bits: 128,
            refresh_ns: span_ns("refresh_ms", refresh, Duration::from_millis(1), Duration::from_secs(60))?,
            rest_ns: span_ns("rest_s", rest, Duration::ZERO, IDLE_MAX)?,
            networks,
        })
    }

    /// The number of external ports of an address.
    pub(crate) fn ports(&self) -> u32 {
        u32::from(self.last_port - self.first_port) + 1
    }

    /// Whether the number of mappings is kept for all hosts.
    pub(crate) fn counts_hosts(&self) -> bool {
        self.quota > 0 || matches!(self.allocation, Allocation::Blocks { .. })
    }

    /// The addresses on which new mappings are made, sorted.
    fn open(&self) -> impl Iterator<Item = &[u8; 4]> {
        self.external.iter().filter(|address| self.draining.binary_search(address).is_err())
    }

    /// Checks that every host with a determined block had the same one under another configuration.
    pub(crate) fn check_determined(&self, former: &Pool) -> Result<(), String> {
        let most = self.determined;
        if self.open().take(most).eq(former.open().take(most)) {
            return Ok(());
        }
        Err(format!(
            "with `allocation` = \"deterministic\" the block of a host follows from where its address stands in `external`: \
             leave the first {most} as they were, and let only higher ones join or leave"
        ))
    }

    /// Whether the inside addresses are the same, if they determine ports.
    pub(crate) fn has_inside_of(&self, former: &Pool) -> bool {
        self.determined == 0 || self.inside == former.inside
    }

    /// Whether an address is external.
    #[inline(always)]
    pub(crate) fn is_external(&self, address: IpAddress) -> bool {
        address.v4().is_some_and(|address| self.is_external_v4(address))
    }

    /// The same for IPv4. External addresses are usually adjacent, far from all others.
    #[inline(always)]
    pub(crate) fn is_external_v4(&self, address: [u8; 4]) -> bool {
        let (Some(first), Some(last)) = (self.external.first(), self.external.last()) else { return false };
        (*first..=*last).contains(&address) && self.external.binary_search(&address).is_ok()
    }

    /// Checks the external endpoint of a static mapping: an address of the pool, and any port, whether or not hosts get it.
    pub(crate) fn check_static(&self, external: std::net::SocketAddrV4) -> Result<(), ConfigError> {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("static", reason, instead));
        if self.external.binary_search(&external.ip().octets()).is_err() {
            return wrong(format!("{} is no external address", external.ip()), "write one of `external`");
        }
        if self.draining.binary_search(&external.ip().octets()).is_ok() {
            let instead = "write another one of `external`, or take it out with the address";
            return wrong(format!("{} drains, and a static mapping never ends", external.ip()), instead);
        }
        if external.port() == 0 {
            return wrong(format!("{external} has no port"), "write the port that is forwarded");
        }
        Ok(())
    }
}

/// The addresses of a key, sorted.
fn addresses(key: &str, ranges: &[Prefix]) -> Result<Box<[[u8; 4]]>, ConfigError> {
    let wrong = |reason: String, instead: &str| Err(ConfigError::new(key, reason, instead));
    let mut addresses: Vec<[u8; 4]> = Vec::new();
    for range in ranges {
        match range.len_v4() {
            None => return wrong(format!("{range} is not IPv4"), "name IPv4 addresses or ranges"),
            Some(len) if addresses.len() as u64 + len > EXTERNAL_MAX => {
                return wrong(
                    format!("{range} makes more than {EXTERNAL_MAX} addresses"),
                    "name fewer or smaller ranges",
                );
            }
            Some(_) => addresses.extend(range.addresses_v4()),
        }
    }
    if let Some(wrong) = addresses.iter().find(|address| !is_host_v4(**address)) {
        let reason = format!("{} is no host's address", IpAddress::from_v4(*wrong));
        return Err(ConfigError::new(key, reason, "write addresses that are routed to this function"));
    }
    addresses.sort_unstable();
    if let Some(pair) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong(format!("{} stands there twice", IpAddress::from_v4(pair[0])), "write it once");
    }
    Ok(addresses.into())
}

/// All external addresses, sorted.
fn known(open: &[[u8; 4]], draining: &[[u8; 4]]) -> Result<Box<[[u8; 4]]>, ConfigError> {
    if open.is_empty() {
        let instead = "write for example external = [\"198.51.100.1\"]";
        return Err(ConfigError::new("external", "names no address", instead));
    }
    if let Some(both) = draining.iter().find(|address| open.binary_search(address).is_ok()) {
        let reason = format!("{} stands in `external` too", IpAddress::from_v4(*both));
        return Err(ConfigError::new("draining", reason, "write it in one of them"));
    }
    if open.len() + draining.len() > EXTERNAL_MAX as usize {
        let reason = format!("with `external` they are more than {EXTERNAL_MAX} addresses");
        return Err(ConfigError::new("draining", reason, "name fewer or smaller ranges"));
    }
    let mut known: Vec<[u8; 4]> = open.iter().chain(draining).copied().collect();
    known.sort_unstable();
    Ok(known.into())
}

/// Checks that every key that is set matters for this kind of allocation.
fn check_meant(config: &Config) -> Result<(), ConfigError> {
    let (usual, kind) = (Config::default(), config.allocation);
    if config.mappings_per_network > 0 && config.networks == Networks::One {
        let instead = "write `mappings_max`, or tell networks apart by `networks`";
        return Err(ConfigError::new("mappings_per_network", "says nothing: there is one network", instead));
    }
    let (has_blocks, is_shared) = (kind == AllocationKind::Blocks, kind == AllocationKind::Shared);
    let idle = [
        ("block_size", is_shared && config.block_size != usual.block_size, "blocks"),
        ("blocks_per_host", !has_blocks && config.blocks_per_host != usual.blocks_per_host, "blocks"),
        ("block_log_max", !has_blocks && config.block_log_max != usual.block_log_max, "blocks"),
        ("block_syslog", !has_blocks && config.block_syslog.is_some(), "blocks"),
        ("pooling", !is_shared && config.pooling == Pooling::Arbitrary, "shared"),
    ];
    match idle.into_iter().find(|(_, is_idle, _)| *is_idle) {
        Some((key, _, wanted)) => {
            let instead = format!("write allocation = \"{wanted}\", or leave it out");
            Err(ConfigError::new(key, "says nothing as ports are given to hosts", instead))
        }
        None => Ok(()),
    }
}

/// How ports are allocated to hosts, and how many addresses have determined blocks.
fn allocation(config: &Config, addresses: u64, networks: u64) -> Result<(Allocation, usize), ConfigError> {
    let ports = u64::from(config.last_port - config.first_port) + 1;
    let (size, blocks) = (config.block_size, ports / u64::from(config.block_size.max(1)));
    if config.allocation != AllocationKind::Shared && (size == 0 || blocks == 0) {
        let instead = format!("write 1 to {ports}, the ports of an external address");
        return Err(ConfigError::new("block_size", format!("{size} makes no block"), instead));
    }
    match config.allocation {
        AllocationKind::Shared => Ok((Allocation::Shared, 0)),
        AllocationKind::Blocks if !(1..=BLOCKS_MAX as u32).contains(&config.blocks_per_host) => {
            let reason = format!("{} is out of range", config.blocks_per_host);
            Err(ConfigError::new("blocks_per_host", reason, format!("write 1 to {BLOCKS_MAX}, and larger blocks")))
        }
        AllocationKind::Blocks => Ok((Allocation::Blocks { size, most: config.blocks_per_host as usize }, 0)),
        AllocationKind::Deterministic if !config.draining.is_empty() => {
            let reason = "blocks follow from hosts' addresses, so no host can go elsewhere";
            Err(ConfigError::new("draining", reason, "leave it out, or write another `allocation`"))
        }
        AllocationKind::Deterministic => {
            let each: u64 = config.inside.iter().filter_map(Prefix::len_v4).sum();
            let hosts = each * networks;
            if hosts > blocks * addresses {
                let which = if networks == 1 { String::new() } else { format!(" in {networks} networks") };
                let reason =
                    format!("{hosts} inside addresses{which}, but {} blocks of {size} ports", blocks * addresses);
                let instead = "write smaller blocks, smaller `inside` ranges or more `external` addresses";
                return Err(ConfigError::new("block_size", reason, instead));
            }
            Ok((Allocation::Deterministic { size }, hosts.div_ceil(blocks) as usize))
        }
    }
}
