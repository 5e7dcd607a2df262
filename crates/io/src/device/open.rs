//! Opening ports: which back end it becomes, and what stands in the way of it.

use std::io;
use std::sync::Arc;

use braid_packet::Pool;

use super::interface::Interface;
use super::live::{RxPort, TxPort};
use super::spec::{BackEnd, PortSpec};
use crate::source::OpenError;
use crate::{af_packet, tap};

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
    let _ = pool;
    specs.iter().map(|spec| open(spec, senders)).collect()
}

/// Buffers that devices keep for themselves.
pub(crate) fn buffers(_: &[PortSpec]) -> usize {
    0
}

fn open(spec: &PortSpec, senders: usize) -> Result<Opened, OpenError> {
    match spec.back_end {
        BackEnd::Best | BackEnd::AfPacket | BackEnd::AfXdp => open_af_packet(spec, senders),
        BackEnd::Tap => open_tap(spec, senders),
    }
}

fn open_af_packet(spec: &PortSpec, senders: usize) -> Result<Opened, OpenError> {
    let interface = Interface::find(&spec.name)?;
    let (receive, send) = af_packet::open(&interface, senders).map_err(|error| refused(spec, &error, "cap_net_raw"))?;
    Ok(opened(format!("AF_PACKET, a ring ({})", described(&interface)), receive, send))
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
