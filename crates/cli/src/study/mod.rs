//! The case studies of the papers that Braid follows: what is varied, on which traffic, and what the paper reports.

pub mod cost;
pub mod dummy;
pub mod imbalance;

/// A case study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Study {
    /// Anti-DDoS: counters always the latest, or up to 0.1 ms old (figure 4)
    #[value(alias = "anti_ddos")]
    AntiDdos,
    /// NAT: 53 external addresses, all of whose ports are in use, against 55 and 57 (figure 8a)
    Nat,
    /// Bridge: stations refreshed at each frame, or once a second (figure 8b)
    Bridge,
    /// An array of 10,000 elements: read, or read and written, evenly or after Zipf (figure 6a)
    Dummy,
    /// One packet per batch against 32 and 128 (figure 6b)
    Batching,
    /// Where the time of a packet goes, and how much of it is the transaction's (figure 6c, d)
    Overhead,
    /// Memory of tables and objects from 1 to 23 workers (section 5.3)
    Memory,
    /// The accuracy of the model: modelled and measured figures of one and two workers, on six workloads and three that conflict
    Validation,
    /// What a full profile costs: processor time per packet with one and without, alternating
    Profiling,
    /// What shared state costs per packet, compared with the same work without synchronisation
    Cost,
    /// How evenly a hash spreads flows over 8 workers, and what moving load between them gains (FAJITA)
    Imbalance,
}

/// One line of a plot.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its label.
    pub name: String,
    /// The function.
    pub function: &'static str,
    /// Settings of its configuration, as `key=value`.
    pub set: Vec<String>,
    /// Maximum number of packets in a batch, if that is varied.
    pub batch: Option<i64>,
    /// The traffic.
    pub input: &'static str,
}

const FLOOD: &str = "gen:syn_flood?packets=800000&flows=800000&seed=1";
const CAMPUS: &str = "gen:campus?packets=200000&flows=10000&mac_pairs=1000&seed=1";
/// New sessions all the time, as many as 53 addresses have ports here.
const SESSIONS: &str = "gen:uniform?packets=200000&flows=53000&seed=1";
const FLOWS: &str = "gen:uniform?packets=200000&flows=100000&seed=1";

fn variant(name: impl Into<String>, function: &'static str, set: &[&str], input: &'static str) -> Variant {
    let set = set.iter().map(|set| (*set).to_owned()).collect();
    Variant { name: name.into(), function, set, batch: None, input }
}

fn nat(addresses: u8) -> Variant {
    let list: Vec<String> = (1..=addresses).map(|host| format!("\"198.51.100.{host}\"")).collect();
    let external = format!("external=[{}]", list.join(","));
    let set = [external.as_str(), "first_port=1024", "last_port=2023", "mappings_max=300000"];
    variant(format!("{addresses} addresses"), "nat", &set, SESSIONS)
}

fn dummy(writes: bool, zipf: &str) -> Variant {
    let name = format!("{}, Zipf {zipf}", if writes { "read and written" } else { "read only" });
    let exponent = if zipf == "0" { "zipf_percent=0" } else { "zipf_percent=99" };
    variant(name, "dummy", &[&format!("writes={writes}"), exponent], FLOWS)
}

impl Study {
    /// The variants that the study compares.
    pub fn variants(self) -> Vec<Variant> {
        let batches =
            |name, batch| Variant { batch: Some(batch), ..variant(name, "anti_ddos", &["staleness_us=100"], FLOOD) };
        let functions = || {
            vec![
                variant("firewall", "firewall", &[], CAMPUS),
                variant("policer", "policer", &[], CAMPUS),
                variant("bridge", "bridge", &[], CAMPUS),
                variant("nat", "nat", &[], CAMPUS),
                variant("anti_ddos", "anti_ddos", &["staleness_us=100"], FLOOD),
            ]
        };
        match self {
            Study::AntiDdos => vec![
                variant("staleness 0", "anti_ddos", &["staleness_us=0"], FLOOD),
                variant("staleness 0.1 ms", "anti_ddos", &["staleness_us=100"], FLOOD),
            ],
            Study::Nat => vec![nat(53), nat(55), nat(57)],
            Study::Bridge => vec![
                variant("refreshed at each frame", "bridge", &["refresh_interval_ms=0"], CAMPUS),
                variant("refreshed once a second", "bridge", &["refresh_interval_ms=1000"], CAMPUS),
            ],
            Study::Dummy => {
                vec![dummy(false, "0"), dummy(false, "0.99"), dummy(true, "0"), dummy(true, "0.99")]
            }
            Study::Batching => {
                vec![batches("one packet per transaction", 1), batches("up to 32", 32), batches("up to 128", 128)]
            }
            Study::Overhead | Study::Memory | Study::Profiling => functions(),
            Study::Validation => {
                let mut all = vec![variant("flow_counter", "flow_counter", &[], CAMPUS)];
                all.extend(functions());
                all.extend([
                    variant("anti_ddos, staleness 0", "anti_ddos", &["staleness_us=0"], FLOOD),
                    nat(53),
                    dummy(true, "0.99"),
                ]);
                all
            }
            Study::Imbalance | Study::Cost => Vec::new(),
        }
    }

    /// What the paper reports, for comparison.
    pub fn paper(self) -> &'static str {
        match self {
            Study::AntiDdos => "NFOS: 97.5 % of transactions abort; 0.1 ms of staleness is 18 times faster on 23 cores",
            Study::Nat => {
                "NFOS: 53 addresses stop scaling after 16 cores, 99.4 % of aborts are allocations; 55 are 2 times faster on 23"
            }
            Study::Bridge => {
                "NFOS: 63.5 % of transactions abort; refreshing once a second is 91 times faster on 23 cores"
            }
            Study::Dummy => {
                "NFOS: reading scales to 20 cores (the generator's limit), writing evenly scales, writing after Zipf 0.99 does not"
            }
            Study::Batching => "NFOS: batching is 34 % faster on average",
            Study::Overhead => {
                "NFOS: bridge, load balancer and NAT spend up to half of their time in transactions, firewall and policer none"
            }
            Study::Validation => "NFOS has no model",
            Study::Profiling => "NFOS does not say what its profiler costs",
            Study::Cost => "NFOS: 43 cycles for an empty transaction, 260 to 820 for one that writes one object",
            Study::Imbalance => {
                "FAJITA: the busiest of 8 cores had 558 % of the idlest one's load with 32 flows, 271 % with 128, 145 % with 512, 115 % with 2,048"
            }
            Study::Memory => "NFOS: at most 19 % more memory on 23 cores than on 1 (bridge 39.5 to 47.1 MB)",
        }
    }
}
