//! The backends to check according to the plan file, their last results, and where they are in the running chain.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use braid_control::PlanFile;
use braid_control::live::{Configured, Told};
use braid_functions::load_balancer::{self, Backend, Check, Service, Transport};
use toml::{Table, Value};

use super::Target;
use crate::failure::Failure;
use crate::stderr::asideln;

/// Maximum number of backends to check; each has a thread.
const TARGETS_MAX: usize = 4096;

/// The function whose backends are checked.
pub(crate) const BALANCER: &str = "load_balancer";

/// A plan's backends and what is known of them.
#[derive(Debug)]
pub(super) struct Known {
    /// The plan as it was written.
    written: String,
    targets: Vec<Target>,
}

impl Known {
    /// A plan of which nothing is known but what it says.
    pub(super) fn read(path: &Path) -> Result<Known, Failure> {
        let text = Failure::or_text(path)?;
        PlanFile::parse(&text).map_err(|problem| Failure::of_plan(problem, Some((path, &text))))?;
        Known::of(text)
    }

    fn of(written: String) -> Result<Known, Failure> {
        let plan: Table = written
            .parse()
            .map_err(|error: toml::de::Error| Failure::usage(error.to_string(), "`braid plan` shows the place"))?;
        let targets = checked(&plan)?;
        match targets.len() {
            0 => {
                let help = "write check = { kind = \"http\", path = \"/health\" } in a [[nf.config.service]] of a load_balancer";
                Err(Failure::usage("no service of this plan says how to check its backends", help))
            }
            n if n > TARGETS_MAX => {
                let help = "let monitors of your own tell the load balancer (heartbeat_port, monitors)";
                Err(Failure::usage(format!("{n} backends are too many: at most {TARGETS_MAX} are checked"), help))
            }
            _ => Ok(Known { written, targets }),
        }
    }

    /// Reads the plan file again, keeping the results of backends that are still in it; `None` if it is unchanged or unreadable.
    pub(super) fn read_again(&mut self, path: &Path) -> Option<Known> {
        // A file that is being replaced may not be there for a moment.
        let text = std::fs::read_to_string(path).ok().filter(|text| *text != self.written)?;
        self.written.clone_from(&text);
        match Known::read(path) {
            Ok(mut next) => {
                let known: HashMap<_, _> = self.targets.iter().map(|was| ((&was.name, was.end), was.up)).collect();
                for now in &mut next.targets {
                    now.up = known.get(&(&now.name, now.end)).copied().unwrap_or(now.up);
                }
                Some(next)
            }
            Err(failure) => {
                asideln!("note: the changed plan file is refused, and the previous one is still used: {failure}");
                None
            }
        }
    }

    /// The backends to check.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Records the result for the backend with this number.
    pub(super) fn set(&mut self, target: usize, up: bool) {
        self.targets[target].up = up;
    }

    /// Takes over the states that the run has; they hold until the first check.
    pub(super) fn believe(&mut self, run: &[Configured]) {
        let told: HashMap<_, _> = run.iter().flat_map(backends).map(|(_, name, up)| (name, up)).collect();
        for target in &mut self.targets {
            target.up = told.get(&target.name).copied().unwrap_or(target.up);
        }
    }

    /// The configuration of a running function with the results for its backends, whose names are removed from `missing`.
    pub(super) fn laid_over(&self, run: &Configured, missing: &mut BTreeSet<&str>) -> Table {
        let found: HashMap<&str, bool> = self.targets.iter().map(|target| (&*target.name, target.up)).collect();
        let mut config = run.config.clone();
        for (place, name, up) in backends(run) {
            let Some(is_up) = found.get(&*name) else { continue };
            missing.remove(&*name);
            if let Some(backend) = backend(&mut config, place).filter(|_| up != *is_up) {
                backend.insert("up".to_owned(), Value::Boolean(*is_up));
            }
        }
        config
    }
}

/// What a backend is called in any plan that has it: by its function, its service and its own address and port.
fn name(function: &str, service: &Service, backend: &Backend) -> String {
    let protocol = match service.protocol {
        None => "",
        Some(Transport::Tcp) => " (tcp)",
        Some(Transport::Udp) => " (udp)",
    };
    let port = backend.port.map_or(String::new(), |port| format!(" port {port}"));
    let (own, address, ports) = (backend.address, service.address, service.ports());
    format!("backend {own}{port} of {address}, {ports}{protocol}, of `{function}`")
}

