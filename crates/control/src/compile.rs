//! Turns a validated plan into a runnable one. It builds the chain once to learn its packet sets, then chooses the steering that
//! keeps most of them local; packet sets that no steering keeps on one worker live in shared state.

use std::sync::Arc;

use braid_runtime::io::device::{CardHash, EndOrder, TUPLE_MAX, TupleHash};
use braid_runtime::live::exchange::goes_on;
use braid_runtime::nf::packet::fields::{SEQUENCE, StageUse, TIMESTAMP_NS, WIRE_LEN};
use braid_runtime::nf::packet::key::SetDef;
use braid_runtime::nf::packet::{FieldId, PortSet};
use braid_runtime::nf::state::{Domain, StateBuilder};
use braid_runtime::nf::{ShareError, Stage};
use braid_runtime::steer::planner::{self, Changed, HashPlan, Locality, Member};
use braid_runtime::steer::udp_ports::Why;
use braid_runtime::steer::{Fields, Key, Pattern, Reta, Steering, Symmetry, Toeplitz, UdpPorts};
use braid_runtime::{BuildError, Chain, ChainError, Course, Distribution, Plan as RunPlan, Sharing, Time};

use crate::HugePages;
use crate::catalog::Refusal;
use crate::explain::set_in_words;
use crate::memory::{Memory, available};
use crate::plan::file::Problem;
use crate::plan::overridden::Overridden;
use crate::plan::surroundings::{self, Site};
use crate::plan::{Plan, PlannedFunction, Share};

/// Which metadata of each packet the sink needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Timestamps, lengths and order, as a capture file stores them; also for a run whose chain may later
    /// be replaced by one that reads them.
    Capture,
    /// None: packets are only counted.
    Nothing,
}

/// A runnable plan, and the reasons for the choices made.
#[derive(Debug)]
pub struct Compiled {
    /// For [`launch`](braid_runtime::launch()).
    pub run: RunPlan,
    /// The fields that are hashed for steering, and what this means for each function.
    pub hash: HashPlan,
    /// Which packet sets no steering keeps on one worker, and the consequences.
    pub note: Option<String>,
    /// Memory that its state may need.
    pub memory: Memory,
}

/// Whether steering keeps a packet set on one worker, given what functions before change.
type IsLocal<'a> = &'a dyn Fn(&SetDef, Changed) -> bool;

impl Plan {
    /// Makes the plan runnable.
    pub fn compile(&self, carry: Carry) -> Result<Compiled, Problem> {
        self.compile_with(carry, self.udp_ports())
    }

    /// Compiles a plan that replaces a running one. Packets in transit are already steered, so the choice whether to steer UDP by its
    /// ports is kept unless the plan makes it.
    pub fn compile_beside(&self, carry: Carry, running: &Compiled) -> Result<Compiled, Problem> {
        let now = running.run.steering.udp_ports();
        self.compile_with(carry, self.udp_ports().or(Some(now)))
    }

