//! One self-contained page with a profile and, if there is one, the scaling curve. No script, font or picture is loaded from elsewhere; the page
//! is light or dark according to the reader's preference.

use std::fmt::Write;

use crate::model::ModelReport;
use crate::report::Profile;
use crate::words::counted;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--soft:#667085;--back:#fcfcfd;--line:#e4e7ec;--hot:#c2410c;--cool:#2563eb}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--soft:#98a2b3;--back:#14181f;--line:#2c3440;--hot:#fb923c;--cool:#60a5fa}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}table{border-collapse:collapse;width:100%}\
td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
code,pre{font:14px ui-monospace,monospace}pre{padding:.6rem;border:1px solid var(--line);border-radius:.4rem;overflow-x:auto}\
.soft{color:var(--soft)}.bar{background:var(--hot);height:.7rem;border-radius:.2rem;min-width:1px}svg{width:100%;height:auto}\
svg text{fill:var(--soft);font-size:12px}";

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 30.0;

/// Renders the page.
pub fn page(profile: &Profile, model: Option<&ModelReport>) -> String {
    let mut out = String::new();
    let title = escape(&profile.chain.join(" → "));
    let kind = if profile.modelled { "modelled" } else { "measured" };
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{title}: profile</title><style>{STYLE}</style><h1>{title}</h1>\
         <p>{} of {} on {}, {kind}: {:.2} million a second. {}; \
         {} rolled back ({:.1} %). {} taken, {} of a worker with itself.</p>",
        counted(profile.packets, "packet"),
        escape(&profile.input),
        counted(profile.workers as u64, "worker"),
        profile.rate() / 1e6,
        counted(profile.commits, "transaction"),
        counted(profile.aborts, "attempt"),
        100.0 * profile.abort_share(),
        counted(profile.turns, "turn"),
        counted(profile.with_itself, "conflict"),
    );
    causes(&mut out, profile);
    lines(&mut out, profile);
    over_time(&mut out, profile);
    if let Some(model) = model {
        curve(&mut out, model);
    }
    load(&mut out, profile);
    time(&mut out, profile);
    out.push_str("</html>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn causes(out: &mut String, profile: &Profile) {
    if profile.causes.is_empty() {
        out.push_str("<h2>Conflicts</h2><p>None.</p>");
        return;
    }
    out.push_str("<h2>Why attempts were rolled back</h2>");
    for cause in profile.causes.iter().take(8) {
        let what = match cause.object.is_empty() {
            true => escape(&cause.why),
            false => format!(
                "<code>{}</code> ({}): <b>{}</b> met <b>{}</b> over {}",
                escape(&cause.object),
                cause.kind,
                cause.mine,
                cause.theirs,
                escape(&cause.why)
            ),
        };
        let (share, line) = (100.0 * cause.share, escape(&cause.line));
        let _ = write!(out, "<p><b>{share:.1} %</b> {what}<br><span class=soft>{line}</span></p>");
        let hot: Vec<String> = cause
            .hot
            .iter()
            .take(8)
            .map(|hot| format!("<code>{}</code> {:.1} %", escape(&hot.element), 100.0 * hot.share))
            .collect();
        if !hot.is_empty() {
            let _ = write!(out, "<p class=soft>hottest: {}</p>", hot.join(" · "));
        }
        if let Some(change) = &cause.change {
            let _ = write!(out, "<pre>{}</pre>", escape(change));
        }
        if let Some(tried) = &cause.tried {
            let attempts = counted(tried.aborts, "attempt");
            let _ = write!(out, "<p>Tried: {attempts} rolled back ({:.1} %).</p>", 100.0 * tried.share);
        }
        if !cause.recipe.is_empty() {
            let of_kind = if cause.change.is_some() { format!("With any {}: ", cause.kind) } else { String::new() };
            let _ = write!(out, "<p>{of_kind}{}</p>", escape(&cause.recipe));
        }
    }
}

fn lines(out: &mut String, profile: &Profile) {
    if profile.lines.is_empty() {
        return;
    }
    out.push_str("<h2>By line</h2><table><tr><th>line<th class=n>aborts<th class=n>share<th style=width:40%>");
    for line in profile.lines.iter().take(20) {
        let (name, share) = (escape(&line.line), 100.0 * line.share);
        let _ = write!(
            out,
            "<tr><td><code>{name}</code><td class=n>{}<td class=n>{share:.1} %<td><div class=bar style=\"width:{share:.1}%\"></div>",
            line.aborts
        );
    }
    out.push_str("</table>");
}

