//! All rules together: which one decides about a packet, and with what result.
//!
//! Rules are also asked about packets of known connections if a table of a rule file drops, counts, logs or limits some
//! of them. Decisions that follow from the endpoints alone are made once for each connection ([`Policy::lets_go_on`]) and
//! stored with the [`permit`](Policy::permit) of the rules, so that after a change of rules they are made again.

pub(super) mod boxes;
pub(super) mod classifier;
pub(super) mod reachable_rules;

use std::fs;
use std::sync::Arc;

use braid_nf::packet::Packet;
use braid_nf::packet::headers::Arp;
use braid_nf::packet::parse::protocol;
use braid_nf::state::hash;

use self::classifier::{ANY_FLAGS, BOXES_MAX, Classifier, FlagSet};
use self::reachable_rules::Reach;
use super::conditions::facts::{Context, Facts, Observed};
use super::conditions::fields::Values;
use super::conditions::output_ports;
use super::conditions::rare_fields::{self, Looks};
use super::config::{Config, Ttl};
use super::connection::counts;
use super::connection::is_steady;
use super::connection::permit::Permit;
use super::connection::states::{self, State};
use super::rule_file::{self, Note, Ports};
use super::rules::{Action, Reply, Rule, refuse};
use crate::config::ConfigError;
use crate::parts::Side;

/// The rules, and the default if none of them matches.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    /// The rules as written, to explain and to measure them; a running firewall discards them.
    pub(super) rules: Arc<[Rule]>,
    /// The decision of each rule.
    rulings: Arc<[Ruling]>,
    /// Parts of a rule file that are never evaluated, and why.
    pub(super) notes: Arc<[Note]>,
    classifier: Arc<Classifier>,
    /// Whether rules may treat later packets of an unanswered connection differently from its first: they count, or
    /// examine more than its endpoints.
    pub(super) tells_packets_apart: bool,
    /// By state, whether rules are asked: whether they do more than what would happen anyway.
    asked: [bool; State::COUNT],
    /// Whether tables of a rule file decide about packets, including those of known connections.
    pub(super) has_tables: bool,
    /// Whether rules say of some packets that nobody follows them.
    pub(super) untracks: bool,
    /// Known by the rules: what they have said of a connection counts as long as they are the same. Without tables all are alike.
    pub(super) permit: Permit,
    /// Whether each side has one port, so that a port identifies the side and nothing else.
    one_port_each: bool,
    /// The rules that ask for a connection's counters, if there are any.
    counting: Option<Arc<Classifier>>,
    /// Reads the fields that only few rules examine.
    looks: Option<Looks>,
    /// The default action: from inside, from outside.
    otherwise: [Action; 2],
}

impl Policy {
    /// Checks the rules of the plan, followed by those of the rule file.
    pub(super) fn check(config: &mut Config, ports: Ports) -> Result<Policy, ConfigError> {
        for key in [("outbound", config.outbound), ("inbound", config.inbound)] {
            if key.1 == Action::Continue {
                return Err(ConfigError::new(key.0, "nothing comes behind it", "write allow, deny or reject"));
            }
        }
        for (number, rule) in config.rules.iter_mut().enumerate() {
            rule.check().and_then(|()| rule.check_ports(ports)).map_err(|error| refuse(number, error))?;
            rule.origin = hash::mixed(format!("{rule:?}").as_bytes(), 0);
        }
        let mut notes = Vec::new();
        if let Some(path) = config.rules_file.clone() {
            let wrong = |reason: String, instead: String| ConfigError::new("rules_file", reason, instead);
            let text = fs::read_to_string(&path).map_err(|error| {
                let instead = "write the path of a rule file, from the folder in which braid runs";
                wrong(format!("{}: {error}", path.display()), instead.to_owned())
            })?;
            notes = rule_file::read(&path, &text, config, ports).map_err(|error| {
                let rule_file::RuleError { file, line, column, reason, instead } = error;
                wrong(format!("{file}:{line}:{column}: {reason}"), instead)
            })?;
        }
        output_ports::settle(&mut config.rules);
        notes.extend(output_ports::note(&config.rules, ports, &config.networks));
        notes.extend(rare_fields::note(&config.rules, ports));
        let has_tables = config.rules.iter().any(|rule| rule.states & !states::NEW != 0);
        let reach = Reach::of(&config.rules);
        notes.extend(State::KNOWN.into_iter().find_map(|state| reach.asked(&config.rules, state)).map(asked_often));
        let classifier = Classifier::new(&config.rules, &reach).map_err(too_many)?;
        let counting = counting(&config.rules, &reach)?;
        let looks = Looks::of(&config.rules, u8::from(config.ttl == Ttl::Decrement), config.utc_offset);
        let one_port_each = ports.count <= 2;
        Ok(Policy {
            tells_packets_apart: [0, 1].iter().any(|side| {
                let mut new = reach.list(State::New, *side).iter().filter_map(|at| config.rules.get(*at as usize));
                new.any(|rule| rule.tells_packets_apart(one_port_each))
            }),
            asked: State::ALL.map(|state| state == State::New || reach.asked(&config.rules, state).is_some()),
            has_tables,
            untracks: config.rules.iter().any(|rule| rule.untracks),
            permit: if has_tables { Permit::of(&config.rules) } else { Permit::default() },
            one_port_each,
            rulings: config.rules.iter().enumerate().map(Ruling::of).collect(),
            rules: std::mem::take(&mut config.rules).into(),
            notes: notes.into(),
            classifier: Arc::new(classifier),
            counting,
            looks,
            otherwise: [config.outbound, config.inbound],
        })
    }

