//! Runs of functions of the catalogue on several workers, for the tests in this folder.

use std::sync::Arc;

use braid_functions::{Entry, Split};
use braid_io::capture::{PortSplit, Prefix};
use braid_memory::HugePages;
use braid_nf::packet::fields::{SEQUENCE, StageUse, TIMESTAMP_NS, WIRE_LEN};
use braid_nf::state::{Domain, StateBuilder};
use braid_runtime::{BuildError, Distribution, Plan, Report, Time};
use braid_steer::{Fields, Reta, Steering, Symmetry, toeplitz};

/// Packet sets of a run.
pub const SETS: usize = 1 << 15;

/// One function by itself, steered by its own packet sets.
pub fn plan(entry: &'static Entry, config: &str, workers: usize) -> Plan {
    let config: toml::Table = config.parse().expect("a table");
    Plan {
        steering: Arc::new(steering(entry, &config, workers)),
        build: Arc::new(move |builder| {
            let stage = (entry.build)(entry.name, config.clone(), builder, entry.ports);
            let error = |error: braid_functions::ConfigError| BuildError {
                function: entry.name.into(),
                reason: error.to_string(),
            };
            Ok(vec![stage.map_err(error)?])
        }),
        ports: entry.ports,
        workers,
        batch: 64,
        sets: SETS,
        buffers: 2048,
        pages: HugePages::Never,
        time: Time::Capture,
        distribution: Distribution::Hardware,
        own_fields: vec![
            StageUse::new("source").writes(TIMESTAMP_NS, 8).writes(SEQUENCE, 8).writes(WIRE_LEN, 4),
            StageUse::new("sink").reads(TIMESTAMP_NS, 8).reads(SEQUENCE, 8),
        ],
    }
}

fn steering(entry: &Entry, config: &toml::Table, workers: usize) -> Steering {
    let mut builder = StateBuilder::new(&Domain::new(1), HugePages::Never);
    let stage = (entry.build)(entry.name, config.clone(), &mut builder, entry.ports).expect("a legal configuration");
    let set = stage.packet_set();
    let fields = set.as_ref().map_or(Fields::FOUR_TUPLE, |set| set.fields.iter().copied().collect());
    let symmetric = set.is_some_and(|set| set.symmetric);
    let symmetry = if symmetric { Symmetry::BothWays } else { Symmetry::OneWay };
    let reta = Reta::new(128, workers).expect("a power of two");
    Steering::new(fields, symmetry, &toeplitz::Key::microsoft(), reta).expect("fields that fit")
}

/// How a single capture comes in by the function's ports.
pub fn split(entry: &Entry) -> PortSplit {
    let inside = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];
    match entry.split {
        Split::Single => PortSplit::Single,
        Split::Inside => PortSplit::InsidePrefixes(inside.map(|p| p.parse::<Prefix>().expect("a prefix")).to_vec()),
        Split::MacHash => PortSplit::MacHash(entry.ports),
    }
}

/// Nothing is lost without a reason.
#[track_caller]
pub fn conserved(report: &Report, what: &str) {
    let total = &report.total;
    let (came, went) = (total.packets_in + total.packets_copied, total.packets_out + total.drops.total());
    assert_eq!(came, went, "{what}: packets in and copied, packets out and dropped: {:?}", total.drops);
    assert_eq!(total.sets_created, total.sets_expired + total.sets_live, "{what}: packet sets");
    assert_eq!(total.panics, 0, "{what}: panics");
}
