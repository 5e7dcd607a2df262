//! Explains which rule decides about a packet, and why, before the packet comes.

use std::fmt::Write;
use std::sync::Arc;

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Batch, Buffers, FrameInfo, Layout, Pool, PoolConfig};
use braid_nf::state::HugePages;
use braid_nf::{EVERY_PORT, Packet, Port, Reason};

use super::SOURCE_ROUTED;
use super::conditions::clock::{self, DAYS, When};
use super::conditions::facts::{Context, Facts, Observed};
use super::conditions::fields::Field;
use super::conditions::values::{IcmpKind, Protocol};
use super::config::{Config, Settings};
use super::connection::counts::Counts;
use super::connection::opening::objection;
use super::connection::related::{Message, NO_QUERY, UNRELATED};
use super::connection::states::State;
use super::effects::marks::Marks;
use super::live_packets::check;
use super::policy::Policy;
use super::rules::{Action, Direction, Rule};
use crate::config::ConfigError;

/// A packet cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no memory for the packet.
    #[error("no memory for a packet: {0}")]
    Memory(String),
    /// The packet arrives on a port that is on neither side.
    #[error("port {0} is on neither side: packets from there are dropped as wrong_side")]
    Side(Port),
    /// No rule applies to the packet.
    #[error(
        "it is no whole IP packet, nor one of ARP of which rules speak: what is not IP passes unless `non_ip` says otherwise, what is damaged is dropped as malformed"
    )]
    NotIp,
}

/// How many rules after the deciding one to list because they would match too.
const SHADOWED_MAX: usize = 3;
/// How many rules before the deciding one to list with the condition that fails.
const BEFORE_MAX: usize = 10;

/// Explains what a configuration's rules decide about a frame that arrives on a port of a plan with `ports` ports and
/// would open a connection; it is the first packet, before anything is counted. `when`: its time, for rules that test it.
pub fn explain(config: Config, ports: u16, (port, frame): (Port, &[u8]), when: When) -> Result<String, ExplainError> {
    let now_ns = when.utc_ns(config.utc_offset);
    let settings = Settings::check(config, ports, Default::default())?;
    let side = settings.sides.of(port).filter(|_| port < ports).ok_or(ExplainError::Side(port))?;
    let tell = |packet: &Packet<'_>| {
        let mut fields = None;
        if let Some(arp) = packet.arp().filter(|_| settings.policy.asks(State::Arp)) {
            let exits = settings.exits.of(EVERY_PORT, packet, side);
            let context = Context { wall_ns: now_ns, exits, ..Context::default() };
            let facts = settings.policy.facts_of_arp(packet, arp, side, &context, &mut fields);
            return Some(report(&settings, (packet, &facts), None));
        }
        let fate = fate(&settings, packet);
        let state = if matches!(fate, Some(Fate::Invalid(_))) { State::Invalid } else { State::New };
        let exits = settings.exits.of(EVERY_PORT, packet, side);
        let counts = Some(Counts::of(packet, state));
        let context = Context { wall_ns: now_ns, exits, counts, quoted: None };
        packet.is_ip().then(|| {
            let facts = settings.policy.facts(packet, Observed { side, state }, &context, &mut fields);
            report(&settings, (packet, &facts), fate)
        })
    };
    read(frame, port, tell)?.ok_or(ExplainError::NotIp)
}

