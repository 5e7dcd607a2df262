//! The validated plan: every value is in range, every name is known, every default is filled in. It is passive and printable;
//! [`Plan::compile`](crate::compile) makes it runnable.

pub mod command_line;
pub(super) mod course;
pub mod file;
pub(super) mod overridden;
pub(super) mod surroundings;
pub mod text;
pub(super) mod written;

mod function;

pub use function::{PlannedFunction, Share, field};

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use braid_runtime::io::capture::PortSplit;
use braid_runtime::io::device::{BackEnd, Interface, PortSpec, User, UserError};
use braid_runtime::nf::packet::Prefix;
use braid_runtime::steer::UdpPorts;
use braid_runtime::steer::nic::{self, NICS, Nic};
use braid_runtime::{Balance, Course, Distribution, Time};
use toml::Spanned;

use self::course::course;
use self::file::{InputFile, PlanFile, PortFile, Problem};
use crate::catalog::{Catalog, DefaultSplit};
use crate::{BATCH_DEFAULT, HugePages, SETS_DEFAULT};
use braid_runtime::nf::suggest::nearest;

/// Maximum number of ports.
pub const PORTS_MAX: i64 = 256;
/// Maximum numbers of workers, packets in a batch, and packet sets.
const WORKERS_MAX: i64 = 256;
const BATCH_MAX: i64 = 256;
const SETS_MAX: i64 = 1 << 30;
/// Maximum time in microseconds to gather a batch; a longer wait would be noticeable as delay.
const GATHER_US_MAX: i64 = 1_000;
/// The prefixes that [`DefaultSplit::Inside`] treats as inside: private addresses (RFC 1918, RFC 4193) and those behind a
/// carrier's translator (RFC 6598), which `nat` translates too.
const INSIDE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

/// Values of `pages` in a plan file; the first is the default.
pub(crate) const PAGES: [(&str, HugePages); 4] = [
    ("prefer", HugePages::Prefer),
    ("transparent", HugePages::Transparent),
    ("never", HugePages::Never),
    ("touched", HugePages::Touched),
];

/// A complete, validated plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The functions, in order.
    pub chain: Vec<PlannedFunction>,
    /// Which packets reach which functions, and in which order.
    pub course: Course,
    /// Worker threads.
    pub workers: usize,
    /// Maximum number of packets in a batch.
    pub batch: usize,
    /// Number of ports.
    pub ports: u16,
    /// Capacity for the packet sets of each group of functions, over all workers.
    pub sets: usize,
    /// Position of `sets` in the plan file.
    pub sets_at: Range<usize>,
    /// Which clock the functions see.
    pub time: Time,
    /// How packets are distributed to workers.
    pub distribution: Distribution,
    /// Whether the workers together process packets strictly in input order.
    pub in_order: bool,
    /// Maximum time for which a worker gathers packets into a batch.
    pub gather: Duration,
    /// Whether and how often load is rebalanced between workers.
    pub balance: Option<Balance>,
    /// Whether the ports of UDP are to be hashed for steering, and where the file says so; `None` leaves it to the planner.
    pub steer_udp_ports: Option<Spanned<bool>>,
    /// Page policy.
    pub pages: HugePages,
    /// The NIC to check.
    pub nic: Option<&'static Nic>,
    /// The user that the process switches to once its interfaces are open.
    pub user: Option<User>,
    /// How a single capture is split by port.
    pub split: PortSplit,
    /// Whether the user specified the split; otherwise generated traffic arrives on the ports of its sides.
    pub split_is_asked: bool,
    /// Inputs as written.
    pub from: Vec<String>,
    /// Outputs as written.
    pub to: Vec<PathBuf>,
    /// Interfaces, one for each port; empty if packets come from an input.
    pub devices: Vec<PortSpec>,
    /// The most bytes of an IP packet that each of them takes; empty before they were [asked](Plan::ask_interfaces), `None` for what is no
    /// interface of the kernel, or not there yet.
    pub mtus: Vec<Option<u16>>,
}

