//! Interprets the facts for each back end. These are pure functions of texts, so that tests can present any machine to them.

use braid_control::runtime::io::device::{Interface, NO_ETHERNET, UNFILTER, UNLOCK, grant};
use rustix::io::Errno;

use super::facts::{Attempt, Facts};
use super::{Check, Section, State};
use crate::lints::interfaces::machine_takes_part;

/// include/uapi/linux/capability.h
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_BPF: u32 = 39;
const CAP_SYS_ADMIN: u32 = 21;
/// Locked memory for the buffers of one port with one or two queues, and some room.
const LOCKED_BYTES: u64 = 64 << 20;
/// The first kernel in which AF_XDP sockets of several interfaces can share buffers.
const KERNEL_OF_AF_XDP: (u32, u32) = (5, 10);
/// The first kernel in which AF_PACKET can ignore frames that others send through the interface.
const KERNEL_OF_AF_PACKET: (u32, u32) = (4, 20);

/// All sections: the machine, each back end, each interface.
pub fn all(facts: &Facts) -> Vec<Section> {
    let mut sections = vec![section("machine", machine(facts))];
    sections.push(section("af_xdp", af_xdp(facts)));
    sections.push(section("af_packet", af_packet(facts)));
    sections.push(section("tap", tap(facts)));
    sections.push(section("memif", vec![good("privileges", "none needed: a folder for its socket is enough")]));
    sections.push(section("dpdk", dpdk(facts)));
    let real = facts.interfaces.iter().filter(|interface| interface.name != "lo");
    sections.extend(real.map(|interface| section(&format!("interface {}", interface.name), of_interface(interface))));
    sections
}

fn section(name: &str, checks: Vec<Check>) -> Section {
    let usable = checks.iter().all(|check| check.state != State::Lacking);
    Section { name: name.to_owned(), usable, checks }
}

fn good(name: &str, found: impl Into<String>) -> Check {
    Check { name: name.to_owned(), state: State::Good, found: found.into(), mend: None }
}

fn advice(name: &str, found: impl Into<String>, mend: impl Into<String>) -> Check {
    Check { name: name.to_owned(), state: State::Advice, found: found.into(), mend: Some(mend.into()) }
}

fn lacking(name: &str, found: impl Into<String>, mend: impl Into<String>) -> Check {
    Check { name: name.to_owned(), state: State::Lacking, found: found.into(), mend: Some(mend.into()) }
}

fn machine(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![match facts.processors {
        1 => advice("processors", "1: worker and kernel share it", "give the machine a second processor"),
        count => good("processors", count.to_string()),
    }];
    checks.push(match facts.isolated.is_empty() && facts.processors > 2 {
        true => {
            let last = facts.processors - 1;
            let mend = format!("add isolcpus=managed_irq,domain,1-{last} nohz_full=1-{last} to the kernel's command line (GRUB_CMDLINE_LINUX), sudo update-grub, restart");
            advice("isolation", "no processor is kept free of other work", mend)
        }
        false if facts.isolated.is_empty() => good("isolation", "none; with so few processors the system needs all"),
        false => good("isolation", format!("processors {}", facts.isolated)),
    });
    checks.push(clock(facts));
    if !facts.governor.is_empty() && facts.governor != "performance" {
        let mend = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
        checks.push(advice("frequency", format!("governor {}", facts.governor), mend));
    }
    checks.push(huge_pages(facts));
    checks
}

fn clock(facts: &Facts) -> Check {
    match facts.clock.as_str() {
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" => good("clock", &facts.clock),
        "" => good("clock", "not known"),
        slow if facts.clocks.split_whitespace().any(|clock| clock == "tsc") => {
            let mend = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
            advice("clock", format!("{slow}: reading it is a system call"), mend)
        }
        slow => {
            let mend = "add tsc=reliable to the kernel's command line, if the processor's counter is";
            advice("clock", format!("{slow}: reading it may be a system call"), mend)
        }
    }
}