/// Parses a frame and passes it to `look`.
fn read<T>(frame: &[u8], port: Port, look: impl FnOnce(&Packet<'_>) -> T) -> Result<T, ExplainError> {
    let config = PoolConfig { buffers: 1, jumbos: 1, pages: HugePages::Never };
    let pool = Pool::new(&config).map_err(|error| ExplainError::Memory(error.to_string()))?;
    let mut buffers = Buffers::new(&pool);
    let mut batch = Batch::new(&pool, &Arc::new(Layout::bare()));
    let info = FrameInfo { port, wire_len: frame.len() as u32, ..FrameInfo::default() };
    if !batch.copy_in(&mut buffers, frame, &info) {
        return Err(ExplainError::NotIp);
    }
    batch.parse_all();
    let seen = look(&batch.packet(0, None));
    batch.release(&mut buffers);
    Ok(seen)
}

/// What becomes of a packet that rules alone do not decide about.
enum Fate {
    /// It is dropped for this reason.
    Invalid(Reason),
    /// It is dropped for this reason unless what it belongs to is known.
    Unless(Reason, &'static str),
}

/// What becomes of a packet whatever the rules say; `None` if they decide.
fn fate(settings: &Settings, packet: &Packet<'_>) -> Option<Fate> {
    if settings.refuses_route(packet) {
        return Some(Fate::Invalid(SOURCE_ROUTED));
    }
    let segment = match check(packet) {
        Ok(segment) => segment,
        Err(reason) => return Some(Fate::Invalid(reason)),
    };
    if let Some(reason) = objection(packet, segment.as_ref(), settings.loose) {
        return Some(Fate::Unless(reason, "it is of a live connection"));
    }
    if !matches!(packet.protocol(), protocol::ICMP | protocol::ICMPV6) {
        return None;
    }
    match Message::of(packet) {
        None => Some(Fate::Invalid(Reason::MALFORMED)),
        Some(Message::Error) => Some(Fate::Unless(UNRELATED, "it quotes a packet of a live connection or query")),
        Some(Message::Reply(..)) => Some(Fate::Unless(NO_QUERY, "it answers a live query")),
        Some(Message::Query(..) | Message::Other) => None,
    }
}

fn report(settings: &Settings, (packet, facts): (&Packet<'_>, &Facts<'_>), fate: Option<Fate>) -> String {
    let mut page = decision(&settings.policy, facts, fate);
    if settings.policy.asks_when() {
        let day = DAYS[facts.fields.of(Field::Day) as usize % DAYS.len()];
        page +=
            &format!("It comes on {day}, {}, by the zone of the plan.\n", clock::written(facts.fields.of(Field::Time)));
    }
    if let Some(ethernet) = packet.ethernet().filter(|_| settings.policy.asks_stations()) {
        let (from, to) = (ethernet.source(), ethernet.destination());
        page += &format!(
            "Rules ask for Ethernet addresses: it goes from {from} to {to}. Others stand before the packet, as eth {from} > {to}.\n"
        );
    }
    page
}

fn decision(policy: &Policy, facts: &Facts<'_>, fate: Option<Fate>) -> String {
    let (mut met, mut marks) = (Vec::new(), Marks::NEW);
    let decided = policy.decide(facts, |number| {
        let Some(rule) = policy.rules.get(number) else { return Ok(false) };
        let fits = rule.fits_first(facts, &marks) && rule.gives.iter().all(|given| marks.set(given));
        if fits && rule.untracks {
            marks.untrack();
        }
        met.extend(fits.then_some(number));
        Ok::<_, std::convert::Infallible>(fits)
    });
    let Ok((deciding, action)) = decided;
    let is_arp = facts.state == State::Arp;
    let what = match (action, fate) {
        (_, Some(Fate::Invalid(reason))) => format!("is dropped as {}: it is invalid, whatever rules say", reason.0),
        (Action::Allow, _) if marks.is_untracked() => "passes, and opens no connection: nobody follows it".to_owned(),
        (Action::Allow, Some(Fate::Unless(reason, why))) => format!("is dropped as {}, unless {why}", reason.0),
        (Action::Allow, None) if is_arp => "passes".to_owned(),
        (Action::Reject, _) if is_arp => "is dropped: denied".to_owned(),
        (Action::Allow, None) => "passes, and opens a connection".to_owned(),
        (Action::Deny | Action::Continue, _) => "is dropped: denied".to_owned(),
        (Action::Reject, _) => "is dropped: rejected, and its sender is told".to_owned(),
    };
    let direction = direction(Direction::from(facts.side));
    let mut page = format!("The packet is {direction} by port {} and {what}.\n\n", facts.port);
    // Writing to a string cannot fail.
    for (number, rule) in
        met.iter().filter(|met| Some(**met) != deciding).filter_map(|met| Some((met, policy.rules.get(*met)?)))
    {
        let _ = writeln!(page, "{} fits and goes on: {}", rule.place(*number), conditions(rule));
    }
    match deciding.and_then(|number| Some((number, policy.rules.get(number)?))) {
        Some((number, rule)) => {
            let _ = writeln!(page, "{} decides: {}", rule.place(number), conditions(rule));
        }
        None => {
            let key = if is_arp { "non_ip" } else { direction };
            let _ = writeln!(page, "No rule fits: `{key}` decides.");
        }
    }
    let before = deciding.unwrap_or(policy.rules.len());
    for (number, rule) in policy.rules.iter().enumerate().take(before).rev().take(BEFORE_MAX) {
        if let Some(mismatch) = mismatch(rule, facts).filter(|_| rule.action != Action::Continue) {
            let _ = writeln!(page, "  before it, {} does not fit by its {mismatch}", rule.place(number));
        }
    }
    if before > BEFORE_MAX {
        let _ = writeln!(page, "  nor do {} rules before those", before - BEFORE_MAX);
    }
    let behind = policy.rules.iter().enumerate().skip(before + 1).filter(|(_, rule)| mismatch(rule, facts).is_none());
    for (number, rule) in behind.take(SHADOWED_MAX) {
        let _ = writeln!(page, "  behind it, {} would fit too: {}", rule.place(number), conditions(rule));
    }
    page
}

/// Why a rule does not match the very first packet.
fn mismatch(rule: &Rule, facts: &Facts<'_>) -> Option<&'static str> {
    let counts =
        || (!rule.fits_first(facts, &Marks::NEW)).then_some("set, mark or limit, as long as nothing is counted");
    rule.mismatch(facts).or_else(counts)
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Outbound => "outbound",
        Direction::Inbound => "inbound",
    }
}

/// A rule in the words of rule files, with long lists cut, and its comment, which names the chain if the rule is a
/// policy.
fn conditions(rule: &Rule) -> String {
    let mut words = Vec::new();
    words.extend(rule.direction.map(|wanted| direction(wanted).to_owned()));
    let mut add = |name: &str, list: Vec<String>| {
        if !list.is_empty() {
            let more = if list.len() > 4 { format!(", … {} in all", list.len()) } else { String::new() };
            words.push(format!("{name} {}{more}", list[..list.len().min(4)].join(", ")));
        }
    };
    let range = |first: u16, last: u16| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let protocol_name = |it: &Protocol| protocol::name(it.0).map_or_else(|| it.0.to_string(), ToOwned::to_owned);
    let icmp = |kind: &IcmpKind| match (kind.first >> 8, kind.first == kind.last) {
        (kind, false) => kind.to_string(),
        (number, true) => format!("{number}/{}", kind.first & 255),
    };
    add("port", rule.ports.0.iter().map(ToString::to_string).collect());
    add("protocol", rule.protocol.0.iter().map(protocol_name).collect());
    add("from", rule.source.0.iter().map(ToString::to_string).collect());
    add("source ports", rule.source_ports.0.iter().map(|it| range(it.first, it.last)).collect());
    add("to", rule.destination.0.iter().map(ToString::to_string).collect());
    add("destination ports", rule.destination_ports.0.iter().map(|it| range(it.first, it.last)).collect());
    add("ICMP type", rule.icmp.0.iter().map(icmp).collect());
    for bits in &rule.tcp_flags {
        add("TCP flags", vec![bits.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")]);
    }
    add("at most", rule.limit.iter().map(ToString::to_string).collect());
    words.extend(rule.quota.iter().map(ToString::to_string));
    words.extend(rule.keyed.iter().map(|keyed| format!("as the set {} says", keyed.set.name)));
    words.extend(rule.masked.iter().map(ToString::to_string));
    words.extend(rule.fields.iter().map(ToString::to_string));
    words.extend(rule.asks.iter().map(ToString::to_string));
    words.extend(rule.gives.iter().map(ToString::to_string));
    words.extend(rule.edits.iter().map(ToString::to_string));
    if words.is_empty() {
        words.push("everything".to_owned());
    }
    words.extend(rule.untracks.then(|| "is not followed".to_owned()));
    let action = match rule.action {
        Action::Allow => "accept",
        Action::Deny => "drop",
        Action::Reject => "reject",
        Action::Continue => "continue",
    };
    let comment = if rule.comment.is_empty() { String::new() } else { format!(" ({})", rule.comment) };
    format!("{}: {action}{comment}", words.join(", "))
}
