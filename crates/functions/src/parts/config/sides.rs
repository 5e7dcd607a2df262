//! Which ports of the plan face the inside and which the outside.
//!
//! By default even ports are inside and odd ones outside, so a plan with two ports need not configure it. A packet for the
//! other side leaves by its port's partner (0 and 1, 2 and 3, …) if that port is there, else by the first port of the other
//! side.

use braid_nf::{Cx, Port, Reason};

use crate::config::{ConfigError, check_port};

/// By a port that is neither inside nor outside.
pub const NO_SIDE: Reason = Reason("no_side");

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    /// The protected or private network.
    Inside = 0,
    /// The rest of the world.
    Outside = 1,
}

impl Side {
    /// The opposite side.
    #[inline(always)]
    pub fn other(self) -> Side {
        match self {
            Side::Inside => Side::Outside,
            Side::Outside => Side::Inside,
        }
    }
}

/// The ports of both sides, as bit sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides {
    inside: u64,
    outside: u64,
}

braid_nf::plain!(Sides);

impl Default for Sides {
    /// Even ports are inside, odd ones outside.
    fn default() -> Sides {
        Sides::EVEN_INSIDE
    }
}

impl Sides {
    /// Even ports are inside, odd ones outside.
    pub const EVEN_INSIDE: Sides = Sides { inside: u64::MAX / 3, outside: u64::MAX / 3 * 2 };

    /// Checks the lists `inside_ports` and `outside_ports` of a plan with `ports` ports; if both are empty, the default
    /// applies.
    pub fn from_lists(inside: &[Port], outside: &[Port], ports: u16) -> Result<Sides, ConfigError> {
        Sides::from_lists_named(("inside_ports", inside), ("outside_ports", outside), ports)
    }

    /// Like [`from_lists`](Self::from_lists), with other names for the lists.
    pub fn from_lists_named(
        inside: (&str, &[Port]),
        outside: (&str, &[Port]),
        ports: u16,
    ) -> Result<Sides, ConfigError> {
        let bits = |(key, list): (&str, &[Port])| {
            list.iter().try_fold(0u64, |bits, port| Ok(bits | 1 << check_port(key, *port, ports.min(64))?))
        };
        let missing = |key: &str| Err(ConfigError::new(key, "missing beside the other list", "give both or neither"));
        match (bits(inside)?, bits(outside)?) {
            (0, 0) => Ok(Sides::default()),
            (0, _) => missing(inside.0),
            (_, 0) => missing(outside.0),
            (ours, theirs) if ours & theirs != 0 => {
                let reason = format!("port {} stands in `{}` as well", (ours & theirs).trailing_zeros(), inside.0);
                let instead = match ports {
                    1 => "with a single port, leave both lists out",
                    _ => "write it in one list only",
                };
                Err(ConfigError::new(outside.0, reason, instead))
            }
            (inside, outside) => Ok(Sides { inside, outside }),
        }
    }

    /// One port that is on both sides, whose packets something else tells apart: as far as the port says, they come from inside.
    pub fn shared(port: Port) -> Sides {
        let bit = 1u64.checked_shl(port.into()).unwrap_or(0);
        Sides { inside: bit, outside: bit }
    }

    /// Whether a port is on both sides.
    #[inline(always)]
    pub fn are_shared(&self) -> bool {
        self.inside & self.outside != 0
    }

    /// Where packets from `port` come from; `None` if the port is on neither side.
    #[inline(always)]
    pub fn of(&self, port: Port) -> Option<Side> {
        let bit = 1u64.checked_shl(port.into()).unwrap_or(0);
        if self.inside & bit != 0 {
            Some(Side::Inside)
        } else if self.outside & bit != 0 {
            Some(Side::Outside)
        } else {
            None
        }
    }

    /// Whether a port is on a side, which is given as its number.
    #[inline(always)]
    pub fn is_on(&self, port: Port, side: u8) -> bool {
        let bits = if side == Side::Inside as u8 { self.inside } else { self.outside };
        port < 64 && bits >> port & 1 != 0
    }

