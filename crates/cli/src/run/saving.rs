//! Saves the state of a run when it ends, and describes the state with which a run starts. Whether it could be saved is found out at the start.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use braid_control::Plan;
use braid_control::live::Snapshot;
use braid_control::live::snapshot::{SnapshotError, is_blank};
use braid_control::profile::counted;
use braid_control::runtime::io::device::User;
use braid_control::runtime::live::saved::{Saved, SavedFunction, SavedSet};
use braid_control::runtime::{AtEnd, Control, Live, Worker};
use rustix::process::{Gid, Uid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::failure::{Failure, Kind};
use crate::stderr::asideln;

/// Collects the state of a run when its workers end.
pub struct Saving {
    live: Arc<Live>,
    sets: Arc<Mutex<(Vec<SavedSet>, u64)>>,
}

impl Saving {
    /// Makes the workers of a run hand in their packet sets when they end, if `wanted` returns true then.
    pub fn begin(control: &mut Control, workers: usize, wanted: impl Fn() -> bool + Send + Sync + 'static) -> Saving {
        let live = Arc::clone(control.live.get_or_insert_with(|| Live::new(workers)));
        let sets = Arc::new(Mutex::new((Vec::new(), 0)));
        let into = Arc::clone(&sets);
        control.at_end = Some(AtEnd(Arc::new(move |worker: &mut Worker| {
            if !wanted() {
                return;
            }
            worker.keep_held();
            let own = worker.copy_sets().into_saved();
            let mut all = into.lock().unwrap_or_else(PoisonError::into_inner);
            all.0.extend(own);
            all.1 = all.1.max(worker.now_ns());
        })));
        Saving { live, sets }
    }

    /// The collected state; `None` if the run never started.
    pub fn end(self, plan: &Plan) -> Option<Snapshot> {
        let running = self.live.running()?;
        let (sets, now_ns) = std::mem::take(&mut *self.sets.lock().unwrap_or_else(PoisonError::into_inner));
        Some(Snapshot::new(plan, Saved { sets, ..Saved::of_chain(&running.chain, plan.ports, now_ns) }))
    }
}

/// Checks whether the state could be written at the end, by the user that the run will be by then.
pub fn check_place(path: &Path, user: Option<User>) -> Result<(), Failure> {
    let Some(user) = user else { return Ok(Snapshot::check_place(path)?) };
    // In the kernel each thread has a user of its own; this one ends with the check.
    let checked = std::thread::scope(|scope| {
        let as_user = scope.spawn(|| become_here(user).map(|()| Snapshot::check_place(path)));
        as_user.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    match checked {
        Ok(Err(SnapshotError::Io { source, .. })) if source.kind() == io::ErrorKind::PermissionDenied => {
            let (path, User { uid, gid }) = (path.display(), user);
            let what = format!("{path}: {source} for the user that the run becomes, {uid}:{gid}");
            Err(Failure::new(Kind::Io, what, "name a folder to which that user may write (sudo chown)"))
        }
        Ok(checked) => Ok(checked?),
        // Who may not become that user is told so when the ports are open.
        Err(_) => Ok(()),
    }
}

/// Makes this thread alone the user's, as the run will be.
fn become_here(user: User) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    if !getuid().is_root() {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    }
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

/// Puts a state aside whose beginning is lost, as after a power failure. Any other file that is no state is somebody else's.
pub fn spare_blank(path: &Path) -> Result<(), Failure> {
    if is_blank(path) {
        let what = format!("{}: the file begins with zeros, and is no state", path.display());
        begin_without(path, &Failure::new(Kind::Io, what, ""))?;
    }
    Ok(())
}

/// Where a state goes that a run begins without.
fn aside_of(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".refused");
    PathBuf::from(aside)
}

/// Copies a state aside of which some functions begin without their part, with a message for each: the run will write over the file.
pub fn go_on_in_part(path: &Path, failures: &[Failure]) -> Result<(), Failure> {
    let aside = aside_of(path);
    std::fs::copy(path, &aside).map_err(|error| Failure::file(path, &error))?;
    for failure in failures {
        asideln!("note: {failure}; the function begins without its state, which is in {} now", aside.display());
    }
    Ok(())
}

/// Puts aside a state that the run cannot go on with, with a message: it is nobody's to write over.
pub fn begin_without(path: &Path, failure: &Failure) -> Result<Option<Vec<String>>, Failure> {
    let aside = aside_of(path);
    std::fs::rename(path, &aside).map_err(|error| Failure::file(path, &error))?;
    asideln!("note: {failure}; the run begins without that state, which is in {} now", aside.display());
    Ok(None)
}

/// Describes how much of a saved state a plan continues, and which functions' state it leaves out.
pub fn told(path: &Path, saved: &Saved, plan: &Plan) -> Vec<String> {
    let goes_on =
        |at: usize| saved.functions.get(at).is_some_and(|one| plan.chain.iter().any(|link| link.name == one.name));
    let sets = saved.sets.iter().filter(|set| set.states.iter().any(|(at, _)| goes_on(*at))).count();
    let sets = sets + saved.shared_sets(goes_on);
    let restored = format!("restored from {}: {}", path.display(), counted(sets as u64, "packet set"));
    // A function without a name has been told of already.
    let is_left_out = |(at, function): &(usize, &SavedFunction)| !goes_on(*at) && !function.name.is_empty();
    let left_out = saved.functions.iter().enumerate().filter(is_left_out).map(|(_, function)| {
        format!("note: the state of `{}` is left out: no function of the plan has this name", function.name)
    });
    std::iter::once(restored).chain(left_out).collect()
}
