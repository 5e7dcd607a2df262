//! Opening ports: which back end it becomes, and what stands in the way of it.

use std::io;
use std::sync::Arc;

use braid_packet::Pool;

use super::interface::Interface;
use super::live::{RxPort, TxPort};
use super::spec::{BackEnd, PortSpec, XdpCopy, XdpMode};
use crate::af_xdp::{self, Umem};
use crate::source::OpenError;
use crate::{af_packet, memif, tap};

/// An open port.
pub(crate) struct Opened {
    /// Back end and how it works here, for people.
    pub(crate) how: String,
    /// The way in.
    pub(crate) receive: Box<dyn RxPort>,
    /// The ways out, one for each worker.
    pub(crate) send: Vec<Box<dyn TxPort>>,
}

/// Opens all ports, or none: what was opened before an error closes again.
pub(crate) fn open_all(specs: &[PortSpec], pool: &Arc<Pool>, senders: usize) -> Result<Vec<Opened>, OpenError> {
    let mut umem = Umem::default();
    specs.iter().map(|spec| open(spec, pool, &mut umem, senders)).collect()
}

/// Buffers that devices keep for themselves.
pub(crate) fn buffers(specs: &[PortSpec]) -> usize {
    let wanted = |spec: &PortSpec| match spec.back_end {
        BackEnd::Best | BackEnd::AfXdp => Interface::ask(&spec.name).map_or(0, |interface| interface.queues),
        BackEnd::AfPacket | BackEnd::Tap | BackEnd::Memif => 0,
    };
    specs.iter().map(wanted).sum::<usize>() * af_xdp::BUFFERS_OF_A_QUEUE
}

fn open(spec: &PortSpec, pool: &Arc<Pool>, umem: &mut Umem, senders: usize) -> Result<Opened, OpenError> {
    match spec.back_end {
        BackEnd::Tap => return open_tap(spec, senders),
        BackEnd::Memif => return open_memif(spec, senders),
        _ => {}
    }
    let interface = Interface::find(&spec.name)?;
    match spec.back_end {
        BackEnd::AfPacket => open_af_packet(spec, &interface, senders, ""),
        BackEnd::AfXdp => match af_xdp::open(spec, &interface, pool, umem, senders) {
            Ok((how, receive, send)) => Ok(opened(how, receive, send)),
            Err(refused) => Err(refused_xdp(spec, &refused)),
        },
        // In the driver or not at all: in the kernel's stack it is no faster than AF_PACKET, and cannot cut trains of segments.
        _ => match af_xdp::open(&PortSpec { mode: XdpMode::Native, ..spec.clone() }, &interface, pool, umem, senders) {
            Ok((how, receive, send)) => Ok(opened(how, receive, send)),
            Err(refused) => {
                let why = refused_xdp(spec, &refused);
                open_af_packet(spec, &interface, senders, &format!("; no AF_XDP: {why}"))
            }
        },
    }
}

fn open_af_packet(spec: &PortSpec, interface: &Interface, senders: usize, why: &str) -> Result<Opened, OpenError> {
    let (receive, send) = af_packet::open(interface, senders).map_err(|error| refused(spec, &error, "cap_net_raw"))?;
    Ok(opened(format!("AF_PACKET, a ring ({}){why}", described(interface)), receive, send))
}

/// What stands in the way of AF_XDP, and what to do.
fn refused_xdp(spec: &PortSpec, why: &af_xdp::Refused) -> OpenError {
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
                ("not enough memory may be locked for its buffers".to_owned(), "ulimit -l unlimited".to_owned())
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

fn open_tap(spec: &PortSpec, senders: usize) -> Result<Opened, OpenError> {
    let (receive, send) = tap::open(&spec.name, senders).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => OpenError::Device {
            device: spec.to_string(),
            what: format!("/dev/net/tun: {error}"),
            mend: "sudo modprobe tun".to_owned(),
        },
        Some(libc::EBUSY) => OpenError::Device {
            device: spec.to_string(),
            what: "another program is the wire of it".to_owned(),
            mend: format!("end that program (sudo fuser -v /dev/net/tun), or: sudo ip link del {}", spec.name),
        },
        Some(libc::EINVAL) => OpenError::Device {
            device: spec.to_string(),
            what: "there is an interface of this name that is no TAP interface".to_owned(),
            mend: format!("name another one, or receive it with af_packet:{}", spec.name),
        },
        _ => refused(spec, &error, "cap_net_admin"),
    })?;
    Ok(opened("TAP, this program is its wire".to_owned(), receive, send))
}

fn open_memif(spec: &PortSpec, senders: usize) -> Result<Opened, OpenError> {
    let (receive, send) = memif::open(&spec.name, &spec.memif, senders).map_err(|error| {
        let mend = match error.kind() {
            io::ErrorKind::AddrInUse => "another program serves this socket: end it, or name another path".to_owned(),
            io::ErrorKind::NotFound => "sudo mkdir -p the folder of the socket".to_owned(),
            _ => "name a path whose folder you may write to".to_owned(),
        };
        OpenError::Device { device: spec.to_string(), what: error.to_string(), mend }
    })?;
    let how = match spec.memif.is_server {
        true => "memif, server: waits for a client",
        false => "memif, client: connects when a server is there",
    };
    Ok(opened(format!("{how} (id {})", spec.memif.id), receive, send))
}

fn opened(how: String, receive: impl RxPort + 'static, send: Vec<impl TxPort + 'static>) -> Opened {
    let boxed = |port| -> Box<dyn TxPort> { Box::new(port) };
    Opened { how, receive: Box::new(receive), send: send.into_iter().map(boxed).collect() }
}

fn described(interface: &Interface) -> String {
    let driver = if interface.driver.is_empty() { "unknown driver" } else { &interface.driver };
    format!("{driver}, MTU {}", interface.mtu)
}

/// What the kernel refused; without a privilege, how to give it.
pub(crate) fn refused(spec: &PortSpec, error: &io::Error, capabilities: &str) -> OpenError {
    let device = spec.to_string();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::Device {
            device,
            what: format!("not allowed ({error}): it needs {}", capabilities.to_uppercase()),
            mend: format!(
                "run it with sudo, or give the program the right once: sudo setcap {capabilities}+ep \"$(command -v braid)\""
            ),
        },
        _ => OpenError::Device {
            device,
            what: error.to_string(),
            mend: "`braid doctor` shows what this machine lacks for each back end".to_owned(),
        },
    }
}