/// A number in `/proc/meminfo`.
fn memory(facts: &Facts, key: &str) -> u64 {
    let line = facts.memory.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn huge_pages(facts: &Facts) -> Check {
    let reserved = memory(facts, "HugePages_Free");
    if reserved > 0 {
        return good("huge pages", format!("{reserved} reserved ones are free"));
    }
    match facts.transparent_huge_pages.contains("[never]") {
        true => {
            let mend = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled; or reserve some: sudo sysctl vm.nr_hugepages=512";
            advice("huge pages", "none", mend)
        }
        false => good("huge pages", "transparent ones; none reserved (sudo sysctl vm.nr_hugepages=512 reserves 1 GiB)"),
    }
}

/// Major and minor version of the kernel.
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(facts: &Facts, least: (u32, u32)) -> Check {
    match version(&facts.kernel) {
        Some(version) if version < least => {
            let mend = format!("install a kernel of version {}.{} or newer", least.0, least.1);
            lacking("kernel", format!("Linux {}", facts.kernel), mend)
        }
        _ => good("kernel", format!("Linux {}", facts.kernel)),
    }
}

fn has(facts: &Facts, capability: u32) -> bool {
    let bits = facts.status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits >> capability & 1 == 1
}

/// Checks privileges; names the missing ones.
fn privileges(facts: &Facts, needed: &[(u32, &str)]) -> Check {
    let missing: Vec<&str> =
        needed.iter().filter(|(capability, _)| !has(facts, *capability)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return good("privileges", needed.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", "));
    }
    let mend = format!("{}, or run it with sudo", grant());
    lacking("privileges", format!("without {}", missing.join(", ")), mend)
}

/// The check of an attempt. The caller interprets its error, except for missing privileges, which have their own check.
fn tried(name: &str, attempt: &Attempt, privileges: &Check, mend: impl FnOnce(Errno) -> String) -> Option<Check> {
    match attempt {
        Ok(()) => Some(good(name, "works")),
        Err((number, words)) => {
            let errno = Errno::from_raw_os_error(*number);
            let is_theirs = privileges.state == State::Lacking && is_forbidden(errno);
            (!is_theirs).then(|| lacking(name, words, mend(errno)))
        }
    }
}

fn is_forbidden(errno: Errno) -> bool {
    [Errno::PERM, Errno::ACCESS].contains(&errno)
}

/// The remedy for a failed system call: the container engine's settings if the call is forbidden despite all privileges, else `other`.
fn allow_or(errno: Errno, other: &str) -> String {
    if is_forbidden(errno) { UNFILTER } else { other }.to_owned()
}

fn af_xdp(facts: &Facts) -> Vec<Check> {
    let mut needed = vec![(CAP_NET_ADMIN, "cap_net_admin"), (CAP_NET_RAW, "cap_net_raw")];
    if !has(facts, CAP_SYS_ADMIN) {
        needed.push((CAP_BPF, "cap_bpf"));
    }
    let privileges = privileges(facts, &needed);
    let kernel_with = |option: &'static str| move |errno| allow_or(errno, &format!("use a kernel with {option}=y"));
    let sockets = tried("sockets", &facts.af_xdp, &privileges, kernel_with("CONFIG_XDP_SOCKETS"));
    let program = tried("program", &facts.xdp_program, &privileges, kernel_with("CONFIG_BPF_SYSCALL"));
    let first = [kernel(facts, KERNEL_OF_AF_XDP), privileges].into_iter();
    let mut checks: Vec<Check> = first.chain(sockets).chain(program).collect();
    checks.push(match facts.lockable_bytes {
        Some(bytes) if bytes < LOCKED_BYTES && !has(facts, CAP_IPC_LOCK) => {
            let found = format!("{} MiB may be locked, buffers take up to {}", bytes >> 20, LOCKED_BYTES >> 20);
            lacking("locked memory", found, format!("{UNLOCK}, or LimitMEMLOCK=infinity in a systemd unit"))
        }
        _ => good("locked memory", "enough"),
    });
    if facts.jit == "0" {
        checks.push(advice("compiler of BPF", "is off", "sudo sysctl net.core.bpf_jit_enable=1"));
    }
    checks
}

fn af_packet(facts: &Facts) -> Vec<Check> {
    let privileges = privileges(facts, &[(CAP_NET_RAW, "cap_net_raw")]);
    let sockets = tried("sockets", &facts.af_packet, &privileges, |errno| allow_or(errno, "sudo modprobe af_packet"));
    [kernel(facts, KERNEL_OF_AF_PACKET), privileges].into_iter().chain(sockets).collect()
}

