//! Collects what the machine reports about itself: small files of `/proc` and `/sys`, and the results of attempts that are undone at once.

use std::io;

use braid_control::runtime::io::device::{Interface, probe};

/// All collected facts. A file that cannot be read is an empty text.
#[derive(Debug)]
pub struct Facts {
    /// Release of the kernel, such as `6.1.0-18-amd64`.
    pub kernel: String,
    pub processors: usize,
    /// Content of `/sys/devices/system/cpu/isolated`: a list of processors.
    pub isolated: String,
    /// The clock source in use, and the available ones.
    pub clock: String,
    pub clocks: String,
    /// Content of `/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor`.
    pub governor: String,
    /// The setting, such as `always [madvise] never`.
    pub transparent_huge_pages: String,
    /// Content of `/proc/meminfo`.
    pub memory: String,
    /// Content of `/proc/self/status`, which includes privileges.
    pub status: String,
    /// Content of `/proc/sys/net/core/bpf_jit_enable`.
    pub jit: String,
    /// Limit of locked memory in bytes; `None` for no limit.
    pub lockable_bytes: Option<u64>,
    pub af_packet: Attempt,
    pub af_xdp: Attempt,
    pub xdp_program: Attempt,
    pub tap: Attempt,
    /// DPDK's version, if the program was built with DPDK.
    pub dpdk: Option<String>,
    /// Whether network cards access the memory of processes through an IOMMU (`/sys/kernel/iommu_groups`).
    pub has_iommu: bool,
    pub interfaces: Vec<Interface>,
}

/// The result of an attempt; an error has its number and message.
pub type Attempt = Result<(), (i32, String)>;

impl Facts {
    /// Collects all facts.
    pub fn gather() -> Facts {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
        Facts {
            kernel: read("/proc/sys/kernel/osrelease"),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            isolated: read("/sys/devices/system/cpu/isolated"),
            clock: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clocks: read("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            memory: read("/proc/meminfo"),
            status: read("/proc/self/status"),
            jit: read("/proc/sys/net/core/bpf_jit_enable"),
            lockable_bytes: limit.current,
            af_packet: attempt(probe::af_packet()),
            af_xdp: attempt(probe::af_xdp()),
            xdp_program: attempt(probe::xdp_program()),
            tap: attempt(probe::tap()),
            dpdk: probe::dpdk(),
            has_iommu: std::fs::read_dir("/sys/kernel/iommu_groups").is_ok_and(|mut groups| groups.next().is_some()),
            interfaces: probe::interfaces().unwrap_or_default(),
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn attempt(result: io::Result<()>) -> Attempt {
    result.map_err(|error| (error.raw_os_error().unwrap_or(0), error.to_string()))
}