    fn compile_with(&self, carry: Carry, udp_ports: Option<UdpPorts>) -> Result<Compiled, Problem> {
        let domain = Domain::new(self.workers);
        let mut builder = self.builder(&domain);
        let chain = self.local_chain(carry, &mut builder)?;
        let hash = planner::plan_with(&members(&chain), self.course.outside(), udp_ports);
        self.check_udp_ports(&hash)?;
        let (workers, note) = (self.workers, if self.workers > 1 { self.note(&hash) } else { None });
        let steering = self.steering(&hash, workers)?;
        self.check_balance(&chain, &hash, &steering)?;
        let (links, site): (Arc<[PlannedFunction]>, Site) = (self.chain.clone().into(), self.site());
        let build = move |builder: &mut StateBuilder| {
            builder.limit(available());
            build_all(&links, &site, builder).map_err(|(refusal, at)| {
                let Refusal { key, reason, instead } = refusal;
                BuildError { function: links[at].name.clone(), reason: format!("`{key}`: {reason}; {instead}") }
            })
        };
        let run = RunPlan {
            build: Arc::new(build),
            ports: self.ports,
            workers,
            batch: self.batch,
            sets: self.sets,
            buffers: 0,
            pages: self.pages,
            time: self.time,
            distribution: self.distribution,
            steering: Arc::new(steering),
            course: self.course.clone(),
            own_fields: self.own_fields(carry),
            gather: self.gather,
            in_order: self.in_order,
            balance: self.balance,
        };
        let is_local = |set: &SetDef, changed: Changed| workers == 1 || run.steering.keeps(set, changed);
        let shares = |at: usize| {
            let set = chain.stages()[at].packet_set();
            set.is_some_and(|set| !is_local(&set, chain.torn_before(at)))
        };
        // The functions stay those that they are: building a firewall with 100,000 rules takes seconds.
        let has_shared = (0..chain.stages().len()).any(shares);
        let chain = if has_shared { self.chain(chain.into_stages(), carry, (&mut builder, &is_local))? } else { chain };
        let memory = Memory::of(&run, &chain);
        memory.check(self)?;
        Ok(Compiled { run, hash, note, memory })
    }

    fn site(&self) -> Site {
        Site { course: self.course.clone(), ports: self.ports, mtus: self.mtus.clone() }
    }

    /// Builds the chain with its own state, for inspection only.
    pub fn probe(&self, carry: Carry) -> Result<Chain, Problem> {
        let domain = Domain::new(self.workers);
        self.local_chain(carry, &mut self.builder(&domain))
    }

    /// Builds the chain as if steering kept all packet sets on one worker each.
    fn local_chain(&self, carry: Carry, builder: &mut StateBuilder) -> Result<Chain, Problem> {
        self.chain(self.stages(builder)?, carry, (builder, &|_, _| true))
    }

    /// What builds state for inspection only.
    fn builder(&self, domain: &Arc<Domain>) -> StateBuilder {
        let mut builder = StateBuilder::new(domain, HugePages::Never);
        builder.limit(available());
        builder
    }

    fn stages(&self, builder: &mut StateBuilder) -> Result<Vec<Box<dyn Stage>>, Problem> {
        let stages = build_all(&self.chain, &self.site(), builder);
        stages.map_err(|(refusal, at)| self.build_problem(&refusal, at))
    }