/// All backends of a function that runs: numbers of their services and their own, their names, whether they are up.
fn backends(run: &Configured) -> Vec<((usize, usize), String, bool)> {
    // A run of another version may have keys that this one does not know; then it has no backend to check.
    let config: Option<load_balancer::Config> = braid_functions::parse(run.config.clone()).ok();
    let services = config.map_or(Vec::new(), |config| config.services);
    let of_service = |(at, service): (usize, &Service)| {
        let of = |(number, backend): (usize, &Backend)| ((at, number), name(&run.name, service, backend), backend.up);
        service.backends.iter().enumerate().map(of).collect::<Vec<_>>()
    };
    services.iter().enumerate().flat_map(of_service).collect()
}

/// Keeps in another plan which backends are up, as far as that plan says of them what the plan before had said: what was found since by
/// asking them is no part of either.
pub(crate) fn keep(told: &Told<'_>, wanted: &mut Table) {
    let configured = |config: &Table| Configured {
        name: BALANCER.to_owned(),
        function: BALANCER.to_owned(),
        config: config.clone(),
    };
    let by_name = |config: &Table| -> HashMap<String, (Option<Value>, bool)> {
        let (all, mut config) = (backends(&configured(config)), config.clone());
        let mut up_of = |place| backend(&mut config, place).and_then(|backend| backend.get("up").cloned());
        all.into_iter().map(|(place, name, up)| (name, (up_of(place), up))).collect()
    };
    let (written, running) = (by_name(told.written), by_name(told.running));
    for (place, name, up) in backends(&configured(wanted)) {
        let same = written.get(&name).filter(|(_, was)| *was == up).and_then(|_| running.get(&name));
        if let Some((Some(now), _)) = same
            && let Some(backend) = backend(wanted, place)
        {
            backend.insert("up".to_owned(), now.clone());
        }
    }
}

/// A backend in a configuration, by the numbers of its service and its own.
fn backend(config: &mut Table, (service, backend): (usize, usize)) -> Option<&mut Table> {
    config.get_mut("service")?.get_mut(service)?.get_mut("backends")?.get_mut(backend)?.as_table_mut()
}

/// All backends of services with a check.
fn checked(plan: &Table) -> Result<Vec<Target>, Failure> {
    let functions = plan.get("nf").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut all = Vec::new();
    for nf in functions {
        let text = |key| nf.get(key).and_then(Value::as_str);
        let Some(function) = text("function").filter(|name| name.replace('-', "_") == BALANCER) else { continue };
        let config = nf.get("config").and_then(Value::as_table).cloned().unwrap_or_default();
        let config: load_balancer::Config = braid_functions::parse(config)
            .map_err(|error| Failure::usage(error.to_string(), "`braid plan` shows the place"))?;
        for service in &config.services {
            let Some(check) = &service.check else { continue };
            for backend in &service.backends {
                let name = name(text("name").unwrap_or(function), service, backend);
                all.push(target((all.len(), name), service, backend, check)?);
            }
        }
    }
    Ok(all)
}

