//! Interfaces of a run that go away or down while it goes on: said on standard error, since nothing else tells. The run goes on with the others.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::runtime::io::device::{BackEnd, Interface, PortSpec, Standing};

use crate::aside::asideln;

/// How often they are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Looks at them until it is dropped.
#[derive(Debug)]
pub struct Interfaces {
    ends: Option<Sender<()>>,
    looking: Option<JoinHandle<()>>,
}

impl Interfaces {
    /// Of ports that are no interfaces nobody looks at any.
    pub fn watch(ports: &[PortSpec]) -> Interfaces {
        let is_interface = |port: &&PortSpec| !matches!(port.back_end, BackEnd::Memif | BackEnd::Dpdk);
        let mut all: Vec<_> = ports.iter().filter(is_interface).map(|port| Watched::new(&port.name)).collect();
        if all.is_empty() {
            return Interfaces { ends: None, looking: None };
        }
        for one in &mut all {
            one.look(Interface::stands(&one.name));
        }
        let (ends, ended) = channel();
        let looking = std::thread::Builder::new().name("interfaces".into()).spawn(move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                for one in &mut all {
                    if let Some(what) = one.look(Interface::stands(&one.name)) {
                        asideln!("{}: {what}", one.name);
                    }
                }
            }
        });
        // A run without this goes on all the same.
        Interfaces { ends: Some(ends), looking: looking.ok() }
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(looking) = self.looking.take() {
            let _ = looking.join();
        }
    }
}

/// What is known of one.
#[derive(Debug)]
struct Watched {
    name: String,
    /// None before it is there: one of TAP is made when its port is opened.
    last: Option<Standing>,
    is_gone: bool,
}

impl Watched {
    fn new(name: &str) -> Watched {
        Watched { name: name.to_owned(), last: None, is_gone: false }
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
                    "the interface is gone, and what would come and go by it is lost; when there is one of that name again, `braid upgrade` or a new start opens it",
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
        let mut one = Watched::new("eth0");
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
