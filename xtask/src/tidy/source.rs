//! Rules about Rust files: module docs, size, `unsafe`, panics, names.

use super::lexer::{code_of, without_tests, words};
use super::{File, Finding, layers};

/// Maximum number of lines in a file; a longer file has two subjects.
const LINES_MAX: usize = 600;
/// Number of lines that can be read in one sitting.
const LINES_ADVISED: usize = 400;
/// Number of lines in a function that fit on one screen.
const FUNCTION_LINES: usize = 70;

/// Number of values in a parameter that a reader tells apart without names.
const TUPLE_VALUES: usize = 2;

/// Words that name nothing; every concept has a name of its own.
const EMPTY_NAMES: [&str; 3] = ["Manager", "Helper", "Util"];

/// Applies all rules; `has_unsafe_home` says whether the crate has a place where `unsafe` is allowed.
pub fn check(file: &File, has_unsafe_home: bool) -> Vec<Finding> {
    let code = code_of(&file.text);
    let mut findings = Vec::new();
    if !begins_with_module_doc(&file.text) {
        findings.push(file.at(1, "begins without a module doc (//!): what is it, what are its invariants?"));
    }
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        findings.push(file.at(LINES_MAX, format!("{lines} lines, at most {LINES_MAX}")));
    }
    findings.extend(unsafe_code(file, &code, has_unsafe_home));
    findings.extend(names(file, &code));
    findings.extend(skips(file));
    if is_production(&file.path) {
        findings.extend(panics(file, &without_tests(&code)));
    }
    findings
}

/// Points out what deserves a look but is not forbidden.
pub fn advice(file: &File) -> Vec<Finding> {
    let mut advice = Vec::new();
    let lines = file.text.lines().count();
    if lines > LINES_ADVISED && lines <= LINES_MAX {
        advice.push(file.at(LINES_ADVISED, format!("{lines} lines, {LINES_ADVISED} read in one sitting")));
    }
    let code = code_of(&file.text);
    let long = functions(&code).into_iter().filter(|function| function.lines > FUNCTION_LINES);
    advice.extend(long.map(|Function { name, line, lines }| {
        file.at(line, format!("{name}: {lines} lines, {FUNCTION_LINES} stand on a screen"))
    }));
    if is_production(&file.path) {
        advice.extend(tuples(file, &without_tests(&code)));
    }
    advice
}

/// Parameters that are tuples of many values: a call does not say which is which, and they hide how many a function takes.
fn tuples(file: &File, code: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_word)) {
        let signature = &code[at + 3..];
        let name: String = signature.chars().take_while(|c| is_word(*c)).collect();
        let Some(list) = parameters(&signature[name.len()..]).filter(|_| !name.is_empty()) else { continue };
        let kinds = parts(list).into_iter().filter_map(|one| one.split_once(": ").map(|(_, kind)| kind.trim()));
        let values = kinds.filter_map(|kind| Some(parts(kind.strip_prefix('(')?.strip_suffix(')')?).len()));
        if let Some(values) = values.max().filter(|values| *values > TUPLE_VALUES) {
            let line = code[..at].matches('\n').count() + 1;
            found
                .push(file.at(line, format!("{name}: a tuple of {values} values as a parameter; a struct names them")));
        }
    }
    found
}

/// The list of parameters behind a function's name and type parameters.
fn parameters(signature: &str) -> Option<&str> {
    let (mut depth, mut before, mut begin) = (0, ' ', None);
    for (at, c) in signature.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        match begin {
            None if c == '(' && depth == 1 => begin = Some(at + 1),
            None if depth == 0 && matches!(c, ';' | '{') => return None,
            Some(begin) if depth == 0 => return signature.get(begin..at),
            _ => {}
        }
        before = c;
    }
    None
}

