//! Checks the table of docs/generality.md, which follows table 6 of NFOS, against the sources: how many lines a sequential
//! author writes, and how many of them serve parallelism.

use std::path::{Path, PathBuf};

/// Lines of the paper's four kinds (section 5.2).
#[derive(Default)]
struct Lines {
    sets: usize,
    categories: usize,
    structures: usize,
    handlers: usize,
}

/// The functions of the table, in its order, and where their sources are.
const FUNCTIONS: [(&str, &[&str]); 14] = [
    ("nat", &["nat", "mappings"]),
    ("load_balancer", &["load_balancer"]),
    ("bridge", &["bridge"]),
    ("dns_tunnel", &["dns_tunnel"]),
    ("sidejacking", &["sidejacking"]),
    ("anti_ddos", &["anti_ddos"]),
    ("asset_monitor", &["asset_monitor"]),
    ("web_cache", &["../tests/skeletons/web_cache.rs"]),
    ("firewall", &["firewall"]),
    ("policer", &["policer"]),
    ("port_scan", &["port_scan"]),
    ("ipsec_tunnel", &["../tests/skeletons/ipsec_tunnel.rs"]),
    ("protocol_classifier", &["protocol_classifier"]),
    ("abacus", &["abacus"]),
];

/// The framework's state objects and the two parts that wrap them.
const STRUCTURES: [&str; 6] = ["Map", "Vector", "Allocator", "Distributed", "Aged", "Alerts"];
const HANDLERS: [&str; 9] = ["start", "stop", "first", "packet", "orphan", "expired", "tick", "timeout_ns", "prefetch"];

fn count(text: &str, lines: &mut Lines) {
    let mut within_set = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        let has = |what: &dyn Fn(&str) -> String| STRUCTURES.iter().any(|name| line.contains(&what(name)));
        let is_handler = HANDLERS.iter().any(|name| line.starts_with(&format!("fn {name}(")));
        within_set = if line.starts_with("fn packet_set(") { true } else { within_set && line != "}" };
        if within_set {
            lines.sets += 1;
        } else if line.starts_with("type Set =")
            || line.starts_with("#[repr(C)]")
            || (line.ends_with(',') && has(&|name| format!(": {name}<")))
        {
            lines.categories += 1;
        } else if has(&|name| format!("{name}::new(")) || has(&|name| format!("{name}Config {{")) {
            lines.structures += 1;
        } else if is_handler || line.contains(".register(cx") {
            lines.handlers += 1;
        } else if line.contains("(cx") && line.contains('?') {
            lines.structures += 1;
        }
    }
}

/// Functions of the table that are meant to be short.
const DETECTORS: [&str; 7] =
    ["dns_tunnel", "sidejacking", "anti_ddos", "asset_monitor", "port_scan", "protocol_classifier", "abacus"];
const LINES_MAX: usize = 250;

fn is_code(line: &&str) -> bool {
    !line.trim().is_empty() && !line.trim().starts_with("//")
}

/// Folders that do not count: tests, the SYN proxy of `anti_ddos`, and the reader of the firewall's rule files.
const LEFT_OUT: [&str; 3] = ["tests", "cookies", "rule_file"];

/// The files of a folder and of the rooms in it, or the file itself.
fn files_of(path: PathBuf) -> Vec<PathBuf> {
    match std::fs::read_dir(&path) {
        Ok(_) if LEFT_OUT.iter().any(|name| path.ends_with(name)) => Vec::new(),
        Ok(folder) => folder.flat_map(|entry| files_of(entry.expect("an entry").path())).collect(),
        Err(_) => vec![path],
    }
}

/// A function's lines of code without its configuration, those of the configuration, and the lines of both that serve
/// parallelism.
fn lines_of(places: &[&str]) -> (usize, usize, Lines) {
    let paths = places.iter().map(|place| Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(place));
    let files: Vec<PathBuf> = paths.flat_map(files_of).collect();
    let (mut logic, mut config, mut lines) = (0, 0, Lines::default());
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs") && !file.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(file).expect("a source file");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let into = if file.ends_with("config.rs") { &mut config } else { &mut logic };
        *into += text.lines().filter(is_code).count();
        count(text, &mut lines);
    }
    (logic, config, lines)
}

/// The figures in a function's row of the document.
fn documented(page: &str, name: &str) -> Option<Vec<usize>> {
    let row = page.lines().rev().find(|line| line.starts_with(&format!("| {name} |")))?;
    row.split('|').skip(2).map(str::trim).filter(|cell| !cell.is_empty()).map(|cell| cell.parse().ok()).collect()
}

#[test]
fn the_documents_table_shows_about_the_lines_of_the_sources() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/generality.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (mut table, mut differs) = (String::new(), false);
    for (name, places) in FUNCTIONS {
        let (logic, config, Lines { sets, categories, structures, handlers }) = lines_of(places);
        let figures =
            [logic, config, sets, categories, structures, handlers, sets + categories + structures + handlers];
        table += &format!("| {name} | {} |\n", figures.map(|figure| figure.to_string()).join(" | "));
        // Sources change; the page is considered correct within half as much more or less, or ten lines.
        let near = |(said, found): (&usize, &usize)| said.abs_diff(*found) <= (found / 2).max(10);
        let said = documented(&page, name).unwrap_or_default();
        differs |= said.len() != figures.len() || !said.iter().zip(&figures).all(near);
    }
    assert!(!differs, "docs/generality.md should show:\n{table}");
}

#[test]
fn a_detectors_mod_file_and_all_of_its_code_are_250_lines_at_most() {
    for name in DETECTORS {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name).join("mod.rs");
        let whole = std::fs::read_to_string(source).expect("a source file").lines().count();
        let (logic, ..) = lines_of(&[name]);
        assert!(
            whole <= LINES_MAX && logic <= LINES_MAX,
            "{name}: mod.rs has {whole} lines, the function {logic} of code"
        );
    }
}
