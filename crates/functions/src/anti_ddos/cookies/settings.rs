//! The configuration of cookies, as written in a plan file and as checked.

use std::sync::OnceLock;
use std::time::Duration;

use braid_nf::packet::IpAddress;
use serde::Deserialize;

use super::connection::{Flow, Phase};
use super::cookie::{Offer, Secret};
use crate::anti_ddos::Config;
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::Prefix;

/// Idle timeouts of connections that are closed, of those that were reset or refused before they were open, and of those reset later: these
/// may go on, for anybody may have sent the reset (RFC 7857 section 2.2).
const CLOSING: Duration = Duration::from_secs(120);
const REFUSED: Duration = Duration::from_secs(10);
const RESET: Duration = Duration::from_secs(240);

/// When SYNs are answered with cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// During an attack.
    #[default]
    Attack,
    /// Always.
    Always,
}

/// The table `cookies`; the README explains each key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct CookieConfig {
    pub when: When,
    pub protect: Vec<Prefix>,
    pub mss: u16,
    pub window_scale: Option<u8>,
    pub sack: bool,
    pub timestamps: bool,
    pub secret: Option<String>,
    pub opening_timeout_s: u64,
    pub connection_timeout_s: u64,
    pub connections_max: u32,
}

impl Default for CookieConfig {
    fn default() -> CookieConfig {
        CookieConfig {
            when: When::Attack,
            protect: Vec::new(),
            mss: 1460,
            window_scale: None,
            sack: true,
            timestamps: true,
            secret: None,
            opening_timeout_s: 60,
            // RFC 5382 REQ-5.
            connection_timeout_s: 7440,
            connections_max: 65_536,
        }
    }
}

/// The window scale of a Linux server with default buffers.
const SHIFT: u8 = 7;

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) always: bool,
    pub(super) threshold: f64,
    pub(super) flows_min: i64,
    protect: Vec<Prefix>,
    /// What servers support; options that clients offer beyond it are not accepted.
    pub(super) allowed: Offer,
    pub(super) secret: Secret,
    /// Idle timeouts, indexed by [`Phase`].
    timeouts_ns: [u64; 5],
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config) -> Result<Settings, ConfigError> {
        let cookies = config.cookies();
        check_meant(config, &cookies)?;
        let shift = cookies.window_scale.unwrap_or(SHIFT);
        if shift > 14 {
            let reason = format!("windows cannot be shifted by {shift}");
            return Err(ConfigError::new("cookies.window_scale", reason, "write 0 to 14 (RFC 7323 section 2.3)"));
        }
        if cookies.mss < 536 {
            let reason = format!("every host takes segments of more than {} bytes", cookies.mss);
            return Err(ConfigError::new("cookies.mss", reason, "write at least 536"));
        }
        let (least, span) = (Duration::from_secs(1), Duration::from_secs);
        let opening = span_ns("cookies.opening_timeout_s", span(cookies.opening_timeout_s), least, IDLE_MAX)?;
        let open = span_ns("cookies.connection_timeout_s", span(cookies.connection_timeout_s), least, IDLE_MAX)?;
        let mut timeouts_ns = [config.idle_timeout_ns()?; 5];
        timeouts_ns[Phase::Asked as usize] = opening;
        timeouts_ns[Phase::Open as usize] = open;
        timeouts_ns[Phase::Closing as usize] = CLOSING.as_nanos() as u64;
        timeouts_ns[Phase::Reset as usize] = open.min(RESET.as_nanos() as u64);
        let stamps = cookies.timestamps.then_some((0, 0));
        Ok(Settings {
            always: cookies.when == When::Always,
            threshold: config.threshold()?,
            flows_min: config.flows_min.into(),
            protect: cookies.protect.clone(),
            allowed: Offer { size: cookies.mss, shift: Some(shift), sack: cookies.sack, stamps },
            secret: secret(cookies.secret.as_deref())?,
            timeouts_ns,
        })
    }

    /// The idle timeout of a flow.
    pub(super) fn timeout_ns(&self, flow: &Flow) -> u64 {
        if flow.was_refused() { REFUSED.as_nanos() as u64 } else { self.timeouts_ns[flow.stage() as usize] }
    }

    /// The number of the span, of the timeout of a flow that nobody continues, in which a time lies.
    pub(super) fn span(&self, now_ns: u64) -> u64 {
        now_ns / self.timeouts_ns[Phase::Direct as usize].max(1)
    }

    /// Whether connections to an address are opened by the proxy first.
    pub(super) fn protects(&self, address: IpAddress) -> bool {
        self.protect.is_empty() || self.protect.iter().any(|prefix| prefix.contains(address))
    }

    /// The window scale that clients are told.
    pub(super) fn shift(&self) -> u8 {
        self.allowed.shift.unwrap_or(0)
    }

    /// The maximum segment size that clients of a server are told, in bytes.
    pub(super) fn size(&self, server: IpAddress) -> u16 {
        // IPv6's header is 20 bytes longer.
        if server.is_v4() { self.allowed.size } else { self.allowed.size - 20 }
    }
}

/// Checks that every key that is set has an effect.
fn check_meant(config: &Config, cookies: &CookieConfig) -> Result<(), ConfigError> {
    let usual = Config::default();
    let told = [
        ("threshold", config.threshold != usual.threshold),
        ("flows_min", config.flows_min != usual.flows_min),
        ("staleness_us", config.staleness_us != usual.staleness_us),
    ];
    match told.iter().find(|(_, is_told)| *is_told) {
        Some((key, _)) if cookies.when == When::Always => {
            let reason = "every connection is opened with a cookie, so nobody asks whether there is an attack";
            Err(ConfigError::new(key, reason, "leave it out, or write when = \"attack\" into `cookies`"))
        }
        _ if cookies.window_scale.is_some() && !cookies.timestamps => {
            let reason = "without time stamps there is no place to keep it";
            Err(ConfigError::new("cookies.window_scale", reason, "leave it out, or leave out `timestamps`"))
        }
        _ => Ok(()),
    }
}

/// The configured secret, or a random one for this process.
fn secret(written: Option<&str>) -> Result<Secret, ConfigError> {
    static OWN: OnceLock<Secret> = OnceLock::new();
    let Some(written) = written else {
        if let Some(own) = OWN.get() {
            return Ok(*own);
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            ConfigError::new("cookies.secret", format!("no random numbers: {error}"), "write 32 hexadecimal digits")
        })?;
        return Ok(*OWN.get_or_init(|| Secret(bytes)));
    };
    match u128::from_str_radix(written, 16) {
        Ok(number) if written.len() == 32 => Ok(Secret(number.to_be_bytes())),
        _ => {
            let reason = format!("`{written}` is no secret");
            Err(ConfigError::new("cookies.secret", reason, "write 32 hexadecimal digits that nobody knows"))
        }
    }
}
