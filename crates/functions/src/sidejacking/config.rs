//! The configuration of `sidejacking`, as written in a plan file.

use std::time::Duration;

use serde::Deserialize;

use crate::config::{ConfigError, span_ns};

/// Configuration of [`Sidejacking`](super::Sidejacking).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names of cookies that identify a session; case is ignored.
    pub cookies: Vec<String>,
    /// Whether another browser is another user, even at the same address.
    pub by_agent: bool,
    /// Time without a request after which a web session is forgotten, in seconds.
    pub session_s: u64,
    /// How long further requests do not renew a session's time stamp, in milliseconds.
    pub refresh_ms: u64,
    /// Idle time after which a TCP session is forgotten, in seconds.
    pub idle_timeout_s: u64,
    /// Capacity for web sessions.
    pub sessions_max: u32,
    /// How many stolen sessions the report has room for.
    pub alerts_max: u32,
}

/// Session cookies of common web frameworks and servers.
const SESSION_COOKIES: &str = "PHPSESSID JSESSIONID ASP.NET_SessionId ASPSESSIONID connect.sid sessionid session_id session \
                               SID _session_id laravel_session";

impl Default for Config {
    fn default() -> Config {
        Config {
            cookies: SESSION_COOKIES.split(' ').map(str::to_owned).collect(),
            by_agent: true,
            session_s: 1800,
            refresh_ms: 1000,
            idle_timeout_s: 120,
            sessions_max: 65_536,
            alerts_max: 4096,
        }
    }
}

impl Config {
    /// The cookies' names: at least one, and each a token as RFC 6265 section 4.1.1 requires.
    pub(super) fn names(self) -> Result<Vec<String>, ConfigError> {
        if self.cookies.is_empty() {
            return Err(ConfigError::new("cookies", "names none", "write for example cookies = [\"PHPSESSID\"]"));
        }
        let is_token = |name: &String| {
            !name.is_empty() && name.bytes().all(|c| c.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&c))
        };
        match self.cookies.iter().find(|name| !is_token(name)) {
            Some(name) => {
                let reason = format!("no cookie is called {name:?}");
                Err(ConfigError::new("cookies", reason, "write its name alone, without `=` and what follows"))
            }
            None => Ok(self.cookies),
        }
    }

    pub(super) fn refresh_ns(&self) -> Result<u64, ConfigError> {
        let most = Duration::from_secs(self.session_s.max(1));
        span_ns("refresh_ms", Duration::from_millis(self.refresh_ms), Duration::ZERO, most)
    }
}
