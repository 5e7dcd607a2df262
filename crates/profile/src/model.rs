//! A scaling model's answer: what more workers would do, beside what one and two real ones did.

use std::fmt;

use serde::Serialize;

/// The same chain on several numbers of workers.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Says that nothing here but `measured` has been measured.
    pub label: &'static str,
    /// The functions, in order.
    pub chain: Vec<String>,
    /// The input.
    pub input: String,
    /// Packets of each run, over all its workers.
    pub packets: u64,
    /// Calibrations and real runs of which the medians stand here.
    pub repeats: usize,
    /// What was measured first, in words.
    pub calibration: Vec<String>,
    /// By number of workers.
    pub rows: Vec<ModelRow>,
}

/// One number of workers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelRow {
    /// Workers.
    pub workers: usize,
    /// Packets per second, modelled.
    pub rate: f64,
    /// Share of attempts taken back, modelled.
    pub abort_share: f64,
    /// Lines moved between workers, per packet, modelled.
    pub transfers: f64,
    /// The most frequent cause.
    pub cause: Option<String>,
    /// Its recipe.
    pub recipe: Option<String>,
    /// Bytes of tables and objects.
    pub memory_bytes: usize,
    /// What real workers did.
    pub measured: Option<Measured>,
}

/// Real workers: medians of several runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Measured {
    /// Packets per second of processor time.
    pub rate: f64,
    /// Share of attempts taken back.
    pub abort_share: f64,
    /// Share of the run in which the worker that had its processor least had it.
    pub presence: f64,
}

/// Workers that have their processors less than this share of the time do not meet as they would on a machine of their own.
const PRESENT: f64 = 0.9;

/// The label of every model.
pub const MODELLED: &str = "modelled";

impl ModelRow {
    /// How far the modelled rate is from the measured one, as a share of it.
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| self.rate / measured.rate.max(1.0) - 1.0)
    }

    /// How far the modelled share of aborts is from the measured one, as a share of it; none if there were next to none.
    pub fn abort_error(&self) -> Option<f64> {
        let measured = self.measured?.abort_share;
        (measured >= 0.001).then(|| self.abort_share / measured - 1.0)
    }
}

impl ModelReport {
    /// What to do where the machine had other work than the real runs.
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
