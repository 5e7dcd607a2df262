//! Compares the memory that a plan may need with what is available: the kernel maps more memory than it
//! has, and kills a program that then uses it.
//!
//! The figures count packet-set tables and state objects when full (initially they use less), and packet buffers. They omit what
//! is not known in advance: additional buffers held by interfaces (a few megabytes per queue), and what functions build from their
//! configuration, such as a rule classifier, which exists once the plan is compiled.

use std::fmt;
use std::path::Path;

use braid_runtime::nf::packet::pool::{FRAME_MAX, HEADROOM};
use braid_runtime::nf::{Index, SetTables};
use braid_runtime::{Chain, HugePages, Plan as RunPlan};
use serde::Serialize;

use crate::explain::human_bytes;
use crate::plan::Plan;
use crate::plan::file::Problem;

/// Memory needs of a plan, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The tables of packet sets and the indexes of shared sets, of all workers.
    pub sets_bytes: usize,
    /// The part of `sets_bytes` that only sets with keys of IPv6 size touch; without such sets it is mapped but never used.
    pub sets_v6_bytes: usize,
    /// The state objects, including packet sets that workers share.
    pub objects_bytes: usize,
    /// The packet buffers, without those that interfaces hold in addition.
    pub buffers_bytes: usize,
    /// The name and size of the largest state object.
    pub largest: Option<(String, usize)>,
    /// Memory that this program may use: the machine's, or its control group's if that is smaller.
    pub available_bytes: usize,
}

impl Memory {
    /// Determines the memory needs of a chain under a plan.
    pub(crate) fn of(run: &RunPlan, chain: &Chain) -> Memory {
        let sets = run.sets_per_worker();
        let tables = |group: &braid_runtime::chain::Group| {
            let shape = group.extractor.shape();
            // The tables are mapped only to learn their size; nothing is touched.
            match SetTables::new(group.capacity(sets), group.state_bytes, shape, HugePages::Never) {
                Ok(tables) => [tables.memory_bytes(), tables.wide_bytes()],
                Err(error) => [error.bytes, 0],
            }
        };
        let indexes =
            (0..chain.stages().len()).filter_map(|at| chain.indexed(at)).map(|sets| [Index::bytes_of(sets), 0]);
        let tables: Vec<[usize; 2]> = chain.groups().iter().map(tables).chain(indexes).collect();
        let of_all = |part: usize| tables.iter().map(|bytes| bytes[part]).sum::<usize>().saturating_mul(run.workers);
        let objects = chain.objects();
        let of_objects = objects.iter().map(|object| (object.name().to_owned(), object.memory_bytes()));
        Memory {
            sets_bytes: of_all(0),
            sets_v6_bytes: of_all(1),
            buffers_bytes: run.own_buffers() * (HEADROOM + FRAME_MAX),
            objects_bytes: of_objects.clone().map(|(_, bytes)| bytes).sum(),
            largest: of_objects.max_by_key(|(_, bytes)| *bytes),
            available_bytes: available(),
        }
    }

    /// The sum of all parts.
    pub fn all_bytes(&self) -> usize {
        self.sets_bytes.saturating_add(self.objects_bytes).saturating_add(self.buffers_bytes)
    }

    /// Rejects a plan that would need more memory than is available when all its tables are full.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Problem> {
        let Memory { sets_bytes, objects_bytes, buffers_bytes, available_bytes, .. } = self;
        if self.all_bytes() <= *available_bytes {
            return Ok(());
        }
        let what = format!(
            "the plan may come to use {}, and there are {}: {self}",
            human_bytes(self.all_bytes()),
            human_bytes(*available_bytes),
        );
        let largest = self.largest.as_ref().filter(|(_, bytes)| bytes > sets_bytes);
        let Some((name, bytes)) = largest else {
            let left = available_bytes.saturating_sub(*objects_bytes).saturating_sub(*buffers_bytes);
            let fit = left as f64 / *sets_bytes as f64 * plan.sets as f64;
            let mut help = format!("write a smaller `sets`: {} fit, {} were asked for", fit as usize, plan.sets);
            if self.all_bytes() - self.sets_v6_bytes <= *available_bytes {
                help += ". By IPv4 all would fit; but there is room for as many by IPv6, and no key leaves that out";
            }
            return Err(Problem::new(what, help).at(plan.sets_at.clone()));
        };
        let owner =
            plan.chain.iter().find(|link| name.strip_prefix(&link.name).is_some_and(|own| own.starts_with('.')));
        let (function, at) = owner.map_or(("…", 0..0), |link| (&link.entry.name, link.at.clone()));
        let help = format!(
            "make `{name}` smaller, which has {}: `braid nf show {function}` lists the keys; or lower `sets`",
            human_bytes(*bytes)
        );
        Err(Problem::new(what, help).at(at))
    }
}

/// Lists the parts in words.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { sets_bytes, sets_v6_bytes, objects_bytes, buffers_bytes, .. } = self;
        let [sets, v6, objects, buffers] =
            [sets_bytes, sets_v6_bytes, objects_bytes, buffers_bytes].map(|bytes| human_bytes(*bytes));
        write!(
            f,
            "packet sets {sets} ({v6} of it used by IPv6 alone), state objects {objects}, packet buffers {buffers}"
        )
    }
}

/// Bytes that this program may use; `usize::MAX` if the kernel does not report a limit.
pub(crate) fn available() -> usize {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| of_machine(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    of_groups(&groups, read).into_iter().chain(machine).min().unwrap_or(usize::MAX)
}

/// Parses `MemTotal` in the text of `/proc/meminfo`.
fn of_machine(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// The lowest limit of the control groups listed in `/proc/self/cgroup` and of their ancestors; cgroups(7), both versions.
fn of_groups(listed: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let limits = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            controllers if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may be one of the host; then only the root of the hierarchy is visible here.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        groups.filter_map(|group| read(&Path::new(root).join(group).join(file))?.trim().parse::<usize>().ok()).min()
    };
    listed.lines().filter_map(limits).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_its_memory() {
        assert_eq!(of_machine("MemTotal:       24642520 kB\nMemFree: 1 kB\n"), Some(24_642_520 << 10));
        assert_eq!(of_machine("nothing of the kind"), None);
        assert!(available() > 64 << 20);
    }

    #[track_caller]
    fn check(listed: &str, files: &[(&str, &str)], limit: Option<usize>) {
        let read = |path: &Path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, content)| (*content).to_owned())
        };
        assert_eq!(of_groups(listed, read), limit);
    }

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/memory.max", "4294967296\n"),
        ];
        check("0::/a/b\n", &files, Some(1 << 30));
        check("0::/elsewhere\n", &files, Some(4 << 30));
        check("0::/\n", &[], None);
        let first = [
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712"),
            ("/sys/fs/cgroup/memory.max", "1"),
        ];
        check("5:cpu,memory:/a\n4:cpuset:/\n", &first, Some(9_223_372_036_854_771_712));
        check("garbage\n:\n::\n", &[], None);
    }
}
