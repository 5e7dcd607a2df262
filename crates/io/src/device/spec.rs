//! Parses port specifications: `veth0`, `af_xdp:veth0?mode=generic`, `tap:br0`,
//! `memif:/run/memif.sock?role=server`, `dpdk:0000:03:00.0?queues=4`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Maximum length of an interface name (`IFNAMSIZ` of include/uapi/linux/if.h, minus the terminating zero).
const NAME_MAX: usize = 15;
/// Minimum and maximum of `ring=`: the former is what one batch usually has, the latter takes 64 MiB.
const RING: RangeInclusive<u32> = 64..=32_768;
/// Minimum of `ring=` with AF_PACKET, whose rings consist of blocks of 256 KiB.
const PACKET_RING_MIN: u32 = 128;
/// Maximum number of receive queues of a DPDK device.
const QUEUES_MAX: u16 = 64;

/// How packets of a port reach Braid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackEnd {
    /// The best back end that this machine and this interface support: AF_XDP in the driver, else AF_PACKET; AF_PACKET on a veth pair.
    Best,
    /// AF_XDP sockets.
    AfXdp,
    /// AF_PACKET rings.
    AfPacket,
    /// A TAP interface, of which Braid is the other end.
    Tap,
    /// Memory shared with another program.
    Memif,
    /// A DPDK driver.
    Dpdk,
}

impl BackEnd {
    /// All back ends that a specification can name, with their names.
    pub const NAMED: [(&'static str, BackEnd); 5] = [
        ("af_xdp", BackEnd::AfXdp),
        ("af_packet", BackEnd::AfPacket),
        ("tap", BackEnd::Tap),
        ("memif", BackEnd::Memif),
        ("dpdk", BackEnd::Dpdk),
    ];

    /// Whether AF_XDP may be tried.
    pub(crate) fn may_be_xdp(self) -> bool {
        matches!(self, BackEnd::Best | BackEnd::AfXdp)
    }

    /// The name before the colon; `None` for `Best`.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, back_end)| *back_end == self).map(|(name, _)| *name)
    }
}

/// Where the XDP program of AF_XDP runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver if it supports that, else in the kernel's network stack.
    #[default]
    Any,
    /// In the driver, or the port is refused.
    Native,
    /// In the kernel's network stack.
    Generic,
}

/// Whether AF_XDP copies frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpCopy {
    /// Only if the driver cannot avoid it.
    #[default]
    Any,
    /// The driver writes directly into our buffers, or the port is refused.
    Zero,
    /// The kernel copies frames.
    Copy,
}

/// Options of a memif port: which interface it is, and which side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemifKeys {
    /// Whether Braid waits for the other side, which allocates the memory; if false, the roles are reversed.
    pub is_server: bool,
    /// Number of the interface on its socket.
    pub id: u32,
    /// A secret that both sides share; at most 24 bytes.
    pub secret: String,
}

/// Options of a DPDK port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DpdkKeys {
    /// Number of receive queues; `None` for one per receiving worker.
    pub queues: Option<u16>,
    /// EAL arguments that replace Braid's own, separated by spaces; the arguments of all ports are combined.
    pub eal: String,
}

/// One port as the user wrote it; only its syntax has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its back end.
    pub back_end: BackEnd,
    /// Name of the interface, path of the socket, or DPDK's device name with its arguments.
    pub name: String,
    /// AF_XDP: where the XDP program runs.
    pub mode: XdpMode,
    /// AF_XDP: whether frames are copied.
    pub copy: XdpCopy,
    /// AF_XDP: microseconds for which the kernel busy-polls the device in our system calls; 0 for interrupts.
    pub busy_poll_us: u32,
    /// AF_XDP and AF_PACKET: number of frames that wait in a receive ring, a power of two; `None` for the back end's default.
    pub ring: Option<u32>,
    /// Options for memif.
    pub memif: MemifKeys,
    /// Options for DPDK.
    pub dpdk: DpdkKeys,
}

/// Why a text is not a port specification, with a suggested correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no port: {what}")]
pub struct SpecError {
    /// What was written.
    pub text: String,
    /// What is wrong and what to write instead.
    pub what: String,
}

