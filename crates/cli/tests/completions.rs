//! What shells and manuals are told is what there is.

mod support;

use std::process::Command;

use support::Braid;

#[test]
fn every_shell_is_told_all_commands_and_functions() {
    let braid = Braid::new();
    let commands = ["certify", "check-rss", "snapshot", "completions"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = braid.ok(&format!("completions {shell}"));
        let missing = commands.iter().chain(&["in-order"]).find(|word| !script.contains(**word));
        assert_eq!(missing, None, "{shell}");
        // The others are given no values of options.
        let takes_values = ["bash", "zsh", "fish"].contains(&shell);
        assert_eq!(script.contains("load_balancer"), takes_values, "{shell}");
        assert!(!script.contains("applied"), "{shell} is told what is hidden");
    }
}

/// As bash asks for it: the words so far, and what may follow.
#[test]
fn bash_completes_commands_options_and_functions() {
    let braid = Braid::new();
    braid.write("braid.bash", &braid.ok("completions bash"));
    let check = |typed: &[&str], wanted: &[&str]| {
        let words = typed.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let (last, before) = (typed[typed.len() - 1], typed[typed.len() - 2]);
        let asked = format!(
            ". ./braid.bash; COMP_WORDS=({words}); COMP_CWORD={}; _braid braid '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            typed.len() - 1
        );
        let output = Command::new("bash").args(["-c", &asked]).current_dir(braid.path("")).output().expect("bash");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let replies: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(replies, wanted, "{typed:?}: {output:?}");
    };
    check(&["braid", "sna"], &["snapshot"]);
    check(&["braid", "run", "--in-"], &["--in-order"]);
    check(&["braid", "run", "--nf", "nat"], &["nat", "nat64"]);
    check(&["braid", "nf", "show", "nptv"], &["nptv6"]);
    check(&["braid", "completions", "z"], &["zsh"]);
    check(&["braid", "run", "--time", ""], &["capture", "live"]);
    check(&["braid", "run", "--split", "m"], &["mac_hash"]);
    check(&["braid", "model", "--distribution", "s"], &["software"]);
}

/// fish is not told by clap_complete what stands without an option.
#[test]
fn fish_is_told_of_functions_studies_and_shells_behind_their_commands() {
    let script = Braid::new().ok("completions fish");
    let words = |condition: &str| {
        let line = format!("complete -c braid -n \"{condition}\" -f -a ");
        let told = script.lines().find_map(|told| told.strip_prefix(line.as_str()));
        told.unwrap_or_else(|| panic!("{condition}: {script}")).to_owned()
    };
    let behind = |path: &[&str]| {
        path.iter().map(|name| format!("__fish_seen_subcommand_from {name}")).collect::<Vec<_>>().join("; and ")
    };
    assert!(words(&behind(&["nf", "show"])).contains("load_balancer"));
    assert!(words(&behind(&["completions"])).contains("elvish"));
    assert!(words(&behind(&["study"])).contains("imbalance"));
}

#[test]
fn each_command_has_its_manual_page() {
    let braid = Braid::new();
    let said = braid.ok("man share/man/man1");
    let pages = std::fs::read_dir(braid.path("share/man/man1")).expect("a folder").count();
    assert!(said.starts_with(&format!("{pages} pages in share/man/man1")) && pages > 25, "{said}");
    let page = |name: &str| std::fs::read_to_string(braid.path(&format!("share/man/man1/{name}.1"))).expect("a page");
    assert!(page("braid").contains("braid\\-certify(1)") && page("braid").contains("Exit codes"));
    assert!(page("braid-run").contains("\\-\\-in\\-order") && !page("braid-run").contains("\\-\\-applied"));
    assert!(page("braid-nf-firewall-explain").contains("braid nf firewall explain"));
    assert!(braid.fails(3, "man share/man/man1/braid.1").contains("a file stands where a folder"));
}
