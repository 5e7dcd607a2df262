//! The plan whose backends are checked: as its file describes them, with what has been found since.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use braid_control::PlanFile;
use braid_functions::load_balancer::{self, Backend, Check, Ports, Service};
use toml::{Table, Value};

use super::Target;
use crate::aside::asideln;
use crate::failure::{Failure, Kind};

/// Maximum number of backends that are checked, because each has a thread.
const TARGETS_MAX: usize = 4096;

/// The position of a backend in a plan: indices of its function, its service, and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    function: usize,
    service: usize,
    backend: usize,
}

/// A plan and what is known about its backends.
#[derive(Debug)]
pub(super) struct Known {
    /// The text of the plan file.
    written: String,
    plan: Table,
    targets: Vec<Target>,
    /// The identity of each backend across plans: its service, and the address where it is checked.
    names: Vec<(IpAddr, Option<Ports>, SocketAddr)>,
}

impl Known {
    /// Reads a plan, without further knowledge about its backends.
    pub(super) fn read(path: &Path) -> Result<Known, Failure> {
        let text = Failure::or_text(path)?;
        PlanFile::parse(&text).map_err(|problem| Failure::of_plan(problem, Some((path, &text))))?;
        Known::of(text)
    }

    fn of(written: String) -> Result<Known, Failure> {
        let plan: Table = written.parse().map_err(|error: toml::de::Error| Failure::usage(error.to_string(), ""))?;
        let (mut targets, mut names) = (Vec::new(), Vec::new());
        for (place, service, backend, check) in checked(&plan)? {
            let target = target(place, &service, &backend, &check)?;
            names.push((service.address, service.port, target.end));
            targets.push(target);
        }
        match targets.len() {
            0 => {
                let help = "write check = { kind = \"http\", path = \"/health\" } in a [[nf.config.service]] of a load_balancer";
                Err(Failure::usage("no service of this plan says how its backends are asked", help))
            }
            n if n > TARGETS_MAX => {
                let help = "let monitors of your own tell the load balancer (heartbeat_port, monitors)";
                Err(Failure::usage(format!("{n} backends are too many: {TARGETS_MAX} are asked at most"), help))
            }
            _ => Ok(Known { written, plan, targets, names }),
        }
    }

    /// Rereads the plan file, and keeps the knowledge about backends that it still contains. `None` if the
    /// file has not changed or cannot be read.
    pub(super) fn read_again(&mut self, path: &Path) -> Option<Known> {
        // While the file is being replaced, it may be missing for a moment.
        let text = std::fs::read_to_string(path).ok().filter(|text| *text != self.written)?;
        self.written.clone_from(&text);
        match Known::read(path) {
            Ok(mut next) => {
                next.learn(self);
                Some(next)
            }
            Err(failure) => {
                asideln!("note: the plan has changed, and the former one goes on: {failure}");
                None
            }
        }
    }

    fn learn(&mut self, former: &Known) {
        let known: HashMap<_, _> = former.names.iter().zip(&former.targets).map(|(name, was)| (name, was.up)).collect();
        let found: Vec<(Place, bool)> = self
            .names
            .iter()
            .zip(&self.targets)
            .filter_map(|(name, now)| Some((now.place, *known.get(name)?)))
            .collect();
        found.into_iter().for_each(|(place, up)| self.set(place, up));
    }

    /// The backends that are checked.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Records what was found about a backend.
    pub(super) fn set(&mut self, place: Place, up: bool) {
        let Place { function, service, backend } = place;
        self.targets.iter_mut().filter(|target| target.place == place).for_each(|target| target.up = up);
        let config = self.plan.get_mut("nf").and_then(|nf| nf.get_mut(function)).and_then(|nf| nf.get_mut("config"));
        let services =
            config.and_then(|config| config.get_mut("service")).and_then(|services| services.get_mut(service));
        let backend = services.and_then(|service| service.get_mut("backends")).and_then(|list| list.get_mut(backend));
        if let Some(backend) = backend.and_then(Value::as_table_mut) {
            backend.insert("up".to_owned(), Value::Boolean(up));
        }
    }