    /// Makes a chain of functions that share no packet sets yet; those that are not local are shared from now on.
    fn chain(
        &self,
        stages: Vec<Box<dyn Stage>>,
        carry: Carry,
        (builder, is_local): (&mut StateBuilder, IsLocal<'_>),
    ) -> Result<Chain, Problem> {
        let sharing = &mut Sharing { is_local, builder, capacity: self.sets };
        Chain::new(stages, &self.own_fields(carry), &self.course, sharing).map_err(|error| self.chain_problem(&error))
    }

    /// Whether the functions of this plan can take over the state of functions with the configurations in
    /// `older`; the error names the function that cannot.
    pub fn check_heritage(&self, older: &[(String, String, toml::Table)]) -> Result<(), Problem> {
        let (domain, site) = (Domain::new(self.workers), self.site());
        for (at, link) in self.chain.iter().enumerate() {
            let Some((_, kind, config)) = older.iter().find(|(name, ..)| *name == link.name) else { continue };
            if *kind == link.entry.name && *config == link.config.table() {
                continue;
            }
            let build = |config: toml::Table| {
                let mut builder = StateBuilder::new(&domain, HugePages::Never);
                let config = with_sides(link, config, &site);
                (link.entry.build)(&link.name, config, builder.scope(&link.name), self.ports)
            };
            let refused = |reason: String| {
                let help = "leave its configuration as it was, or give it another name to begin without state";
                Problem::new(format!("{}: {reason}", link.name), help).at(link.at.clone())
            };
            if *kind != link.entry.name {
                return Err(refused(format!("it was a {kind} and cannot go on as a {}", link.entry.name)));
            }
            let after = build(link.config.table()).map_err(|refusal| self.build_problem(&refusal, at))?;
            let before = build(config.clone()).map_err(|refusal| {
                refused(format!("its saved configuration is refused: `{}`: {}", refusal.key, refusal.reason))
            })?;
            goes_on(&*before, &*after, true).map_err(refused)?;
        }
        Ok(())
    }

    /// Rejects sets that cannot be found by their keys, because a set moves between workers with its entry of the indirection table.
    fn check_balance(&self, chain: &Chain, hash: &HashPlan, steering: &Steering) -> Result<(), Problem> {
        if self.balance.is_none() || self.workers == 1 {
            return Ok(());
        }
        for (at, (link, outcome)) in self.chain.iter().zip(&hash.chosen.outcomes).enumerate() {
            let Some(set) = chain.stages()[at].packet_set() else { continue };
            if outcome.locality == Locality::Local && !steering.finds(&set) {
                let what = format!("the packet sets of `{}` cannot be moved between workers by their keys", link.name);
                let help = "leave `balance` out: it needs packets that are steered by addresses and ports";
                return Err(Problem::new(what, help).at(link.at.clone()));
            }
        }
        Ok(())
    }

    /// Rejects a wish to leave out the ports of UDP that would tear packet sets, or bring all UDP to a few workers.
    fn check_udp_ports(&self, hash: &HashPlan) -> Result<(), Problem> {
        let (Some(UdpPorts::LeftOut), 2..) = (self.udp_ports(), self.workers) else { return Ok(()) };
        let (what, help) = match &hash.chosen.udp.why {
            Why::WouldTear(functions) => (
                format!(
                    "without the ports of UDP, packet sets of `{}` would be torn: their key has ports, but no protocol number",
                    functions.join("`, `")
                ),
                "add \"ip.proto\" to the fields of those packet sets, or leave `steer_udp_ports` out",
            ),
            Why::FewValues => {
                let what = "without the ports of UDP hardly anything of its packets is hashed: a few workers would get them all";
                (what.to_owned(), "leave `steer_udp_ports` out")
            }
            _ => return Ok(()),
        };
        let at = self.steer_udp_ports.as_ref().map_or(0..0, toml::Spanned::span);
        Err(Problem::new(what, help).at(at))
    }

    /// A note on steering for users who run this plan on several workers.
    fn note(&self, hash: &HashPlan) -> Option<String> {
        let udp = self.udp_note(hash).filter(|_| self.udp_ports().is_some() || hash.chosen.udp.holds_fragments());
        let notes: Vec<String> = shared_sets(hash).into_iter().chain(udp).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// What happens to the ports of UDP and why, if that is worth a line.
    pub(crate) fn udp_note(&self, hash: &HashPlan) -> Option<String> {
        let (asked, udp) = (self.udp_ports(), &hash.chosen.udp);
        let is_idle = self.workers == 1 || udp.why == Why::NoPorts;
        match asked {
            Some(_) if self.workers == 1 => Some("`steer_udp_ports` has no effect: there is one worker".to_owned()),
            Some(_) if is_idle => Some(format!("`steer_udp_ports` has no effect: {udp}")),
            None if is_idle || udp.why == Why::NoneFollows => None,
            _ => Some(udp.to_string()),
        }
    }

    fn build_problem(&self, refusal: &Refusal, at: usize) -> Problem {
        let (link, Refusal { key, reason, instead }) = (&self.chain[at], refusal);
        let what = format!("{}: `{key}`: {reason}", link.name);
        let end = if instead.ends_with('?') { "" } else { ";" };
        let help = format!("{instead}{end} `braid nf show {}` lists its keys", link.entry.name);
        let written = match key.as_str() {
            "packet_set" => Some(link.packet_set_at.clone()),
            "full" => Some(link.evicts_at.clone()),
            key => link.share.iter().find(|share| share_key(share) == key).map(|share| share.at.clone()),
        };
        Problem::new(what, help).at(link.config.place(key).or(written).unwrap_or(link.at.clone()))
    }

    fn chain_problem(&self, error: &ChainError) -> Problem {
        let (function, help) = match error {
            ChainError::GroupTooLarge { function, .. } => {
                (function, "leave one of them out, or give it another packet set")
            }
            ChainError::Share(ShareError::State { function, .. }) => (
                function,
                "no hash keeps its packet sets on one worker here: write workers = 1, take it out of the chain, or put it before functions that change addresses or have other packet sets",
            ),
            _ => {
                let help = "`braid plan` on a part of the chain shows which function declares what";
                return Problem::new(error.to_string(), help);
            }
        };
        let at = self.chain.iter().find(|link| link.name == *function).map_or(0..0, |link| link.at.clone());
        Problem::new(error.to_string(), help).at(at)
    }

    fn own_fields(&self, carry: Carry) -> Vec<StageUse> {
        let mut own = Vec::new();
        // Workers that wait for each other order packets by sequence number. If a dispatcher assigns the
        // numbers, they accompany the packets.
        let by_number = self.in_order || self.time == Time::Capture && self.distribution == Distribution::Software;
        if by_number {
            own.push(StageUse::new("order").reads(SEQUENCE, 8));
        }
        if self.time == Time::Capture {
            own.push(StageUse::new("clock").reads(TIMESTAMP_NS, 8));
            // A capture may have cut its frames: what is counted is what was on the wire, whoever else asks for it.
            own.push(StageUse::new("report").reads(WIRE_LEN, 4));
        }
        own.push(match carry {
            Carry::Capture => StageUse::new("sink").reads(TIMESTAMP_NS, 8).reads(SEQUENCE, 8).reads(WIRE_LEN, 4),
            Carry::Nothing => StageUse::new("sink"),
        });
        own
    }

    fn steering(&self, hash: &HashPlan, workers: usize) -> Result<Steering, Problem> {
        let entries = self.nic.map_or(0, |nic| nic.reta_entries);
        let entries = entries.max(128).max((4 * workers).next_power_of_two());
        let reta =
            Reta::new(entries, workers).map_err(|error| Problem::new(error.to_string(), "ask for fewer workers"))?;
        Steering::of_plan(&hash.chosen, &hash_key(), reta).map_err(|error| {
            Problem::new(error.to_string(), "give the packet sets of the chain both directions, or none")
        })
    }
}

/// The hash key of all steering; most drivers install the same one.
fn hash_key() -> Key {
    Key::microsoft()
}

impl Compiled {
    /// How a network card must choose among its queues to agree with the steering.
    pub fn card_hash(&self) -> CardHash {
        let steering = &self.run.steering;
        let table = steering.reta().entries().to_vec();
        CardHash { key: hash_key().bytes().to_vec(), table, tuple: tuple_hash(steering) }
    }
}

/// What a steering program needs to know; `None` if fields other than addresses and ports are hashed.
fn tuple_hash(steering: &Steering) -> Option<TupleHash> {
    let fields = steering.fields();
    if fields.is_empty() || !fields.without(Fields::FOUR_TUPLE).is_empty() {
        return None;
    }
    let toeplitz = Toeplitz::new(&hash_key());
    let of_byte = |at| (0..=u8::MAX).map(move |value| (at, value));
    let contributions = (0..TUPLE_MAX).flat_map(of_byte).map(|(at, value)| toeplitz.hash_at(at, &[value])).collect();
    let order = match steering.symmetry() {
        Symmetry::OneWay => EndOrder::AsTheyStand,
        Symmetry::BothWays => EndOrder::SmallerFirst,
        Symmetry::BySides(outside) => EndOrder::ExchangedAt(outside),
    };
    let fields = [FieldId::IpSrc, FieldId::IpDst, FieldId::SrcPort, FieldId::DstPort].map(|field| fields.has(field));
    let udp_ports = steering.udp_ports() == UdpPorts::Hashed;
    Some(TupleHash { fields, udp_ports, order, contributions })
}

/// Builds the functions in order; an error includes the position of its function.
fn build_all(
    links: &[PlannedFunction],
    site: &Site,
    builder: &mut StateBuilder,
) -> Result<Vec<Box<dyn Stage>>, (Refusal, usize)> {
    let mut sees_addresses = true;
    let build = |(at, link): (usize, &PlannedFunction)| -> Result<Box<dyn Stage>, (Refusal, usize)> {
        builder.scope(&link.name);
        builder.place(surroundings::around(links, at, site, sees_addresses));
        link.share.iter().for_each(|share| builder.share(&share.own, &share.name));
        let stage = (link.entry.build)(&link.name, with_sides(link, link.config.table(), site), builder, site.ports);
        let stage = stage.and_then(|stage| check_shares(link, &*stage, builder).map(|()| stage));
        let stage = stage.and_then(|stage| check_packet_set(link, &*stage).map(|()| stage));
        let stage = stage.and_then(|stage| check_full(link, &*stage).map(|()| stage));
        let stage = stage.map_err(|refusal| (refusal, at))?;
        sees_addresses &= stage.rewrites().addresses() == [false; 2];
        Ok(match &link.packet_set {
            Some(set) => Box::new(Overridden::new(stage, set.clone())),
            None => stage,
        })
    };
    links.iter().enumerate().map(build).collect()
}

/// The configuration with which a function is built: one that names no ports has the chain's inside and outside.
fn with_sides(link: &PlannedFunction, mut config: toml::Table, Site { course, ports, .. }: &Site) -> toml::Table {
    let ports = *ports;
    if let Some(outside) = given_sides((link, &config), course, ports) {
        for (key, is_outside) in [("inside_ports", false), ("outside_ports", true)] {
            let list = (0..ports).filter(|port| outside.has(*port) == is_outside);
            let list = list.map(|port| toml::Value::Integer(port.into())).collect();
            config.insert(key.to_owned(), toml::Value::Array(list));
        }
    }
    config
}

/// The chain's outside for a function that names no ports, if its own default would be another one.
pub(crate) fn given_sides(
    (link, config): (&PlannedFunction, &toml::Table),
    course: &Course,
    ports: u16,
) -> Option<PortSet> {
    let is_silent = ["inside_ports", "outside_ports"].iter().all(|key| !config.contains_key(*key));
    // By default odd ports are outside, for functions as for chains.
    let is_unusual = |outside: &PortSet| (0..ports).any(|port| outside.has(port) != (port % 2 == 1));
    course.outside().filter(|outside| link.entry.sides && is_silent && is_unusual(outside))
}

/// The configuration key under which a function shares an object.
fn share_key(share: &Share) -> String {
    format!("share.{}", share.own)
}

/// Checks that the state which a function keeps for a packet set is meaningful for the set that the plan specifies.
fn check_packet_set(link: &PlannedFunction, stage: &dyn Stage) -> Result<(), Refusal> {
    let Some(given) = &link.packet_set else { return Ok(()) };
    let Some(own) = stage.packet_set() else {
        if stage.takes_any_set() {
            return Ok(());
        }
        let (reason, instead) = ("it keeps nothing of packet sets, so none is looked up for it", "leave it out");
        return Err(Refusal { key: "packet_set".to_owned(), reason: reason.to_owned(), instead: instead.to_owned() });
    };
    let config = link.config.table();
    let idle = stage.set_keys().iter().find(|key| config.contains_key(**key) && !given.tells_as(&own));
    if let Some(key) = idle {
        let reason = format!(
            "the plan gives it packet sets of its own, {}, beside which this says nothing",
            set_in_words(given)
        );
        let instead = "leave it out, or leave out `packet_set`".to_owned();
        return Err(Refusal { key: (*key).to_owned(), reason, instead });
    }
    if stage.takes_any_set() || given.refines(&own) {
        return Ok(());
    }
    let reason = format!("what it keeps belongs to its own packet set, {}", set_in_words(&own));
    let instead = "leave it out, or name at least those fields, directions and protocols".to_owned();
    Err(Refusal { key: "packet_set".to_owned(), reason, instead })
}

/// Checks that the function has a packet-set table, which alone can be full.
fn check_full(link: &PlannedFunction, stage: &dyn Stage) -> Result<(), Refusal> {
    if link.evicts_at.is_empty() || link.packet_set.is_some() || stage.packet_set().is_some() {
        return Ok(());
    }
    let reason = "it keeps nothing of packet sets, so no table of them gets full".to_owned();
    Err(Refusal { key: "full".to_owned(), reason, instead: "leave it out".to_owned() })
}

/// Checks that a function has the objects it is to share, and that they match those of the preceding functions.
fn check_shares(link: &PlannedFunction, stage: &dyn Stage, builder: &StateBuilder) -> Result<(), Refusal> {
    let objects = stage.objects();
    for share in &link.share {
        let refuse =
            |reason: String, instead: &str| Err(Refusal { key: share_key(share), reason, instead: instead.to_owned() });
        if objects.iter().all(|object| object.name() != share.name) {
            let own = objects.iter().filter_map(|object| object.name().strip_prefix(&format!("{}.", link.name)));
            let own: Vec<String> = own.map(str::to_owned).collect();
            let has = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
            let reason = format!("under this configuration it has no state object `{}` (it has: {has})", share.own);
            return refuse(reason, "name one that it has, or configure what makes it");
        }
        if builder.unlike() == Some(&share.name) {
            let reason =
                format!("its `{}` differs from what the function before shares: kind, type or size", share.own);
            return refuse(reason, "share objects of functions of one kind that are configured alike");
        }
        if let Some(said) = builder.disagreement().filter(|said| said.name == share.name) {
            let reason = format!("for `{}` it is {}, here {}", said.function, said.other, said.terms);
            return refuse(reason, "write the same there and here, or share it under another name");
        }
        if let Some(parted) = builder.parted().filter(|parted| parted.name == share.name) {
            let apart: Vec<String> =
                parted.all.iter().filter(|(_, is_common)| !is_common).map(|(own, _)| format!("`{own}`")).collect();
            let reason =
                format!("it is shared with `{}`, but {} not, which belong to it", parted.function, apart.join(", "));
            let of = share.name.rsplit('.').next().unwrap_or_default();
            let all: Vec<String> = parted.all.iter().map(|(own, _)| format!("{own} = \"{of}_{own}\"")).collect();
            return refuse(reason, &format!("write share = {{ {} }} in both, or share none of them", all.join(", ")));
        }
    }
    Ok(())
}

/// The packet sets of a chain, as the steering planner needs them.
pub fn members(chain: &Chain) -> Vec<Member> {
    let member = |position: usize, stage: &dyn Stage| Member {
        name: stage.name().to_owned(),
        pattern: stage.packet_set().as_ref().map_or(Pattern::NONE, Pattern::from),
        changed: chain.torn_before(position),
        follows_fragments: stage.follows_fragments(),
    };
    chain.stages().iter().enumerate().map(|(position, stage)| member(position, &**stage)).collect()
}

/// Describes the functions whose packet sets live in state that workers share, because no steering keeps them on one worker.
fn shared_sets(hash: &HashPlan) -> Option<String> {
    let torn = hash.chosen.outcomes.iter().filter(|outcome| matches!(outcome.locality, Locality::NotLocal { .. }));
    // Each explanation begins with the name of its function.
    let each: Vec<&str> = torn.map(|outcome| &*outcome.explanation).collect();
    let sets = each.join("; ");
    (!each.is_empty())
        .then(|| format!("packet sets that no steering keeps on one worker live in shared state ({sets})"))
}
