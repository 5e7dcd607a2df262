//! What a run offers to those who operate it: a control socket.

use std::path::PathBuf;
use std::sync::Arc;

use braid_control::live::Service;
use braid_control::live::socket::{ControlSocket, SocketError};
use braid_control::runtime::{Control, Live};

use crate::failure::{Failure, Kind};

/// How a run may be watched and changed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OperateArgs {
    /// Offer a control socket here, for `braid top`, `stats` and the other commands of an operator
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// What is offered; ends with it.
#[derive(Debug)]
pub struct Offered {
    _socket: Option<ControlSocket>,
}

impl OperateArgs {
    /// Whether the run may be looked at while it goes on.
    pub fn is_wanted(&self) -> bool {
        self.control.is_some()
    }

    /// Offers what is asked for; the run of `control` has to be started then.
    pub fn offer(&self, control: &mut Control, workers: usize) -> Result<Offered, Failure> {
        if !self.is_wanted() {
            return Ok(Offered { _socket: None });
        }
        let live = Live::new(workers);
        let service = Service::new(&live, &control.stop);
        control.live = Some(live);
        let socket = self.control.as_deref().map(|path| ControlSocket::offer(path, &Arc::clone(&service)));
        Ok(Offered { _socket: socket.transpose().map_err(failure)? })
    }
}

fn failure(error: SocketError) -> Failure {
    let help = match &error {
        SocketError::Io { .. } => "the folder must be there, and be yours to write",
        SocketError::Taken(_) => "give each run a path of its own",
        SocketError::NoSocket(_) => "name a path at which nothing is",
    };
    Failure::new(Kind::Io, error.to_string(), help)
}