    /// The text of the plan with everything that was found.
    pub(super) fn text(&self) -> Result<String, Failure> {
        toml::to_string(&self.plan).map_err(|error| Failure::new(Kind::Failed, error.to_string(), ""))
    }
}

/// All backends of services with a check.
fn checked(plan: &Table) -> Result<Vec<(Place, Service, Backend, Check)>, Failure> {
    let functions = plan.get("nf").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let balancers = functions.iter().enumerate().filter(|(_, nf)| {
        nf.get("function").and_then(Value::as_str).is_some_and(|name| name.replace('-', "_") == "load_balancer")
    });
    let mut all = Vec::new();
    for (function, nf) in balancers {
        let config = nf.get("config").and_then(Value::as_table).cloned().unwrap_or_default();
        let config: load_balancer::Config =
            braid_functions::parse(config).map_err(|error| Failure::usage(error.to_string(), ""))?;
        for (number, service) in config.services.iter().enumerate() {
            let Some(check) = &service.check else { continue };
            for (backend, server) in service.backends.iter().enumerate() {
                let place = Place { function, service: number, backend };
                all.push((place, service.clone(), server.clone(), check.clone()));
            }
        }
    }
    Ok(all)
}

fn target(place: Place, service: &Service, backend: &Backend, check: &Check) -> Result<Target, Failure> {
    let port = check.port.or(backend.port).or(service.ports().only()).ok_or_else(|| {
        Failure::usage(format!("{} is asked at no port", backend.address), "write a `port` into its check")
    })?;
    Ok(Target { place, end: (backend.address, port).into(), check: check.clone(), up: backend.up, written: backend.up })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        [[nf]]
        function = "firewall"
        [[nf]]
        function = "load_balancer"
        [[nf.config.service]]
        address = "203.0.113.10"
        port = 80
        check = { kind = "http", path = "/health" }
        backends = [{ address = "10.0.0.1", port = 8080 }, { address = "10.0.0.2", up = false }]
        [[nf.config.service]]
        address = "203.0.113.11"
        check = { port = 22 }
        backends = [{ address = "10.0.0.3" }]
        [[nf.config.service]]
        address = "203.0.113.12"
        backends = [{ address = "10.0.0.4" }]
    "#;

    fn told(known: &Known) -> Vec<String> {
        known.targets().iter().map(|target| format!("{} {}", target.end, target.up)).collect()
    }

    #[test]
    fn backends_are_asked_where_the_check_the_backend_or_the_service_says() {
        let mut known = Known::of(PLAN.to_owned()).unwrap();
        assert_eq!(told(&known), ["10.0.0.1:8080 true", "10.0.0.2:80 false", "10.0.0.3:22 true"]);
        let places: Vec<_> = known.targets().iter().map(|target| target.place).collect();
        for (place, up) in places.into_iter().zip([false, true, true]) {
            known.set(place, up);
        }
        let found = ["10.0.0.1:8080 false", "10.0.0.2:80 true", "10.0.0.3:22 true"];
        assert_eq!(told(&known), found);
        assert_eq!(told(&Known::of(known.text().unwrap()).unwrap()), found, "the plan says the same");
        assert!(Known::of(String::new()).is_err(), "nobody to ask");
    }

    #[test]
    fn a_plan_that_has_changed_keeps_what_is_known_of_its_backends() {
        let mut known = Known::of(PLAN.to_owned()).unwrap();
        let places: Vec<_> = known.targets().iter().map(|target| target.place).collect();
        known.set(places[0], false);
        known.set(places[1], true);
        let more = "backends = [{ address = \"10.0.0.9\" }, { address = \"10.0.0.1\", weight = 0, port = 8080 }";
        let text = PLAN.replace("backends = [{ address = \"10.0.0.1\", port = 8080 }", more);
        let mut next = Known::of(text).unwrap();
        next.learn(&known);
        assert_eq!(told(&next), ["10.0.0.9:80 true", "10.0.0.1:8080 false", "10.0.0.2:80 true", "10.0.0.3:22 true"]);
        assert!(next.text().unwrap().contains("weight = 0"), "and what it says anew");
    }
}
