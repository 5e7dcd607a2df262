//! The command line as typed, not yet interpreted.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use braid_control::runtime::io::device::INHERITED;
use braid_functions::firewall::When;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};

use crate::bench::traffic::{FLOWS_MAX, Trace};
use crate::commands::bench::What;
use crate::commands::model::WORKERS_MAX;
use crate::failure::{Failure, Kind};
use crate::input::numbers::{between, may_be_negative, whole};
use crate::run::successor::SIGNALS_HELD;
use crate::stderr::aside;

/// Write a network function as if one core ran it; Braid runs it on all of them, and proves that nobody could tell.
#[derive(Debug, Parser)]
#[command(name = "braid", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line; exits the program if it is invalid.
    pub fn typed() -> Cli {
        let typed = Cli::understood().try_get_matches().and_then(|typed| Cli::from_arg_matches(&typed));
        typed.unwrap_or_else(|error| explain(&error))
    }

    /// The definition of the command line.
    pub fn understood() -> clap::Command {
        may_be_negative(Cli::command())
    }
}

/// Ends the program with what was asked for (help, the version), or with what is wrong on the command line.
fn explain(error: &clap::Error) -> ! {
    let said = error.print().and_then(|()| std::io::stdout().flush());
    let code = match said {
        // A closed pipe is not an error, because nobody is left to tell.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let failure =
                Failure::new(Kind::Io, format!("standard output: {error}"), "redirect it to where there is room");
            aside!("{}", failure.render());
            Kind::Io as i32
        }
        _ => error.exit_code(),
    };
    std::process::exit(code)
}

/// The table of docs/cli.md in one sentence.
const EXIT_CODES: &str = "Exit codes: 0 success; 1 a violation was found, or something failed; 2 the command line or the plan is \
wrong; 3 a file or an interface cannot be read or written, an interface disappeared during the run, a capture is damaged, or a run does \
not answer; 130 a second signal (Ctrl-C) ended the program at once.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run packets through a chain of network functions
    Run(Box<RunArgs>),
    /// Watch a run: rates, load, drops, aborts
    Top(crate::commands::top::TopArgs),
    /// Change the chain of a run while packets go through
    Apply(crate::commands::apply::ApplyArgs),
    /// Check whether the backends of a load balancer are up, and tell the run
    Health(crate::commands::health::HealthArgs),
    /// Save the state of a run to a file, for `braid run --restore`
    Snapshot(crate::commands::snapshot::SnapshotArgs),
    /// Continue a run in another program, with its state
    Upgrade(crate::commands::upgrade::UpgradeArgs),
    /// Follow packets of a capture or of a run step by step through the chain
    Trace(crate::commands::trace::TraceArgs),
    /// List, search and end live packet sets of a run, or list those left after a capture
    Sets(crate::commands::sets::SetsArgs),
    /// List what functions keep besides packet sets: a NAT's mappings, a bridge's stations, a router's neighbours
    #[command(visible_alias = "mappings")]
    Entries(crate::commands::entries::EntriesArgs),
    /// Print the figures of a run as JSON
    Stats(crate::commands::stats::StatsArgs),
    /// Explain what a plan will do and why, without running it
    Plan(PlanArgs),
    /// Prove that many workers do what one worker does, or show the smallest difference
    Certify(CertifyArgs),
    /// Run tests written as text files, packets in and packets out (see tests/scenarios/README.md)
    Scenario(ScenarioArgs),
    /// Show why attempts are rolled back, what to change, and where the time goes
    Profile(crate::commands::profile::ProfileArgs),
    /// Model more workers than this machine has, with costs measured on it
    Model(crate::commands::model::ModelArgs),
    /// Try the relaxations that the functions allow, and write a plan with those that help
    Tune(crate::commands::tune::TuneArgs),
    /// Run a study: the NFOS paper's figures, the model's accuracy, costs, load imbalance
    Study(crate::commands::study::StudyArgs),
    /// Write generated traffic to a capture file
    Gen(GenArgs),
    /// Check whether NICs can keep packet sets on one queue each
    CheckRss(CheckRssArgs),
    /// Check what this machine lacks to use interfaces as ports, and name the commands that provide it
    Doctor(crate::commands::doctor::DoctorArgs),
    /// Show the network functions that a plan can name
    #[command(subcommand)]
    Nf(NfCommand),
    /// Measure chains in memory
    Bench(BenchArgs),
    /// Create a crate for a network function of your own that builds, runs and passes its test
    New(NewArgs),
    /// Print what a shell needs to complete commands, options and names of functions
    Completions(crate::commands::completions::CompletionsArgs),
    /// Write a manual page for each command
    Man(crate::commands::completions::ManArgs),
}

