//! The explanation as text for people.

use std::fmt;

use braid_profile::counted;

use super::{AccessPart, Explanation, FunctionPart, GroupPart, MetadataPart, OrderPart, StatePart, SteeringPart};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |count: usize, what: &str| counted(count as u64, what);
        let (workers, ports) = (of(self.workers, "worker"), of(usize::from(self.ports), "port"));
        writeln!(f, "{workers}, {ports}, batches of at most {}", self.batch)?;
        write!(f, "{}", self.order)?;
        self.functions.iter().try_for_each(|function| write!(f, "\n{function}"))?;
        writeln!(f, "\nrecords of packet sets (one look-up each)")?;
        self.groups.iter().try_for_each(|group| write!(f, "{group}"))?;
        if self.groups.is_empty() {
            writeln!(f, "  none: no function keeps state per packet set")?;
        }
        write!(f, "\n{}", self.steering)?;
        for nic in &self.nic {
            writeln!(f, "\nNIC, for {}\n{}", nic.packet_set, nic.words.trim_end())?;
        }
        write!(f, "\n{}", self.metadata)?;
        let AccessPart { packet, sets: [v4, v6], objects, objects_steady } = self.accesses;
        let steady = if objects_steady < objects {
            format!(", {objects_steady} at most for most packets of live sets")
        } else {
            String::new()
        };
        writeln!(
            f,
            "\nmemory: {packet:.2} cache lines a packet for headers and metadata, {v4} for its packet sets ({v6} if IPv6), \
             and {objects} of state objects if handlers use each once{steady}"
        )?;
        writeln!(f, "full: {}; there are {}", self.memory, human_bytes(self.memory.available_bytes))?;
        writeln!(
            f,
            "not counted: what functions make of their configuration (100,000 rules of a firewall have 54 MB, and 170 while they are read), and buffers that interfaces hold"
        )
    }
}

impl fmt::Display for OrderPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.atomic == "chain" {
            writeln!(
                f,
                "atomic: all that the functions do to a packet is one transaction; packets go one by one, without batches"
            )?;
        }
        let Some(from_outside) = &self.from_outside else {
            return writeln!(f, "order: {}, for packets of all ports", self.from_inside.join(" → "));
        };
        let ports: Vec<String> = self.outside.iter().map(ToString::to_string).collect();
        writeln!(f, "order from inside:  {}", self.from_inside.join(" → "))?;
        writeln!(f, "order from outside: {} (port {})", from_outside.join(" → "), ports.join(", "))?;
        for name in &self.given_sides {
            let sides = "those of the chain, since it names no ports (on its own its odd ports would be outside)";
            writeln!(f, "  sides of {name}: {sides}")?;
        }
        Ok(())
    }
}

impl fmt::Display for GroupPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([v4, v6], [lines_v4, lines_v6]) = (self.record_bytes, self.lines);
        writeln!(f, "  {}: {} bytes of state for {}", self.packet_set, self.state_bytes, self.functions.join(", "))?;
        if self.local {
            writeln!(f, "    a record of {v4} bytes ({v6} if IPv6), {lines_v4} cache lines a look-up ({lines_v6})")?;
        } else {
            writeln!(f, "    shared by the workers: an entry for each function, {lines_v4} cache lines in all")?;
        }
        if self.full == "evict_oldest" {
            writeln!(f, "    full: the sets that have been idle longest are evicted, assured ones last")?;
        }
        self.apart.as_ref().map_or(Ok(()), |why| writeln!(f, "    apart: {why}"))
    }
}

impl fmt::Display for FunctionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.name != self.function {
            write!(f, " ({})", self.function)?;
        }
        match &self.packet_set {
            Some(set) => writeln!(f, ": packet set {set}")?,
            None => writeln!(f, ": no packet sets, every packet is an orphan")?,
        }
        if let Some(when) = &self.when {
            writeln!(f, "  {when}")?;
        }
        for state in &self.state {
            let StatePart { name, kind, placement, why, capacity, bytes, lines: _ } = state;
            let size = match kind.as_str() {
                "packet-set state" => format!("{bytes} bytes a set"),
                "Map" => format!("{}, {} bytes each", human_bytes(*bytes), bytes / (*capacity).max(1)),
                _ => human_bytes(*bytes),
            };
            writeln!(f, "  {placement:<13} {name} ({kind}, at most {capacity}, {size})\n{:16}{why}", "")?;
        }
        if self.state.is_empty() {
            writeln!(f, "  no state")?;
        }
        Ok(())
    }
}

impl fmt::Display for SteeringPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match (self.by_sides, self.symmetric) {
            (true, _) => " of packets from inside, the opposite of those from outside",
            (false, true) => ", both directions alike",
            (false, false) => "",
        };
        let has_ports = self.fields.iter().any(|field| field.starts_with("port."));
        let udp = if has_ports && !self.udp_ports { ", UDP without its ports" } else { "" };
        writeln!(f, "steering ({}): hash {}{way}{udp}", self.distribution, self.fields.join(", "))?;
        self.udp_why.iter().try_for_each(|why| writeln!(f, "  {why}"))?;
        writeln!(f, "  Toeplitz key {}", self.key)?;
        if self.balanced {
            writeln!(
                f,
                "  balanced: entries of the indirection table move to less busy workers, with their packet sets"
            )?;
        }
        if self.gather_us > 0 {
            writeln!(
                f,
                "  batches that are not full wait for more packets, up to {} µs, where that pays",
                self.gather_us
            )?;
        }
        self.outcomes.iter().try_for_each(|outcome| writeln!(f, "  {outcome}"))?;
        self.alternatives.iter().try_for_each(|other| writeln!(f, "  instead: {other}"))
    }
}

impl fmt::Display for MetadataPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [headers, records, extensions] = self.cache_lines_per_batch;
        writeln!(f, "metadata: {} + {} bytes a packet", self.record_bytes, self.extension_bytes)?;
        for field in &self.fields {
            let place = field.offset.map_or("not carried".to_owned(), |offset| format!("at byte {offset}"));
            let read = if field.read_by.is_empty() { "nobody".to_owned() } else { field.read_by.join(", ") };
            writeln!(
                f,
                "  {:<14} {} bytes, {place}; written by {}; read by {read}",
                field.name,
                field.bytes,
                field.written_by.join(", ")
            )?;
        }
        let total = headers + records + extensions;
        writeln!(
            f,
            "  a full batch touches {total} first-level cache lines: {headers} of headers, {records} of records, {extensions} of extensions"
        )?;
        let size = human_bytes(self.first_level_bytes);
        let whose = if self.first_level_is_known { "this machine's" } else { "a usual" };
        writeln!(f, "  half of {whose} first-level cache of {size} holds those of a batch of {}", self.batch_that_fits)
    }
}

/// Formats a number of bytes with a binary unit.
pub fn human_bytes(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}