impl Plan {
    /// Validates a plan file and fills in the defaults.
    pub fn new(file: &PlanFile, catalog: &Catalog) -> Result<Plan, Problem> {
        if file.nf.is_empty() {
            let help = "add at least one:\n[[nf]]\nfunction = \"forward\"";
            return Err(Problem::new("the plan names no function", help));
        }
        let chain = file.nf.iter().map(|nf| PlannedFunction::new(nf, catalog)).collect::<Result<Vec<_>, _>>()?;
        check_names(file, &chain)?;
        let devices = devices(&file.port)?;
        let least = chain.iter().map(|link| i64::from(link.entry.ports.max(1))).max().unwrap_or(1);
        let usual = if devices.is_empty() { least.max(2) } else { devices.len() as i64 };
        let ports = number("ports", &file.ports, usual, 1..=PORTS_MAX)? as u16;
        let is_live = !devices.is_empty();
        if is_live {
            check_live(file, ports)?;
        }
        let split = split(&file.input, &chain, ports)?;
        let needed = split.ports();
        if needed > usize::from(ports) {
            return Err(match file.port.first().filter(|_| is_live) {
                Some(port) => {
                    let what = format!("the chain has an inside and an outside: {needed} ports, and {ports} is named");
                    let help = format!("name {needed} interfaces, that of the inside first");
                    Problem::new(what, help).at(port.device.span())
                }
                None => {
                    let what = format!("the input comes in by {needed} ports, but the plan has {ports}");
                    let at = file.ports.as_ref().map_or(0..0, Spanned::span);
                    Problem::new(what, format!("write ports = {needed}")).at(at)
                }
            });
        }
        // In a live run the kernel needs a processor too. A single worker needs no dispatcher.
        let usual_workers = if is_live { (processors() - 1).max(1) } else { processors() };
        let workers = number("workers", &file.workers, usual_workers, 1..=WORKERS_MAX)? as usize;
        let (times, styles) = (
            [("capture", Time::Capture), ("live", Time::Live)],
            [("hardware", Distribution::Hardware), ("software", Distribution::Software)],
        );
        let time = word("time", &file.time, &times)?;
        let distribution = word("distribution", &file.distribution, &styles)?;
        // In a live run, load is rebalanced by the one thread that receives.
        let is_balanced = file.balance.as_ref().is_some_and(|wish| *wish.get_ref()) && file.distribution.is_none();
        let distribution = if is_live && is_balanced { Distribution::Software } else { distribution };
        Ok(Plan {
            course: course(file, &chain, ports)?,
            in_order: in_order(file.in_order.as_ref(), is_live)?,
            gather: gather(file, workers)?,
            balance: balance(file, distribution)?,
            steer_udp_ports: file.steer_udp_ports.clone(),
            workers,
            batch: number("batch", &file.batch, BATCH_DEFAULT, 1..=BATCH_MAX)? as usize,
            sets: number("sets", &file.sets, SETS_DEFAULT, 1..=SETS_MAX)? as usize,
            sets_at: file.sets.as_ref().map_or(0..0, Spanned::span),
            time: if is_live { Time::Live } else { time },
            distribution,
            pages: word("pages", &file.pages, &PAGES)?,
            nic: file.nic.as_ref().map(nic_named).transpose()?,
            user: file.user.as_ref().map(|name| user(name, is_live)).transpose()?,
            from: file.input.from.iter().map(|input| input.get_ref().clone()).collect(),
            to: file.output.to.iter().map(|output| output.get_ref().into()).collect(),
            devices,
            mtus: Vec::new(),
            chain,
            ports,
            split,
            split_is_asked: file.input.split.is_some(),
        })
    }

    /// Finds out what the interfaces of the ports take, which is the default of functions that have an MTU.
    pub fn ask_interfaces(&mut self) {
        let mtu = |device: &PortSpec| {
            let is_interface = !matches!(device.back_end, BackEnd::Memif | BackEnd::Dpdk);
            let standing = is_interface.then(|| Interface::stands(&device.name).ok().flatten()).flatten()?;
            Some(u16::try_from(standing.mtu).unwrap_or(u16::MAX))
        };
        self.mtus = self.devices.iter().map(mtu).collect();
    }