/// A chain: a plan file, or functions by name; the other options override it.
#[derive(Clone, Debug, Default, Args)]
pub struct ChainArgs {
    /// Plan file (TOML; see docs/plan-file.md)
    pub plan: Option<PathBuf>,
    /// Functions instead of a plan file, in order
    #[arg(long, value_name = "NAME[,NAME…]", value_delimiter = ',', conflicts_with = "plan")]
    pub nf: Vec<String>,
    /// Set a key of a function's configuration; in a chain of several, NAME.KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Worker threads [default: processors; between interfaces one fewer; certify: 4]
    #[arg(long, short, value_name = "N", value_delimiter = ',', value_parser = whole)]
    pub workers: Vec<i64>,
    /// Number of ports, 1 to 256 [default: what functions and files need, at least 2]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub ports: Option<i64>,
    /// Maximum packets per batch, 1 to 256 [default: 256]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub batch: Option<i64>,
    /// Capacity for packet sets of each group of functions, over all workers [default: 1000000]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub sets: Option<i64>,
    /// Which time the functions see: capture or live
    #[arg(long, value_name = "CLOCK")]
    pub time: Option<String>,
    /// What distributes packets to workers: hardware (the source) or software (a dispatcher thread)
    #[arg(long, value_name = "STYLE")]
    pub distribution: Option<String>,
    /// Handle packets in the order of the input, on whichever worker: the result of one worker, at about its speed
    #[arg(long)]
    pub in_order: bool,
    /// Longest time to wait for a batch to fill, in microseconds
    #[arg(long, value_name = "N", value_parser = whole)]
    pub gather_us: Option<i64>,
    /// Move load between workers; with software distribution
    #[arg(long)]
    pub balance: bool,
    /// Packets between two checks of the load
    #[arg(long, value_name = "N", requires = "balance", value_parser = whole)]
    pub balance_every: Option<i64>,
    /// Huge pages for buffers and tables: prefer, transparent or never; or touched: prefer, and touch all memory at start
    #[arg(long, value_name = "PAGES")]
    pub pages: Option<String>,
    /// A network card (NIC) whose hashing is checked; `braid check-rss` lists them
    #[arg(long, value_name = "NIC")]
    pub nic: Option<String>,
}

impl ChainArgs {
    /// The options that say how the chain runs, not which it is, as far as they are given.
    pub fn given(&self) -> Vec<&'static str> {
        // In full, so that a new option is not forgotten here.
        let ChainArgs {
            plan: _,
            nf: _,
            set,
            workers,
            ports,
            batch,
            sets,
            time,
            distribution,
            in_order,
            gather_us,
            balance,
            balance_every,
            pages,
            nic,
        } = self;
        let options = [
            ("--set", !set.is_empty()),
            ("--workers", !workers.is_empty()),
            ("--ports", ports.is_some()),
            ("--batch", batch.is_some()),
            ("--sets", sets.is_some()),
            ("--time", time.is_some()),
            ("--distribution", distribution.is_some()),
            ("--in-order", *in_order),
            ("--gather-us", gather_us.is_some()),
            ("--balance", *balance),
            ("--balance-every", balance_every.is_some()),
            ("--pages", pages.is_some()),
            ("--nic", nic.is_some()),
        ];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
    }
}

/// Where packets come from.
#[derive(Clone, Debug, Default, Args)]
pub struct InputArgs {
    /// Capture (pcap, pcapng, gzip; - is standard input), PORT=FILE, or gen:PROFILE?flows=N&packets=N&seed=N; several files are
    /// one port each
    #[arg(long = "in", value_name = "INPUT", value_hint = ValueHint::FilePath)]
    pub from: Vec<String>,
    /// How one capture is split by port: single, inside, mac_hash or interface [default: as the functions want it]
    #[arg(long, value_name = "RULE")]
    pub split: Option<String>,
    /// Addresses that come in by port 0; all others by port 1
    #[arg(long, value_name = "PREFIX[,PREFIX…]", value_delimiter = ',')]
    pub inside: Vec<String>,
}

