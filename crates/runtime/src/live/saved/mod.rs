//! Saves and restores the state of a run: packet sets and state objects, independent of the tables that hold them.
//!
//! A restored set goes to the worker to which its packets will be steered, so a run may continue with another number of workers. The steering
//! itself determines that worker, for a frame built from the set's key. If this frame does not have the same key, the set is left
//! out, and ends as if it had expired. State objects restore their own content (state/image), and so do sets that workers share (saved/sharing.rs).

use braid_nf::packet::headers::{Ethernet, Header, Ipv4, Ipv6, ether_type};
use braid_nf::packet::key::{FieldId, KeyExtractor, KeyShape, SetKey};
use braid_nf::packet::{Link, MacAddress, Port, Record, Tagging, parse, protocol};
use braid_nf::state::{ImageError, Tx};
use braid_nf::{SetMeta, SetTables, shared_in_image, shared_sets_name};

use super::exchange::{OTHER_SET, OtherOrder, keeps_order};
use crate::chain::course::Order;
use crate::chain::{Chain, Group};
use crate::launch::{Foundation, RunError, build_for};
use crate::plan::Plan;
use crate::worker::Worker;

mod sharing;

/// Room of the tables in which sets without a place end, one at a time.
const BESIDE: usize = 64;

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The latest time of its functions, in nanoseconds.
    pub now_ns: u64,
    /// The order in which packets met its functions, and how many ports there were; `None` if an earlier version saved it, which did not say so.
    pub order: Option<(Order, u16)>,
    /// Its functions, in order.
    pub functions: Vec<SavedFunction>,
    /// Packet sets that workers kept.
    pub sets: Vec<SavedSet>,
    /// State objects, in any order.
    pub objects: Vec<SavedObject>,
}

/// A function of a saved run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedFunction {
    /// Its name in the plan.
    pub name: String,
    /// Which function it is.
    pub kind: String,
    /// Bytes of state per packet set.
    pub set_bytes: usize,
    /// The shape of the keys of its packet sets; the default if it has none, or if an earlier version saved it.
    pub shape: KeyShape,
    /// Whether workers shared its packet sets, which are then part of the objects.
    pub shared: bool,
}

/// The name of a state object, its kind, and its image.
pub type SavedObject = (String, String, Vec<u8>);

/// A saved packet set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSet {
    /// Its key.
    pub key: SetKey,
    /// The time of its last packet, in milliseconds.
    pub last_seen_ms: u32,
    /// The position of each function in which the set is live, and its state.
    pub states: Vec<(usize, Vec<u8>)>,
}

