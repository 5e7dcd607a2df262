//! What a plan file may say about `sidejacking`.

use std::time::Duration;

use serde::Deserialize;

use crate::config::{ConfigError, span_ns};

/// Configuration of [`Sidejacking`](super::Sidejacking).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names of cookies that hold a session's number; upper and lower case are the same.
    pub cookies: Vec<String>,
    /// Another browser is another user, even at the same address.
    pub by_agent: bool,
    /// Seconds without a request after which a session of the web is forgotten.
    pub session_s: u64,
    /// Milliseconds within which further requests of a session do not set its stamp anew.
    pub refresh_ms: u64,
    /// Seconds without a packet after which a TCP session is forgotten.
    pub idle_timeout_s: u64,
    /// Sessions of the web that there is room for.
    pub sessions_max: u32,
    /// Stolen sessions that the report has room for.
    pub alerts_max: u32,
}

/// Cookies in which frameworks and servers of the web keep a session's number.
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
    /// The cookies' names; at least one, and such as a cookie may have (RFC 6265 section 4.1.1: a token).
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
