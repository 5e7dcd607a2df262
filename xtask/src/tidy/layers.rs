//! Which crate may depend on which, according to the table of ARCHITECTURE.md, and where `unsafe` is allowed.

use super::{File, Finding};

/// Every crate with its allowed dependencies, as in the table of ARCHITECTURE.md, in the order in which a packet meets them.
/// Dependencies only for tests (`[dev-dependencies]`) are unrestricted, because they do not reach what users build.
const LAYERS: [(&str, &[&str]); 13] = [
    ("memory", &[]),
    ("packet", &["memory"]),
    ("io", &["memory", "packet"]),
    ("steer", &["packet"]),
    ("stm", &["memory"]),
    ("state", &["memory", "stm"]),
    ("nf", &["memory", "packet", "state"]),
    ("runtime", &["memory", "packet", "io", "steer", "stm", "state", "nf"]),
    ("profile", &["stm", "state"]),
    ("control", &["packet", "io", "steer", "stm", "state", "nf", "runtime", "profile"]),
    ("functions", &["nf"]),
    ("cli", &["control", "functions", "testkit"]),
    ("testkit", &["memory", "packet", "io", "steer", "stm", "state", "nf", "runtime"]),
];

/// The entry in the table of ARCHITECTURE.md for a crate that depends on no other crate of ours.
const NOTHING: &str = "–";

/// Whether `unsafe` is allowed in this file.
pub fn is_unsafe_home(path: &str) -> bool {
    path.contains("/raw/") || path.ends_with("/sys.rs")
}

/// Whether the crate of this file has a place where `unsafe` is allowed; a crate without one must forbid it at its root.
pub fn may_hold_unsafe(files: &[File], path: &str) -> bool {
    let Some((crate_folder, _)) = path.split_once("/src/") else { return false };
    files.iter().any(|file| file.path.starts_with(crate_folder) && is_unsafe_home(&file.path))
}

/// Checks the manifests of the workspace and of its crates, and the table of crates.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.path == "Cargo.toml" {
            findings.extend(members(file));
        }
        let name = file.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        // Deeper paths are templates of manifests.
        if let Some(name) = name.filter(|name| !name.contains('/')) {
            findings.extend(manifest(file, name));
        }
        if file.path == "ARCHITECTURE.md" {
            findings.extend(map(file));
        }
    }
    findings
}

/// Checks that the table of crates in ARCHITECTURE.md agrees with the one used here.
pub fn map(file: &File) -> Vec<Finding> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = file.text.lines().enumerate().filter(|(_, line)| line.starts_with("| [") && line.contains("](crates/"));
    let rows = rows.map(|(n, line)| (n + 1, cells(line))).filter(|(_, cells)| cells.len() == 5);
    let rows: Vec<_> = rows.map(|(n, cells)| (n, link_text(&cells[1]), named(&cells[3]))).collect();
    let names: Vec<&str> = rows.iter().map(|(_, name, _)| name.as_str()).collect();
    let expected: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    if names != expected {
        let order = expected.join(", ");
        return vec![file.at(1, format!("the table of crates must have one row each, in this order: {order}"))];
    }
    let pairs = rows.iter().zip(LAYERS).filter(|((_, _, said), (_, allowed))| said != allowed);
    pairs.map(|((n, name, _), (_, allowed))| file.at(*n, format!("{name} may depend on: {}", words(allowed)))).collect()
}

fn link_text(cell: &str) -> String {
    cell.trim_start_matches('[').split(']').next().unwrap_or_default().to_owned()
}

fn named(cell: &str) -> Vec<String> {
    cell.split(", ").filter(|name| *name != NOTHING).map(str::to_owned).collect()
}

fn words(allowed: &[&str]) -> String {
    if allowed.is_empty() { NOTHING.to_owned() } else { allowed.join(", ") }
}

/// Checks that members are in the order of the table, so that a reader of the manifest follows the path of a packet.
pub fn members(file: &File) -> Vec<Finding> {
    let expected: Vec<String> = LAYERS.iter().map(|(name, _)| format!("crates/{name}")).collect();
    let listed: Vec<String> = file
        .text
        .lines()
        .skip_while(|line| !line.starts_with("members"))
        .take_while(|line| !line.starts_with(']'))
        .filter_map(|line| line.trim().trim_end_matches(',').strip_prefix('"')?.strip_suffix('"').map(str::to_owned))
        .filter(|member| member.starts_with("crates/"))
        .collect();
    match listed == expected {
        true => Vec::new(),
        false => {
            vec![file.at(1, format!("members must stand in the order of the packet's way: {}", expected.join(", ")))]
        }
    }
}

/// Checks that a crate depends only on those of our crates that the table allows.
pub fn manifest(file: &File, name: &str) -> Vec<Finding> {
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return vec![file.at(1, format!("crate {name} has no row in the layer table (xtask/src/tidy/layers.rs)"))];
    };
    let mut section = "";
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim();
        }
        // "[target.'cfg(linux)'.dependencies]" counts, "[dev-dependencies]" does not.
        let production = section.contains("dependencies") && !section.contains("dev-dependencies");
        let Some(ours) = line.strip_prefix("braid-").filter(|_| production) else { continue };
        let dependency = ours.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default();
        if !allowed.contains(&dependency) {
            findings.push(
                file.at(number + 1, format!("{name} may not depend on {dependency}; allowed: {}", allowed.join(", "))),
            );
        }
    }
    findings
}
