//! The figures of a run in the OpenMetrics text format (openmetrics.io, version 1.0), for Prometheus and compatible collectors.
//!
//! Names begin with `braid_`, units are suffixes (`_seconds`, `_bytes`), and counters end in `_total`. There are few labels, and
//! their values come from the plan: functions, drop reasons, ports, workers, state objects, rules and backends. Nothing is labelled
//! by packet set or by an address of a packet.

use std::collections::BTreeMap;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::stats::{Function, Object, PortStats, Stats, WorkerStats};
use crate::report::Told;

/// Content type of the response.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Formats a sample as text.
pub fn text(stats: &Stats) -> String {
    let mut registry = Registry::with_prefix("braid");
    registry.register_collector(Box::new(Sample(stats.clone())));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Sample(Stats);

/// Label names and values of one metric value.
type Labels<'a> = Vec<(&'a str, String)>;

/// Encodes one metric family: name, help, unit, values with their labels.
fn family<'a, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<Unit>),
    values: impl IntoIterator<Item = (Labels<'a>, M)>,
) -> Result<(), std::fmt::Error> {
    let mut values = values.into_iter().peekable();
    let Some(kind) = values.peek().map(|(_, metric)| metric.metric_type()) else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (labels, metric) in values {
        if labels.is_empty() {
            // A value without labels is the only one of its family.
            return metric.encode(family);
        }
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counter(value: u64) -> ConstCounter<u64> {
    ConstCounter::new(value)
}

fn gauge(value: f64) -> ConstGauge<f64> {
    ConstGauge::new(value)
}

impl Collector for Sample {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (stats, encoder) = (&self.0, &mut encoder);
        run(stats, encoder)?;
        functions(stats, encoder)?;
        told(&stats.findings, encoder)?;
        ports(&stats.ports, encoder)?;
        workers(&stats.workers, encoder)?;
        objects(&stats.objects, encoder)
    }
}

fn run(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let one = |value: f64| [(Vec::new(), gauge(value))];
    let total = |value: u64| [(Vec::new(), counter(value))];
    let version = vec![("version", stats.version.clone())];
    family(encoder, ("build", "The program that runs; always 1", None), [(version, gauge(1.0))])?;
    family(encoder, ("uptime", "Time since the workers began", Some(Unit::Seconds)), one(stats.seconds))?;
    family(
        encoder,
        ("packets_missing", "Packets neither sent nor dropped; anything but 0 is a bug in braid", None),
        one(stats.missing as f64),
    )?;
    family(
        encoder,
        ("packets_copied", "Copies by flooding, and packets that functions made", None),
        total(stats.packets_copied),
    )?;
    family(encoder, ("sets_live", "Packet sets that are live", None), one(stats.sets.live as f64))?;
    family(encoder, ("sets_created", "Packet sets that became live", None), total(stats.sets.created))?;
    family(encoder, ("sets_expired", "Packet sets that ended", None), total(stats.sets.expired))?;
    family(encoder, ("sets_evicted", "Packet sets that ended to make room", None), total(stats.sets.evicted))?;
    family(encoder, ("sets_refused", "Packet sets for which there was no room", None), total(stats.sets.refused))?;
    family(
        encoder,
        ("transactions", "Transactions committed on shared state", None),
        total(stats.transactions.commits),
    )?;
    family(encoder, ("transactions_aborted", "Attempts rolled back", None), total(stats.transactions.aborts))?;
    family(
        encoder,
        ("transaction_turns", "Turns taken after repeated conflicts", None),
        total(stats.transactions.turns),
    )?;
    family(encoder, ("handler_panics", "Handlers that panicked", None), total(stats.transactions.panics))?;
    let ended = "Control and HTTP connections closed, as the longest silent, to make room for others";
    family(encoder, ("connections_ended_for_others", ended, None), total(stats.connections.ended_for_others))?;
    let refused = "Control and HTTP connections refused because all others were in use";
    family(encoder, ("connections_refused", refused, None), total(stats.connections.refused))
}

fn functions(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let named = |function: &Function| vec![("function", function.name.clone())];
    let reached = stats.functions.iter().map(|function| (named(function), counter(function.packets)));
    family(encoder, ("function_packets", "Packets that reached a function", None), reached)?;
    let of_functions = stats.functions.iter().map(|function| (&function.name, &function.dropped));
    let drops = of_functions.chain(&stats.dropped_elsewhere).flat_map(|(place, reasons)| {
        reasons.iter().map(move |(reason, count)| {
            (vec![("function", place.clone()), ("reason", reason.clone())], counter(*count))
        })
    });
    let consumed = stats.functions.iter().map(|function| (&function.name, &function.consumed));
    let consumed = consumed.chain(&stats.consumed_elsewhere);
    let consumed = consumed.map(|(place, count)| (vec![("function", place.clone())], counter(*count)));
    let words = "How many of the packets dropped by a function are not lost: it answered them, or sent them on later or in another way";
    family(encoder, ("consumed_packets", words, None), consumed)?;
    family(
        encoder,
        ("dropped_packets", "Packets dropped, by function (or source, runtime, sink) and reason", None),
        drops,
    )
}

/// Encodes what functions report in numbers: their sums, and findings with a number. Findings about the same subject are added up.
fn told(findings: &BTreeMap<String, Told>, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let mut figures: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    for (function, told) in findings {
        let sums = told.sums.iter().map(|(name, sum)| ([function, name.as_str(), ""], *sum));
        let numbers =
            told.found.iter().filter_map(|found| Some(([function, &found.kind, &*found.subject], found.number?)));
        sums.chain(numbers).for_each(|(figure, more)| *figures.entry(figure).or_default() += more);
    }
    let figures = figures.into_iter().map(|([function, figure, subject], number)| {
        let labels = [("function", function), ("figure", figure), ("subject", subject)];
        (labels.map(|(name, value)| (name, value.to_owned())).to_vec(), gauge(number as f64))
    });
    let help = "Numbers that functions report: sums, and counts of a rule, a backend, a network";
    family(encoder, ("function_figure", help, None), figures)
}

fn ports(ports: &[PortStats], encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let labels = |port: &PortStats| {
        // Packets of a capture come by no interface.
        let interface = (!port.name.is_empty()).then(|| ("interface", port.name.clone()));
        [("port", port.port.to_string())].into_iter().chain(interface).collect::<Vec<_>>()
    };
    let each = |of: fn(&PortStats) -> u64| ports.iter().map(move |port| (labels(port), counter(of(port))));
    let bytes = || Some(Unit::Bytes);
    family(encoder, ("port_received_packets", "Packets that came in by a port", None), each(|port| port.packets_in))?;
    family(
        encoder,
        ("port_received", "Bytes that came in by a port, as on the wire", bytes()),
        each(|port| port.bytes_in),
    )?;
    family(encoder, ("port_sent_packets", "Packets sent out by a port", None), each(|port| port.packets_out))?;
    family(encoder, ("port_sent", "Bytes sent out by a port", bytes()), each(|port| port.bytes_out))?;
    let missed = "Packets that the kernel or the device dropped before a worker received them";
    family(encoder, ("port_missed_packets", missed, None), each(|port| port.missed))?;
    let unsent = "Packets that the device of a port had no room for, or that are too long for it";
    family(encoder, ("port_unsent_packets", unsent, None), each(|port| port.unsent))
}

fn workers(workers: &[WorkerStats], encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let labels = |worker: &WorkerStats| vec![("worker", worker.worker.to_string())];
    let each = |of: fn(&WorkerStats) -> u64| workers.iter().map(move |worker| (labels(worker), counter(of(worker))));
    let now = |of: fn(&WorkerStats) -> f64| workers.iter().map(move |worker| (labels(worker), gauge(of(worker))));
    family(
        encoder,
        ("worker_running", "1 while a worker runs", None),
        now(|w| f64::from(u8::from(w.state == "running"))),
    )?;
    family(encoder, ("worker_received_packets", "Packets that a worker received", None), each(|w| w.packets))?;
    family(
        encoder,
        ("worker_undelivered_packets", "Frames that a worker's queue could not deliver", None),
        each(|w| w.undelivered),
    )?;
    family(
        encoder,
        ("worker_handed_on_packets", "Frames that a worker handed to the one they are steered to", None),
        each(|w| w.handed_on),
    )?;
    family(encoder, ("worker_batches", "Batches that a worker received", None), each(|w| w.batches))?;
    family(encoder, ("worker_sets", "Packet sets in a worker's tables", None), now(|w| w.sets_live as f64))?;
    family(
        encoder,
        ("worker_sets_room", "Packet sets that a worker's tables hold", None),
        now(|w| w.sets_room as f64),
    )?;
    family(
        encoder,
        ("worker_sets_to_move", "Packet sets still to be moved to other tables after a change of the plan", None),
        now(|w| w.sets_to_move as f64),
    )?;
    let cpu = workers.iter().map(|worker| (labels(worker), ConstCounter::new(worker.cpu_seconds)));
    family(
        encoder,
        ("worker_cpu", "Processor time of a worker, waiting for packets included", Some(Unit::Seconds)),
        cpu,
    )
}

fn objects(objects: &[Object], encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let labels = |object: &Object| vec![("object", object.name.clone()), ("kind", object.kind.clone())];
    let each = |of: fn(&Object) -> usize| objects.iter().map(move |object| (labels(object), gauge(of(object) as f64)));
    family(encoder, ("object_elements", "Elements of a state object", None), each(|object| object.len))?;
    family(encoder, ("object_capacity", "Most elements of a state object", None), each(|object| object.capacity))?;
    family(encoder, ("object_memory", "Memory of a state object", Some(Unit::Bytes)), each(|object| object.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Found;
    use crate::report::Sets;

    #[test]
    fn the_text_ends_as_the_format_wants_and_labels_are_escaped() {
        let object = Object { name: "a \"b\"\n".into(), kind: "Map".into(), len: 3, ..Object::default() };
        let stats = Stats { objects: vec![object], seconds: 1.5, ..Stats::default() };
        let text = text(&stats);
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("braid_uptime_seconds 1.5\n"), "{text}");
        assert!(text.contains("braid_object_elements{object=\"a \\\"b\\\"\\n\",kind=\"Map\"} 3.0"), "{text}");
        assert!(text.contains("# TYPE braid_sets_created counter\n") && text.contains("braid_sets_created_total 0\n"));
        let sets = Sets { evicted: 3, refused: 4, ..Sets::default() };
        let text = self::text(&Stats { sets, ..Stats::default() });
        assert!(
            text.contains("braid_sets_evicted_total 3\n") && text.contains("braid_sets_refused_total 4\n"),
            "{text}"
        );
    }

    #[test]
    fn ports_have_the_names_of_their_interfaces() {
        let port = |port, name: &str| PortStats { port, name: name.into(), packets_in: 7, ..PortStats::default() };
        let text = text(&Stats { ports: vec![port(0, "eth0"), port(1, "")], ..Stats::default() });
        assert!(text.contains("braid_port_received_packets_total{port=\"0\",interface=\"eth0\"} 7\n"), "{text}");
        assert!(text.contains("braid_port_received_packets_total{port=\"1\"} 7\n"), "{text}");
    }

    #[test]
    fn what_functions_tell_in_numbers_is_there_once_and_nothing_else_of_it() {
        let found = |subject: &str, number| Found {
            kind: "rule".into(),
            subject: subject.into(),
            detail: "decided".into(),
            number,
        };
        let told = Told {
            sums: [("icmp_errors_withheld".to_owned(), 3)].into(),
            found: vec![found("line 1", Some(2)), found("line 1", Some(5)), found("10.0.0.1", None)],
        };
        let stats = Stats { findings: [("firewall".to_owned(), told)].into(), ..Stats::default() };
        let text = text(&stats);
        let figures: Vec<&str> = text.lines().filter(|line| line.starts_with("braid_function_figure{")).collect();
        let expected = [
            r#"braid_function_figure{function="firewall",figure="icmp_errors_withheld",subject=""} 3.0"#,
            r#"braid_function_figure{function="firewall",figure="rule",subject="line 1"} 7.0"#,
        ];
        assert_eq!(figures, expected, "{text}");
    }
}
