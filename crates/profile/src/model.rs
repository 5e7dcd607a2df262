//! The result of a scaling model: what more workers would do, next to what one and two real ones did.

use std::fmt;

use serde::Serialize;

/// The same chain on several numbers of workers.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// States that nothing here except `measured` has been measured.
    pub label: &'static str,
    /// The functions, in order.
    pub chain: Vec<String>,
    /// The name of the input.
    pub input: String,
    /// Packets of each run, over all its workers.
    pub packets: u64,
    /// Number of calibrations and real runs, of which medians are shown.
    pub repeats: usize,
    /// The results of the calibration, in words.
    pub calibration: Vec<String>,
    /// One row per number of workers.
    pub rows: Vec<ModelRow>,
}

/// The results for one number of workers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelRow {
    /// Number of workers.
    pub workers: usize,
    /// Packets per second, modelled.
    pub rate: f64,
    /// Share of attempts rolled back, modelled.
    pub abort_share: f64,
    /// Cache lines moved between workers, per packet, modelled.
    pub transfers: f64,
    /// The most frequent cause of aborts.
    pub cause: Option<String>,
    /// The recipe against it.
    pub recipe: Option<String>,
    /// Bytes of tables and objects.
    pub memory_bytes: usize,
    /// The results of real workers.
    pub measured: Option<Measured>,
}

/// Results of real workers: medians of several runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Measured {
    /// Packets per second of processor time.
    pub rate: f64,
    /// Share of attempts rolled back.
    pub abort_share: f64,
    /// The share of the run for which a worker had its processor, for the worker with the smallest share.
    pub presence: f64,
}

/// Workers that have their processors for less than this share of the time meet less often than they would on an otherwise idle machine.
const PRESENT: f64 = 0.9;

/// The label of every model.
pub const MODELLED: &str = "modelled";

impl ModelRow {
    /// The relative error of the modelled rate.
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| self.rate / measured.rate.max(1.0) - 1.0)
    }

    /// The relative error of the modelled share of aborts; `None` if hardly any were measured.
    pub fn abort_error(&self) -> Option<f64> {
        let measured = self.measured?.abort_share;
        (measured >= 0.001).then(|| self.abort_share / measured - 1.0)
    }
}

impl ModelReport {
    /// What to do if the machine had other work during the real runs.
    pub fn advice(&self) -> Option<String> {
        let measured = self.rows.iter().filter_map(|row| row.measured);
        let least = measured.map(|measured| measured.presence).fold(1.0, f64::min);
        (least < PRESENT).then(|| {
            format!(
                "the real workers had their processors only {:.0} % of the time, so they met less often than modelled: repeat this on \
                 a machine without other work, or as root under `chrt -f 1`",
                100.0 * least
            )
        })
    }
}

impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} from {}: {}", self.chain.join(" → "), self.input, self.label)?;
        writeln!(
            f,
            "  every run: {} packets, shared among its workers; measured: medians of {}",
            self.packets, self.repeats
        )?;
        for line in &self.calibration {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "\n         {:^36}   {:^38}", "modelled", "measured here (error of the model)")?;
        writeln!(f, "workers    Mpps  × of one rolled back  transfers       Mpps             rolled back    present")?;
        let one = self.rows.first().map_or(1.0, |row| row.rate / row.workers as f64);
        for row in &self.rows {
            let (rate, times, aborts) = (row.rate / 1e6, row.rate / one, 100.0 * row.abort_share);
            write!(f, "{:>7}  {rate:>6.2}  {times:>8.2}  {aborts:>8.2} %  {:>9.3}", row.workers, row.transfers)?;
            if let (Some(measured), Some(error)) = (row.measured, row.error()) {
                let Measured { rate, abort_share, presence } = measured;
                let off = row.abort_error().map_or_else(String::new, |error| format!("({:+.1} %)", 100.0 * error));
                let (rate, error, aborts) = (rate / 1e6, format!("({:+.1} %)", 100.0 * error), 100.0 * abort_share);
                write!(f, "     {rate:>6.2} {error:>10}  {aborts:>6.2} % {off:>10}  {:>5.0} %", 100.0 * presence)?;
            }
            writeln!(f)?;
        }
        if let Some(advice) = self.advice() {
            writeln!(f, "\n{advice}")?;
        }
        let mut told = None;
        for row in self.rows.iter().filter(|row| row.abort_share > 0.01) {
            if let (Some(cause), Some(recipe)) = (&row.cause, &row.recipe)
                && told != Some(cause)
            {
                writeln!(f, "\nfrom {} workers on ({}): {cause}\n  → {recipe}", row.workers, self.label)?;
                told = Some(cause);
            }
        }
        Ok(())
    }
}
