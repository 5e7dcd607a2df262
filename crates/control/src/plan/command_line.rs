//! Settings from the command line, which override the plan file. A run keeps them, to apply them again whenever it reads the file again.
//!
//! It is laid over the file when a run begins, and when the run reads its file again ([`CommandLine::lay_over`]). The text of another plan
//! (`braid apply`) has the last word on all that can change while packets go through; the rest stays as the command line had it
//! ([`CommandLine::keep`]).

use toml::Spanned;

use super::file::{NfFile, PlanFile, Problem, unplaced};

/// Settings that override a plan file; none by default.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Its options, as a plan file that says nothing else and has no functions.
    pub keys: PlanFile,
    /// Keys of functions' configurations: `--set`.
    pub settings: Vec<Setting>,
}

/// A key of a function's configuration: `KEY=VALUE` for a chain of one function, `NAME.KEY=VALUE` for any chain.
#[derive(Clone, Debug)]
pub struct Setting {
    path: String,
    value: toml::Value,
    text: String,
}

impl Setting {
    /// Parses the argument of `--set`.
    pub fn parse(text: &str) -> Result<Setting, Problem> {
        let Some((path, value)) = text.split_once('=') else {
            return Err(Problem::new(format!("--set {text} has no `=`"), "write --set key=value"));
        };
        Ok(Setting { path: path.to_owned(), value: value_of(value), text: text.to_owned() })
    }

    fn lay_over(&self, file: &mut PlanFile) -> Result<(), Problem> {
        let Setting { path, value, text } = self;
        let name_of = |nf: &NfFile| nf.name.as_ref().unwrap_or(&nf.function).get_ref().clone();
        let alone = file.nf.len() == 1;
        let (name, key) = path.split_once('.').unwrap_or((path, ""));
        let named = file.nf.iter_mut().find(|nf| !key.is_empty() && name_of(nf) == name);
        match named {
            Some(nf) => nf.config.set(key, value.clone()),
            None if alone => file.nf[0].config.set(path, value.clone()),
            None => {
                let names: Vec<String> = file.nf.iter().map(name_of).collect();
                let what = format!("--set {text}: which function is meant?");
                return Err(Problem::new(what, format!("write NAME.KEY=VALUE with one of: {}", names.join(", "))));
            }
        }
        Ok(())
    }

    /// Whether a plan has another value there. A plan without that function has none.
    fn differs_in(&self, file: &PlanFile) -> bool {
        let mut laid = file.clone();
        let is_laid = self.lay_over(&mut laid).is_ok();
        is_laid && file.nf.iter().zip(&laid.nf).any(|(one, other)| one.config.table() != other.config.table())
    }
}

impl CommandLine {
    /// Replaces what the file says by what the command line says.
    pub fn lay_over(&self, file: &mut PlanFile) -> Result<(), Problem> {
        let keys = &self.keys;
        for (place, value) in numbers(file).into_iter().zip(numbers(&mut keys.clone())) {
            lay(place, value.take());
        }
        for (place, value) in words(file).into_iter().zip(words(&mut keys.clone())) {
            lay(place, value.take());
        }
        for (place, value) in truths(file).into_iter().zip(truths(&mut keys.clone())) {
            lay(place, value.take());
        }
        lay(&mut file.sets, keys.sets.clone());
        lay(&mut file.input.inside, keys.input.inside.clone());
        if keys.input.inside.is_some() {
            file.input.split.get_or_insert(unplaced("inside".to_owned()));
        }
        if !keys.input.from.is_empty() {
            file.lay_input(keys.input.from.clone());
        }
        if !keys.output.to.is_empty() {
            file.output.to.clone_from(&keys.output.to);
        }
        self.settings.iter().try_for_each(|setting| setting.lay_over(file))?;
        if !keys.port.is_empty() {
            file.lay_ports(keys.port.clone());
        }
        Ok(())
    }

    /// Removes from the file what the command line sets and what cannot change during a run; there the run keeps the values of `own`.
    /// Returns notes on the removed keys whose value differs from that.
    pub fn keep(&self, file: &mut PlanFile, own: &PlanFile) -> Vec<String> {
        let mut notes = Vec::new();
        let (mut keys, mut own) = (self.keys.clone(), own.clone());
        for (name, ((place, key), own)) in
            NUMBERS.iter().zip(numbers(file).into_iter().zip(numbers(&mut keys)).zip(numbers(&mut own)))
        {
            notes.extend(leave_out(name, place, key, own));
        }
        for (name, ((place, key), own)) in
            WORDS.iter().zip(words(file).into_iter().zip(words(&mut keys)).zip(words(&mut own)))
        {
            notes.extend(leave_out(name, place, key, own));
        }
        for (name, ((place, key), own)) in
            TRUTHS.iter().zip(truths(file).into_iter().zip(truths(&mut keys)).zip(truths(&mut own)))
        {
            notes.extend(leave_out(name, place, key, own));
        }
        let texts = |list: &[Spanned<String>]| list.iter().map(|one| one.get_ref().clone()).collect::<Vec<_>>();
        let devices = |file: &PlanFile| file.port.iter().map(|port| port.device.get_ref().clone()).collect::<Vec<_>>();
        let lists = [
            ("port", !keys.port.is_empty(), devices(file), devices(&own)),
            ("input.from", !keys.input.from.is_empty(), texts(&file.input.from), texts(&own.input.from)),
            ("output.to", !keys.output.to.is_empty(), texts(&file.output.to), texts(&own.output.to)),
        ];
        for (name, is_given, written, own) in lists {
            if is_given && !written.is_empty() && written != own {
                notes.push(stays(name, &own.join(", "), &written.join(", ")));
            }
        }
        if !keys.port.is_empty() {
            file.port.clear();
        }
        if !keys.input.from.is_empty() {
            file.input.from.clear();
        }
        if keys.input.inside.is_some() {
            file.input.inside = own.input.inside.take();
            file.input.split = own.input.split.take();
        }
        if !keys.output.to.is_empty() {
            file.output.to.clear();
        }
        notes
    }

