//! What this machine offers to tests that need more than a laptop: programs to compare with, and network namespaces.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::shell;

/// Programs with which tests compare, or which count instructions, each with the Debian package that contains it.
const PROGRAMS: [(&str, &str); 14] = [
    ("tshark", "tshark"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("conntrack", "conntrack"),
    ("tcpdump", "tcpdump"),
    ("ping", "iputils-ping"),
    ("ethtool", "ethtool"),
    ("dpdk-testpmd", "dpdk-dev"),
    ("valgrind", "valgrind"),
    ("iperf3", "iperf3"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("traceroute", "traceroute"),
    ("chromium", "chromium"),
];

/// What is missing, in words, and thus why some tests will be skipped.
pub fn missing() -> Vec<String> {
    let mut missing: Vec<String> = PROGRAMS
        .iter()
        .filter(|(program, _)| !shell::has(program))
        .map(|(program, _)| format!("program {program}"))
        .collect();
    if !Path::new("/dev/net/tun").exists() {
        missing.push("/dev/net/tun".to_owned());
    }
    if !quiet(Command::new("unshare").args(["--net", "true"])) {
        missing.push("the right to make a network namespace (root)".to_owned());
    }
    missing
}

/// Installs missing programs where that is possible without asking: on Debian, as root.
pub fn install() {
    install_packages(
        PROGRAMS.iter().filter(|(program, _)| !shell::has(program)).map(|(_, package)| *package).collect(),
    );
}

/// Installs the library for the feature `dpdk`, if it is missing.
pub fn install_dpdk() {
    let is_there = quiet(Command::new("pkg-config").args(["--atleast-version=22.11", "libdpdk"]));
    install_packages(if is_there { Vec::new() } else { vec!["libdpdk-dev", "pkg-config", "gcc", "dpdk-dev"] });
}

/// Installs this release of the compiler for the XDP program, if it is missing.
pub fn install_clang(release: &str) {
    let packages = [format!("clang-{release}"), format!("llvm-{release}"), "libbpf-dev".to_owned()];
    let is_there = shell::has(&packages[0])
        && shell::has(&format!("llvm-strip-{release}"))
        && Path::new("/usr/include/bpf/bpf_helpers.h").exists();
    install_packages(if is_there { Vec::new() } else { packages.iter().map(String::as_str).collect() });
}

fn install_packages(packages: Vec<&str>) {
    if packages.is_empty() || !shell::has("apt-get") || !is_root() {
        return;
    }
    let noninteractive = ("DEBIAN_FRONTEND", "noninteractive");
    let mut install = Command::new("apt-get");
    install.args(["install", "-qq", "--no-install-recommends", "-y"]).args(&packages).envs([noninteractive]);
    let outcome = shell::run(Command::new("apt-get").args(["update", "-qq"]), "apt-get update")
        .and_then(|()| shell::run(&mut install, &format!("apt-get install {}", packages.join(" "))));
    if let Err(reason) = outcome {
        eprintln!("   {reason}: goes on without");
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .is_some_and(|uids| uids.split_whitespace().nth(1) == Some("0"))
}

fn quiet(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
