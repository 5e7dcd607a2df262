//! Connects commands to runs, which are identified by the path of a control socket.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use braid_control::live::snapshot::SnapshotError;
use braid_control::live::{Client, ClientError, Refused};

use crate::args::{ChainArgs, InputArgs};
use crate::failure::{Failure, Kind};

/// Which run is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ControlArgs {
    /// Control socket of the run [default: that of `braid run --config`]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// The default control socket of a run that is started as a service: in the folder that the service manager made; else in
/// `/run/braid` for root; else in the user's runtime folder or, without one, in the temporary folder.
pub fn default_path() -> PathBuf {
    let folder = match std::env::var_os("RUNTIME_DIRECTORY") {
        // Made by systemd for this service (RuntimeDirectory=), perhaps with others behind it (systemd.exec(5)).
        Some(folders) => first(&folders),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/run/braid"),
        None => match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(folder) => PathBuf::from(folder).join("braid"),
            None => std::env::temp_dir().join(format!("braid-{}", rustix::process::geteuid().as_raw())),
        },
    };
    folder.join("control.sock")
}

/// The first of several paths, with colons between them.
fn first(folders: &OsStr) -> PathBuf {
    let bytes = folders.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Whether a run is to be queried; otherwise packets go through a chain. Naming both, or an input or options without a chain, is an error.
pub fn is_of_run(control: &ControlArgs, chain: &ChainArgs, input: &InputArgs) -> Result<bool, Failure> {
    let has_chain = !chain.nf.is_empty() || chain.plan.is_some();
    if has_chain && control.control.is_some() {
        let help = "leave out --control to have an input go through the chain, or the chain to ask the run";
        return Err(Failure::usage("a chain is named, and --control names a run, which has its own", help));
    }
    if !has_chain && !input.from.is_empty() {
        let help = "name functions, as --nf nat, or a plan file; or leave --in out to ask a run";
        return Err(Failure::usage("--in names packets, but no chain for them to go through", help));
    }
    if let Some(option) = chain.given().first().filter(|_| !has_chain) {
        let help = format!("leave {option} out; or name a chain and an input, to have packets go through");
        return Err(Failure::usage(format!("{option} has no effect on a run that is queried"), help));
    }
    Ok(!has_chain)
}

/// Whether the peer has closed an established connection.
fn is_broken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}

/// Where the run's control socket is.
pub fn place(args: &ControlArgs) -> PathBuf {
    args.control.clone().unwrap_or_else(default_path)
}

/// Connects to the run.
pub fn connect(args: &ControlArgs) -> Result<Client, Failure> {
    Ok(Client::connect(&place(args))?)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                let help =
                    "start one with `braid run --control PATH …`, and name the same path; after an upgrade ask again";
                Failure::new(Kind::Io, format!("{}: no run offers a control socket here", path.display()), help)
            }
            ClientError::Io { path, source }
                if source.kind() == io::ErrorKind::ConnectionRefused && !is_socket(&path) =>
            {
                let help = "name the path that `braid run --control` was given";
                Failure::new(Kind::Io, format!("{}: this is no control socket", path.display()), help)
            }
            ClientError::Io { path, source } if source.kind() == io::ErrorKind::ConnectionRefused => {
                let help = "what was left there is replaced by the next `braid run --control`";
                Failure::new(Kind::Io, format!("{}: the run that was here has ended", path.display()), help)
            }
            ClientError::Io { path, source } if is_broken(&source) => {
                let help = "if it is upgraded ask again: it answers as soon as the new program has begun";
                Failure::new(Kind::Io, format!("{}: the run there has ended meanwhile", path.display()), help)
            }
            ClientError::Io { path, source } if source.kind() == io::ErrorKind::InvalidInput => {
                Failure::usage(format!("{}: {source}", path.display()), "write a path of at most 107 bytes")
            }
            ClientError::Io { path, source } => Failure::file(&path, &source),
            ClientError::Silent(_) => {
                let help = "is its process stopped? `ps -eo pid,stat,args` shows T; kill -CONT PID resumes it";
                Failure::new(Kind::Io, error.to_string(), help)
            }
            ClientError::Refused(Refused { what, help, is_wrong: true, .. }) => Failure::usage(what, help),
            ClientError::Refused(Refused { what, help, is_without_run: true, .. }) => {
                Failure::new(Kind::Io, what, help)
            }
            ClientError::Refused(Refused { what, help, .. }) => Failure::new(Kind::Failed, what, help),
            ClientError::Answer { .. } => {
                Failure::new(Kind::Failed, error.to_string(), "is it another version of braid that runs there?")
            }
        }
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Failure {
        match &error {
            SnapshotError::Io { path, source } => Failure::file(path, source),
            SnapshotError::Content { .. } => {
                let help = "name a file that `braid snapshot` or `--snapshot` has written";
                Failure::new(Kind::Io, error.to_string(), help)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_runtime_folders_the_first_is_taken() {
        assert_eq!(first("/run/braid".as_ref()), Path::new("/run/braid"));
        assert_eq!(first("/run/braid:/run/other".as_ref()), Path::new("/run/braid"));
    }
}