/// The parts of a list, without its last comma.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found, mut before) = (0, 0, Vec::new(), ' ');
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                found.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    found.extend(Some(list[begin..].trim()).filter(|last| !last.is_empty()));
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Functions with a body: name, first line, and length in lines from `fn` to the closing brace.
fn functions(code: &str) -> Vec<Function> {
    let starts = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_word));
    let mut found = Vec::new();
    for (at, _) in starts {
        let name: String = code[at + 3..].chars().take_while(|c| is_word(*c)).collect();
        if let Some(end) = body_end(&code[at..]).filter(|_| !name.is_empty()) {
            let line = code[..at].matches('\n').count() + 1;
            found.push(Function { name, line, lines: code[at..at + end].matches('\n').count() + 1 });
        }
    }
    found
}

/// The end of the body that follows a signature; `None` if there is a semicolon instead of a body.
fn body_end(code: &str) -> Option<usize> {
    let (mut depth, mut braces) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' if braces <= 1 => return Some(at),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

fn begins_with_module_doc(text: &str) -> bool {
    // `#!/...` and `#![...]` may precede it.
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!"))
        .is_none_or(|line| line.starts_with("//!"))
}

fn unsafe_code(file: &File, code: &str, has_unsafe_home: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let parts: Vec<&str> = file.path.split('/').collect();
    let is_root = matches!(parts.as_slice(), ["crates", _, "src", "lib.rs" | "main.rs"]);
    if is_root && !has_unsafe_home && !code.contains("#![forbid(unsafe_code)]") {
        findings.push(file.at(1, "the crate has no raw/ and no sys.rs: write #![forbid(unsafe_code)]"));
    }
    if is_root && has_unsafe_home && !code.contains("#![deny(unsafe_code)]") {
        findings.push(file.at(1, "write #![deny(unsafe_code)], and allow it in raw/ or sys.rs"));
    }
    if layers::is_unsafe_home(&file.path) {
        return findings;
    }
    let uses = words(code).filter(|(_, word)| *word == "unsafe");
    findings.extend(uses.map(|(line, _)| file.at(line, "unsafe is confined to raw/ and sys.rs")));
    findings
}

/// Panics in production code must be violated invariants with their reason: `expect` or `unreachable!`.
fn panics(file: &File, code: &str) -> Vec<Finding> {
    let unwraps = code.lines().enumerate().filter(|(_, line)| line.contains(".unwrap()"));
    unwraps
        .map(|(n, _)| file.at(n + 1, "unwrap() outside tests: return an error, or expect() with the invariant"))
        .collect()
}

/// A test that skips reports it through the test kit, which lists it, and fails where nothing may be skipped.
fn skips(file: &File) -> Vec<Finding> {
    let is_reporter = ["crates/testkit/src/skip.rs", "xtask/src/test.rs"].contains(&file.path.as_str());
    let lines =
        file.text.lines().enumerate().filter(|(_, line)| !is_reporter && line.contains(concat!("!(\"", "skipped")));
    lines.map(|(n, _)| file.at(n + 1, "a skip that is not listed: call braid_testkit::skip::skip")).collect()
}

/// Whether it is shipped code; the test kit, tests, benches, examples and this crate may use `unwrap`.
fn is_production(path: &str) -> bool {
    let tests = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder));
    path.starts_with("crates/")
        && path.contains("/src/")
        && !path.starts_with("crates/testkit/")
        && !tests
        && !path.ends_with("/tests.rs")
        && !path.ends_with("/testing.rs")
}

fn names(file: &File, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut before = "";
    for (line, word) in words(code) {
        let declares = matches!(before, "struct" | "enum" | "trait" | "type" | "mod" | "union");
        let empty = EMPTY_NAMES
            .iter()
            .find(|name| word.contains(**name) || (before == "mod" && word.contains(&name.to_lowercase())));
        if let Some(empty) = empty.filter(|_| declares) {
            findings.push(file.at(line, format!("{word}: \"{empty}\" says nothing; name what it does")));
        }
        if before == "fn" && word.starts_with("get_") {
            findings.push(file.at(line, format!("{word}: a getter is named by what it returns, without get_")));
        }
        before = word;
    }
    findings
}
