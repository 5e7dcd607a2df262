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
    /// Packets per second of real workers.
    pub measured_rate: Option<f64>,
    /// Share of attempts that real workers took back.
    pub measured_abort_share: Option<f64>,
}

/// The label of every model.
pub const MODELLED: &str = "modelled";

impl ModelRow {
    /// How far the model is from the measurement, as a share of it.
    pub fn error(&self) -> Option<f64> {
        self.measured_rate.map(|measured| self.rate / measured.max(1.0) - 1.0)
    }
}

impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} from {}: {}", self.chain.join(" → "), self.input, self.label)?;
        for line in &self.calibration {
            writeln!(f, "  {line}")?;
        }
        writeln!(
            f,
            "\nworkers  modelled Mpps  × of one  modelled aborts  transfers  measured Mpps   (error)  measured aborts"
        )?;
        let one = self.rows.first().map_or(1.0, |row| row.rate / row.workers as f64);
        for row in &self.rows {
            let (rate, times) = (row.rate / 1e6, row.rate / one);
            write!(
                f,
                "{:>7}  {rate:>13.2}  {times:>8.2}  {:>13.2} %  {:>9.3}",
                row.workers,
                100.0 * row.abort_share,
                row.transfers
            )?;
            if let (Some(measured), Some(error)) = (row.measured_rate, row.error()) {
                write!(f, "  {:>13.2}  ({:>+5.1} %)", measured / 1e6, 100.0 * error)?;
            }
            if let Some(share) = row.measured_abort_share {
                write!(f, "  {:>13.2} %", 100.0 * share)?;
            }
            writeln!(f)?;
        }
        let mut told = None;
        for row in self.rows.iter().filter(|row| row.abort_share > 0.01) {
            if let (Some(cause), Some(recipe)) = (&row.cause, &row.recipe)
                && told != Some(cause)
            {
                writeln!(f, "\nfrom {} workers on: {cause}\n  → {recipe}", row.workers)?;
                told = Some(cause);
            }
        }
        Ok(())
    }
}
