//! `braid new`: the crate that it makes builds, passes its test, and is certified.

mod support;

use std::process::Command;

use support::Braid;

#[test]
fn a_new_function_is_made_of_legal_names_only_and_never_over_something() {
    let braid = Braid::new();
    braid.ok("new flow_guard");
    let text = std::fs::read_to_string(braid.path("flow_guard/src/lib.rs")).unwrap();
    assert!(text.contains("pub struct FlowGuard") && !text.contains("{name}") && !text.contains("{Type}"), "{text}");
    assert!(braid.fails(2, "new flow_guard").contains("already"));
    let other = braid.run("new other-guard");
    assert!(other.status.success() && braid.path("other_guard").exists());
    assert!(String::from_utf8_lossy(&other.stderr).contains("the function is called `other_guard`"), "{other:?}");
    assert!(braid.fails(2, "new 9lives").contains("lower-case"));
    assert!(braid.fails(2, "new nat").contains("comes with Braid"));
    for word in ["match", "self", "core", "map", "packet", "config", "serde", "braid-cli", "deps", "examples"] {
        assert!(braid.fails(2, &format!("new {word}")).contains("means something else"), "{word}");
    }
    assert!(braid.fails(2, "new other --braid .").contains("--braid"));
    let git = "https://git.example/braid.git";
    braid.ok(&format!("new remote --braid {git}"));
    assert!(std::fs::read_to_string(braid.path("remote/Cargo.toml")).unwrap().contains(git));
}

#[test]
#[ignore = "builds a crate with all it stands on, which takes minutes"]
fn a_new_function_builds_and_passes_its_test_and_is_certified() {
    let braid = Braid::new();
    braid.ok("new flow_guard");
    let cargo = |line: &str| {
        let output = Command::new(env!("CARGO"))
            .args(line.split_whitespace())
            .current_dir(braid.path("flow_guard"))
            .env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/scaffold"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "cargo {line}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(cargo("test").contains("3 passed"));
    let text = cargo("run -- certify --nf flow_guard --set flows_max=2 --in gen:campus?packets=2000 --runs 6");
    assert!(text.starts_with("CERTIFIED"), "{text}");
}
