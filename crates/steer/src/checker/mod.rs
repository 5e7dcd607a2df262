//! Checks whether a NIC can keep a function's packet sets together, field by field, and what to do where it cannot.
//!
//! A NIC may hash fewer fields than a set has (then sets share a queue, and nothing breaks) but never others. What it can be configured to hash
//! differs between kinds of packets, so each kind is judged together with the other kinds that one of its sets may contain: a set by source
//! address contains TCP and ICMP, and both must be hashed by the same fields. NFOS's checker complains only if *no* layer fits, and has
//! no table of NICs; but it is the partial misfits that tear sets apart unnoticed.

use std::fmt;

use braid_packet::FieldId;

use crate::blind::blind_key;
use crate::fields::{Fields, spread_bits};
use crate::nic::{Class, Nic, SymmetricMode};
use crate::pattern::Pattern;
use crate::toeplitz::Key;
use crate::udp_ports::UdpPorts;

/// What the NIC does for some kinds of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It hashes exactly the fields of the sets.
    Whole {
        /// The fields to enable.
        fields: Fields,
    },
    /// It hashes some of the fields: sets stay whole, but more of them share a queue.
    Coarser {
        /// The fields to enable.
        fields: Fields,
        /// Fields of the set that it cannot hash for these packets.
        missing: Fields,
    },
    /// It hashes too many fields, but for IPv4 a key that is blind for the others helps.
    ByKey {
        /// The fields to enable.
        hashed: Fields,
        /// The fields that then select the queue.
        seen: Fields,
        /// The key.
        key: Key,
        /// Fields of the set that do not select the queue.
        missing: Fields,
    },
    /// It tears sets apart, however it is configured.
    Torn {
        /// Fields of the set that it cannot hash for these packets; all of them if none can be hashed alone.
        missing: Fields,
        /// Why.
        why: &'static str,
    },
}

/// One finding of a check.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Kinds of packets that may be in one set and so have to be hashed alike.
    pub classes: Vec<Class>,
    /// What the NIC does for them.
    pub fit: Fit,
}

/// The result of checking a pattern against a NIC.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The NIC.
    pub nic: &'static Nic,
    /// The findings; every kind of packet that can be in a set is in one of them, except fragments.
    pub findings: Vec<Finding>,
    /// Kinds of packets whose first fragments reach another queue than the other packets of their set.
    pub fragments_torn: Vec<Class>,
    /// A key that makes the hash symmetric, where the NIC has no mode for it.
    pub symmetric_key: Option<Key>,
}

/// Checks whether `nic` keeps each set of `pattern` on one queue, with or without hashing the ports of UDP.
pub fn check(pattern: &Pattern, nic: &'static Nic, udp: UdpPorts) -> Verdict {
    let finding = |classes: Vec<Class>| Finding { fit: fit(pattern, (&classes, udp), nic), classes };
    let findings: Vec<Finding> = groups(pattern).into_iter().map(finding).collect();
    let by_key_only = pattern.symmetric && nic.hashes() && nic.symmetric == SymmetricMode::ByKeyOnly;
    Verdict {
        nic,
        fragments_torn: match pattern.kinds.has(Class::Fragment) {
            true => findings
                .iter()
                .filter(|finding| splits_fragments(finding, nic))
                .flat_map(|finding| finding.classes.clone())
                .collect(),
            false => Vec::new(),
        },
        symmetric_key: by_key_only.then(|| Key::symmetric(nic.key_bytes)),
        findings,
    }
}

