//! What a port is for, besides its VLANs: whether stations are learnt at it, which frames are flooded to it, and whether it is isolated
//! from others, as `bridge link set` of Linux has it.

use braid_nf::Port;

use super::config::PortConfig;
use super::storm::Cause;
use super::vlans::PORTS_MAX;
use crate::config::ConfigError;

/// Switches that differ from their defaults, each with the ports for which it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Isolated ports: they do not forward to each other.
    isolated: u64,
    /// Ports on which no stations are learnt.
    learn_nobody: u64,
    /// By [`Cause`], the ports to which no such frame is flooded.
    closed: [u64; 3],
}

braid_nf::plain!(Switches);

/// The bit of a port; none of one that has none.
fn bit(port: Port) -> u64 {
    1u64.checked_shl(port.into()).unwrap_or(0)
}

impl Switches {
    /// Of all ports of a plan; none if all are as usual and what is flooded may be one packet for all.
    pub fn check(written: &[PortConfig], ports: u16, splits_floods: bool) -> Result<Option<Switches>, ConfigError> {
        let mut switches = Switches::default();
        for config in written {
            let its = |switch: Option<bool>, usual| if switch.unwrap_or(usual) == usual { 0 } else { bit(config.port) };
            switches.isolated |= its(config.isolated, false);
            switches.learn_nobody |= its(config.learning, true);
            for (cause, switch) in [
                (Cause::Broadcast, config.bcast_flood),
                (Cause::Multicast, config.mcast_flood),
                (Cause::Unknown, config.flood),
            ] {
                switches.closed[cause as usize] |= its(switch, true);
            }
        }
        match switches == Switches::default() && !splits_floods {
            true => Ok(None),
            false if ports > PORTS_MAX => {
                let instead = format!("use a plan with at most {PORTS_MAX}");
                Err(ConfigError::new("port", format!("the plan has {ports} ports"), instead))
            }
            false => Ok(Some(switches)),
        }
    }

    /// Whether stations are learnt at a port.
    pub fn learn_at(&self, port: Port) -> bool {
        self.learn_nobody & bit(port) == 0
    }

    /// Whether a frame that comes by one port may leave by another.
    pub fn let_through(&self, from: Port, to: Port) -> bool {
        from == to || self.isolated & bit(from) == 0 || self.isolated & bit(to) == 0
    }

    /// The ports to which a frame may go that comes by this one and is for members of a group.
    pub fn reach(&self, from: Port) -> u64 {
        if self.isolated & bit(from) != 0 { !self.isolated } else { u64::MAX }
    }

    /// Those to which it is flooded.
    pub fn flooded(&self, from: Port, cause: Cause) -> u64 {
        self.reach(from) & !self.closed[cause as usize]
    }
}