    /// Whether rules examine a packet's time.
    pub(super) fn asks_when(&self) -> bool {
        self.looks.as_ref().is_some_and(Looks::asks_when)
    }

    /// Whether rules examine the Ethernet addresses of a packet.
    pub(super) fn asks_stations(&self) -> bool {
        self.looks.as_ref().is_some_and(Looks::asks_stations)
    }

    /// Whether rules examine the port by which a packet leaves.
    pub(super) fn asks_exits(&self) -> bool {
        self.looks.as_ref().is_some_and(Looks::asks_exits)
    }

    /// Whether a rule may ask for the counters of a connection between these endpoints, so that it has to be counted.
    pub(super) fn counts(&self, facts: &Facts<'_>) -> bool {
        let Some(counting) = &self.counting else { return false };
        let ways = [*facts, facts.turned()];
        let asked = |facts: &Facts<'_>| counting.find_possible(facts, ANY_FLAGS, 0).is_some();
        let of_all =
            |facts: &Facts<'_>| State::OF_CONNECTIONS.iter().any(|state| asked(&Facts { state: *state, ..*facts }));
        !self.one_port_each || ways.iter().any(of_all)
    }

    /// What rules examine of a packet. Rarely examined fields are put into `place` if some rule examines them.
    #[inline]
    pub(super) fn facts<'a>(
        &self,
        packet: &Packet<'_>,
        Observed { side, state }: Observed,
        context: &Context,
        place: &'a mut Option<Values>,
    ) -> Facts<'a> {
        let opening = context.quoted.as_ref().map_or([0; 2], |quoted| quoted.addresses);
        let facts = Facts { opening, ..Facts::of(packet, side, state) };
        let Some(looks) = &self.looks else { return facts };
        let values = place.insert(looks.at(packet, context));
        context.quoted.iter().for_each(|quoted| quoted.tell(values));
        Facts { fields: values, ..facts }
    }

    /// The same of an ARP packet.
    pub(super) fn facts_of_arp<'a>(
        &self,
        packet: &Packet<'_>,
        arp: &Arp,
        side: Side,
        context: &Context,
        place: &'a mut Option<Values>,
    ) -> Facts<'a> {
        let facts = Facts::of_arp(arp, packet.port(), side);
        match &self.looks {
            Some(looks) => Facts { fields: place.insert(looks.at(packet, context)), ..facts },
            None => facts,
        }
    }

    /// Discards what a running firewall does not need.
    pub(super) fn forget_rules(&mut self) {
        self.rules = Arc::default();
    }

    /// The deciding rule's number, if there is one, and the action. `meets` is called for each rule on the way that has
    /// effects, and returns whether the rule matches now, which its limit may prevent. A packet that a rule untracks is
    /// untracked for all later rules.
    pub(super) fn decide<E>(
        &self,
        facts: &Facts<'_>,
        mut meets: impl FnMut(usize) -> Result<bool, E>,
    ) -> Result<(Option<usize>, Action), E> {
        let (mut from, mut state) = (0, facts.state);
        while let Some(number) = self.classifier.find_as(facts, state, from)
            && let Some(ruling) = self.rulings.get(number)
        {
            from = if !ruling.has_effects || meets(number)? {
                if ruling.untracks && state != State::Arp {
                    state = State::Untracked;
                }
                if ruling.action != Action::Continue {
                    return Ok((Some(number), ruling.action));
                }
                ruling.next
            } else {
                ruling.missed
            } as usize;
        }
        Ok((None, self.otherwise(facts.side, state)))
    }

    /// The action if there are no rules at all.
    #[inline(always)]
    pub(super) fn without_rules(&self, side: Side, state: State) -> Option<Action> {
        self.rulings.is_empty().then(|| self.otherwise(side, state))
    }

    /// How the sender of a packet that a rule rejects is told.
    pub(super) fn reply(&self, number: usize) -> Reply {
        self.rulings.get(number).map(|ruling| ruling.reply).unwrap_or_default()
    }

    /// The action for a packet that no rule matches.
    fn otherwise(&self, side: Side, state: State) -> Action {
        match state {
            State::New | State::Untracked => self.otherwise[side as usize],
            State::Invalid => Action::Deny,
            State::Original | State::Reply | State::RelatedOriginal | State::RelatedReply | State::Arp => Action::Allow,
        }
    }

    /// Whether rules are asked about packets of a state. Otherwise invalid packets are dropped, and all others pass.
    pub(super) fn asks(&self, state: State) -> bool {
        self.asked[state as usize]
    }

    /// Whether rules are asked about packets of connections that have been answered.
    pub(super) fn asks_established(&self) -> bool {
        self.asks(State::Original) || self.asks(State::Reply)
    }

    /// Whether from now on every ordinary packet between these endpoints passes, in both directions, without any rule's
    /// effects.
    pub(super) fn lets_go_on(&self, facts: &Facts<'_>) -> bool {
        let passes = |facts| self.lets_pass(facts);
        !self.asks_established()
            || (self.one_port_each && !self.counts(facts) && passes(facts) && passes(&facts.turned()))
    }

    /// Does the same for one direction.
    fn lets_pass(&self, facts: &Facts<'_>) -> bool {
        let ordinary = if facts.protocol == protocol::TCP { STEADY } else { NO_FLAGS };
        let mut from = 0;
        while let Some(number) = self.classifier.find_possible(facts, ordinary, from)
            && let Some(ruling) = self.rulings.get(number)
        {
            from = match ruling.action {
                _ if ruling.has_effects => return false,
                Action::Deny | Action::Reject => return false,
                Action::Allow if ruling.is_certain => return true,
                Action::Allow => number + 1,
                Action::Continue if ruling.is_certain => ruling.next as usize,
                Action::Continue => return false,
            };
        }
        true
    }
}