fn over_time(out: &mut String, profile: &Profile) {
    let aborts = &profile.over_time.aborts;
    let most = aborts.iter().copied().max().unwrap_or(0).max(1) as f64;
    if aborts.len() < 2 {
        return;
    }
    out.push_str("<h2>Aborts over time</h2>");
    frame(out, most, "aborts", aborts.len() as f64 * profile.over_time.step_s, "s");
    let width = (WIDTH - LEFT) / aborts.len() as f64;
    for (at, &count) in aborts.iter().enumerate() {
        let height = (HEIGHT - BOTTOM) * count as f64 / most;
        let (x, y) = (LEFT + at as f64 * width, HEIGHT - BOTTOM - height);
        let _ =
            write!(out, "<rect x={x:.1} y={y:.1} width={:.1} height={height:.1} fill=\"var(--hot)\"/>", width * 0.85);
    }
    out.push_str("</svg>");
}

/// Opens a plot whose axes end at `most` and `longest`.
fn frame(out: &mut String, most: f64, what: &str, longest: f64, unit: &str) {
    let base = HEIGHT - BOTTOM;
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img><path d=\"M{LEFT} 0V{base}H{WIDTH}\" fill=none stroke=\"var(--line)\"/>\
         <text x=0 y=12>{most:.3}</text><text x=0 y=28>{what}</text><text x={LEFT} y={}>0</text>\
         <text x={WIDTH} y={} text-anchor=end>{longest:.3} {unit}</text>",
        base + 16.0,
        base + 16.0
    );
}

fn curve(out: &mut String, model: &ModelReport) {
    let most = model.rows.iter().map(|row| row.rate).fold(1.0, f64::max) / 1e6;
    let longest = model.rows.iter().map(|row| row.workers).max().unwrap_or(1) as f64;
    let _ = write!(out, "<h2>Scaling curve ({}; rings: measured)</h2>", model.label);
    frame(out, most, "million packets a second", longest, "workers");
    let place = |workers: usize, rate: f64| {
        let x = LEFT + (WIDTH - LEFT - 6.0) * workers as f64 / longest;
        (x, (HEIGHT - BOTTOM) * (1.0 - 0.96 * rate / 1e6 / most))
    };
    let mut path = String::new();
    for row in &model.rows {
        let (x, y) = place(row.workers, row.rate);
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        let _ = write!(out, "<circle cx={x:.1} cy={y:.1} r=3 fill=\"var(--cool)\"/>");
        if let Some(measured) = row.measured {
            let (x, y) = place(row.workers, measured.rate);
            let _ = write!(out, "<circle cx={x:.1} cy={y:.1} r=6 fill=none stroke=\"var(--hot)\" stroke-width=2 />");
        }
    }
    let _ = write!(out, "<path d=\"{path}\" fill=none stroke=\"var(--cool)\" stroke-width=2 /></svg>");
}

fn load(out: &mut String, profile: &Profile) {
    let balance = &profile.balance;
    let _ = write!(out, "<h2>Load</h2><p>{:.2} × the mean on the most loaded worker.</p><table>", balance.factor);
    for (worker, packets) in balance.packets.iter().enumerate() {
        let _ = write!(out, "<tr><td>worker {worker}<td class=n>{packets}");
    }
    for set in balance.heaviest.iter().take(8) {
        let _ = write!(out, "<tr><td><code>{}</code><td class=n>{:.1} %", escape(&set.element), 100.0 * set.share);
    }
    out.push_str("</table>");
}

fn time(out: &mut String, profile: &Profile) {
    if profile.time.is_empty() {
        return;
    }
    out.push_str("<h2>Time per packet</h2><table>");
    for part in &profile.time {
        let (name, share) = (escape(&part.part), 100.0 * part.share);
        let _ = write!(
            out,
            "<tr><td>{name}<td class=n>{:.1} ns<td class=n>{share:.1} %<td style=width:40%><div class=bar style=\"width:{share:.1}%;background:var(--cool)\"></div>",
            part.ns_per_packet
        );
    }
    out.push_str("</table>");
}
