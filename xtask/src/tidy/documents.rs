//! Rules about documents: links lead to files, commands keep their promised form, nothing is unfinished.

use super::{File, Finding};

/// Marks of unfinished work, spelled so that this file does not contain them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Finds marks of unfinished work in any text; unfinished work belongs in issues.
pub fn unfinished(file: &File) -> Vec<Finding> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let lines = file.text.lines().enumerate();
    let marked = lines.filter(|(_, line)| line.split(|c| !is_word(c)).any(|word| UNFINISHED.contains(&word)));
    marked.map(|(n, _)| file.at(n + 1, "a mark of unfinished work: finish it, or open an issue")).collect()
}

/// Words for a document that the repository does not have, spelled so that this file does not contain them.
const ABSENT: [&str; 2] = [concat!("DESIGN ", "section"), concat!("the design's ", "section")];

/// Finds references to a document that no reader can open.
pub fn absent(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().enumerate().filter(|(_, line)| ABSENT.iter().any(|words| line.contains(words)));
    lines.map(|(n, _)| file.at(n + 1, "refers to a document that is not in the repository")).collect()
}

/// Checks that relative links lead to files; `exists` answers for paths relative to the root.
pub fn links(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (number, line) in outside_code_blocks(&file.text) {
        for target in link_targets(line) {
            let path = target.split(['#', ' ']).next().unwrap_or_default();
            let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !elsewhere && !exists(format!("{folder}/{path}").trim_start_matches('/')) {
                findings.push(file.at(number, format!("link to {path}: no such file")));
            }
        }
    }
    findings
}

/// Number of characters in a line that can be reviewed, without the targets of links.
const LINE_ADVISED: usize = 200;

/// Points out a document with lines that are hard to read and to review, at the longest of them.
pub fn advice(file: &File) -> Option<Finding> {
    let targets = |line: &str| -> usize { link_targets(line).iter().map(|target| target.chars().count()).sum() };
    let lines = outside_code_blocks(&file.text).into_iter();
    let lengths = lines.map(|(number, line)| (line.chars().count() - targets(line), number));
    let long: Vec<(usize, usize)> = lengths.filter(|(length, _)| *length > LINE_ADVISED).collect();
    let (longest, number) = long.iter().max()?;
    let lines = long.len();
    Some(file.at(
        *number,
        format!("{longest} characters; {lines} lines have more than {LINE_ADVISED}, which are read at once"),
    ))
}

/// The targets in `](...)`, ignoring inline code.
fn link_targets(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned())).collect()
}

fn outside_code_blocks(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            lines.push((n + 1, line));
        }
    }
    lines
}

/// Checks that the README opens with two commands, the main use and the tests, and that continuous integration runs the second.
pub fn commands(files: &[File]) -> Vec<Finding> {
    let Some(readme) = files.iter().find(|file| file.path == "README.md") else {
        return vec![Finding { file: "README.md".into(), line: 1, message: "is missing".into() }];
    };
    let commands = first_block(&readme.text);
    let [_, test] = commands.as_slice() else {
        return vec![readme.at(1, format!("the first code block must hold two commands, it has {}", commands.len()))];
    };
    match files.iter().find(|file| file.path == ".ci/run") {
        Some(ci) if !ci.text.lines().any(|line| line.ends_with(test)) => {
            vec![ci.at(1, format!("does not run the README's test command: {test}"))]
        }
        Some(_) => Vec::new(),
        None => vec![readme.at(1, ".ci/run is missing")],
    }
}

/// The non-empty lines of the first fenced block.
fn first_block(text: &str) -> Vec<&str> {
    let fence = |line: &&str| line.trim_start().starts_with("```");
    let block = text.lines().skip_while(|line| !fence(line)).skip(1).take_while(|line| !fence(line));
    block.filter(|line| !line.trim().is_empty()).collect()
}