/// Why state cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A function keeps its packet sets differently.
    #[error("{function}: {reason}")]
    Function {
        /// The function's name.
        function: String,
        /// What differs.
        reason: String,
    },
    /// Packets from outside would meet the functions in another order, so no packet would find its set.
    #[error(transparent)]
    Order(#[from] OtherOrder),
    /// The image of an object does not fit.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl Saved {
    /// Saves the functions and objects of a chain at rest; sets are added by [`Worker::copy_sets`].
    pub fn of_chain(chain: &Chain, ports: u16, now_ns: u64) -> Saved {
        Saved { objects: save_objects(chain, 0, 1), ..Saved::of_functions(chain, ports, now_ns) }
    }

    /// Saves the functions of a chain without any state.
    pub fn of_functions(chain: &Chain, ports: u16, now_ns: u64) -> Saved {
        let function = |at: usize| {
            let stage = &*chain.stages()[at];
            SavedFunction {
                name: stage.name().to_owned(),
                kind: stage.kind().to_owned(),
                set_bytes: stage.set_bytes(),
                shape: chain.key_shape(at),
                shared: stage.is_shared(),
            }
        };
        let functions = (0..chain.stages().len()).map(function).collect();
        Saved { now_ns, order: Some((chain.course().order, ports)), functions, ..Saved::default() }
    }

    /// The number of shared packet sets, which are part of the objects, of functions at positions for which `counts` is true.
    pub fn shared_sets(&self, counts: impl Fn(usize) -> bool) -> usize {
        let functions = self.functions.iter().enumerate().filter(|(at, function)| function.shared && counts(*at));
        let of_function = |(_, function): (usize, &SavedFunction)| {
            let name = shared_sets_name(&function.name);
            let image = self.objects.iter().find(|(object, ..)| *object == name).map(|(.., image)| image);
            image.and_then(|image| shared_in_image(image)).unwrap_or(0)
        };
        functions.map(of_function).sum()
    }

    /// The position of each saved function in a chain, `None` if it is not there; an error if it is there and keeps other state.
    fn positions(&self, chain: &Chain) -> Result<Vec<Option<usize>>, RestoreError> {
        let position = |saved: &SavedFunction| {
            let Some(at) = chain.stages().iter().position(|stage| stage.name() == saved.name) else { return Ok(None) };
            let stage = &chain.stages()[at];
            let reason = if stage.kind() != saved.kind {
                format!("it was a {}, not a {}", saved.kind, stage.kind())
            } else if stage.set_bytes() != saved.set_bytes {
                format!("it kept {} bytes per packet set, not {}", saved.set_bytes, stage.set_bytes())
            } else if saved.shape != KeyShape::default() && saved.shape != chain.key_shape(at) {
                OTHER_SET.to_owned()
            } else {
                return Ok(Some(at));
            };
            Err(RestoreError::Function { function: saved.name.clone(), reason })
        };
        self.functions.iter().map(position).collect()
    }

    /// Checks that a chain with `ports` ports, whose functions stand at these positions, keeps packet sets by the same sides. Only ports that there
    /// were count: a new one brings no packets of saved sets.
    fn check_order(&self, chain: &Chain, ports: u16, positions: &[usize]) -> Result<(), OtherOrder> {
        let keeps_sets = positions.iter().any(|at| chain.group_of(*at).is_some());
        match self.order {
            Some((before, had)) if keeps_sets => keeps_order(before, chain.course().order, ports.min(had)),
            _ => Ok(()),
        }
    }

    /// Restores the objects of functions that a fresh chain with `ports` ports has in common; returns the positions of the functions that are new.
    pub(crate) fn restore_objects(&self, chain: &Chain, ports: u16, tx: &mut Tx) -> Result<Vec<usize>, RestoreError> {
        let known: Vec<usize> = self.positions(chain)?.into_iter().flatten().collect();
        self.check_order(chain, ports, &known)?;
        for object in known.iter().flat_map(|at| chain.stages()[*at].objects()) {
            let saved = self.objects.iter().find(|(name, kind, _)| name == object.name() && kind == object.kind());
            if let Some((_, _, image)) = saved {
                object.restore(tx, image)?;
            }
        }
        Ok((0..chain.stages().len()).filter(|at| !known.contains(at)).collect())
    }

    /// Restores the sets into the tables of the workers to which their packets will be steered. Those that find no room there end; returns how many.
    pub(crate) fn restore_sets(&self, plan: &Plan, chain: &Chain, workers: &mut [Worker]) -> Result<u64, RunError> {
        let positions = self.positions(chain)?;
        let mut left_out = 0;
        let mut beside: Vec<Option<SetTables>> = chain.groups().iter().map(|_| None).collect();
        for set in &self.sets {
            let live =
                set.states.iter().filter_map(|(saved, state)| Some(((*positions.get(*saved)?)?, state.as_slice())));
            let live: Vec<(usize, &[u8])> = live.collect();
            // Functions that had one record together may have several now, and the reverse.
            let mut groups: Vec<usize> = live.iter().filter_map(|(at, _)| chain.group_of(*at)).collect();
            groups.sort_unstable();
            groups.dedup();
            for group in groups {
                let Group { state_bytes, extractor, .. } = &chain.groups()[group];
                let worker = worker_of(&set.key, extractor, plan);
                if worker.is_some_and(|worker| workers[worker].put_set(group, set, &live)) {
                    continue;
                }
                left_out += 1;
                let tables = match &mut beside[group] {
                    Some(tables) => tables,
                    none => none.insert(SetTables::new(BESIDE, *state_bytes, extractor.shape(), plan.pages)?),
                };
                workers[worker.unwrap_or(0)].end_unplaced((group, tables), set, &live, self.now_ns);
            }
        }
        // Shared sets were restored with the objects; the first worker counts them.
        let shared = chain.stages().iter().map(|stage| stage.shared_room().1 as u64).sum();
        workers.iter_mut().take(1).for_each(|first| first.count_restored(shared));
        Ok(left_out)
    }
}

/// Saves the `nth` of each `share` state objects of a chain at rest, so that workers can divide them.
pub fn save_objects(chain: &Chain, nth: usize, share: usize) -> Vec<SavedObject> {
    let objects = chain.objects();
    let own = objects.iter().skip(nth).step_by(share);
    own.map(|object| (object.name().to_owned(), object.kind().to_owned(), object.save())).collect()
}

/// Whether a run of this plan could start with the saved state; tries it with a chain that is then discarded.
pub fn fits(plan: &Plan, saved: &Saved) -> Result<(), RunError> {
    let Foundation { domain, chain } = build_for(plan, Some(saved))?;
    saved.shared_as_in(&chain).restore_objects(&chain, plan.ports, &mut Tx::new(&domain, 0))?;
    Ok(())
}