    /// What the plan says otherwise although it could be as on the command line, as notes.
    pub fn overruled_by(&self, file: &PlanFile) -> Vec<String> {
        let sets = self.keys.sets.as_ref().map(|sets| *sets.get_ref());
        let sets = sets.filter(|sets| file.sets.as_ref().is_some_and(|written| written.get_ref() != sets));
        let settings = self.settings.iter().filter(|setting| setting.differs_in(file));
        let settings = settings.map(|setting| format!("--set {}", setting.text));
        let options = sets.map(|sets| format!("--sets {sets}")).into_iter().chain(settings);
        options.map(|option| format!("`{option}`, on the command line of the run, is not part of this plan")).collect()
    }
}

const NUMBERS: [&str; 5] = ["workers", "batch", "ports", "gather_us", "balance_every"];
const WORDS: [&str; 6] = ["time", "distribution", "pages", "nic", "user", "input.split"];
const TRUTHS: [&str; 2] = ["in_order", "balance"];

fn numbers(file: &mut PlanFile) -> [&mut Option<Spanned<i64>>; 5] {
    [&mut file.workers, &mut file.batch, &mut file.ports, &mut file.gather_us, &mut file.balance_every]
}

fn words(file: &mut PlanFile) -> [&mut Option<Spanned<String>>; 6] {
    let PlanFile { time, distribution, pages, nic, user, input, .. } = file;
    [time, distribution, pages, nic, user, &mut input.split]
}

fn truths(file: &mut PlanFile) -> [&mut Option<Spanned<bool>>; 2] {
    [&mut file.in_order, &mut file.balance]
}

fn lay<T>(place: &mut Option<T>, value: Option<T>) {
    *place = value.or(place.take());
}

/// Takes a key that the command line has too, in favour of what the run has; a note if the two differ.
fn leave_out<T: PartialEq + Clone + std::fmt::Display>(
    name: &str,
    place: &mut Option<Spanned<T>>,
    key: &Option<Spanned<T>>,
    own: &Option<Spanned<T>>,
) -> Option<String> {
    key.as_ref()?;
    let value = |of: &Option<Spanned<T>>| of.as_ref().map(|value| value.get_ref().clone());
    let written = std::mem::replace(place, own.as_ref().map(|own| unplaced(own.get_ref().clone())));
    let (written, own) = (value(&written)?, value(own)?);
    (written != own).then(|| stays(name, &own.to_string(), &written.to_string()))
}

fn stays(name: &str, own: &str, written: &str) -> String {
    format!("`{name}` stays {own}, since the command line of the run sets it; the plan says {written}")
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

    /// One worker and a smaller table than the file has, and another capture.
    fn typed() -> CommandLine {
        let keys = "workers = 1\nsets = 500\n[input]\nfrom = [\"typed.pcap\"]\n";
        let settings = vec![Setting::parse("udp_s=9").unwrap()];
        CommandLine { keys: PlanFile::parse(keys).unwrap(), settings }
    }

    const FILE: &str =
        "workers = 2\nbatch = 16\nsets = 900\n[input]\nfrom = [\"file.pcap\"]\n[[nf]]\nfunction = \"nat\"\n";

    #[test]
    fn a_command_line_replaces_what_the_file_says() {
        let mut file = PlanFile::parse(FILE).unwrap();
        typed().lay_over(&mut file).unwrap();
        let number = |value: &Option<Spanned<i64>>| value.as_ref().map(|value| *value.get_ref());
        assert_eq!([&file.workers, &file.batch, &file.sets].map(number), [Some(1), Some(16), Some(500)]);
        assert_eq!(file.input.from[0].get_ref(), "typed.pcap");
        assert_eq!(file.nf[0].config.table().get("udp_s"), Some(&toml::Value::Integer(9)));
    }

    #[test]
    fn what_cannot_change_stays_and_the_plan_has_its_way_with_the_rest() {
        let (mut own, mut file) = (PlanFile::parse(FILE).unwrap(), PlanFile::parse(FILE).unwrap());
        typed().lay_over(&mut own).unwrap();
        let notes = [typed().keep(&mut file, &own), typed().overruled_by(&file)].concat();
        let begins = ["`workers` stays 1,", "`input.from` stays typed.pcap,", "`--sets 500`,", "`--set udp_s=9`,"];
        assert_eq!(notes.len(), begins.len(), "{notes:?}");
        assert!(notes.iter().zip(begins).all(|(note, begin)| note.starts_with(begin)), "{notes:?}");
        assert_eq!((file.workers.map(|n| *n.get_ref()), file.sets.map(|n| *n.get_ref())), (Some(1), Some(900)));
        // A run that was continued with other workers keeps those.
        let (mut own, mut file) = (PlanFile::parse("workers = 4").unwrap(), PlanFile::parse(FILE).unwrap());
        own.input = PlanFile::parse(FILE).unwrap().input;
        typed().keep(&mut file, &own);
        assert_eq!(file.workers.map(|n| *n.get_ref()), Some(4));
    }
}
