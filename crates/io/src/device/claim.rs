//! Claims interfaces exclusively: with two AF_PACKET runs on one interface, each would receive every packet and send it on.
//!
//! A claim is a Unix socket with an abstract name that listens. Such names belong to the network namespace, as interfaces do, and disappear with
//! the process, however it ends (unix(7)). A claim does not survive `exec`, so the next program in a process claims its interfaces anew.
//!
//! Abstract names have no permissions: anybody could hold one to keep runs from starting. So a claim counts only if the holder's user, which the
//! kernel tells who connects, is root or the one that asks.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::interface::Interface;
use crate::source::OpenError;

/// An interface that belongs to this run as long as this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Claims an interface; fails while another run has it. Returns `None`, without a claim, where such sockets are not available, or a stranger
    /// holds the name.
    pub(crate) fn of(interface: &Interface) -> Result<Option<Claim>, OpenError> {
        let claimed = address(interface).and_then(|address| match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(Err(holder(&address)?)),
            socket => Ok(Ok(socket?)),
        });
        match claimed {
            Ok(Ok(socket)) => Ok(Some(Claim { _socket: socket })),
            Ok(Err(Some(process))) => Err(taken(interface, process)),
            Ok(Err(None)) | Err(_) => Ok(None),
        }
    }
}

impl Interface {
    /// Fails while a run has claimed the interface, be it this one; claims nothing.
    pub fn check_free(&self) -> Result<(), OpenError> {
        let holder = address(self).and_then(|address| holder(&address));
        // Where nobody can be asked, nobody has it.
        holder.ok().flatten().map_or(Ok(()), |process| Err(taken(self, process)))
    }
}

fn address(interface: &Interface) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("braid interface {}", interface.index))
}

fn taken(interface: &Interface, process: i32) -> OpenError {
    OpenError::Device {
        device: interface.name.clone(),
        what: "another run of Braid has this interface: with two every packet would go on twice".to_owned(),
        mend: format!("end that run, process {process}"),
    }
}

/// The process that holds a name, if its user may claim interfaces.
fn holder(address: &SocketAddr) -> io::Result<Option<i32>> {
    // A run listens, and nobody else connects to it, so this does not wait: a socket that refuses or is of another kind is no run's.
    let peer = socket_peercred(UnixStream::connect_addr(address)?)?;
    let may_claim = peer.uid.is_root() || peer.uid == geteuid();
    Ok(may_claim.then(|| peer.pid.as_raw_nonzero().get()))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};

    use super::*;

    #[test]
    fn an_interface_is_one_runs_at_a_time() {
        let mut loopback = Interface::ask("lo").expect("every network namespace has one");
        loopback.index = 1_000_000_007;
        let first = Claim::of(&loopback).expect("nobody has it").expect("sockets are to be had");
        let Err(OpenError::Device { device, mend, .. }) = Claim::of(&loopback) else { panic!("it is taken") };
        assert_eq!((device.as_str(), mend), ("lo", format!("end that run, process {}", std::process::id())));
        assert!(loopback.check_free().is_err(), "who only asks hears the same");
        drop(first);
        assert!(loopback.check_free().is_ok());
        assert!(Claim::of(&loopback).is_ok_and(|claim| claim.is_some()), "and free again");
    }

    #[test]
    fn who_holds_only_the_name_keeps_nobody_from_starting() {
        let mut loopback = Interface::ask("lo").expect("every network namespace has one");
        loopback.index = 1_000_000_008;
        let squatter = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        let name = SocketAddrUnix::new_abstract_name(b"braid interface 1000000008").expect("a name");
        bind(&squatter, &name).expect("nobody has it");
        assert!(Claim::of(&loopback).is_ok_and(|claim| claim.is_none()));
    }
}
