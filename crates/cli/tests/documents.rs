//! The examples of the documents do what they say.

mod support;

use std::path::Path;

use support::Braid;

const README: &str = include_str!("../../../README.md");
const CLI: &str = include_str!("../../../docs/cli.md");
const SCENARIOS: &str = include_str!("../../../tests/scenarios/README.md");
const PLAN_FILE: &str = include_str!("../../../docs/plan-file.md");

/// What stands in the fenced blocks of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or("")).collect()
}

#[test]
fn every_command_of_the_command_line_page_succeeds() {
    let braid = Braid::new();
    braid.write("example.scenario", blocks(SCENARIOS, "scenario")[0]);
    let commands: Vec<&str> = blocks(CLI, "sh").into_iter().flat_map(str::lines).collect();
    assert!(commands.len() > 10);
    for command in commands {
        let line = command.strip_prefix("braid ").expect("a command of braid").replace('\'', "");
        braid.ok(&line);
    }
}

#[test]
fn the_help_has_the_exit_codes_of_the_command_line_page() {
    let help = Braid::new().ok("--help").split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = CLI.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let codes: Vec<_> = rows.filter(|(code, _)| code.parse::<u8>().is_ok()).collect();
    assert_eq!(codes.len(), 5, "{codes:?}");
    let sentence: Vec<String> = codes.iter().map(|(code, meaning)| format!("{code} {meaning}")).collect();
    assert!(help.contains(&format!("Exit codes: {}.", sentence.join("; "))), "{help}");
}

/// The numbers of a run depend on nobody's speed, since its packets go in order; those of a certificate's attempts do.
#[test]
fn the_readmes_first_commands_print_what_it_shows() {
    let root = Braid::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let own = Braid::new();
    let commands: Vec<&str> = blocks(README, "sh").into_iter().flat_map(str::lines).take(3).collect();
    let braid = |line: &str| line.strip_prefix("cargo run --release -p braid-cli -- ").expect("a command").to_owned();
    let shown = blocks(README, "text");
    let to = own.path("home.pcapng").display().to_string();
    let printed = root.ok(&braid(commands[0]).replace("out/home-nat.pcapng", &to));
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert!(lines(&printed).starts_with(&lines(shown[0])), "{printed}\nis not what the README shows");
    let certified = root.ok(&format!("{} --runs 4", braid(commands[2])));
    let (here, there) = (lines(&certified), lines(shown[1]));
    assert_eq!((&here[0], &here[3]), (&there[0], &there[3]), "{certified}");
    assert!(here[2].starts_with("  in these runs") && there[2].starts_with("  in these runs"), "{certified}");
}

#[test]
fn the_example_plan_is_explained_and_runs() {
    let braid = Braid::new();
    braid.write("plan.toml", blocks(PLAN_FILE, "toml")[0]);
    braid.ok("plan plan.toml");
    let report = braid.json("run plan.toml");
    support::conserved(&report);
    assert_eq!((report["packets_in"].as_u64(), report["chain"][1].as_str()), (Some(2000), Some("flows")));
    assert!(braid.path("out.pcapng").exists());
}

#[test]
fn the_example_of_an_error_is_what_is_printed() {
    let braid = Braid::new();
    braid.write("plan.toml", "[[nf]]\nfunction = \"fierwall\"\n");
    let printed = braid.fails(2, "run plan.toml");
    let shown = blocks(PLAN_FILE, "text")[0];
    let lines = |text: &str| {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(lines(&printed), lines(shown));
}

/// Functions, with what stands in their READMEs.
fn readmes() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions/src");
    let entries = std::fs::read_dir(folder).expect("the functions").flatten();
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("README.md")).ok()?;
        Some((path.file_name()?.to_string_lossy().into_owned(), text))
    };
    let readmes: Vec<_> = entries.filter_map(|entry| read(entry.path())).collect();
    assert!(readmes.len() > 20);
    readmes
}

/// A whole plan, of what may be the configuration of a function alone, or a part of it.
fn whole(function: &str, part: &str) -> String {
    match part {
        plan if plan.contains("[[nf]]") => plan.to_owned(),
        tables if tables.starts_with('[') => format!("[[nf]]\nfunction = \"{function}\"\n{tables}"),
        keys => format!("[[nf]]\nfunction = \"{function}\"\n[nf.config]\n{keys}"),
    }
}

