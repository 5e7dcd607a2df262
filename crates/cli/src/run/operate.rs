//! What a run offers for its operation: a control socket, metrics, and a web page.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::Plan;
use braid_control::live::http::{HttpServer, Offer};
use braid_control::live::socket::{ControlSocket, SocketError};
use braid_control::live::{Current, Refused, Service, Successor};
use braid_control::runtime::io::device::{Ports, User};
use braid_control::runtime::{Control, Live};

use signal_hook::consts::SIGHUP;

use super::watch::unwatched;
use crate::connect::default_path;
use crate::failure::{Failure, Kind};
use crate::input::numbers::listened_at;
use crate::stderr::{aside, asideln};

/// How a run may be watched and changed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OperateArgs {
    /// Offer a control socket here, for `braid top`, `stats` and the other commands of an operator
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Offer metrics for Prometheus over HTTP at /metrics here; on a loopback address unless --metrics-remote is given
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listened_at)]
    pub metrics: Option<SocketAddr>,
    /// Allow a non-loopback address for --metrics; there is no authentication
    #[arg(long, requires = "metrics")]
    pub metrics_remote: bool,
    /// Offer a page with live figures here, on a loopback address only; the address printed has a token in it
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listened_at)]
    pub web: Option<SocketAddr>,
}

/// The services of a run; dropping it ends them.
#[derive(Debug, Default)]
pub struct Offered {
    _socket: Option<ControlSocket>,
    _metrics: Option<HttpServer>,
    _web: Option<HttpServer>,
    _reload: Option<Reload>,
    service: Option<Arc<Service>>,
}

impl OperateArgs {
    /// Where the state is kept while another program takes over: beside the control socket.
    pub fn state_path(&self) -> PathBuf {
        let mut path = self.control.clone().unwrap_or_else(default_path).into_os_string();
        path.push(".state");
        path.into()
    }

    /// Whether the run must be observable while it continues.
    pub fn is_wanted(&self) -> bool {
        self.control.is_some() || self.metrics.is_some() || self.web.is_some()
    }

    /// Offers the requested services; the run must then be started with `control`. If the run switches to `user`, the socket
    /// belongs to that user, and the run cannot be continued by another program, which would need privileges again.
    pub fn offer(
        &self,
        control: &mut Control,
        current: Current,
        config: Option<(&Path, Hangup)>,
        user: Option<User>,
    ) -> Result<Offered, Failure> {
        if !self.is_wanted() && config.is_none() {
            return Ok(Offered::default());
        }
        let live = Live::new(current.compiled.run.workers);
        let service = Service::new(&live, &control.stop, current);
        service.log_to(|what| asideln!("applied over the control socket: {what}"));
        control.live = Some(live);
        let path = match (&self.control, &config) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(_)) => Some(usual_place()?),
            (None, None) => None,
        };
        let socket = path.as_ref().map(|path| ControlSocket::offer(path, &service)).transpose().map_err(failure)?;
        if let Some(user) = user {
            let why = Refused::new(
                "the run has given up its privileges (`user`), and ports cannot be opened again",
                NO_UPGRADE,
            );
            service.forbid_upgrade(why);
            path.as_deref().map(|path| hand_over(path, user)).transpose()?;
        }
        let metrics = self.metrics.map(|address| self.offer_metrics(address, &service)).transpose()?;
        let web = self.web.map(|address| offer_page(address, &service)).transpose()?;
        let reload = config.map(|(config, hangup)| Reload::on_hangup(config, hangup, &service)).transpose()?;
        Ok(Offered { _socket: socket, _metrics: metrics, _web: web, _reload: reload, service: Some(service) })
    }

    fn offer_metrics(&self, address: SocketAddr, service: &Arc<Service>) -> Result<HttpServer, Failure> {
        if !address.ip().is_loopback() && !self.metrics_remote {
            let what = format!("--metrics {address} can be reached from other machines");
            return Err(Failure::usage(what, "write 127.0.0.1, or add --metrics-remote if that is meant"));
        }
        let offered = HttpServer::offer(address, service, Offer::Metrics);
        let offered = offered.map_err(|error| {
            Failure::new(Kind::Io, format!("--metrics {address}: {error}"), "name a port that nobody uses")
        })?;
        asideln!("metrics at http://{}/metrics", offered.address());
        Ok(offered)
    }
}

fn offer_page(address: SocketAddr, service: &Arc<Service>) -> Result<HttpServer, Failure> {
    if !address.ip().is_loopback() {
        let help = "write 127.0.0.1; from another machine, use ssh -L";
        return Err(Failure::usage(format!("--web {address} can be reached from other machines"), help));
    }
    let failed = |error: std::io::Error| {
        Failure::new(Kind::Io, format!("--web {address}: {error}"), "name a port that nobody uses")
    };
    let token = token().map_err(failed)?;
    let offered = HttpServer::offer(address, service, Offer::Page { token: token.clone() }).map_err(failed)?;
    asideln!("page at http://{}/#{token}", offered.address());
    Ok(offered)
}