fn too_many(boxes: usize) -> ConfigError {
    let reason = format!("the lists of the rules multiply to {boxes} combinations; {BOXES_MAX} is the most");
    ConfigError::new("rules", reason, "write fewer ports beside each other in one rule, or ranges of them")
}

/// A classifier of the rules that ask for connections' counters, regardless of the rules before them; `None` if no rule
/// does.
fn counting(rules: &[Rule], reach: &Reach) -> Result<Option<Arc<Classifier>>, ConfigError> {
    let about_errors = |number: &usize| {
        let mut lists = State::RELATED.into_iter().flat_map(|state| [0, 1].map(|side| reach.list(state, side)));
        lists.any(|list| list.binary_search(&(*number as u32)).is_ok())
    };
    let mut asking = Vec::new();
    for (number, rule) in rules.iter().enumerate().filter(|(_, rule)| counts::are_asked(rule)) {
        asking.push(Rule::new(Action::Deny).fitting(rule.clone()));
        asking.extend(Some(number).filter(about_errors).and_then(|_| of_quoted(rule)));
    }
    if asking.is_empty() {
        return Ok(None);
    }
    Classifier::new(&asking, &Reach::of(&asking)).map(|tree| Some(Arc::new(tree))).map_err(too_many)
}

/// For a rule that matches ICMP errors, a rule that matches the connections they are about. An error goes to one end of
/// its connection, and may come from anywhere.
fn of_quoted(rule: &Rule) -> Option<Rule> {
    let is_error = rule.protocol.any(|it| matches!(it.0, protocol::ICMP | protocol::ICMPV6));
    is_error.then(|| Rule {
        direction: rule.direction,
        ports: rule.ports.clone(),
        destination: rule.destination.clone(),
        fields: rule.fields.clone(),
        states: states::ALL,
        ..Rule::new(Action::Deny)
    })
}

/// The flags of packets that are not TCP.
const NO_FLAGS: FlagSet = [1, 0, 0, 0];
/// The flags of segments that merely continue a connection.
const STEADY: FlagSet = {
    let (mut set, mut flags) = ([0; 4], 0);
    while flags < 256 {
        if is_steady(flags as u8) {
            set[flags / 64] |= 1 << (flags % 64);
        }
        flags += 1;
    }
    set
};

/// A rule's decision, and the rules that follow it.
#[derive(Clone, Copy, Debug)]
struct Ruling {
    action: Action,
    reply: Reply,
    has_effects: bool,
    untracks: bool,
    /// Whether it matches all ordinary packets between endpoints that it matches.
    is_certain: bool,
    /// The rule to continue with if this one decides nothing, and if its limit prevents a match.
    next: u32,
    missed: u32,
}

impl Ruling {
    /// Kept for every rule, so it must stay small.
    const SMALL: () = assert!(size_of::<Ruling>() == 16);

    fn of((number, rule): (usize, &Rule)) -> Ruling {
        let () = Ruling::SMALL;
        let behind = |at| rule.behind(number, at) as u32;
        Ruling {
            action: rule.action,
            reply: rule.reply,
            has_effects: rule.has_effects(),
            untracks: rule.untracks,
            is_certain: is_certain(rule),
            next: behind(rule.next),
            missed: behind(rule.missed),
        }
    }
}

/// Whether a rule examines nothing that may differ between ordinary packets of a connection.
fn is_certain(rule: &Rule) -> bool {
    let fits_steady = || (0..=u8::MAX).all(|flags| !is_steady(flags) || rule.fits_flags(flags));
    rule.fields.is_empty() && (rule.tcp_flags.is_empty() || fits_steady())
}

/// The note that packets of known connections cost a search.
fn asked_often(rule: &Rule) -> Note {
    let text = "packets of known connections come to this rule, as in nftables: those of which it has to see each one go on more slowly. What \
                need not be asked about them costs nothing behind ct state established,related accept";
    Note { line: rule.line, file: rule.file.clone(), text: text.to_owned() }
}
