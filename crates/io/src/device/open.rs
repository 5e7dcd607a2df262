//! Opens ports and chooses the back end of each.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use braid_packet::{Pool, PoolConfig, Port};

use super::claim::Claim;
use super::interface::Interface;
use super::live::{CardHash, RxPort, TxPort};
use super::refused::{refused, refused_xdp};
use super::spec::{BackEnd, PortSpec, XdpMode};
use crate::af_xdp::{self, Umem};
#[cfg(feature = "dpdk")]
use crate::dpdk;
use crate::source::OpenError;
use crate::{af_packet, memif, tap};

/// An open port.
pub(crate) struct Opened {
    /// The back end and how it operates here, for people.
    pub(crate) how: String,
    /// The receive sides, at most one for each receiver; receivers without one get no packets of this port from the device. If
    /// every receiver has one, they are in the order of the receivers.
    pub(crate) receive: Vec<Box<dyn RxPort>>,
    /// The send sides, one for each worker.
    pub(crate) send: Vec<Box<dyn TxPort>>,
    /// Resources that can be left open for the next program in this process.
    pub(crate) wires: Wires,
}

/// Resources that keep ports open.
#[derive(Default)]
pub(crate) struct Wires {
    tap: Vec<File>,
    packet: Vec<af_packet::Wire>,
    xdp: Vec<af_xdp::Wire>,
    claims: Vec<Claim>,
}

/// Environment variables in which a program tells its successor in the same process what it has left open. A program that names a
/// variable in its help can continue with what that variable describes.
pub const INHERITED: [&str; 3] = [tap::INHERITED, af_packet::INHERITED, af_xdp::INHERITED];

impl Wires {
    /// Adds those of another port.
    pub(crate) fn extend(&mut self, port: Wires) {
        self.tap.extend(port.tap);
        self.packet.extend(port.packet);
        self.xdp.extend(port.xdp);
        self.claims.extend(port.claims);
    }

    /// Leaves the resources open for the next program in this process; returns environment variables that describe them. AF_XDP
    /// sockets are left open only if `knows_of` reports that the program knows their variable, since otherwise it could not open
    /// the occupied ports; `announce` receives a message if they are not left open.
    pub(crate) fn leave(
        &self,
        knows_of: impl Fn(&str) -> bool,
        announce: impl Fn(&str),
    ) -> io::Result<[(&'static str, String); 3]> {
        let is_known = knows_of(af_xdp::INHERITED);
        let xdp = if is_known { af_xdp::leave(&self.xdp)? } else { String::new() };
        if xdp.is_empty() && !self.xdp.is_empty() {
            let why = if is_known { "their memory is private" } else { "it knows nothing of sockets that were left" };
            announce(&format!("the next program opens its ports of AF_XDP anew: {why}"));
        }
        let (tap, packet) = (tap::leave(&self.tap)?, af_packet::leave(&self.packet)?);
        Ok([(tap::INHERITED, tap), (af_packet::INHERITED, packet), (af_xdp::INHERITED, xdp)])
    }
}

/// The threads that will use a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes<'a> {
    /// Number of threads that receive.
    pub(crate) receivers: usize,
    /// Number of workers that send.
    pub(crate) senders: usize,
    /// How a network card is to choose among its queues.
    pub(crate) hash: Option<&'a CardHash>,
    /// Number of the port.
    pub(crate) port: Port,
}

impl Lanes<'_> {
    /// Distributes queues to receivers round-robin; returns the queues of each receiver that has any. With
    /// as many queues as receivers, each gets one, in order.
    pub(crate) fn share<T>(&self, queues: Vec<T>) -> Vec<Vec<T>> {
        let mut shares: Vec<Vec<T>> = (0..self.receivers.min(queues.len())).map(|_| Vec::new()).collect();
        let count = shares.len();
        queues.into_iter().enumerate().for_each(|(i, queue)| shares[i % count].push(queue));
        shares
    }
}

/// What the ports of one run have in common.
struct Common {
    umem: Umem,
    taps: tap::Inherited,
    rings: af_packet::Inherited,
    #[cfg(feature = "dpdk")]
    mbufs: dpdk::Memory,
}

/// Allocates the buffers of a run in the memory that its devices require; `announce` receives a message if
/// what the previous program left open does not fit.
pub(crate) fn pool(
    specs: &[PortSpec],
    config: &PoolConfig,
    lanes: &Lanes<'_>,
    announce: impl Fn(&str),
) -> Result<(Arc<Pool>, Umem), braid_memory::Error> {
    let wanted = specs.iter().filter(|spec| spec.back_end.may_be_xdp()).filter_map(|spec| {
        let interface = Interface::ask(&spec.name).ok()?;
        by_xdp(spec, &interface).map(|spec| (interface, spec))
    });
    let wanted: Vec<_> = wanted.collect();
    let (pool, umem, why) = af_xdp::pool(config, &wanted, lanes)?;
    if let Some(why) = why {
        announce(&format!("sockets of AF_XDP that the program before has left are closed, and opened anew: {why}"));
    }
    Ok((pool, umem))
}

