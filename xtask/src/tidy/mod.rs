//! The project's own rules, which no compiler checks, as a test.
//!
//! Every rule is a function from text to [`Finding`]s, so that it can be tested on a few lines. This file reads the tree and passes
//! each file to the rules that apply to it. A finding fails the run; advice is only printed.

mod documents;
mod layers;
mod lexer;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::shell;

/// A broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    file: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// What the rules report about the tree.
#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
    advice: Vec<Finding>,
}

/// One file of the tree.
pub struct File {
    /// Path relative to the root, with forward slashes.
    path: String,
    text: String,
}

impl File {
    fn at(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { file: self.path.clone(), line, message: message.into() }
    }
}

/// Checks the tree and prints the findings.
pub fn run() -> Result<(), String> {
    eprintln!("── tidy");
    let report = check(&shell::root())?;
    for advice in &report.advice {
        eprintln!("   advice: {advice}");
    }
    match report.findings.as_slice() {
        [] => Ok(()),
        findings => {
            findings.iter().for_each(|finding| eprintln!("   {finding}"));
            Err(format!("tidy: {} broken rules", findings.len()))
        }
    }
}

fn check(root: &Path) -> Result<Report, String> {
    let files = read_tree(root)?;
    let mut report = Report::default();
    for file in &files {
        report.findings.extend(documents::unfinished(file));
        if file.path.ends_with(".rs") {
            let roots_unsafe = layers::may_hold_unsafe(&files, &file.path);
            report.findings.extend(source::check(file, roots_unsafe));
            report.advice.extend(source::advice(file));
        }
        if file.path.ends_with(".md") {
            report.findings.extend(documents::absent(file));
            report.advice.extend(documents::advice(file));
            report.findings.extend(documents::links(file, &|target| root.join(target).exists()));
        }
    }
    report.findings.extend(layers::check(&files));
    report.findings.extend(documents::commands(&files));
    Ok(report)
}

/// Folders whose content was not written by people.
const LEFT_OUT: [&str; 6] = ["target", ".git", "out", "corpus", "artifacts", "node_modules"];

fn read_tree(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !LEFT_OUT.contains(&name.as_str()) {
                    folders.push(path);
                }
                continue;
            }
            let Ok(relative) = path.strip_prefix(root) else { continue };
            // Files that are not text (captures) have no rules.
            if let Ok(text) = std::fs::read_to_string(&path) {
                files.push(File { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::read_dir(folder).map_err(failed)?.map(|entry| entry.map(|e| e.path()).map_err(failed)).collect()
}