/// The worker to which packets of a set are steered.
fn worker_of(key: &SetKey, extractor: &KeyExtractor, plan: &Plan) -> Option<usize> {
    if plan.workers == 1 {
        return Some(0);
    }
    let (frame, named) = frame_of(key, extractor)?;
    let found = parse(&frame, Link::Ethernet);
    let mut record = Record::default();
    (record.l3, record.l4, record.proto, record.flags) = (found.l3, found.l4, found.proto, found.flags);
    // The keys of a mirrored chain tell the sides apart, so one of the ports is on the right side.
    let port = std::iter::once(named).chain(0..plan.ports).find(|&port| {
        record.port = port;
        extractor.extract(&record, &frame).is_some_and(|found| found.key == *key)
    })?;
    Some(plan.steering.queue(&frame, Link::Ethernet, port).min(plan.workers - 1))
}

/// A frame with this key and the port on which it may arrive; `None` for keys with labels or tunnels.
fn frame_of(key: &SetKey, extractor: &KeyExtractor) -> Option<(Vec<u8>, Port)> {
    let parts = key.parts();
    if parts.rest.iter().any(|(field, _)| !PLAIN.contains(field)) {
        return None;
    }
    let number = |field| parts.number(field);
    let mut frame = vec![0; 14];
    let mut ethernet = Ethernet::default();
    ethernet.set_source(parts.macs[0].unwrap_or(MacAddress([2, 0, 0, 0, 0, 1])));
    ethernet.set_destination(parts.macs[1].unwrap_or(MacAddress([2, 0, 0, 0, 0, 2])));
    let mut kind = number(FieldId::EtherType).map_or(ether_type::IPV4, |kind| kind as u16);
    let [source, destination] = parts.ips;
    let is_v6 = [source, destination].iter().flatten().any(|ip| !ip.is_v4()) || kind == ether_type::IPV6;
    let (icmp, echo_request) = if is_v6 { (protocol::ICMPV6, 128) } else { (protocol::ICMP, 8) };
    let transport = transport(&parts, number(FieldId::IcmpId).map(|id| (echo_request, id)));
    let default = if number(FieldId::IcmpId).is_some() { icmp } else { protocol::UDP };
    let proto = number(FieldId::IpProto).map_or_else(|| extractor.protocol_like(default), |proto| proto as u8);
    if is_v6 {
        kind = ether_type::IPV6;
        let mut ip = Ipv6::new(proto, transport.len() as u16);
        ip.set_source(source.unwrap_or_default().octets());
        ip.set_destination(destination.unwrap_or_default().octets());
        frame.resize(14 + Ipv6::LEN, 0);
        ip.emit(&mut frame[14..]);
    } else if kind == ether_type::IPV4 {
        let mut ip = Ipv4::new(proto, transport.len() as u16);
        ip.set_source(source.and_then(|ip| ip.v4()).unwrap_or([10, 0, 0, 1]));
        ip.set_destination(destination.and_then(|ip| ip.v4()).unwrap_or([10, 0, 0, 2]));
        frame.resize(14 + Ipv4::LEN, 0);
        ip.emit(&mut frame[14..]);
    }
    ethernet.set_ether_type(kind);
    ethernet.emit(&mut frame);
    frame.extend(transport);
    let segment = number(FieldId::Segment).and_then(|number| extractor.segments()?.example(number as u16));
    let (port, tagging) = segment.unwrap_or((None, Tagging::one(number(FieldId::VlanId).unwrap_or(0) as u16)));
    let (outer, inner) = tagging.vlans();
    for vlan in [inner, outer].into_iter().flatten() {
        let [high, low] = vlan.to_be_bytes();
        frame.splice(12..12, [0x81, 0, high, low]);
    }
    frame.resize(frame.len().max(60), 0);
    Some((frame, port.or(number(FieldId::InPort).map(|port| port as Port)).unwrap_or(0)))
}

/// Further fields from which frames can be built.
const PLAIN: [FieldId; 6] =
    [FieldId::IpProto, FieldId::IcmpId, FieldId::EtherType, FieldId::InPort, FieldId::VlanId, FieldId::Segment];

/// The first bytes after the IP header: ports, or an ICMP echo request, given as its type and an identifier.
fn transport(parts: &braid_nf::packet::key::KeyParts, echo: Option<(u8, u32)>) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    match echo {
        Some((kind, id)) => {
            bytes[0] = kind;
            bytes[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        }
        None => {
            bytes[..2].copy_from_slice(&parts.ports[0].unwrap_or(0).to_be_bytes());
            bytes[2..4].copy_from_slice(&parts.ports[1].unwrap_or(0).to_be_bytes());
            // TCP's header length, so that the header is complete.
            bytes[12] = 5 << 4;
        }
    }
    bytes
}

/// The metadata of a restored set.
pub(crate) fn meta(set: &SavedSet, live: u16) -> SetMeta {
    SetMeta { last_seen_ms: set.last_seen_ms, live, generation: 0 }
}
