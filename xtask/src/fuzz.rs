//! Coverage-guided fuzzing on stable Rust.
//!
//! libFuzzer needs only the compiler's coverage instrumentation, which stable Rust provides as a pass of its back end. Only the
//! sanitizers need nightly Rust, and safe code gains little from them. The crate `fuzz/` is outside the workspace, so that no other
//! build includes the instrumentation or needs a C++ compiler.

use std::process::Command;

use crate::shell;

/// How long a target runs by default, in minutes.
pub const MINUTES: u32 = 5;

const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Clink-dead-code \
    -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on";

/// Parses the argument of `--minutes`.
pub fn minutes(text: &str) -> Result<u32, String> {
    // libFuzzer interprets 0 as forever.
    let number = text.parse().ok().filter(|minutes| *minutes > 0);
    number.ok_or_else(|| format!("--minutes {text}: write a whole number of minutes, as in --minutes 60"))
}

/// Builds the target and runs it. New inputs go to `target/fuzz/<target>`; the committed corpus is only
/// read. An input that takes a minute counts as one that never ends; a shorter limit would report busy
/// machines. A finding ends the run with an error and is stored in `fuzz/artifacts/<target>`.
pub fn run(target: &str, minutes: u32) -> Result<(), String> {
    let root = shell::root();
    let corpus = root.join("fuzz/corpus").join(target);
    if !corpus.is_dir() {
        let known = names(&root.join("fuzz/corpus"));
        return Err(format!("{target}: no such fuzz target; there are: {}", known.join(", ")));
    }
    let work = root.join("target/fuzz");
    let found = work.join(target);
    let artifacts = root.join("fuzz/artifacts").join(target);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let build = ["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host()?, "--bin", target];
    let build_folder = work.join("build");
    shell::cargo(&build, &[("RUSTFLAGS", INSTRUMENTATION), ("CARGO_TARGET_DIR", &build_folder.to_string_lossy())])?;
    let mut search = Command::new(build_folder.join(host()?).join("release").join(target));
    search.arg(&found).arg(&corpus).arg(format!("-max_total_time={}", u64::from(minutes) * 60));
    search.arg(format!("-artifact_prefix={}/", artifacts.display())).args(["-timeout=60", "-rss_limit_mb=2048"]);
    // libFuzzer prints the seed at the start and the number of executions at the end.
    search.args(["-print_final_stats=1", "-max_len=8192"]);
    shell::run(&mut search, &format!("{target} for {minutes} min"))
}

/// The target triple of the host. It must be given explicitly, or the instrumentation would also apply to
/// build scripts, which do not link with it.
fn host() -> Result<&'static str, String> {
    match (std::env::consts::ARCH, std::env::consts::OS) {
        ("x86_64", "linux") => Ok("x86_64-unknown-linux-gnu"),
        ("aarch64", "linux") => Ok("aarch64-unknown-linux-gnu"),
        (arch, os) => Err(format!("fuzzing is set up for Linux on x86_64 and aarch64, not for {os} on {arch}")),
    }
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_has_an_end() {
        assert_eq!(minutes("60"), Ok(60));
        assert!(minutes("0").is_err() && minutes("-1").is_err() && minutes("an hour").is_err());
    }
}