impl PortSpec {
    /// Whether it may use AF_XDP, whose buffers are shared memory.
    pub fn may_be_af_xdp(&self) -> bool {
        matches!(self.back_end, BackEnd::Best | BackEnd::AfXdp)
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PortSpec, SpecError> {
        let wrong = |what: String| SpecError { text: text.to_owned(), what };
        if let Some((number, device)) = text.split_once('=')
            && number.parse::<u16>().is_ok()
        {
            return Err(wrong(format!(
                "ports are numbered from 0 in the order in which they are written, so write {device} at its place"
            )));
        }
        let (device, keys) = text.split_once('?').unwrap_or((text, ""));
        let (back_end, name) = match device.split_once(':') {
            None => (BackEnd::Best, device),
            Some((prefix, name)) => match BackEnd::NAMED.iter().find(|(known, _)| *known == prefix) {
                Some((_, back_end)) => (*back_end, name),
                None => {
                    let known: Vec<&str> = BackEnd::NAMED.iter().map(|(name, _)| *name).collect();
                    return Err(wrong(format!("before the colon stands one of {}, or nothing", known.join(", "))));
                }
            },
        };
        let is_interface = !name.is_empty() && name.len() <= NAME_MAX && !name.contains(['/', ' ']);
        match back_end {
            BackEnd::Memif if name.is_empty() => {
                return Err(wrong("behind memif: stands the path of a socket".to_owned()));
            }
            BackEnd::Memif if let Some(meant) = with_question_mark(name) => {
                return Err(wrong(format!(
                    "keys stand behind a question mark and are joined by `&`: write memif:{meant}"
                )));
            }
            BackEnd::Dpdk if name.is_empty() || name.contains([' ', '\0']) => {
                let what = "behind dpdk: stands a device, as 0000:03:00.0 or net_af_packet0,iface=eth0";
                return Err(wrong(what.to_owned()));
            }
            BackEnd::Memif | BackEnd::Dpdk => {}
            _ if !is_interface => {
                let what = format!("the name of an interface has 1 to {NAME_MAX} characters; `ip link` lists them");
                return Err(wrong(what));
            }
            _ => {}
        }
        let mut spec = PortSpec {
            back_end,
            name: name.to_owned(),
            mode: XdpMode::Any,
            copy: XdpCopy::Any,
            busy_poll_us: 0,
            ring: None,
            memif: MemifKeys::default(),
            dpdk: DpdkKeys::default(),
        };
        for pair in keys.split('&').filter(|pair| !pair.is_empty()) {
            spec.set(pair).map_err(wrong)?;
        }
        Ok(spec)
    }
}

impl PortSpec {
    fn set(&mut self, pair: &str) -> Result<(), String> {
        let Some((key, value)) = pair.split_once('=') else { return Err(format!("`{pair}` has no `=`")) };
        match self.back_end {
            BackEnd::AfXdp => self.set_af_xdp(key, value),
            BackEnd::AfPacket => self.set_af_packet(key, value),
            BackEnd::Memif => self.set_memif(key, value),
            BackEnd::Dpdk => self.set_dpdk(key, value),
            _ => Err(format!(
                "only af_xdp:, af_packet:, memif: and dpdk: have keys behind a question mark, so not `{pair}`"
            )),
        }
    }

    fn set_af_xdp(&mut self, key: &str, value: &str) -> Result<(), String> {
        match (key, value) {
            ("mode", "native") => self.mode = XdpMode::Native,
            ("mode", "generic") => self.mode = XdpMode::Generic,
            ("copy", "zero") => self.copy = XdpCopy::Zero,
            ("copy", "copy") => self.copy = XdpCopy::Copy,
            ("busy_poll", number) => {
                self.busy_poll_us = number.parse().map_err(|_| "busy_poll is a number of microseconds".to_owned())?;
            }
            ("ring", frames) => self.ring = Some(ring(frames, *RING.start())?),
            _ => {
                let keys = "keys are mode=native|generic, copy=zero|copy, busy_poll=MICROSECONDS, ring=FRAMES";
                return Err(keys.to_owned());
            }
        }
        Ok(())
    }

    fn set_af_packet(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "ring" => self.ring = Some(ring(value, PACKET_RING_MIN)?),
            _ => return Err("the key is ring=FRAMES".to_owned()),
        }
        Ok(())
    }

    fn set_memif(&mut self, key: &str, value: &str) -> Result<(), String> {
        match (key, value) {
            ("role", "server") => self.memif.is_server = true,
            ("role", "client") => self.memif.is_server = false,
            ("id", number) => self.memif.id = number.parse().map_err(|_| "id is a number".to_owned())?,
            ("secret", text) if text.len() <= 24 => self.memif.secret = text.to_owned(),
            _ => return Err("keys are role=client|server, id=NUMBER, secret=TEXT (at most 24 bytes)".to_owned()),
        }
        Ok(())
    }

    fn set_dpdk(&mut self, key: &str, value: &str) -> Result<(), String> {
        match (key, value.parse::<u16>()) {
            ("queues", Ok(count @ 1..=QUEUES_MAX)) => self.dpdk.queues = Some(count),
            ("queues", _) => return Err(format!("queues is a number from 1 to {QUEUES_MAX}")),
            ("eal", _) => self.dpdk.eal = value.to_owned(),
            _ => return Err("keys are queues=NUMBER, eal=ARGUMENTS (of DPDK's environment)".to_owned()),
        }
        Ok(())
    }
}