/// How a port is opened with AF_XDP, if AF_XDP is tried. Unless the user asked for AF_XDP, it is used only in the driver: in the
/// kernel's network stack it is no faster than AF_PACKET, and it cannot cut trains of segments; nor is it faster on every driver.
fn by_xdp(spec: &PortSpec, interface: &Interface) -> Option<PortSpec> {
    match spec.back_end {
        BackEnd::AfXdp => Some(spec.clone()),
        BackEnd::Best if !interface.prefers_af_packet() => Some(PortSpec { mode: XdpMode::Native, ..spec.clone() }),
        _ => None,
    }
}

/// Opens all ports or none: if one fails, those already opened are closed.
pub(crate) fn open_all(
    specs: &[PortSpec],
    pool: &Arc<Pool>,
    umem: Umem,
    lanes: &Lanes<'_>,
) -> Result<Vec<Opened>, OpenError> {
    let (taps, rings) = (tap::Inherited::of_process(), af_packet::Inherited::of_process());
    let mut common = Common {
        umem,
        taps,
        rings,
        #[cfg(feature = "dpdk")]
        mbufs: dpdk::Memory::default(),
    };
    let numbered = specs.iter().enumerate();
    numbered.map(|(i, spec)| open(spec, specs, pool, &mut common, &Lanes { port: i as Port, ..*lanes })).collect()
}

/// Number of buffers that devices keep for themselves.
pub(crate) fn buffers(specs: &[PortSpec], receivers: usize) -> usize {
    let wanted = |spec: &PortSpec| match spec.back_end {
        BackEnd::Best | BackEnd::AfXdp => {
            let interface = Interface::ask(&spec.name).ok().filter(|interface| by_xdp(spec, interface).is_some());
            interface.map_or(0, |interface| interface.queues) * af_xdp::buffers_of_a_queue(spec, receivers)
        }
        BackEnd::AfPacket | BackEnd::Tap | BackEnd::Memif => 0,
        BackEnd::Dpdk => buffers_of_dpdk(spec.dpdk.queues.map_or(receivers, usize::from).max(receivers)),
    };
    specs.iter().map(wanted).sum()
}

#[cfg(feature = "dpdk")]
fn buffers_of_dpdk(queues: usize) -> usize {
    dpdk::buffers_of_a_port(queues)
}

#[cfg(not(feature = "dpdk"))]
fn buffers_of_dpdk(_: usize) -> usize {
    0
}

fn open(
    spec: &PortSpec,
    all: &[PortSpec],
    pool: &Arc<Pool>,
    common: &mut Common,
    lanes: &Lanes<'_>,
) -> Result<Opened, OpenError> {
    match spec.back_end {
        BackEnd::Tap => return open_tap(spec, lanes.senders, &mut common.taps),
        BackEnd::Memif => return open_memif(spec, lanes.senders),
        BackEnd::Dpdk => return open_dpdk(spec, all, pool, common, lanes),
        _ => {}
    }
    let interface = Interface::find(&spec.name)?;
    let claim = Claim::of(&interface)?;
    let mut opened = open_interface(spec, &interface, pool, common, lanes)?;
    opened.wires.claims.extend(claim);
    Ok(opened)
}

/// Opens an interface with AF_XDP or AF_PACKET.
fn open_interface(
    spec: &PortSpec,
    interface: &Interface,
    pool: &Arc<Pool>,
    common: &mut Common,
    lanes: &Lanes<'_>,
) -> Result<Opened, OpenError> {
    let Common { umem, rings, .. } = common;
    let mut af_xdp = |spec: &PortSpec| {
        let open = af_xdp::open(spec, interface, pool, umem, lanes);
        let wires = |wire| Wires { xdp: vec![wire], ..Wires::default() };
        open.map(|(how, receive, send, wire)| Opened { wires: wires(wire), ..opened(how, receive, send) })
    };
    match by_xdp(spec, interface).map(|by_xdp| af_xdp(&by_xdp)) {
        None if spec.back_end == BackEnd::Best => {
            let why = format!("; on {} faster than AF_XDP, as it takes TCP segments whole", interface.driver);
            open_af_packet(spec, interface, lanes, rings, &why)
        }
        None => open_af_packet(spec, interface, lanes, rings, ""),
        Some(Err(refused)) if spec.back_end == BackEnd::Best => {
            let why = refused_xdp(spec, &refused);
            open_af_packet(spec, interface, lanes, rings, &format!("; no AF_XDP: {why}"))
        }
        Some(open) => open.map_err(|refused| refused_xdp(spec, &refused)),
    }
}

