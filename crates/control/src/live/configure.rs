//! Reads and changes the configuration of one function of a running chain.
//!
//! This is for programs beside a run, such as `braid health`, that know one fact about it and must change nothing else. A change names the
//! configuration that it replaces and is refused if that has changed meanwhile (compare and swap).

use std::collections::BTreeSet;

use braid_runtime::Live;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::apply::{Applied, Changed, Current};
use super::protocol::Refused;
use crate::plan::file::Config;

/// Maximum number of differences named in one log line.
const TOLD_MAX: usize = 4;

/// A function of the chain, and how it is configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// What it is called in the plan.
    pub name: String,
    /// Which function it is.
    pub function: String,
    /// Its configuration as written: what it leaves open has its default.
    pub config: Table,
}

impl Current {
    /// The functions of this kind, or all if it is empty.
    pub fn configured(&self, function: &str) -> Vec<Configured> {
        let of_kind = self.plan.chain.iter().filter(|link| function.is_empty() || link.entry.name == function);
        let one = |link: &crate::PlannedFunction| Configured {
            name: link.name.clone(),
            function: link.entry.name.to_owned(),
            config: link.config.table(),
        };
        of_kind.map(one).collect()
    }

    /// Gives a function another configuration than `from`; after a refusal nothing has changed.
    pub fn configure(&mut self, live: &Live, name: &str, from: &Table, to: Table) -> Result<Applied, Refused> {
        let Some(at) = self.plan.chain.iter().position(|link| link.name == name) else {
            return Err(Refused::new(format!("no function of the chain is called `{name}`"), AGAIN));
        };
        if self.plan.chain[at].config.table() != *from {
            return Err(Refused::new(format!("`{name}` is configured otherwise by now"), AGAIN));
        }
        // A chain is built as a whole: what a file says by now would come into force with it.
        if let Some(link) = self.plan.chain.iter().find(|link| link.have_files_changed()) {
            let what = format!("a file that `{}` names has changed since it was applied", link.name);
            return Err(Refused::new(what, "nothing has changed; apply the plan first: `braid apply PLAN`"));
        }
        let (mut file, mut plan) = (self.file.clone(), self.plan.clone());
        let differs = plan.chain[at].config.table() != to;
        let config = Config::from(to);
        file.nf[at].config = config.clone();
        plan.chain[at].configure(config);
        let names = if differs { vec![name.to_owned()] } else { Vec::new() };
        let applied = self.exchange(live, (file, plan), Changed { any: differs, names }, "")?;
        self.written.entry(name.to_owned()).or_insert_with(|| from.clone());
        Ok(applied)
    }
}

const AGAIN: &str = "nothing has changed; ask for the configuration again";

/// What differs between two configurations, in a line: `service[0].backends[1].up = false`.
pub fn differences(from: &Table, to: &Table) -> String {
    let mut all = Vec::new();
    compare_tables("", from, to, &mut all);
    let more = all.len().saturating_sub(TOLD_MAX);
    all.truncate(TOLD_MAX);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

fn compare_tables(path: &str, from: &Table, to: &Table, all: &mut Vec<String>) {
    let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    for key in keys {
        let dot = if path.is_empty() { "" } else { "." };
        compare(&format!("{path}{dot}{key}"), from.get(key), to.get(key), all);
    }
}

fn compare(path: &str, from: Option<&Value>, to: Option<&Value>, all: &mut Vec<String>) {
    match (from, to) {
        (Some(Value::Table(from)), Some(Value::Table(to))) => compare_tables(path, from, to, all),
        (Some(Value::Array(from)), Some(Value::Array(to))) if from.len() == to.len() => {
            for (number, (from, to)) in from.iter().zip(to).enumerate() {
                compare(&format!("{path}[{number}]"), Some(from), Some(to), all);
            }
        }
        (from, to) if from == to => {}
        (_, Some(Value::Table(_) | Value::Array(_))) => all.push(format!("{path} is another")),
        (_, Some(to)) => all.push(format!("{path} = {}", to.to_string().replace('\n', " "))),
        (_, None) => all.push(format!("{path} left out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        let table = |text: &str| text.parse::<Table>().unwrap();
        assert_eq!(differences(&table(from), &table(to)), expected);
    }

    #[test]
    fn differences_are_told_with_their_path() {
        let service = "[[service]]\nbackends = [{ a = 1 }, { a = 2, up = true }]\n";
        check(service, service, "");
        check(service, &service.replace("true", "false"), "service[0].backends[1].up = false");
        check(service, &service.replace(", up = true", ""), "service[0].backends[1].up left out");
        check(service, &service.replace("{ a = 1 }, ", ""), "service[0].backends is another");
        let to = "a = 2\nb = 2\nc = \"x\"\nd = 1\ne = 1\nf = 1";
        check("a = 1\nb = 1\nc = 1", to, "a = 2, b = 2, c = \"x\", d = 1, 2 more");
    }
}
