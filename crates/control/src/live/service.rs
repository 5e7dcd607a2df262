//! Answers requests about a run, independently of the transport.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use braid_runtime::Live;
use braid_runtime::io::device::DeviceCounters;
use braid_runtime::observe::trace::{TraceOrder, Traced, Tracer};
use serde::Serialize;
use serde_json::Value;

use super::apply::{Applied, Current};
use super::configure::differences;
use super::entries;
use super::interfaces::Interfaces;
use super::protocol::{Continued, Refused, Request};
use super::seat::Seating;
use super::sets;
use super::snapshot::{Snapshot, Taken};
use super::stats::{Connections, Stats};
use super::trace::TraceReport;
use crate::facts::Facts;
use crate::filter::Filter;
use crate::plan::Plan;

/// How long stage times are measured after a client last asked for them.
pub const TIMING_LASTS: Duration = Duration::from_secs(10);

/// Maximum number of packets that one trace order follows.
pub const TRACED_MAX: u64 = 10_000;

/// The service that answers requests about a run.
#[derive(Debug)]
pub struct Service {
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    /// Logs changes made by requests.
    log: OnceLock<fn(&str)>,
    /// Time of the last request for timing; `None` while stages are not timed.
    timed: Mutex<Option<Instant>>,
    /// Held while packets are traced: a worker follows one order at a time.
    tracing: Mutex<()>,
    /// The current plan, with which a new plan is compared.
    current: Mutex<Current>,
    /// The program in which the run is to continue.
    successor: Mutex<Option<Successor>>,
    /// Why the run cannot continue in another program.
    bound: OnceLock<Refused>,
    /// Interfaces of the ports; none if packets come from an input.
    interfaces: Interfaces,
    /// What the devices of the ports count.
    devices: OnceLock<Arc<[DeviceCounters]>>,
    /// Who had to make room, and who was refused.
    askers: Askers,
}

/// Counts of client connections, over the socket and HTTP together.
#[derive(Debug, Default)]
struct Askers {
    ended_for_others: AtomicU64,
    refused: AtomicU64,
}

/// Receives a part of an answer. `None` only checks whether the client still listens. An error ends the request.
pub type More<'a> = dyn FnMut(Option<Value>) -> io::Result<()> + 'a;

impl Service {
    /// Makes the service of a run from its workers' desks, the flag that ends it, and its plan.
    pub fn new(live: &Arc<Live>, stop: &Arc<AtomicBool>, current: Current) -> Arc<Service> {
        live.count_ports();
        let interfaces = Interfaces::of(&current.plan.devices);
        Arc::new(Service {
            live: Arc::clone(live),
            stop: Arc::clone(stop),
            log: OnceLock::new(),
            timed: Mutex::new(None),
            tracing: Mutex::new(()),
            current: Mutex::new(current),
            successor: Mutex::new(None),
            bound: OnceLock::new(),
            interfaces,
            devices: OnceLock::new(),
            askers: Askers::default(),
        })
    }

    /// The counters of the ports' devices, for [`stats`](Self::stats); the first ones are kept.
    pub fn watch_ports(&self, devices: Arc<[DeviceCounters]>) {
        let _ = self.devices.set(devices);
    }

    /// Applies another plan; after a refusal nothing has changed.
    pub fn apply(&self, text: &str) -> Result<Applied, Refused> {
        self.exchanged(|current| current.apply(&self.live, text))
    }

    /// Applies the run's own plan file, under the command line of the run.
    pub fn reload(&self, text: &str) -> Result<Applied, Refused> {
        self.exchanged(|current| current.reload(&self.live, text))
    }

    fn exchanged(&self, apply: impl FnOnce(&mut Current) -> Result<Applied, Refused>) -> Result<Applied, Refused> {
        let mut current = self.going_on()?;
        let applied = apply(&mut current)?;
        // Measurements restart for a different chain.
        *lock(&self.timed) = None;
        Ok(applied)
    }

    /// Gives another configuration to one function; after a refusal nothing has changed.
    fn configure(&self, name: &str, from: &toml::Table, to: toml::Table) -> Result<Applied, Refused> {
        let differences = differences(from, &to);
        let applied = self.going_on()?.configure(&self.live, name, from, to)?;
        if !differences.is_empty() {
            *lock(&self.timed) = None;
            self.say(&format!("{name}: {differences}"));
        }
        Ok(applied)
    }

    /// Sets the function that logs changes made by requests; only the first call has an effect.
    pub fn log_to(&self, log: fn(&str)) {
        let _ = self.log.set(log);
    }

    fn say(&self, what: &str) {
        if let Some(log) = self.log.get() {
            log(what);
        }
    }

