//! A chain, mostly one function of the catalogue, as a plan; its run, and what must hold after any run.

use std::sync::Arc;

use braid_functions::{Entry, Split};
use braid_io::capture::PortSplit;
use braid_io::{Sink, Source};
use braid_memory::HugePages;
use braid_nf::Stage;
use braid_nf::state::{Domain, StateBuilder};
use braid_packet::fields::{SEQUENCE, StageUse, TIMESTAMP_NS, WIRE_LEN};
use braid_runtime::plan::BuildChain;
use braid_runtime::{BuildError, Control, Distribution, Plan, Report, RunError, launch};
use braid_steer::planner::{self, Member};
use braid_steer::{Key, Pattern, Reta, Steering};

/// A chain and how it is run.
#[derive(Clone)]
pub struct Case {
    pub build: Arc<BuildChain>,
    pub ports: u16,
    pub workers: usize,
    pub distribution: Distribution,
    pub sets: usize,
}

impl Case {
    /// Any chain.
    pub fn new(
        ports: u16,
        workers: usize,
        build: impl Fn(&mut StateBuilder) -> Vec<Box<dyn Stage>> + Send + Sync + 'static,
    ) -> Case {
        let build: Arc<BuildChain> = Arc::new(move |builder| Ok(build(builder)));
        Case { build, ports, workers, distribution: Distribution::Hardware, sets: 8192 }
    }

    /// A function of the catalogue under a configuration.
    pub fn of(entry: &'static Entry, config: &'static str, workers: usize) -> Case {
        let build = move |builder: &mut StateBuilder| {
            let config: toml::Table = config.parse().expect("a configuration of the tests");
            let stage = (entry.build)(entry.name, config, builder, entry.ports);
            stage
                .map(|stage| vec![stage])
                .map_err(|error| BuildError { function: entry.name.into(), reason: error.to_string() })
        };
        Case { build: Arc::new(build), ..Case::new(entry.ports, workers, |_| Vec::new()) }
    }

    /// A function of the catalogue with small tables, so that thousands of runs take minutes.
    pub fn small(entry: &'static Entry, workers: usize) -> Case {
        Case::of(entry, small_tables(entry.name), workers)
    }

    pub fn plan(&self) -> Plan {
        let own = [TIMESTAMP_NS, SEQUENCE].into_iter().fold(StageUse::new("sink"), |own, field| own.reads(field, 8));
        Plan {
            steering: Arc::new(steering(&*self.build, self.workers)),
            ports: self.ports,
            batch: 64,
            sets: self.sets,
            distribution: self.distribution,
            own_fields: vec![StageUse::new("clock").reads(TIMESTAMP_NS, 8), own.reads(WIRE_LEN, 4)],
            ..Plan::for_tests(self.workers, Arc::clone(&self.build))
        }
    }

    pub fn run(&self, source: impl Source + 'static, sink: impl Sink + 'static) -> Result<Report, RunError> {
        self.run_with(source, sink, &Control::default())
    }

    pub fn run_with(
        &self,
        source: impl Source + 'static,
        sink: impl Sink + 'static,
        control: &Control,
    ) -> Result<Report, RunError> {
        let report = launch(&self.plan(), Box::new(source), Box::new(sink), control)?;
        check_sums(&report);
        Ok(report)
    }
}

/// What must hold after every run, whatever came in.
#[track_caller]
pub fn check_sums(report: &Report) {
    let total = &report.total;
    assert_eq!(total.panics, 0, "handlers panicked");
    let (came, went) = (total.packets_in + total.packets_copied, total.packets_out + total.drops.total());
    assert_eq!(came, went, "packets in + copies = packets out + drops: {total:#?}");
    assert_eq!(total.sets_created, total.sets_expired + total.sets_live, "sets");
    assert!(report.lost.is_empty(), "the sink lost packets: {:?}", report.lost);
}

/// Frames that came to no worker because they are longer than any buffer.
pub fn undelivered(report: &Report) -> u64 {
    report.undelivered.iter().map(|(_, count)| count).sum()
}

/// By which ports the packets of a single capture come in.
pub fn split(entry: &Entry) -> PortSplit {
    match entry.split {
        Split::Single => PortSplit::Single,
        Split::MacHash => PortSplit::MacHash(entry.ports),
        Split::Inside => {
            let private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];
            PortSplit::InsidePrefixes(private.iter().map(|prefix| prefix.parse().expect("a prefix")).collect())
        }
    }
}

/// Tables for thousands of flows where the function's own are made for millions.
fn small_tables(function: &str) -> &'static str {
    match function {
        "bridge" => "capacity = 1024",
        "nat" | "nat64" => "mappings_max = 4096\nfragments_max = 256\nfirst_port = 10000\nlast_port = 13999",
        _ => "",
    }
}

/// Steering that keeps the function's packet sets whole, as the planner chooses it.
fn steering(build: &BuildChain, workers: usize) -> Steering {
    let domain = Domain::new(workers);
    let mut builder = StateBuilder::new(&domain, HugePages::Never);
    let stages = build(&mut builder).expect("a function that can be built");
    let pattern = |stage: &dyn Stage| stage.packet_set().as_ref().map_or(Pattern::NONE, Pattern::from);
    let member = |stage: &dyn Stage| Member {
        follows_fragments: stage.follows_fragments(),
        ..Member::new(stage.name(), pattern(stage))
    };
    let members: Vec<Member> = stages.iter().map(|stage| member(&**stage)).collect();
    let reta = Reta::new(128, workers).expect("a power of two");
    Steering::of_plan(&planner::plan(&members).chosen, &Key::microsoft(), reta).expect("the planner's choice works")
}
