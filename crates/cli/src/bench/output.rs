//! Writes the rows of a measurement for other programs and for people: a table of comma-separated values, and a plot.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::rows::Row;

/// Column names of the table.
const COLUMNS: &str = "chain,variant,trace,flows,workers,distribution,batch,copy,mpps,ns_per_packet,mpps_wall,packets,sets,created,expired,evicted,refused,dropped,lost,pages";

/// The rows as comma-separated values, with a header line.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = format!("{COLUMNS}\n");
    for row in rows {
        let Row { chain, variant, trace, flows, workers, distribution, batch, mpps, ns_per_packet, .. } = row;
        let Row { receive_copy, mpps_wall, packets, sets, created, expired, evicted, refused, .. } = row;
        let Row { dropped, lost, pages, .. } = row;
        let chain = field(chain);
        text += &format!(
            "{chain},\"{variant}\",{trace},{flows},{workers},{distribution},{batch},{receive_copy},{mpps:.3},{ns_per_packet:.3},{mpps_wall:.3},{packets},{sets},{created},{expired},{evicted},{refused},{dropped},{lost},{pages}\n"
        );
    }
    text
}

/// Quotes a field if necessary (RFC 4180); the name of a plan file may contain commas.
fn field(name: &str) -> String {
    if name.contains([',', '"', '\n']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

/// Plots million packets per second over flows, with a line for each chain, trace and number of workers.
pub(crate) fn plot(rows: &[Row], path: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (1000, 640)).into_drawing_area();
    root.fill(&WHITE)?;
    let least = rows.iter().map(|row| row.flows).min().unwrap_or(1) as f64;
    let most = rows.iter().map(|row| row.flows).max().unwrap_or(1) as f64;
    let top = rows.iter().map(|row| row.mpps).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(&root)
        .caption("million packets a second, in memory, 64-byte frames", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d((least * 0.7..most * 1.4).log_scale(), 0.0..top)?;
    chart.configure_mesh().x_desc("flows").y_desc("Mpps").draw()?;
    for (number, (name, points)) in lines(rows).into_iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let marks: Vec<_> = points.iter().map(|point| Circle::new(*point, 3, colour.filled())).collect();
        let line = chart.draw_series(LineSeries::new(points, colour))?;
        line.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        chart.draw_series(marks)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

type Line = (String, Vec<(f64, f64)>);

/// Groups the rows by chain, trace and number of workers, in the order of first occurrence.
fn lines(rows: &[Row]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows.iter().filter(|row| row.variant.is_empty()) {
        let name = format!("{} {} × {}", row.chain, row.trace, row.workers);
        let point = (row.flows as f64, row.mpps);
        match lines.iter_mut().find(|line| line.0 == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    lines
}
