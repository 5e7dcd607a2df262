//! Tests each rule on a few lines, and all rules on the tree itself.

use super::lexer::{code_of, without_tests};
use super::{File, documents, layers, source};
use crate::shell;

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// Checks the messages about a source file, with their lines, in a crate without a place for `unsafe`.
fn check_source(path: &str, text: &str, expected: &[(usize, &str)]) {
    let findings = source::check(&file(path, text), false);
    let found: Vec<_> = findings.iter().map(|finding| (finding.line, finding.message.as_str())).collect();
    assert_eq!(found.len(), expected.len(), "{path}: {found:?}");
    for ((line, message), (expected_line, part)) in found.iter().zip(expected) {
        assert!(line == expected_line && message.contains(part), "{path}: {line}: {message}");
    }
}

#[test]
fn the_tree_keeps_the_rules() {
    let report = super::check(&shell::root()).expect("the tree can be read");
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn sources_begin_with_a_module_doc() {
    check_source("crates/nf/src/a.rs", "//! Doc.\nfn a() {}\n", &[]);
    check_source("crates/nf/src/a.rs", "#![allow(dead_code)]\n\n//! Doc.\n", &[]);
    check_source("crates/nf/src/a.rs", "use std::fmt;\n", &[(1, "module doc")]);
}

#[test]
fn unsafe_code_has_its_places() {
    check_source("crates/nf/src/a.rs", "//! Doc.\nunsafe fn a() {}\n", &[(2, "unsafe is confined")]);
    check_source("crates/nf/src/raw/a.rs", "//! Doc.\nunsafe fn a() {}\n", &[]);
    check_source("crates/nf/src/sys.rs", "//! Doc.\nunsafe fn a() {}\n", &[]);
    check_source("crates/nf/src/a.rs", "//! Doc of unsafe code.\n// unsafe\nconst A: &str = \"unsafe\";\n", &[]);
    check_source("crates/nf/src/lib.rs", "//! Doc.\n", &[(1, "forbid")]);
    check_source("crates/nf/src/lib.rs", "//! Doc.\n#![forbid(unsafe_code)]\n", &[]);
    let with_a_home = |text: &str| source::check(&file("crates/stm/src/lib.rs", text), true).len();
    assert_eq!([with_a_home("//! Doc.\n"), with_a_home("//! Doc.\n#![deny(unsafe_code)]\n")], [1, 0]);
}

#[test]
fn production_code_does_not_unwrap() {
    check_source("crates/nf/src/a.rs", "//! Doc.\nfn a() { b().unwrap(); }\n", &[(2, "unwrap")]);
    check_source(
        "crates/nf/src/a.rs",
        "//! Doc.\nfn a() {}\n#[cfg(test)]\nmod tests { fn b() { c().unwrap(); } }\n",
        &[],
    );
    check_source(
        "crates/nf/src/a.rs",
        "//! Doc.\n#[cfg(test)]\nmod tests;\nfn a() { b().unwrap(); }\n",
        &[(4, "unwrap")],
    );
    check_source("crates/nf/src/tests.rs", "//! Doc.\nfn a() { b().unwrap(); }\n", &[]);
    check_source("crates/nf/tests/a.rs", "//! Doc.\nfn a() { b().unwrap(); }\n", &[]);
}

#[test]
fn skips_are_listed() {
    let own = concat!("//! Doc.\nfn a() { eprintln!(\"", "skipped: no tshark\"); }\n");
    check_source("crates/io/tests/a.rs", own, &[(2, "not listed")]);
    check_source("crates/testkit/src/skip.rs", own, &[]);
    check_source("crates/io/tests/a.rs", "//! Doc.\nfn a() { skip(\"a\", &\"no tshark\"); }\n", &[]);
}

#[test]
fn documents_refer_to_what_is_there() {
    let found = |text: &str| documents::absent(&file("docs/a.md", text)).len();
    assert_eq!(found(concat!("See DESIGN ", "section 8.\n(the design's ", "section on batches)\n")), 2);
    assert_eq!(found("The design of the batch loop is in ARCHITECTURE.\n"), 0);
}

#[test]
fn names_say_something() {
    check_source("crates/nf/src/a.rs", "//! Doc.\nstruct FlowManager;\n", &[(2, "Manager")]);
    check_source("crates/nf/src/a.rs", "//! Doc.\nmod util {}\n", &[(2, "Util")]);
    check_source("crates/nf/src/a.rs", "//! Doc.\nfn get_port() {}\n", &[(2, "get_")]);
    check_source("crates/nf/src/a.rs", "//! Doc.\nfn a(x: &Manager) { map.get_mut(x); }\n", &[]);
}

#[test]
fn long_files_are_two_files() {
    let long = |lines: usize| format!("//! Doc.\n{}", "\n".repeat(lines - 1));
    check_source("crates/nf/src/a.rs", &long(600), &[]);
    check_source("crates/nf/src/a.rs", &long(601), &[(600, "601 lines")]);
    assert_eq!(source::advice(&file("a.rs", &long(500))).len(), 1);
}

#[test]
fn long_functions_are_named() {
    let check = |text: &str, expected: &[&str]| {
        let advice = source::advice(&file("crates/nf/src/a.rs", text));
        assert_eq!(advice.len(), expected.len(), "{advice:?}");
        assert!(advice.iter().zip(expected).all(|(advice, part)| advice.message.contains(part)), "{advice:?}");
    };
    let body = |lines: usize| "    a();\n".repeat(lines - 2);
    check(&format!("//! Doc.\nfn long(a: [u8; 4]) -> [u8; 4] {{\n{}}}\n", body(71)), &["long: 71 lines"]);
    check(&format!("//! Doc.\nfn a();\nfn fits() {{\n{}}}\n", body(70)), &[]);
}

#[test]
fn tuples_of_many_values_as_parameters_are_pointed_out() {
    let check = |signature: &str, expected: &[&str]| {
        let advice = source::advice(&file("crates/nf/src/a.rs", &format!("//! Doc.\n{signature} {{}}\n")));
        assert_eq!(advice.len(), expected.len(), "{advice:?}");
        assert!(advice.iter().zip(expected).all(|(advice, part)| advice.message.contains(part)), "{advice:?}");
    };
    check("fn three(&self, (a, b, c): (u8, Vec<(u8, u8)>, [u8; 4]), d: u8)", &["three: a tuple of 3 values"]);
    check("fn two<F: Fn(u8, u8, u8) -> u8>(at: (u8, F), all: &[(u8, u8, u8)]) -> (u8, u8, u8)", &[]);
    check("fn none()", &[]);
}

#[test]
fn literals_and_comments_are_no_code() {
    let check =
        |source: &str, code: &str| assert_eq!(code_of(source).replace(' ', ""), code.replace(' ', ""), "{source}");
    check("a /* b /* c */ d */ e", "a e");
    check("let a = \"b\\\"c\"; d", "let a = ; d");
    check("r#\"a\"b\"# c", " c");
    check("fn a<'b>(c: &'b u8) { '\\'' 'd' '\"' 'é' }", "fn a<'b>(c: &'b u8) { }");
    check("bar\"x\"; br\"y\"", "bar; b");
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod t {\n {}\n}\nb"), "a\n\n\n\n\nb");
}

#[test]
fn lower_layers_know_nothing_of_higher_ones() {
    let check = |name: &str, manifest: &str, count: usize| {
        let findings = layers::manifest(&file("Cargo.toml", manifest), name);
        assert_eq!(findings.len(), count, "{name}: {findings:?}");
    };
    check("packet", "[dependencies]\nbraid-memory.workspace = true\nzerocopy = \"1\"\n", 0);
    check("packet", "[dependencies]\nbraid-state.workspace = true\n", 1);
    check("packet", "[target.'cfg(linux)'.dependencies]\nbraid-state = { workspace = true }\n", 1);
    check("packet", "[dev-dependencies]\nbraid-testkit.workspace = true\n", 0);
    check("nobody", "[dependencies]\n", 1);
    assert_eq!(
        layers::members(&file("Cargo.toml", "members = [\n \"crates/packet\",\n \"crates/memory\",\n]\n")).len(),
        1
    );
}

#[test]
fn the_map_of_the_house_says_what_is_checked() {
    let right = std::fs::read_to_string(shell::root().join("ARCHITECTURE.md")).expect("the map is there");
    let check = |from: &str, to: &str, count: usize| {
        assert!(right.contains(from), "{from}");
        let findings = layers::map(&file("ARCHITECTURE.md", &right.replacen(from, to, 1)));
        assert_eq!(findings.len(), count, "{from}: {findings:?}");
    };
    check("# ", "# ", 0);
    check("| memory, packet, state |", "| memory, packet |", 1);
    check("| [steer](crates/steer) ", "| [stm](crates/steer) ", 1);
}

#[test]
fn documents_with_long_lines_are_pointed_out() {
    let advice = |line: String| documents::advice(&file("docs/a.md", &format!("# Title\n{line}\n")));
    assert_eq!(advice("a".repeat(200)), None);
    assert_eq!(advice(format!("{}[a](docs/b.md)", "a".repeat(195))), None, "where a link leads is not read");
    assert_eq!(advice(format!("```\n{}\n```", "a".repeat(300))), None);
    assert!(advice("a".repeat(201)).is_some_and(|advice| advice.message.starts_with("201 characters; 1 lines")));
}

#[test]
fn links_lead_to_files() {
    let check = |text: &str, count: usize| {
        let findings = documents::links(&file("docs/a.md", text), &|path| path == "docs/b.md");
        assert_eq!(findings.len(), count, "{text}: {findings:?}");
    };
    check("[b](b.md), [part](b.md#part), [web](https://example.org), [here](#part)", 0);
    check("[c](c.md)", 1);
    check("`[c](c.md)`\n```\n[c](c.md)\n```\n", 0);
}

#[test]
fn the_readme_opens_with_two_commands() {
    let check = |readme: &str, ci: &str, count: usize| {
        let findings = documents::commands(&[file(".ci/run", ci), file("README.md", readme)]);
        assert_eq!(findings.len(), count, "{readme}: {findings:?}");
    };
    check("# A\n```sh\nrun\ntest\n```\n", "exec test", 0);
    check("# A\n```sh\nrun\ntest\n```\n", "exec other", 1);
    check("# A\n```sh\nrun\n```\n", "exec test", 1);
}

#[test]
fn unfinished_work_is_named() {
    let mark = concat!("TO", "DO");
    assert_eq!(documents::unfinished(&file("a.md", &format!("all well\n{mark}: more\n"))).len(), 1);
    assert_eq!(documents::unfinished(&file("a.md", "todos are fine\n")).len(), 0);
}