    /// The choice about the ports of UDP; `None` leaves it to the planner.
    pub fn udp_ports(&self) -> Option<UdpPorts> {
        let asked = self.steer_udp_ports.as_ref()?;
        Some(if *asked.get_ref() { UdpPorts::Hashed } else { UdpPorts::LeftOut })
    }

    /// The names of the functions joined by arrows: `firewall → nat`.
    pub fn chain_name(&self) -> String {
        self.chain.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(" → ")
    }
}

/// Checks that names are unique, because reports and settings refer to functions by name.
fn check_names(file: &PlanFile, chain: &[PlannedFunction]) -> Result<(), Problem> {
    for (i, link) in chain.iter().enumerate() {
        if chain[..i].iter().any(|earlier| earlier.name == link.name) {
            let what = format!("two functions are named `{}`", link.name);
            let help = format!("give one of them another name: name = \"{}_2\"", link.name);
            let at = file.nf[i].name.as_ref().map_or(link.at.clone(), Spanned::span);
            return Err(Problem::new(what, help).at(at));
        }
    }
    Ok(())
}

/// Whether two ports are one interface. A server of memif has many at one socket, which its clients tell apart by number.
fn is_same(one: &PortSpec, other: &PortSpec) -> bool {
    let is_client = |port: &PortSpec| port.back_end == BackEnd::Memif && !port.memif.is_server;
    one.name == other.name && !(is_client(one) && is_client(other) && one.memif.id != other.memif.id)
}

/// Parses the interfaces.
fn devices(ports: &[PortFile]) -> Result<Vec<PortSpec>, Problem> {
    let device = |port: &PortFile| {
        port.device.get_ref().parse::<PortSpec>().map_err(|error| {
            let what = format!("`{}` names no port", error.text);
            Problem::new(what, error.what).at(port.device.span())
        })
    };
    let devices = ports.iter().map(device).collect::<Result<Vec<_>, _>>()?;
    for (i, port) in ports.iter().enumerate() {
        if devices[..i].iter().any(|earlier| is_same(earlier, &devices[i])) {
            let what = format!("two ports are the interface `{}`", devices[i].name);
            return Err(Problem::new(what, "give each port an interface of its own").at(port.device.span()));
        }
    }
    Ok(devices)
}

/// Rejects settings that contradict ports that are interfaces, in a plan with `ports` ports.
fn check_live(file: &PlanFile, ports: u16) -> Result<(), Problem> {
    let count = file.port.len();
    if usize::from(ports) != count {
        let are = if count == 1 { "interface is" } else { "interfaces are" };
        let what = format!("{count} {are} named, but ports = {ports}");
        let place = file.ports.as_ref().map_or(0..0, Spanned::span);
        return Err(Problem::new(what, "leave `ports` out: it is the number of interfaces").at(place));
    }
    let given = file.input.from.first().or(file.output.to.first());
    if let Some(given) = given {
        let what = "packets come from interfaces and leave by them, so there is no input and no output";
        return Err(Problem::new(what, "leave out `from` and `to` (--in, --out), or the ports").at(given.span()));
    }
    let split = file.input.split.as_ref().map(|split| ("split", split.span()));
    let inside = file.input.inside.as_ref().map(|inside| ("inside", inside.span()));
    if let Some((key, place)) = split.or(inside) {
        let what = format!("`{key}` says by which port packets of a capture come in, but here they come by interfaces");
        return Err(Problem::new(what, format!("leave `{key}` out (--{key})")).at(place));
    }
    if let Some(time) = file.time.as_ref().filter(|time| time.get_ref() == "capture") {
        let what = "with interfaces the time is the machine's";
        return Err(Problem::new(what, "leave `time` out, or write time = \"live\"").at(time.span()));
    }
    Ok(())
}

/// Validates `in_order`: an input has an order, whereas packets from interfaces arrive at any time.
fn in_order(wish: Option<&Spanned<bool>>, is_live: bool) -> Result<bool, Problem> {
    match wish {
        Some(wish) if *wish.get_ref() && is_live => {
            let what = "packets from interfaces have no order but that in which each worker receives them";
            Err(Problem::new(what, "leave `in_order` out: it is for captures").at(wish.span()))
        }
        wish => Ok(wish.is_some_and(|wish| *wish.get_ref())),
    }
}