    /// The ports on a side, as bits.
    pub fn bits(&self, side: Side) -> u64 {
        if side == Side::Inside { self.inside } else { self.outside }
    }

    /// The port by which a packet from `port` leaves for the other side; its own port if the plan has none there.
    #[inline(always)]
    pub fn across(&self, cx: &Cx<'_>, port: Port) -> Port {
        self.across_of(port, cx.ports())
    }

    /// [`across`](Self::across) for all ports, computed in advance.
    pub fn across_all(&self, ports: u16) -> Across {
        Across(std::array::from_fn(|port| self.across_of(port as Port, ports) as u8))
    }

    #[inline(always)]
    fn across_of(&self, port: Port, ports: u16) -> Port {
        let other = match self.of(port) {
            Some(Side::Inside) => self.outside,
            Some(Side::Outside) => self.inside,
            None => return port,
        };
        let partner = port ^ 1;
        if partner < ports && other.checked_shr(partner.into()).unwrap_or(0) & 1 != 0 {
            return partner;
        }
        let first = other.trailing_zeros() as Port;
        if first < ports { first } else { port }
    }
}

/// For each port, its counterpart on the other side.
#[derive(Clone, Copy, Debug)]
pub struct Across([u8; 256]);

braid_nf::plain!(Across);

impl Across {
    /// The port by which packets from `port` leave. Plans have at most 256 ports, and only the first 64 can be on a side.
    #[inline(always)]
    pub fn of(&self, port: Port) -> Port {
        self.0[usize::from(port as u8)].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_ports_are_inside_unless_lists_say_otherwise() {
        let sides = Sides::default();
        assert_eq!(
            [0, 1, 62, 63].map(|port| sides.of(port)),
            [0, 1, 0, 1].map(|odd| [Some(Side::Inside), Some(Side::Outside)][odd])
        );
        assert_eq!(sides.of(64), None);
        let sides = Sides::from_lists(&[1, 2], &[5], 8).unwrap();
        assert_eq!(
            [1, 2, 5, 0].map(|port| sides.of(port)),
            [Some(Side::Inside), Some(Side::Inside), Some(Side::Outside), None]
        );
    }

    #[test]
    fn the_way_across_is_the_partner_or_the_first_port_of_the_other_side() {
        let pairs = Sides::default();
        assert_eq!([0, 1, 2, 3].map(|port| pairs.across_of(port, 4)), [1, 0, 3, 2]);
        assert_eq!(pairs.across_of(0, 1), 0, "a plan with one port has no other side");
        assert_eq!(pairs.across_of(2, 3), 1, "the partner is missing");
        let lists = Sides::from_lists(&[0, 1, 2], &[3], 4).unwrap();
        assert_eq!([0, 1, 2, 3].map(|port| lists.across_of(port, 4)), [3, 3, 3, 2]);
        assert_eq!(lists.across_of(9, 4), 9);
        let all = lists.across_all(256);
        assert_eq!([0, 3, 64, 255].map(|port| all.of(port)), [3, 2, 64, 255]);
        let one = Sides::shared(2);
        assert_eq!([0, 2].map(|port| (one.of(port), one.across_of(port, 4))), [(None, 0), (Some(Side::Inside), 2)]);
        assert!(one.are_shared() && one.is_on(2, Side::Outside as u8) && !lists.are_shared());
    }

    #[test]
    fn lists_that_make_no_two_sides_are_refused() {
        let key = |inside: &[Port], outside: &[Port]| Sides::from_lists(inside, outside, 4).unwrap_err().key;
        assert_eq!(key(&[4], &[1]), "inside_ports", "the plan has four ports");
        assert_eq!(key(&[0, 3], &[3]), "outside_ports");
        assert_eq!(key(&[0], &[]), "outside_ports");
        assert_eq!(key(&[], &[1]), "inside_ports");
    }
}
