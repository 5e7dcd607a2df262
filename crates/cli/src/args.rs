//! What somebody typed, not yet what it means.

use std::path::PathBuf;

use braid_control::runtime::io::device::INHERITED;
use braid_functions::firewall::When;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::traffic::{FLOWS_MAX, Trace};
use crate::commands::bench::What;
use crate::commands::model::WORKERS_MAX;
use crate::numbers::{between, may_be_negative};

/// Write a network function as if one core ran it; Braid runs it on all of them, and proves that nobody could tell.
#[derive(Debug, Parser)]
#[command(name = "braid", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line; ends the program if it cannot be understood.
    pub fn typed() -> Cli {
        let typed = may_be_negative(Cli::command()).get_matches();
        Cli::from_arg_matches(&typed).unwrap_or_else(|error| error.exit())
    }
}

const EXIT_CODES: &str = "Exit codes: 0 all is well; 1 a violation was found or something failed; 2 the command line or the \
plan is wrong; 3 a file or device cannot be read or written, or a capture is damaged.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run packets through a chain of network functions
    Run(RunArgs),
    /// Watch a run: rates, load, drops, aborts
    Top(crate::commands::top::TopArgs),
    /// Change the chain of a run while packets go through
    Apply(crate::commands::apply::ApplyArgs),
    /// Ask the backends of a load balancer whether they are up, and tell the run
    Health(crate::commands::health::HealthArgs),
    /// Save the state of a run to a file, for `braid run --restore`
    Snapshot(crate::commands::snapshot::SnapshotArgs),
    /// Continue a run in another program, with its state
    Upgrade(crate::commands::upgrade::UpgradeArgs),
    /// Follow packets step by step through a chain: of a capture, or of a run
    Trace(crate::commands::trace::TraceArgs),
    /// List, search and end live packet sets: of a run, or after a capture
    Sets(crate::commands::sets::SetsArgs),
    /// The figures of a run as JSON
    Stats(crate::commands::stats::StatsArgs),
    /// Explain what a plan will do and why, without running it
    Plan(PlanArgs),
    /// Prove that many workers do what one worker does, or show the smallest difference
    Certify(CertifyArgs),
    /// Check what text files say of packets in and packets out (docs: tests/scenarios/README.md)
    Scenario(ScenarioArgs),
    /// Show why attempts are taken back, what to change, and where the time goes
    Profile(crate::commands::profile::ProfileArgs),
    /// Model more workers than there are here, after measuring what things cost
    Model(crate::commands::model::ModelArgs),
    /// Try what the functions allow to be relaxed, and write a plan with what helps
    Tune(crate::commands::tune::TuneArgs),
    /// The case studies of the NFOS paper
    Study(crate::commands::study::StudyArgs),
    /// Write generated traffic to a capture file
    Gen(GenArgs),
    /// Check whether NICs can keep packet sets on one queue each
    CheckRss(CheckRssArgs),
    /// What this machine lacks for ports that are interfaces, and the commands that mend it
    Doctor(crate::commands::doctor::DoctorArgs),
    /// The network functions that can be named in a plan
    #[command(subcommand)]
    Nf(NfCommand),
    /// Measure chains in memory
    Bench(BenchArgs),
    /// Begin a network function of your own: a crate that builds, runs and passes its test
    New(NewArgs),
}

/// A chain: a plan file, or functions by name; the rest is laid over it.
#[derive(Clone, Debug, Default, Args)]
pub struct ChainArgs {
    /// Plan file (TOML; see docs/plan-file.md)
    pub plan: Option<PathBuf>,
    /// Functions instead of a plan file, in order
    #[arg(long, value_name = "NAME[,NAME…]", value_delimiter = ',', conflicts_with = "plan")]
    pub nf: Vec<String>,
    /// Sets a key of a function's configuration; in a chain of several, NAME.KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Worker threads [default: processors]
    #[arg(long, short, value_name = "N", value_delimiter = ',')]
    pub workers: Vec<i64>,
    /// Ports
    #[arg(long, value_name = "N")]
    pub ports: Option<i64>,
    /// Most packets in a batch
    #[arg(long, value_name = "N")]
    pub batch: Option<i64>,
    /// Packet sets per group of functions, over all workers
    #[arg(long, value_name = "N")]
    pub sets: Option<i64>,
    /// Which time the functions see: capture or live
    #[arg(long, value_name = "CLOCK")]
    pub time: Option<String>,
    /// How packets come to workers: hardware (the source splits) or software (a dispatcher thread)
    #[arg(long, value_name = "STYLE")]
    pub distribution: Option<String>,
    /// Handle packets in the order of the input, whichever worker they come to: the result of one worker, and about its speed
    #[arg(long)]
    pub in_order: bool,
    /// Longest time for which a batch that is not full is gathered up, in microseconds
    #[arg(long, value_name = "N")]
    pub gather_us: Option<i64>,
    /// Move load between workers; with software distribution
    #[arg(long)]
    pub balance: bool,
    /// Packets between two looks at the load
    #[arg(long, value_name = "N", requires = "balance")]
    pub balance_every: Option<i64>,
    /// Pages under buffers and tables: prefer, transparent or never (huge ones), or touched: prefer, and all of it at start
    #[arg(long, value_name = "PAGES")]
    pub pages: Option<String>,
    /// A NIC whose hashing is checked
    #[arg(long, value_name = "NIC")]
    pub nic: Option<String>,
}

