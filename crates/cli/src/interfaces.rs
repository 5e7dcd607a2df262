//! Interfaces of a run that go away or down while it goes on: said on standard error, since nothing else tells. The run goes on with the others,
//! ends where there is none any more, and its exit code says in either case that one was lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::runtime::io::device::{BackEnd, Interface, PortSpec, Standing};

use crate::aside::asideln;
use crate::failure::{Failure, Kind};

/// How often they are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Looks at them until it is dropped.
#[derive(Debug)]
pub struct Interfaces {
    /// Dropped, it ends the looking.
    ends: Sender<()>,
    looking: Option<JoinHandle<Vec<Watched>>>,
}

impl Interfaces {
    /// `stop` ends the run: nothing comes or goes any more when all are gone. Ports that are no interfaces are not looked at, and do not go.
    pub fn watch(ports: &[PortSpec], stop: &Arc<AtomicBool>) -> Interfaces {
        let is_interface = |port: &&PortSpec| !matches!(port.back_end, BackEnd::Memif | BackEnd::Dpdk);
        let mut all: Vec<_> = ports.iter().filter(is_interface).map(Watched::new).collect();
        let (ends, ended) = channel();
        if all.is_empty() {
            return Interfaces { ends, looking: None };
        }
        let (others, stop) = (ports.len() > all.len(), Arc::clone(stop));
        look(&mut all);
        let looking = std::thread::Builder::new().name("interfaces".into()).spawn(move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                look(&mut all);
                if !others && all.iter().all(|one| one.is_gone) {
                    asideln!("no interface is left: the run ends");
                    // Relaxed: the flag carries no data.
                    stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
            all
        });
        // A run without this goes on all the same.
        Interfaces { ends, looking: looking.ok() }
    }

    /// The run has ended: an error if it had lost any of them before that.
    pub fn end(self) -> Result<(), Failure> {
        drop(self.ends);
        let Some(mut all) = self.looking.and_then(|looking| looking.join().ok()) else { return Ok(()) };
        // Those of TAP that the run has made go with it.
        all.retain(|one| one.is_gone || !one.is_tap);
        // Links may go down because the run has ended; that is nothing to be told.
        for one in &mut all {
            if let Some(what) = one.look(Interface::stands(&one.name)).filter(|_| one.is_gone) {
                asideln!("{}: {what}", one.name);
            }
        }
        let gone: Vec<_> = all.iter().filter(|one| one.is_gone).map(|one| one.name.as_str()).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let (verb, them) = if gone.len() == 1 { ("was", "it") } else { ("were", "them") };
        let what = format!("{} {verb} gone before the run ended", gone.join(", "));
        Err(Failure::new(Kind::Io, what, format!("packets to and from {them} were lost")))
    }
}

/// Looks at each, and says what has changed.
fn look(all: &mut [Watched]) {
    for one in all {
        if let Some(name) = one.renamed() {
            let before = std::mem::replace(&mut one.name, name);
            let name = &one.name;
            asideln!(
                "{before}: the interface is called {name} now, and is the run's as before; `braid upgrade` and a new start want the name that is in the plan"
            );
        }
        if let Some(what) = one.look(Interface::stands(&one.name)) {
            asideln!("{}: {what}", one.name);
        }
    }
}

/// What is known of one.
#[derive(Debug)]
struct Watched {
    name: String,
    /// None before it is there: one of TAP is made when its port is opened.
    last: Option<Standing>,
    is_tap: bool,
    is_gone: bool,
}

impl Watched {
    fn new(port: &PortSpec) -> Watched {
        Watched { name: port.name.clone(), last: None, is_tap: port.back_end == BackEnd::Tap, is_gone: false }
    }

    /// Its name by now, if that is another one.
    fn renamed(&self) -> Option<String> {
        let last = self.last.filter(|_| !self.is_gone)?;
        // What is in the plan may be another of its names, which still leads there.
        let is_found = || Interface::stands(&self.name).is_ok_and(|now| now.index == last.index);
        Interface::called(last.index).ok().filter(|name| *name != self.name && !is_found())
    }

    /// What is to be said of it by now. Another interface of that name is not the one that the run has.
    fn look(&mut self, now: io::Result<Standing>) -> Option<&'static str> {
        if self.is_gone {
            return None;
        }
        let (last, now) = match (self.last, now.ok()) {
            (None, now) => {
                self.last = now;
                return None;
            }
            (Some(last), Some(now)) if now.index == last.index => (last, now),
            (Some(_), _) => {
                self.is_gone = true;
                return Some(
                    "the interface is gone, and packets to and from it are lost; once there is one of that name again, `braid upgrade` or a restart opens it",
                );
            }
        };
        self.last = Some(now);
        match (last.is_running, now.is_running) {
            (true, false) => Some("the interface is down, or has no carrier"),
            (false, true) => Some("the interface is up"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_said_once() {
        let mut one = Watched { name: "eth0".into(), last: None, is_tap: false, is_gone: false };
        let mut check = |now: Option<(u32, bool)>, expected: Option<&str>| {
            let standing = now.map(|(index, is_running)| Standing { index, is_running });
            let said = one.look(standing.ok_or_else(|| io::ErrorKind::NotFound.into()));
            assert_eq!(said.map(|said| said.split(',').next().unwrap_or(said)), expected, "{now:?}");
        };
        check(None, None);
        check(Some((2, true)), None);
        check(Some((2, true)), None);
        check(Some((2, false)), Some("the interface is down"));
        check(Some((2, false)), None);
        check(Some((2, true)), Some("the interface is up"));
        check(Some((7, true)), Some("the interface is gone"));
        check(Some((7, true)), None);
        check(None, None);
    }
}
