//! Makes a validated plan from the command line: from a plan file or names of functions, overridden by options.

use std::path::{Path, PathBuf};

use braid_control::frames::Frames;
use braid_control::plan_file::{PlanFile, PortFile, place_of, unplaced};
use braid_control::runtime::io::Sink;
use braid_control::runtime::io::capture::CaptureReader;
use braid_control::{Carry, Catalog, Compiled, Plan, Problem};
use toml::Spanned;

use crate::args::{ChainArgs, InputArgs};
use crate::aside::asideln;
use crate::catalog::catalog;
use crate::failure::{Failure, Kind};
use crate::input::{Input, is_same_file, outputs, port_of, sink};

/// A plan file with overrides, and its path and text, which are kept for error messages.
pub struct Written {
    /// The plan file with the options applied.
    pub file: PlanFile,
    from: Option<(PathBuf, String)>,
}

impl Written {
    /// Reads the plan file, or makes one from the names of functions; then applies the options.
    pub fn read(chain: &ChainArgs, input: Option<&InputArgs>, to: &[String]) -> Result<Written, Failure> {
        let mut written = match &chain.plan {
            Some(path) => Written::of_file(path)?,
            None if chain.nf.is_empty() => {
                let help = "name a plan file, or functions in their order: --nf firewall,nat";
                return Err(Failure::usage("nothing to run: no chain is named", help));
            }
            None => {
                let names = chain.nf.iter().map(|name| name.trim());
                names.clone().try_for_each(|name| check_name(name, "--nf"))?;
                Written::of(PlanFile::of_functions(names))
            }
        };
        if chain.workers.len() > 1 {
            let help = "give one: several are for `braid model` and `braid bench`";
            return Err(Failure::usage("a run has one number of workers", help));
        }
        lay_over(&mut written.file, chain);
        set_keys(&mut written.file, &chain.set)?;
        if let Some(input) = input {
            lay_input_over(&mut written.file, input);
        }
        if !to.is_empty() {
            written.file.output.to = to.iter().cloned().map(unplaced).collect();
        }
        Ok(written)
    }

    /// Overrides the user that the run switches to.
    pub fn lay_user(&mut self, user: Option<&String>) {
        self.file.user = user.cloned().map(unplaced).or(self.file.user.take());
    }

    /// Replaces the ports of the file by interfaces; removes its input, its output and other settings for captures.
    pub fn lay_ports(&mut self, devices: &[String]) {
        if devices.is_empty() {
            return;
        }
        let port = |device: &String| PortFile { device: unplaced(device.clone()) };
        self.file.lay_ports(devices.iter().map(port).collect());
    }

    /// Wraps a plan that comes from no file.
    pub fn of(file: PlanFile) -> Written {
        Written { file, from: None }
    }

    /// Reads a plan file.
    pub fn of_file(path: &Path) -> Result<Written, Failure> {
        if path.is_file() && CaptureReader::open(path).is_ok() {
            let help = format!("name functions, and the capture behind --in: --nf forward --in {}", path.display());
            return Err(Failure::usage(format!("{}: this is a capture, and no plan file", path.display()), help));
        }
        let text = Failure::or_text(path).map_err(|failure| named_as_function(path).unwrap_or(failure))?;
        let file = PlanFile::parse(&text).map_err(|problem| Failure::of_plan(problem, Some((path, &text))))?;
        Ok(Written { file, from: Some((path.to_owned(), text)) })
    }

    /// Validates the plan.
    pub fn plan(&self, catalog: &Catalog) -> Result<Plan, Failure> {
        let mut file = self.file.clone();
        if file.ports.is_none() && file.port.is_empty() {
            // The number of ports can follow from files that are named for ports.
            let named = |texts: &[Spanned<String>]| {
                let port = |(i, text): (usize, &Spanned<String>)| port_of(text.get_ref()).map_or(i, |(port, _)| port);
                texts.iter().enumerate().map(port).max().map_or(0, |port| port as i64 + 1)
            };
            let ports = named(&file.input.from).max(named(&file.output.to));
            file.ports = (ports > 2).then_some(unplaced(ports));
        }
        Plan::new(&file, catalog).map_err(|problem| self.failure(problem))
    }

