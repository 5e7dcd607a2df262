//! The machine that a figure belongs to.

use std::fmt;
use std::process::Command;

use serde::Serialize;

/// What a figure means nothing without.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Caches of the first processor, as `L1 Data 48K`.
    pub caches: Vec<String>,
    /// Kernel version.
    pub kernel: String,
    /// Processes that wanted a processor in the last minute, on average, as measured before the first row.
    pub load: String,
    /// Whether this program asks for cache lines before it needs them: not if it was built with `--cfg braid_no_prefetch`.
    pub prefetch: bool,
    /// Commit of Braid, with `+` if files were changed since; `unknown` outside its repository.
    pub commit: String,
}

impl Machine {
    /// This one. What cannot be found out is `unknown`.
    pub fn here() -> Machine {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = file("/proc/cpuinfo");
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, model)| model));
        Machine {
            processor: model.unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            caches: (0..8).filter_map(cache).collect(),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: file("/proc/loadavg").split(' ').next().unwrap_or("unknown").to_owned(),
            prefetch: cfg!(not(braid_no_prefetch)),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

fn cache(index: usize) -> Option<String> {
    let read = |what: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}"))
            .map(|text| text.trim().to_owned())
    };
    Some(format!("L{} {} {}", read("level").ok()?, read("type").ok()?, read("size").ok()?))
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    Some(if changed { format!("{commit}+") } else { commit })
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, processors, caches, kernel, load, prefetch, commit } = self;
        writeln!(f, "{processor}, {processors} processors, {}", caches.join(", "))?;
        let without = if *prefetch { "" } else { ", without prefetching" };
        writeln!(f, "Linux {kernel}, load {load}, commit {commit}{without}")?;
        if load.parse::<f64>().is_ok_and(|load| load > *processors as f64 / 2.0) {
            writeln!(f, "other programs use the processors: latencies and rates by the wall mean little")?;
        }
        Ok(())
    }
}
