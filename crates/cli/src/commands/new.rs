//! `braid new`: creates a crate for a network function of the user's own that builds, passes its test, and runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::print;
use crate::args::NewArgs;
use crate::catalog::catalog;
use crate::failure::{Failure, Kind};
use crate::stderr::asideln;

/// Paths in the new crate, with the contents of the files; `{name}`, `{Type}` and `{braid-…}` are substituted.
const FILES: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("../../templates/manifest.toml")),
    ("src/lib.rs", include_str!("../../templates/src/lib.rs")),
    ("src/main.rs", include_str!("../../templates/src/main.rs")),
    ("tests/traffic.rs", include_str!("../../templates/tests/traffic.rs")),
    ("README.md", include_str!("../../templates/README.md")),
    (".cargo/config.toml", include_str!("../../templates/config.toml")),
    (".gitignore", include_str!("../../templates/gitignore")),
];

/// Keywords of Rust, and crates that are always available.
const WORDS: &str = "abstract alloc as async await become box break const continue core crate do dyn else enum extern \
    false final fn for gen if impl in let loop macro match mod move mut override priv proc_macro pub ref \
    return self static std struct super test trait true try type unsafe use where";

/// Names of crates on which the new crate depends, and of folders in which cargo builds.
const CARGO: &str = "braid_cli braid_functions braid_nf braid_testkit build deps examples incremental serde toml";

/// The crates of Braid on which the new crate depends.
const CRATES: [&str; 4] = ["nf", "functions", "cli", "testkit"];

/// Runs the command.
pub fn run(args: &NewArgs) -> Result<ExitCode, Failure> {
    let name = args.name.replace('-', "_");
    let legal = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !legal {
        let help = "use lower-case letters, digits and `_`, a letter first: my_function";
        return Err(Failure::usage(format!("`{}` is no name for a function", args.name), help));
    }
    if catalog(Vec::new()).find(&name).is_some() {
        let what = format!("`{name}` comes with Braid");
        return Err(Failure::usage(what, "choose another name: plans could mean either"));
    }
    if is_taken(&name) {
        let what = format!("`{name}` means something else in Rust, to cargo, or in the code that is written");
        return Err(Failure::usage(what, "choose another name: my_function"));
    }
    if name != args.name {
        asideln!("note: the function is called `{name}`: names in Rust and in plans have `_`");
    }
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from(&name));
    if folder.exists() {
        let what = format!("{} is there already", folder.display());
        return Err(Failure::usage(what, "choose another name, or a folder with --folder"));
    }
    let braid = Braid::of(args.braid.as_deref())?;
    write_all(&folder, &name, &braid).inspect_err(|_| {
        // Clean up, so that the command can be repeated; the folder did not exist before, so everything in it is ours.
        let _ = std::fs::remove_dir_all(&folder);
    })?;
    let folder = folder.display();
    print(&format!(
        "{folder}: a function, its test and a binary\n  cd {folder} && cargo test    (the first build is one of all Braid: minutes)\n  cargo run -- certify --nf {name} --in 'gen:campus?packets=20000' --runs 10\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn write_all(folder: &Path, name: &str, braid: &Braid) -> Result<(), Failure> {
    for (path, text) in FILES {
        write(&folder.join(path), &fill(text, name, braid))?;
    }
    if let Some(lock) = braid.lock() {
        // The versions with which Braid itself was built, so that nothing needs to be looked up.
        let to = folder.join("Cargo.lock");
        std::fs::copy(&lock, &to).map_err(|error| Failure::file(&to, &error))?;
    }
    Ok(())
}

/// The location of Braid's crates.
enum Braid {
    Folder(PathBuf),
    Git(String),
}

impl Braid {
    fn of(given: Option<&str>) -> Result<Braid, Failure> {
        if let Some(address) = given.filter(|given| given.contains("://") || given.starts_with("git@")) {
            return Ok(Braid::Git(address.to_owned()));
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = given.map_or(here, PathBuf::from);
        let help = "add --braid with the folder of Braid's repository, or with its git address";
        if !folder.join("crates/nf/Cargo.toml").exists() {
            return Err(Failure::new(Kind::Usage, format!("Braid's crates are not in {}", folder.display()), help));
        }
        folder.canonicalize().map(Braid::Folder).map_err(|error| Failure::file(&folder, &error))
    }

    fn dependency(&self, name: &str) -> String {
        match self {
            Braid::Folder(folder) => {
                let path = folder.join("crates").join(name).display().to_string();
                format!("{{ path = {} }}", toml::Value::String(path))
            }
            Braid::Git(address) => format!("{{ git = {} }}", toml::Value::String(address.clone())),
        }
    }

    fn lock(&self) -> Option<PathBuf> {
        match self {
            Braid::Folder(folder) => Some(folder.join("Cargo.lock")).filter(|lock| lock.exists()),
            Braid::Git(_) => None,
        }
    }
}

/// Whether the crate or its type cannot have this name, because it is a keyword, one of the crate's
/// dependencies, or a name in the template.
fn is_taken(name: &str) -> bool {
    let own = type_name(name);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    WORDS.split_whitespace().chain(CARGO.split_whitespace()).any(|word| word == name)
        || FILES.iter().any(|(_, text)| text.split(|c| !is_part(c)).any(|word| word == own))
}

/// Converts a name to a type: `flow_guard` to `FlowGuard`.
fn type_name(name: &str) -> String {
    let part = |part: &str| {
        part.chars().take(1).map(|c| c.to_ascii_uppercase()).chain(part.chars().skip(1)).collect::<String>()
    };
    name.split('_').map(part).collect()
}

fn fill(text: &str, name: &str, braid: &Braid) -> String {
    let text = text.replace("{name}", name).replace("{Type}", &type_name(name));
    CRATES.iter().fold(text, |text, member| text.replace(&format!("{{braid-{member}}}"), &braid.dependency(member)))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    std::fs::write(path, text).map_err(|error| Failure::file(path, &error))
}
