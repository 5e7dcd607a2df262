//! Watches for interfaces of a run that disappear or go down, and reports them on standard error and to the functions. The
//! run continues with the other interfaces and ends if none is left; in both cases its exit code indicates the loss.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::live::links;
use braid_control::runtime::Live;
use braid_control::runtime::io::device::{BackEnd, Interface, PortSpec, Standing};

use crate::failure::{Failure, Kind};
use crate::stderr::asideln;

/// How often the interfaces are checked.
const EVERY: Duration = Duration::from_millis(500);

/// A watch on interfaces, which lasts until it is dropped.
#[derive(Debug)]
pub struct Interfaces {
    /// Dropping the sender ends the watching thread.
    ends: Sender<()>,
    looking: Option<JoinHandle<Vec<Watched>>>,
}

impl Interfaces {
    /// Starts to watch; sets `stop`, which ends the run, when all interfaces are gone and no other ports are left. The functions of the run hear
    /// of links. Ports that are not kernel interfaces are not watched and never count as gone.
    pub fn watch(ports: &[PortSpec], stop: &Arc<AtomicBool>, live: Option<Arc<Live>>) -> Interfaces {
        let is_interface = |port: &(u16, &PortSpec)| !matches!(port.1.back_end, BackEnd::Memif | BackEnd::Dpdk);
        let mut all: Vec<_> = (0..).zip(ports).filter(is_interface).map(Watched::new).collect();
        let (ends, ended) = channel();
        if all.is_empty() {
            return Interfaces { ends, looking: None };
        }
        let (others, stop) = (ports.len() > all.len(), Arc::clone(stop));
        look(&mut all, live.as_deref());
        let looking = std::thread::Builder::new().name("interfaces".into()).spawn(move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                look(&mut all, live.as_deref());
                if !others && all.iter().all(|one| one.is_gone) {
                    asideln!("no interface is left: the run ends");
                    // Relaxed: the flag carries no data.
                    stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
            all
        });
        // The run continues even if this thread could not be started.
        Interfaces { ends, looking: looking.ok() }
    }

    /// Ends the watch when the run has ended; returns an error if the run had lost any interface before.
    pub fn end(self) -> Result<(), Failure> {
        drop(self.ends);
        let Some(mut all) = self.looking.and_then(|looking| looking.join().ok()) else { return Ok(()) };
        // TAP interfaces that the run created disappear with it.
        all.retain(|one| one.is_gone || !one.is_tap);
        // Links may go down because the run has ended; that is not worth a message.
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

/// Checks each interface and reports changes.
fn look(all: &mut [Watched], live: Option<&Live>) {
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
        if let Some(live) = live {
            one.tell(live);
        }
    }
}

/// The known status of one interface.
#[derive(Debug)]
struct Watched {
    port: u16,
    name: String,
    /// `None` before the interface exists: a TAP interface is created when its port is opened.
    last: Option<Standing>,
    is_tap: bool,
    is_gone: bool,
    /// Whether the functions have been told that its link is up.
    is_told: bool,
}

impl Watched {
    fn new((port, spec): (u16, &PortSpec)) -> Watched {
        let is_tap = spec.back_end == BackEnd::Tap;
        Watched { port, name: spec.name.clone(), last: None, is_tap, is_gone: false, is_told: false }
    }

    /// Whether packets pass through it, as far as is known.
    fn is_running(&self) -> bool {
        !self.is_gone && self.last.is_some_and(|last| last.is_running)
    }

    /// Tells the functions if its link has gone down or come up since they heard of it.
    fn tell(&mut self, live: &Live) {
        match (self.is_told, self.is_running()) {
            (false, true) => self.is_told = links::up(live, self.port),
            (true, false) => self.is_told = !links::down(live, self.port),
            _ => {}
        }
    }

    /// The interface's new name, if it has been renamed.
    fn renamed(&self) -> Option<String> {
        let last = self.last.filter(|_| !self.is_gone)?;
        // The plan may use an alternative name, which still leads to the interface.
        let is_found = || Interface::stands(&self.name).is_ok_and(|now| now.is_some_and(|now| now.index == last.index));
        Interface::called(last.index).ok().filter(|name| *name != self.name && !is_found())
    }

    /// Checks the status; returns a message if it has changed. Another interface with the same name is not the run's interface.
    fn look(&mut self, now: io::Result<Option<Standing>>) -> Option<String> {
        // Where it cannot be asked, as for want of descriptors, it is taken to be as it was.
        let now = now.ok().filter(|_| !self.is_gone)?;
        let (last, now) = match (self.last, now) {
            (None, now) => {
                self.last = now;
                return None;
            }
            (Some(last), Some(now)) if now.index == last.index => (last, now),
            (Some(_), _) => {
                self.is_gone = true;
                let what = "the interface is gone, and packets to and from it are lost; once there is one of that name again, `braid upgrade` or a restart opens it";
                return Some(what.to_owned());
            }
        };
        self.last = Some(now);
        match (last.is_running, now.is_running) {
            (true, false) => Some("the interface is down, or has no carrier".to_owned()),
            (false, true) => Some("the interface is up".to_owned()),
            _ if now.mtu != last.mtu => Some(format!(
                "packets of up to {} bytes fit through the interface now, and of {} before: longer ones are lost as frame_too_long; `braid apply` with the plan of the run tells a router whose interface says no `mtu`",
                now.mtu, last.mtu
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_said_once() {
        let mut one =
            Watched { port: 0, name: "eth0".into(), last: None, is_tap: false, is_gone: false, is_told: false };
        let mut check = |now: Option<(u32, bool)>, expected: Option<&str>| {
            // What cannot be asked changes nothing.
            assert_eq!(one.look(Err(io::ErrorKind::OutOfMemory.into())), None);
            let standing = now.map(|(index, is_running)| Standing { index, is_running, mtu: 1500 });
            let said = one.look(Ok(standing));
            assert_eq!(said.as_ref().and_then(|said| said.split(',').next()), expected, "{now:?}");
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

    #[test]
    fn another_mtu_is_said_with_what_it_was() {
        let mut one =
            Watched { port: 0, name: "eth0".into(), last: None, is_tap: false, is_gone: false, is_told: false };
        let mut says = |mtu| one.look(Ok(Some(Standing { index: 2, is_running: true, mtu }))).unwrap_or_default();
        assert_eq!((says(1500), says(1500)), (String::new(), String::new()));
        let said = says(1300);
        assert!(said.contains("up to 1300 bytes") && said.contains("of 1500 before"), "{said}");
        assert_eq!(says(1300), "");
    }
}
