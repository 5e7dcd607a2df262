//! Claims interfaces exclusively: with two AF_PACKET runs on one interface, each would receive every packet and send it on.
//!
//! A claim is a Unix socket with an abstract name, to which nobody connects. Such names belong to the network namespace, as
//! interfaces do, and disappear with the process, however it ends (unix(7)). A claim does not survive `exec`, so the next program
//! in a process claims its interfaces anew.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::interface::Interface;
use crate::source::OpenError;

/// An interface that belongs to this run as long as this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixDatagram,
}

impl Claim {
    /// Claims an interface; fails while another run has it. Returns `None`, without a claim, where such sockets are not available.
    pub(crate) fn of(interface: &Interface) -> Result<Option<Claim>, OpenError> {
        let name = format!("braid interface {}", interface.index);
        match bind(&name) {
            Ok(socket) => Ok(Some(Claim { _socket: socket })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Err(OpenError::Device {
                device: interface.name.clone(),
                what: "another run of Braid has this interface: with two every packet would go on twice".to_owned(),
                mend: format!("end that run; sudo ss -xap | grep '{name}' names its process"),
            }),
            Err(_) => Ok(None),
        }
    }
}

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_one_runs_at_a_time() {
        let mut loopback = Interface::ask("lo").expect("every network namespace has one");
        loopback.index = 1_000_000_007;
        let first = Claim::of(&loopback).expect("nobody has it").expect("sockets are to be had");
        let refused = Claim::of(&loopback).expect_err("it is taken").to_string();
        assert!(refused.starts_with("lo: another run of Braid has this interface"), "{refused}");
        drop(first);
        assert!(Claim::of(&loopback).is_ok_and(|claim| claim.is_some()), "and free again");
    }
}
