//! A plot as a stand-alone SVG: lines over numbers of workers, and rings for measured values.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 46.0;
/// Colours that can be told apart with red-green colour blindness, on white and on black.
const COLOURS: [&str; 6] = ["#2563eb", "#ea580c", "#0d9488", "#a855f7", "#64748b", "#ca8a04"];

/// Maps a point to its position in the picture.
type Place<'a> = dyn Fn(&(f64, f64)) -> (f64, f64) + 'a;

/// One line of a plot.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Points, by increasing x.
    pub points: Vec<(f64, f64)>,
    /// Measured points, drawn as rings.
    pub measured: Vec<(f64, f64)>,
}

/// The content of a plot.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// The title above the plot.
    pub title: String,
    /// The label of the x axis.
    pub x: String,
    /// The label of the y axis.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
}

impl Plot {
    /// Renders the SVG.
    pub fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|series| series.points.iter().chain(&series.measured));
        let (right, top) = all().fold((1.0_f64, 0.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
        let step = step(top);
        let top = (top / step).ceil().max(1.0) * step;
        let place = |&(x, y): &(f64, f64)| {
            let wide = WIDTH - LEFT - RIGHT;
            (LEFT + wide * x / right, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / top)
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui,sans-serif\" \
             font-size=\"13\"><style>text{{fill:#334155}}path.grid{{stroke:#cbd5e1}}@media(prefers-color-scheme:dark)\
             {{text{{fill:#cbd5e1}}path.grid{{stroke:#334155}}}}</style>\n<text x=\"{LEFT}\" y=\"18\" font-size=\"15\">{}</text>\n",
            escape(&self.title)
        );
        self.axes(&mut out, (right, top), step, &place);
        for (at, series) in self.series.iter().enumerate() {
            series.draw(&mut out, COLOURS[at % COLOURS.len()], at, &place);
        }
        out.push_str("</svg>\n");
        out
    }

    fn axes(&self, out: &mut String, (right, top): (f64, f64), step: f64, place: &Place<'_>) {
        for mark in 0..=(top / step).round() as u32 {
            let value = f64::from(mark) * step;
            let (x, y) = place(&(0.0, value));
            let end = WIDTH - RIGHT;
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{x} {y:.1}H{end}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                x - 6.0,
                y + 4.0,
                (value * 1000.0).round() / 1000.0
            );
        }
        let mut marks: Vec<f64> = self.series.iter().flat_map(|s| s.points.iter().map(|point| point.0)).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        // Marks that would overlap are left out; the last one is always kept.
        marks.dedup_by(|b, a| *b - *a < right / 24.0 && *b < right);
        for mark in marks {
            let (x, y) = place(&(mark, 0.0));
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>", y + 18.0);
        }
        let (x, y) = place(&(right, 0.0));
        let _ =
            writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", y + 36.0, escape(&self.x));
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"36\">{}</text>", escape(&self.y));
    }
}

impl Series {
    fn draw(&self, out: &mut String, colour: &str, at: usize, place: &Place<'_>) {
        let mut path = String::new();
        for point in &self.points {
            let (x, y) = place(point);
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>");
        for point in &self.measured {
            let (x, y) = place(point);
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            );
        }
        let y = TOP + 14.0 + 18.0 * at as f64;
        let (line, text) = (LEFT + 14.0, LEFT + 44.0);
        let name = escape(&self.name);
        let _ = writeln!(
            out,
            "<path d=\"M{line} {:.1}h22\" stroke=\"{colour}\" stroke-width=\"2.5\"/><text x=\"{text}\" y=\"{y:.1}\">{name}</text>",
            y - 4.0
        );
    }
}

/// A round step that divides the axis into four to ten parts.
fn step(top: f64) -> f64 {
    let rough = (top / 6.0).max(1e-6);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(10.0 * power)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_lines_rings_and_round_marks() {
        let points = vec![(1.0, 2.0), (64.0, 130.0)];
        let series = Series { name: "a < b".into(), points, measured: vec![(1.0, 2.1)] };
        let svg = Plot { title: "t".into(), x: "workers".into(), y: "Mpps".into(), series: vec![series] }.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b") && svg.contains("<circle") && svg.contains(">150<") && svg.contains(">64<"));
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([1.0, 7.0, 130.0, 0.6].map(step), [0.2, 2.0, 50.0, 0.1]);
    }
}