    fn stop(&self) {
        // Relaxed: the flag carries no data.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Refuses upgrades from now on, for this reason.
    pub fn forbid_upgrade(&self, why: Refused) {
        // If a reason is already set, the first one remains.
        let _ = self.bound.set(why);
    }

    /// Ends the run; the process that started it then continues it in another program. Returns notes about its plan.
    fn upgrade(&self, program: Option<PathBuf>, plan: Option<&str>) -> Result<Vec<String>, Refused> {
        if let Some(why) = self.bound.get() {
            return Err(why.clone());
        }
        let own = std::env::current_exe().map_err(|error| Refused::new(error.to_string(), "name the program"))?;
        // Linux adds this suffix to the name of an executable that was replaced after it started, as an upgrade does.
        let replaced = own.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
        let program = program.unwrap_or(replaced.unwrap_or(own));
        let executable =
            std::fs::metadata(&program).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        let refused = |what: &str| {
            let help = "name the absolute path of another braid; nothing has changed";
            Err(Refused::new(format!("{} {what}", program.display()), help))
        };
        if !program.is_absolute() || !executable {
            return refused("is no program that can be run");
        }
        let Some(successor) = Successor::ask(program.clone()) else {
            return refused("does not go on with a run: it knows no `run --restore`");
        };
        let mut current = self.going_on()?;
        let checked = match plan {
            Some(text) => current.check_successor(&self.live, &self.interfaces, text),
            None => current.check_again(&self.interfaces),
        };
        // Meanwhile the run may have been told to end, which is then why its workers did not answer. A worker that has ended before has not been
        // asked to leave its sets.
        self.goes_on()?;
        let (complete, notes) = checked?;
        current.successor = Some(complete);
        *lock(&self.successor) = Some(successor);
        // Before the lock is given back: no other change succeeds after this one.
        self.stop();
        Ok(notes)
    }

    /// The current plan, to be changed, unless the run is ending.
    fn going_on(&self) -> Result<MutexGuard<'_, Current>, Refused> {
        let current = lock(&self.current);
        self.goes_on().map(|()| current)
    }

    /// Refuses what cannot be done any more if the run is ending.
    fn goes_on(&self) -> Result<(), Refused> {
        // Relaxed: the flag carries no data.
        if !self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(match lock(&self.successor).is_some() {
            true => Refused::new("another program is just going on with this run", "ask that one again"),
            false => Refused::new("the run is ending", "start the other program when it has ended"),
        })
    }

    /// The program in which the run is to continue, if a client asked for it.
    pub fn successor(&self) -> Option<Successor> {
        lock(&self.successor).clone()
    }

    /// The plan that runs now.
    pub fn plan(&self) -> Plan {
        lock(&self.current).plan.clone()
    }

    /// The plan for the next process, as a plan file.
    pub fn successor_plan(&self) -> Option<String> {
        lock(&self.current).successor.clone()
    }

    /// Saves the state to a file.
    pub fn snapshot(&self, path: &Path) -> Result<Taken, Refused> {
        if !path.is_absolute() {
            return Err(Refused::new(format!("{} is no absolute path", path.display()), "begin it with /"));
        }
        // The lock keeps the chain unchanged meanwhile. It is given back before the file is written, which may take long.
        let (snapshot, stood) = {
            let current = lock(&self.current);
            Snapshot::take(&self.live, &current.plan)?
        };
        let help = "name a folder that can be written to and has room; what was there before is as it was";
        let bytes = snapshot.write(path).map_err(|error| Refused::new(error.to_string(), help))?;
        Ok(snapshot.taken(bytes, stood))
    }

    /// Carries out a request; parts of the answer go to `more`.
    pub fn answer(&self, request: Request, more: &mut More<'_>) -> Result<Value, Refused> {
        match request {
            Request::Stats { timing: true } => json(&self.stats(true)),
            Request::Stats { timing: false } => json(&self.stats(false).with_findings(&self.live)),
            Request::Sets { filter, limit } => json(&sets::list(&self.live, &parse(&filter)?, limit)?),
            Request::Entries { filter, limit } => json(&entries::list(&self.live, &parse(&filter)?, limit)?),
            Request::EndSets { filter } | Request::EndEntries { filter } if filter.trim().is_empty() => {
                let help = "write one; `greater 0 or not greater 0` means all";
                Err(Refused::new("no filter says which are to be ended", help))
            }
            Request::EndSets { filter } => json(&sets::end(&self.live, &parse(&filter)?)?),
            Request::EndEntries { filter } => json(&entries::end(&self.live, &parse(&filter)?)?),
            Request::Trace { filter, count, seconds } => {
                let seconds = Duration::try_from_secs_f64(seconds.min(86_400.0));
                let seconds = seconds.map_err(|_| Refused::new("the time is none", "write a number of seconds"))?;
                json(&self.trace(&parse(&filter)?, count, seconds, more)?)
            }
            Request::Apply { plan } => {
                let applied = self.apply(&plan)?;
                applied.in_a_line().iter().for_each(|line| self.say(line));
                json(&applied)
            }
            Request::Configuration { function } => json(&lock(&self.current).configured(&function)),
            Request::Configure { name, from, to } => json(&self.configure(&name, &from, to)?),
            Request::Snapshot { path } => json(&self.snapshot(&path)?),
            Request::Upgrade { program, plan } => {
                let notes = self.upgrade(program, plan.as_deref())?;
                json(&Continued { process: std::process::id(), notes })
            }
            Request::Stop {} => {
                self.stop();
                Ok(Value::Null)
            }
        }
    }

