//! `braid study`: the case studies of the NFOS paper, modelled to 64 workers and measured on one and two.

use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::model::{Request, model};

use super::{loaded, print};
use crate::args::{ChainArgs, InputArgs};
use crate::failure::Failure;

/// `braid study`.
#[derive(Debug, clap::Args)]
pub struct StudyArgs {
    /// Which one
    #[arg(value_enum)]
    pub study: Study,
}

/// A case study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Study {
    /// Anti-DDoS: counters always the latest, or up to 0.1 ms old (figure 4)
    AntiDdos,
    /// Bridge: stations refreshed at each frame, or once a second (figure 8b)
    Bridge,
    /// One packet per batch against 32 and 128 (figure 6b)
    Batching,
}

/// One variant: what it is called, its options.
type Variant = (&'static str, &'static [&'static str], Option<i64>);

impl Study {
    fn paper(self) -> &'static str {
        match self {
            Study::AntiDdos => "NFOS: 97.5 % of transactions abort; 0.1 ms of staleness is 18 times faster on 23 cores",
            Study::Bridge => {
                "NFOS: 63.5 % of transactions abort; refreshing once a second is 91 times faster on 23 cores"
            }
            Study::Batching => "NFOS: batching is 34 % faster on average",
        }
    }

    fn function(self) -> &'static str {
        match self {
            Study::AntiDdos | Study::Batching => "anti_ddos",
            Study::Bridge => "bridge",
        }
    }

    fn input(self) -> &'static str {
        match self {
            Study::AntiDdos => "gen:syn_flood?packets=800000&flows=800000&seed=1",
            Study::Bridge => "gen:campus?packets=200000&flows=10000&mac_pairs=1000&seed=1",
            Study::Batching => "gen:syn_flood?packets=800000&flows=800000&seed=1",
        }
    }

    fn variants(self) -> &'static [Variant] {
        match self {
            Study::AntiDdos => {
                &[("staleness 0", &["staleness_us=0"], None), ("staleness 0.1 ms", &["staleness_us=100"], None)]
            }
            Study::Bridge => &[
                ("refreshed at each frame", &["refresh_interval_ms=0"], None),
                ("refreshed once a second", &["refresh_interval_ms=1000"], None),
            ],
            Study::Batching => &[
                ("one packet per transaction", &["staleness_us=100"], Some(1)),
                ("up to 32", &["staleness_us=100"], Some(32)),
                ("up to 128", &["staleness_us=100"], Some(128)),
            ],
        }
    }
}

/// Runs it.
pub fn run(args: &StudyArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let study = args.study;
    for (name, set, batch) in study.variants() {
        let chain = ChainArgs {
            nf: vec![study.function().to_owned()],
            set: set.iter().map(|set| (*set).to_owned()).collect(),
            batch: *batch,
            ..ChainArgs::default()
        };
        let input = InputArgs { from: vec![study.input().to_owned()], ..InputArgs::default() };
        let (plan, frames, input) = loaded(&chain, &input, catalog)?;
        let request = Request { frames: &frames, input: &input, packets: 2_000, real_packets: 400_000, seed: 0 };
        let report = model(&plan, &[1, 2, 4, 8, 16, 23, 32, 64], &[1, 2], request)?;
        print(&format!("== {name}\n{report}\n"))?;
    }
    print(&format!("{}\n", study.paper()))?;
    Ok(ExitCode::SUCCESS)
}