/// Help text that the run to be upgraded searches, to find out what this program can continue.
fn inherited() -> String {
    format!(
        "Environment: {} name what the previous program of this process has left open, and {SIGNALS_HELD} says that signals wait (braid upgrade).",
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
    /// Run this plan file as a service: read it again on SIGHUP, and offer a control socket at the default path
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "nf"])]
    pub config: Option<PathBuf>,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// Capture to write (.pcap, .pcapng, either with .gz; - is standard output), or PORT=FILE for each port; without it
    /// nothing is written
    #[arg(long = "out", value_name = "OUTPUT", value_hint = ValueHint::FilePath)]
    pub to: Vec<String>,
    /// An interface for each port instead of captures: veth0, or af_xdp:, af_packet:, tap:, memif:, dpdk: before its name (docs/ports.md)
    #[arg(long = "port", value_name = "DEVICE", conflicts_with_all = ["from", "to"])]
    pub devices: Vec<String>,
    /// Switch to this user (NAME or UID:GID) for good once the ports are open; `braid upgrade` is then refused
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The plan, complete, of the run which this one continues: nothing else of the command line counts for the chain
    #[arg(long, value_name = "FILE", hide = true)]
    pub applied: Option<PathBuf>,
    /// End the run after this time: 30s, 5m, 500ms
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Start with the state saved in a file
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
    /// Save the state to a file when the run ends
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Restore the state from this file at the start, if it exists and fits the plan, and save it there at the end
    #[arg(long, value_name = "FILE", conflicts_with = "snapshot")]
    pub state: Option<PathBuf>,
    /// Who may watch and change it.
    #[command(flatten)]
    pub operate: crate::run::operate::OperateArgs,
    /// Report at the end why attempts were rolled back, what to change, and where the time went
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// The file to which the state is saved when the run ends.
    pub fn saved_to(&self) -> Option<&Path> {
        self.snapshot.as_deref().or(self.state.as_deref())
    }
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
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = between(0, u64::MAX))]
    pub seed: u64,
    /// Use only the first N packets of the input
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
    /// What a firewall would do, before a packet arrives
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
        /// Set a key of its configuration: rules_file=edge.rules
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Port by which the packet arrives; even ports are inside
        #[arg(long, default_value_t = 0, value_name = "N", value_parser = between(0, u16::MAX))]
        port: u16,
        /// Time of arrival, for rules that depend on it, in the time zone of the plan: "2026-12-24 16:00" [default: now]
        #[arg(long, value_name = "TIME")]
        at: Option<When>,
    },
    /// Measure what it costs to find the rule that decides, among 1 to 100,000 generated rules or those of a plan or rule file
    Cost {
        /// Plan file with the firewall
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
        /// Set a key of its configuration: rules_file=edge.rules
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
}

/// `braid bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A plan file to measure instead of the usual chains
    pub plan: Option<PathBuf>,
    /// Chains to measure: functions joined by +, each optionally with the fields of another packet set after colons (flow_counter:ip.src+policer) [default: the usual ones]
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
    /// Maximum packets per batch, 1 to 256 [default: 256]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub batch: Option<i64>,
    /// Longest time to wait for a batch to fill, in microseconds
    #[arg(long, value_name = "N", value_parser = whole)]
    pub gather_us: Option<i64>,
    /// Packet sets per group of functions, over all workers [default: half as many again as there are flows]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub sets: Option<i64>,
    /// What happens when tables are full: refuse or evict_oldest
    #[arg(long, value_name = "WORD")]
    pub full: Option<String>,
    /// Huge pages for buffers and tables: prefer, transparent or never; or touched: prefer, and touch all memory at start
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
    /// Print the names of the usual chains, and exit
    #[arg(long)]
    pub list: bool,
    /// Advance the functions' clock by this much with each batch, to count instructions; with one worker
    #[arg(long, hide = true, value_name = "NANOSECONDS")]
    pub step_ns: Option<u64>,
    /// Fewer flows and packets: a quick look, not a measurement
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
    /// Folder to create [default: ./NAME]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Where Braid's crates are: a folder with its repository, or a git address [default: the repository that built this]
    #[arg(long, value_name = "PATH|URL")]
    pub braid: Option<String>,
}
