//! Drops privileges once ports are open, so that the run continues as an ordinary user.
//!
//! Open sockets, rings and mappings stay open. Nothing else of root remains in any thread of the process. What needs privileges
//! again (another port, a program that continues the run) is not possible afterwards.

use std::io;
use std::str::FromStr;

use super::sys;

/// A user of this machine other than root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user ID.
    pub uid: u32,
    /// The ID of the user's primary group.
    pub gid: u32,
}

/// Why a text names no such user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// The text is neither a name in `/etc/passwd` nor two numbers.
    #[error("there is no user `{0}` in /etc/passwd")]
    Unknown(String),
    /// The user is root, so no privileges would be dropped.
    #[error("`{0}` is root")]
    Root(String),
    /// The user's primary group is root's, whose files would stay accessible.
    #[error("`{0}` has root's group")]
    RootGroup(String),
}

impl FromStr for User {
    type Err = UserError;

    /// Parses a name of `/etc/passwd` (passwd(5)), or `UID:GID`.
    fn from_str(text: &str) -> Result<User, UserError> {
        let numbers = |uid: &str, gid: &str| Some(User { uid: uid.parse().ok()?, gid: gid.parse().ok()? });
        let given = text.split_once(':').and_then(|(uid, gid)| numbers(uid, gid));
        let user = given.or_else(|| {
            let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            known.lines().find_map(|line| {
                let mut fields = line.split(':');
                (fields.next()? == text).then_some(())?;
                numbers(fields.nth(1)?, fields.next()?)
            })
        });
        match user {
            None => Err(UserError::Unknown(text.to_owned())),
            Some(User { uid: 0, .. }) => Err(UserError::Root(text.to_owned())),
            Some(User { gid: 0, .. }) => Err(UserError::RootGroup(text.to_owned())),
            Some(user) => Ok(user),
        }
    }
}

impl User {
    /// Switches to this user, irrevocably and in all threads.
    pub(super) fn take_over(self) -> io::Result<()> {
        sys::become_user(self.uid, self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_or_numbered_and_not_root() {
        assert_eq!("65534:65533".parse(), Ok(User { uid: 65534, gid: 65533 }));
        assert_eq!("root".parse::<User>(), Err(UserError::Root("root".into())));
        assert_eq!("0:5".parse::<User>(), Err(UserError::Root("0:5".into())));
        assert_eq!("5:0".parse::<User>(), Err(UserError::RootGroup("5:0".into())));
        let nobody: User = "nobody".parse().expect("every machine has it");
        assert!(nobody.uid > 0 && nobody.gid > 0);
        assert_eq!("no such user".parse::<User>(), Err(UserError::Unknown("no such user".into())));
    }
}
