//! The interfaces of a run: what they are called now, since an interface may be renamed while a run has it, and whether a next process could
//! open those of its plan.

use braid_runtime::io::OpenError;
use braid_runtime::io::device::{BackEnd, Interface, PortSpec};

use super::protocol::Refused;

/// The interfaces of a run's ports.
#[derive(Debug)]
pub(super) struct Interfaces(Vec<Known>);

/// An interface by its name in the plan.
#[derive(Debug)]
struct Known {
    name: String,
    /// Its index when the run began; `None` of what is no interface of the kernel, or was none yet.
    index: Option<u32>,
}

impl Interfaces {
    /// The interfaces of a run that is about to open its ports.
    pub(super) fn of(devices: &[PortSpec]) -> Interfaces {
        let index = |name: &str| Some(Interface::stands(name).ok()??.index);
        let known = |device: &PortSpec| Known {
            name: device.name.clone(),
            index: is_there_before(device).then(|| index(&device.name)).flatten(),
        };
        Interfaces(devices.iter().map(known).collect())
    }

    /// What they are called now, by port. An interface that is gone keeps its name.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(Known::called)
    }

    /// Gives the devices of a plan the names that they have now; notes on those that were renamed.
    pub(super) fn rename(&self, devices: &mut [PortSpec]) -> Vec<String> {
        let mut notes = Vec::new();
        for device in devices.iter_mut().filter(|device| is_there_before(device)) {
            if let Some(name) = self.new_name(&device.name) {
                let was = std::mem::replace(&mut device.name, name);
                let name = &device.name;
                notes.push(format!(
                    "{was} is called {name} now, and the run goes on with it by that name; a new start wants device = \"{name}\""
                ));
            }
        }
        notes
    }

    /// Refuses a plan with an interface that no process could open now: it is not there, or another run has it.
    pub(super) fn check(&self, devices: &[PortSpec]) -> Result<(), Refused> {
        for device in devices.iter().filter(|device| is_there_before(device)) {
            let (name, what) = match Interface::find(&device.name) {
                Ok(interface) => {
                    self.check_free(&interface)?;
                    continue;
                }
                Err(OpenError::Device { device: name, what, .. }) => (name, what),
                Err(_) => continue,
            };
            let mend = match self.new_name(&name) {
                Some(new) => format!("it is called {new} now: write device = \"{new}\""),
                // Not how to make one for a trial, as at a first start.
                None => "`ip -brief link` lists those that are".to_owned(),
            };
            return Err(Refused::new(format!("{name}: {what}"), format!("nothing has changed; {mend}")));
        }
        Ok(())
    }

    /// Refuses an interface that another run has claimed. Those of this run are the next process's.
    fn check_free(&self, interface: &Interface) -> Result<(), Refused> {
        if self.0.iter().any(|known| known.index == Some(interface.index)) {
            return Ok(());
        }
        match interface.check_free() {
            Err(OpenError::Device { device, what, mend }) => {
                Err(Refused::new(format!("{device}: {what}"), format!("nothing has changed; {mend}")))
            }
            _ => Ok(()),
        }
    }

    /// The new name of an interface that was renamed.
    fn new_name(&self, name: &str) -> Option<String> {
        let known = self.0.iter().find(|known| known.name == name)?;
        Some(known.called()).filter(|now| now != name)
    }
}

impl Known {
    fn called(&self) -> String {
        // The plan may use an alternative name, which still leads to the interface.
        let is_here = |index| Interface::stands(&self.name).is_ok_and(|now| now.is_some_and(|now| now.index == index));
        let now = self.index.filter(|index| !is_here(*index)).and_then(|index| Interface::called(index).ok());
        now.unwrap_or_else(|| self.name.clone())
    }
}

/// Whether a port is an interface of the kernel that must be there before it is opened.
fn is_there_before(device: &PortSpec) -> bool {
    matches!(device.back_end, BackEnd::Best | BackEnd::AfPacket | BackEnd::AfXdp)
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    fn devices(names: &[&str]) -> Vec<PortSpec> {
        names.iter().map(|name| name.parse().expect("a port")).collect()
    }

    #[test]
    fn an_interface_that_is_not_here_is_refused_before_anything_ends() {
        let refused = Interfaces::of(&[]).check(&devices(&["lo", "nowhere0"])).expect_err("there is no nowhere0");
        assert!(refused.what.starts_with("nowhere0: there is no such interface"), "{refused:?}");
        assert!(refused.help.starts_with("nothing has changed; "), "{refused:?}");
        let others = devices(&["lo", "tap:nowhere0", "memif:/nowhere/socket"]);
        assert!(Interfaces::of(&[]).check(&others).is_ok(), "these are made when they are opened");
    }

    #[test]
    fn an_interface_that_another_run_has_is_refused_and_one_of_this_run_is_not() {
        let mut interface = Interface::ask("lo").expect("every network namespace has one");
        interface.index = 1_000_000_009;
        let claim = SocketAddr::from_abstract_name("braid interface 1000000009").expect("a name");
        let _held = UnixListener::bind_addr(&claim).expect("nobody has it");
        let refused = Interfaces::of(&[]).check_free(&interface).expect_err("somebody has it");
        assert!(refused.what.starts_with("lo: another run of Braid has this interface"), "{refused:?}");
        assert!(refused.help.starts_with("nothing has changed; end that run, process "), "{refused:?}");
        let own = Interfaces(vec![Known { name: "lo".to_owned(), index: Some(interface.index) }]);
        assert!(own.check_free(&interface).is_ok());
    }

    #[test]
    fn an_interface_goes_on_under_the_name_that_it_has_now() {
        let mut plan = devices(&["af_packet:was0", "lo", "tap:was0"]);
        let index = Interface::stands("lo").expect("it can be asked").expect("every network namespace has one").index;
        let known = |name: &str, index| Known { name: name.to_owned(), index };
        let run = Interfaces(vec![known("was0", Some(index)), known("gone0", Some(u32::MAX)), known("tap0", None)]);
        assert_eq!(run.names().collect::<Vec<_>>(), ["lo", "gone0", "tap0"]);
        let refused = run.check(&plan).expect_err("it is called otherwise");
        assert!(refused.help.contains("write device = \"lo\""), "{refused:?}");
        assert_eq!(run.rename(&mut plan).len(), 1);
        let names: Vec<&str> = plan.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["lo", "lo", "was0"]);
    }
}