/// Groups the kinds of packets that can be in the same set. Fragments are judged separately.
fn groups(pattern: &Pattern) -> Vec<Vec<Class>> {
    let (mut ip, mut rest): (Vec<Class>, Vec<Class>) = (Vec::new(), Vec::new());
    for class in pattern.kinds.iter().filter(|&class| class != Class::Fragment) {
        if class == Class::NonIp { rest.push(class) } else { ip.push(class) }
    }
    let mut groups = if pattern.fields.has(FieldId::IpProto) {
        // The protocol is part of the key, so no set has packets of two protocols.
        ip.into_iter().map(|class| vec![class]).collect()
    } else {
        vec![ip]
    };
    if let (Some(first), Some(&class)) = (groups.first_mut(), rest.first()) {
        first.push(class);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn fit(pattern: &Pattern, (classes, udp): (&[Class], UdpPorts), nic: &Nic) -> Fit {
    let wanted = wanted(pattern, classes, udp);
    let within = |set: &Fields| set.is_within(wanted) && (!pattern.symmetric || *set == set.both_ways());
    let options = common_choices(classes, nic);
    let spread = |set: &Fields| set.iter().map(spread_bits).sum::<u32>();
    if let Some(fields) = options.iter().copied().filter(within).max_by_key(spread) {
        let missing = wanted.without(fields);
        return if missing.is_empty() { Fit::Whole { fields } } else { Fit::Coarser { fields, missing } };
    }
    if !nic.hashes() {
        return Fit::Torn { missing: wanted, why: "it has no receive-side scaling" };
    }
    if options.is_empty() {
        return Fit::Torn { missing: wanted, why: "it cannot hash all of these packets in the same way" };
    }
    if pattern.symmetric {
        let missing = wanted.without(all_of(&options));
        let missing = if missing.is_empty() { wanted } else { missing };
        return Fit::Torn { missing, why: "nothing that both directions share can be hashed" };
    }
    let index_bits = nic.reta_entries.trailing_zeros();
    let base = Key::microsoft().extended(nic.key_bytes);
    // The fewer superfluous fields there are, the more of the key remains.
    let mut options = options;
    options.sort_by_key(|set| set.without(wanted).len());
    let key = options.into_iter().find_map(|hashed| {
        let seen = hashed.common(wanted);
        blind_key(&base, hashed, seen, index_bits).map(|key| (hashed, seen, key))
    });
    match key {
        Some((hashed, seen, key)) => Fit::ByKey { hashed, seen, key, missing: wanted.without(seen) },
        None => Fit::Torn { missing: wanted, why: "it hashes other fields too, and no key hides them" },
    }
}

/// Fields of the set whose values differ among packets of these kinds: within TCP the protocol number does not, and only TCP, UDP and SCTP
/// have ports. Those of UDP may be left out.
fn wanted(pattern: &Pattern, classes: &[Class], udp: UdpPorts) -> Fields {
    let mut wanted = pattern.fields;
    if udp == UdpPorts::LeftOut && classes == [Class::Udp] {
        wanted = wanted.without(Fields::PORTS);
    }
    if !classes.contains(&Class::OtherIp) && classes.len() == 1 {
        wanted = wanted.without(Fields::PROTOCOL);
    }
    if classes.iter().all(|class| matches!(class, Class::OtherIp | Class::NonIp)) {
        wanted = wanted.without(Fields::PORTS);
    }
    if !classes.contains(&Class::OtherIp) {
        wanted = wanted.without(Fields::of(&[FieldId::IcmpId]));
    }
    wanted
}

/// Combinations of fields that can be selected for every one of these kinds.
fn common_choices(classes: &[Class], nic: &Nic) -> Vec<Fields> {
    let Some((first, others)) = classes.split_first() else { return Vec::new() };
    let mut options = nic.choice(*first).combinations();
    for class in others {
        let also = nic.choice(*class).combinations();
        options.retain(|set| also.contains(set));
    }
    options
}

fn all_of(sets: &[Fields]) -> Fields {
    sets.iter().fold(Fields::NONE, |all, &set| all.and(set))
}

/// Whether first fragments leave their set. Fragments are hashed without ports, but the key of the first one has ports.
fn splits_fragments(finding: &Finding, nic: &Nic) -> bool {
    let fields = match finding.fit {
        Fit::Whole { fields } | Fit::Coarser { fields, .. } => fields,
        Fit::ByKey { hashed, .. } => hashed,
        Fit::Torn { .. } => return false,
    };
    finding.classes != [Class::NonIp] && !nic.choice(Class::Fragment).combinations().contains(&fields)
}

impl Verdict {
    /// Whether every set stays on one queue, fragments included, without software steering.
    pub fn fits(&self) -> bool {
        let kept = |finding: &Finding| matches!(finding.fit, Fit::Whole { .. } | Fit::Coarser { .. });
        self.fragments_torn.is_empty() && self.findings.iter().all(kept)
    }

    /// All fields of the sets that the NIC cannot hash for some kind of packet.
    pub fn missing(&self) -> Fields {
        self.findings.iter().fold(Fields::NONE, |all, finding| match finding.fit {
            Fit::Whole { .. } => all,
            Fit::Coarser { missing, .. } | Fit::ByKey { missing, .. } | Fit::Torn { missing, .. } => all.and(missing),
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, class) in self.classes.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, class.name())?;
        }
        match &self.fit {
            Fit::Whole { fields } => write!(f, ": ok, hash {fields}"),
            Fit::Coarser { fields, missing } => {
                write!(f, ": ok but coarser, hash {fields}; cannot hash {missing}, so more sets share a queue")
            }
            Fit::ByKey { hashed, seen, key, missing } => {
                write!(
                    f,
                    ": only for IPv4 and with a key: hash {hashed} with key {key}, under which only {seen} counts"
                )?;
                if !missing.is_empty() {
                    write!(f, "; cannot hash {missing}")?;
                }
                f.write_str("; switch hashing of IPv6 off (its packets then share queue 0), or steer in software")
            }
            Fit::Torn { missing, why } => write!(f, ": NO, cannot hash {missing}: {why}; steer in software"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}): {}", self.nic.name, self.nic.product, if self.fits() { "fits" } else { "does not fit" })?;
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        if let Some(key) = &self.symmetric_key {
            writeln!(f, "  both directions: no mode for it, set key {key}")?;
        }
        if !self.fragments_torn.is_empty() {
            let of: Vec<&str> = self.fragments_torn.iter().map(|class| class.name()).collect();
            writeln!(
                f,
                "  IP fragments of {}: NO, hashed without ports, so a first fragment leaves the queue of its set; \
                 hash addresses only, or steer in software",
                of.join(", ")
            )?;
        }
        self.nic.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

#[cfg(test)]
mod tests;