#[test]
fn every_plan_in_a_functions_readme_is_explained_and_runs() {
    let braid = Braid::new();
    let mut plans = 0;
    for (function, text) in readmes() {
        for part in blocks(&text, "toml") {
            braid.write("plan.toml", &whole(&function, part));
            braid.ok("plan plan.toml");
            support::conserved(&braid.json("run plan.toml --in gen:campus?packets=500"));
            plans += 1;
        }
    }
    assert!(plans > 7, "{plans}");
}

#[test]
fn every_rule_file_in_the_firewalls_readme_is_read() {
    let braid = Braid::new();
    let readmes = readmes();
    let (_, text) = readmes.iter().find(|(function, _)| function == "firewall").expect("its README");
    let files: Vec<&str> = blocks(text, "text");
    assert_eq!(files.len(), 3);
    for file in files {
        braid.write("rules.nft", file);
        let (ports, names) = match file.contains("dmz") {
            true => (3, r#"["lan", "wan", "dmz"]"#),
            false => (2, r#"["eth0", "eth1"]"#),
        };
        let config = format!("[nf.config]\nrules_file = \"rules.nft\"\ninterfaces = {names}\n");
        braid.write("plan.toml", &format!("ports = {ports}\n[[nf]]\nfunction = \"firewall\"\n{config}"));
        let mut explain = braid.command("nf firewall explain --port 1 --plan plan.toml");
        explain.arg("tcp 192.0.2.9:7 > 10.0.0.5:22");
        let output = explain.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("of the rule file"), "{said}{output:?}");
    }
}

#[test]
fn the_plan_of_the_first_gateway_runs_with_its_change_too() {
    let braid = Braid::new();
    let page = documents().into_iter().find(|(path, _)| path.ends_with("first-gateway.md")).expect("the page").1;
    let [plan, change] = blocks(&page, "toml")[..] else { panic!("a plan, and a line more") };
    let external = "external = [\"198.51.100.1\"]\n";
    assert!(plan.contains(external) && change.starts_with("static = "), "{page}");
    for plan in [plan.to_owned(), plan.replace(external, &format!("{external}{change}"))] {
        braid.write("gateway.toml", &plan);
        support::conserved(&braid.json("run gateway.toml --in gen:campus?packets=500"));
    }
}

/// All documents, by their path from the root of the project.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders =
        ["", "docs", "examples", "examples/studies", "packaging", "benches", "tests/scenarios", "tests/traffic"]
            .map(|folder| root.join(folder))
            .to_vec();
    let functions = std::fs::read_dir(root.join("crates/functions/src")).expect("the functions").flatten();
    folders.extend(functions.map(|entry| entry.path()).filter(|path| path.is_dir()));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder").flatten());
    let pages = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "md"));
    // What has changed since need not be so any more.
    let pages = pages.filter(|path| !path.ends_with("CHANGELOG.md"));
    let text = |path: &Path| std::fs::read_to_string(path).expect("text");
    pages.map(|path| (path.display().to_string(), text(&path))).collect()
}

/// Words of a command as a shell takes them, up to what belongs to the shell.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | '&' | '>' | '<' | '#' | ';') => break,
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.into_iter().chain(word).collect()
}

/// Whole lines of blocks, and what stands in a sentence.
fn commands(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("$ ").trim_start_matches("sudo "));
    let whole = lines.filter(|line| line.starts_with("braid "));
    let inline = text.split('`').filter(|part| part.starts_with("braid ") && !part.contains('\n'));
    whole.chain(inline).collect()
}

#[test]
fn every_command_that_a_document_shows_can_be_typed() {
    let mut typed = 0;
    for (path, text) in documents() {
        for command in commands(&text) {
            let words = words(command);
            // What is left out is the reader's, and a command's name alone is no command line.
            if words.len() < 3 || words.iter().any(|word| word.contains('…') || word == "NAME" || word == "N") {
                continue;
            }
            let read = braid_cli::args::Cli::understood().try_get_matches_from(&words);
            assert!(
                read.is_ok(),
                "{path}: `{command}`\n{}",
                read.err().map_or(String::new(), |error| error.to_string())
            );
            typed += 1;
        }
    }
    assert!(typed > 60, "{typed}");
}
