//! Runs the binary in a folder of its own.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod running;
pub mod within;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder and the binary.
pub struct Braid {
    folder: PathBuf,
    /// Removes the folder in the end, if it is the test's own.
    own: Option<tempfile::TempDir>,
}

impl Braid {
    pub fn new() -> Braid {
        let own = tempfile::tempdir().expect("a folder for the test");
        Braid { folder: own.path().to_owned(), own: Some(own) }
    }

    /// In a folder that is there.
    pub fn at(folder: PathBuf) -> Braid {
        Braid { folder, own: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the folder can be written to");
    }

    /// The command, words separated by spaces.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(line.split_whitespace()).current_dir(&self.folder);
        command
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the binary runs")
    }

    /// Standard output of a command that has to succeed.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "braid {line}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same as JSON.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).expect("one JSON value")
    }

    /// Standard error of a command that has to fail with an exit code.
    #[track_caller]
    pub fn fails(&self, code: i32, line: &str) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "braid {line}\n{text}");
        text
    }
}

/// Checks that every packet is accounted for.
#[track_caller]
pub fn conserved(report: &Value) {
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("`{key}` is missing in {report}"));
    let dropped: u64 = report["dropped"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    assert_eq!(number("packets_in") + number("packets_copied"), number("packets_out") + dropped, "{report}");
    let shares: u64 = report["workers"].as_array().expect("workers").iter().filter_map(|w| w["packets"].as_u64()).sum();
    let undelivered = report["dropped_by_nf"]["source"].as_object();
    let undelivered: u64 = undelivered.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    assert_eq!(shares + undelivered, number("packets_in"), "{report}");
    let sets = |key: &str| report["sets"][key].as_u64().expect("sets");
    assert_eq!(sets("created"), sets("expired") + sets("live"), "{report}");
}