/// Validates `gather_us`: workers that process packets in input order wait for each other, so they cannot gather batches.
fn gather(file: &PlanFile, workers: usize) -> Result<Duration, Problem> {
    let gather_us = number("gather_us", &file.gather_us, 0, 0..=GATHER_US_MAX)? as u64;
    let in_order = file.in_order.as_ref().filter(|in_order| *in_order.get_ref() && workers > 1);
    if let (Some(in_order), 1..) = (in_order, gather_us) {
        let written = [file.gather_us.as_ref().map_or(0..0, Spanned::span), in_order.span()];
        let what = format!("with `in_order` {workers} workers wait for each other's packets, and gather none up");
        let place = written.into_iter().find(|place| !place.is_empty()).unwrap_or(0..0);
        return Err(Problem::new(what, "leave out `gather_us` or `in_order`, or write workers = 1").at(place));
    }
    Ok(Duration::from_micros(gather_us))
}

/// Validates `balance`: rebalancing requires ownership of the indirection table.
fn balance(file: &PlanFile, distribution: Distribution) -> Result<Option<Balance>, Problem> {
    let usual = Balance::default();
    let every_packets = number("balance_every", &file.balance_every, usual.every_packets as i64, 1..=i64::MAX)? as u64;
    if let (None, Some(every)) = (&file.balance, &file.balance_every) {
        let what = "`balance_every` says when load is moved between workers, but nothing moves it";
        return Err(Problem::new(what, "write balance = true besides, or leave it out").at(every.span()));
    }
    let Some(wish) = file.balance.as_ref().filter(|wish| *wish.get_ref()) else { return Ok(None) };
    if distribution == Distribution::Hardware {
        let what = "load cannot be moved between workers where the source splits its packets";
        let help = "write distribution = \"software\", or leave `balance` out";
        return Err(Problem::new(what, help).at(wish.span()));
    }
    if let Some(in_order) = file.in_order.as_ref().filter(|in_order| *in_order.get_ref()) {
        let what = "workers that wait for each other hold packets back, so their packet sets cannot be moved meanwhile";
        return Err(Problem::new(what, "leave out `in_order` or `balance`").at(in_order.span()));
    }
    Ok(Some(Balance { every_packets, ..usual }))
}

fn processors() -> i64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as i64).min(WORKERS_MAX)
}

/// Rejects a number that occurs twice in a list; `what` formats the error for that number.
pub(crate) fn named_once(list: &[Spanned<i64>], what: impl Fn(i64) -> String) -> Result<(), Problem> {
    let is_again = |&at: &usize| list[..at].iter().any(|other| other.get_ref() == list[at].get_ref());
    match (1..list.len()).find(is_again) {
        Some(at) => Err(Problem::new(what(*list[at].get_ref()), "name it once").at(list[at].span())),
        None => Ok(()),
    }
}

fn number(
    key: &str,
    value: &Option<Spanned<i64>>,
    default: i64,
    range: std::ops::RangeInclusive<i64>,
) -> Result<i64, Problem> {
    let Some(value) = value else { return Ok(default) };
    if range.contains(value.get_ref()) {
        return Ok(*value.get_ref());
    }
    let what = format!("{key} = {} is out of range", value.get_ref());
    Err(Problem::new(what, format!("write a number from {} to {}", range.start(), range.end())).at(value.span()))
}