fn tap(facts: &Facts) -> Vec<Check> {
    let mend = |errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => "sudo modprobe tun".to_owned(),
        _ => "ls -l /dev/net/tun shows who may open it; a container needs --device /dev/net/tun".to_owned(),
    };
    let mut privileges = privileges(facts, &[(CAP_NET_ADMIN, "cap_net_admin")]);
    if privileges.state == State::Lacking {
        privileges.mend = privileges.mend.take().map(|mend| {
            format!("{mend}; or make the interface for this user: sudo ip tuntap add mode tap name tap0 user \"$USER\"")
        });
    }
    let device = tried("/dev/net/tun", &facts.tap, &privileges, mend);
    [privileges].into_iter().chain(device).collect()
}

/// Virtual devices need only the library; network cards need huge pages for speed and an IOMMU for safety.
fn dpdk(facts: &Facts) -> Vec<Check> {
    let Some(version) = &facts.dpdk else {
        let mend =
            "sudo apt-get install libdpdk-dev pkg-config gcc; cargo build --release -p braid-cli --features dpdk";
        return vec![lacking("library", "this program was built without it", mend)];
    };
    let mut checks = vec![good("library", version)];
    checks.push(match memory(facts, "HugePages_Free") {
        0 => advice("huge pages", "none reserved: rings of cards lie on small ones", "sudo sysctl vm.nr_hugepages=512"),
        free => good("huge pages", format!("{free} reserved ones are free")),
    });
    checks.push(match facts.has_iommu {
        true => good("IOMMU", "is on"),
        false => {
            let mend = "for cards (virtual devices need none): add intel_iommu=on iommu=pt or amd_iommu=on iommu=pt to the kernel's command line, restart, sudo modprobe vfio-pci";
            advice("IOMMU", "none, so cards cannot reach buffers", mend)
        }
    });
    checks
}

