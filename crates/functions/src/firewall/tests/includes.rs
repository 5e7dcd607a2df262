//! Rule files that include others: how they are found, in which order, and what an error says.

use std::path::{Path, PathBuf};

use super::rules::{PORTS, named};
use crate::firewall::config::Config;
use crate::firewall::rule_file::{self, RuleError};
use crate::firewall::rules::Rule;

/// A directory with files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn with(name: &str, files: &[(&str, &str)]) -> Folder {
        let folder = std::env::temp_dir().join(format!("braid-includes-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("room for a test");
            std::fs::write(path, text).expect("room for a test");
        }
        Folder(folder)
    }

    fn read(&self) -> Result<Vec<Rule>, RuleError> {
        let path = self.0.join("main.nft");
        let mut config: Config = named();
        let text = std::fs::read_to_string(&path).expect("the main file");
        rule_file::read(&path, &text, &mut config, PORTS)?;
        Ok(config.rules)
    }

    /// The file and line of each rule.
    fn places(&self) -> Vec<(String, u32)> {
        let rules = self.read().unwrap_or_else(|error| panic!("{error}"));
        let file = |rule: &Rule| {
            rule.file.as_deref().map_or("main.nft", |file| file.rsplit('/').next().unwrap_or(file)).to_owned()
        };
        rules.iter().map(|rule| (file(rule), rule.line)).collect()
    }

    /// The file, line and column of an error, and its text.
    fn refused(&self) -> ((String, u32, u32), String) {
        let error = self.read().expect_err("an error");
        let file = Path::new(&error.file).strip_prefix(&self.0).expect("a file of the folder").display().to_string();
        let folder = format!("{}/", self.0.display());
        ((file, error.line, error.column), format!("{}; {}", error.reason, error.instead).replace(&folder, ""))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn place(file: &str, line: u32) -> (String, u32) {
    (file.to_owned(), line)
}

/// Outside of tables, in tables, in chains; definitions and sets of one file are visible in the others.
#[test]
fn a_file_may_be_included_wherever_a_statement_stands() {
    let folder = Folder::with(
        "anywhere",
        &[
            (
                "main.nft",
                "include \"defs.nft\"\ntable inet filter {\n include \"chains/*.nft\"\n chain forward {\n  type filter hook forward priority 0; policy drop;\n  include \"./chains/more/web.nft\"; ip saddr $admins accept\n  jump a\n }\n}\n",
            ),
            ("defs.nft", "define admins = { 192.0.2.0/28 }\n"),
            ("chains/b.nft", "chain b { tcp dport 2 accept\n}"),
            ("chains/a.nft", "chain a {\n tcp dport 1 accept\n jump b\n}\n"),
            ("chains/.hidden.nft", "nonsense"),
            ("chains/c.txt", "nonsense"),
            ("chains/more/web.nft", "\ntcp dport 80 accept"),
        ],
    );
    let places =
        [place("web.nft", 2), place("main.nft", 6), place("a.nft", 2), place("b.nft", 1), place("main.nft", 4)];
    assert_eq!(folder.places(), places);
    assert_eq!(rule_file::included(&folder.0.join("main.nft")).len(), 4);
}

/// Anonymous chains of different files, and of a file that is included twice, are distinct: one must not accept what only
/// another may.
#[test]
fn chains_without_a_name_are_those_of_their_file() {
    let chain = |rules: &str| {
        format!("table inet t {{\nchain f {{\ntype filter hook forward priority 0; policy drop;\n{rules}\n}}\n}}\n")
    };
    let files = [
        ("main.nft", &*chain("include \"a.nft\"; include \"b.nft\"")),
        ("a.nft", "udp dport 1-3 jump { udp dport 1 accept }"),
        ("b.nft", "udp dport 1-3 jump { udp dport 2 accept }"),
    ];
    assert_eq!(Folder::with("unnamed", &files).places(), [place("a.nft", 1), place("b.nft", 1), place("main.nft", 2)]);
    let twice = "define p = 1\ninclude \"a.nft\"; redefine p = 2\ninclude \"a.nft\"";
    let files = [("main.nft", &*chain(twice)), ("a.nft", "udp dport 1-3 jump { udp dport $p accept }")];
    assert_eq!(Folder::with("twice", &files).places(), [place("a.nft", 1), place("a.nft", 1), place("main.nft", 2)]);
}

#[test]
fn an_error_names_the_file_in_which_it_stands() {
    let folder = Folder::with(
        "errors",
        &[
            ("main.nft", "accept\ninclude \"a/one.nft\"\n"),
            ("a/one.nft", "\ninclude \"two.nft\"\n"),
            ("a/two.nft", "\n\n tcp dport shh drop"),
        ],
    );
    let (at, said) = folder.refused();
    assert_eq!(at, ("a/two.nft".to_owned(), 3, 12));
    assert!(said.contains("`shh` is not a port"), "{said}");
}

#[test]
fn a_circle_is_refused_with_its_files() {
    let folder = Folder::with(
        "circle",
        &[
            ("main.nft", "include \"a/one.nft\""),
            ("a/one.nft", "accept\ninclude \"../two.nft\""),
            ("two.nft", "include \"a/*.nft\""),
        ],
    );
    let (at, said) = folder.refused();
    assert_eq!(at, ("a/../two.nft".to_owned(), 1, 9));
    assert_eq!(
        said,
        "main.nft includes a/one.nft includes a/../two.nft would include a/../a/one.nft within itself; include every file from one place"
    );
}

/// As in nftables: a pattern may match no file, but a plain name must exist.
#[test]
fn a_pattern_may_fit_nothing_and_a_name_may_not() {
    assert_eq!(
        Folder::with("pattern", &[("main.nft", "include \"none/*.nft\"\naccept")]).places(),
        [place("main.nft", 2)]
    );
    let (at, said) = Folder::with("missing", &[("main.nft", "accept\ninclude \"none.nft\"")]).refused();
    assert_eq!(at, ("main.nft".to_owned(), 2, 9));
    assert!(said.starts_with("none.nft: No such file"), "{said}");
    let (at, said) = Folder::with("unquoted", &[("main.nft", "include none.nft\naccept")]).refused();
    assert_eq!(at, ("main.nft".to_owned(), 1, 1));
    assert!(said.ends_with("write include \"services.nft\", in a line of its own"), "{said}");
}

/// A file that includes itself twice, by way of others, would never end.
#[test]
fn files_that_include_too_many_are_refused() {
    let files: Vec<(String, String)> = (0..15)
        .map(|n| (format!("f{n}.nft"), format!("include \"f{}.nft\"\n", n + 1).repeat(2)))
        .chain([("main.nft".to_owned(), "include \"f0.nft\"".to_owned()), ("f15.nft".to_owned(), "accept".to_owned())])
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (_, said) = Folder::with("many", &files).refused();
    assert!(said.contains("more than 16 deep, or more than 1024 times"), "{said}");
}
