//! The examples of the documents do what they say.

mod support;

use support::Braid;

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