fn target(
    (number, name): (usize, String),
    service: &Service,
    backend: &Backend,
    check: &Check,
) -> Result<Target, Failure> {
    let port = check.port.or(backend.port).or(service.ports().only()).ok_or_else(|| {
        Failure::usage(format!("no port to check {} at", backend.address), "write a `port` into its check")
    })?;
    Ok(Target { number, name, end: (backend.address, port).into(), check: check.clone(), up: backend.up })
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

    /// The functions of a plan that runs.
    fn running(plan: &str) -> Vec<Configured> {
        let plan: Table = plan.parse().unwrap();
        let one = |nf: &Value| Configured {
            name: nf.get("name").unwrap_or(&nf["function"]).as_str().unwrap().to_owned(),
            function: nf["function"].as_str().unwrap().to_owned(),
            config: nf.get("config").and_then(Value::as_table).cloned().unwrap_or_default(),
        };
        let all = plan["nf"].as_array().unwrap().iter().map(one);
        all.filter(|one| one.function == BALANCER).collect()
    }

    #[test]
    fn another_plan_keeps_what_was_found_and_has_its_way_with_what_it_changes() {
        let table = |backends: &str| -> Table {
            let service = "[[service]]\naddress = \"203.0.113.10\"\nport = 80\n";
            format!("{service}backends = [{backends}]").parse().unwrap()
        };
        let check = |written: &str, running: &str, wanted: &str, expected: &str| {
            let [written, running, mut wanted, expected] = [written, running, wanted, expected].map(table);
            keep(&Told { function: BALANCER, written: &written, running: &running }, &mut wanted);
            assert_eq!(wanted, expected);
        };
        let one = |last: u8, more: &str| format!("{{ address = \"10.0.0.{last}\"{more} }}");
        let [plain, down, up] = [one(1, ""), one(1, ", up = false"), one(1, ", up = true")];
        // The same plan again.
        check(&plain, &down, &plain, &down);
        check(&plain, &up, &plain, &up);
        check(&down, &up, &down, &up);
        // A plan with another weight, behind a backend that is new.
        let (other, found) = (one(1, ", weight = 3"), one(1, ", weight = 3, up = false"));
        let new = one(2, "");
        check(&plain, &down, &format!("{new}, {other}"), &format!("{new}, {found}"));
        // A plan that says otherwise than the plan before.
        check(&plain, &up, &down, &down);
        check(&down, &down, &plain, &plain);
    }

    #[test]
    fn backends_are_asked_where_the_check_the_backend_or_the_service_says() {
        let mut known = Known::of(PLAN.to_owned()).unwrap();
        assert_eq!(told(&known), ["10.0.0.1:8080 true", "10.0.0.2:80 false", "10.0.0.3:22 true"]);
        known.set(0, false);
        known.set(1, true);
        assert_eq!(told(&known), ["10.0.0.1:8080 false", "10.0.0.2:80 true", "10.0.0.3:22 true"]);
        assert!(Known::of(String::new()).is_err(), "nobody to ask");
    }

    #[test]
    fn nothing_but_the_state_of_backends_that_are_asked_changes_in_what_runs() {
        let mut known = Known::of(PLAN.to_owned()).unwrap();
        known.set(0, false);
        known.set(1, true);
        // Another order, other weights, another backend, one that is not checked, and one that has gone.
        let runs = PLAN
            .replace(
                "{ address = \"10.0.0.1\", port = 8080 }",
                "{ address = \"10.0.0.9\" }, { address = \"10.0.0.1\", port = 8080, weight = 0 }",
            )
            .replace("[{ address = \"10.0.0.3\" }]", "[{ address = \"10.0.0.4\", up = false }]");
        let run = &running(&runs)[0];
        let mut missing: BTreeSet<&str> = known.targets().iter().map(|target| &*target.name).collect();
        let laid_over = known.laid_over(run, &mut missing);
        let expected = runs
            .replace("weight = 0 }", "weight = 0, up = false }")
            .replace("\"10.0.0.2\", up = false", "\"10.0.0.2\", up = true");
        assert_eq!(laid_over, running(&expected)[0].config);
        assert_eq!(
            missing.into_iter().collect::<Vec<_>>(),
            ["backend 10.0.0.3 of 203.0.113.11, all ports, of `load_balancer`"]
        );
        // Another service at another port, under another name of the function: nobody of ours.
        let other = running(&runs.replace("port = 80\n", "port = 81\n"));
        assert_eq!(known.laid_over(&other[0], &mut BTreeSet::new()), other[0].config);
        let other =
            running(&runs.replace("function = \"load_balancer\"", "function = \"load_balancer\"\nname = \"lb\""));
        assert_eq!(known.laid_over(&other[0], &mut BTreeSet::new()), other[0].config);
    }

    #[test]
    fn what_the_run_was_told_before_is_believed() {
        let mut known = Known::of(PLAN.to_owned()).unwrap();
        known.believe(&running(
            &PLAN.replace("\"10.0.0.2\", up = false", "\"10.0.0.2\"").replace("port = 8080", "port = 8080, up = false"),
        ));
        assert_eq!(told(&known), ["10.0.0.1:8080 false", "10.0.0.2:80 true", "10.0.0.3:22 true"]);
    }

    #[test]
    fn a_plan_that_has_changed_keeps_what_is_known_of_its_backends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        let mut known = Known::of(PLAN.to_owned()).unwrap();
        known.set(0, false);
        known.set(1, true);
        let more = "backends = [{ address = \"10.0.0.9\" }, { address = \"10.0.0.1\", weight = 0, port = 8080 }";
        std::fs::write(&path, PLAN.replace("backends = [{ address = \"10.0.0.1\", port = 8080 }", more)).unwrap();
        let next = known.read_again(&path).unwrap();
        assert_eq!(told(&next), ["10.0.0.9:80 true", "10.0.0.1:8080 false", "10.0.0.2:80 true", "10.0.0.3:22 true"]);
    }
}