fn of_interface(interface: &Interface) -> Vec<Check> {
    let Interface { name, mtu, is_up, is_ethernet, driver, queues, .. } = interface;
    let driver = if driver.is_empty() { "driver not known" } else { driver };
    let mut checks = vec![match is_up {
        true => good("state", format!("up, {driver}, MTU {mtu}, receive queues: {queues}")),
        false => lacking("state", format!("down, {driver}"), format!("sudo ip link set {name} up")),
    }];
    if !is_ethernet {
        checks.push(advice("packets", "they have no Ethernet headers: it is no port", NO_ETHERNET));
    }
    if interface.prefers_af_packet() {
        let why = format!("AF_PACKET, faster here than AF_XDP, which af_xdp:{name} asks for");
        checks.push(good("back end", why));
    }
    if *is_ethernet {
        let unfit = machine_takes_part(interface).into_iter();
        checks.extend(unfit.map(|(about, what, mend)| advice(about, what, format!("as a port of a live run: {mend}"))));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that lacks nothing.
    fn machine_of_dreams() -> Facts {
        Facts {
            kernel: "6.12.4-arm64".into(),
            processors: 8,
            isolated: "2-7".into(),
            clock: "tsc".into(),
            clocks: "tsc hpet acpi_pm".into(),
            governor: "performance".into(),
            transparent_huge_pages: "always [madvise] never".into(),
            memory: "MemTotal: 16000000 kB\nHugePages_Free:      512\n".into(),
            status: "Name:\tbraid\nCapEff:\t000001ffffffffff\n".into(),
            jit: "1".into(),
            lockable_bytes: None,
            af_packet: Ok(()),
            af_xdp: Ok(()),
            xdp_program: Ok(()),
            tap: Ok(()),
            dpdk: Some("DPDK 22.11.4".into()),
            has_iommu: true,
            interfaces: Vec::new(),
        }
    }

    /// Asserts that the perfect machine with one change has this check in this section, with a remedy that contains `mend`.
    fn check(change: impl FnOnce(&mut Facts), in_section: &str, name: &str, state: State, mend: &str) {
        let mut facts = machine_of_dreams();
        change(&mut facts);
        let sections = all(&facts);
        let section = sections.iter().find(|section| section.name == in_section).expect("the section is there");
        let check = section.checks.iter().find(|check| check.name == name).expect("the check is there");
        assert_eq!(check.state, state, "{check:?}");
        assert!(check.mend.as_ref().is_some_and(|text| text.contains(mend)), "{check:?}");
        assert_eq!(section.usable, state != State::Lacking, "{section:?}");
    }

    #[test]
    fn a_machine_to_which_nothing_is_lacking_is_told_nothing() {
        let sections = all(&machine_of_dreams());
        assert_eq!(sections.len(), 6);
        assert!(sections.iter().flat_map(|section| &section.checks).all(|check| check.state == State::Good));
    }

    #[test]
    fn what_is_slow_is_advised() {
        check(|facts| facts.clock = "hpet".into(), "machine", "clock", State::Advice, "echo tsc");
        check(|facts| facts.isolated.clear(), "machine", "isolation", State::Advice, "isolcpus=managed_irq,domain,1-7");
        check(|facts| facts.governor = "powersave".into(), "machine", "frequency", State::Advice, "performance");
        check(|facts| facts.jit = "0".into(), "af_xdp", "compiler of BPF", State::Advice, "bpf_jit_enable=1");
        check(|facts| facts.has_iommu = false, "dpdk", "IOMMU", State::Advice, "intel_iommu=on");
        let no_pages = |facts: &mut Facts| {
            facts.transparent_huge_pages = "always madvise [never]".into();
            facts.memory.clear();
        };
        check(no_pages, "machine", "huge pages", State::Advice, "vm.nr_hugepages");
    }

    #[test]
    fn what_does_not_work_is_lacking_with_the_command_that_mends_it() {
        let unprivileged = |facts: &mut Facts| {
            facts.status = "CapEff:\t0000000000000000".into();
            facts.af_packet = Err((1, "Operation not permitted".into()));
            facts.lockable_bytes = Some(8 << 20);
        };
        check(unprivileged, "af_packet", "privileges", State::Lacking, "sudo setcap cap_net_admin,");
        check(unprivileged, "af_xdp", "privileges", State::Lacking, "cap_net_raw,cap_bpf,cap_ipc_lock+ep");
        check(unprivileged, "af_xdp", "locked memory", State::Lacking, "prlimit --pid $$");
        check(unprivileged, "tap", "privileges", State::Lacking, "ip tuntap add");
        check(|facts| facts.kernel = "5.4.0".into(), "af_xdp", "kernel", State::Lacking, "5.10 or newer");
        let no_device = |facts: &mut Facts| facts.tap = Err((2, "No such file or directory".into()));
        check(no_device, "tap", "/dev/net/tun", State::Lacking, "modprobe tun");
        check(|facts| facts.dpdk = None, "dpdk", "library", State::Lacking, "apt-get install libdpdk-dev");
        let no_family = |facts: &mut Facts| facts.af_xdp = Err((97, "Address family not supported".into()));
        check(no_family, "af_xdp", "sockets", State::Lacking, "CONFIG_XDP_SOCKETS");
        let filtered = |facts: &mut Facts| facts.xdp_program = Err((1, "Operation not permitted".into()));
        check(filtered, "af_xdp", "program", State::Lacking, "seccomp");
    }

    #[test]
    fn interfaces_that_are_down_have_an_address_or_are_no_ports_are_named() {
        let interface = |is_up, is_ethernet, has_address| Interface {
            name: "eth0".into(),
            index: 2,
            mtu: 1500,
            mac: [2, 0, 0, 0, 0, 1],
            is_up,
            is_ethernet,
            has_address,
            driver: "ixgbe".into(),
            queues: 4,
            master: has_address.then(|| "br0".into()),
        };
        check(
            |facts| facts.interfaces.push(interface(false, true, false)),
            "interface eth0",
            "state",
            State::Lacking,
            "link set eth0 up",
        );
        check(
            |facts| facts.interfaces.push(interface(true, true, true)),
            "interface eth0",
            "address",
            State::Advice,
            "address flush dev eth0",
        );
        check(
            |facts| facts.interfaces.push(interface(true, true, true)),
            "interface eth0",
            "master",
            State::Advice,
            "link set eth0 nomaster",
        );
        check(
            |facts| facts.interfaces.push(interface(true, false, false)),
            "interface eth0",
            "packets",
            State::Advice,
            "tap:braid0",
        );
    }

    #[test]
    fn where_af_packet_is_the_better_back_end_that_is_said() {
        let interface = |driver: &str| Interface {
            name: "veth0".into(),
            index: 2,
            mtu: 1500,
            mac: [2, 0, 0, 0, 0, 1],
            is_up: true,
            is_ethernet: true,
            has_address: false,
            driver: driver.into(),
            queues: 1,
            master: None,
        };
        let says = |driver| of_interface(&interface(driver)).iter().any(|check| check.name == "back end");
        assert!(says("veth") && !says("ixgbe"));
    }
}