/// What was meant by the path of a socket to which keys are joined in another way, as DPDK and VPP write them.
fn with_question_mark(name: &str) -> Option<String> {
    let begins_keys = |at: &usize| ["role=", "id=", "secret="].iter().any(|key| name[at + 1..].starts_with(key));
    let at = name.match_indices([',', '&']).map(|(at, _)| at).find(begins_keys)?;
    Some(format!("{}?{}", &name[..at], name[at + 1..].replace(',', "&")))
}

/// The size of a ring, at least `least`.
fn ring(frames: &str, least: u32) -> Result<u32, String> {
    let sizes = least..=*RING.end();
    let size = frames.parse().ok().filter(|frames: &u32| frames.is_power_of_two() && sizes.contains(frames));
    size.ok_or_else(|| format!("ring is a power of two from {} to {}, not `{frames}`", sizes.start(), sizes.end()))
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.back_end.name() {
            Some(back_end) => write!(f, "{back_end}:{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, back_end: BackEnd, name: &str) {
        let spec: PortSpec = text.parse().expect(text);
        assert_eq!((spec.back_end, spec.name.as_str()), (back_end, name));
    }

    #[test]
    fn a_port_is_an_interface_and_perhaps_a_back_end() {
        check("veth0", BackEnd::Best, "veth0");
        check("af_xdp:veth0", BackEnd::AfXdp, "veth0");
        check("af_packet:eth0.12", BackEnd::AfPacket, "eth0.12");
        check("tap:br0", BackEnd::Tap, "br0");
        check("memif:/run/vpp/memif.sock?id=3&role=server", BackEnd::Memif, "/run/vpp/memif.sock");
        check("dpdk:0000:03:00.0?queues=4", BackEnd::Dpdk, "0000:03:00.0");
        check("dpdk:net_tap0,iface=t0", BackEnd::Dpdk, "net_tap0,iface=t0");
    }

    #[test]
    fn keys_are_those_of_af_xdp() {
        let spec: PortSpec = "af_xdp:eth0?mode=generic&busy_poll=20&copy=zero".parse().unwrap();
        assert_eq!((spec.mode, spec.copy, spec.busy_poll_us), (XdpMode::Generic, XdpCopy::Zero, 20));
        assert_eq!(spec.to_string(), "af_xdp:eth0");
        assert_eq!("af_xdp:eth0?ring=32768".parse::<PortSpec>().unwrap().ring, Some(32_768));
        assert_eq!("af_packet:eth0?ring=128".parse::<PortSpec>().unwrap().ring, Some(128));
        let spec: PortSpec = "dpdk:net_ring0?queues=2&eal=-l 2 --no-huge".parse().unwrap();
        assert_eq!((spec.dpdk.queues, spec.dpdk.eal.as_str()), (Some(2), "-l 2 --no-huge"));
    }

    #[test]
    fn what_names_no_port_is_refused_with_what_to_write() {
        let check = |text: &str, what: &str| {
            let error = text.parse::<PortSpec>().expect_err(text).to_string();
            assert!(error.contains(what), "{error}");
        };
        check("", "1 to 15 characters");
        check("a_name_that_is_too_long", "1 to 15 characters");
        check("xdp:veth0", "one of af_xdp, af_packet");
        check("af_xdp:veth0?mode=fast", "mode=native|generic");
        check("tap:t0?mode=native", "only af_xdp:, af_packet:, memif: and dpdk:");
        check("eth0?ring=4096", "only af_xdp:, af_packet:, memif: and dpdk:");
        for wrong in ["", "0", "32", "1000", "65536", "-64", "2k"] {
            check(&format!("af_xdp:eth0?ring={wrong}"), "a power of two from 64 to 32768");
        }
        check("af_packet:eth0?ring=64", "a power of two from 128 to 32768");
        check("af_packet:eth0?mode=native", "ring=FRAMES");
        check("dpdk:", "0000:03:00.0");
        check("dpdk:net_ring0?queues=0", "from 1 to 64");
        check("memif:", "path of a socket");
        check("memif:/run/m.sock?role=master", "role=client|server");
        check("1=eth0", "write eth0 at its place");
        check("memif:/run/m.sock,role=server", "write memif:/run/m.sock?role=server");
        check("memif:/run/a,b.sock,id=1,role=server", "write memif:/run/a,b.sock?id=1&role=server");
        check("memif:/run/m.sock&role=server&secret=x", "write memif:/run/m.sock?role=server&secret=x");
        assert_eq!("memif:/run/a,b.sock".parse::<PortSpec>().unwrap().name, "/run/a,b.sock");
    }
}