    /// All current figures.
    pub fn stats(&self, timing: bool) -> Stats {
        if timing {
            self.begin_timing();
        }
        let mut stats = Stats::take(&self.live);
        for (port, interface) in stats.ports.iter_mut().zip(self.interfaces.names()) {
            port.name = interface;
        }
        stats.count_ports(self.devices.get().map_or(&[], |devices| devices));
        // Relaxed, here and where they are counted: counters carry no data.
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Askers { ended_for_others, refused } = &self.askers;
        stats.connections = Connections { ended_for_others: now(ended_for_others), refused: now(refused) };
        stats
    }

    /// All current figures, including the numbers that functions report.
    pub fn stats_with_figures(&self) -> Stats {
        self.stats(false).with_figures(&self.live)
    }

    /// Traces packets; returns how many were traced.
    fn trace(&self, filter: &Arc<Filter>, count: u64, wait: Duration, more: &mut More<'_>) -> Result<u64, Refused> {
        let _tracing = match self.tracing.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(Refused::new("packets are being traced already", "wait until that has ended"));
            }
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Ok(tracing) => tracing,
        };
        let Some(running) = self.live.running() else { return Err(Refused::new("the run has not begun", "ask again")) };
        let (order, traced) = order(filter, count);
        let _ = self.live.ask_all(move |worker| worker.trace(Some(Box::new(Tracer::new(order.clone())))));
        let (begun, mut found) = (Instant::now(), 0);
        while found < count.min(TRACED_MAX) && begun.elapsed() < wait && !self.live.has_ended() {
            let traced = traced.recv_timeout(Duration::from_millis(100)).ok();
            found += u64::from(traced.is_some());
            let part = traced.map(|traced| json(&TraceReport::new(&traced, &running))).transpose()?;
            if more(part).is_err() {
                break;
            }
        }
        let _ = self.live.ask_all(|worker| worker.trace(None));
        Ok(found)
    }

    fn begin_timing(&self) {
        let mut timed = lock(&self.timed);
        if timed.replace(Instant::now()).is_none() {
            // A worker that does not answer is not timed.
            let _ = self.live.ask_all(|worker| worker.begin_timing());
        }
    }

    /// Counts a new connection by its outcome.
    pub(super) fn count(&self, taken: Seating) {
        let count = match taken {
            Seating::Free => return,
            Seating::MadeFree => &self.askers.ended_for_others,
            Seating::Refused => &self.askers.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Called regularly by the thread that accepts connections: stops measurements that nobody has asked
    /// for recently. It does not wait for a client that is just asking.
    pub fn rest(&self) {
        let Ok(mut timed) = self.timed.try_lock() else { return };
        if timed.is_some_and(|asked| asked.elapsed() > TIMING_LASTS) {
            *timed = None;
            let _ = self.live.ask_all(|worker| worker.end_timing());
        }
    }
}

/// A program in which a run is to continue.
#[derive(Clone, Debug)]
pub struct Successor {
    /// Its file.
    pub program: PathBuf,
    /// Its output for `braid run --help`.
    help: String,
}

impl Successor {
    /// Queries a program, preferably while the run still exists; `None` if the program cannot restore a state.
    fn ask(program: PathBuf) -> Option<Successor> {
        let help = Command::new(&program).args(["run", "--help"]).stdin(Stdio::null()).output().ok()?;
        let successor = Successor { program, help: String::from_utf8_lossy(&help.stdout).into_owned() };
        successor.knows_of("--restore").then_some(successor)
    }

    /// Whether its help mentions this option or variable.
    pub fn knows_of(&self, word: &str) -> bool {
        self.help.contains(word)
    }
}

/// Makes an order to trace packets, and the channel that delivers them, which has room for all of them.
pub fn order(filter: &Arc<Filter>, count: u64) -> (TraceOrder, Receiver<Traced>) {
    let count = count.min(TRACED_MAX);
    let (into, traced) = sync_channel(count as usize);
    let filter = Arc::clone(filter);
    let wanted = move |bytes: &[u8], link, _| filter.matches(&Facts::of_frame(bytes, link));
    (TraceOrder { wanted: Arc::new(wanted), left: Arc::new(AtomicU64::new(count)), into }, traced)
}

/// Ignores poisoning: every value under these locks is replaced as a whole (a plan only after it was
/// applied), so it is consistent after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(filter: &str) -> Result<Arc<Filter>, Refused> {
    Filter::parse(filter).map(Arc::new).map_err(|error| Refused::new(error.what, error.help))
}

pub(crate) fn json(value: &impl Serialize) -> Result<Value, Refused> {
    serde_json::to_value(value).map_err(|error| Refused::new(format!("no JSON can be made: {error}"), ""))
}
