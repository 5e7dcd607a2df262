//! Latency under load: how long packets take from arrival to sending, at fractions of a chain's capacity on this machine.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use braid_control::Catalog;
use braid_control::profile::plot::{Plot, Series};
use braid_control::report::grouped;
use braid_control::runtime::{Control, launch};
use serde::Serialize;

use super::paced::{Pace, Rig, Waits};
use super::rows::Trial;
use super::stop::unless;
use crate::failure::Failure;

/// Loads, in percent of the capacity.
const LOADS: [u32; 4] = [10, 50, 80, 95];
/// Number of packets in the repeated trace, for each worker.
const PACKETS: u64 = 4 << 20;

/// Latency at one load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    chain: String,
    flows: u64,
    workers: i64,
    load_percent: u32,
    /// Million packets per second that arrived, and that were sent.
    offered_mpps: f64,
    sent_mpps: f64,
    /// Mean number of packets in a batch.
    batch: f64,
    gather_us: u64,
    /// Quantiles of the time from arrival to sending, in microseconds.
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    packets: u64,
    lost: u64,
}

/// Measures a chain at every load, each for `time`; calls `done` for each row.
pub(crate) fn measure(
    trial: &Trial<'_>,
    catalog: &Catalog,
    time: Duration,
    done: &mut dyn FnMut(&Row) -> Result<(), Failure>,
) -> Result<Vec<Row>, Failure> {
    let capacity = run(trial, catalog, Pace { rate: None, time })?;
    let capacity_mpps = sent_mpps(&capacity.waits);
    let mut rows = Vec::new();
    for load_percent in LOADS {
        let rate = capacity_mpps * 1e6 * f64::from(load_percent) / 100.0 / trial.workers.max(1) as f64;
        let Ran { waits, gather_us, lost } = run(trial, catalog, Pace { rate: Some(rate), time })?;
        let mut all: Option<Waits> = None;
        for waits in waits.iter().cloned() {
            match &mut all {
                // The histograms have the same bounds, so adding them cannot fail.
                Some(all) => {
                    let _ = all.ns.add(&waits.ns);
                    (all.packets, all.batches) = (all.packets + waits.packets, all.batches + waits.batches);
                }
                None => all = Some(waits),
            }
        }
        let Some(all) = all else { continue };
        let us = |quantile: f64| all.ns.value_at_quantile(quantile) as f64 / 1e3;
        let row = Row {
            chain: trial.chain.to_owned(),
            flows: trial.flows,
            workers: trial.workers,
            load_percent,
            offered_mpps: rate * trial.workers as f64 / 1e6,
            sent_mpps: sent_mpps(&waits),
            batch: all.packets as f64 / all.batches.max(1) as f64,
            gather_us,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: all.ns.max() as f64 / 1e3,
            packets: all.packets,
            lost,
        };
        done(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

/// The results of one run.
struct Ran {
    waits: Vec<Waits>,
    gather_us: u64,
    lost: u64,
}

fn run(trial: &Trial<'_>, catalog: &Catalog, pace: Pace) -> Result<Ran, Failure> {
    let (traffic, compiled) = trial.prepare(catalog, PACKETS)?;
    let rig = Rig::new(compiled.run.workers, pace);
    let source = Box::new(rig.source(traffic.source));
    let control = Control { stop: Arc::clone(trial.stop), ..Control::default() };
    let report = launch(&compiled.run, source, Box::new(rig.sink()), &control)?;
    unless(trial.stop)?;
    let lost = (report.total.packets_in + report.total.packets_copied).saturating_sub(report.total.packets_out);
    Ok(Ran { waits: rig.waits(), gather_us: compiled.run.gather.as_micros() as u64, lost })
}

fn sent_mpps(waits: &[Waits]) -> f64 {
    waits.iter().map(|waits| waits.packets as f64 / waits.wall.as_secs_f64().max(1e-9) / 1e6).sum()
}

impl Row {
    /// Heading of the table.
    pub(crate) const HEAD: &str = "chain                                        flows  workers   load  offered Mpps  sent Mpps  batch   50 %, µs   99 %, µs  99.9 %, µs    max, µs  lost\n";

    /// The row as a line of the table.
    pub(crate) fn line(&self) -> String {
        let Row { chain, workers, load_percent, offered_mpps, sent_mpps, batch, .. } = self;
        let Row { p50_us, p99_us, p999_us, max_us, lost, .. } = self;
        let flows = grouped(self.flows);
        format!(
            "{chain:<40} {flows:>9} {workers:>8} {load_percent:>4} % {offered_mpps:>13.2} {sent_mpps:>10.2} {batch:>6.1} {p50_us:>10.1} {p99_us:>10.1} {p999_us:>11.1} {max_us:>10.1} {lost:>5}\n"
        )
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

/// The rows as comma-separated values, with a header line.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = "chain,flows,workers,load_percent,offered_mpps,sent_mpps,batch,gather_us,p50_us,p99_us,p999_us,max_us,packets,lost\n".to_owned();
    for row in rows {
        let Row { chain, flows, workers, load_percent, offered_mpps, sent_mpps, batch, gather_us, .. } = row;
        let Row { p50_us, p99_us, p999_us, max_us, packets, lost, .. } = row;
        let _ = writeln!(
            text,
            "{chain},{flows},{workers},{load_percent},{offered_mpps:.3},{sent_mpps:.3},{batch:.2},{gather_us},{p50_us:.3},{p99_us:.3},{p999_us:.3},{max_us:.3},{packets},{lost}"
        );
    }
    text
}

/// Plots quantiles over load, for each chain, number of flows and number of workers.
pub(crate) fn plot(rows: &[Row]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        for (quantile, us) in [("50 %", row.p50_us), ("99 %", row.p99_us)] {
            let name = format!("{} × {}, {}: {quantile}", row.chain, row.workers, grouped(row.flows));
            let point = (f64::from(row.load_percent), us);
            match series.iter_mut().find(|series| series.name == name) {
                Some(known) => known.points.push(point),
                None => series.push(Series { name, points: vec![point], ..Series::default() }),
            }
        }
    }
    let (x, y) = ("load, % of capacity".to_owned(), "µs from arrival to sending".to_owned());
    Plot { title: "latency under load".to_owned(), x, y, series }.svg()
}
