//! Makes a validated plan from the command line: from a plan file or names of functions, overridden by options.

use std::path::{Path, PathBuf};

use braid_control::frames::Frames;
use braid_control::plan::PORTS_MAX;
use braid_control::plan::command_line::{CommandLine, Setting};
use braid_control::plan::file::{InputFile, OutputFile, PlanFile, place_of, unplaced};
use braid_control::runtime::io::Sink;
use braid_control::runtime::io::capture::{CaptureReader, Damage};
use braid_control::{Carry, Catalog, Compiled, Plan, Problem};
use toml::Spanned;

use crate::args::{ChainArgs, InputArgs};
use crate::catalog::catalog;
use crate::failure::{Failure, Kind};
use crate::input::{Input, is_same_file, outputs, port_of, sink};
use crate::stderr::asideln;

/// A plan file with overrides, and its path and text, which are kept for error messages.
pub struct Written {
    /// The plan file with the options applied.
    pub file: PlanFile,
    from: Option<(PathBuf, String)>,
}

impl Written {
    /// Reads the plan file, or makes one from the names of functions; then applies the options.
    pub fn read(chain: &ChainArgs, input: Option<&InputArgs>, to: &[String]) -> Result<Written, Failure> {
        Written::under(chain, &command_line(chain, input, to)?)
    }

    /// The same with all that the command line says.
    pub fn under(chain: &ChainArgs, command_line: &CommandLine) -> Result<Written, Failure> {
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
        command_line.lay_over(&mut written.file).map_err(|problem| Failure::of_plan(problem, None))?;
        Ok(written)
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

    /// Reads the input into memory, at least one packet and at most `limit`; returns it with its name and where it is damaged.
    pub fn frames(&self, plan: &Plan, limit: usize) -> Result<(Frames, String, Vec<Damage>), Failure> {
        let input = self.input(plan)?;
        let (frames, damages) = input.frames(limit)?;
        if frames.is_empty() {
            return Err(Failure::new(Kind::Io, format!("{}: no packet in it", input.name()), "name another input"));
        }
        self.check_ports(frames.ports(), plan)?;
        Ok((frames, input.name(), damages))
    }

    /// Rejects an input with more ports than the plan has.
    pub fn check_ports(&self, needed: usize, plan: &Plan) -> Result<(), Failure> {
        if needed <= usize::from(plan.ports) {
            return Ok(());
        }
        let what = format!("the input comes in by {needed} ports, but the plan has {}", plan.ports);
        let written = self.file.ports.as_ref().map_or(0..0, Spanned::span);
        let help = match written.is_empty() {
            _ if needed as i64 > PORTS_MAX => format!("a plan has at most {PORTS_MAX}: split the input otherwise"),
            true => format!("add --ports {needed}"),
            false => format!("write ports = {needed}"),
        };
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

/// What the command line says over the plan file.
pub fn command_line(chain: &ChainArgs, input: Option<&InputArgs>, to: &[String]) -> Result<CommandLine, Failure> {
    if chain.workers.len() > 1 {
        let help = "give one: several are for `braid model` and `braid bench`";
        return Err(Failure::usage("a run has one number of workers", help));
    }
    let number = |value: Option<i64>| value.map(unplaced);
    let word = |value: &Option<String>| value.clone().map(unplaced);
    let texts = |list: &[String]| list.iter().cloned().map(unplaced).collect::<Vec<_>>();
    let input = input.map_or_else(InputFile::default, |input| InputFile {
        from: texts(&input.from),
        split: word(&input.split),
        inside: (!input.inside.is_empty()).then(|| unplaced(texts(&input.inside))),
    });
    let keys = PlanFile {
        workers: number(chain.workers.first().copied()),
        ports: number(chain.ports),
        batch: number(chain.batch),
        sets: number(chain.sets),
        gather_us: number(chain.gather_us),
        balance_every: number(chain.balance_every),
        in_order: chain.in_order.then(|| unplaced(true)),
        balance: chain.balance.then(|| unplaced(true)),
        time: word(&chain.time),
        distribution: word(&chain.distribution),
        pages: word(&chain.pages),
        nic: word(&chain.nic),
        input,
        output: OutputFile { to: texts(to) },
        ..PlanFile::default()
    };
    let settings = chain.set.iter().map(|text| Setting::parse(text)).collect::<Result<_, _>>();
    Ok(CommandLine { keys, settings: settings.map_err(|problem| Failure::of_plan(problem, None))? })
}