/// A token: 128 random bits in hexadecimal.
fn token() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Offered {
    /// Shows what the devices of ports count too.
    pub fn watch_ports(&self, ports: &Ports) {
        if let Some(service) = &self.service {
            service.watch_ports(ports.counters());
        }
    }

    /// Asks for [`successor`](Self::successor) from other threads.
    pub fn on_upgrade(&self) -> impl Fn() -> Option<Successor> + Send + Sync + use<> {
        let service = self.service.clone();
        move || service.as_ref().and_then(|service| service.successor())
    }

    /// The program in which the run is to continue, if `braid upgrade` asked for it.
    pub fn successor(&self) -> Option<Successor> {
        self.on_upgrade()()
    }

    /// The plan for the next process, as a plan file.
    pub fn successor_plan(&self) -> Option<String> {
        self.service.as_ref().and_then(|service| service.successor_plan())
    }

    /// The current plan, which differs from the initial one if another plan was applied.
    pub fn plan(&self) -> Option<Plan> {
        self.service.as_ref().map(|service| service.plan())
    }
}

const NO_UPGRADE: &str = "save the state with `braid snapshot`, and start the other program with --restore";

/// Changes the owner of a control socket, and of its folder if that is the default one, so that the socket can be removed at the end.
fn hand_over(path: &Path, user: User) -> Result<(), Failure> {
    let own = path.parent().filter(|_| path == default_path());
    let paths = std::iter::once(path).chain(own);
    let change = |path: &Path| std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid));
    paths.into_iter().try_for_each(|path| change(path).map_err(|error| Failure::file(path, &error)))
}

/// The default path of a control socket; creates its folder, accessible only to its owner.
fn usual_place() -> Result<PathBuf, Failure> {
    let path = default_path();
    if let Some(folder) = path.parent() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.and_then(|()| is_own(folder)).map_err(|error| Failure::file(folder, &error))?;
    }
    Ok(path)
}

/// Refuses a folder in which somebody else could exchange the socket, or the state and the plan of an upgrade: anybody may have made
/// one of that name in the temporary folder.
fn is_own(folder: &Path) -> std::io::Result<()> {
    let found = folder.symlink_metadata()?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    match found.is_dir() && own && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(std::io::Error::other(
            "others may write to it, or it is somebody else's: name another one by --control",
        )),
    }
}

/// Whether the process has received SIGHUP.
#[derive(Clone, Debug)]
pub struct Hangup(Arc<AtomicBool>);

impl Hangup {
    /// From now on the signal does not end the process but is noted.
    pub fn heard() -> Result<Hangup, Failure> {
        let hangup = Hangup(Arc::default());
        signal_hook::flag::register(SIGHUP, Arc::clone(&hangup.0)).map_err(unwatched)?;
        Ok(hangup)
    }

    /// Whether the signal has arrived since the last call.
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Rereads and applies the plan file when the process receives SIGHUP.
#[derive(Debug)]
struct Reload {
    ends: Arc<AtomicBool>,
    waiting: Option<JoinHandle<()>>,
}

impl Reload {
    fn on_hangup(config: &Path, hangup: Hangup, service: &Arc<Service>) -> Result<Reload, Failure> {
        let ends = Arc::new(AtomicBool::new(false));
        let (told, config, service) = (Arc::clone(&ends), config.to_owned(), Arc::clone(service));
        let waiting = std::thread::Builder::new().name("reload".into()).spawn(move || {
            while !told.load(Ordering::Relaxed) {
                if hangup.take() {
                    reload(&config, &service);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Ok(Reload { ends, waiting: Some(waiting.map_err(unwatched)?) })
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(waiting) = self.waiting.take() {
            let _ = waiting.join();
        }
    }
}

/// Applies the plan file; reports the result on standard error, which is a service's log.
fn reload(config: &Path, service: &Service) {
    let name = config.display();
    match std::fs::read_to_string(config) {
        Err(error) => asideln!("{name}: {error}; nothing has changed"),
        Ok(text) => match service.reload(&text) {
            Ok(applied) => {
                applied.notes.iter().for_each(|note| asideln!("note: {note}"));
                aside!("{name} applied\n{}", crate::commands::apply::text(&applied));
            }
            Err(refused) => asideln!("{name} refused: {}; {}", refused.what, refused.help),
        },
    }
}

fn failure(error: SocketError) -> Failure {
    let help = match &error {
        // sun_path of unix(7) has 108 bytes, of which the last is 0.
        SocketError::Io { source, .. } if source.kind() == ErrorKind::InvalidInput => {
            "write a path of at most 107 bytes"
        }
        SocketError::Io { .. } => "the folder must be there, and be yours to write",
        SocketError::Taken(_) => "give each run a path of its own",
        SocketError::NoSocket(_) => "name a path at which nothing is",
    };
    Failure::new(Kind::Io, error.to_string(), help)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_to_which_others_may_write_holds_no_socket() {
        let place = tempfile::tempdir().expect("a folder");
        let (own, link) = (place.path().join("own"), place.path().join("link"));
        std::fs::create_dir(&own).expect("room");
        symlink(&own, &link).expect("room");
        let is_own_with = |mode| {
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            is_own(&own).is_ok()
        };
        assert!(is_own_with(0o700) && is_own_with(0o755) && !is_own_with(0o770) && !is_own_with(0o777));
        assert!(is_own_with(0o700) && is_own(&link).is_err(), "a link leads anywhere");
    }
}