/// Where packets come from.
#[derive(Clone, Debug, Default, Args)]
pub struct InputArgs {
    /// Capture (pcap, pcapng, gzip; - is standard input), PORT=FILE, or gen:PROFILE?flows=N&packets=N&seed=N; several files come
    /// in by a port each
    #[arg(long = "in", value_name = "INPUT")]
    pub from: Vec<String>,
    /// How one capture is split by port: single, inside or mac_hash [default: as the functions wish]
    #[arg(long, value_name = "RULE")]
    pub split: Option<String>,
    /// Addresses that come in by port 0; all others by port 1
    #[arg(long, value_name = "PREFIX[,PREFIX…]", value_delimiter = ',')]
    pub inside: Vec<String>,
}

/// What a run that is upgraded looks for, to find out what this program can go on with.
fn inherited() -> String {
    format!(
        "Environment: {} say what the program before in this process has left open (braid upgrade).",
        INHERITED.join(", ")
    )
}

/// `braid run`.
#[derive(Debug, Args)]
#[command(after_help = inherited())]
pub struct RunArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// Run as a service: this plan file, read again on SIGHUP, and a control socket at its usual place
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "nf"])]
    pub config: Option<PathBuf>,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Capture to write (.pcap, .pcapng, either with .gz; - is standard output), or PORT=FILE for each port; nothing is written
    /// without it
    #[arg(long = "out", value_name = "OUTPUT")]
    pub to: Vec<String>,
    /// An interface for each port instead of captures: veth0, or af_xdp:, af_packet:, tap:, memif:, dpdk: before its name (docs/ports.md)
    #[arg(long = "port", value_name = "DEVICE", conflicts_with_all = ["from", "to"])]
    pub devices: Vec<String>,
    /// Become this user (NAME or UID:GID) once the ports are open, for good; `braid upgrade` is refused then
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The plan, complete, of the run which this one continues: nothing else of the command line counts for the chain
    #[arg(long, value_name = "FILE", hide = true)]
    pub applied: Option<PathBuf>,
    /// Ends the run after this time: 30s, 5m, 500ms
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Begin with the state that a file holds
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
    /// Save the state to a file when the run ends
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Who may watch and change it.
    #[command(flatten)]
    pub operate: crate::operate::OperateArgs,
    /// Say at the end why attempts were taken back, what to change, and where the time went
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `braid plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `braid certify`.
#[derive(Debug, Args)]
pub struct CertifyArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Schedules to try; even seeds are deterministic, odd ones run on real threads
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = between(1, u64::MAX))]
    pub runs: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Most packets of the input that are used
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = between(1, usize::MAX))]
    pub packets: usize,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `braid scenario`.
#[derive(Debug, Args)]
pub struct ScenarioArgs {
    /// Files, or folders with files whose names end in .scenario
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub paths: Vec<PathBuf>,
    /// Name only those that fail
    #[arg(long, short)]
    pub quiet: bool,
}

/// `braid gen`.
#[derive(Debug, Args)]
pub struct GenArgs {
    /// PROFILE?flows=N&packets=N&seed=N…, with or without gen: before it
    pub profile: String,
    /// Capture to write (.pcap, .pcapng, either with .gz)
    #[arg(long = "out", short = 'o', value_name = "FILE")]
    pub to: PathBuf,
}

/// `braid check-rss`.
#[derive(Debug, Args)]
pub struct CheckRssArgs {
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// Header fields of a packet set instead of a chain: ip.src,ip.dst,port.src,port.dst
    #[arg(long, value_name = "FIELD[,FIELD…]", value_delimiter = ',', conflicts_with_all = ["plan", "nf"])]
    pub fields: Vec<String>,
    /// Both directions of these fields are one set
    #[arg(long, requires = "fields", conflicts_with_all = ["plan", "nf"])]
    pub symmetric: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `braid nf`.
#[derive(Debug, Subcommand)]
pub enum NfCommand {
    /// One line for each function
    List {
        /// Print one JSON array on standard output
        #[arg(long)]
        json: bool,
    },
    /// A function's page: what it does, its configuration, its limits
    Show {
        /// Its name
        name: String,
    },
    /// What a firewall would do, before a packet comes
    #[command(subcommand)]
    Firewall(FirewallCommand),
}

/// `braid nf firewall`.
#[derive(Debug, Subcommand)]
pub enum FirewallCommand {
    /// Which rule decides about a packet that would open a connection, and why
    Explain {
        /// The packet, as in scenarios: "tcp 10.0.0.1:1100 > 192.0.2.9:443", "icmp echo 10.0.0.1 > 192.0.2.9"
        #[arg(required = true)]
        packet: Vec<String>,
        /// Plan file with the firewall
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
        /// Sets a key of its configuration: rules_file=edge.rules
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Port by which the packet comes; even ports are inside
        #[arg(long, default_value_t = 0, value_name = "N")]
        port: u16,
        /// When it comes, for rules that ask for that, in the zone of the plan: "2026-12-24 16:00"; else now
        #[arg(long, value_name = "TIME")]
        at: Option<When>,
    },
    /// What it costs to find the rule that decides: with 1 to 100,000 generated rules, or with those of a plan or rule file
    Cost {
        /// Plan file with the firewall
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
        /// Sets a key of its configuration: rules_file=edge.rules
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
}

/// `braid bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A plan file to measure instead of the usual chains
    pub plan: Option<PathBuf>,
    /// Chains to measure, functions joined by +, each with the fields of its packet set behind colons if they are others (flow_counter:ip.src+policer) [default: the usual ones]
    #[arg(long, value_name = "CHAIN[,CHAIN…]", value_delimiter = ',', conflicts_with = "plan")]
    pub chain: Vec<String>,
    /// Flows of the traces
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_values_t = [10_000, 2_000_000], value_parser = between(1, FLOWS_MAX))]
    pub flows: Vec<u64>,
    /// Numbers of workers
    #[arg(long, short, value_name = "N[,N…]", value_delimiter = ',', default_values_t = [1, 2], value_parser = between(1, WORKERS_MAX as i64))]
    pub workers: Vec<i64>,
    /// What to measure
    #[arg(long, value_enum, value_name = "WHAT[,WHAT…]", value_delimiter = ',', default_values_t = [What::Rates])]
    pub what: Vec<What>,
    /// Packets per worker and measurement, in millions [default: 20, and 1 with --quick]
    #[arg(long, value_name = "MILLIONS", value_parser = between(0.000_001, 1e6))]
    pub packets: Option<f64>,
    /// hardware, software or both [default: what the plan file says, else hardware]
    #[arg(long, value_name = "STYLE", value_parser = ["hardware", "software", "both"])]
    pub distribution: Option<String>,
    /// Time of each load of --what latency, and of --what soak: 30s, 30m [default: 2s and 30m]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Most packets in a batch
    #[arg(long, value_name = "N")]
    pub batch: Option<i64>,
    /// Longest time for which a batch that is not full is gathered up, in microseconds
    #[arg(long, value_name = "N")]
    pub gather_us: Option<i64>,
    /// Packet sets per group of functions, over all workers [default: half as many again as there are flows]
    #[arg(long, value_name = "N")]
    pub sets: Option<i64>,
    /// What full tables do: refuse or evict_oldest
    #[arg(long, value_name = "WORD")]
    pub full: Option<String>,
    /// Pages under buffers and tables: prefer, transparent or never (huge ones)
    #[arg(long, value_name = "PAGES")]
    pub pages: Option<String>,
    /// How flows follow one another
    #[arg(long, value_enum, value_name = "ORDER[,ORDER…]", value_delimiter = ',', default_values_t = [Trace::Uniform])]
    pub trace: Vec<Trace>,
    /// Write the rows as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw the rows as an SVG picture, Mpps over flows
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print the names of the usual chains, and end
    #[arg(long)]
    pub list: bool,
    /// Functions see a clock that advances by so much with each batch, as counting instructions wants it; with one worker
    #[arg(long, hide = true, value_name = "NANOSECONDS")]
    pub step_ns: Option<u64>,
    /// Fewer flows and packets: a look, not a measurement
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `braid new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Name of the function, in lower case with _
    pub name: String,
    /// Folder to make [default: ./NAME]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Where Braid's crates are: a folder with its repository, or a git address [default: the repository that built this]
    #[arg(long, value_name = "PATH|URL")]
    pub braid: Option<String>,
}
