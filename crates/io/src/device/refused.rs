//! Explains why a port cannot be opened, and what the user can do about it.

use std::io;

use rustix::thread::CapabilitySet;

use super::spec::{PortSpec, XdpCopy, XdpMode};
use crate::af_xdp;
use crate::source::OpenError;

/// Explains why AF_XDP cannot be used, and what to do.
pub(super) fn refused_xdp(spec: &PortSpec, why: &af_xdp::Refused) -> OpenError {
    let name = &spec.name;
    let (what, mend) = match why {
        af_xdp::Refused::Mtu(mtu, most) => (
            format!("packets of up to {mtu} bytes do not fit into AF_XDP's buffers, which take {most}"),
            format!("sudo ip link set {name} mtu 1500, on both ends; or af_packet:{name}"),
        ),
        af_xdp::Refused::Taken => (
            "an XDP program is attached to it already, or another program has its queues".to_owned(),
            format!("end the program that attached it, or: sudo ip link set {name} xdp off"),
        ),
        af_xdp::Refused::Kernel(error) => match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTCONN) if spec.mode == XdpMode::Native => (
                format!("its driver runs no XDP program ({error})"),
                format!("af_xdp:{name}?mode=generic, or af_packet:{name}"),
            ),
            Some(libc::EOPNOTSUPP) if spec.copy == XdpCopy::Zero => {
                (format!("its driver has no zero-copy ({error})"), "leave copy=zero out".to_owned())
            }
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                ("not enough memory may be locked for its buffers".to_owned(), UNLOCK.to_owned())
            }
            Some(libc::ENOSPC) => (
                "its other end has more send queues than it has receive queues".to_owned(),
                format!("sudo ethtool -L {name} rx N, with as many as the other end's tx"),
            ),
            Some(libc::EAFNOSUPPORT) => {
                ("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".to_owned(), format!("af_packet:{name}"))
            }
            _ => return refused(spec, error, "cap_net_admin,cap_net_raw,cap_bpf"),
        },
    };
    OpenError::Device { device: spec.to_string(), what, mend }
}

/// A command that grants this program the capabilities that any back end needs. It is one command for all of them, because `setcap`
/// removes capabilities that it does not name.
pub fn grant() -> String {
    let program = std::env::current_exe().map_or("braid".to_owned(), |path| path.display().to_string());
    format!("sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_ipc_lock+ep {program}")
}

/// A command that lifts the limit of locked memory for the current shell and its children.
pub const UNLOCK: &str = "sudo prlimit --pid $$ --memlock=unlimited";

/// Advice for a container whose engine filters the required system calls.
pub const UNFILTER: &str =
    "start the container with --security-opt seccomp=unconfined, or with a profile that allows bpf(2)";

/// Whether this process has all of these capabilities, a list separated by commas.
fn are_there(names: &str) -> bool {
    let wanted = names.split(',').map(|name| CapabilitySet::from_name(name.strip_prefix("CAP_")?));
    let Some(wanted) = wanted.collect::<Option<CapabilitySet>>() else { return false };
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

/// Explains an error of the kernel; for a missing privilege, says how to grant it.
pub(super) fn refused(spec: &PortSpec, error: &io::Error, capabilities: &str) -> OpenError {
    let (device, names) = (spec.to_string(), capabilities.to_uppercase());
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if are_there(&names) => OpenError::Device {
            device,
            what: format!("not allowed ({error}), although it has {names}: something filters its system calls"),
            mend: UNFILTER.to_owned(),
        },
        Some(libc::EPERM | libc::EACCES) => OpenError::Device {
            device,
            what: format!("not allowed ({error}): it needs {names}"),
            mend: format!("run it with sudo, or give the program all rights of ports once: {}", grant()),
        },
        _ => OpenError::Device {
            device,
            what: error.to_string(),
            mend: "`braid doctor` shows what this machine lacks for each back end".to_owned(),
        },
    }
}