fn open_af_packet(
    spec: &PortSpec,
    interface: &Interface,
    lanes: &Lanes<'_>,
    inherited: &mut af_packet::Inherited,
    why: &str,
) -> Result<Opened, OpenError> {
    let left = inherited.left(interface.index);
    let (receive, send, packet) = af_packet::open(spec, interface, lanes.receivers, lanes.senders, inherited)
        .map_err(|error| refused(spec, &error, "cap_net_raw"))?;
    let rings = |count| if count == 1 { "a ring".to_owned() } else { format!("{count} rings") };
    let closed = match left {
        0 => String::new(),
        left if left == receive.len() => String::new(),
        left => format!("; {} of the program before closed, and what came meanwhile lost", rings(left)),
    };
    let slots = spec.ring.map(|ring| format!(" of {ring} frames")).unwrap_or_default();
    let how = format!("AF_PACKET, {}{slots} ({}){why}{closed}", rings(receive.len()), described(interface));
    Ok(Opened { wires: Wires { packet, ..Wires::default() }, ..opened(how, receive, send) })
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(
    spec: &PortSpec,
    _: &[PortSpec],
    _: &Arc<Pool>,
    _: &mut Common,
    _: &Lanes<'_>,
) -> Result<Opened, OpenError> {
    Err(OpenError::Device {
        device: spec.to_string(),
        what: "this program was built without DPDK".to_owned(),
        mend: "sudo apt-get install libdpdk-dev; cargo build --release -p braid-cli --features dpdk".to_owned(),
    })
}

#[cfg(feature = "dpdk")]
fn open_dpdk(
    spec: &PortSpec,
    all: &[PortSpec],
    pool: &Arc<Pool>,
    common: &mut Common,
    lanes: &Lanes<'_>,
) -> Result<Opened, OpenError> {
    use dpdk::Refused;
    let (how, receive, send) = dpdk::open(spec, all, pool, &mut common.mbufs, lanes).map_err(|why| {
        let (what, mend) = match why {
            Refused::Environment(error) => (
                format!("DPDK's environment does not start ({error})"),
                "`braid doctor`; ?eal=--no-huge gives its arguments yourself, and it says more then".to_owned(),
            ),
            Refused::Device(error) => (
                format!("DPDK cannot open it ({error})"),
                "a card: sudo dpdk-devbind.py --bind=vfio-pci ADDRESS; others: NAME,KEY=VALUE as its driver's guide says"
                    .to_owned(),
            ),
            Refused::Unfit(driver, instead) => {
                (format!("{driver} takes the memory of packets for its own"), format!("write {instead}"))
            }
            Refused::Mtu(mtu, most) => (
                format!("packets of up to {mtu} bytes do not fit into buffers, which take {most}"),
                "give the device an MTU of 1500".to_owned(),
            ),
        };
        OpenError::Device { device: spec.to_string(), what, mend }
    })?;
    Ok(opened(how, receive, send))
}

fn open_tap(spec: &PortSpec, senders: usize, inherited: &mut tap::Inherited) -> Result<Opened, OpenError> {
    let (receive, send, wire) =
        tap::open(&spec.name, senders, inherited).map_err(|error| match error.raw_os_error() {
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
    let how = "TAP, this program is its wire".to_owned();
    Ok(Opened { wires: Wires { tap: vec![wire], ..Wires::default() }, ..opened(how, vec![receive], send) })
}

fn open_memif(spec: &PortSpec, senders: usize) -> Result<Opened, OpenError> {
    let (receive, send) = memif::open(&spec.name, &spec.memif, senders).map_err(|error| {
        let mend = match error.kind() {
            io::ErrorKind::AddrInUse => "another program serves this socket: end it, or name another path".to_owned(),
            io::ErrorKind::NotFound => {
                let folder = Path::new(&spec.name).parent().unwrap_or(Path::new("/"));
                format!("sudo install -d -o \"$USER\" {}", folder.display())
            }
            _ => "name a path whose folder you may write to".to_owned(),
        };
        OpenError::Device { device: spec.to_string(), what: error.to_string(), mend }
    })?;
    let how = match spec.memif.is_server {
        true => "memif, server: waits for a client",
        false => "memif, client: connects when a server is there",
    };
    Ok(opened(format!("{how} (id {})", spec.memif.id), vec![receive], send))
}

fn opened(how: String, receive: Vec<impl RxPort + 'static>, send: Vec<impl TxPort + 'static>) -> Opened {
    let (inward, outward) =
        (|port| -> Box<dyn RxPort> { Box::new(port) }, |port| -> Box<dyn TxPort> { Box::new(port) });
    let (receive, send) = (receive.into_iter().map(inward).collect(), send.into_iter().map(outward).collect());
    Opened { how, receive, send, wires: Wires::default() }
}

fn described(interface: &Interface) -> String {
    let driver = if interface.driver.is_empty() { "unknown driver" } else { &interface.driver };
    format!("{driver}, MTU {}", interface.mtu)
}