    /// Chooses the steering and makes the plan runnable.
    pub fn compile(&self, plan: &Plan, carry: Carry) -> Result<Compiled, Failure> {
        plan.compile(carry).map_err(|problem| self.failure(problem))
    }

    /// The input of the plan; prints notes about it.
    pub fn input(&self, plan: &Plan) -> Result<Input, Failure> {
        let input = Input::of(plan).map_err(|failure| failure.at(place_of(&self.file.input.from), self.text()))?;
        input.notes().iter().for_each(|note| asideln!("note: {note}"));
        Ok(input)
    }

    /// Rejects outputs that could not be written and, if there is an input, outputs that are also read.
    pub fn check_outputs(&self, plan: &Plan, input: Option<&Input>) -> Result<(), Failure> {
        let checked = outputs(plan, input).map(drop);
        checked.map_err(|failure| failure.at(place_of(&self.file.output.to), self.text()))
    }

    /// The sink of the plan.
    pub fn sink(&self, plan: &Plan, input: &Input) -> Result<Box<dyn Sink>, Failure> {
        sink(plan, input).map_err(|failure| failure.at(place_of(&self.file.output.to), self.text()))
    }

    /// Refuses to write `what` over the plan file, an input or an output.
    pub fn spared_by(&self, path: &Path, what: &str, plan: &Plan) -> Result<(), Failure> {
        let name = path.display();
        let file = |text: &str| PathBuf::from(port_of(text).map_or(text, |(_, file)| file));
        let mut read = self.from.iter().map(|(path, _)| path.clone()).chain(plan.from.iter().map(|text| file(text)));
        if read.any(|read| is_same_file(&read, path)) {
            let what = format!("{name} is to be read, and {what} to be written there");
            return Err(Failure::usage(what, "name another file: nothing was changed"));
        }
        let mut written = plan.to.iter().map(|path| file(&path.to_string_lossy()));
        if written.any(|written| written == path || is_same_file(&written, path)) {
            return Err(Failure::usage(
                format!("{name} is to be written twice"),
                format!("name another file for {what}"),
            ));
        }
        Ok(())
    }

    /// Reads the input into memory, at least one packet and at most `limit`; returns it with its name.
    pub fn frames(&self, plan: &Plan, limit: usize) -> Result<(Frames, String), Failure> {
        let input = self.input(plan)?;
        let frames = input.frames(limit)?;
        if frames.is_empty() {
            return Err(Failure::new(Kind::Io, format!("{}: no packet in it", input.name()), "name another input"));
        }
        self.check_ports(usize::from(frames.ports()), plan)?;
        Ok((frames, input.name()))
    }

    /// Rejects an input with more ports than the plan has.
    pub fn check_ports(&self, needed: usize, plan: &Plan) -> Result<(), Failure> {
        if needed <= usize::from(plan.ports) {
            return Ok(());
        }
        let what = format!("the input comes in by {needed} ports, but the plan has {}", plan.ports);
        let written = self.file.ports.as_ref().map_or(0..0, Spanned::span);
        let help = if written.is_empty() { format!("add --ports {needed}") } else { format!("write ports = {needed}") };
        Err(Failure::usage(what, help).at(written, self.text()))
    }

    /// Makes a failure from a problem, with its position in the plan file.
    pub fn failure(&self, problem: Problem) -> Failure {
        Failure::of_plan(problem, self.text())
    }

    fn text(&self) -> Option<(&Path, &str)> {
        self.from.as_ref().map(|(path, text)| (path.as_path(), text.as_str()))
    }
}

/// Rejects text that is obviously no function's name, with a better explanation than the catalog could give.
pub fn check_name(name: &str, option: &str) -> Result<(), Failure> {
    if name.is_empty() {
        let what = format!("a name behind {option} is empty");
        return Err(Failure::usage(what, "write names alone, with nothing before the first and behind the last"));
    }
    if name.ends_with(".toml") {
        let what = format!("`{name}` is a plan file, and {option} names functions");
        return Err(Failure::usage(what, format!("leave {option} out, and write the file alone")));
    }
    Ok(())
}

/// Explains a missing plan file whose name consists of names of functions that come with Braid.
fn named_as_function(path: &Path) -> Option<Failure> {
    let names = path.to_str().filter(|_| !path.exists())?;
    let catalog = catalog(Vec::new());
    names.split(',').all(|name| catalog.find(name).is_some()).then(|| {
        let what = format!("there is no plan file `{names}`");
        Failure::usage(what, format!("functions are named by --nf: write --nf {names}"))
    })
}