/// Parses one of several words; the first is the default.
pub(crate) fn word<T: Copy>(key: &str, value: &Option<Spanned<String>>, words: &[(&str, T)]) -> Result<T, Problem> {
    let Some(value) = value else { return Ok(words[0].1) };
    if let Some((_, meaning)) = words.iter().find(|(word, _)| word == value.get_ref()) {
        return Ok(*meaning);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let help = match nearest(value.get_ref(), known.iter().copied()) {
        Some(right) => format!("write {key} = \"{right}\""),
        None => format!("write one of: {}", known.join(", ")),
    };
    Err(Problem::new(format!("`{key}` cannot be \"{}\"", value.get_ref()), help).at(value.span()))
}

/// Validates `user`: only a run that opens interfaces has privileges to drop.
fn user(name: &Spanned<String>, is_live: bool) -> Result<User, Problem> {
    if !is_live {
        let what = "`user` is for runs that open interfaces";
        return Err(Problem::new(what, "leave it out: captures are read with your own rights").at(name.span()));
    }
    name.get_ref().parse().map_err(|error: UserError| {
        let help = match &error {
            UserError::Unknown(_) => "sudo useradd --system braid, and write braid; or two numbers, as 65534:65534",
            UserError::Root(_) => "name a user with fewer rights",
            UserError::RootGroup(_) => "name a user with another primary group, or two numbers, as 65534:65534",
        };
        Problem::new(error.to_string(), help).at(name.span())
    })
}

fn nic_named(name: &Spanned<String>) -> Result<&'static Nic, Problem> {
    nic::find(name.get_ref()).ok_or_else(|| {
        let names = NICS.iter().flat_map(|nic| [nic.name].into_iter().chain(nic.also.iter().copied()));
        let help = match nearest(name.get_ref(), names) {
            Some(right) => format!("write nic = \"{right}\""),
            None => format!("known are: {}", NICS.iter().map(|nic| nic.name).collect::<Vec<_>>().join(", ")),
        };
        Problem::new(format!("no NIC `{}` is known", name.get_ref()), help).at(name.span())
    })
}

/// The split as written, else the first split that a function in the chain prefers.
fn split(input: &InputFile, chain: &[PlannedFunction], ports: u16) -> Result<PortSplit, Problem> {
    let wish = chain.iter().map(|link| &link.entry.split).find(|split| **split != DefaultSplit::Single);
    let default = wish.cloned().unwrap_or(DefaultSplit::Single);
    // With one port there is no other side, so packets are not split, unless a function such as a translator depends on sides.
    let is_alone = ports == 1 && !chain.iter().any(|link| link.entry.mirrors);
    let default = match &input.inside {
        None if is_alone => DefaultSplit::Single,
        None => default,
        Some(_) => DefaultSplit::Inside,
    };
    let words = [
        ("single", DefaultSplit::Single),
        ("inside", DefaultSplit::Inside),
        ("mac_hash", DefaultSplit::MacHash),
        ("interface", DefaultSplit::Interface),
    ];
    let known: Vec<(&str, usize)> = words.iter().enumerate().map(|(i, (word, _))| (*word, i)).collect();
    let chosen = match &input.split {
        None => default,
        some => words[word("split", some, &known)?].1.clone(),
    };
    if let (Some(written), Some(inside), true) = (&input.split, &input.inside, chosen != DefaultSplit::Inside) {
        let what = format!("`inside` says what comes in by port 0, but split = \"{}\" does not ask", written.get_ref());
        return Err(Problem::new(what, "leave `inside` out, or write split = \"inside\"").at(inside.span()));
    }
    Ok(match chosen {
        DefaultSplit::Single => PortSplit::Single,
        DefaultSplit::MacHash => PortSplit::MacHash(ports),
        DefaultSplit::Interface => PortSplit::Interface(ports),
        DefaultSplit::Inside => PortSplit::InsidePrefixes(inside(input.inside.as_ref())?),
    })
}

/// The prefixes whose packets arrive on port 0: as written, else private addresses.
fn inside(written: Option<&Spanned<Vec<Spanned<String>>>>) -> Result<Vec<Prefix>, Problem> {
    let Some(list) = written else { return Ok(INSIDE.iter().filter_map(|prefix| prefix.parse().ok()).collect()) };
    if list.get_ref().is_empty() {
        let help = "name ranges, as inside = [\"10.0.0.0/8\"], or leave it out: then private addresses are inside";
        return Err(Problem::new("`inside` names no range, so nothing would come in by port 0", help).at(list.span()));
    }
    let prefix = |text: &Spanned<String>| {
        text.get_ref().trim().parse::<Prefix>().map_err(|_| {
            let what = format!("\"{}\" is no address range", text.get_ref());
            let help = "write 10.0.0.0/8, 2001:db8::/32, or a single address";
            Problem::new(what, help).at(text.span())
        })
    };
    list.get_ref().iter().map(prefix).collect()
}
