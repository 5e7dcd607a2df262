//! The cost of observing a run: the counters that are always on, as instructions by source line, and a full profile, as time.

use std::collections::HashMap;

use super::{Counts, by_stage, can_count, per_packet};
use crate::shell;

/// Chains that are counted.
const CHAINS: [&str; 4] = ["firewall", "policer", "bridge", "nat"];
/// Maximum share of the counters in a packet's instructions, in percent.
const MOST: f64 = 1.0;
/// Source files whose only purpose is counting.
const FILES: [&str; 3] =
    ["runtime/src/observe/probe/mod.rs", "runtime/src/observe/counters.rs", "runtime/src/observe/aborts.rs"];
/// Text in a line of another file that marks the line as counting.
const WORDS: [&str; 2] = ["counters.", "probe."];

/// Prints both costs; an error if the counters take too much.
pub fn run() -> Result<(), String> {
    if !can_count()? {
        return Ok(());
    }
    shell::cargo(&["build", "--release", "--package", "braid-cli", "--bin", "braid"], &[])?;
    println!("always on: instructions a packet in lines that count or ask whether anybody profiles");
    for chain in CHAINS {
        let counts = per_packet("braid", chain, 1, by_purpose)?;
        let of = |what: &str| counts.get(what).copied().unwrap_or(0.0);
        let (counting, all) = (of("counting"), of("all"));
        let share = 100.0 * counting / all.max(1.0);
        println!("  {chain:<14} {counting:>6.2} of {all:>6.1}   {share:.2} %");
        if share > MOST {
            return Err(format!("{chain}: counters take {share:.2} % of a packet's instructions, {MOST} % at most"));
        }
    }
    println!("\na full profile: processor time");
    let mut study = std::process::Command::new(shell::built("braid"));
    shell::run(study.args(["study", "profiling", "--repeats", "5"]), "braid study profiling")
}

/// Instructions by stage, and those of lines that count. `fl=`, `fi=` and `fe=` name the file of the following cost lines.
fn by_purpose(profile: &str) -> Counts {
    let mut sources = Sources::default();
    let (mut counting, mut file, mut of_callee) = (0.0, "", false);
    for line in profile.lines() {
        if let Some(name) = ["fl=", "fi=", "fe="].iter().find_map(|prefix| line.strip_prefix(prefix)) {
            file = name;
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) && !std::mem::take(&mut of_callee) {
            let mut words = line.split(' ').map_while(|word| word.parse::<usize>().ok());
            if let (Some(number), Some(cost)) = (words.next(), words.next())
                && sources.counts(file, number)
            {
                counting += cost as f64;
            }
        }
    }
    let all = by_stage(profile).values().sum();
    Counts::from([("counting".to_owned(), counting), ("all".to_owned(), all)])
}

/// For each source file, which lines count; each file is read once.
#[derive(Default)]
struct Sources(HashMap<String, Vec<bool>>);

impl Sources {
    /// Whether this line of a file is for counting.
    fn counts(&mut self, file: &str, number: usize) -> bool {
        if !file.contains("runtime/src/") {
            return false;
        }
        let lines = self.0.entry(file.to_owned()).or_insert_with(|| {
            let is_all = FILES.iter().any(|name| file.ends_with(name));
            let text = std::fs::read_to_string(shell::root().join(file)).unwrap_or_default();
            text.lines().map(|line| is_all || WORDS.iter().any(|word| line.contains(word))).collect()
        });
        number.checked_sub(1).and_then(|at| lines.get(at)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_if_its_file_does_nothing_else_or_it_names_a_counter() {
        let profile = "fl=other.rs\nfn=<X as braid_io::source::RxQueue>::receive\n10 5\n\
                       fi=crates/runtime/src/observe/counters.rs\n11 7\nfe=other.rs\n12 100\n";
        let counts = by_purpose(profile);
        assert_eq!((counts["counting"], counts["all"]), (7.0, 112.0));
    }
}