fn lay_over(file: &mut PlanFile, chain: &ChainArgs) {
    let numbers = [
        (&mut file.workers, chain.workers.first().copied()),
        (&mut file.ports, chain.ports),
        (&mut file.batch, chain.batch),
        (&mut file.sets, chain.sets),
        (&mut file.gather_us, chain.gather_us),
        (&mut file.balance_every, chain.balance_every),
    ];
    for (place, value) in numbers {
        if let Some(value) = value {
            *place = Some(unplaced(value));
        }
    }
    if chain.in_order {
        file.in_order = Some(unplaced(true));
    }
    if chain.balance {
        file.balance = Some(unplaced(true));
    }
    let words = [
        (&mut file.time, &chain.time),
        (&mut file.distribution, &chain.distribution),
        (&mut file.pages, &chain.pages),
        (&mut file.nic, &chain.nic),
    ];
    for (place, value) in words {
        if let Some(value) = value {
            *place = Some(unplaced(value.clone()));
        }
    }
}

fn lay_input_over(file: &mut PlanFile, input: &InputArgs) {
    if !input.from.is_empty() {
        file.input.from = input.from.iter().cloned().map(unplaced).collect();
    }
    if let Some(split) = &input.split {
        file.input.split = Some(unplaced(split.clone()));
    }
    if !input.inside.is_empty() {
        file.input.inside = Some(unplaced(input.inside.iter().cloned().map(unplaced).collect()));
        file.input.split.get_or_insert(unplaced("inside".to_owned()));
    }
}

/// Applies settings: `KEY=VALUE` for a chain of one function, `NAME.KEY=VALUE` for any chain.
fn set_keys(file: &mut PlanFile, settings: &[String]) -> Result<(), Failure> {
    for setting in settings {
        let Some((path, value)) = setting.split_once('=') else {
            return Err(Failure::usage(format!("--set {setting} has no `=`"), "write --set key=value"));
        };
        let value = value_of(value);
        let alone = file.nf.len() == 1;
        let name_of =
            |nf: &braid_control::plan_file::NfFile| nf.name.as_ref().unwrap_or(&nf.function).get_ref().clone();
        let (name, key) = path.split_once('.').unwrap_or((path, ""));
        let named = file.nf.iter_mut().find(|nf| !key.is_empty() && name_of(nf) == name);
        match named {
            Some(nf) => nf.config.set(key, value),
            None if alone => file.nf[0].config.set(path, value),
            None => {
                let names: Vec<String> = file.nf.iter().map(name_of).collect();
                let what = format!("--set {setting}: which function is meant?");
                return Err(Failure::usage(what, format!("write NAME.KEY=VALUE with one of: {}", names.join(", "))));
            }
        }
    }
    Ok(())
}

/// Parses a TOML value. Anything else is a string, or a list of strings in brackets, so that addresses need no quotes.
fn value_of(text: &str) -> toml::Value {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"));
    let parsed = parsed.ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    let list = || {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        let is_plain = !inner.contains(['[', ']', '{', '}', '"', '\'', '\n']);
        is_plain.then(|| toml::Value::Array(inner.split(',').map(|one| value_of(one.trim())).collect()))
    };
    parsed.or_else(list).unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_and_everything_else_is_text() {
        assert_eq!(value_of("3"), toml::Value::Integer(3));
        assert_eq!(value_of("true"), toml::Value::Boolean(true));
        assert_eq!(value_of("[\"a\"]").as_array().map(Vec::len), Some(1));
        assert_eq!(value_of("198.51.100.1").as_str(), Some("198.51.100.1"));
        assert_eq!(value_of("1\nworkers = 2").as_str(), Some("1\nworkers = 2"));
        let list = |text: &str| value_of(text).as_array().cloned().unwrap_or_default();
        assert_eq!(list("[198.51.100.1, 7]"), [toml::Value::from("198.51.100.1"), toml::Value::from(7)]);
        assert_eq!(list("[1\nworkers = 2]"), []);
        assert_eq!(value_of("[a, \"b\"").as_str(), Some("[a, \"b\""));
    }
}
