//! Describes the machine on which a figure was measured, or for which a plan is made.

use std::fmt;
use std::process::Command;

use serde::Serialize;

/// The context without which a measured figure means nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Caches of the first processor, in the form `L1 Data 48K`.
    pub caches: Vec<String>,
    /// Kernel version.
    pub kernel: String,
    /// Load average over the last minute, sampled before the first measurement.
    pub load: String,
    /// Whether this program prefetches cache lines; false if it was built with `--cfg braid_no_prefetch`.
    pub prefetch: bool,
    /// Commit of Braid, followed by `+` if files have changed since; `unknown` outside its repository.
    pub commit: String,
}

impl Machine {
    /// This machine. Whatever cannot be determined is `unknown`.
    pub fn here() -> Machine {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = file("/proc/cpuinfo");
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, model)| model));
        Machine {
            processor: model.unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            caches: Cache::all().map(|cache| cache.to_string()).collect(),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: file("/proc/loadavg").split(' ').next().unwrap_or("unknown").to_owned(),
            prefetch: cfg!(not(braid_no_prefetch)),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

/// A cache of the first processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is the level nearest to the core.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size in KiB.
    pub kib: usize,
}

impl Cache {
    /// All caches that the kernel reports.
    pub fn all() -> impl Iterator<Item = Cache> {
        (0..8).filter_map(|index| {
            let file = |what: &str| format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            let read = |what: &str| std::fs::read_to_string(file(what)).ok();
            Cache::parse(&read("level")?, &read("type")?, &read("size")?)
        })
    }

    fn parse(level: &str, kind: &str, size: &str) -> Option<Cache> {
        let kib = size.trim().strip_suffix('K')?.parse().ok()?;
        Some(Cache { level: level.trim().parse().ok()?, kind: kind.trim().to_owned(), kib })
    }

    /// Bytes of the first-level data cache, if the kernel reports it.
    pub fn first_level() -> Option<usize> {
        let of_data = |cache: &Cache| cache.level == 1 && cache.kind != "Instruction";
        Cache::all().find(of_data).map(|cache| cache.kib * 1024).filter(|bytes| *bytes > 0)
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{} {} {}K", self.level, self.kind, self.kib)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_read_as_the_kernel_writes_it_and_nothing_else_is() {
        let cache = Cache::parse("1\n", "Data\n", "48K\n").expect("a cache");
        assert_eq!((cache.to_string().as_str(), cache.kib), ("L1 Data 48K", 48));
        assert_eq!([Cache::parse("", "Data", "48K"), Cache::parse("1", "Data", "48M")], [None, None]);
    }
}
